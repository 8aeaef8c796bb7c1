"""Faults: one file each in `faults`, and what they share."""
