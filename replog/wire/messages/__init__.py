"""Requests and responses, one module an API: Structs without versions (see `replog/wire/layout.py`)."""
