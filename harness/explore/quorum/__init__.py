"""The world of the metadata quorum: who leads, and whether anybody can."""
