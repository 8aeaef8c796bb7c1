"""KIP-704's purpose as one whole story, on clusters in virtual time: transactions are open when the wrong replica is elected.

Broker 1 falls first and so lacks what came later; it comes back first, and alone has what is left. While it recovers it
answers nobody; every transaction that its log leaves open is aborted before it serves; coordinators load what is left;
and no consumer hangs. AlterPartition is held back to stretch the moment in which it recovers.
"""

import asyncio
from typing import Final, NamedTuple

from replog.client.client import LATEST, Client
from replog.errors import Error
from replog.log import batch
from replog.types import NodeId, TopicPartition
from replog.wire.apis import Api
from replog.wire.exchange import exchange_of
from replog.wire.messages.delete_records import DeleteRecordsPartition, DeleteRecordsRequest, DeleteRecordsTopic
from replog.wire.messages.offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from tests.scenarios.three_brokers import reaches, run
from tribunal.clusters.api import Delivery, GroupSettings, PartitionPoll
from tribunal.clusters.capabilities import Fate, FrameRule, RuleInForce
from tribunal.clusters.simulated.cluster import DATA, SimulatedCluster
from tribunal.clusters.simulated.consumers import SimulatedMember
from tribunal.clusters.simulated.producers import SimulatedTransactions

LEDGER: Final = TopicPartition("ledger", 0)
TRANSACTIONS: Final = TopicPartition("__transaction_state", 0)
OFFSETS: Final = TopicPartition("__consumer_offsets", 0)
# Nothing is aborted because its time is up: what ends here is ended by the recovery, or by who comes after it.
TRANSACTION_MS: Final = 300_000
ANSWER_MS: Final = 20_000
ONE_OF_EACH: Final = {"offsets.topic.num.partitions": 1, "transaction.state.log.num.partitions": 1}


class Marker(NamedTuple):
    offset: int
    producer_id: int
    producer_epoch: int
    kind: batch.ControlType
    leader_epoch: int


