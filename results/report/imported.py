"""What is said of a history that another tool recorded: how large it is, and the operations that a finding names."""

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Final

import msgspec

from tribunal.results.edn import Value
from tribunal.results.history import Event, Origin
from tribunal.results.verdict import Finding

NEMESIS: Final = "nemesis"  # what Jepsen calls the process that injects faults
MOST_NAMED: Final = 24
MOST_TEXT: Final = 200


class Named(msgspec.Struct, frozen=True, kw_only=True):
    """One operation that a finding names, as the history has it.

    number:   as findings call it: where its end stands among the events, or its beginning where nobody saw the end.
    outcome:  ok, fail, info; open where nobody saw an end.
    start_ns, end_ns:  where the history says the time.
    steps:    what it did, in words.
    """

    number: int
    process: str
    outcome: str
    start_ns: int | None
    end_ns: int | None
    steps: str

    @property
    def name(self) -> str:
        """What findings call it."""
        return f"T{self.number}"


class Imported(msgspec.Struct, frozen=True, kw_only=True):
    """A history that another tool recorded: operations that began and how they ended, and nothing of a cluster.

    named:  the operations of its findings, in order, at most `MOST_NAMED`.
    """

    source: str
    form: str
    operations: int
    processes: int
    endings: dict[str, int]
    named: list[Named] = []


def imported_of(events: Sequence[Event], origin: Origin, findings: Iterable[Finding]) -> Imported:
    """Return what the report says of a history."""
    own = [event for event in events if event.get("process", 0) != NEMESIS]
    kinds = Counter(str(event["type"]) for event in own)
    return Imported(
        source=origin.source, form=origin.format, operations=kinds.pop("invoke", 0),
        processes=len({str(event.get("process", 0)) for event in own}), endings=dict(sorted(kinds.items())),
        named=named(events, findings)[:MOST_NAMED],
    )  # fmt: skip


def named(events: Sequence[Event], findings: Iterable[Finding]) -> list[Named]:
    """Return the operations that findings name, in order."""
    numbers = {number for one in findings for number in one.detail.operations or () if number < len(events)}
    began: dict[str, int] = {}
    found = []
    for number, event in enumerate(events):
        process = str(event.get("process", 0))
        if event["type"] == "invoke":
            began[process] = number
        elif number in numbers:
            found.append(_named(number, event, events[began.get(process, number)]))
            numbers.discard(number)
    found += [_named(number, None, events[number]) for number in numbers]
    return sorted(found, key=lambda one: one.number)


def _named(number: int, end: Event | None, start: Event) -> Named:
    last = start if end is None else end
    return Named(
        number=number,
        process=str(last.get("process", 0)),
        outcome="open" if end is None else str(end["type"]),
        start_ns=_time(start),
        end_ns=None if end is None else _time(end),
        steps=_steps(last, start),
    )


def _time(event: Event) -> int | None:
    at = event.get("time")
    return at if isinstance(at, int) and not isinstance(at, bool) else None


def _steps(last: Event, start: Event) -> str:
    for event in (last, start):
        steps = event.get("mops")
        if isinstance(steps, list):
            return _short(", ".join(_step(step) for step in steps))
    words = [
        str(start.get("f", "")),
        *(_plain(start[name]) for name in ("key", "value") if start.get(name) is not None),
    ]
    result = "" if last.get("value") is None else f" -> {_plain(last['value'])}"
    return _short(" ".join(word for word in words if word) + result)


def _step(step: Value) -> str:
    return " ".join(word if isinstance(word, str) else _plain(word) for word in step) if isinstance(step, list) else ""


def _plain(value: Value) -> str:
    return "nothing" if value is None else msgspec.json.encode(value).decode()


def _short(text: str) -> str:
    return text if len(text) <= MOST_TEXT else f"{text[:MOST_TEXT]} …"
