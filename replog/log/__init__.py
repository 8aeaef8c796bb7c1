"""One partition's log on disk: batches, segments, epochs, producers, recovery."""
