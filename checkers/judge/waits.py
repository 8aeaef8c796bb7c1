"""How long nodes, the harness or all of a machine waited for a processor: time in which nobody could keep a promise about time.

A rule that says within what time something has to come about asks this for those who had to bring it about, and no others: it gives
them as much longer as one of them waited in that very time. The harness's own waits and those of the whole machine are everybody's, since what
the harness has not seen yet looks as if it had not happened. Recordings before version 8, and of nodes on other machines, hold no waits: nothing is added.
"""

from collections.abc import Collection, Iterable

import pyarrow as pa

from tribunal.results.recording import NODE
from tribunal.results.rows import Wait, typed


class Waits:
    """The waits of one run."""

    def __init__(self, rows: Iterable[Wait]) -> None:
        self._rows = tuple(rows)

    @classmethod
    def of(cls, waits: pa.Table) -> "Waits":
        """Return those of a recording's table."""
        return cls(typed(waits, Wait))

    def within(self, since_ns: int, until_ns: int, nodes: Collection[int] | None = None) -> int:
        """Return how long these nodes (None: all), the harness or the machine waited within a time, in ns: of each look who waited longest, added up over the looks.

        Of those who act one after the other only one has its turn at a time; the sum of all would be longer than the time itself on any busy machine, and
        nothing would be judged there. Of what was measured over a longer time as much counts as may lie within.
        """
        longest: dict[int, int] = {}  # by the end of the look
        for row in self._rows:
            if row.holder == NODE and nodes is not None and row.node not in nodes:
                continue
            within_ns = min(row.waited_ns, min(row.until_ns, until_ns) - max(row.since_ns, since_ns))
            longest[row.until_ns] = max(longest.get(row.until_ns, 0), within_ns)
        return sum(longest.values())
