"""Real clients: librdkafka through confluent-kafka, behind the few words of `tribunal.clusters.api`.

librdkafka has threads of its own; everything here runs on the event loop and only asks it, without waiting,
what has happened. What a delivery report means is decided in `delivered`, which is docs/verdicts.md's first section
as code: a send that might be in the log is `info`, never `fail`.
"""

import asyncio
import contextlib
import logging
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from itertools import groupby
from typing import Final, Literal, NoReturn

import msgspec
from confluent_kafka import (
    TIMESTAMP_LOG_APPEND_TIME,
    TIMESTAMP_NOT_AVAILABLE,
    Consumer,
    KafkaError,
    KafkaException,
    Message,
    Producer,
)
from confluent_kafka import TopicPartition as RdPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from tribunal.clusters.api import (
    ClusterError,
    Delivery,
    GroupConsumer,
    GroupSettings,
    Offsets,
    PartitionPoll,
    ProducerSettings,
    ReceivedRecord,
    TopicPartition,
    TransactionalProducer,
    Unsupported,
)
from tribunal.clusters.clients.blocking import CLOSE_S, blocking
from tribunal.clusters.clients.list_offsets import Leaders, fenced_offsets
from tribunal.clusters.clients.operating import Asker, Operating
from tribunal.clusters.links.answers import Answers
from tribunal.clusters.secured.door import OPEN
from tribunal.clusters.secured.run_security import LOAD, ClientSecurity, Login

POLL_MS: Final = 3
STATEMENT_MS: Final = 200
AGAIN_MS: Final = 200
CONSUME_MS: Final = 12  # few polls with many records rather than many with few
SERVED_RECORDS: Final = 10
PURGE_POLLS: Final = 50
QUIET: Final = logging.getLogger("librdkafka")
QUIET.addHandler(logging.NullHandler())
QUIET.propagate = False

Plain = str | int | float | bool
OnCommit = Callable[[KafkaError | None, list[RdPartition]], None]
ClientSetting = Plain | Callable[[KafkaError], None] | Callable[[str], None] | OnCommit
"""A value, or a callback of librdkafka."""

# Sockets give up quickly, so that a run of a minute sees many attempts, not one.
END_OF_PARTITION: Final = "enable.partition.eof"
COMMON: Final[Mapping[str, Plain]] = {
    "broker.address.family": "v4",
    "socket.connection.setup.timeout.ms": 1500,
    "reconnect.backoff.ms": 50,
    "reconnect.backoff.max.ms": 400,
    "topic.metadata.refresh.interval.ms": 5000,
    "topic.metadata.refresh.fast.interval.ms": 50,
    "retry.backoff.ms": 50,
    "retry.backoff.max.ms": 400,
    "socket.nagle.disable": True,
    "enable.metrics.push": False,
    "log_level": 2,
}
# _PURGE_QUEUE, _UNKNOWN_TOPIC and _UNKNOWN_PARTITION are none of these: a record that was sent once, and whose
# connection broke, waits in the queue for its next attempt when it is given up or its topic is gone.
NOTHING_WRITTEN_LOCALLY: Final = frozenset({KafkaError._QUEUE_FULL, KafkaError._INVALID_ARG})
NEVER_VALID: Final = frozenset(
    {
        KafkaError.INVALID_REQUIRED_ACKS,
        KafkaError.TOPIC_EXCEPTION,
    }
)


def answered(delivery: Delivery, answers: Answers, client_id: str, partition: TopicPartition) -> Delivery:
    """Add who acknowledged a record, and as whose."""
    if delivery.log_offset is None:
        return delivery
    appended = answers.appended(client_id, partition, delivery.log_offset)
    if appended is None:
        return delivery
    producer = (appended.producer_id, appended.producer_epoch) if appended.producer_id >= 0 else None
    return delivery._replace(answered_by=appended.node, producer=producer, topic_id=appended.topic_id)


