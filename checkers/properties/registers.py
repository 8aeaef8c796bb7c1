"""Registers are linearizable: every call seems to take effect at one moment between its invocation and its completion.

Each register is searched by itself (linearizability is local) for an order of its calls that a single register explains; calls of
unknown outcome may have taken effect at any later moment, or never. A register whose last acknowledged write nobody read afterwards
says nothing of that write: it is not judged.
"""

from collections.abc import Iterator, Sequence
from time import monotonic
from typing import Final

from tribunal.checkers.api import Anomaly, Found, Kind, Meaning, PartitionRows, Property, nothing, table_of
from tribunal.checkers.graphs.operations import Operation, by_key
from tribunal.checkers.judge.calls import OF_REGISTERS, Calls, by_node, calls, seconds
from tribunal.checkers.judge.timeline import History
from tribunal.checkers.registers.linearizability import Answer, Limits, Linearization, check_object
from tribunal.checkers.registers.models import CAS_REGISTER

SEARCH_SECONDS: Final = 60.0  # of all registers of a run
SEARCH_CONFIGURATIONS: Final = 500_000  # about 200 bytes each
KINDS: Final = {
    "not_linearizable": Kind(Meaning.VIOLATION, "no order of a register's calls explains what one of them returned"),
    "undecided": Kind(Meaning.UNJUDGED, "the search for an order took more than its limit"),
    "unread": Kind(Meaning.UNJUDGED, "nobody read a register after its last acknowledged write"),
}


def kernel(run: PartitionRows, history: History) -> Found:
    """Look for an order, register by register.

    source:  Herlihy and Wing, "Linearizability" (1990).
    """
    found = calls(run.table("operations"), OF_REGISTERS)
    if not found.operations:
        return Found(nothing())
    deadline = monotonic() + SEARCH_SECONDS
    limits = Limits(SEARCH_CONFIGURATIONS, lambda: monotonic() > deadline)
    registers = by_key(found.operations)
    rows = [row for key, own in registers.items() for row in _of_register(str(key), own, found, limits)]
    figures = {"calls on registers": len(found.operations), "registers": len(registers)}
    return Found(table_of(rows), figures)


def _of_register(key: str, own: Sequence[Operation], found: Calls, limits: Limits) -> Iterator[Anomaly]:
    result = check_object(own, CAS_REGISTER, limits, key)
    if result.answer is not Answer.LINEARIZABLE:
        kind = "not_linearizable" if result.answer is Answer.ILLEGAL else "undecided"
        yield _anomaly(kind, key, found, result)
    changes = [one.completed for one in own if one.function != "read" and one.outcome == "ok"]
    read = [one.invoked for one in own if one.function == "read" and one.outcome == "ok"]
    if changes and not any(invoked > max(changes) for invoked in read):
        yield Anomaly(kind="unread", detail=f"register {key}")


def _anomaly(kind: str, key: str, found: Calls, result: Linearization) -> Anomaly:
    assert result.culprit is not None
    call = found.recorded[result.culprit]
    before = [
        one
        for one in found.recorded.values()
        if one.key == key and one.function != "read" and one.outcome == "ok" and (one.complete_ns or 0) < call.invoke_ns
    ]
    last = max(before, key=lambda one: one.complete_ns or 0, default=None)
    words = f"register {key}: {call.function} {call.argument or ''}".rstrip()
    words += (
        f" of process {call.process}{by_node(call)} at {seconds(call.complete_ns)} returned {call.result or 'nothing'}"
    )
    if last is not None:
        words += (
            f"; acknowledged last before it: {last.function} {last.argument} of process {last.process}{by_node(last)}"
        )
        words += f" at {seconds(last.complete_ns)}"
    return Anomaly(kind=kind, invoke_ns=call.invoke_ns, at_ns=call.complete_ns, process=call.process, detail=words)


PROPERTY: Final = Property(tables=("operations",), kinds=KINDS, run_kernel=kernel)
