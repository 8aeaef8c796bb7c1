"""Records that travel inside record batches: metadata, control and coordinator records, in Kafka's layouts."""
