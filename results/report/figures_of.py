"""Figures of properties as tables: a checker of anybody makes them as JSON, and a reader gets no JSON to see."""

from collections.abc import Iterator, Mapping, Sequence

import msgspec

from tribunal.results.digits import significant
from tribunal.results.verdict import Figures

MOST_ROWS = 60
NS = "_ns"


class FigureTable(msgspec.Struct, frozen=True, kw_only=True):
    """A table of one property: columns and rows as text, and how many more rows there are."""

    title: str
    columns: list[str]
    rows: list[list[str]]
    more: int


def figure_tables(figures: Mapping[str, Figures]) -> Iterator[FigureTable]:
    """Yield a table for each list of rows, and one for all that is a single figure."""
    for name, own in figures.items():
        title = name.replace("_", " ")
        single = []
        for key, value in own.items():
            rows = _rows(value)
            if rows:
                yield _table(f"{title}: {key.replace('_', ' ')}", rows)
            elif value is False or value not in (None, 0, "", {}, []):
                single.append([key.removesuffix(NS).replace("_", " "), _text(key, value)])
        if single:
            yield FigureTable(title=title, columns=["figure", "value"], rows=single, more=0)


def _rows(value: object) -> list[Mapping[str, object]]:
    return value if isinstance(value, list) and all(isinstance(one, dict) for one in value) else []


def _table(title: str, rows: Sequence[Mapping[str, object]]) -> FigureTable:
    columns = list(dict.fromkeys(key for row in rows for key in row))
    shown = [[_text(key, row.get(key)) for key in columns] for row in rows[:MOST_ROWS]]
    return FigureTable(
        title=title,
        columns=[key.removesuffix(NS).replace("_", " ") for key in columns],
        rows=shown,
        more=len(rows) - len(shown),
    )


def _text(key: str, value: object) -> str:
    match value:
        case None:
            return ""
        case bool():
            return "yes" if value else "no"
        case int() if key.endswith(NS):
            return f"{value / 1e9:,.3f} s"
        case int() if key == "acks":
            return "all" if value == -1 else str(value)
        case int():
            return f"{value:,}"
        case float():
            return significant(value, 4)
        case list():
            return ", ".join(_text(key, one) for one in value)
        case dict():
            return ", ".join(f"{name} {_text(str(name), one)}" for name, one in value.items())
        case _:
            return str(value)
