"""A node's seat in the metadata quorum, and the metadata log on disk."""
