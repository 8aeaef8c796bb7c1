"""The conductor: plan, run, check, report."""
