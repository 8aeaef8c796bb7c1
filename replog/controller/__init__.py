"""The cluster's state and every rule that changes it (KIP-380, 704, 903, 966)."""
