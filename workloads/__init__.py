"""What users do: one file a workload."""
