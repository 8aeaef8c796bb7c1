"""Recordings of earlier schema versions, read as if they had been written today.

Every file says in its footer which version it has, so a copy may hold files of several. `CHANGES` is the whole history: what a version
changed in each table, against the one before. A new version adds its entry there, and the columns to `tribunal.results.recording`; an added
column reads as unknown, so it can't be one that no row may lack.
"""

from collections.abc import Mapping, Sequence
from functools import cache
from typing import Final

import msgspec
import pyarrow as pa

from tribunal.results.recording import SCHEMA_VERSION, TABLES

OLDEST: Final = 1


class Change(msgspec.Struct, frozen=True, kw_only=True):
    """What a version changed in one table.

    renamed:  column -> what the version before called it.
    added:    columns that the version before did not have.
    """

    renamed: Mapping[str, str] = {}
    added: frozenset[str] = frozenset()


CHANGES: Final[Mapping[int, Mapping[str, Change]]] = {
    2: {"faults": Change(renamed={"took_effect": "bit"})},
}
UNCHANGED: Final = Change()


class StoredTable(msgspec.Struct, frozen=True):
    """A table as one version stores it: its Arrow schema, and today's column -> the name that it is stored under."""

    arrow: pa.Schema
    names: Mapping[str, str]

    def stored(self, columns: Sequence[str]) -> list[str]:
        """Return the names to read for these columns of today; those that the version does not have are left out."""
        return [self.names[column] for column in columns if column in self.names]

    def as_today(self, rows: pa.Table, schema: pa.Schema) -> pa.Table:
        """Return what was read as columns of today, in the schema's order and types."""
        if rows.schema.equals(schema):  # as it is written today
            return rows.replace_schema_metadata(None)
        columns = [
            rows[self.names[field.name]] if field.name in self.names else pa.nulls(rows.num_rows, field.type)
            for field in schema
        ]
        return pa.Table.from_arrays(columns, names=schema.names).cast(schema)


@cache
def stored_table(name: str, version: int) -> StoredTable:
    """Return how a version stores a table."""
    table = TABLES[name].arrow
    names = {column: column for column in table.names}
    for newer in range(SCHEMA_VERSION, version, -1):
        change = CHANGES[newer].get(name, UNCHANGED)
        names = {today: change.renamed.get(then, then) for today, then in names.items() if then not in change.added}
    return StoredTable(pa.schema([table.field(today).with_name(then) for today, then in names.items()]), names)


def is_known(version: int | str | None) -> bool:
    """Return whether a manifest's version is one that can be read."""
    return isinstance(version, int) and OLDEST <= version <= SCHEMA_VERSION
