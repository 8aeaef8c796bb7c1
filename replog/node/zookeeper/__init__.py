"""Brokers and controllers of ZooKeeper mode."""
