"""Who answered a client's produces, fetches, and commits of positions, and in which leader epoch: read off the connections between clients and brokers.

librdkafka does not tell its user. Its requests and their answers pass through the relays in whole frames, so what a client learned
can be looked up by its client id: of an acknowledged offset the batch that it lies in, of a position the fetch that read it, of a group's
positions the last answer about just these. What
does not fit together is unknown. Nothing is changed on its way, and frames that cannot be read are none of ours.
"""

from bisect import bisect_right
from collections import deque
from collections.abc import Callable, Mapping
from typing import Final, NamedTuple, Protocol
from uuid import UUID

from replog.errors import Error
from replog.log import batch
from replog.types import ZERO_UUID, TopicPartition
from replog.wire.apis import Api
from replog.wire.codec import decode_request, decode_response
from replog.wire.decoder import MalformedMessage
from replog.wire.exchange import exchange_of
from replog.wire.messages.fetch import FetchRequest, FetchResponse
from replog.wire.messages.offset_commit import OffsetCommitRequest, OffsetCommitResponse
from replog.wire.messages.offset_fetch import OffsetFetchRequest, OffsetFetchResponse
from replog.wire.messages.produce import ProduceRequest, ProduceResponse
from replog.wire.messages.txn_offset_commit import TxnOffsetCommitRequest, TxnOffsetCommitResponse
from tribunal.clusters.api import CLIENTS
from tribunal.clusters.links.frames import LENGTH_BYTES, Head, Piece

COUNTED: Final = (int(Api.PRODUCE), int(Api.FETCH))
OF_POSITIONS: Final = (int(Api.OFFSET_COMMIT), int(Api.OFFSET_FETCH), int(Api.TXN_OFFSET_COMMIT))
LISTENED_TO: Final = frozenset({*COUNTED, *OF_POSITIONS})
BATCHES_KEPT: Final = 512  # of a client and partition: a delivery is reported some ms after its answer
FETCHES_KEPT: Final = 512
POSITIONS_KEPT: Final = 64  # of a client: it asks for one thing at a time
UNANSWERED_MAX: Final = 1_024


class Appended(NamedTuple):
    """A batch that was acknowledged: its offsets, who said so, as whose (-1: nobody's in particular), and of which topic where that is said."""

    base_offset: int
    end_offset: int
    node: int
    producer_id: int
    producer_epoch: int
    topic_id: str | None = None


class Sent(NamedTuple):
    """A batch on its way: how many offsets it has, as whose it was sent (-1: nobody's in particular), and its first sequence."""

    offset_count: int
    producer_id: int
    producer_epoch: int
    base_sequence: int


class _Noted(NamedTuple):
    """A batch that was acknowledged, as what it was sent, and in answer to which question."""

    appended: Appended
    sent: Sent
    question: int

    def is_same_batch(self, other: "_Noted") -> bool:
        """Whether these are answers to attempts at one batch: an idempotent producer sends nothing else with that sequence."""
        ours, theirs = self.appended, other.appended
        is_there = (ours.base_offset, ours.topic_id) == (theirs.base_offset, theirs.topic_id)
        return is_there and self.sent == other.sent and self.sent.producer_id >= 0


class Fetched(NamedTuple):
    """An answer to a fetch: from where, who gave it, for which leader epoch it was asked (None: for any), and its ends of the log."""

    offset: int
    node: int
    leader_epoch: int | None
    high_watermark: int
    last_stable_offset: int | None
    log_start_offset: int | None
    topic_id: str | None = None  # of the topic, where the answer names that
    asked_s: float | None = None  # when the question passed, by the clock of `moment_s`


Positions = Mapping[TopicPartition, int | None]  # of a group; None: none is known


class _Coordinated(NamedTuple):
    """An answer about a group's positions without an error: to which question, whether they were committed by it, and who gave it."""

    question: int
    is_commit: bool
    positions: Positions
    node: int


class Asked(NamedTuple):
    """A question that is not answered yet: batches, fetches (offset, leader epoch) or positions to be committed by partition.

    number:  which question of all it is.
    at_s:    when it passed, before the node had it.
    """

    number: int
    at_s: float
    client_id: str
    batches: Mapping[TopicPartition, Sent]
    fetches: Mapping[TopicPartition, tuple[int, int]]
    positions: Positions


