"""A real ZooKeeper ensemble beside the brokers, and its znodes told as metadata."""
