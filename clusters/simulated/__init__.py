"""The simulated world: machines, network, disks and clocks on one deterministic loop in virtual time."""

from typing import Final

CAPABILITIES: Final = frozenset(
    {
        *("start", "stop", "kill", "pause", "wipe", "cut"),
        *("shape", "reset", "half_open", "add_rule", "power_fail", "damage", "set_clock", "trouble_disk"),
        *("mount_disk", "reassign", "set_topic_config", "elect_preferred", "unregister", "remove_voter"),
    }
)
