"""What must hold: one file a property. What lies here is what is judged."""

from tribunal.results.plugins import extend

extend(__path__, "checkers")