def delivered(code: int | None, name: str | None, log_offset: int | None, *, acks: int) -> Delivery:
    """Say what a delivery report proves (docs/verdicts.md, facts).

    How many attempts were made is unknown, also with retries switched off: librdkafka sends again after
    NOT_LEADER_OR_FOLLOWER without counting it, taking it for "surely not appended". A leader that was deposed
    while a record waited for its followers answers just that, and the record may survive. So an error of the last
    attempt says nothing of those before: NOT_ENOUGH_REPLICAS is `info` here, and so are INVALID_RECORD and INVALID_TIMESTAMP, because
    settings decide what is valid, and an operator may have changed them between two attempts. What is never valid is `fail`.

    code:  librdkafka's error number, None when there was no error.
    """
    if code is None:
        known = log_offset if log_offset is not None and log_offset >= 0 and acks != 0 else None
        # An acknowledgement without an offset says less than docs/verdicts.md asks of one.
        outcome: Literal["ok", "info", "sent"] = "sent" if acks == 0 else "ok" if known is not None else "info"
        return Delivery(outcome, None, known, None, None)
    nothing_written = code in NOTHING_WRITTEN_LOCALLY or (acks != 0 and code in NEVER_VALID)
    return Delivery("fail" if nothing_written else "info", name, None, None, None)


class _Eos(msgspec.Struct, frozen=True):
    """Of librdkafka's statistics, an idempotent producer's identity; -1 while it has none."""

    producer_id: int = -1
    producer_epoch: int = -1


class _Statement(msgspec.Struct, frozen=True):
    """Of librdkafka's statistics, what is looked at."""

    eos: _Eos = _Eos()


class _Epochs:
    """How many producer epochs an idempotent producer has had; most are begun by librdkafka itself, and it counts others."""

    def __init__(self) -> None:
        self.count = 0
        self.current: tuple[int, int] | None = None

    def read(self, text: str) -> None:
        """Take in statistics."""
        eos = msgspec.json.decode(text, type=_Statement).eos
        identity = (eos.producer_id, eos.producer_epoch)
        if eos.producer_id >= 0 and identity != self.current:
            self.current = identity
            self.count += 1


