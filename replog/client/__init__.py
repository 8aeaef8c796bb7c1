"""A small client of the protocol: a sans-io core and an async face."""