class Bank:
    """The ledger, who writes to it, and the broker that falls behind."""

    def __init__(self, cluster: SimulatedCluster) -> None:
        self.cluster = cluster
        self.client: Client = cluster.clients._client("scenario", ANSWER_MS)
        self.past = self.producer("past")
        self.first, self.second = self.producer("first"), self.producer("second")
        self.identities: list[tuple[int, int]] = []

    def producer(self, transactional_id: str) -> SimulatedTransactions:
        return self.cluster.clients.transactional_producer(transactional_id, TRANSACTION_MS, transactional_id)

    async def create(self, replicas: list[int]) -> None:
        """Have a ledger on these brokers that may be led by whoever is left."""
        configs = {"min.insync.replicas": "1", "unclean.leader.election.enable": "true"}
        answer = await self.client.create_topic(LEDGER.topic, assignments=[replicas], configs=configs)
        assert answer.error_code is Error.NONE
        await reaches(self.cluster, "the ledger is known", lambda: LEDGER in self.cluster.state.partitions)

    async def open_transactions(self) -> None:
        """Commit something, leave two transactions open, commit something behind their beginnings."""
        await committed(self.past, b"c0", b"c1")
        for producer, value in ((self.first, b"a0"), (self.second, b"b0")):
            assert await producer.begin(ANSWER_MS)
            assert await sent(producer, value) == ("ok", None)
            assert producer.identity is not None
            self.identities.append(producer.identity)
        await committed(self.past, b"c2")

    async def lose_the_first(self) -> None:
        """Kill 1; what comes now it does not get."""
        await self.cluster.kill(1)
        await reaches(self.cluster, "1 is out of sync", lambda: 1 not in self.cluster.state.partitions[LEDGER].isr)
        assert await sent(self.first, b"a1") == ("ok", None)
        await committed(self.past, b"lost")

    async def elect_it(self, *partitions: TopicPartition) -> RuleInForce:
        """Bring 1 back; return when it has been elected and recovers, its words to the controller held back."""
        held = self.cluster.add_rule(FrameRule(fate=Fate.HELD, api=Api.ALTER_PARTITION, source=1, overtaking=True))
        await self.cluster.start(1)
        for name in partitions:
            await reaches(self.cluster, f"1 leads {name}", lambda name=name: self.leads_and_recovers(name))
        await reaches(self.cluster, "it wants to tell the controller", lambda: held.held_count > 0)
        return held

    def leads_and_recovers(self, name: TopicPartition) -> bool:
        state = self.cluster.state.partitions[name]
        return state.leader == 1 and state.isr == (1,) and state.recovering

    async def recovers(self, held: RuleInForce, *partitions: TopicPartition) -> None:
        self.cluster.remove_rule(held)
        state = self.cluster.state
        await reaches(
            self.cluster, "recovered", lambda: not any(state.partitions[name].recovering for name in partitions)
        )

    async def refusals(self) -> dict[str, Error]:
        """Ask broker 1 all that KIP-704 names."""
        epoch = self.cluster.state.partitions[LEDGER].leader_epoch
        producer = (10**6, 0, 0)
        answer = await self.client.leader(*LEDGER)
        assert (answer.node_id, answer.leader_epoch) == (1, epoch)
        content = batch.build([batch.NewRecord(None, b"no", timestamp_ms=0)], timestamp_ms=0, producer=producer)
        fetched = await self.client.fetch(*LEDGER, 0, isolation_level=1)
        await self.client.leader(*LEDGER)
        produced = await self.client.produce(*LEDGER, content, acks=-1)
        assert produced is not None
        listed = await self.client.list_offsets(*LEDGER, LATEST)
        parts = [DeleteRecordsPartition(partition_index=0, offset=1)]
        deleting = DeleteRecordsRequest(topics=[DeleteRecordsTopic(name=LEDGER.topic, partitions=parts)])
        deleted = await self.client.ask(exchange_of(Api.DELETE_RECORDS), deleting, node=NodeId(1))
        asked = [OffsetForLeaderPartition(partition=0, current_leader_epoch=epoch, leader_epoch=0)]
        ending = OffsetForLeaderEpochRequest(topics=[OffsetForLeaderTopic(topic=LEDGER.topic, partitions=asked)])
        ended = await self.client.ask(exchange_of(Api.OFFSET_FOR_LEADER_EPOCH), ending, node=NodeId(1))
        return {
            "FETCH": fetched.error_code,
            "PRODUCE": produced.error_code,
            "LIST_OFFSETS": listed.error_code,
            "DELETE_RECORDS": deleted.topics[0].partitions[0].error_code,
            "OFFSET_FOR_LEADER_EPOCH": ended.topics[0].partitions[0].error_code,
        }

    def markers(self, name: TopicPartition, node: int = 1) -> list[Marker]:
        """Read the end markers of a broker's log from its disk."""
        found = []
        for path in sorted(self.cluster.machine(node).disk.files_below(DATA)):
            if not path.endswith(".log") or self.cluster.watch.replicas[node].partition_of(path) != name:
                continue
            content = bytes(self.cluster.machine(node).disk.content(path) or b"")
            for header in batch.batches(content):
                ended = batch.end_transaction(content, header)
                if ended is not None:
                    identity = (header.producer_id, header.producer_epoch)
                    found.append(Marker(header.base_offset, *identity, ended.control_type, header.leader_epoch))
        return found

    def recovery_markers(self, name: TopicPartition) -> list[tuple[int, int]]:
        """Return producer and epoch of what the recovering leader wrote in its own leader epoch."""
        epoch = self.cluster.state.partitions[name].leader_epoch
        ours = [marker for marker in self.markers(name) if marker.leader_epoch == epoch]
        assert all(marker.kind is batch.ControlType.ABORT for marker in ours)
        return [(marker.producer_id, marker.producer_epoch) for marker in ours]

    async def read(self) -> list[bytes | None]:
        """Read what is committed from the beginning to the high watermark; fail where that hangs."""
        (high,) = await self.offsets(stable=False)
        assert await self.offsets(stable=True) == [high]
        consumer = self.cluster.clients.consumer("auditor", "read_committed")
        consumer.assign({LEDGER: 0})
        position, values = 0, []
        async with asyncio.timeout(ANSWER_MS / 1000):
            while position < high:
                for poll in await consumer.poll(100, 1000):
                    values += [record.value for record in poll.records]
                    position = _behind(poll)
        await consumer.close()
        return values

    async def offsets(self, *, stable: bool) -> list[int]:
        admin = self.cluster.clients.admin("offsets")
        found = [answer.latest_offset for answer in await admin.offsets([LEDGER], ANSWER_MS, stable=stable)]
        await admin.close()
        return [offset for offset in found if offset is not None]

    async def close(self) -> None:
        for producer in (self.past, self.first, self.second):
            await producer.close()
        await self.client.close()


def _behind(poll: PartitionPoll) -> int:
    assert poll.error is None
    assert poll.next_position is not None
    return poll.next_position


async def sent(producer: SimulatedTransactions, value: bytes) -> tuple[str, str | None]:
    """Send a record in the open transaction; return how that ended."""
    deliveries: list[Delivery] = []
    producer.send(LEDGER, None, value, deliveries.append)
    assert await producer.flush(ANSWER_MS) == 0
    (delivery,) = deliveries
    return delivery.outcome, delivery.error


async def committed(producer: SimulatedTransactions, *values: bytes) -> None:
    """Commit a transaction with these records."""
    assert await producer.begin(ANSWER_MS)
    for value in values:
        assert await sent(producer, value) == ("ok", None)
    ended = await producer.end(commit=True, timeout_ms=ANSWER_MS)
    assert ended.outcome == "committed", ended


REFUSED: Final = dict.fromkeys(
    ["FETCH", "PRODUCE", "LIST_OFFSETS", "DELETE_RECORDS", "OFFSET_FOR_LEADER_EPOCH"], Error.NOT_LEADER_OR_FOLLOWER
)


