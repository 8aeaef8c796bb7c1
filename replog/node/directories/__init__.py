"""A broker's log directories."""
