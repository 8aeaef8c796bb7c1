"""Runs that exist: archived, published, compared, explained."""
