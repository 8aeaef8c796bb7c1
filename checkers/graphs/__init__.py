"""Dependency graphs and their cycles."""
