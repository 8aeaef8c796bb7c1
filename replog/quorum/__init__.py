"""The controllers' quorum: KRaft (KIP-595) with pre-vote (KIP-996)."""