class Answers(Protocol):
    """What clients look up."""

    def appended(self, client_id: str, partition: TopicPartition, log_offset: int) -> Appended | None:
        """Return the acknowledged batch that an offset lies in, None where that is not known for sure."""

    def fetched(self, client_id: str, partition: TopicPartition, position: int) -> Fetched | None:
        """Return the answer that a position was read from, None where that is not known."""

    def coordinated(self, client_id: str, positions: Positions, *, is_commit: bool) -> int | None:
        """Return who last took just these positions from a client, or gave it these; None where that is not known."""

    def forget(self, client_id: str) -> None:
        """Forget what a client fetched: it reads from elsewhere now."""


class ClientAnswers:
    """Takes note of what clients were answered.

    topic_ids:  of the topics that there are: newer versions of the protocol name them by these.
    now_s:      reads the clock of `moment_s`.
    """

    def __init__(self, topic_ids: Callable[[], Mapping[str, str]], now_s: Callable[[], float]) -> None:
        self.now_s = now_s
        self.answered_counts = dict.fromkeys(COUNTED, 0)  # produces and fetches without an error, of all clients
        self._topic_ids = topic_ids
        self._names: dict[UUID, str] = {}
        self._appended: dict[tuple[str, TopicPartition], deque[_Noted]] = {}
        self._fetched: dict[tuple[str, TopicPartition], list[Fetched]] = {}
        self._coordinated: dict[str, deque[_Coordinated]] = {}
        self._question_count = 0
        self._last_fetches: dict[tuple[str, TopicPartition], int] = {}  # the question that was answered last
        self._forgotten: dict[str, int] = {}  # the last question before a client began to read from elsewhere

    def listener(self) -> "Listener":
        """Return what listens to one connection."""
        return Listener(self)

    def appended(self, client_id: str, partition: TopicPartition, log_offset: int) -> Appended | None:
        """Return the acknowledged batch that an offset lies in, None where that is not known for sure."""
        kept = self._appended.get((client_id, partition), ())
        found = [one for one, _, _ in kept if one.base_offset <= log_offset < one.end_offset]
        return found[-1] if len({(one.node, one.topic_id) for one in found}) == 1 else None

    def fetched(self, client_id: str, partition: TopicPartition, position: int) -> Fetched | None:
        """Return the answer that a position was read from, None where that is not known."""
        kept = self._fetched.get((client_id, partition), [])
        index = bisect_right(kept, position, key=lambda one: one.offset)
        return kept[index - 1] if index else None

    def coordinated(self, client_id: str, positions: Positions, *, is_commit: bool) -> int | None:
        """Return who last took just these positions from a client, or gave it these; None where that is not known.

        Who asks once more has not received the answer to what it had asked before: the last question is the one whose answer it has.
        """
        kept = self._coordinated.get(client_id, ())
        own = [one for one in kept if one.is_commit is is_commit and one.positions == positions]
        return max(own, key=lambda one: one.question).node if own else None

    def note_coordinated(
        self, question: int, client_id: str, positions: Positions, node: int, *, is_commit: bool
    ) -> None:
        """Take note of who took positions, or gave them."""
        kept = self._coordinated.setdefault(client_id, deque(maxlen=POSITIONS_KEPT))
        kept.append(_Coordinated(question, is_commit, positions, node))

    def forget(self, client_id: str) -> None:
        """Forget what a client fetched, and what it is still to be answered: it reads from elsewhere now."""
        self._forgotten[client_id] = self._question_count
        for key in [key for key in self._fetched if key[0] == client_id]:
            del self._fetched[key]

    def name(self, name: str, topic_id: UUID) -> str:
        """Return a topic's name, which newer versions leave to its id; empty for one that nobody knows."""
        if not name and topic_id not in self._names:
            # Who has not heard that a topic is gone still answers for it.
            self._names |= {UUID(known): there for there, known in self._topic_ids().items()}
        return name or self._names.get(topic_id, "")

    def note_appended(
        self, question: int, client_id: str, partition: TopicPartition, appended: Appended, sent: Sent
    ) -> None:
        """Take note of a batch.

        Whoever sends a batch again has not received the answer to the attempt before, though it passed here: a broker was killed, and
        what was on its way went with the connection. So it is the last attempt whose answer the client has, whichever passed first.
        """
        kept = self._appended.setdefault((client_id, partition), deque(maxlen=BATCHES_KEPT))
        noted = _Noted(appended, sent, question)
        former = next((one for one in kept if one.is_same_batch(noted)), None)
        if former is None:
            kept.append(noted)
        elif former.question < question:
            kept[kept.index(former)] = noted

    def next_question(self) -> int:
        """Return the number of a question that begins now."""
        self._question_count += 1
        return self._question_count

    def note_fetched(self, question: int, client_id: str, partition: TopicPartition, fetched: Fetched) -> None:
        """Take note of an answer; what was fetched from there on before, the client has thrown away.

        An answer that comes behind one to a later question is of a leader that was paused or slow: the client reads from another one
        by then and throws it away.
        """
        key = (client_id, partition)
        if question < self._last_fetches.get(key, 0) or question <= self._forgotten.get(client_id, 0):
            return
        self._last_fetches[key] = question
        kept = self._fetched.setdefault(key, [])
        while kept and kept[-1].offset >= fetched.offset:
            kept.pop()
        kept.append(fetched)
        if len(kept) > 2 * FETCHES_KEPT:
            del kept[:FETCHES_KEPT]


