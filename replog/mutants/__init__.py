"""Known bugs that can be switched back on, one file each; never imported unless asked for."""
