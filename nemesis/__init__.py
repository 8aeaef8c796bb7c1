"""What hurts: one file a fault."""
