"""A recording as a history that Jepsen and Elle read: every send, poll and transaction, invoked and completed.

Their clients do one thing at a time; our producers have many sends in flight. So each process becomes as many as it
had operations at once. That loses the order within a process, which the other tools then cannot judge, and invents nothing.
"""

from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby
from typing import Final

import msgspec

from tribunal.results import rows
from tribunal.results.edn import Value
from tribunal.results.history import Event
from tribunal.results.store import Recording

OUTCOMES: Final = {"ok": "ok", "sent": "info", "fail": "fail", "info": "info", "committed": "ok", "aborted": "fail"}
INVOKE, COMPLETE = 1, 0  # at the same instant what ends comes before what begins


class _Operation(msgspec.Struct):
    """One operation: when, what was asked for, what came back. `end_ns` None: nobody saw it end."""

    client: tuple[int, str]
    begin_ns: int
    end_ns: int | None
    outcome: str
    function: str
    asked: Sequence[Value]
    answered: Sequence[Value]


def history(recording: Recording) -> Iterator[Event]:
    """Yield the events of a recording's clients in real-time order, in the neutral form."""
    operations = [*_transactions(recording), *_sends(recording), *_polls(recording)]
    operations.sort(key=lambda operation: (operation.begin_ns, operation.client))
    lanes = _lanes(operations)
    moments = [(operation.begin_ns, INVOKE, number) for number, operation in enumerate(operations)]
    moments += [
        (max(operation.end_ns, operation.begin_ns + 1), COMPLETE, number)
        for number, operation in enumerate(operations)
        if operation.end_ns is not None
    ]
    for index, (at_ns, moment, number) in enumerate(sorted(moments)):
        operation = operations[number]
        kind = "invoke" if moment == INVOKE else operation.outcome
        steps = operation.asked if moment == INVOKE else operation.answered
        event: Event = {"index": index, "process": lanes[number], "type": kind, "f": operation.function, "time": at_ns}
        yield event | {"mops": steps}


def _lanes(operations: list[_Operation]) -> list[int]:
    """Number the clients anew, so that none has two operations open; one of unknown outcome is never used again."""
    free: dict[tuple[int, str], list[tuple[int, int]]] = {}  # client -> (until when it is busy, its new number)
    numbers, count = [], 0
    for operation in operations:
        lanes = free.setdefault(operation.client, [])
        lane = next((lane for lane in lanes if lane[0] <= operation.begin_ns), None)
        if lane is None:
            lane, count = (0, count), count + 1
        else:
            lanes.remove(lane)
        numbers.append(lane[1])
        if operation.end_ns is not None and operation.outcome != "info":
            lanes.append((max(operation.end_ns, operation.begin_ns + 1), lane[1]))
    return numbers


def _transactions(recording: Recording) -> Iterator[_Operation]:
    for row in rows.typed(recording.table("txns"), rows.Transaction):
        steps = row.operations or ()
        lists = any(step.kind in ("append", "read") for step in steps)
        yield _Operation(
            client=(row.process, "txn"),
            begin_ns=row.begin_ns,
            end_ns=row.end_ns,
            outcome=OUTCOMES[row.outcome],
            function="txn",
            asked=list(_steps(steps, answered=False)),
            answered=list(_steps(steps, answered=row.outcome == "committed" or not lists)),
        )


def _steps(steps: Sequence[rows.Step], *, answered: bool) -> Iterator[Sequence[Value]]:
    for (kind, key), group in groupby(steps, lambda step: (step.kind, "" if step.kind == "poll" else _key(step))):
        members = list(group)
        if kind == "read":
            yield ["r", key, [step.value for step in members if step.value is not None] if answered else None]
        elif kind == "append":
            yield from (["append", key, step.value] for step in members)
        elif kind == "send":
            yield from (["send", key, [step.log_offset, step.value] if answered else step.value] for step in members)
        elif answered:
            yield ["poll", _messages(members)]
        else:
            yield ["poll"]


def _sends(recording: Recording) -> Iterator[_Operation]:
    for row in rows.typed(recording.table("sends"), rows.Send):
        if row.txn_id is not None:
            continue  # stands in its transaction
        known = row.outcome == "ok"
        yield _Operation(
            client=(row.process, "send"),
            begin_ns=row.invoke_ns,
            end_ns=row.complete_ns,
            outcome=OUTCOMES[row.outcome],
            function="send",
            asked=[["send", _key(row), row.value]],
            answered=[["send", _key(row), [row.log_offset, row.value] if known else row.value]],
        )


def _polls(recording: Recording) -> Iterator[_Operation]:
    """One operation a call: rows of several partitions that one process asked at once belong together."""
    received: dict[tuple[int, int], list[rows.Read]] = {}
    for read in rows.typed(recording.table("reads"), rows.Read):
        received.setdefault((read.process, read.poll_index), []).append(read)
    calls: dict[tuple[int, str, int], list[rows.Poll]] = {}
    for poll in rows.typed(recording.table("polls"), rows.Poll):
        calls.setdefault((poll.process, poll.phase, poll.invoke_ns), []).append(poll)
    for (process, phase, begin_ns), polls in calls.items():
        places = dict.fromkeys((process, poll.poll_index) for poll in polls)
        messages = [message for place in places for message in received.get(place, [])]
        ends = [poll.complete_ns for poll in polls]
        known_ends = [end for end in ends if end is not None]
        outcomes = {OUTCOMES[poll.outcome] for poll in polls}
        yield _Operation(
            # The final read begins anew, so it is another client's.
            client=(process, phase),
            begin_ns=begin_ns,
            end_ns=max(known_ends) if len(known_ends) == len(ends) else None,
            outcome="ok" if messages else next(word for word in ("ok", "info", "fail") if word in outcomes),
            function="poll",
            asked=[["poll"]],
            answered=[["poll", _messages(messages)] if messages else ["poll"]],
        )


def _messages(received: Iterable[rows.Read | rows.Step]) -> dict[str, list[list[int | None]]]:
    messages: dict[str, list[list[int | None]]] = {}
    for row in received:
        messages.setdefault(_key(row), []).append([row.log_offset, row.value])
    return messages


def _key(row: rows.Send | rows.Read | rows.Step) -> str:
    return f"{row.topic}-{row.partition}"
