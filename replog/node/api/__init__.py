"""Handlers of requests: what each API answers."""
