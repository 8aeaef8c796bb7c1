"""The smallest circle of transactions that no order explains: who had to come before whom, and why.

A transaction is a box on a circle, an edge an arrow with a number, and each number is a sentence below the drawing: without it the
drawing says nothing, without the drawing the sentences still do.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Final

import msgspec

from tribunal.results.history import Event
from tribunal.results.report.imported import named
from tribunal.results.report.measures import WIDTH
from tribunal.results.rows import ObjectCall, Transaction, typed
from tribunal.results.store import Recording
from tribunal.results.verdict import Finding, TransactionEdge
from tribunal.results.words import of_edge

HEIGHT: Final = 320
RADIUS: Final = 112
SIZE: Final = (150, 34)
MOST: Final = 12
ON_OBJECTS: Final = "object_transactions"  # the property whose edges name rows of `operations`


class Box(msgspec.Struct, frozen=True):
    """What is known of a transaction: the words in its box, and those for who points at it."""

    label: str
    title: str


class Vertex(msgspec.Struct, frozen=True, kw_only=True):
    """One transaction."""

    name: str
    x: float
    y: float
    label: str
    title: str


class Arrow(msgspec.Struct, frozen=True, kw_only=True):
    """One edge: from a box's border to the next one's. kind: ww, wr, rw, process, realtime."""

    number: int
    kind: str
    x: float
    y: float
    to_x: float
    to_y: float
    text_x: float
    text_y: float
    sentence: str


class Cycle(msgspec.Struct, frozen=True):
    """The drawing and its sentences."""

    kind: str
    vertices: list[Vertex]
    arrows: list[Arrow]
    remark: str


def cycle(recording: Recording, findings: Sequence[Finding]) -> Cycle | None:
    """Return the smallest circle among a run's violations, None where there is none."""
    smallest = _smallest(findings)
    if smallest is None:
        return None
    of_rows = _of_calls if smallest.property_name == ON_OBJECTS else _of_transactions
    return _drawn(smallest, of_rows(recording, _sources(smallest)))


def cycle_of_history(events: Sequence[Event], findings: Sequence[Finding]) -> Cycle | None:
    """Return the smallest circle among the violations of an imported history, None where there is none."""
    smallest = _smallest(findings)
    if smallest is None:
        return None
    return _drawn(
        smallest, {one.number: _box(one.process, one.outcome, [one.steps]) for one in named(events, [smallest])}
    )


def _smallest(findings: Sequence[Finding]) -> Finding | None:
    candidates = [one for one in findings if one.severity == "violation" and one.detail.edges]
    smallest = min(candidates, key=lambda one: (len(one.detail.edges or ()), one.kind), default=None)
    return None if smallest is None or len(_sources(smallest)) > MOST else smallest


def _sources(finding: Finding) -> list[int]:
    return [edge.source for edge in finding.detail.edges or ()]


def _of_calls(recording: Recording, rows: Sequence[int]) -> dict[int, Box]:
    table = recording.table("operations")
    found = {row: typed(table.slice(row, 1), ObjectCall)[0] for row in rows if row < table.num_rows}
    return {
        number: _box(str(call.process), call.outcome, [f"{call.function} {call.result or call.argument or ''}"])
        for number, call in found.items()
    }


def _of_transactions(recording: Recording, rows: Sequence[int]) -> dict[int, Box]:
    table = recording.table("txns")
    found = {row: typed(table.slice(row, 1), Transaction)[0] for row in rows if row < table.num_rows}
    return {
        number: _box(
            str(row.process),
            row.outcome,
            [f"{step.kind} {step.topic}-{step.partition} {step.value}" for step in row.operations or ()],
        )
        for number, row in found.items()
    }


def _box(process: str, outcome: str, steps: Sequence[str]) -> Box:
    more = f" and {len(steps) - 8} more" if len(steps) > 8 else ""
    return Box(f"process {process}, {outcome}", f" of process {process}, {outcome}: {', '.join(steps[:8])}{more}")


def _drawn(finding: Finding, known: Mapping[int, Box]) -> Cycle:
    edges = finding.detail.edges or ()
    remark = f"rules out {', '.join(finding.detail.rules_out)}" if finding.detail.rules_out else ""
    count = len(edges)
    # Wider than high: the boxes are.
    at = {
        edge.source: (
            WIDTH / 2 + 3.2 * RADIUS * math.sin(2 * math.pi * place / count),
            HEIGHT / 2 - RADIUS * math.cos(2 * math.pi * place / count),
        )
        for place, edge in enumerate(edges)
    }
    vertices = [_vertex(number, x, y, known.get(number)) for number, (x, y) in at.items()]
    arrows = [_arrow(place + 1, at[edge.source], at[edge.target], edge, count) for place, edge in enumerate(edges)]
    return Cycle(finding.kind, vertices, arrows, remark)


def _vertex(number: int, x: float, y: float, box: Box | None) -> Vertex:
    label, title = ("", "") if box is None else (box.label, box.title)
    return Vertex(name=f"T{number}", x=round(x, 1), y=round(y, 1), label=label, title=f"T{number}{title}")


def _arrow(
    number: int, start: tuple[float, float], end: tuple[float, float], edge: TransactionEdge, count: int
) -> Arrow:
    """An arrow from border to border; two transactions alone are joined by two beside each other."""
    (x, y), (to_x, to_y) = start, end
    aside = 9.0 if count == 2 else 0.0
    length = math.hypot(to_x - x, to_y - y) or 1.0
    # To the arrow's own left: of two that go opposite ways these are two sides.
    side_x, side_y = aside * (to_y - y) / length, aside * (x - to_x) / length
    x, y, to_x, to_y = x + side_x, y + side_y, to_x + side_x, to_y + side_y
    from_x, from_y = _border((x, y), (to_x, to_y))
    tip_x, tip_y = _border((to_x, to_y), (x, y))
    return Arrow(
        number=number, kind=edge.kind.value, x=round(from_x, 1), y=round(from_y, 1), to_x=round(tip_x, 1), to_y=round(tip_y, 1),
        text_x=round((from_x + tip_x) / 2 + 2.2 * side_x, 1), text_y=round((from_y + tip_y) / 2 + 2.2 * side_y, 1), sentence=of_edge(edge),
    )  # fmt: skip


def _border(box: tuple[float, float], towards: tuple[float, float]) -> tuple[float, float]:
    """Return where the line from a box's middle leaves it, with a little air."""
    dx, dy = towards[0] - box[0], towards[1] - box[1]
    scale = min((SIZE[0] / 2 + 6) / abs(dx) if dx else math.inf, (SIZE[1] / 2 + 6) / abs(dy) if dy else math.inf)
    return box[0] + dx * scale, box[1] + dy * scale
