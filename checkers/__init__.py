"""What is right: pure kernels over recordings, folded and judged."""