class ConfluentProducer:
    """A producer; idempotent ones retry inside, the others only where librdkafka does so uncounted."""

    def __init__(
        self,
        bootstrap: str,
        settings: ProducerSettings,
        client_id: str,
        answers: Answers,
        login: Login | None = None,
    ) -> None:
        self._settings = settings
        self._client_id = client_id
        self._answers = answers
        self._config: dict[str, ClientSetting] = {
            **COMMON,
            "bootstrap.servers": bootstrap,
            "client.id": client_id,
            "acks": settings.acks,
            "enable.idempotence": settings.idempotent,
            "linger.ms": settings.linger_ms,
            "delivery.timeout.ms": settings.delivery_timeout_ms,
            "request.timeout.ms": settings.request_timeout_ms,
            "socket.timeout.ms": max(settings.request_timeout_ms, 1000),
            "allow.auto.create.topics": False,
            "error_cb": self._on_error,
            **settings_of(login),
        }
        if settings.idempotent:
            self._config |= {"statistics.interval.ms": STATEMENT_MS, "stats_cb": self._on_statistics}
        else:
            self._config["message.send.max.retries"] = 0
        self.on_epochs: Callable[[int, tuple[int, int] | None], None] | None = None
        self._epochs = _Epochs()
        self._fatal = False
        self._producer = Producer(self._config, logger=QUIET)
        self._login = login
        if login is not None:
            login.add(self)
        self._pump = asyncio.create_task(self._serve(), name=f"delivery reports of {client_id}")

    def log_in_with(self, password: str) -> None:
        """Use another password from the next login on."""
        self._config["sasl.password"] = password
        self._producer.set_sasl_credentials(LOAD, password)

    @property
    def states_epochs(self) -> bool:
        """Whether it says every so often how many epochs it has had."""
        return self._settings.idempotent

    def _on_statistics(self, text: str) -> None:
        self._epochs.read(text)
        if self.on_epochs is not None:
            self.on_epochs(self._epochs.count, self._epochs.current)

    def _on_error(self, error: KafkaError) -> None:
        # The rest are passing troubles of connections, which delivery reports show.
        self._fatal = self._fatal or error.fatal()

    async def _serve(self) -> None:
        while True:
            try:
                self._producer.poll(0)
            except KafkaException as problem:
                # Raised here again is what `error_cb` was given; more than that would be a bug of ours.
                if not problem.args[0].fatal():
                    raise
                self._fatal = True
            if self._fatal:
                self._renew()
            await asyncio.sleep(POLL_MS / 1000)

    def _renew(self) -> None:
        """Go on with a fresh producer: after a fatal error librdkafka refuses everything for ever."""
        purge(self._producer)
        self._fatal = False
        self._producer = Producer(self._config, logger=QUIET)

    def send(self, partition: TopicPartition, key: bytes | None, value: bytes, done: Callable[[Delivery], None]) -> int:
        """Offer one record."""
        timestamp_ms = time.time_ns() // 1_000_000
        try:
            self._producer.produce(
                partition.topic,
                key=key,
                value=value,
                partition=partition.partition,
                timestamp=timestamp_ms,
                on_delivery=partial(self._on_delivery, done, partition),
            )
        except BufferError:
            done(Delivery("fail", "_QUEUE_FULL", None, None, 0))
        except KafkaException as problem:
            done(Delivery("fail", problem.args[0].name(), None, None, 0))
        return timestamp_ms

    def _on_delivery(
        self,
        done: Callable[[Delivery], None],
        partition: TopicPartition,
        error: KafkaError | None,
        message: Message,
    ) -> None:
        code, name = (None, None) if error is None else (error.code(), error.name())
        delivery = delivered(code, name, message.offset(), acks=self._settings.acks)
        done(answered(delivery, self._answers, self._client_id, partition))

    async def flush(self, timeout_ms: int) -> int:
        """Wait until nothing is under way."""
        deadline = asyncio.get_running_loop().time() + timeout_ms / 1000
        while len(self._producer) and asyncio.get_running_loop().time() < deadline:  # noqa: ASYNC110 - librdkafka's
            await asyncio.sleep(POLL_MS / 1000)
        return len(self._producer)

    async def close(self) -> None:
        """Give up what is under way and release everything."""
        if self._login is not None:
            self._login.remove(self)
        self._pump.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await self._pump
        purge(self._producer)


def purge(producer: Producer) -> None:
    """Give up what is under way, and get their reports."""
    producer.purge(in_queue=True, in_flight=True)
    for _ in range(PURGE_POLLS):
        with contextlib.suppress(KafkaException):  # the fatal error that made it useless
            producer.poll(0.002)
        if not len(producer):
            return


