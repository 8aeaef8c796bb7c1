"""The harness's own clients and administrators of a cluster."""
