"""Linearizability of registers and other small models."""
