"""What a night of testing leaves: its account as data, as a summary of one page, and as JUnit XML for a CI server."""

from collections import Counter
from collections.abc import Iterator
from importlib import resources
from pathlib import Path
from typing import Final, Literal

import jinja2
import msgspec
from junitparser import Error, Failure, JUnitXml, Skipped, TestCase, TestSuite

from tribunal.results.sensitivity import Sensitivity, fallen
from tribunal.results.signature import renewed
from tribunal.results.verdict import answered, counted

VERSION: Final = 1
SUMMARY_LINES: Final = 40
SHOWN: Final = 6

FoundState = Literal["new", "known", "regressed"]


class Past(msgspec.Struct, frozen=True, kw_only=True):
    """A past failure run again; `is_bad`: the code of now does something wrong, `is_lost`: it could not be shown."""

    name: str
    signature: str
    outcome: str
    runs: int
    max_runs: int
    seconds: float
    others: list[str]
    is_bad: bool
    is_lost: bool


class Canary(msgspec.Struct, frozen=True, kw_only=True):
    """A known bug switched on, which must be found."""

    mutant: str
    scenario: str
    found: bool
    seen_by: list[str]
    seeds: int
    seconds: float
    note: str


class Swept(msgspec.Struct, kw_only=True):
    """What a scenario's seeds came to; `bound_95`: at most this share of runs has a violation, with 95 % confidence."""

    scenario: str
    runs: int = 0
    seconds: float = 0.0
    simulated_ms: int = 0
    verdicts: dict[str, int] = {}
    bound_95: float = 1.0


class FoundTonight(msgspec.Struct, frozen=True, kw_only=True):
    """A signature that runs of tonight showed; `known_as` is the kept finding of that signature."""

    signature: str
    state: FoundState
    known_as: str
    count: int
    scenarios: list[str]
    seeds: list[int]
    claim: str
    run_dirs: list[str]
    again: str


class Confirmation(msgspec.Struct, frozen=True, kw_only=True):
    """A scenario on real nodes."""

    scenario: str
    cluster: str
    seed: int
    verdict: str
    claim: str
    reasons: list[str]
    seconds: float
    run_dir: str


class Night(msgspec.Struct, kw_only=True):
    """A night; times in seconds, `began` in UTC (ISO 8601).

    cold:  probes that had to be reached and were not.
    sensitivity:  anomalies put into recordings of tonight; fallen: classes of which less was seen than the last night.
    guards_known, guards_cold:  how many places of the nodes' code refuse, raise or catch something, and which of them no run reached.
    trend: figures beside the last night's: name -> [then, now].
    """

    night_version: int = VERSION
    name: str
    began: str
    commit: str
    lock_sha256: str
    shard: str
    budget_s: float
    first_seed: int
    seconds: float = 0.0
    past: list[Past] = []
    canaries: list[Canary] = []
    swept: list[Swept] = []
    found: list[FoundTonight] = []
    confirmations: list[Confirmation] = []
    probes: dict[str, int] = {}
    cold: list[str] = []
    sensitivity: Sensitivity = msgspec.field(default_factory=Sensitivity)
    fallen: list[str] = []
    guards_known: int = 0
    guards_cold: list[str] = []
    errors: list[str] = []
    trend: dict[str, list[float]] = {}

    @property
    def runs(self) -> int:
        """How many simulated runs there were."""
        return sum(swept.runs for swept in self.swept)

    @property
    def verdicts(self) -> Counter[str]:
        """How many simulated runs got which verdict."""
        return Counter(
            verdict for swept in self.swept for verdict, count in swept.verdicts.items() for _ in range(count)
        )

    @property
    def simulated_hours(self) -> float:
        """How much virtual time the simulated clusters ran in all."""
        return sum(swept.simulated_ms for swept in self.swept) / 3_600_000

    @property
    def figures(self) -> dict[str, float]:
        """What can be compared with another night, whatever the budgets were."""
        sweep_s = sum(swept.seconds for swept in self.swept)
        found = {
            "runs per CPU minute": 60 * self.runs / sweep_s if sweep_s else 0.0,
            "simulated seconds per second": 3600 * self.simulated_hours / sweep_s if sweep_s else 0.0,
            "signatures found": float(len(self.found)),
            "canaries found": float(sum(one.found for one in self.canaries)),
            "seconds to a canary": max((one.seconds for one in self.canaries), default=0.0),
            "probes reached": float(len(self.probes)),
            "guards reached": float(self.guards_known - len(self.guards_cold)),
        }
        if self.sensitivity.total.injected:
            found["anomalies seen, %"] = 100 * self.sensitivity.total.share
        return {name: round(value, 2) for name, value in found.items()}

    @property
    def is_red(self) -> bool:
        """Whether the system under test did something wrong that nobody knew of, or did again what was mended."""
        bad_confirmation = any(one.verdict == "VIOLATION" for one in self.confirmations)
        return (
            any(one.state != "known" for one in self.found) or any(one.is_bad for one in self.past) or bad_confirmation
        )

    @property
    def harness_failures(self) -> list[str]:
        """What the harness itself failed to do: find what it must, reach what it must, judge what it ran."""
        found = [f"canary {one.mutant} was not found in {one.seeds} seeds" for one in self.canaries if not one.found]
        found += [f"finding {one.name}: {one.outcome}" for one in self.past if one.is_lost]
        found += [f"probe {name} was never reached" for name in self.cold]
        found += [f"the judge sees less of {line}" for line in self.fallen]
        found += [
            f"{one.scenario} on {one.cluster}: ERROR {'; '.join(one.reasons[:1])}"
            for one in self.confirmations
            if one.verdict == "ERROR"
        ]
        return found + self.errors

    @property
    def is_inconclusive(self) -> bool:
        """Whether a confirmation on real nodes could not be judged."""
        return any(one.verdict == "INCONCLUSIVE" for one in self.confirmations)

    @property
    def exit_code(self) -> int:
        """Return the exit code: a violation goes before a failure of the harness, that before a run without a verdict."""
        if self.is_red:
            return 1
        if self.harness_failures:
            return 3
        return 2 if self.is_inconclusive else 0


