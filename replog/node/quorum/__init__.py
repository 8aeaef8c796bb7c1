"""A node's part of the metadata quorum, and the metadata log on disk."""
