"""Imported histories, judged: which kind of object they are of is found out from their operations.

Transactions go to `graphs`, single objects to `registers`; the answer has the form of every other finding.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from time import monotonic
from typing import Final

from tribunal.checkers.graphs import list_append, rw_register, send_poll
from tribunal.checkers.graphs.findings import Findings, Witness
from tribunal.checkers.graphs.models import ruled_out
from tribunal.checkers.graphs.operations import HistoryError, Operation, paired
from tribunal.checkers.judge.tables import Figures, FoundIn, Place, TableRow
from tribunal.checkers.registers import offset_order
from tribunal.checkers.registers.folds import FOLDS
from tribunal.checkers.registers.linearizability import Answer, Limits, check
from tribunal.checkers.registers.models import MODELS
from tribunal.results.history import load
from tribunal.results.recording import DamagedRecording
from tribunal.results.verdict import Detail, Finding

LISTS: Final = "list-append"
REGISTERS: Final = "rw-register"
MESSAGES: Final = "kafka"
KNOWN: Final = (LISTS, REGISTERS, MESSAGES, *sorted(MODELS), *sorted(FOLDS))
OPTIONS: Final = ("writes_follow_reads", "sequential_keys", "linearizable_keys")
MAY_BE_ORDERED_BY_OFFSETS: Final = frozenset({"register", "cas-register"})
SEARCH_SECONDS: Final = 60.0
SEARCH_CONFIGURATIONS: Final = 500_000  # about 200 bytes each


def judge_history(folder: Path) -> Iterator[TableRow]:
    """Judge one imported history. Raises DamagedRecording."""
    events, origin = load(folder)
    try:
        operations = paired(events)
        model = origin.model or model_of(operations)
        found = list(_judged(operations, model, origin.options))
    except HistoryError as problem:
        raise DamagedRecording("", None, str(problem)) from problem
    except (TypeError, KeyError, ValueError, IndexError, AttributeError, OverflowError, RecursionError) as problem:
        # What others wrote may be of any shape: an operation that its model does not know.
        reason = f"an operation that the model does not know ({type(problem).__name__}: {str(problem)[:80]})"
        raise DamagedRecording("", None, reason) from problem
    yield from (FoundIn(str(folder), finding) for finding in found)
    yield Figures(Place(str(folder)), model, {"operations": len(operations), f"history of {model}": 1})


def model_of(operations: Sequence[Operation]) -> str:
    """Say what a history is of, by its steps. Raises HistoryError when no model has them."""
    functions = {step[0] for operation in operations for step in operation.steps}
    for model, words in _FUNCTIONS_OF:
        if functions & words:
            return model
    raise HistoryError(f"no known operations ({', '.join(sorted(map(str, functions)))[:80]}); name the model")


_FUNCTIONS_OF: Final = (
    (MESSAGES, {"send", "poll"}),
    (LISTS, {"append"} ),
    (REGISTERS, {"w", "r"}),
    ("mutex", {"acquire", "release"}),
    ("kv-append", {"get", "put"}),
    ("cas-register", {"read", "write", "cas"}),
)  # fmt: skip


def _judged(operations: Sequence[Operation], model: str, options: Mapping[str, bool]) -> Iterator[Finding]:
    if model in MODELS:
        yield from _linearized(operations, model)
        return
    found = _CHECKS[model](operations, options) if model in _CHECKS else FOLDS[model](operations)
    harmless = found.anomalies - _forbidden(found, model)
    for name, witnesses in found.witnesses.items():
        severity = "note" if name in harmless else "violation"
        for place, witness in enumerate(witnesses):
            count = 1 if place else found.counts[name] - len(witnesses) + 1
            yield _finding(model, name, severity, count, witness)
    for name in dict.fromkeys(found.undecided):
        yield _finding(model, "undecided", "unjudged", 1, Witness((), "the search took more than its budget"), of=name)


def _forbidden(found: Findings, model: str) -> set[str]:
    return send_poll.invalid(found, ww=True, subscribe=False) if model == MESSAGES else found.anomalies


def _registers(operations: Sequence[Operation], options: Mapping[str, bool]) -> Findings:
    if unknown := sorted(set(options) - set(OPTIONS)):
        raise HistoryError(f"unknown option {unknown[0]!r}; there are {', '.join(OPTIONS)}")
    return rw_register.check(
        operations,
        writes_follow_reads=options.get("writes_follow_reads", False),
        sequential_keys=options.get("sequential_keys", False),
        linearizable_keys=options.get("linearizable_keys", False),
    )


_CHECKS: Final[dict[str, Callable[[Sequence[Operation], Mapping[str, bool]], Findings]]] = {
    LISTS: lambda operations, _: list_append.check(operations),
    REGISTERS: _registers,
    MESSAGES: lambda operations, _: send_poll.check(operations),
}


def _linearized(operations: Sequence[Operation], model: str) -> Iterator[Finding]:
    if model in MAY_BE_ORDERED_BY_OFFSETS and offset_order.is_ordered_by_offsets(operations):
        result = offset_order.check(operations)
    else:
        deadline = monotonic() + SEARCH_SECONDS
        result = check(operations, MODELS[model], Limits(SEARCH_CONFIGURATIONS, lambda: monotonic() > deadline))
    if result.answer is Answer.LINEARIZABLE:
        return
    severity = "violation" if result.answer is Answer.ILLEGAL else "unjudged"
    words = f"no order explains operation {result.culprit}; all before {result.ordered_until} fit one"
    if result.answer is Answer.UNKNOWN:
        words = f"the search reached its limit at operation {result.culprit}; all before {result.ordered_until} fit one order"
    yield _finding(model, "not-linearizable", severity, 1, Witness((result.culprit or 0,), words))


def _finding(model: str, kind: str, severity: str, count: int, witness: Witness, *, of: str | None = None) -> Finding:
    """Return a finding; `of` is the anomaly that was searched for, if that is not its kind."""
    weakest, _ = ruled_out([of or kind])
    words = f"{witness.words}; rules out {', '.join(weakest)}" if weakest else witness.words
    detail = Detail(operations=witness.operations, edges=witness.edges or None, rules_out=tuple(weakest) or None)
    return Finding(property_name=model, kind=kind, severity=severity, count=count, explanation=words, detail=detail)
