"""M24: the leader epoch is raised whenever the ISR shrinks.

Evidence: followers begin anew and clients look for the leader again at every shrink. Slow, and right: this is a figure of
stability, and must never be reported as a loss. KAFKA-15021.
"""

from replog.controller import election
from replog.controller.election import Wish, _Elected, _Fields, _Target
from replog.metadata.state import Partition

SCENARIO = "isr-shrink-expand"
FIGURE = "leader_epochs"


def install() -> None:
    """Name the leader anew with every smaller ISR."""
    strict = election._write_leader

    def _write_leader(fields: _Fields, partition: Partition, target: _Target, wish: Wish, elected: _Elected) -> None:
        strict(fields, partition, target, wish, elected)
        if len(target.isr) < len(partition.isr) and elected.leader == partition.leader:
            fields["leader"] = elected.leader

    election._write_leader = _write_leader
