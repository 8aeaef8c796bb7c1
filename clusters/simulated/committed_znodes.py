"""The committed state of a simulated cluster of ZooKeeper mode, complete: every transaction of the model.

It is checked for the same invariants as committed metadata (docs/invariants.md), after every transaction.
"""

from collections.abc import Callable, Mapping, Sequence

from replog.types import NO_NODE
from replog.zookeeper.paths import DELETE_TOPICS
from tribunal.clusters.api import PartitionState, TopicPartition
from tribunal.clusters.simulated.committed import CommittedMetadata, Incarnation, QuorumMember
from tribunal.clusters.simulated.replica_logs import BatchMark, ReplicaLogs
from tribunal.clusters.simulated.zookeeper_model import Change
from tribunal.clusters.zookeeper.znode_view import ZnodeView

DELETION = f"{DELETE_TOPICS}/"
NO_MARK = BatchMark(-1, -1, -1, 0, -1, -1, -1, is_control=False)


class CommittedZnodes(CommittedMetadata):
    """The metadata that the transactions of the ZooKeeper model have committed, checked as it changes."""

    def __init__(self, now_ns: Callable[[], int]) -> None:
        super().__init__({}, now_ns=now_ns, wall_start_ms=0)
        self._znodes = ZnodeView(self._records, now_ns)
        self._transactions: list[Sequence[Change]] = []
        self.on_change: Callable[[], None] = lambda: None

    def committed(self, changes: Sequence[Change]) -> None:
        """Take note of a transaction; it is checked after the event in which it was committed."""
        for change in changes:
            if change.path.startswith(DELETION):
                topic = change.path.removeprefix(DELETION)
                self.being_deleted = {name: None for name in self.being_deleted if name != topic}
                if change.stat is not None:
                    self.being_deleted[topic] = None
        self._transactions.append(changes)
        self.on_change()

    def advance(self, replicas: Mapping[int, ReplicaLogs], members: Mapping[Incarnation, QuorumMember]) -> None:
        """Check the transactions since the last call, each as a whole."""
        transactions, self._transactions = self._transactions, []
        for changes in transactions:
            for change in sorted(changes, key=_parents_first):
                self._znodes.take(*change)
            self._hold(NO_MARK)

    def effective_min_isr(self, partition: TopicPartition, now: PartitionState) -> int:
        """There is no ELR, and the high watermark does not depend on min ISR (docs/verdicts.md, facts)."""
        return 1

    def _forgets_recovery(self, before: PartitionState, now: PartitionState) -> bool:
        """Controllers of a protocol before 3.2 do not know of recoveries."""
        return False

    def _is_unclean(self, before: PartitionState | None, now: PartitionState) -> bool:
        """Controllers of a protocol before 3.2 do not write that an election was unclean (KIP-704, Compatibility)."""
        from_nowhere = before is not None and now.leader != before.leader and now.leader not in {NO_NODE, *before.isr}
        return now.recovering or from_nowhere


def _parents_first(change: Change) -> tuple[int, str]:
    return (change.path.count("/"), change.path)
