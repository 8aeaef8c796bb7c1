"""Kafka's wire protocol: framing, messages, versions."""
