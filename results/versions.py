"""Recordings of earlier schema versions, read as if they had been written today.

Every file says in its footer which version it has, so a copy may hold files of several. `CHANGES` is the whole history: what a version
changed in each table, against the one before. A new version adds its entry there, and the columns to `tribunal.results.recording`; an added
column reads as unknown, so it can't be one that no row may lack.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import Final

import msgspec
import pyarrow as pa

from tribunal.results.recording import ID, LOSS, OFFSET, SCHEMA_VERSION, TABLES, TEXT
from tribunal.results.spoken_orders import Spoken, named_things
from tribunal.results.unreadable import UNREADABLE

OLDEST: Final = 1
Rewrite = Callable[[pa.Table], pa.Table]


class Change(msgspec.Struct, frozen=True, kw_only=True):
    """What a version changed in one table.

    renamed:    column -> what the version before called it.
    is_new:     the version before did not have the table.
    added:      columns that the version before did not have.
    dropped:    columns that only the version before had.
    order:      the version before's columns in order, where that does not follow from the rest.
    rewritten:  makes what can be known of added columns from rows as the version before stored them; it sees all of their columns.
    restored:   makes dropped columns from rows of today, as far as the version before could say it; others are unknown.
    """

    is_new: bool = False
    renamed: Mapping[str, str] = {}
    added: frozenset[str] = frozenset()
    dropped: Mapping[str, pa.DataType] = {}
    order: tuple[str, ...] = ()
    rewritten: Rewrite | None = None
    restored: Mapping[str, Callable[[pa.Table], pa.Array]] = {}


class _Body(msgspec.Struct, frozen=True):
    """Of a metadata record's body, the topic that it names."""

    topic_id: str | None = None


class _LostFrom(msgspec.Struct, frozen=True, kw_only=True):
    """What version 1 said of a loss."""

    node: int | None
    topic: str | None
    partition: int | None
    log_offset: int | None


LOST_FROM: Final = pa.struct([("node", ID), ("topic", TEXT), ("partition", ID), ("log_offset", OFFSET)])


def _with_topic_ids(rows: pa.Table) -> pa.Table:
    """Take topic ids out of the bodies."""
    ids = [_topic_id(body) for body in rows["body"].to_pylist()]
    return rows.append_column("topic_id", pa.array(ids, pa.string()))


def _topic_id(body: str | None) -> str | None:
    """Return the topic that a body names; what is wrong with a body, says who reads it, as of one of today."""
    try:
        return None if body is None else msgspec.json.decode(body, type=_Body).topic_id
    except UNREADABLE:
        return None


def _with_losses(rows: pa.Table) -> pa.Table:
    """Say what is known of losses that had neither an end nor a time: to the log's end, some time while the fault lasted."""
    recorded = msgspec.convert(rows["lost_from_offset"].to_pylist(), list[list[_LostFrom] | None])
    losses = [None if lost is None else [_loss(one) for one in lost] for lost in recorded]
    return rows.append_column("losses", pa.array(losses, pa.list_(LOSS)))


def _where_losses_begin(rows: pa.Table) -> pa.Array:
    """Say of losses what version 1 could say."""
    lost_from = [
        None if losses is None else [
            {"node": loss["node"], "topic": loss["topic"], "partition": loss["partition"], "log_offset": loss["from_offset"]}
            for loss in losses
        ]
        for losses in rows["losses"].to_pylist()
    ]  # fmt: skip
    return pa.array(lost_from, pa.list_(LOST_FROM))


def _loss(lost: _LostFrom) -> dict[str, int | str | None]:
    place: dict[str, int | str | None] = {"node": lost.node, "topic": lost.topic, "partition": lost.partition}
    return place | {"from_offset": lost.log_offset or 0}


def _as_orders(rows: pa.Table) -> pa.Table:
    """Make one row of each thing that an order's text names."""
    recorded = rows.select(["api", "arguments"]).to_pylist()
    named = [named_things(msgspec.convert(row, Spoken)) for row in recorded]
    origin = pa.array([index for index, things in enumerate(named) for _ in things], pa.int64())
    kept = rows.drop_columns(["api", "arguments", "answer"]).take(origin)
    things = pa.Table.from_pylist(
        [msgspec.structs.asdict(thing) for own in named for thing in own],
        schema=pa.schema([(name, _plain(TABLES["admin"].fields[name])) for name in ADMIN_THING]),
    )
    for name in ADMIN_THING:
        kept = kept.append_column(name, things[name])
    return kept


def _plain(kind: pa.DataType) -> pa.DataType:
    return pa.string() if pa.types.is_dictionary(kind) else kind


