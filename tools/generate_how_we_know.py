"""Write docs/how-we-know.md from what was measured: docs/power.json, results/sensitivity.json, the histories of tests/corpus, and docs/night.json, what is kept of the last night.

python tools/generate_how_we_know.py
python tools/generate_how_we_know.py NIGHT/nightly.json "where it ran, and beside what"     # keeps another night first
"""

import gzip
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import msgspec

from tribunal.results.night import Night, bound_of
from tribunal.results.power import WORDS, By, Power, read
from tribunal.results.sensitivity import measured, total

ROOT = Path(__file__).parent.parent
POWER = ROOT / "docs" / "power.json"
NIGHT = ROOT / "docs" / "night.json"
TARGET = ROOT / "docs" / "how-we-know.md"
CASES: Final = "cases.jsonl.gz"
HEAD = """# How we know that the harness works

A green result is worth what the harness would have found. Each line of this page is a measurement that can be repeated. The page is made by `python tools/generate_how_we_know.py` from the
measurements that the repository keeps, so that no figure in it was typed by hand.
"""
SOUGHT: Final = {
    By.OWN: "by the scenario that was written for them",
    By.SWARM: "by random faults alone",
    By.SEARCH: "by the guided search",
}
TAIL = """
## What this does not show
- A bug of a kind that nobody has thought of: the power of known bugs is a lower bound for what is missed, not an estimate of it.
- A bug that shows only on many machines, in hours, or under a load that one machine cannot make: say so when you publish.
- That a loss which a rule permits was wanted: the rules are those of [verdicts](verdicts.md), and they are the protocol's.
"""


class KeptNight(msgspec.Struct, frozen=True, kw_only=True):
    """What is kept of a night.

    where:      the machine, and what else it did then.
    seconds:    of `budget_s` that it was given.
    canaries:   known bugs that were switched on: found, of how many.
    once:       what each scenario's single run came to.
    real_nodes: verdicts of the runs on real nodes.
    new:        signatures that nobody knew; known: those that somebody has in hand.
    seen:       anomalies that the judge saw, of those put into the night's recordings.
    guards:     places of the nodes' code that refuse, raise or catch something: reached, of how many.
    """

    began: str
    where: str
    commit: str
    word: str
    budget_s: float
    seconds: float
    runs: int
    verdicts: dict[str, int]
    hours: float
    once: dict[str, int]
    real_nodes: dict[str, int]
    canaries: tuple[int, int]
    new: int
    known: int
    seen: tuple[int, int]
    guards: tuple[int, int]


def kept(night: Night, where: str) -> KeptNight:
    """Return what is kept of a night."""
    real: dict[str, int] = {}
    for one in night.confirmations:
        real[one.verdict] = real.get(one.verdict, 0) + 1
    figure = night.sensitivity.total
    return KeptNight(
        began=night.began,
        where=where,
        commit=night.commit,
        word=night.word,
        budget_s=night.budget_s,
        seconds=round(night.seconds),
        runs=night.runs,
        verdicts=dict(sorted(night.verdicts.items())),
        hours=round(night.simulated_hours, 2),
        once=dict(sorted(night.once_verdicts.items())),
        real_nodes=real,
        canaries=(sum(one.found for one in night.canaries), len(night.canaries)),
        new=sum(not one.is_known for one in night.found),
        known=sum(one.is_known for one in night.found),
        seen=(figure.seen, figure.injected),
        guards=(night.guards_known - len(night.guards_cold), night.guards_known),
    )


def content() -> str:
    """Return the page."""
    return "\n".join([HEAD, *_suites(), *_bugs(read(POWER)), *_anomalies(), *_night(), TAIL])


def _suites() -> Iterator[str]:
    logs = _cases("kafka-small", "kafka-large")
    transactions = _cases("elle-small", "elle-sim")
    yield "| question | how it is measured | where the figures are |"
    yield "|---|---|---|"
    for row in (
        (
            "Are known bugs found?",
            "bugs are switched on one at a time, and sought by the scenario written for them and by random faults alone; what the same seed finds without the bug does not count",
            "[below](#known-bugs); one by one, with those that were missed: [which known bugs are found](power.md)",
        ),
        (
            "Would the judge see an anomaly?",
            "one fact is changed in a copy of a recording, where no rule permits it, and the copy is judged",
            "[below](#anomalies); by class: [how much the judge sees](sensitivity.md); [how it is measured](calibration.md)",
        ),
        (
            "Does it accuse the innocent?",
            "the same runs without a known bug: the [guarantees](guarantees.md) have a pair of examples for each rule, one that is permitted and its nearest neighbour that is not",
            "`make test`, and [the last night](#the-last-night)",
        ),
        (
            "Does a seed repeat itself?",
            "the trace hash, the recording hash and the number of events of runs are compared, in one process and in another, with other hash seeds",
            "[determinism](determinism.md); `tests/seeds/test_seeds_repeat_themselves.py`",
        ),
        (
            "Do its checkers agree with others?",
            f"histories judged by Elle and by `jepsen.tests.kafka` are judged again: {logs} histories of logs, {transactions} of transactions, and registers against Porcupine where its data are at hand",
            "`tests/corpus/README.md`",
        ),
        (
            "Do its engines agree?",
            "the kernels, Spark, and the same properties as SQL judge the same recordings",
            "`tests/checkers/test_engines.py`, `tests/checkers/test_sql.py`",
        ),
        (
            "Is the system under test what it says?",
            "each normative sentence of five KIPs has code and a test; released Kafka is run with the same histories",
            "[the KIPs, sentence by sentence](kips.md), `tests/e2e/test_same_as_kafka.py`",
        ),
        (
            "Do Kafka's own tests, tools and clients agree with replog?",
            "Kafka's integration tests run on replog's processes; `kafka-topics`, `kafka-dump-log`, `kafka-log-dirs`, `kafka-metadata-quorum` and clients of seven libraries work against it",
            "[Kafka's own tests](kafka-tests.md), `tests/e2e/test_kafka_tools.py`, `tests/clients/test_foreign_clients.py`",
        ),
        (
            "Does a fault take effect?",
            "every fault proves its effect and its end by measurement; one that cannot makes the run inconclusive",
            "[every fault on every kind of cluster](fault-matrix.md)",
        ),
        (
            "Was a state reached at all?",
            "probes count rare states, guards count every place of the nodes' code that refuses, raises or catches",
            "`guards.csv` and the index page of every [night](nightly.md)",
        ),
        (
            "Does a night say how it ended?",
            "a night is killed at ten random moments, by SIGINT, SIGTERM and `kill -9`: each time its files must say that it did not end, and `--resume` must go on with what `kill -9` left",
            "`tests/harness/test_killed_night.py`, every night",
        ),
    ):
        yield f"| {' | '.join(row)} |"


