"""M20: an ELR member is elected without leaving the ELR, and the ISR stays empty.

Evidence: the committed leader is not in the committed ISR; acks=all is refused for ever.
"""

from replog.controller import election
from replog.controller.election import Rules, _Fields
from replog.controller.elr import Eligible
from replog.metadata.state import Nodes, Partition

SCENARIO = "elr-chain"


def install() -> None:
    """Name the leader and nothing else."""
    write_isr, write_lists = election._write_isr, election._write_lists

    def came_from_the_elr(partition: Partition, isr: Nodes) -> bool:
        return len(isr) == 1 and isr[0] in partition.elr

    def _write_isr(fields: _Fields, partition: Partition, isr: Nodes, rules: Rules) -> None:
        write_isr(fields, partition, () if came_from_the_elr(partition, isr) else isr, rules)

    def _write_lists(fields: _Fields, partition: Partition, lists: Eligible, rules: Rules) -> None:
        leader = fields.get("leader")
        stays = tuple(node for node in partition.elr if node == leader and node not in lists.elr)
        write_lists(fields, partition, lists._replace(elr=(*stays, *lists.elr)), rules)

    election._write_isr = _write_isr
    election._write_lists = _write_lists