class ConfluentConsumer:
    """A consumer of partitions given by hand: no group, no reset of positions.

    more:  settings of its own, for members of groups.
    """

    def __init__(
        self,
        bootstrap: str,
        client_id: str,
        isolation: Literal["read_uncommitted", "read_committed"],
        answers: Answers,
        more: Mapping[str, ClientSetting] | None = None,
        login: Login | None = None,
    ) -> None:
        config = {
            **COMMON,
            "bootstrap.servers": bootstrap,
            "client.id": client_id,
            "group.id": f"{client_id}-unused",
            "isolation.level": isolation,
            "auto.offset.reset": "error",
            "enable.auto.commit": False,
            "enable.auto.offset.store": False,
            "check.crcs": True,
            "fetch.wait.max.ms": 100,
            "fetch.error.backoff.ms": 50,
            "fetch.queue.backoff.ms": 20,
            "queued.max.messages.kbytes": 4096,
            "error_cb": lambda _: None,
            # The only word of where markers end a log.
            END_OF_PARTITION: isolation == "read_committed",
            **(more or {}),
            **settings_of(login),
        }
        self._client_id = client_id
        self._answers = answers
        answers.forget(client_id)
        self.consumer = Consumer(config, logger=QUIET)
        self._login = login
        if login is not None:
            login.add(self)
        self.positions: dict[TopicPartition, int] = {}
        self._waiting: list[Message] = []

    def log_in_with(self, password: str) -> None:
        """Use another password from the next login on."""
        self.consumer.set_sasl_credentials(LOAD, password)

    def assign(self, positions: Mapping[TopicPartition, int]) -> None:
        """Read these partitions from these offsets on."""
        self.positions = dict(positions)
        self._waiting = []
        self._answers.forget(self._client_id)
        self.consumer.assign(
            [RdPartition(partition.topic, partition.partition, offset) for partition, offset in positions.items()]
        )

    async def poll(self, max_records: int, timeout_ms: int) -> list[PartitionPoll]:
        """Return what has arrived."""
        deadline = asyncio.get_running_loop().time() + timeout_ms / 1000
        while True:
            messages, self._waiting = self._waiting or self.consumer.consume(max_records, 0), []
            if messages:
                return self._polls(messages)
            if asyncio.get_running_loop().time() >= deadline:
                return []
            await asyncio.sleep(CONSUME_MS / 1000)

    def serve(self) -> None:
        """Let librdkafka make its callbacks; records that arrive with them wait for the next poll."""
        self._waiting += self.consumer.consume(SERVED_RECORDS, 0)

    def _polls(self, messages: Sequence[Message]) -> list[PartitionPoll]:
        found: dict[TopicPartition, PartitionPoll] = {}
        for message in messages:
            topic, number = message.topic(), message.partition()
            if topic is None or number is None or number < 0:
                continue  # a trouble of connections, not of a partition
            partition = TopicPartition(topic, number)
            if partition not in self.positions:
                continue
            poll = found.get(partition)
            if poll is None:
                poll = found[partition] = PartitionPoll(
                    partition=partition, position=self.positions[partition], records=[]
                )
            error = message.error()
            if error is not None and error.code() == KafkaError._PARTITION_EOF:
                poll.next_position = self.positions[partition] = max(message.offset() or 0, self.positions[partition])
            elif error is not None:
                poll.error = error.name()
            else:
                self._receive(poll, message)
        polls = [part for poll in found.values() for part in self._by_answer(poll)]
        for poll in polls:
            self._add_watermarks(poll)
        return polls

    def _receive(self, poll: PartitionPoll, message: Message) -> None:
        offset, key, value = message.offset(), message.key(), message.value()
        assert offset is not None
        assert not isinstance(key, str)
        assert not isinstance(value, str)
        kind, timestamp_ms = message.timestamp()
        is_stamped = kind != TIMESTAMP_NOT_AVAILABLE
        received = ReceivedRecord(
            offset,
            key,
            value,
            message.leader_epoch(),
            _headers(message),
            timestamp_ms if is_stamped else None,
            kind == TIMESTAMP_LOG_APPEND_TIME if is_stamped else None,
        )
        poll.records.append(received)
        self.positions[poll.partition] = offset + 1

    def _by_answer(self, poll: PartitionPoll) -> list[PartitionPoll]:
        """Return one poll for each node, leader epoch and topic that its records come from: librdkafka fetches ahead of its user."""
        records = poll.records
        if not records or self._answer_of(poll, records[0]) == self._answer_of(poll, records[-1]):
            return [poll]
        parts, position = [], poll.position
        for _, own in groupby(records, partial(self._answer_of, poll)):
            parts.append(PartitionPoll(partition=poll.partition, position=position, records=list(own)))
            position = parts[-1].records[-1].log_offset + 1
        parts[-1].error, parts[-1].next_position = poll.error, poll.next_position
        return parts

    def _answer_of(self, poll: PartitionPoll, record: ReceivedRecord) -> tuple[int, int | None, str | None] | None:
        fetched = self._answers.fetched(self._client_id, poll.partition, record.log_offset)
        return None if fetched is None else (fetched.node, fetched.leader_epoch, fetched.topic_id)

    def _add_watermarks(self, poll: PartitionPoll) -> None:
        """Add the ends of the log as the answer had them that was read from; else what librdkafka heard last, of no epoch.

        A poll that brought an error alone has none: what was fetched before is of another leader, or of another topic of that name.
        """
        if poll.error is not None and not poll.records:
            return
        # Between the position and the first record there may be markers, which an earlier answer brought.
        read_from = poll.records[-1].log_offset if poll.records else poll.next_position or poll.position
        fetched = self._answers.fetched(self._client_id, poll.partition, read_from)
        if fetched is not None:
            poll.answered_by, poll.leader_epoch, poll.topic_id = fetched.node, fetched.leader_epoch, fetched.topic_id
            poll.high_watermark = fetched.high_watermark
            poll.last_stable_offset = fetched.last_stable_offset
            poll.log_start_offset = fetched.log_start_offset
            poll.asked_s = fetched.asked_s
            return
        try:
            low, high = self.consumer.get_watermark_offsets(RdPartition(*poll.partition), cached=True)
        except KafkaException:
            return
        poll.log_start_offset = low if low >= 0 else None
        poll.high_watermark = high if high >= 0 else None

    async def close(self) -> None:
        """Release everything; a consumer that does not end within `CLOSE_S` is left behind."""
        if self._login is not None:
            self._login.remove(self)  # before: what is closed takes no password
        with contextlib.suppress(TimeoutError):
            await blocking(self.consumer.close, CLOSE_S)


