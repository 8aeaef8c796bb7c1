"""Real clients that have a coordinator: members of groups and producers of transactions, through librdkafka.

What blocks in librdkafka is done in threads that nothing waits for (`limited`). A commit that librdkafka does not call done is `info`: it may have been sent before
the attempt that failed.
"""

import asyncio
import contextlib
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Final, NamedTuple

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer
from confluent_kafka import TopicPartition as RdPartition

from tribunal.clusters.api import (
    Answered,
    Committed,
    Delivery,
    Ended,
    GroupConsumer,
    GroupSettings,
    Membership,
    PartitionPoll,
    TopicPartition,
)
from tribunal.clusters.clients.blocking import limited
from tribunal.clusters.clients.confluent import (
    COMMON,
    POLL_MS,
    QUIET,
    ClientSetting,
    ConfluentConsumer,
    answered,
    delivered,
    purge,
    settings_of,
)
from tribunal.clusters.links.answers import Answers
from tribunal.clusters.secured.run_security import LOAD, Login

ABORT_MS: Final = 3_000
TIMED_OUT: Final = "_TIMED_OUT"
REQUEST_TIMEOUT_MS: Final = 2_000
HEARTBEATS_A_SESSION: Final = 6


class CommitAnswer(NamedTuple):
    """What a commit was answered: what it was of, and librdkafka's name of the error."""

    offsets: dict[TopicPartition, int]
    error: str | None


class ConfluentMember:
    """A member of a group, eager and classic; see `tribunal.clusters.api.GroupConsumer`."""

    def __init__(
        self,
        bootstrap: str,
        client_id: str,
        settings: GroupSettings,
        answers: Answers,
        login: Login | None = None,
    ) -> None:
        self.settings = settings
        more: dict[str, ClientSetting] = {
            "group.id": settings.group,
            "session.timeout.ms": settings.session_timeout_ms,
            "max.poll.interval.ms": settings.session_timeout_ms,
            "heartbeat.interval.ms": settings.session_timeout_ms // HEARTBEATS_A_SESSION,
            "partition.assignment.strategy": "range",
            "enable.partition.eof": False,
            "on_commit": self._on_commit,
        }
        self._answered: list[CommitAnswer] = []
        self._answers = answers
        self._client_id = client_id
        self._given_up: list[dict[TopicPartition, int]] = []
        self._reading = ConfluentConsumer(bootstrap, client_id, settings.isolation, answers, more, login)
        self.consumer: Consumer = self._reading.consumer
        self._own: list[TopicPartition] = []
        self._started: dict[TopicPartition, None] = {}
        self.consumer.subscribe(
            [settings.topic], on_assign=self._on_assign, on_revoke=self._on_revoke, on_lost=self._on_revoke
        )

    def _on_assign(self, consumer: Consumer, partitions: list[RdPartition]) -> None:
        self._own = [TopicPartition(one.topic, one.partition) for one in partitions]
        self._started = {}
        self._reading.assign({})  # nothing is read before its user says from where

    def _on_revoke(self, consumer: Consumer, partitions: list[RdPartition]) -> None:
        self._own, self._started = [], {}
        self._reading.positions = {}
        consumer.unassign()  # an empty assignment would not do: the member would never join again

    def _on_commit(self, error: KafkaError | None, partitions: list[RdPartition]) -> None:
        offsets = {TopicPartition(one.topic, one.partition): one.offset for one in partitions}
        if offsets in self._given_up:
            self._given_up.remove(offsets)  # the earlier one of two alike
            return
        wrong = next((one.error for one in partitions if one.error is not None), error)
        self._answered.append(CommitAnswer(offsets, None if wrong is None else wrong.name()))

    @property
    def membership(self) -> Membership:
        """Who it is; librdkafka does not show the generation."""
        return Membership(None, self.consumer.memberid() or None)

    async def poll(self, max_records: int, timeout_ms: int) -> list[PartitionPoll]:
        """Stay a member and read."""
        return await self._reading.poll(max_records, timeout_ms)

    def gained(self) -> list[TopicPartition]:
        """Return its own partitions that were not started yet."""
        return [partition for partition in self._own if partition not in self._started]

    def start(self, positions: Mapping[TopicPartition, int]) -> None:
        """Read these from these offsets on."""
        own = {partition: offset for partition, offset in positions.items() if partition in self._own}
        self._started |= dict.fromkeys(own)
        self._reading.assign({**self._reading.positions, **own})

    async def committed(self, partitions: Sequence[TopicPartition], timeout_ms: int) -> Committed:
        """Ask for the group's offsets."""
        wanted = [RdPartition(*partition) for partition in partitions]
        try:
            found = await limited(partial(self.consumer.committed, wanted), timeout_ms / 1000)
        except TimeoutError:
            return Committed({}, TIMED_OUT)
        except KafkaException as problem:
            return Committed({}, problem.args[0].name())
        wrong = next((one.error.name() for one in found if one.error is not None), None)
        if wrong is not None:
            return Committed({}, wrong)
        offsets = {TopicPartition(one.topic, one.partition): one.offset if one.offset >= 0 else None for one in found}
        return Committed(offsets, None, self._answers.coordinated(self._client_id, offsets, is_commit=False))

    async def commit(self, offsets: Mapping[TopicPartition, int], timeout_ms: int) -> Answered:
        """Commit and wait for the answer, with callbacks served meanwhile.

        A commit that waits in librdkafka holds up every other call on this consumer, and can itself wait for a rebalance
        that only a call to poll would go on with.
        """
        wanted = [RdPartition(*partition, offset) for partition, offset in offsets.items()]
        self._answered.clear()
        loop = asyncio.get_running_loop()
        deadline = loop.time() + timeout_ms / 1000
        try:
            self.consumer.commit(offsets=wanted, asynchronous=True)
            while (answer := self._answer_to(offsets)) is None:
                if loop.time() >= deadline:
                    self._given_up.append(dict(offsets))
                    return Answered("info", TIMED_OUT)
                await asyncio.sleep(POLL_MS / 1000)
                self._reading.serve()
        except KafkaException as problem:
            return Answered("info", problem.args[0].name())
        if answer.error is not None:
            return Answered("info", answer.error)
        return Answered("ok", None, self._answers.coordinated(self._client_id, offsets, is_commit=True))

    def _answer_to(self, offsets: Mapping[TopicPartition, int]) -> CommitAnswer | None:
        return next((answer for answer in self._answered if answer.offsets == offsets), None)

    async def close(self) -> None:
        """Leave the group and release everything."""
        await self._reading.close()


