"""A real ZooKeeper ensemble beside the brokers, and its znodes read as metadata records."""
