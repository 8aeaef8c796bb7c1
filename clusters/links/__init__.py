"""Links between nodes: relays in user space, what they carry, and what hinders it."""
