"""The deterministic world: loop, network, disks, clocks, all from one seed."""
