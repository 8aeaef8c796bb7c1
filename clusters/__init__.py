"""Where a system under test runs: kinds of cluster behind one interface."""
