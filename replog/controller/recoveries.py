"""All unclean recoveries of an active controller: who is asked, whose answers are in, who wins."""

from collections.abc import Iterable
from typing import NamedTuple

from replog.controller.election import Election, Wish, partition_change
from replog.controller.events import AskLogInfo, LogInfoAnswered
from replog.controller.policy import Strategy
from replog.controller.turn import Turn
from replog.controller.unclean_recovery import PARTITIONS_PER_REQUEST_MAX, Action, LogInfo, Recovery, decide
from replog.errors import Error
from replog.metadata.image import in_order
from replog.types import NO_NODE, BrokerEpoch, LeaderEpoch, NodeId, TopicIdPartition
from replog.wire.messages import get_replica_log_info as m


class Counts(NamedTuple):
    """KIP-966, "Metrics": partitions under recovery, partitions that wait for a person, recoveries done."""

    unclean_recovery_partitions: int
    manual_leader_election_required: int
    unclean_recovery_finished: int


class Recoveries:
    """The recovery manager; forgets everything when its controller stops leading."""

    def __init__(self) -> None:
        self._running: dict[TopicIdPartition, Recovery] = {}
        self._ordered: dict[TopicIdPartition, Strategy] = {}  # by an operator: also with the manager off
        self._finished = 0
        self._waiting = 0
        self._manual = 0
        self._looked_at_offset = -1  # the image in which it was last decided who needs what
        self._has_news = False  # of something that no record says, since then
        self._next_ms: int | None = None  # when time alone asks for something

    @property
    def counts(self) -> Counts:
        """The metrics of KIP-966."""
        return Counts(len(self._running) + self._waiting, self._manual, self._finished)

    def next_deadline_ms(self, now_ms: int) -> int | None:
        """Return when to look again, None when nothing is going on."""
        return now_ms + 500 if self._running else None

    def order(self, turn: Turn, key: TopicIdPartition, strategy: Strategy) -> None:
        """Begin a recovery that an operator asked for (SPEC 2.9.5)."""
        self._ordered[key] = strategy
        self._has_news = True
        self._begin(turn, key, strategy)

    def on_fenced(self, broker_id: NodeId) -> None:
        """Forget what a fenced or restarted broker said: it may not have it any more."""
        self._has_news = True
        for recovery in self._running.values():
            recovery.forget(broker_id)

    def on_answer(self, turn: Turn, event: LogInfoAnswered) -> None:
        """Take a broker's answer, or the lack of one."""
        self._has_news = True
        registered = {broker.broker_id: broker.epoch for broker in turn.image.brokers.values()}
        answered: set[TopicIdPartition] = set()
        for topic in event.response.topic_partition_log_info_list if event.response else ():
            for log_info in topic.partition_log_info:
                key = TopicIdPartition(topic.topic_id, log_info.partition)
                recovery = self._running.get(key)
                if recovery is not None and event.response is not None:
                    answered.add(key)
                    answer = _log_info(event.response, log_info)
                    if not recovery.on_answer(event.broker_id, answer, registered, turn.now_ms):
                        turn.probe("log_info_refused")
        for key in _keys_of(event.request):
            if key not in answered and key in self._running:
                self._running[key].unanswered(event.broker_id, turn.now_ms)

    def review(self, turn: Turn) -> None:
        """Start, end, finish and ask: whatever the state of the leaderless partitions asks for now.

        There may be thousands of them, and an event is mostly a heartbeat: it is looked at them only when something may be different.
        """
        if not (turn.policy.settings.unclean_recovery_manager or self._ordered):
            return
        is_news = self._has_news or turn.image.last_offset != self._looked_at_offset
        if not is_news and (self._next_ms is None or turn.now_ms < self._next_ms):
            return
        self._has_news, self._looked_at_offset = False, turn.image.last_offset
        self._choose(turn)
        for key in in_order(self._running):
            self._try_to_finish(turn, key)
        is_left = self._ask(turn)
        times = [recovery.next_ms(turn.now_ms) for recovery in self._running.values()]
        self._next_ms = turn.now_ms if is_left else min((time for time in times if time is not None), default=None)

    def _choose(self, turn: Turn) -> None:
        wanted: dict[TopicIdPartition, Strategy] = {}
        self._waiting = self._manual = 0
        for key in turn.image.leaderless():
            topic = turn.image.topics[key.topic_id]
            partition = topic.partitions[key.partition]
            ordered = self._ordered.get(key)
            if ordered is None and not turn.policy.settings.unclean_recovery_manager:
                continue
            strategy = ordered or turn.policy.strategy(topic.name)
            decision = decide(partition, strategy, turn.image.fit(partition, turn.image.is_active))
            if decision.action is Action.RECOVER or (ordered and decision.action is not Action.ELECT):
                wanted[key] = strategy
            elif decision.action is Action.WAIT and not partition.elr:
                self._waiting += 1  # KIP-966: counts as a live recovery
            elif decision.action is Action.OPERATOR:
                self._manual += 1
        for key in list(self._running):
            if key not in wanted:
                del self._running[key]  # a clean choice appeared, or the partition went away (SPEC 2.12.7)
        for key in list(self._ordered):
            if key not in wanted:
                del self._ordered[key]
        for key, strategy in wanted.items():
            self._begin(turn, key, strategy)

    def _begin(self, turn: Turn, key: TopicIdPartition, strategy: Strategy) -> None:
        partition = turn.image.topics[key.topic_id].partitions[key.partition]
        running = self._running.get(key)
        same = running and running.leader_epoch == partition.leader_epoch and running.replicas == partition.replicas
        if running is None or not same:
            self._running[key] = Recovery(
                key,
                partition,
                strategy,
                now_ms=turn.now_ms,
                timeout_ms=turn.policy.settings.unclean_recovery_timeout_ms,
            )
            turn.probe("unclean_recovery_started")
        else:
            running.strategy = strategy  # the topic's may have changed, or an operator asked for another

    def _try_to_finish(self, turn: Turn, key: TopicIdPartition) -> None:
        topic = turn.image.topics[key.topic_id]
        fit = turn.image.fit(topic.partitions[key.partition], turn.image.is_active)
        winner = self._running[key].winner(fit, turn.now_ms)
        if winner == NO_NODE:
            return
        record = partition_change(
            key,
            topic.partitions[key.partition],
            Wish(election=Election.DESIGNATED, designated_leader=winner),
            turn.policy.rules(topic.name),
            fit,
        )
        assert record is not None, f"{key} has no leader, electing {winner} must change that"
        turn.append([record])
        turn.probe("unclean_recovery_finished")
        del self._running[key]
        self._ordered.pop(key, None)
        self._finished += 1

    def _ask(self, turn: Turn) -> bool:
        """Ask the brokers; return whether there is more than a question may have."""
        by_broker: dict[NodeId, list[TopicIdPartition]] = {}
        for key in in_order(self._running):
            partition = turn.image.topics[key.topic_id].partitions[key.partition]
            fit = turn.image.fit(partition, turn.image.is_active)
            for node in self._running[key].to_ask(fit, turn.now_ms):
                by_broker.setdefault(node, []).append(key)
        for node in sorted(by_broker):
            keys = by_broker[node][:PARTITIONS_PER_REQUEST_MAX]  # the rest is asked when these are in
            for key in keys:
                self._running[key].asked(node, turn.now_ms)
            turn.ask(AskLogInfo(node, _request(node, keys)))
        return any(len(keys) > PARTITIONS_PER_REQUEST_MAX for keys in by_broker.values())