def test_a_recovering_leader_aborts_what_is_pending_before_it_serves() -> None:
    """ "abort all pending transaction when recovering from unclean leader election": the coordinator is alive and knows the outcome."""

    async def scenario(cluster: SimulatedCluster) -> None:
        bank = Bank(cluster)
        await bank.create([1, 2])
        await bank.open_transactions()
        await bank.lose_the_first()
        await cluster.kill(2)
        held = await bank.elect_it(LEDGER)

        refused = await bank.refusals()
        aborted = bank.recovery_markers(LEDGER)
        await bank.recovers(held, LEDGER)
        read = await bank.read()
        _, next_write = await sent(bank.first, b"a2")
        answer = await bank.first.end(commit=True, timeout_ms=ANSWER_MS)
        await committed(bank.first, b"again")
        await committed(bank.producer("second"), b"its successor")
        read_later = await bank.read()
        await bank.close()

        assert refused == REFUSED
        assert aborted == [(producer_id, epoch + 1) for producer_id, epoch in bank.identities]
        assert read == [b"c0", b"c1", b"c2"]
        assert next_write == "INVALID_PRODUCER_EPOCH"
        assert answer.outcome == "aborted"
        assert read_later == [b"c0", b"c1", b"c2", b"again", b"its successor"]

    run(704, scenario, **ONE_OF_EACH)


def test_coordinators_reload_what_an_unclean_election_left() -> None:
    """The same for the ids' and the group's own partitions: they are led by 1 alone, and work again."""

    async def scenario(cluster: SimulatedCluster) -> None:
        bank = Bank(cluster)
        everything = (LEDGER, TRANSACTIONS, OFFSETS)
        await bank.create([1, 2, 3])
        settings = GroupSettings(group="g", topic=LEDGER.topic, isolation="read_committed", session_timeout_ms=6000)
        member = cluster.clients.group_consumer(settings, "member")
        await bank.open_transactions()
        await commits(member, 2)
        pending = await bank.second.send_offsets(member, {LEDGER: 4}, ANSWER_MS)
        unstable = (await member.committed([LEDGER], ANSWER_MS)).error
        # Nobody but an operator may let it come so far: that topic is made with unclean elections off.
        await cluster.set_topic_config(TRANSACTIONS.topic, "unclean.leader.election.enable", "true")
        await bank.lose_the_first()
        await commits(member, 3)
        await cluster.kill(2)
        await cluster.kill(3)
        held = await bank.elect_it(*everything)

        refused = await bank.refusals()
        aborted = [bank.recovery_markers(name) for name in (LEDGER, OFFSETS)]
        await bank.recovers(held, *everything)
        read = await bank.read()
        kept = await knows(member)
        await commits(member, 5)
        changed = await knows(member)
        _, next_write = await sent(bank.first, b"a2")
        answer = await bank.first.end(commit=True, timeout_ms=ANSWER_MS)
        for name in ("first", "second", "past"):
            await committed(bank.producer(name), name.encode())
        read_later = await bank.read()
        await cluster.start(2)
        await cluster.start(3)
        await reaches(cluster, "whole again", lambda: cluster.state.is_fully_in_sync(cluster.spec))
        await member.close()
        await bank.close()

        assert (pending.outcome, unstable) == ("ok", "UNSTABLE_OFFSET_COMMIT")
        assert refused == REFUSED
        assert aborted[0] == [(producer_id, epoch + 1) for producer_id, epoch in bank.identities]
        assert aborted[1] == [aborted[0][1]]
        assert (kept, changed) == (2, 5)  # broker 1 never got 3: that is the price
        assert read == [b"c0", b"c1", b"c2"]
        assert next_write == "INVALID_PRODUCER_EPOCH"
        assert answer.outcome == "aborted"
        assert read_later == [b"c0", b"c1", b"c2", b"first", b"second", b"past"]
        assert bank.markers(LEDGER, 1) == bank.markers(LEDGER, 2) == bank.markers(LEDGER, 3)

    settings = {"unclean.leader.election.enable": True, "min.insync.replicas": 1, "transaction.state.log.min.isr": 1}
    run(705, scenario, **settings, **ONE_OF_EACH)


async def commits(member: SimulatedMember, offset: int) -> None:
    """Commit an offset as a member; join again where the coordinator has forgotten it."""
    async with asyncio.timeout(ANSWER_MS / 1000):
        while (await member.commit({LEDGER: offset}, ANSWER_MS)).outcome != "ok":
            await member.poll(1, 500)


async def knows(member: SimulatedMember) -> int | None:
    """Ask for the group's stable offset until there is an answer."""
    async with asyncio.timeout(ANSWER_MS / 1000):
        while (answer := await member.committed([LEDGER], ANSWER_MS)).error is not None:
            await member.poll(1, 100)
    return answer.offsets[LEDGER]
