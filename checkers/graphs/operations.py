"""Operations of clients as values: what every graph and register checker reads.

An operation is an invocation and, unless it was left open, its completion: `ok` took effect, `fail`
surely did not, `info` nobody knows. Positions are places in the history; a smaller position happened
earlier. Files come in the neutral JSON form of the corpus (one object an event) or are made from
a recording's tables.
"""

from collections.abc import Hashable, Iterable, Mapping, Sequence
from typing import Any, Final, Literal

import msgspec

Outcome = Literal["ok", "fail", "info"]
# A value in a history that another tool recorded: its form depends on the function that the operation names.
Datum = Any
Event = Mapping[str, Datum]
Step = tuple[Datum, ...]
OPEN_END: Final = 1 << 62  # the completion position of an operation that nobody saw complete


class HistoryError(ValueError):
    """A history that contradicts itself; the message names the event and the reason."""


class Operation(msgspec.Struct, frozen=True, kw_only=True):
    """One operation of one process. `index` is where the completion (or the open invocation) stands."""

    index: int
    process: int
    outcome: Outcome
    function: str
    invoked: int
    completed: int
    steps: tuple[Step, ...]  # (function, key, value), or one (function, key, argument, result)
    extra: Event = {}


def paired(events: Iterable[Event]) -> list[Operation]:
    """Return the operations of a history, ordered by invocation.

    errors: HistoryError for a completion without invocation, a second invocation of a busy process.
    """
    waiting: dict[int, tuple[int, Event]] = {}
    operations: list[Operation] = []
    for position, event in enumerate(events):
        if isinstance(event.get("process"), str):
            continue  # what hurts the system is recorded beside the clients
        process = _process(event, position)
        if event["type"] == "invoke":
            if process in waiting:
                raise HistoryError(f"event {position}: process {process} invokes while an operation of its is open")
            waiting[process] = (position, event)
            continue
        if event["type"] not in {"ok", "fail", "info"}:
            raise HistoryError(f"event {position}: unknown type {event['type']!r}")
        if process not in waiting:
            raise HistoryError(f"event {position}: {event['type']} of process {process} without an invocation")
        operations.append(_operation(waiting.pop(process), position, event))
    operations += [_operation(opened, OPEN_END, None) for opened in waiting.values()]
    return sorted(operations, key=lambda operation: operation.invoked)


def _process(event: Event, position: int) -> int:
    # Samples of other tools name no process where every operation follows the one before.
    process = event.get("process", 0)
    if not isinstance(process, int):
        raise HistoryError(f"event {position}: process {process!r} is not a number")
    return process


def _operation(opened: tuple[int, Event], end: int, completion: Event | None) -> Operation:
    start, invocation = opened
    last_event = completion or invocation
    outcome: Outcome = completion["type"] if completion else "info"
    return Operation(
        index=end if completion else start,
        process=invocation.get("process", 0),
        outcome=outcome,
        function=invocation.get("f", "txn"),
        # An unknown outcome may take effect at any later time.
        invoked=start,
        completed=end if outcome != "info" else OPEN_END,
        steps=_steps(last_event, invocation),
        extra={name: last_event[name] for name in ("rebalance_log", "keys", "error", "offset") if name in last_event},
    )


def _steps(last_event: Event, invocation: Event) -> tuple[Step, ...]:
    for name in ("mops", "value"):
        for event in (last_event, invocation):
            steps = event.get(name)
            if steps is not None and _is_transaction(steps):
                return tuple(tuple(step) for step in steps)
    return ((invocation.get("f"), invocation.get("key"), invocation.get("value"), last_event.get("value")),)


def _is_transaction(steps: Datum) -> bool:
    return isinstance(steps, list) and bool(steps) and all(isinstance(s, list) and isinstance(s[0], str) for s in steps)


def by_key(operations: Sequence[Operation]) -> dict[Hashable, list[Operation]]:
    """Group single-step operations by the key they touch, in order of first use."""
    groups: dict[Hashable, list[Operation]] = {}
    for operation in operations:
        groups.setdefault(operation.steps[0][1], []).append(operation)
    return groups