class Listener:
    """Puts one connection's frames together and pairs answers with their questions."""

    def __init__(self, answers: ClientAnswers) -> None:
        self._answers = answers
        self._parts: dict[bool, list[bytes]] = {True: [], False: []}  # of the request or response that is passing
        self._asked: dict[int, Asked] = {}

    def pass_by(self, piece: Piece) -> None:
        """Take note of bytes on their way."""
        head = piece.head
        if head.api not in LISTENED_TO or CLIENTS not in (head.source, head.target):
            return
        parts = self._parts[head.is_request]
        if piece.is_first:
            parts.clear()
        parts.append(piece.data)
        if not piece.is_last:
            return
        frame = memoryview(b"".join(parts))[LENGTH_BYTES:]
        parts.clear()
        try:
            (self._on_request if head.is_request else self._on_response)(head, frame)
        except (MalformedMessage, batch.CorruptBatch):
            self._asked.pop(head.correlation_id, None)

    def _on_request(self, head: Head, frame: memoryview) -> None:
        request = decode_request(frame)
        batches: dict[TopicPartition, Sent] = {}
        fetches: dict[TopicPartition, tuple[int, int]] = {}
        positions: Positions = {}
        match request.body:
            case ProduceRequest(acks=0):
                return  # nobody answers
            case ProduceRequest(topic_data=topics):
                for topic in topics:
                    name = self._answers.name(topic.name, topic.topic_id)
                    for data in topic.partition_data:
                        first = batch.header_at(data.records or b"", 0)
                        batches[TopicPartition(name, data.index)] = Sent(
                            first.last_offset_delta + 1, first.producer_id, first.producer_epoch, first.base_sequence
                        )
            case FetchRequest(topics=wanted):
                for topic_wanted in wanted:
                    name = self._answers.name(topic_wanted.topic, topic_wanted.topic_id)
                    for part in topic_wanted.partitions:
                        fetches[TopicPartition(name, part.partition)] = (part.fetch_offset, part.current_leader_epoch)
            case OffsetCommitRequest() | TxnOffsetCommitRequest():
                positions = self._committed(request.body)
            case OffsetFetchRequest():
                pass  # what it is about stands in the answer
            case _:
                return
        if len(self._asked) < UNANSWERED_MAX:
            number, at_s = self._answers.next_question(), self._answers.now_s()
            asked = Asked(number, at_s, request.client_id or "", batches, fetches, positions)
            self._asked[head.correlation_id] = asked

    def _committed(self, body: OffsetCommitRequest | TxnOffsetCommitRequest) -> Positions:
        if isinstance(body, TxnOffsetCommitRequest):
            named = [(one.name, part) for one in body.topics for part in one.partitions]
            return {TopicPartition(name, part.partition_index): part.committed_offset for name, part in named}
        given = [(self._answers.name(one.name, one.topic_id), one.partitions) for one in body.topics]
        return {
            TopicPartition(name, part.partition_index): part.committed_offset for name, own in given for part in own
        }

    def _on_response(self, head: Head, frame: memoryview) -> None:
        asked = self._asked.pop(head.correlation_id, None)
        if asked is None:
            return
        _, body = decode_response(exchange_of(Api(head.api)), head.version, frame)
        match body:
            case ProduceResponse():
                self._on_produced(head.source, asked, body)
            case FetchResponse():
                self._on_fetched(head.source, asked, body)
            case OffsetCommitResponse() | TxnOffsetCommitResponse():
                errors = [part.error_code for topic in body.topics for part in topic.partitions]
                if all(error is Error.NONE for error in errors):
                    self._answers.note_coordinated(
                        asked.number, asked.client_id, asked.positions, head.source, is_commit=True
                    )
            case OffsetFetchResponse():
                self._on_positions(head.source, asked, body)
            case _:
                pass  # an answer to something else

    def _on_produced(self, node: int, asked: Asked, body: ProduceResponse) -> None:
        for topic in body.responses:
            name = self._answers.name(topic.name, topic.topic_id)
            for answer in topic.partition_responses:
                partition = TopicPartition(name, answer.index)
                if answer.error_code is Error.NONE and answer.base_offset >= 0 and partition in asked.batches:
                    self._answers.answered_counts[Api.PRODUCE] += 1
                    sent = asked.batches[partition]
                    appended = Appended(
                        base_offset=answer.base_offset,
                        end_offset=answer.base_offset + sent.offset_count,
                        node=node,
                        producer_id=sent.producer_id,
                        producer_epoch=sent.producer_epoch,
                        topic_id=_id(topic.topic_id),
                    )
                    self._answers.note_appended(asked.number, asked.client_id, partition, appended, sent)

    def _on_fetched(self, node: int, asked: Asked, body: FetchResponse) -> None:
        for topic in body.responses:
            name = self._answers.name(topic.topic, topic.topic_id)
            for answer in topic.partitions:
                partition = TopicPartition(name, answer.partition_index)
                if answer.error_code is Error.NONE and answer.high_watermark >= 0 and partition in asked.fetches:
                    self._answers.answered_counts[Api.FETCH] += 1
                    offset, leader_epoch = asked.fetches[partition]
                    fetched = Fetched(
                        offset=offset,
                        node=node,
                        leader_epoch=_known(leader_epoch),
                        high_watermark=answer.high_watermark,
                        last_stable_offset=_known(answer.last_stable_offset),
                        log_start_offset=_known(answer.log_start_offset),
                        topic_id=_id(topic.topic_id),
                        asked_s=asked.at_s,
                    )
                    self._answers.note_fetched(asked.number, asked.client_id, partition, fetched)

    def _on_positions(self, node: int, asked: Asked, body: OffsetFetchResponse) -> None:
        """Take note of the positions of one group, or of the only one that newer versions name."""
        errors, positions = [body.error_code], dict[TopicPartition, int | None]()
        for group in body.groups:
            errors.append(group.error_code)
            for topic in group.topics:
                name = self._answers.name(topic.name, topic.topic_id)
                for part in topic.partitions:
                    errors.append(part.error_code)
                    positions[TopicPartition(name, part.partition_index)] = _known(part.committed_offset)
        for older in body.topics:
            for one in older.partitions:
                errors.append(one.error_code)
                positions[TopicPartition(older.name, one.partition_index)] = _known(one.committed_offset)
        if all(error is Error.NONE for error in errors):
            self._answers.note_coordinated(asked.number, asked.client_id, positions, node, is_commit=False)


def _known(number: int) -> int | None:
    return number if number >= 0 else None


def _id(topic_id: UUID) -> str | None:
    """Return a topic's id; None where an older version names the topic alone."""
    return None if topic_id == ZERO_UUID else str(topic_id)
