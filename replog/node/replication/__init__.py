"""Replicas that a broker hosts, and how they are copied, flushed and proposed."""
