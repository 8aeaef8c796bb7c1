"""Workloads, one file each: what lies here can be named in a scenario."""