def _request(node: NodeId, keys: Iterable[TopicIdPartition]) -> m.GetReplicaLogInfoRequest:
    topics: dict[TopicIdPartition, list[int]] = {}
    for key in keys:
        topics.setdefault(TopicIdPartition(key.topic_id, 0), []).append(key.partition)
    return m.GetReplicaLogInfoRequest(
        broker_id=node,
        topic_partitions=[
            m.GetReplicaLogInfoRequestTopicPartitions(topic_id=topic.topic_id, partitions=partitions)
            for topic, partitions in topics.items()
        ],
    )


def _keys_of(request: m.GetReplicaLogInfoRequest) -> list[TopicIdPartition]:
    return [
        TopicIdPartition(topic.topic_id, partition)
        for topic in request.topic_partitions
        for partition in topic.partitions
    ]


def _log_info(response: m.GetReplicaLogInfoResponse, log_info: m.PartitionLogInfo) -> LogInfo:
    return LogInfo(
        broker_epoch=BrokerEpoch(response.broker_epoch),
        current_leader_epoch=LeaderEpoch(log_info.current_leader_epoch),
        last_written_leader_epoch=LeaderEpoch(log_info.last_written_leader_epoch),
        log_end_offset=log_info.log_end_offset,
        error=log_info.error_code if response.error_code is Error.NONE else response.error_code,
    )
