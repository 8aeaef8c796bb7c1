"""Kinds of cluster, one file each."""
