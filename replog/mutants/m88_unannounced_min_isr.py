"""M88: a larger min ISR counts for the ELR at once, and leaders are not made to learn of it.

Evidence: a leader whose metadata lag goes on committing by the smaller value, beside an ELR that it leaves behind.
"""

from collections.abc import Mapping

from replog.controller import raised_min_isr
from replog.controller.policy import Policy
from replog.metadata.records import MetadataRecord

SCENARIO = "raised-min-isr"


def install() -> None:
    """Leave every leader in its leader epoch."""

    def renewed_leader_epochs(policy: Policy, before: Mapping[str, int]) -> list[MetadataRecord]:
        return []

    raised_min_isr.renewed_leader_epochs = renewed_leader_epochs
