"""The file that says what a night runs, checked before anything starts.

    nightly: my-log
    findings: tests/findings
    known: known-issues.yaml                         # bugs that somebody has in hand, and what may be INCONCLUSIVE
    canaries: {mutants: [M01, M44], share: 20}       # per cent of the budget; each must be found; of a described system: bugs: FILE
    every_scenario: {share: 20, without: {zookeeper: [exact-stale-join]}}  # each once in each mode that it can do
    search: {scenarios: [rotating-swarm, wide-swarm], modes: [kraft, zookeeper], share: 30}  # guided, on from the last night's corpus
    sweeps: {rotating-swarm: 6, produce-consume: 1}  # weights of the time that is left
    bound: 10                                        # per cent: a scenario is green from 29 clean runs on
    calibrate: {share: 10}                           # anomalies put into recordings of tonight: how many are seen
    confirm: {share: 15, runs: [{scenario: produce-consume, cluster: containers, count: 1}]}
    probes: [elr_nonempty]                           # rare states that the sweeps must reach
    artefacts_mb: 2000                               # what is kept of runs is at most so large

The file of known issues has a list `issues` (signature, owner, expires, and best a link) and a list `quarantine` (scenario,
cluster, rate, owner, expires): from the day after `expires` on, an issue is a finding again and a quarantine none.
"""

import datetime
import math
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

import msgspec

from tribunal.checkers.calibration.api import classes
from tribunal.clusters.simulated.rare_states import countable
from tribunal.clusters.spec import MODES, Mode
from tribunal.harness.campaign.findings import all_findings
from tribunal.harness.campaign.system_power import scenario_files
from tribunal.harness.catalog import SIMULATED, all_clusters, mutant_named, nearest, one_of, scenario_file, scenarios
from tribunal.harness.plan import Plan, made
from tribunal.harness.scenario import BadScenario, Scenario, load, read_yaml
from tribunal.results.night import Quarantine
from tribunal.results.signature import read as read_signature
from tribunal.results.unreadable import UNREADABLE, in_words

DAY: Final = re.compile(r"\d{4}-\d{2}-\d{2}")


