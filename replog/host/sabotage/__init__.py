"""What lets a test disturb a node from outside: clock, disk, and a journal of what was not synced. Never used unless asked for."""
