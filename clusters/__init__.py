"""Where a system under test runs: kinds of cluster behind one interface."""

from results.plugins import extend

extend(__path__, __name__)