class Canaries(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Known bugs that must be found, replog's and those of a described system (a list: `system_power`), and per cent of the budget for all."""

    mutants: tuple[str, ...] = ()
    bugs: str | None = None
    share: float = 20

    @property
    def has_any(self) -> bool:
        """Whether there is any bug."""
        return bool(self.mutants or self.bugs)


class EveryScenario(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Every scenario once in every mode that it can do, and per cent of the budget for all of them; no share: none.

    without:  by mode the scenarios that are left out, for what they find there is known.
    """

    share: float = 0
    without: dict[Mode, tuple[str, ...]] = {}


class GuidedSearch(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Scenarios that the guided search begins with, and per cent of the budget for it, of which each mode has the same part; no scenario: none."""

    scenarios: tuple[str, ...] = ()
    modes: tuple[Mode, ...] = ("kraft",)
    share: float = 30

    def loaded(self, mode: Mode) -> list[Scenario]:
        """Return those scenarios in a mode; `BadScenario` where one cannot be run in it, or two have one name."""
        found: dict[str, Scenario] = {}
        for name in self.scenarios:
            try:
                one = load(scenario_file(name), {"cluster.mode": mode})
                made(one, seed=0, cluster=SIMULATED, time_ms=None, mutants=())
            except BadScenario as problem:
                raise BadScenario(f"search: {name} in {mode} mode: {problem}") from None
            if one.name in found:
                raise BadScenario(f"search: two scenarios are called {one.name}")
            found[one.name] = one
        return list(found.values())


class Calibrate(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Anomalies put into recordings of tonight, so many of each class and recording, and per cent of the budget for all; no share: none."""

    share: float = 0
    per_class: int = 1
    classes: tuple[str, ...] = ()


class RealRun(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A scenario on a kind of real cluster, and how often."""

    scenario: str
    cluster: str
    count: int = 1


class Confirm(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Runs on real nodes, and per cent of the budget that the sweeps leave for them."""

    runs: tuple[RealRun, ...] = ()
    share: float = 20


class Config(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A nightly file, as read."""

    nightly: str
    findings: str | None = None
    known: str | None = None
    canaries: Canaries = Canaries()
    every_scenario: EveryScenario = EveryScenario()
    search: GuidedSearch = GuidedSearch()
    sweeps: dict[str, float] = {}
    bound: float = 10
    calibrate: Calibrate = Calibrate()
    confirm: Confirm = Confirm()
    probes: tuple[str, ...] = ()
    artefacts_mb: float = 2_000


class KnownIssue(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A signature that somebody has in hand until a day (`expires`, in UTC, the last one).

    scenario, mode:  where it is known; without them in every scenario, and in every mode.
    """

    signature: str
    owner: str
    expires: str
    link: str = ""
    about: str = ""
    scenario: str = ""
    mode: str = ""

    def covers(self, signature: str, scenario: str, mode: str) -> bool:
        """Return whether a run of this scenario in this mode that showed a signature showed what is in hand."""
        return signature == self.signature and self.scenario in ("", scenario) and self.mode in ("", mode)


class KnownIssues(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A file of known issues, as read."""

    issues: tuple[KnownIssue, ...] = ()
    quarantine: tuple[Quarantine, ...] = ()


def read_config(path: Path) -> Config:
    """Read and check a nightly file; `BadScenario` in one line says what is wrong with it."""
    try:
        config = msgspec.convert(read_yaml(path), Config)
    except UNREADABLE as problem:
        raise BadScenario(f"{path}: {in_words(problem, Config)}") from None
    _check(config, path)
    if config.known is not None:
        read_known(path.parent / config.known, own_names(config, path.parent))
    return config


def own_names(config: Config, base: Path) -> list[str]:
    """Return what the scenarios call themselves that the night runs from files of its own.

    base:  the folder from which the night's file names others.
    """
    files = [scenario_file(name) for name in (*config.sweeps, *(run.scenario for run in config.confirm.runs))]
    if config.canaries.bugs is not None:
        files += scenario_files(base / config.canaries.bugs)
    kept = [] if config.findings is None else all_findings(base / config.findings)
    return [*(load(file, {}).name for file in files), *(finding.plan.scenario for finding in kept)]


def read_known(path: Path, own: Sequence[str] = ()) -> KnownIssues:
    """Read and check a file of known issues; `BadScenario` in one line says what is wrong with it.

    own:  names of scenarios beside those that are known everywhere.
    """
    try:
        found = msgspec.convert(read_yaml(path) or {}, KnownIssues)
    except UNREADABLE as problem:
        raise BadScenario(f"{path}: {in_words(problem, KnownIssues)}") from None
    known = dict.fromkeys((*scenarios(), *own))
    for issue in found.issues:
        _check_day(path, issue.expires)
        try:
            read_signature(issue.signature)
        except ValueError as problem:
            raise BadScenario(f"{path}: {problem}") from None
        if issue.scenario:
            one_of("scenario", issue.scenario, known)
        if issue.mode:
            one_of("mode", issue.mode, dict.fromkeys(MODES))
    for held in found.quarantine:
        _check_day(path, held.expires)
        one_of("scenario", held.scenario, known)
        one_of("cluster", held.cluster, all_clusters())
        if not 0 < held.rate < 100:
            raise BadScenario(f"{path}: quarantine of {held.scenario}: a rate between 0 and 100 per cent")
    return found


def _check_day(path: Path, text: str) -> None:
    try:
        datetime.date.fromisoformat(text if DAY.fullmatch(text) else "")
    except ValueError:
        raise BadScenario(f"{path}: expires {text!r}: a day is written 2026-12-31") from None


def _check(config: Config, path: Path) -> None:
    for run in config.confirm.runs:
        scenario_file(run.scenario)
    in_sweeps = {name: _in_simulator(name) for name in config.sweeps}
    for name in (name for names in config.every_scenario.without.values() for name in names):
        one_of("scenario", name, scenarios())
    for mutant in config.canaries.mutants:
        mutant_named(mutant)
    for run in config.confirm.runs:
        one_of("cluster", run.cluster, all_clusters())
    for mode in config.search.modes:
        config.search.loaded(mode)
    _check_numbers(config, path)
    # A part that is empty takes no time.
    shares = config.every_scenario.share + config.calibrate.share
    shares += config.canaries.share if config.canaries.has_any else 0
    shares += config.confirm.share if config.confirm.runs else 0
    shares += config.search.share if config.search.scenarios else 0
    parts = (config.sweeps, config.findings, config.canaries.has_any, config.confirm.runs, config.every_scenario.share)
    if not any((*parts, config.search.scenarios)):
        raise BadScenario(
            f"{path}: nothing to do: search, sweeps, every_scenario, findings, canaries or confirm, at least one of them"
        )
    if (config.calibrate.share or config.probes) and not config.sweeps:
        raise BadScenario(f"{path}: calibrate and probes take their runs from sweeps, and there are none")
    for name in config.calibrate.classes:
        one_of("class", name, classes())
    _check_probes(config.probes, in_sweeps)
    if not 0 <= shares < 100:
        raise BadScenario(
            f"{path}: the shares of canaries, every_scenario, search, calibrate and confirm leave nothing for the sweeps"
        )


def _in_simulator(name: str) -> Plan:
    """Return a plan of one of the sweeps; `BadScenario` where the simulator cannot run it: no night is to find that out in its middle."""
    try:
        return made(load(scenario_file(name), {}), seed=0, cluster=SIMULATED, time_ms=None, mutants=())
    except BadScenario as problem:
        raise BadScenario(f"sweeps: {name}: {problem}") from None


def _check_probes(names: Sequence[str], in_sweeps: Mapping[str, Plan]) -> None:
    """Raise `Unknown` for a probe that no node in the sweeps can count: it would be missed at the end of each night."""
    known = {name for mode in {plan.mode for plan in in_sweeps.values()} for name in countable(mode)}
    for name in names:
        if name not in known:
            raise nearest("probe", name, known)


def _check_numbers(config: Config, path: Path) -> None:
    if not all(0 < weight < math.inf for weight in config.sweeps.values()):
        raise BadScenario(f"{path}: sweeps: each scenario with a weight above 0")
    for name, share in (
        ("canaries", config.canaries.share), ("every_scenario", config.every_scenario.share),
        ("search", config.search.share), ("calibrate", config.calibrate.share), ("confirm", config.confirm.share),
    ):  # fmt: skip
        if not 0 <= share <= 100:
            raise BadScenario(f"{path}: {name}: a share between 0 and 100 per cent")
    if config.search.scenarios and not (config.search.modes and config.search.share):
        raise BadScenario(f"{path}: search: a mode, and a share above 0")
    if any(run.count < 1 for run in config.confirm.runs):
        raise BadScenario(f"{path}: confirm: each of its runs with a count of 1 or more")
    if config.calibrate.per_class < 1:
        raise BadScenario(f"{path}: calibrate: per_class: 1 or more")
    if not 0 < config.bound < 100:
        raise BadScenario(f"{path}: bound: between 0 and 100 per cent")
    if not 0 < config.artefacts_mb < math.inf:
        raise BadScenario(f"{path}: artefacts_mb: a number above 0")
