"""M52: the controller compares ids, not epochs: a broker that bounced between two looks is overlooked.

Evidence: a live broker never learns what it hosts; it neither leads nor follows. KIP-380.
"""

from collections.abc import Mapping

from replog.types import BrokerEpoch, NodeId
from replog.zookeeper import broker_changes
from replog.zookeeper.broker_changes import Changes

SCENARIO = "zookeeper-missed-bounce"


def install() -> None:
    """See who came and who went, and nobody who did both."""
    diff = broker_changes.diff_brokers

    def diff_brokers(known: Mapping[NodeId, BrokerEpoch], registered: Mapping[NodeId, BrokerEpoch]) -> Changes:
        return diff(known, registered)._replace(bounced=())

    broker_changes.diff_brokers = diff_brokers
