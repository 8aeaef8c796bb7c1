"""Many runs: sweeps, nights, mutation score, and what is done with a finding: confirm, shrink, replay, bisect."""
