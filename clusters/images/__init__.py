"""Images that nodes in containers are made of."""
