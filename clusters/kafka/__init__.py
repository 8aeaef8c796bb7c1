"""Released Apache Kafka: its jars, its nodes, its files."""
