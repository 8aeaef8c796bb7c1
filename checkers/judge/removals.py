"""Who surely had no log of a partition any more when it was added to its replicas again: it had carried out that it was none.

A broker says with each heartbeat how far it has carried out the metadata; only the simulator reads that. That somebody was taken out of the
replicas proves nothing: who never learned of it, or learned of it together with being added again, keeps its log.
"""

from collections.abc import Callable, Iterable, Iterator
from typing import Final, NamedTuple

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from tribunal.checkers.judge.incarnations import Incarnations
from tribunal.results.unreadable import UNREADABLE

HEARTBEAT: Final = 63


class Said(NamedTuple):
    """A broker said, when it sent a heartbeat, up to which offset it had carried out the metadata."""

    node: int
    at_ns: int
    metadata_offset: int


class _Heartbeat(msgspec.Struct, frozen=True):
    """What is recorded of a heartbeat."""

    metadata_offset: int | None = None


def said(requests: pa.Table) -> Iterator[Said]:
    """Yield what brokers said of the metadata, in order; nothing of heartbeats that nobody read."""
    of_brokers = pc.and_(pc.equal(requests["api_key"], HEARTBEAT), pc.equal(requests["direction"], "request"))
    rows = requests.filter(of_brokers).sort_by("at_ns").select(["from", "at_ns", "summary"])
    for row in rows.to_pylist():
        offset = _metadata_offset(row["summary"])
        if offset is not None:
            yield Said(row["from"], row["at_ns"], offset)


def _metadata_offset(summary: str | None) -> int | None:
    try:
        return None if summary is None else msgspec.json.decode(summary, type=_Heartbeat).metadata_offset
    except UNREADABLE:
        return None


class Directories(NamedTuple):
    """A broker registered with these log directories, or said later that not all of them are in service any more."""

    metadata_offset: int
    node: int
    ids: frozenset[str]
    is_registration: bool


class Removals:
    """What brokers are known to have carried out of their removals."""

    def __init__(
        self,
        heartbeats: Callable[[], Iterable[Said]],
        directories: Callable[[], Iterable[Directories]],
        incarnations: Incarnations,
    ) -> None:
        """Take how to get at what was recorded: it is read when somebody has been added again."""
        self._heartbeats = heartbeats
        self._directories = directories
        self._incarnations = incarnations
        self._said: dict[int, list[Said]] | None = None

    def carried_out(self, node: int, left: int, added: int, added_ns: int) -> bool:
        """Whether a broker surely had deleted its log, by places in the metadata log: it left the replicas, and was added again.

        The very process that was added had said that it had carried out the one, before the other was written and behind its own registration (until then
        it only reads what was), and all directories that it ever had were in service: a log in one that is not cannot be deleted.
        """
        own = [one for one in self._directories() if one.node == node]
        registered = [one for one in own if one.is_registration and one.metadata_offset < added]
        if not registered:
            return False
        last = registered[-1].metadata_offset
        later = next((one.metadata_offset for one in own if one.is_registration and one.metadata_offset > added), None)
        if any(
            not one.is_registration and last < one.metadata_offset and (later is None or one.metadata_offset < later)
            for one in own
        ):
            return False
        if not frozenset().union(*(one.ids for one in registered)) <= registered[-1].ids:
            return False
        return any(
            max(left, last) <= one.metadata_offset < added
            and one.at_ns <= added_ns < self._incarnations.ended_ns(node, one.at_ns)
            for one in self._of(node)
        )

    def _of(self, node: int) -> list[Said]:
        if self._said is None:
            self._said = {}
            for one in self._heartbeats():
                self._said.setdefault(one.node, []).append(one)
        return self._said.get(node, [])
