"""A recording's calls on objects, as the checkers of histories read operations."""

from collections.abc import Iterable, Sequence
from typing import Final

import msgspec
import pyarrow as pa

from tribunal.checkers.graphs.operations import OPEN_END, Datum, Operation, Outcome
from tribunal.results.rows import ObjectCall, typed

INVOKED, COMPLETED = 0, 1  # at the same instant what begins comes first: then the two were at the same time
OF_REGISTERS: Final = frozenset({"read", "write", "cas"})
OF_SETS: Final = frozenset({"add", "read-all"})


class Calls(msgspec.Struct, frozen=True):
    """The calls of some functions: as operations, in the order of their invocations, and by `Operation.index` as they were recorded."""

    operations: Sequence[Operation]
    recorded: Sequence[ObjectCall]


def calls(rows: pa.Table, functions: frozenset[str]) -> Calls:
    """Return the calls of these functions."""
    recorded = [call for call in typed(rows, ObjectCall) if call.function in functions]
    moments = sorted(_moments(recorded))
    place = {(number, kind): position for position, (_, kind, number) in enumerate(moments)}
    operations = [
        _operation(call, number, place[number, INVOKED], place.get((number, COMPLETED), OPEN_END))
        for number, call in enumerate(recorded)
    ]
    return Calls(sorted(operations, key=lambda operation: operation.invoked), recorded)


def _moments(recorded: Sequence[ObjectCall]) -> Iterable[tuple[int, int, int]]:
    for number, call in enumerate(recorded):
        yield call.invoke_ns, INVOKED, number
        if call.complete_ns is not None and call.outcome != "info":  # that may take effect at any later time
            yield call.complete_ns, COMPLETED, number


def _operation(call: ObjectCall, number: int, invoked: int, completed: int) -> Operation:
    step = (call.function, call.key, _value(call.argument), _value(call.result))
    return Operation(
        index=number,
        process=call.process,
        outcome=msgspec.convert(call.outcome, Outcome),
        function=call.function,
        invoked=invoked,
        completed=completed,
        steps=(step,),
    )


def _value(text: str | None) -> Datum:
    return None if text is None else msgspec.json.decode(text)


def seconds(at_ns: int | None) -> str:
    """Return a time of the run for people."""
    return "never" if at_ns is None else f"{at_ns / 1e9:.3f} s"
