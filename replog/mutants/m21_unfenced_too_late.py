"""M21: partitions without a leader are looked at before the broker that is being unfenced counts as there.

Evidence: no leader while a member of ISR or ELR is unfenced; unavailable after everything is mended.
"""

from replog.controller import fencing
from replog.controller.fencing import leaders_for_leaderless
from replog.controller.policy import Policy
from replog.metadata.records import UNFENCE, MetadataRecord, fencing_record
from replog.metadata.state import Broker

SCENARIO = "one-replica"


def install() -> None:
    """Decide by who was there before."""

    def unfence(policy: Policy, broker: Broker) -> list[MetadataRecord]:
        record = fencing_record(broker.broker_id, broker.epoch, UNFENCE)
        return [record] if broker.in_controlled_shutdown else [record, *leaders_for_leaderless(policy)]

    fencing.unfence = unfence
