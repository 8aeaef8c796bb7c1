"""What hurts: one file a fault."""

from results.plugins import extend

extend(__path__, __name__)
