"""Small worlds, exhaustively: the product's own cores as a transition system, all interleavings up to a bound."""
