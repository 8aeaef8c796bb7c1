"""What is right: pure kernels over recordings, folded and judged."""

from results.plugins import extend

extend(__path__, __name__)
