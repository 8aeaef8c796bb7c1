"""What users do: one file a workload."""

from results.plugins import extend

extend(__path__, __name__)
