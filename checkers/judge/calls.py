"""A recording's calls on objects, as the checkers of histories read operations."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final

import msgspec
import pyarrow as pa

from tribunal.checkers.graphs.operations import OPEN_END, Operation, Outcome, Step
from tribunal.results.object_transactions import must_answer, read_steps
from tribunal.results.object_values import answer_of, argument_of
from tribunal.results.recording import DamagedRecording
from tribunal.results.rows import ObjectCall, typed

INVOKED, COMPLETED = 0, 1  # at the same instant what begins comes first: then the two were at the same time
OF_REGISTERS: Final = frozenset({"read", "write", "cas"})
OF_QUEUES: Final = frozenset({"enqueue", "dequeue", "acknowledge", "redeliver"})
OF_COUNTERS: Final = frozenset({"increment", "read-counter"})
OF_LOCKS: Final = frozenset({"acquire", "release"})
OF_SETS: Final = frozenset({"add", "read-all"})
ACKNOWLEDGED: Final = frozenset({"publish", "publish-one"})  # of what publishes, what somebody answers for
SENT: Final = "publish-none"  # what nobody answers for
PUBLISHING: Final = ACKNOWLEDGED | {SENT}
OF_STREAMS: Final = PUBLISHING | {"read-stream"}


class Calls(msgspec.Struct, frozen=True):
    """The calls of some functions: as operations, in the order of their invocations, and as they were recorded.

    recorded:  by `Operation.index`, the row in the table `operations`.
    """

    operations: Sequence[Operation]
    recorded: Mapping[int, ObjectCall]


def calls(rows: pa.Table, functions: frozenset[str]) -> Calls:
    """Return the calls of these functions."""
    return _in_order(
        {row: call for row, call in enumerate(typed(rows, ObjectCall)) if call.function in functions}, _call
    )


def transactions(rows: pa.Table, functions: Sequence[str]) -> list[Calls]:
    """Return the transactions on each of these sorts of objects; a step is (function, key, value). Raises DamagedRecording."""
    recorded: dict[str, dict[int, ObjectCall]] = {function: {} for function in functions}
    for row, call in enumerate(typed(rows, ObjectCall)):
        if call.function in recorded:
            recorded[call.function][row] = call
    return [_in_order(own, _transaction) for own in recorded.values()]


def by_node(call: ObjectCall) -> str:
    """Say behind a process's name which node answered it, where its client said so."""
    return "" if call.answered_by is None else f" (node {call.answered_by})"


def first_acknowledged(own: Iterable[Operation], function: str) -> dict[int, Operation]:
    """Return, of each element that calls of a function name, the first of them that was acknowledged."""
    found: dict[int, Operation] = {}
    for one in sorted(own, key=lambda one: one.completed):
        if one.function == function and one.outcome == "ok":
            found.setdefault(one.steps[0][2], one)
    return found


def _in_order(recorded: Mapping[int, ObjectCall], steps_of: Callable[[int, ObjectCall], tuple[Step, ...]]) -> Calls:
    moments = sorted(_moments(recorded))
    place = {(number, kind): position for position, (_, kind, number) in enumerate(moments)}
    operations = [
        Operation(
            index=number,
            process=call.process,
            outcome=msgspec.convert(call.outcome, Outcome),
            function=call.function,
            invoked=place[number, INVOKED],
            completed=place.get((number, COMPLETED), OPEN_END),
            steps=steps_of(number, call),
        )
        for number, call in recorded.items()
    ]
    return Calls(sorted(operations, key=lambda operation: operation.invoked), recorded)


def _moments(recorded: Mapping[int, ObjectCall]) -> Iterable[tuple[int, int, int]]:
    for number, call in recorded.items():
        yield call.invoke_ns, INVOKED, number
        if call.complete_ns is not None and call.outcome != "info":  # that may take effect at any later time
            yield call.complete_ns, COMPLETED, number


def _call(row: int, call: ObjectCall) -> tuple[Step, ...]:
    try:
        asked = argument_of(call.function, call.argument)
        answer = None if call.result is None else answer_of(call.function, call.result)
    except ValueError as problem:
        raise DamagedRecording("operations", row, f"{call.function}: {problem}") from None
    return ((call.function, call.key, asked, answer),)


def _transaction(row: int, call: ObjectCall) -> tuple[Step, ...]:
    try:
        steps = asked = read_steps(call.argument or "")
        if call.outcome == "ok":
            steps = read_steps(call.result or "")
            must_answer(call.function, asked, steps)
    except ValueError as problem:
        raise DamagedRecording("operations", row, f"{call.function}: {problem}") from None
    return tuple((step.kind.value, step.key, step.value) for step in steps)


def seconds(at_ns: int | None) -> str:
    """Return a time of the run for people."""
    return "never" if at_ns is None else f"{at_ns / 1e9:.3f} s"
