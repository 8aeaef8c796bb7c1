"""Systems that this project did not write, described by a `system.toml`."""
