"""Coordinators of groups and transactions at work in a broker."""