def _headers(message: Message) -> Sequence[tuple[str, bytes | None]]:
    headers = message.headers()
    if not headers:
        return ()
    pairs = headers.items() if isinstance(headers, dict) else headers
    return [(name, value.encode() if isinstance(value, str) else value) for name, value in pairs]


class ConfluentAdmin:
    """Asks for topics and offsets."""

    def __init__(
        self,
        bootstrap: str,
        client_id: str,
        leaders: Leaders,
        list_offsets_version: int,
        security: ClientSecurity | None = None,
        topic_settings: Mapping[str, str] | None = None,
    ) -> None:
        """`topic_settings`: of every topic that it creates, where nodes were not started with what a run counts on."""
        self._topic_settings = dict(topic_settings or {})
        self._leaders = leaders
        self._list_offsets_version = list_offsets_version
        self._door = OPEN if security is None else security.administrator
        own = {} if security is None else security.administrator_settings()
        config = {**_admin_config(bootstrap, client_id), **own}
        self._client = AdminClient(config, logger=QUIET, error_cb=lambda _: None)

    async def create_topic(self, topic: str, partitions: int, replication_factor: int, timeout_ms: int) -> None:
        """Create a topic; an existing one of this name is fine.

        Brokers that are registered need not be known yet to who carries it out: in ZooKeeper mode it is notified of them later.
        """
        deadline = asyncio.get_running_loop().time() + timeout_ms / 1000
        while (error := await self._refusal(topic, partitions, replication_factor, timeout_ms)) is not None:
            if error.code() != KafkaError.INVALID_REPLICATION_FACTOR or asyncio.get_running_loop().time() >= deadline:
                raise ClusterError(f"topic {topic} cannot be created: {error.name()}: {error.str()}")
            await asyncio.sleep(AGAIN_MS / 1000)

    async def _refusal(
        self, topic: str, partitions: int, replication_factor: int, timeout_ms: int
    ) -> KafkaError | None:
        """Ask for a topic once; return why there is none."""
        wanted = NewTopic(
            topic, num_partitions=partitions, replication_factor=replication_factor, config=self._topic_settings
        )
        futures = self._client.create_topics(
            [wanted], operation_timeout=timeout_ms / 1000, request_timeout=timeout_ms / 1000
        )
        try:
            await asyncio.wrap_future(futures[topic])
        except KafkaException as problem:
            error: KafkaError = problem.args[0]
            return None if error.code() == KafkaError.TOPIC_ALREADY_EXISTS else error
        return None

    async def delete_topic(self, topic: str, timeout_ms: int) -> None:
        """Ask for a topic to be deleted; a broker that gives up waiting for the last replica has written the order down."""
        futures = self._client.delete_topics([topic], operation_timeout=0, request_timeout=timeout_ms / 1000)
        try:
            await asyncio.wrap_future(futures[topic])
        except KafkaException as problem:
            error: KafkaError = problem.args[0]
            if error.code() not in (KafkaError.REQUEST_TIMED_OUT, KafkaError.UNKNOWN_TOPIC_OR_PART):
                raise ClusterError(f"topic {topic} cannot be deleted: {error.name()}: {error.str()}") from None

    async def offsets(
        self, partitions: Sequence[TopicPartition], timeout_ms: int, *, stable: bool = False
    ) -> list[Offsets]:
        """Ask each leader, in its epoch, for earliest and latest offset."""
        return await fenced_offsets(
            self._leaders,
            partitions,
            timeout_ms,
            stable=stable,
            version=self._list_offsets_version,
            door=self._door,
        )

    async def close(self) -> None:
        """Release everything: librdkafka does, when the client is forgotten."""
        client, self._client = self._client, None  # type: ignore[assignment]
        with contextlib.suppress(TimeoutError):
            await blocking(partial(client.poll, 0), CLOSE_S)


