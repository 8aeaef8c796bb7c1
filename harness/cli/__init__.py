"""The tribunal command, one file a command group."""
