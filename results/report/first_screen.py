"""What a reader sees first: what happened in plain words, how large the test was, the shortest story, why to believe it.

Everything else of the page explains these lines.
"""

from itertools import pairwise
from typing import Final

import msgspec

from tribunal.results.confirmation import Rate
from tribunal.results.manifest import Setting
from tribunal.results.plain_words import acknowledged, sentences
from tribunal.results.report.imported import Imported
from tribunal.results.report.model import Page
from tribunal.results.report.story import Step
from tribunal.results.sensitivity import measured, total
from tribunal.results.verdict import Verdict, how_much

MOST_STEPS = 6
ELR = "eligible.leader.replicas.enable"


class FirstScreen(msgspec.Struct, frozen=True, kw_only=True):
    """The first screen.

    said:     what happened, the most important sentence first.
    rates:    how often it was shown on real nodes, a line a kind of cluster.
    scale:    how large the test was: name and figure.
    shortest: the few steps that explain the finding; empty where there is none.
    believe:  why a run without a finding should be believed.
    """

    said: list[str]
    rates: list[str]
    scale: list[tuple[str, str]]
    shortest: list[Step]
    believe: list[str]


def first_screen(content: Page) -> FirstScreen:
    """Return a page's first screen."""
    return FirstScreen(
        said=sentences(content.verdict),
        rates=[_rate(rate) for rate in content.confirmed],
        scale=_scale(content),
        shortest=[] if content.story is None else content.story.shortest[:MOST_STEPS],
        believe=_believe(content) if content.verdict.verdict in (Verdict.PASS, Verdict.PERMITTED) else [],
    )


def _rate(rate: Rate) -> str:
    low, high = rate.interval
    what = f"show {', '.join(rate.sought)}" if rate.sought else "show a violation"
    return f"{rate.shown} of {rate.runs} runs of its plan on {rate.cluster} {what} (95 %: {low:.0%} to {high:.0%})"


def _scale(content: Page) -> list[tuple[str, str]]:
    if content.imported is not None:
        return _scale_of_history(content.imported)
    if content.manifest is None:
        return []
    manifest = content.manifest
    settings = manifest.settings or {}
    rows = {name: facts.rows for name, facts in manifest.tables.items()}
    named: dict[str, str] = {}
    if manifest.mutants:
        named["known bug switched on"] = ", ".join(manifest.mutants)
    if manifest.runs_described_system:  # each of a log's is a broker and a controller
        named["cluster"] = f"{len(content.brokers)} nodes"
    elif content.nodes:
        named["cluster"] = f"{len(content.brokers)} brokers, {len(content.controllers)} {content.bosses}"
    named |= {
        "replication factor": _setting(settings.get("default.replication.factor")),
        "min ISR": _setting(settings.get("min.insync.replicas")),
        "ELR": {"True": "on", "False": "off"}.get(_setting(settings.get(ELR)), _setting(settings.get(ELR))),
        "partitions": f"{content.partition_count:,}" if content.partition_count else "",
        "operations": ", ".join(
            f"{rows[table]:,} {word}"
            for table, word in (
                ("sends", "sends"),
                ("polls", "polls"),
                ("txns", "transactions"),
                ("operations", "calls"),
            )
            if rows.get(table)
        ),
        "faults that took effect / planned": _faults(content),
        "time": f"{content.end_ns / 1e9:.1f} s" if rows else "",
        "where": manifest.cluster or "",
        "seed": "" if manifest.seed is None else str(manifest.seed),
    }
    return [(name, text) for name, text in named.items() if text]


def _scale_of_history(history: Imported) -> list[tuple[str, str]]:
    endings = ", ".join(f"{count:,} {word}" for word, count in history.endings.items())
    return [
        ("imported history", history.source),
        ("format", history.form),
        ("operations", f"{history.operations:,} ({endings})" if endings else f"{history.operations:,}"),
        ("processes", f"{history.processes:,}"),
        ("cluster", "none ran here"),
    ]


def _setting(value: Setting) -> str:
    return "" if value is None else str(value)


def _faults(content: Page) -> str:
    faults = content.verdict.test.faults
    return f"{sum(one.took_effect is True for one in faults)} / {len(faults)}" if faults else ""


def _believe(content: Page) -> list[str]:
    """Say what was there that could have gone wrong, and how it was looked at."""
    verdict = content.verdict
    if content.imported is not None:
        return [
            f"The order and the values of {content.imported.operations:,} operations were judged; no cluster ran here.",
            "Which faults there were, and whether they took effect, only those who recorded the history can say.",
        ]
    faults = verdict.test.faults
    effective = sum(one.took_effect is True for one in faults)
    healed = sum(one.healed is True for one in faults)
    found = []
    if faults:
        kinds = sorted({one.kind for one in faults})
        found.append(
            f"{effective} of {len(faults)} faults provably took effect and {healed} provably healed: {', '.join(kinds)}."
        )
    else:
        found.append("No fault was injected: this run says nothing about faults.")
    elections = sum(
        before.state.leader_epoch != after.state.leader_epoch
        for changes in content.partitions.values()
        for before, after in pairwise(changes)
    )
    during = sum(row.ok for row in verdict.test.load if row.phase == "faults")
    if content.is_of_a_system:
        found.append(f"{during:,} calls were answered while faults went on.")
    else:
        drawn = sum(bool(changes) for changes in content.partitions.values())
        where = (
            "a partition" if content.partition_count <= drawn else f"one of the {drawn} partitions that are drawn here"
        )
        changes_of_leaders = f"{elections} times {where} got another leader or leader epoch; " if drawn else ""
        found.append(f"{changes_of_leaders}{during:,} records were acknowledged while faults went on.")
    if count := acknowledged(verdict):
        read = verdict.judged.get("records read", 0)
        replicas = verdict.judged.get("records in replicas compared", 0)
        compared = f", and {replicas:,} records of all replicas' logs were compared" if replicas else ""
        found.append(f"{count:,} acknowledged records were looked for; consumers read {read:,}{compared}.")
    if verdict.coverage.cells:
        empty = len(verdict.coverage.without_rows)
        but = f"; but {empty} properties had not one row to look at, and say nothing" if empty else ""
        found.append(
            f"{verdict.coverage.judged:,} of {verdict.coverage.cells:,} cells (a property in a partition) had all of their inputs{but}."
        )
    return [*found, UNMEASURED if content.is_of_a_system else _seen()]


UNMEASURED: Final = "How many anomalies this judge would see in a recording of calls has not been measured: tribunal calibrate knows those of logs."


def _seen() -> str:
    """Say what this judge sees of anomalies that somebody put into other recordings."""
    known = measured()
    figure = total(known.figures.values())
    return (
        f"Of {figure.injected:,} anomalies that were put into copies of {known.recordings} other recordings this judge called "
        f"{figure.seen:,} violations (tribunal calibrate, commit {known.commit})."
    )


def judged(content: Page) -> str:
    """Return how much was judged, in a sentence without what was not there."""
    return ", ".join(how_much(content.verdict.judged)) or "nothing"
