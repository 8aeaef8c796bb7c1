"""A Kafka-wire-compatible replicated log: controllers and brokers."""

__version__ = "0.1.0"  # the distribution takes it from here
