"""Changes of a recording as they are made: a record taken away, put in its place, moved; wherever it is written down."""

from collections.abc import Callable, Sequence
from typing import Final

from msgspec.structs import replace

from tribunal.checkers.calibration.api import Changed
from tribunal.checkers.calibration.case import Case, Place
from tribunal.results.recording import NO_PARTITION
from tribunal.results.rows import TABLE_OF, AnyRow, LogRecord, Poll, Read, Row, Send
from tribunal.results.values import SEQUENCE_BITS, value_of

UNKNOWN_PROCESS: Final = 9_000  # the process whose records stand where others were lost: no workload counts that far
EVERY: Final = ("final", "tail")


class Draft:
    """The parts that an injection changes; parts that nobody asked for stay as they are."""

    def __init__(self, case: Case) -> None:
        self.case = case
        self._parts: dict[tuple[type[Row], str], list[Row]] = {}

    def rows(self, kind: type[AnyRow], place: Place | None = None) -> list[AnyRow]:
        """Return a part's rows, to be changed in place."""
        part = NO_PARTITION if place is None else str(place)
        if (kind, part) not in self._parts:
            own = self.case.of_run(kind) if place is None else self.case.rows(kind, place)
            self._parts[kind, part] = list(own)
        return self._parts[kind, part]  # type: ignore[return-value]

    def changed(self) -> Changed:
        """Return the changed parts."""
        return {(TABLE_OF[kind], part): (kind, rows) for (kind, part), rows in self._parts.items()}

    def edit(self, kind: type[AnyRow], place: Place | None, change: Callable[[AnyRow], AnyRow]) -> None:
        """Put each row through a change."""
        rows = self.rows(kind, place)
        rows[:] = [change(row) for row in rows]

    def replace_row(self, place: Place | None, old: AnyRow, new: AnyRow) -> None:
        """Put one row in another one's place."""
        rows = self.rows(type(old), place)
        rows[rows.index(old)] = new

    def hide(self, place: Place, offsets: Sequence[int], phases: Sequence[str] = EVERY) -> None:
        """Let readers not receive what stands at some offsets; their polls count less."""
        wanted = dict.fromkeys(offsets)
        reads = self.rows(Read, place)
        hidden = [read for read in reads if read.log_offset in wanted and read.phase in phases]
        self.unreceived(place, hidden)

    def unreceived(self, place: Place, hidden: Sequence[Read]) -> None:
        """Take some rows of readers away; their polls count less."""
        gone = dict.fromkeys(hidden)
        reads = self.rows(Read, place)
        reads[:] = [read for read in reads if read not in gone]
        fewer: dict[tuple[int, int], int] = {}
        for read in hidden:
            fewer[read.process, read.poll_index] = fewer.get((read.process, read.poll_index), 0) + 1
        self.edit(Poll, place, lambda poll: _counted(poll, -fewer.get((poll.process, poll.poll_index), 0)))

    def erase(self, place: Place, offsets: Sequence[int]) -> None:
        """Take records out of the final log: of final reads and of every replica."""
        wanted = dict.fromkeys(offsets)
        self.hide(place, offsets, ("final",))
        logs = self.rows(LogRecord, place)
        logs[:] = [record for record in logs if record.log_offset not in wanted]

    def put(self, place: Place, offset: int, value: int | None, phases: Sequence[str] = ("final",)) -> None:
        """Let another value stand at an offset of the final log."""
        self.edit(Read, place, lambda read: (
            replace(read, value=value) if read.log_offset == offset and read.phase in phases else read
        ))  # fmt: skip
        self.edit(LogRecord, place, lambda record: (
            replace(record, value=value) if record.log_offset == offset and not record.is_control else record
        ))  # fmt: skip

    def supplant(self, send: Send) -> None:
        """Let another process's record of unknown fate stand where an acknowledged one stood: the log went on without it."""
        place, offset = Place(send.topic, send.partition), send.log_offset
        assert offset is not None
        sends = self.rows(Send, place)
        known = [
            other.value
            for name in self.case.places
            for other in self.rows(Send, name)
            if other.process == UNKNOWN_PROCESS
        ]
        sequence = max((value & ((1 << SEQUENCE_BITS) - 1) for value in known), default=-1) + 1
        added = Send(
            process=UNKNOWN_PROCESS, worker_class="plain", topic=send.topic, partition=send.partition,
            value=value_of(UNKNOWN_PROCESS, sequence), acks=-1, invoke_ns=send.invoke_ns, outcome="info", attempts=2,
        )  # fmt: skip
        sends.insert(sends.index(send), added)
        self.put(place, offset, added.value)

    def cut_off(self, place: Place, end: int) -> None:
        """Let the final log end earlier."""
        standing = self.case.log(place)
        last = max([standing.end - 1, *(record.log_offset for record in self.case.rows(LogRecord, place))])
        self.erase(place, range(end, last + 1))

        def shown(poll: Poll) -> Poll:
            if poll.phase != "final":
                return poll
            return replace(
                poll, position=_least(poll.position, end), high_watermark=_least(poll.high_watermark, end),
                last_stable_offset=_least(poll.last_stable_offset, end),
            )  # fmt: skip

        self.edit(Poll, place, shown)

    def append(self, place: Place, value: int) -> int:
        """Let a value stand once more, behind the final log's end; return its offset."""
        logs = self.case.replicas_logs(place)
        log = self.case.log(place)
        end = max([log.end, *(max(own) + 1 for own in logs.values() if own)])
        end = max([end, *(poll.position or 0 for poll in self.case.rows(Poll, place) if poll.process in log.readers)])
        epoch = max((read.leader_epoch or 0 for read in log.records.values()), default=0)
        for process in log.readers:
            polls = [poll for poll in self.rows(Poll, place) if poll.process == process and poll.phase == "final"]
            last = max(polls, key=lambda poll: poll.poll_index)
            self.replace_row(place, last, replace(last, record_count=1, high_watermark=end + 1, position=end))
            self.rows(Poll, place).append(
                replace(last, poll_index=last.poll_index + 1, high_watermark=end + 1, position=end + 1, record_count=0,
                        last_stable_offset=None)
            )  # fmt: skip
            self.rows(Read, place).append(Read(
                process=process, poll_index=last.poll_index, topic=place.topic, partition=place.partition,
                log_offset=end, phase="final", value=value, leader_epoch=epoch,
            ))  # fmt: skip
        for node in logs:
            self.rows(LogRecord, place).append(LogRecord(
                node=node, topic=place.topic, partition=place.partition, log_offset=end, leader_epoch=epoch, value=value,
                batch_first_offset=end, is_control=False,
            ))  # fmt: skip
        return end

    def exchange(self, one: Send, two: Send, *, acknowledged: bool) -> None:
        """Let two records stand in each other's place, for every reader.

        acknowledged:  also in the acknowledgements that their producers got.
        """
        place = Place(one.topic, one.partition)
        values = {one.log_offset: two.value, two.log_offset: one.value}
        self.edit(Read, place, lambda read: replace(read, value=values.get(read.log_offset, read.value)))
        self.edit(LogRecord, place, lambda record: replace(record, value=values.get(record.log_offset, record.value)))
        if acknowledged:
            self.replace_row(place, one, replace(one, log_offset=two.log_offset))
            self.replace_row(place, two, replace(two, log_offset=one.log_offset))


def _counted(poll: Poll, more: int) -> Poll:
    return (
        poll if not more or poll.record_count is None else replace(poll, record_count=max(0, poll.record_count + more))
    )


def _least(offset: int | None, end: int) -> int | None:
    return None if offset is None else min(offset, end)
