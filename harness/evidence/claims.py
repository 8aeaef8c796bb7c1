"""What a campaign may claim to have checked: a property counts where its inputs had rows, in runs that have an answer.

A property without one row in any run was not checked, however many runs there were: it is listed as not judged.
"""

from collections.abc import Sequence
from pathlib import Path

import msgspec

from tribunal.checkers.api import Property, properties
from tribunal.checkers.judge.looked_at import had_rows
from tribunal.results.report.campaign import Claim
from tribunal.results.unreadable import UNREADABLE
from tribunal.results.verdict import RunVerdict, answered, load


class _Rows(msgspec.Struct, frozen=True):
    rows: int


class _Tables(msgspec.Struct, frozen=True):
    """What of a manifest says how much there was."""

    tables: dict[str, _Rows] = {}
    mutants: list[str] = []


def claims_of(run_dirs: Sequence[Path]) -> list[Claim]:
    """Return each property with the runs and cells that it was judged in; 0 runs: it was not judged at all."""
    runs = [(load(folder / "verdict.json"), _tables(folder)) for folder in run_dirs]
    counted = [(verdict, made) for verdict, made in runs if answered({verdict.verdict.value: 1}) and not made.mutants]
    return [_claim(one, counted, len(properties())) for one in properties().values()]


def _claim(one: Property, runs: Sequence[tuple[RunVerdict, _Tables]], count: int) -> Claim:
    own = [verdict for verdict, made in runs if _had_rows(one, verdict, made)]
    partitions = [verdict.coverage.cells // count for verdict in own]
    lacking = [
        places if any(gap.topic is None for gap in gaps) else len({(gap.topic, gap.partition) for gap in gaps})
        for verdict, places in zip(own, partitions, strict=True)
        for gaps in [[gap for gap in verdict.coverage.missing if one.name in gap.properties]]
    ]
    return Claim(
        name=one.name, about=one.about.partition("\n")[0], runs=len(own), cells=sum(partitions), judged=sum(partitions) - sum(lacking)
    )  # fmt: skip


def _had_rows(one: Property, verdict: RunVerdict, made: _Tables) -> bool:
    rows = {name: facts.rows for name, facts in made.tables.items()}
    return had_rows(one, rows, verdict.counted)


def _tables(run_dir: Path) -> _Tables:
    try:
        return msgspec.json.decode((run_dir / "manifest.json").read_bytes(), type=_Tables)
    except (OSError, *UNREADABLE):
        return _Tables()