def _admin_config(bootstrap: str, client_id: str) -> dict[str, Plain]:
    return {**COMMON, "bootstrap.servers": bootstrap, "client.id": client_id}


def settings_of(login: Login | None) -> Mapping[str, ClientSetting]:
    """Return what a client needs to get in; nothing where everybody does."""
    return {} if login is None else login.settings()


class ConfluentClients:
    """Makes clients that reach the brokers through their relays; where it is asked who they are, all but admins are the load's."""

    def __init__(
        self,
        bootstrap: Sequence[tuple[str, int]],
        leaders: Leaders,
        answers: Answers,
        administration: Asker,
        *,
        list_offsets_version: int,
        security: ClientSecurity | None = None,
    ) -> None:
        self._security = security
        self._login = None if security is None else security.load
        self._leaders = leaders
        self._answers = answers
        self._administration = administration
        self._list_offsets_version = list_offsets_version
        self.bootstrap = ",".join(f"{host}:{port}" for host, port in bootstrap)

    def producer(self, settings: ProducerSettings, client_id: str) -> ConfluentProducer:
        """Make a producer."""
        return ConfluentProducer(self.bootstrap, settings, client_id, self._answers, self._login)

    def consumer(
        self, client_id: str, isolation: Literal["read_uncommitted", "read_committed"], *, finds_end: bool = False
    ) -> ConfluentConsumer:
        """Make a consumer."""
        more = {END_OF_PARTITION: True} if finds_end else None
        return ConfluentConsumer(self.bootstrap, client_id, isolation, self._answers, more, self._login)

    def admin(self, client_id: str) -> ConfluentAdmin:
        """Make an admin client."""
        return ConfluentAdmin(self.bootstrap, client_id, self._leaders, self._list_offsets_version, self._security)

    def objects(self, client_id: str) -> NoReturn:
        """Refuse: a log has records."""
        raise Unsupported("a log has no operations on objects")

    def operator(self, client_id: str) -> Operating:
        """Make an operator, which asks past librdkafka: it knows whether an order was carried out."""
        return Operating(self._administration)

    def group_consumer(self, settings: GroupSettings, client_id: str) -> GroupConsumer:
        """Make a member of a group."""
        from tribunal.clusters.clients.confluent_coordinated import ConfluentMember

        return ConfluentMember(self.bootstrap, client_id, settings, self._answers, self._login)

    def transactional_producer(
        self, transactional_id: str, transaction_timeout_ms: int, client_id: str
    ) -> TransactionalProducer:
        """Make a producer of transactions."""
        from tribunal.clusters.clients.confluent_coordinated import ConfluentTransactions

        return ConfluentTransactions(
            self.bootstrap, transactional_id, transaction_timeout_ms, client_id, self._answers, self._login
        )