def _cases(*families: str) -> str:
    """Say how many histories each family has."""
    counts = []
    for family in families:
        with gzip.open(ROOT / "tests" / "corpus" / family / CASES, "rt", encoding="utf-8") as lines:
            counts.append(sum(1 for line in lines if line.strip()))
    return " + ".join(map(str, counts))


def _bugs(power: list[Power]) -> Iterator[str]:
    yield "\n## Known bugs\n"
    yield "| sought | bugs | found | missed | CPU seconds to find one (median) |"
    yield "|---|---|---|---|---|"
    for by, words in SOUGHT.items():
        own = [one for one in power if one.by is by]
        found = sum(one.found for one in own)
        figures = [len(own), found, len(own) - found, _median(own)] if own else ["not measured", "", "", ""]
        yield f"| {words} | {' | '.join(map(str, figures))} |"
    reasons: dict[str, int] = {}
    for one in power:
        if not one.found and one.by is By.OWN:
            why = "not looked into yet" if one.why is None else WORDS[one.why]
            reasons[why] = reasons.get(why, 0) + 1
    if reasons:
        listed = ", ".join(f"{count} x {why}" for why, count in sorted(reasons.items(), key=lambda item: -item[1]))
        yield f"\nWhy bugs were missed by their own scenarios: {listed}."


def _median(own: list[Power]) -> str:
    seconds = sorted(one.cpu_seconds for one in own if one.found and one.cpu_seconds)
    return f"{seconds[len(seconds) // 2]:.0f} ({len(seconds)} measured)" if seconds else "not measured"


def _anomalies() -> Iterator[str]:
    known = measured()
    figure = total(known.figures.values())
    classes = sum(one.injected > 0 for one in known.figures.values())
    yield "\n## Anomalies\n"
    yield (
        f"{figure.injected:,} anomalies of {classes} classes were put into copies of {known.recordings} recordings; the judge saw "
        f"{figure.seen:,} of them (commit {known.commit}). {len(known.figures) - classes} classes found no place in these recordings."
    )


def _night() -> Iterator[str]:
    yield "\n## The last night\n"
    if not NIGHT.exists():
        yield "No night is kept."
        return
    night = msgspec.json.decode(NIGHT.read_bytes(), type=KeptNight)
    yield (
        f"`tribunal nightly nightly.yaml` of {night.began}, commit {night.commit[:8]}, {night.where}. It calls itself **{night.word}**. "
        "Green it may be called only if it ended, found nothing new, and each scenario had the runs that the bound asks for.\n"
    )
    yield "| | |"
    yield "|---|---|"
    yield f"| time | {night.seconds:,.0f} s, of {night.budget_s:,.0f} s that it was given |"
    bound = 100 * bound_of(night.verdicts)
    yield f"| simulated runs | {night.runs:,} ({_words(night.verdicts)}), {night.hours:g} hours of the clusters' time; with 95 % confidence at most {bound:.1f} % of such runs have a violation |"
    yield f"| every scenario once | {_words(night.once) or 'no time was left'} |"
    yield f"| on real nodes | {_words(night.real_nodes) or 'none'} |"
    yield f"| canaries: known bugs switched on | {night.canaries[0]} of {night.canaries[1]} found |"
    yield f"| anomalies put into its recordings | {night.seen[0]:,} of {night.seen[1]:,} seen |"
    yield f"| findings | {night.new} new, {night.known} known |"
    yield f"| guards reached | {night.guards[0]:,} of {night.guards[1]:,} |"


def _words(verdicts: dict[str, int]) -> str:
    return ", ".join(f"{count:,} {verdict}" for verdict, count in verdicts.items())


if __name__ == "__main__":
    if sys.argv[1:]:
        ended = msgspec.json.decode(Path(sys.argv[1]).read_bytes(), type=Night)
        NIGHT.write_bytes(msgspec.json.format(msgspec.json.encode(kept(ended, sys.argv[2])), indent=1) + b"\n")
    TARGET.write_text(content(), encoding="utf-8")
