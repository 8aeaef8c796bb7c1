"""The real machine behind the ports of `replog/ports.py`."""
