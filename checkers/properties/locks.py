"""Locks have one holder at a time: from the answer to an acquisition until its holder asks for the release, or until the lease that the system promises is over, nobody else acquires the lock.

Fencing tokens, where a system gives some, grow from one holder to the next. An acquisition of unknown end holds nothing for sure. An acquisition that the system's own
file permits to be lost is PERMITTED (R13). That a lock is free, or not, is not judged: a refusal may have any reason; but a lock that nobody could acquire at the end was not tried to the end.
"""

from collections.abc import Iterator, Sequence
from typing import Final

import msgspec

from tribunal.checkers.api import Anomaly, Found, Kind, Meaning, PartitionRows, Property, nothing
from tribunal.checkers.graphs.operations import Operation, by_key
from tribunal.checkers.judge.calls import OF_LOCKS, Calls, by_node, calls, seconds
from tribunal.checkers.judge.promised_losses import MS, Permits, Row, found_in, missed, of_call, permitted_losses
from tribunal.checkers.judge.timeline import History, Judgement
from tribunal.results.manifest import LEASE_MS, integer
from tribunal.results.rows import ObjectCall

FOR_EVER: Final = 1 << 62
KINDS: Final = {
    "held_twice": Kind(Meaning.PROMISED, "a lock was acquired while another surely held it"),
    "token_back": Kind(Meaning.PROMISED, "a later holder got a fencing token that is not greater"),
    "not_acquired": Kind(Meaning.UNJUDGED, "nobody could acquire a lock at the end"),
}


class _Hold(msgspec.Struct, frozen=True):
    """An acquisition, and until when its holder surely had the lock."""

    holder: int
    call: ObjectCall
    end_ns: int
    token: int | None

    @property
    def begin_ns(self) -> int:
        """When the holder knew."""
        return self.call.complete_ns or 0


def kernel(run: PartitionRows, history: History) -> Found:
    """Compare the times at which each lock was surely held, and the tokens.

    source:  Kleppmann, "How to do distributed locking" (2016), of leases and fencing tokens.
    """
    found = calls(run.table("operations"), OF_LOCKS)
    if not found.operations:
        return Found(nothing())
    lease_ms = integer(history.settings, LEASE_MS, 0)
    locks, permits = by_key(found.operations), permitted_losses(history)
    rows = [row for key, own in locks.items() for row in _of_lock(str(key), own, found, lease_ms * MS, permits)]
    return found_in(rows, {"calls on locks": len(found.operations), "locks": len(locks)})


def _of_lock(key: str, own: Sequence[Operation], found: Calls, lease_ns: int, permits: Permits) -> Iterator[Row]:
    holds = sorted(_holds(own, found, lease_ns), key=lambda hold: hold.begin_ns)
    yield from _held_twice(key, holds, permits)
    yield from _tokens(key, holds, permits)
    asked = [one for one in own if one.function == "acquire"]
    if asked and max(asked, key=lambda one: one.invoked).outcome != "ok":
        yield Row(Anomaly(kind="not_acquired", detail=f"lock {key}"))


def _holds(own: Sequence[Operation], found: Calls, lease_ns: int) -> Iterator[_Hold]:
    """Yield each acquisition; whoever asks for the release may have lost the lock from then on."""
    released: dict[int, list[int]] = {}
    for one in own:  # in the order of their invocations
        if one.function == "release":
            released.setdefault(one.steps[0][2], []).append(found.recorded[one.index].invoke_ns)
    for one in own:
        if one.function == "acquire" and one.outcome == "ok":
            _, _, holder, token = one.steps[0]
            call = found.recorded[one.index]
            lease_end = call.invoke_ns + lease_ns if lease_ns else FOR_EVER
            asked = next((ns for ns in released.get(holder, ()) if ns > call.invoke_ns), FOR_EVER)
            yield _Hold(holder, call, min(asked, lease_end), token)


def _held_twice(key: str, holds: Sequence[_Hold], permits: Permits) -> Iterator[Row]:
    """Yield each acquisition that was made while others held the lock; permitted is one only if it is beside each of them."""
    holding: list[_Hold] = []
    for hold in holds:
        if hold.begin_ns >= hold.end_ns:
            continue  # the lease was over when the answer came
        holding = [one for one in holding if one.end_ns > hold.begin_ns]
        judged = [(one, _either(one, hold, permits)) for one in holding]
        # A lost one may be held for long by who does not know that it is.
        unexplained = [(one, judgement) for one, judgement in judged if judgement is None]
        if judged:
            other, judgement = max(unexplained or judged, key=lambda pair: pair[0].end_ns)
            words = f"lock {key}: {other.holder} held it from {seconds(other.begin_ns)}, and process {hold.call.process}{by_node(hold.call)}"
            words += f" acquired it for {hold.holder} at {seconds(hold.begin_ns)}, before {_end(other)}"
            yield Row(of_call("held_twice", hold.holder, hold.call, words), judgement)
        holding.append(hold)


def _either(one: _Hold, other: _Hold, permits: Permits) -> Judgement | None:
    """Return what permits that one of two acquisitions was lost before the other one was made."""
    return permits(missed(one.call, other.call)) or permits(missed(other.call, one.call))


def _end(hold: _Hold) -> str:
    return "anybody asked for its release" if hold.end_ns == FOR_EVER else seconds(hold.end_ns)


def _tokens(key: str, holds: Sequence[_Hold], permits: Permits) -> Iterator[Row]:
    """Yield holders whose token is not greater than that of an acquisition that was answered before they asked."""
    given = [(hold, hold.token) for hold in holds if hold.token is not None]
    highest = -1
    for number, (hold, token) in enumerate(given):
        greater = [
            (one, other) for one, other in given[:number] if one.begin_ns < hold.call.invoke_ns and other >= token
        ] if token <= highest else []  # fmt: skip
        highest = max(highest, token)
        if not greater:
            continue
        first, other = greater[0]
        words = (
            f"lock {key}: process {hold.call.process}{by_node(hold.call)} got token {token} at {seconds(hold.begin_ns)}"
        )
        words += f", and {first.holder} had got {other} at {seconds(first.begin_ns)}"
        judgements = [permits(missed(one.call, hold.call)) for one, _ in greater]
        all_permitted = all(judgement is not None for judgement in judgements)
        yield Row(of_call("token_back", token, hold.call, words), judgements[0] if all_permitted else None)


PROPERTY: Final = Property(tables=("operations",), kinds=KINDS, run_kernel=kernel)
