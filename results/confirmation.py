"""How often a run's plan showed its finding on real nodes, as `tribunal confirm` keeps it beside the run: k of n, for each kind of cluster."""

from pathlib import Path
from typing import Final

import msgspec

from tribunal.results.intervals import interval
from tribunal.results.unreadable import UNREADABLE
from tribunal.results.whole_files import put_json

FILE: Final = "confirm.json"


class Rate(msgspec.Struct, frozen=True, kw_only=True):
    """So many of these runs on this kind of cluster showed what was sought; nothing sought: any violation."""

    cluster: str
    sought: tuple[str, ...]
    runs: int
    shown: int

    @property
    def interval(self) -> tuple[float, float]:
        """The exact 95 % interval of that share."""
        return interval(self.shown, self.runs)


def confirmed_rates(run_dir: Path) -> list[Rate]:
    """Return what is known of a run, kind by kind; nothing where nobody tried, or what is there cannot be read."""
    try:
        found = msgspec.json.decode((run_dir / FILE).read_bytes(), type=list[Rate])
    except (OSError, *UNREADABLE):
        return []
    return [rate for rate in found if 0 <= rate.shown <= rate.runs and rate.runs]


def keep(rate: Rate, run_dir: Path) -> Path:
    """Write a rate beside a run, in the place of an earlier one of its kind of cluster; return the file."""
    others = [one for one in confirmed_rates(run_dir) if one.cluster != rate.cluster]
    return put_json(run_dir / FILE, sorted([*others, rate], key=lambda one: one.cluster))