def compared(night: Night, last: Night) -> None:
    """Write down what is comparable of two nights, whatever their budgets were, and what is seen less of."""
    then = last.figures
    night.trend = {name: [then[name], value] for name, value in night.figures.items() if name in then}
    night.fallen = fallen(last.sensitivity.figures, night.sensitivity.figures)


def save(night: Night, folder: Path) -> None:
    """Write nightly.json, summary.md and junit.xml."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "nightly.json").write_bytes(msgspec.json.format(msgspec.json.encode(night), indent=2) + b"\n")
    (folder / "summary.md").write_text(summary(night), encoding="utf-8")
    junit(night).write(str(folder / "junit.xml"), pretty=True)


def load(path: Path) -> Night:
    """Read nightly.json; `msgspec.DecodeError` or `msgspec.ValidationError` when it is none."""
    night = msgspec.json.decode(path.read_bytes(), type=Night)
    # A night of before there were kinds identified the same findings by their sentences.
    night.past = [msgspec.structs.replace(one, signature=renewed(one.signature)) for one in night.past]
    night.found = [msgspec.structs.replace(one, signature=renewed(one.signature)) for one in night.found]
    return night


def summary(night: Night) -> str:
    """Return the night on one page of Markdown, at most 40 lines."""
    template = (
        resources.files("tribunal.results.report").joinpath("templates", "summary.md.j2").read_text(encoding="utf-8")
    )
    environment = jinja2.Environment(  # noqa: S701 - Markdown, and `cell` takes what would be markup
        undefined=jinja2.StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    environment.filters["cell"] = _cell
    environment.filters["counted"] = counted
    text = environment.from_string(template).render(night=night, shown=SHOWN, bound=_bound(night))
    lines = text.splitlines()
    assert len(lines) <= SUMMARY_LINES, f"{len(lines)} lines"
    return text


def _cell(text: object, width: int = 90) -> str:
    """Return text that stays inside one cell of a table and is no markup, whatever a finding says."""
    plain = " ".join(str(text).split())
    plain = plain if len(plain) <= width else f"{plain[:width]}…"
    for mark in ("\\", "|", "`", "<", "[", "*", "_"):
        plain = plain.replace(mark, f"\\{mark}")
    return plain


def _bound(night: Night) -> float:
    """Return the 95 % bound over all simulated runs without a violation: the rule of three, exact."""
    verdicts = night.verdicts
    clean = answered(verdicts)
    if not clean or verdicts["VIOLATION"]:
        return max((swept.bound_95 for swept in night.swept), default=1.0)
    return 1 - float(0.05 ** (1 / clean))


def junit(night: Night) -> JUnitXml:
    """Return the night as JUnit XML: a case per finding, canary, scenario, signature and confirmation.

    A signature fails one case, its own, however many runs showed it: the same bug must not open thirty red cases.
    """
    report = JUnitXml(night.name)
    for name, cases in (
        ("findings", _past_cases(night)),
        ("canaries", _canary_cases(night)),
        ("sweep", _sweep_cases(night)),
        ("found", _found_cases(night)),
        ("probes", _probe_cases(night)),
        ("sensitivity", _sensitivity_cases(night)),
        ("confirmations", _confirmation_cases(night)),
    ):
        suite = TestSuite(f"{night.name}.{name}")
        suite.timestamp = night.began
        for case in cases:
            suite.add_testcase(case)
        if len(suite):
            report.add_testsuite(suite)
    return report


def _case(name: str, group: str, seconds: float = 0.0) -> TestCase:
    return TestCase(_printable(name), f"tribunal.{group}", round(seconds, 3))


def _printable(text: str) -> str:
    """Return text without the characters that XML cannot hold."""
    return "".join(mark if mark in "\t\n" or " " <= mark <= "\ud7ff" or mark >= "\ue000" else "?" for mark in text)


def _failed(case: TestCase, message: str, text: str, kind: type[Failure] | type[Error] = Failure) -> TestCase:
    result = kind(_printable(message))
    result.text = _printable(text)
    case.result = [result]
    return case


def _past_cases(night: Night) -> Iterator[TestCase]:
    for one in night.past:
        case = _case(one.name, "findings", one.seconds)
        if one.is_bad:
            yield _failed(case, one.outcome, f"{one.signature}\nfound besides: {', '.join(one.others) or 'nothing'}")
        elif one.is_lost:
            yield _failed(case, one.outcome, f"{one.signature} was not shown by {one.runs} runs", Error)
        else:
            yield case


def _canary_cases(night: Night) -> Iterator[TestCase]:
    for one in night.canaries:
        case = _case(one.mutant, "canaries", one.seconds)
        text = f"{one.scenario}: {one.seeds} seeds found nothing; {one.note}"
        yield case if one.found else _failed(case, "the canary is green", text, Error)


def _sweep_cases(night: Night) -> Iterator[TestCase]:
    for one in night.swept:
        case = _case(one.scenario, "simulated", one.seconds)
        if one.runs:
            case.system_out = (
                f"{one.runs} runs, {one.simulated_ms / 3_600_000:.2f} simulated hours, {counted(one.verdicts)}"
            )
        else:
            case.result = [Skipped("the budget was used up before its first run")]
        yield case


def _found_cases(night: Night) -> Iterator[TestCase]:
    for one in night.found:
        case = _case(one.signature, f"found.{one.state}")
        if one.state == "known":
            case.system_out = f"known as {one.known_as}; {one.count} runs"
            yield case
        else:
            yield _failed(case, f"{one.state}: {one.claim}", f"{one.count} runs, seeds {one.seeds}\nagain: {one.again}")


def _probe_cases(night: Night) -> Iterator[TestCase]:
    for name in night.cold:
        yield _failed(_case(name, "probes"), "never reached", f"{night.runs} runs did not reach it", Error)


def _sensitivity_cases(night: Night) -> Iterator[TestCase]:
    fell = {line.partition(":")[0]: line for line in night.fallen}
    for name, figure in night.sensitivity.figures.items():
        case = _case(name, "sensitivity")
        text = f"{figure.seen} of {figure.injected} anomalies were seen"
        if name in fell:
            yield _failed(case, f"fell below the last figure: {fell[name]}", text, Error)
        elif figure.injected:
            case.system_out = text
            yield case


def _confirmation_cases(night: Night) -> Iterator[TestCase]:
    for one in night.confirmations:
        case = _case(f"{one.scenario} seed {one.seed}", one.cluster, one.seconds)
        text = "\n".join([one.claim, *one.reasons, one.run_dir])
        if one.verdict == "VIOLATION":
            yield _failed(case, one.verdict, text)
        elif one.verdict in ("ERROR", "INCONCLUSIVE"):
            yield _failed(case, one.verdict, text, Error)
        else:
            yield case
