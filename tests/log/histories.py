"""Histories of a log as lists of operations, and the plainest model of what they must leave.

An operation is a tuple; `perform` does it to a log, `Model.perform` to a list of batches. Offsets are given in
per mille of the log, so that any list of operations makes sense.
"""

from typing import Any

from hypothesis import strategies as st

from replog.log.batch import CONTROL, TRANSACTIONAL, BatchHeader, NewRecord, batches, build, end_transaction_marker
from replog.log.log import Appended, Log
from replog.log.validation import Origin

Operation = tuple[Any, ...]

per_mille = st.integers(0, 1100)
operations = st.one_of(
    st.tuples(st.just("append"), st.integers(1, 5), st.integers(0, 90)),
    st.tuples(st.just("append"), st.integers(1, 5), st.integers(0, 90)),
    st.tuples(st.just("produce"), st.integers(0, 2), st.integers(1, 3), st.booleans()),
    st.tuples(st.just("end"), st.integers(0, 2), st.booleans()),
    st.tuples(st.just("epoch")),
    st.tuples(st.just("roll")),
    st.tuples(st.just("flush")),
    st.tuples(st.just("truncate"), per_mille),
    st.tuples(st.just("restart"), per_mille),
)
histories = st.lists(operations, max_size=40)


class Model:
    """What a log holds, as a list of (base offset, next offset, bytes)."""

    def __init__(self) -> None:
        self.start = 0
        self.end = 0
        self.epoch = 0
        self.batches: list[tuple[int, int, bytes]] = []
        self.flushed = 0
        self.clock_ms = 0

    @property
    def content(self) -> bytes:
        return b"".join(content for _, _, content in self.batches)

    def copy(self) -> "Model":
        twin = Model()
        twin.__dict__.update(self.__dict__, batches=list(self.batches))
        return twin

    def offset(self, share: int) -> int:
        return self.start + (self.end - self.start) * share // 1000

    def perform(self, operation: Operation, appended: bytes) -> None:
        """Do the operation; `appended` is what the log wrote for it."""
        match operation:
            case ("epoch",):
                self.epoch += 1
            case ("flush",):
                self.flushed = self.end
            case ("truncate", share):
                self.truncate(self.offset(share))
            case ("restart", share):
                self.start = self.end = self.flushed = self.offset(share)
                self.batches = []
        for header in batches(appended):
            self.batches.append((header.base_offset, header.next_offset, appended[header.position : header.end]))
            self.end = header.next_offset

    def truncate(self, offset: int) -> None:
        if offset >= self.end:
            return
        if offset <= self.start:
            self.start = self.end = self.flushed = offset
            self.batches = []
            return
        while self.batches and self.batches[-1][1] > offset:
            self.end = min(offset, self.batches.pop()[0])
        self.flushed = min(self.flushed, self.end)


def perform(log: Log, operation: Operation, model: Model) -> bytes:
    """Do an operation; return the bytes of the batches it wrote."""
    end_offset = log.log_end_offset
    model.clock_ms += 1
    match operation:
        case ("append", count, size):
            records = [NewRecord(b"key", b"v" * size)] * count
            _append(log, build(records, timestamp_ms=1000 + model.clock_ms * 7 % 50), model.epoch)
        case ("produce", producer_id, count, transactional):
            _append(log, _next_of(log, producer_id, count, transactional), model.epoch)
        case ("end", producer_id, committed):
            marker = end_transaction_marker(
                producer_id=producer_id,
                producer_epoch=0,
                committed=committed,
                coordinator_epoch=model.epoch,
                timestamp_ms=1000,
            )
            _append(log, marker, model.epoch)
        case ("epoch",):
            log.begin_epoch(model.epoch + 1)
        case ("roll",):
            log.roll(now_ms=0)
        case ("flush",):
            log.flush()
        case ("truncate", share):
            log.truncate_to(model.offset(share))
            return b""
        case ("restart", share):
            log.restart_at(model.offset(share))
            return b""
    return log.read(end_offset, max_bytes=1 << 20, end_offset=log.log_end_offset, at_least_one=True)


def _next_of(log: Log, producer_id: int, count: int, transactional: bool) -> bytes:
    producer = log.producers.get(producer_id)
    sequence = 0 if producer is None else (producer.last_sequence + 1) % (1 << 31)
    is_inside = transactional or log.producers.has_open_transaction(producer_id)  # TX-032
    attributes = TRANSACTIONAL if is_inside else 0
    records = [NewRecord(None, b"p%d" % producer_id)] * count
    return build(records, timestamp_ms=1000, producer=(producer_id, 0, sequence), attributes=attributes)


def _append(log: Log, content: bytes, epoch: int) -> None:
    is_marker = next(batches(content)).attributes & CONTROL
    origin = Origin.COORDINATOR if is_marker else Origin.CLIENT
    appended = log.append_as_leader(content, leader_epoch=max(epoch, log.epochs.latest), now_ms=0, origin=origin)
    assert isinstance(appended, Appended), appended


def headers(content: bytes) -> list[BatchHeader]:
    """Return all headers of a buffer of whole batches."""
    return list(batches(content))
