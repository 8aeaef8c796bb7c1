"""A Kafka-wire-compatible replicated log: controllers and brokers."""
