"""The simulated world: machines, network, disks and clocks on one deterministic loop in virtual time."""