ADMIN_THING: Final = ("api", "topic", "partition", "log_offset", "setting", "value", "group")
CHANGES: Final[Mapping[int, Mapping[str, Change]]] = {
    2: {
        "sends": Change(added=frozenset({"answered_by", "producer_id", "producer_epoch", "content"})),
        "polls": Change(added=frozenset({"answered_by", "leader_epoch"})),
        "reads": Change(added=frozenset({"content"})),
        "watermarks": Change(added=frozenset({"answered_by"})),
        "logs": Change(added=frozenset({"content"})),
        "metadata": Change(added=frozenset({"stamped_ns", "topic_id"}), rewritten=_with_topic_ids),
        "txns": Change(added=frozenset({"timeout_ms"})),
        "admin": Change(
            added=frozenset({"topic", "topic_id", "partition", "log_offset", "setting", "value", "group"}),
            dropped={"arguments": TEXT, "answer": TEXT},
            order=(
                *("run_id", "process", "api", "arguments", "invoke_ns", "complete_ns", "outcome", "error", "answer"),
            ),
            rewritten=_as_orders,
        ),
        "faults": Change(
            renamed={"took_effect": "bit"},
            added=frozenset({"losses"}),
            dropped={"lost_from_offset": pa.list_(LOST_FROM)},
            rewritten=_with_losses,
            restored={"lost_from_offset": _where_losses_begin},
        ),
    },
    3: {"dumps": Change(is_new=True)},
    4: {"operations": Change(is_new=True)},
    5: {"watermarks": Change(added=frozenset({"asked_ns"}))},
    6: {"commits": Change(added=frozenset({"answered_by"}))},
    7: {},  # operations.function has new words: who does not know them would pass over what they say
    8: {"waits": Change(is_new=True)},
    9: {"faults": Change(added=frozenset({"undone"}))},
    10: {"operations": Change(added=frozenset({"answered_by"}))},
    11: {},  # operations.function has the words of streams
}
UNCHANGED: Final = Change()


class StoredTable(msgspec.Struct, frozen=True):
    """A table as one version stores it.

    arrow:     its Arrow schema.
    names:     today's column -> the name that it is stored under.
    rewrites:  what makes newer columns of the stored ones, the oldest version's first.
    restored:  what makes stored columns that there are no more.
    """

    arrow: pa.Schema
    names: Mapping[str, str]
    rewrites: tuple[Rewrite, ...]
    restored: Mapping[str, Callable[[pa.Table], pa.Array]]

    def stored(self, columns: Sequence[str]) -> list[str]:
        """Return the names to read for these columns of today; those that the version does not have are left out."""
        if self.rewrites:
            return list(self.arrow.names)
        return [self.names[column] for column in columns if column in self.names]

    def as_today(self, rows: pa.Table, schema: pa.Schema) -> pa.Table:
        """Return what was read as columns of today, in the schema's order and types."""
        if rows.schema.equals(schema):  # as it is written today
            return rows.replace_schema_metadata(None)
        for rewrite in self.rewrites:
            rows = rewrite(rows)
        columns = [self._column(rows, field) for field in schema]
        return pa.Table.from_arrays(columns, names=schema.names).cast(schema)

    def as_stored(self, rows: pa.Table) -> pa.Table:
        """Return whole rows of today as this version would have stored them."""
        today = {then: column for column, then in self.names.items()}
        columns = [
            rows[today[field.name]] if field.name in today
            else self.restored[field.name](rows) if field.name in self.restored
            else pa.nulls(rows.num_rows, field.type)
            for field in self.arrow
        ]  # fmt: skip
        return pa.Table.from_arrays(columns, schema=self.arrow)

    def _column(self, rows: pa.Table, field: pa.Field) -> pa.ChunkedArray | pa.Array:
        name = self.names.get(field.name, field.name)
        return rows[name] if name in rows.column_names else pa.nulls(rows.num_rows, field.type)


@cache
def stored_table(name: str, version: int) -> StoredTable:
    """Return how a version stores a table."""
    fields = {field.name: field.type for field in TABLES[name].arrow}
    names = {column: column for column in fields}
    rewrites: list[Rewrite] = []
    restored: dict[str, Callable[[pa.Table], pa.Array]] = {}
    for newer in range(SCHEMA_VERSION, version, -1):
        change = CHANGES[newer].get(name, UNCHANGED)
        names = {today: change.renamed.get(then, then) for today, then in names.items() if then not in change.added}
        fields = {change.renamed.get(then, then): kind for then, kind in fields.items() if then not in change.added}
        fields |= change.dropped
        fields = {column: fields[column] for column in change.order or fields}
        rewrites += [change.rewritten] if change.rewritten is not None else []
        restored |= change.restored
    return StoredTable(pa.schema(list(fields.items())), names, tuple(reversed(rewrites)), restored)


@cache
def tables_of(version: int) -> tuple[str, ...]:
    """Return the tables that a version has."""
    newer = range(version + 1, SCHEMA_VERSION + 1)
    return tuple(name for name in TABLES if not any(CHANGES[one].get(name, UNCHANGED).is_new for one in newer))


def is_known(version: int | str | None) -> bool:
    """Return whether a manifest's version is one that can be read."""
    return isinstance(version, int) and OLDEST <= version <= SCHEMA_VERSION
