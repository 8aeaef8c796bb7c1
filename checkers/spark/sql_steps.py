"""The named steps of SQL texts, each computed once.

Spark inlines a common table expression wherever it is named, also within another one, so the plan of a text whose steps build on
each other grows with every level, and so does the time to analyse it: of a recording of 20,000 rows that was nearly all of it. So a
text is taken apart into its steps. A step that is named more than once, in one text or in several with the same step, is kept as rows;
the others are views. What each step says stays as it is written.
"""

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

TOKEN: Final = re.compile(r"""'(?:[^']|'')*'|"[^"]*"|`[^`]*`|--[^\n]*|/\*.*?\*/|\w+|\s+|.""", re.DOTALL)
NAMED_AFTER: Final = frozenset({"FROM", "JOIN"})


class Token(NamedTuple):
    """A word or sign, and where it begins."""

    text: str
    start: int


class Text(NamedTuple):
    """A SQL text: its steps by name, in their order, and the query that uses them."""

    steps: dict[str, str]
    query: str


def _tokens(sql: str) -> list[Token]:
    found = (Token(match.group(), match.start()) for match in TOKEN.finditer(sql))
    return [token for token in found if not token.text.isspace() and not token.text.startswith(("--", "/*"))]


def text_of(sql: str) -> Text:
    """Take a text apart: `WITH name AS (...), ... SELECT ...`; one of another form is a query without steps."""
    tokens = [*_tokens(sql), Token("", len(sql))]
    whole = Text({}, sql)
    if tokens[0].text.upper() != "WITH":
        return whole
    steps: dict[str, str] = {}
    at = 1
    while at + 2 < len(tokens):
        name, then, opening = (token.text for token in tokens[at : at + 3])
        if (then.upper(), opening) != ("AS", "(") or not name.isidentifier() or name in steps:
            return whole
        first = at = at + 3
        depth = 1
        while depth and at < len(tokens):
            depth += {"(": 1, ")": -1}.get(tokens[at].text, 0)
            at += 1
        if depth:
            return whole
        steps[name] = sql[tokens[first].start : tokens[at - 1].start]
        if tokens[at].text != ",":
            return Text(steps, sql[tokens[at].start :])
        at += 1
    return whole


def named(sql: str) -> Iterator[str]:
    """Give the names that stand behind FROM or JOIN, as often as they do."""
    before = ""
    for token in _tokens(sql):
        if before.upper() in NAMED_AFTER and token.text.isidentifier():
            yield token.text
        before = token.text


class _Query(NamedTuple):
    """A query and the steps that it names, by their numbers: equal ones are one."""

    sql: str
    uses: tuple[tuple[str, int], ...]


class Steps:
    """The queries of several texts over the same views, with their common steps."""

    def __init__(self, texts: Iterable[str]) -> None:
        self._numbers: dict[_Query, int] = {}
        self._counts: Counter[int] = Counter()
        self.queries = [self._numbered(text_of(sql)) for sql in texts]

    def _numbered(self, text: Text) -> int:
        scope: dict[str, int] = {}
        for name, sql in text.steps.items():
            scope[name] = self._number(sql, scope)
        return self._number(text.query, scope)

    def _number(self, sql: str, scope: Mapping[str, int]) -> int:
        # All words count, not only those behind FROM: a step that is missing would be an error, one too many is none.
        words = {token.text for token in _tokens(sql)}
        query = _Query(sql, tuple((name, number) for name, number in scope.items() if name in words))
        if query not in self._numbers:
            self._numbers[query] = len(self._numbers)
            self._counts.update(scope[name] for name in named(sql) if name in scope)
        return self._numbers[query]

    def often(self) -> frozenset[int]:
        """Return the steps that are named more than once."""
        return frozenset(number for number, count in self._counts.items() if count > 1)

    def frames(
        self, spark: "SparkSession", views: Mapping[str, "DataFrame"], kept: "Callable[[DataFrame], DataFrame]"
    ) -> "Sequence[DataFrame]":
        """Return the answers of all texts, in their order.

        views:  what the texts are about; no view of the session has one of these names, or one of a step.
        kept:   gives a frame of the same rows without the plan that made them.
        """
        scope = _Scope(spark, views)
        often = self.often()
        made: dict[int, DataFrame] = {}
        try:
            for query, number in self._numbers.items():  # each behind those that it names
                scope.bind({name: made[used] for name, used in query.uses})
                frame = spark.sql(query.sql)
                made[number] = kept(frame) if number in often else frame
        finally:
            scope.clear()
        return [made[number] for number in self.queries]


class _Scope:
    """The views that names stand for at present. A step may have the name of a view that others ask for."""

    def __init__(self, spark: "SparkSession", views: Mapping[str, "DataFrame"]) -> None:
        self._spark, self._views = spark, views
        self._bound: dict[str, DataFrame] = {}

    def bind(self, steps: "Mapping[str, DataFrame]") -> None:
        """Let names stand for the views, and for these steps."""
        for name, frame in {**self._views, **steps}.items():
            if self._bound.get(name) is not frame:
                frame.createOrReplaceTempView(name)
                self._bound[name] = frame

    def clear(self) -> None:
        """Take all names away."""
        for name in self._bound:
            self._spark.catalog.dropTempView(name)
        self._bound = {}
