"""The shell: the only asyncio in replog."""
