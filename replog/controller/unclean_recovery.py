"""The unclean recovery manager: ask the logs before giving up on one (KIP-966 part 2, SPEC 2.12).

`decide` says what a leaderless partition needs. A `Recovery` then collects how far each replica's
log reaches and names the replica with the most: last written leader epoch first, then length.
Nothing of it is in the metadata log: a new controller starts over.
"""

from collections.abc import Callable, Mapping
from enum import Enum
from typing import Final, NamedTuple

from replog.controller.policy import Strategy
from replog.errors import Error
from replog.metadata.state import Nodes, Partition
from replog.types import NO_NODE, BrokerEpoch, LeaderEpoch, NodeId, TopicIdPartition

PARTITIONS_PER_REQUEST_MAX: Final = 1000  # KIP-966: GetReplicaLogInfo, ElectLeaders (D8, D18)
REQUEST_TIMEOUT_MS: Final = 5000
RETRY_BACKOFF_MS: Final = 1000


class Action(Enum):
    """What a partition in need of a leader gets."""

    ELECT = "elect"  # `nodes` is whom, cleanly
    RECOVER = "recover"  # ask all unfenced replicas
    WAIT = "wait"  # for one (ELR) or for all (last known ELR) of `nodes` to be unfenced
    OPERATOR = "operator"  # strategy None: a person has to decide


class Decision(NamedTuple):
    """An action and whom it is about."""

    action: Action
    nodes: Nodes


def decide(partition: Partition, strategy: Strategy, acceptable: Callable[[NodeId], bool]) -> Decision:
    """Decide for a partition that needs a leader (SPEC 2.12.2, in the order of KIP-966)."""
    # The ELR counts only while nobody is in the ISR: before, ISR members are the better ones.
    for candidates in (partition.isr, partition.elr):
        for node in partition.replicas:
            if node in candidates and acceptable(node):
                return Decision(Action.ELECT, (node,))
    if strategy is Strategy.AGGRESSIVE:
        return Decision(Action.RECOVER, ())
    fenced_holders = partition.elr or partition.isr
    if fenced_holders:
        return Decision(Action.WAIT, fenced_holders)
    if strategy is Strategy.NONE:
        return Decision(Action.OPERATOR, ())
    missing = tuple(node for node in partition.last_known_elr if not acceptable(node))
    return Decision(Action.WAIT, missing) if missing else Decision(Action.RECOVER, ())


class LogInfo(NamedTuple):
    """How far one replica's log reaches, by its own word."""

    broker_epoch: BrokerEpoch
    current_leader_epoch: LeaderEpoch  # of its metadata view
    last_written_leader_epoch: LeaderEpoch
    log_end_offset: int
    error: Error = Error.NONE


class Recovery:
    """Collects answers for one partition until its strategy is content."""

    def __init__(
        self,
        key: TopicIdPartition,
        partition: Partition,
        strategy: Strategy,
        *,
        now_ms: int,
        timeout_ms: int,
    ) -> None:
        self.key = key
        self.replicas = partition.replicas
        self.leader_epoch = partition.leader_epoch
        self.last_known_elr = partition.last_known_elr
        self.strategy = strategy
        self.deadline_ms = now_ms + timeout_ms
        self.answers: dict[NodeId, LogInfo] = {}
        self._in_flight_until_ms: dict[NodeId, int] = {}
        self._not_before_ms: dict[NodeId, int] = {}

    def to_ask(self, acceptable: Callable[[NodeId], bool], now_ms: int) -> Nodes:
        """Return the replicas that should be asked now: unfenced, unanswered, not backing off."""
        return tuple(
            node
            for node in self.replicas
            if node not in self.answers
            and acceptable(node)
            and not self._is_in_flight(node, now_ms)
            and self._not_before_ms.get(node, now_ms) <= now_ms
        )

    def asked(self, node: NodeId, now_ms: int) -> None:
        """Note that a request is on its way."""
        self._in_flight_until_ms[node] = now_ms + REQUEST_TIMEOUT_MS

    def unanswered(self, node: NodeId, now_ms: int) -> None:
        """Note that a request failed: ask again, but not at once."""
        self._in_flight_until_ms.pop(node, None)
        self._not_before_ms[node] = now_ms + RETRY_BACKOFF_MS

    def on_answer(self, node: NodeId, answer: LogInfo, registered: Mapping[NodeId, BrokerEpoch], now_ms: int) -> bool:
        """Take an answer; False when it has to be asked for again (SPEC 2.12.4).

        A replica that restarted since may have less than it said; one whose metadata is behind may
        still be written to by an older leader.
        """
        current = registered.get(node) == answer.broker_epoch and answer.current_leader_epoch == self.leader_epoch
        if not current or answer.error is not Error.NONE:
            self.unanswered(node, now_ms)
            return False
        self._in_flight_until_ms.pop(node, None)
        self.answers[node] = answer
        return True

    def forget(self, node: NodeId) -> None:
        """Drop what a replica said: it was fenced, or registered anew. It may be asked at once again."""
        self.answers.pop(node, None)
        self._in_flight_until_ms.pop(node, None)
        self._not_before_ms.pop(node, None)

    def winner(self, acceptable: Callable[[NodeId], bool], now_ms: int) -> NodeId:
        """Return whom to elect now, -1 while the strategy needs more answers (SPEC 2.12.5, 2.12.6)."""
        candidates = [node for node in self.replicas if node in self.answers and acceptable(node)]
        if not candidates or not self._has_enough_answers(now_ms):
            return NO_NODE
        # `max` takes the first of equals: assignment order.
        return max(candidates, key=self._reach)

    def _reach(self, node: NodeId) -> tuple[int, int]:
        answer = self.answers[node]
        return answer.last_written_leader_epoch, answer.log_end_offset

    def _has_enough_answers(self, now_ms: int) -> bool:
        if all(node in self.answers for node in self.replicas):
            return True
        if self.strategy is Strategy.AGGRESSIVE:
            return now_ms >= self.deadline_ms
        # Balanced: those who could have led must all have spoken. Who is being asked besides may still
        # answer; with nobody recorded (an old partition) whoever answers in time is all there is.
        if not all(node in self.answers for node in self.last_known_elr):
            return False
        if now_ms >= self.deadline_ms:
            return True
        return bool(self.last_known_elr) and not any(self._is_in_flight(node, now_ms) for node in self.replicas)

    def next_ms(self, now_ms: int) -> int | None:
        """Return when time alone changes who is asked or who wins, None when it does not any more."""
        times = (self.deadline_ms, *self._in_flight_until_ms.values(), *self._not_before_ms.values())
        return min((time for time in times if time > now_ms), default=None)

    def _is_in_flight(self, node: NodeId, now_ms: int) -> bool:
        return self._in_flight_until_ms.get(node, now_ms) > now_ms