class ConfluentTransactions:
    """A producer of transactions; see `tribunal.clusters.api.TransactionalProducer`."""

    identity: tuple[int, int] | None = None  # librdkafka does not show it

    def __init__(
        self,
        bootstrap: str,
        transactional_id: str,
        transaction_timeout_ms: int,
        client_id: str,
        answers: Answers,
        login: Login | None = None,
    ) -> None:
        self._client_id = client_id
        self._answers = answers
        self._config: dict[str, ClientSetting] = {
            **COMMON,
            "bootstrap.servers": bootstrap,
            "client.id": client_id,
            "transactional.id": transactional_id,
            "transaction.timeout.ms": transaction_timeout_ms,
            "delivery.timeout.ms": transaction_timeout_ms,
            "request.timeout.ms": min(REQUEST_TIMEOUT_MS, transaction_timeout_ms),
            "socket.timeout.ms": min(REQUEST_TIMEOUT_MS, transaction_timeout_ms),
            "linger.ms": 2,
            "error_cb": lambda _: None,
            **settings_of(login),
        }
        self._timeout_ms = transaction_timeout_ms
        self._producer: Producer | None = None
        self._login = login
        if login is not None:
            login.add(self)
        self._broken: str | None = None
        self._pump = asyncio.create_task(self._serve(), name=f"delivery reports of {client_id}")

    def log_in_with(self, password: str) -> None:
        """Use another password from the next login on."""
        self._config["sasl.password"] = password
        if self._producer is not None:
            self._producer.set_sasl_credentials(LOAD, password)

    async def _serve(self) -> None:
        while True:
            if self._producer is not None:
                with contextlib.suppress(KafkaException):  # a fatal error; the next call meets it again
                    self._producer.poll(0)
            await asyncio.sleep(POLL_MS / 1000)

    async def begin(self, timeout_ms: int) -> bool:
        """Begin; a new producer asks for its identity, which fences the former one."""
        self._broken = None
        try:
            if self._producer is None:
                self._producer = Producer(self._config, logger=QUIET)
                await limited(self._producer.init_transactions, timeout_ms / 1000)
            self._producer.begin_transaction()
        except (KafkaException, TimeoutError):
            self._drop()
            return False
        return True

    def send(self, partition: TopicPartition, key: bytes | None, value: bytes, done: Callable[[Delivery], None]) -> int:
        """Offer one record."""
        timestamp_ms = time.time_ns() // 1_000_000
        try:
            assert self._producer is not None
            self._producer.produce(
                partition.topic,
                key=key,
                value=value,
                partition=partition.partition,
                timestamp=timestamp_ms,
                on_delivery=partial(self._on_delivery, done, partition),
            )
        except (BufferError, KafkaException) as problem:
            self._broken = str(problem)
            done(Delivery("fail", "_STATE", None, None, 0))
        return timestamp_ms

    def _on_delivery(
        self,
        done: Callable[[Delivery], None],
        partition: TopicPartition,
        error: KafkaError | None,
        message: Message,
    ) -> None:
        code, name = (None, None) if error is None else (error.code(), error.name())
        self._broken = self._broken or name
        done(answered(delivered(code, name, message.offset(), acks=-1), self._answers, self._client_id, partition))

    async def flush(self, timeout_ms: int) -> int:
        """Wait until nothing is under way."""
        deadline = asyncio.get_running_loop().time() + timeout_ms / 1000
        while self._producer and len(self._producer) and asyncio.get_running_loop().time() < deadline:  # noqa: ASYNC110
            await asyncio.sleep(POLL_MS / 1000)
        return len(self._producer) if self._producer else 0

    async def send_offsets(
        self, consumer: GroupConsumer, offsets: Mapping[TopicPartition, int], timeout_ms: int
    ) -> Answered:
        """Commit a group's offsets in the transaction."""
        assert isinstance(consumer, ConfluentMember)
        assert self._producer is not None
        wanted = [RdPartition(*partition, offset) for partition, offset in offsets.items()]
        metadata = consumer.consumer.consumer_group_metadata()
        try:
            await limited(partial(self._producer.send_offsets_to_transaction, wanted, metadata), timeout_ms / 1000)
        except TimeoutError:
            self._broken = self._broken or TIMED_OUT
            return Answered("info", TIMED_OUT)
        except KafkaException as problem:
            self._broken = self._broken or problem.args[0].name()
            return Answered("info", problem.args[0].name())
        return Answered("ok", None, self._answers.coordinated(self._client_id, offsets, is_commit=True))

    async def end(self, *, commit: bool, timeout_ms: int) -> Ended:
        """Commit, or abort where asked to or nothing else is left."""
        undelivered = await self.flush(self._timeout_ms)
        if commit and not undelivered and self._broken is None:
            return await self._commit(timeout_ms)
        why = self._broken or (TIMED_OUT if undelivered else None)
        answered = await self._abort()
        return Ended("aborted", answered=answered, error=why)

    async def _commit(self, timeout_ms: int) -> Ended:
        deadline = asyncio.get_running_loop().time() + timeout_ms / 1000
        last = TIMED_OUT
        while (left := deadline - asyncio.get_running_loop().time()) > 0:
            assert self._producer is not None
            try:
                await limited(self._producer.commit_transaction, left)
            except TimeoutError:
                break
            except KafkaException as problem:
                error: KafkaError = problem.args[0]
                last = error.name()
                if error.retriable():
                    continue
                if error.txn_requires_abort():
                    await self._abort()
                break
            return Ended("committed", answered=True, error=None)
        self._drop()
        return Ended("info", answered=False, error=last)

    async def _abort(self) -> bool:
        """Return whether the coordinator confirmed it; a producer that cannot even abort is given up."""
        if self._producer is None:
            return False
        try:
            await limited(self._producer.abort_transaction, ABORT_MS / 1000)
        except (KafkaException, TimeoutError):
            self._drop()
            return False
        return True

    def _drop(self) -> None:
        producer, self._producer = self._producer, None
        if producer is not None:
            purge(producer)

    async def close(self) -> None:
        """Give up what is under way and release everything."""
        if self._login is not None:
            self._login.remove(self)
        self._pump.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await self._pump
        self._drop()
