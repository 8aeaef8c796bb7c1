"""The simulator's commands: sweep, power, replay, shrink, demo."""

import math
import os
import sys
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Annotated, Final, NoReturn

import msgspec
import typer
from rich.console import Console, Group
from rich.live import Live
from rich.text import Text

from tribunal.checkers.spark.session import NoSpark
from tribunal.clusters.simulated.guards import Guards
from tribunal.clusters.simulated.guards import counted as counted_guards
from tribunal.clusters.spec import ClusterSpec
from tribunal.harness.campaign.repetition import folder_of_runs
from tribunal.harness.campaign.runners import Runner
from tribunal.harness.campaign.search import ROUND
from tribunal.harness.campaign.sweep import (
    Keeper,
    SeedResult,
    Sweep,
    guards_table,
    recording_hash,
)
from tribunal.harness.catalog import SIMULATED, is_simulated, mutant_named, mutants, one_of, scenario_file
from tribunal.harness.cli.cluster import Jobs, Master, PythonThere, Remote, RoundSize, WithPackages, place, runner_at
from tribunal.harness.cli.complete import named
from tribunal.harness.cli.findings import first_signature, must_have_found, signature_named
from tribunal.harness.cli.repeated import FRESH, Confidence, Share, again, repeated_at
from tribunal.harness.cli.stored import out_at
from tribunal.harness.cli.usage import UsageError
from tribunal.harness.plan import Plan, encoded, in_simulator, made, read_plan
from tribunal.harness.scenario import BadScenario, Scenario, duration, load
from tribunal.harness.terminal import as_json, echo, plain
from tribunal.results.guards import cold as cold_guards
from tribunal.results.guards import write as write_guards
from tribunal.results.night import upper_bound
from tribunal.results.scratch import Scratch
from tribunal.results.signature import Signature, texts
from tribunal.results.verdict import (
    EXIT_ERROR,
    EXIT_INTERRUPTED,
    WITHOUT_ANSWER,
    Verdict,
    answered,
    counted,
    worst,
)

if TYPE_CHECKING:
    from tribunal.harness.campaign.replay import Moment
    from tribunal.results.power import Power

KEPT: Final = Path("runs/sweep")
SHOWN: Final = 12
NAMED_AT_MOST: Final = 4  # scenarios, in one line
MS_PER_HOUR: Final = 3_600_000
SEED_DIGITS: Final = 18
MOST_SILENCE_S: Final = 2


def sweep(  # noqa: PLR0917 - options
    scenarios: Annotated[
        list[str], typer.Argument(help="Names of scenarios, or .yaml files.", autocompletion=named("scenarios"))
    ],
    seeds: Annotated[str, typer.Option(help="Seeds, first:end.")] = "0:100",
    jobs: Jobs = None,
    budget: Annotated[str | None, typer.Option(help="Begin no more seeds after this, e.g. 10m.")] = None,
    time_: Annotated[str | None, typer.Option("--time", help="How long faults go on, e.g. 45s.")] = None,
    mutant: Annotated[
        list[str] | None, typer.Option(help="Switch a known bug back on, e.g. M44.", autocompletion=named("mutants"))
    ] = None,
    mode: Annotated[str | None, typer.Option(help="kraft or zookeeper; default: the scenario's.")] = None,
    out: Annotated[
        str, typer.Option(help="Folder for the runs that found something, or a URL such as s3://BUCKET/FOLDER.")
    ] = str(KEPT),
    master: Master = None,
    remote: Remote = None,
    python: PythonThere = "",
    with_packages: WithPackages = False,
    json: Annotated[bool, typer.Option("--json", help="Print the result as JSON on stdout.")] = False,
) -> None:
    """Run many seeds in the simulator, and group what they found."""
    wanted = [load(scenario_file(name), {} if mode is None else {"cluster.mode": mode}) for name in scenarios]
    if twice := [name for name, count in Counter(one.name for one in wanted).items() if count > 1]:
        raise BadScenario(f"scenario {twice[0]} is named twice: runs are named by scenario and seed")
    plans = _plans(wanted, _seeds(seeds), time_, tuple(mutant_named(name) for name in mutant or []))
    budget_s = None if budget is None else duration(budget, wanted[0].spec).most_ms / 1000
    where = place(master, remote, python, with_packages=with_packages)
    interrupted, gone = False, None
    with out_at(out, otherwise=KEPT) as kept_in:
        board, keeper, account = Board(_title(scenarios)), Keeper(kept_in.folder), Sweep()

        def notify(result: SeedResult, account: Sweep) -> None:
            board.notify(result, account)
            folder = keeper.keep(result)
            if folder is not None:
                url = kept_in.put(folder)
                keeper.moved(folder, url)
                names = "; ".join(texts(result.signatures))
                board.say(f"found    {result.scenario} seed {result.seed}: {names}; kept in {url}")

        with Scratch("sweep", in_memory=True) as scratch, board, counted_guards() as guards:
            try:
                with runner_at(where, jobs, guards) as runner:
                    runner.swept(plans, budget_s=budget_s, scratch=scratch, notify=notify, account=account)
            except KeyboardInterrupt:
                interrupted = True
            except NoSpark as problem:
                if not account.results:
                    raise
                interrupted, gone = True, problem
        table = kept_in.put_file(write_guards(kept_in.folder, guards_table(account, guards)))
    _report(account, keeper.folders, guards, table, json=json, interrupted=interrupted)
    if gone is not None:
        raise gone
    if interrupted:
        raise typer.Exit(EXIT_INTERRUPTED)
    raise typer.Exit(worst(result.verdict for result in account.results).exit_code(strict=False))


def _title(scenarios: Sequence[str]) -> str:
    return ", ".join(scenarios) if len(scenarios) <= NAMED_AT_MOST else f"{len(scenarios)} scenarios"


def power(  # noqa: PLR0917 - options
    mutant: Annotated[
        list[str] | None,
        typer.Option("--mutant", help="Which known bugs; default: all.", autocompletion=named("mutants")),
    ] = None,
    by: Annotated[
        str,
        typer.Option(
            help="own: the scenario that each mutant names; swarm: random faults alone; search: the guided search."
        ),
    ] = "own",
    scenario: Annotated[str | None, typer.Option(help="Instead of the scenarios of --by.")] = None,
    seeds: Annotated[str, typer.Option(help="Seeds, first:end; of each scenario; first: of a search.")] = "0:1000",
    jobs: Jobs = None,
    budget: Annotated[str, typer.Option(help="Time for all of them, e.g. 5m.")] = "5m",
    each: Annotated[str | None, typer.Option(help="Time for one of them at most; default: an even share.")] = None,
    each_cpu: Annotated[
        str | None, typer.Option(help="CPU time for one of them: none of its runs begins after so much, e.g. 60s.")
    ] = None,
    rest: Annotated[
        bool, typer.Option("--rest", help="Only bugs that --keep holds no measurement of by --by.")
    ] = False,
    keep: Annotated[
        Path | None, typer.Option(help="File of measurements to bring up to date, e.g. docs/power.json.")
    ] = None,
    out: Annotated[
        Path, typer.Option(help="Folder for runs without a known bug that found something all the same.")
    ] = Path("runs/power"),
    bugs: Annotated[
        Path | None, typer.Option(help="List of a described system's known bugs: they are sought on its own nodes.")
    ] = None,
    round_size: RoundSize = ROUND,
    master: Master = None,
    remote: Remote = None,
    python: PythonThere = "",
    with_packages: WithPackages = False,
    json: Annotated[bool, typer.Option("--json", help="Print the result as JSON on stdout.")] = False,
) -> None:
    """Switch known bugs on, one at a time, and see how soon each is found, and by what.

    A finding counts where the same run without the bug does not have it. What such a run finds by itself is a finding of this build: it is kept.
    With --bugs the bugs are those of a described system: configurations, versions or patches (docs/your-system.md).
    """
    if bugs is not None:
        from tribunal.harness.cli.system_power import power_of_system

        if any((scenario, each, each_cpu, rest, keep, master, remote, jobs)) or by != "own":
            raise UsageError(
                "--bugs: goes with --mutant, --seeds, --budget, --out, --json: its runs are real ones, one after the other"
            )
        results, is_accused = power_of_system(
            bugs, mutant or [], seeds=_seeds(seeds), budget_s=duration(budget, ClusterSpec()).most_ms / 1000, out=out,
            say=lambda one: echo(power_line(one), err=True),
        )  # fmt: skip
        _end_with_power(results, is_accused=is_accused, json=json)
    from tribunal.harness.campaign import mutation_score as powers
    from tribunal.results import power as kept

    where = place(master, remote, python, with_packages=with_packages)
    wanted = [mutant_named(name) for name in mutant or []] or list(mutants())
    budget_s = duration(budget, ClusterSpec()).most_ms / 1000
    each_s = math.inf if each is None else duration(each, ClusterSpec()).most_ms / 1000
    each_cpu_s = math.inf if each_cpu is None else duration(each_cpu, ClusterSpec()).most_ms / 1000
    sought_by = one_of("kind of search", by, powers.SOUGHT_BY)
    if rest:
        if keep is None or scenario is not None:
            raise BadScenario("--rest: goes with --keep and --by, which say what has been measured")
        wanted = kept.not_measured(wanted, kept.read(keep), sought_by)

    def notify(result: kept.Power) -> None:
        echo(power_line(result), err=True)
        if keep is not None:
            kept.write(keep, kept.brought_up_to_date(kept.read(keep), [result]))

    keeper = Keeper(out)

    def accuse(result: SeedResult) -> None:
        place = keeper.keep(result) or f"{result.scenario} seed {result.seed}"
        echo(f"this build by itself: {'; '.join(texts(result.signatures))}: {place}", err=True)

    with (
        Scratch("power", in_memory=True) as scratch,
        counted_guards() if sought_by is kept.By.SEARCH else nullcontext() as guards,
        runner_at(where, jobs, guards) as runner,
    ):
        results = powers.power(
            wanted, scenario=scenario, by=sought_by, seeds=_seeds(seeds), budget_s=budget_s, each_s=each_s,
            each_cpu_s=each_cpu_s, runner=runner, scratch=scratch, round_size=round_size, notify=notify,
            accuse=accuse,
        )  # fmt: skip
    _end_with_power(results, is_accused=bool(keeper.folders), json=json)


def _end_with_power(results: "list[Power]", *, is_accused: bool, json: bool) -> NoReturn:
    """Print what became of bugs; exit with 1 where one was missed, or something was found without one."""
    if json:
        echo(as_json(results))
    else:
        for result in results:
            echo(power_line(result))
        echo(f"found {sum(result.found for result in results)} of {len(results)}")
    raise typer.Exit(0 if all(result.found for result in results) and not is_accused else 1)


def _say(line: str) -> None:
    echo(line, err=True)


def power_line(result: "Power") -> str:
    """Return one mutant's fate in a line."""
    seen = "; ".join(result.seen_by) or "-"
    word = "found " if result.found else "missed"
    note = f"  ({result.note})" if result.note else ""
    unanswered = {name: count for name, count in result.verdicts.items() if name in WITHOUT_ANSWER}
    without = f"  without an answer: {counted(unanswered)}" if unanswered else ""
    return (
        f"{word} {result.mutant:<28} {result.scenario:<22} seeds {result.seeds:>3}  {result.seconds:>6.1f} s  "
        f"{seen}{without}{note}"
    )


def replay(
    run: Annotated[str, typer.Argument(metavar="RUN|SEED", help="Folder of a simulated run, or SCENARIO:SEED.")],
    until: Annotated[
        int | None, typer.Option(min=0, help="Stop before the event of this number, and show the state of all nodes.")
    ] = None,
    trace: Annotated[
        list[str] | None,
        typer.Option(
            help="Print what happens: all, FIRST:LAST (events), or a machine, an API, a function; repeatable."
        ),
    ] = None,
    anyway: Annotated[bool, typer.Option("--anyway", help="Also with other code than it was recorded with.")] = False,
    mutant: Annotated[list[str] | None, typer.Option(help="For a seed: switch a known bug back on.")] = None,
    out: Annotated[Path | None, typer.Option(help="Folder for the new run; default: beside the old one.")] = None,
    json: Annotated[bool, typer.Option("--json", help="Print the result as JSON on stdout.")] = False,
) -> None:
    """Run a recorded seed again, bit-exact; if it is another run, name the first event that differs."""
    from tribunal.harness.campaign import replay as replays

    plan = _plan_to_replay(run, tuple(mutant_named(name) for name in mutant or []))
    if until is not None or trace:
        say = _say if json else echo  # stdout is one JSON document
        moment = replays.shown(plan, until=until, trace=replays.Trace(trace) if trace else None, say=say)
        for line in [as_json(moment)] if json else _moment_lines(moment):
            echo(line)
        raise typer.Exit(0)
    recorded = Path(run) if Path(run).is_dir() else replays.recorded_run(plan, Path("runs"))
    if recorded is None:
        raise BadScenario(
            f"{run} was never recorded: record it with `tribunal run`, or look at it with --until or --trace"
        )
    _offer_to_go_on(replays.other_code(recorded), anyway=anyway)
    again = out or recorded.with_name(f"{recorded.name}.replay-{time.strftime('%H%M%S')}")
    _say(f"running it again, into {again}")
    result = replays.replayed(recorded, again)
    for line in [as_json(result)] if json else result.lines:
        echo(line)
    raise typer.Exit(0 if result.is_same else 1)


def _plan_to_replay(run: str, mutants: tuple[str, ...]) -> Plan:
    """Return the plan of a run's folder, or of `scenario:seed` (a seed alone: of the first-run scenario)."""
    if Path(run).is_dir():
        plan = read_plan(Path(run) / "plan.json")
        if not is_simulated(plan.cluster):
            raise BadScenario(f"{run} ran on {plan.cluster}: only simulated runs can be repeated bit by bit")
        return plan
    scenario, _, seed = run.rpartition(":")
    if not seed.isdecimal():
        raise BadScenario(f"{run}: no folder of a run, and no seed: write SCENARIO:SEED, e.g. produce-consume:7")
    wanted = load(scenario_file(scenario or "produce-consume"), {})
    return made(wanted, seed=int(seed), cluster=SIMULATED, time_ms=None, mutants=mutants)


def _offer_to_go_on(remarks: Sequence[str], *, anyway: bool) -> None:
    """Say that the code is another one; go on if that is wanted."""
    for remark in remarks:
        _say(remark)
    if not remarks or anyway:
        return
    _say("the same seed is likely to be another run now")
    if not (sys.stdin.isatty() and typer.confirm("run it all the same?", err=True)):
        raise BadScenario("not run: --anyway runs it with the code of now and names the first event that differs")


def _moment_lines(moment: "Moment") -> Iterator[str]:
    yield f"{'ended' if moment.ended else 'stopped'} at event {moment.event}, {moment.at_ns / 1e9:.6f} s"
    yield from (f"    {line}" for line in moment.last)
    yield from moment.state
    for name, count in sorted(moment.probes.items()):
        yield f"probe {name} {count}"
    if moment.violation is not None:
        yield f"violated {moment.violation}"


def shrink(  # noqa: PLR0917 - options
    run: Annotated[Path, typer.Argument(help="Folder of a run that found something, or its plan.json.")],
    jobs: Jobs = None,
    budget: Annotated[
        str | None, typer.Option(help="Stop shrinking after this; default: 60s, of a described system 10m.")
    ] = None,
    signature: Annotated[str | None, typer.Option(help="What has to be shown; default: the first finding.")] = None,
    share: Share = None,
    confidence: Confidence = None,
    master: Master = None,
    remote: Remote = None,
    python: PythonThere = "",
    with_packages: WithPackages = False,
    json: Annotated[bool, typer.Option("--json", help="Print the result as JSON on stdout.")] = False,
) -> None:
    """Make a plan as small as can be that still finds the same; it is written beside the run's own.

    The plan of a described system is run on its nodes, each candidate until a sequential test has decided whether enough of its runs show the finding.
    """
    from tribunal.harness.campaign.confirm import on_kind
    from tribunal.harness.campaign.shrink import NotFound, Shrinker, processes_of, rate_of, records_of
    from tribunal.results.report.minimal import FILE, STORY, keep_story

    where = place(master, remote, python, with_packages=with_packages)
    if signature is None:
        must_have_found(run)
    path = run / "plan.json" if run.is_dir() else run
    plan = read_plan(path)
    is_real = bool(plan.spec.system)
    plan = on_kind(plan, plan.cluster) if is_real else in_simulator(path)
    budget_s = duration(budget or ("10m" if is_real else "60s"), plan.spec).most_ms / 1000
    wanted = None if signature is None else signature_named(signature)
    runners: AbstractContextManager[Runner]
    if is_real:
        wanted = wanted or first_signature(run)
        runners = repeated_at(where, jobs, wanted, share, confidence, _say)
    elif share is not None or confidence is not None:
        raise UsageError("--share and --confidence: are for described systems; a simulated run shows it or does not")
    else:
        runners = runner_at(where, jobs)
    path.with_name(STORY).unlink(missing_ok=True)  # of another shrinking
    folders = folder_of_runs("shrink", _say) if is_real else Scratch("shrink", in_memory=True)
    with folders as scratch, runners as runner:
        shrinker = Shrinker(scratch, signature=wanted, runner=runner, budget_s=budget_s, notify=_say)
        last = f"; then {FRESH} runs of the smallest, to say how often it shows" if is_real else ""
        _say(f"the plan itself, once more; then smaller ones, for {budget_s:.0f} s at most{last}")
        try:
            small = shrinker.shrink(plan)
        except NotFound as problem:
            echo(f"tribunal: {problem}", err=True)
            raise typer.Exit(EXIT_ERROR) from None
        if small.result.folder is not None:
            keep_story(small.result.folder, path.parent, shrinker.signature)
        target = path.with_name(FILE)
        target.write_bytes(encoded(msgspec.structs.replace(small.plan, scenario=plan.scenario)))
        repeated = again(runner, small.plan, scratch) if not small.interrupted else {}
    counts = [(processes_of if is_real else records_of)(one) for one in (plan, small.plan)]
    summary = {
        "signature": None if shrinker.signature is None else str(shrinker.signature),
        "faults": [len(plan.faults), len(small.plan.faults)],
        "calls_per_s" if is_real else "records_per_s": [rate_of(plan), rate_of(small.plan)],
        **({"processes": counts} if is_real else {"records_max": counts}),
        "nodes": [len(plan.spec.node_ids), len(small.plan.spec.node_ids)],
        "time_ms": [plan.time_ms, small.plan.time_ms],
        "tried": small.tried,
        "seconds": small.seconds,
        "interrupted": small.interrupted,
        **repeated,
        "plan": str(target),
    }
    code = EXIT_INTERRUPTED if small.interrupted else 0
    if json:
        echo(as_json(summary))
        raise typer.Exit(code)
    for name, value in summary.items():
        echo(f"{name:<14} {' -> '.join(map(str, value)) if isinstance(value, list) else value}")
    for fault in small.plan.faults:
        echo(f"  {fault.kind} {fault.target.text} for {fault.lasts_ms} ms after {fault.after_ms} ms")
    echo(f"again          tribunal run --plan {quote(str(target))}")
    raise typer.Exit(code)


def likelihood(  # noqa: PLR0917 - options
    run: Annotated[Path, typer.Argument(help="Folder of a simulated run that found something.")],
    moments: Annotated[int, typer.Option(min=2, help="From how many moments of the run.")] = 12,
    each: Annotated[int, typer.Option(min=1, help="How many runs go on from each moment.")] = 10,
    jobs: Jobs = None,
    signature: Annotated[str | None, typer.Option(help="What has to be shown; default: the first finding.")] = None,
    master: Master = None,
    remote: Remote = None,
    python: PythonThere = "",
    with_packages: WithPackages = False,
    json: Annotated[bool, typer.Option("--json", help="Print the result as JSON on stdout.")] = False,
) -> None:
    """Say how likely a finding was from each moment of its run on, and when it was sealed; the report draws it."""
    from tribunal.harness.campaign.likelihood import Measured, NotFound
    from tribunal.harness.simulated import known_of
    from tribunal.results import likelihood as kept
    from tribunal.results.report import write

    plan = read_plan(run / "plan.json")
    if not is_simulated(plan.cluster):
        raise BadScenario(f"{run} ran on {plan.cluster}: only simulated runs can be continued from their midst")
    if signature is None:
        must_have_found(run)
    end_ns = known_of(run).simulated_ns

    def said(moment: kept.Moment, number: int) -> None:
        low, high = moment.interval
        _say(
            f"{number:>3} of {moments}  from {moment.at_ns / 1e9:8.3f} s on  {moment.shown} of {moment.runs}"
            f"  ({100 * low:.0f} to {100 * high:.0f} %)"
        )

    spoke_s = time.monotonic()

    def going_on(measured: int, ended: int) -> None:
        nonlocal spoke_s
        if time.monotonic() - spoke_s > MOST_SILENCE_S:
            spoke_s = time.monotonic()
            _say(f"{measured + 1:>3} of {moments}  {ended} of {each} runs have ended")

    where = place(master, remote, python, with_packages=with_packages)
    with Scratch("likelihood", in_memory=True) as scratch, runner_at(where, jobs) as runner:
        measured = Measured(
            plan, scratch, signature=None if signature is None else signature_named(signature), each=each,
            runner=runner, notify=said, under_way=going_on,
        )  # fmt: skip
        _say("  0  the run itself, once more")
        try:
            found = measured.likelihood(moments, end_ns)
        except NotFound as problem:
            echo(f"tribunal: {problem}", err=True)
            raise typer.Exit(EXIT_ERROR) from None
    path = kept.save(found, run)
    if (run / "verdict.json").is_file():
        write(run)
    if json:
        echo(as_json(found))
        return
    echo(found.signature)
    for moment in found.moments:
        low, high = moment.interval
        bar = "#" * round(40 * moment.share)
        echo(
            f"{moment.at_ns / 1e9:9.3f} s  {moment.shown:>3} of {moment.runs:<3} {100 * low:3.0f} to {100 * high:3.0f} %  {bar}"
        )
    sealed = found.sealed_ns
    echo(
        "never sealed: chance could avert it at every moment"
        if sealed is None
        else f"sealed at {sealed / 1e9:.3f} s: from there on every run shows it"
    )
    echo(f"→ {path}")


def demo(
    mutant: Annotated[str, typer.Option(help="Which known bug.")] = "M01",
    jobs: Annotated[int, typer.Option(min=1, help="Processes at once.")] = os.cpu_count() or 1,
    out: Annotated[Path, typer.Option(help="Folder for the run that is shown.")] = Path("runs"),
    json: Annotated[bool, typer.Option("--json", help="Print the result as JSON on stdout.")] = False,
) -> None:
    """Switch a known bug on, find it, shrink it, explain it, report it; within a minute."""
    from tribunal.harness.campaign.demo import NothingFound, demonstrate

    with Scratch("demo", in_memory=True) as scratch:
        try:
            shown = demonstrate(out, scratch, jobs, _say if json else echo, mutant)
        except NothingFound as problem:
            echo(f"tribunal: {problem}", err=True)
            raise typer.Exit(EXIT_ERROR) from None
    if json:
        summary = {"run_dir": str(shown.run_dir), "story": shown.story, "seconds": shown.seconds}
        echo(as_json(summary))
        return
    for sentence in shown.story:
        echo(f"  {sentence}")
    echo(f"report {shown.run_dir / 'report.html'}")
    echo(f"again  tribunal run --plan {quote(str(shown.run_dir / 'plan.json'))}")
    echo(f"{shown.seconds} s in all")


def simulation_figures(run_dir: Path) -> dict[str, object]:
    """Return what makes a simulated run comparable: two runs of a seed agree in these, or one of them is another run."""
    from tribunal.harness.simulated import known_of

    known = known_of(run_dir)
    return {
        "seed": known.seed,
        "trace_hash": known.trace_hash,
        "recording_hash": recording_hash(run_dir),
        "event_count": known.event_count,
        "simulated_ms": known.simulated_ns // 1_000_000,
        "invariant": known.invariant,
        "run_dir": str(run_dir),
    }


class Board:
    """What a sweep has found so far: a screen on a terminal, a line now and then otherwise."""

    def __init__(self, title: str) -> None:
        self._title = title
        self._sweep = Sweep()
        self._began = time.monotonic()
        self._live = (
            Live(console=Console(stderr=True), refresh_per_second=2, transient=True, get_renderable=self._lines)
            if sys.stderr.isatty()
            else None
        )
        self._said = 0.0

    def __enter__(self) -> "Board":
        if self._live is not None:
            self._live.start()
        else:
            echo(f"{self._title}: begun", err=True)
        return self

    def __exit__(self, *error: object) -> None:
        if self._live is not None:
            self._live.stop()

    def notify(self, result: SeedResult, account: Sweep) -> None:
        """Count a seed that has ended."""
        self._sweep = account
        if self._live is None and time.monotonic() - self._said > 10:
            self._said = time.monotonic()
            echo(self._headline(), err=True)

    def say(self, line: str) -> None:
        """Say something that stays."""
        if self._live is not None:
            self._live.console.print(Text(plain(line)))
        else:
            echo(line, err=True)

    def _headline(self) -> str:
        account = self._sweep
        elapsed_s = max(time.monotonic() - self._began, 0.001)
        hours = account.simulated_ms / MS_PER_HOUR
        rate = 3600 * len(account.results) / elapsed_s
        return f"{self._title}: {len(account.results)} seeds, {hours:.2f} simulated hours, {rate:.0f} seeds/h  {counted(account.verdicts)}"

    def _lines(self) -> Group:
        lines = [Text(self._headline(), style="bold")]
        lines += [Text(line) for line in finding_lines(self._sweep)]
        lines += [Text(f"probe    {name} {count}") for name, count in self._sweep.probes.most_common(SHOWN)]
        return Group(*lines)


def finding_lines(account: Sweep) -> list[str]:
    """Return the findings, and why nothing could be said of a seed, the most frequent first, with their first seeds."""
    return [
        *_ranked("finding", {str(one): results for one, results in account.findings.items()}),
        *_ranked("unclear", account.unclear),
    ]


def _ranked(word: str, groups: Mapping[str, Sequence[SeedResult]]) -> list[str]:
    ranked = sorted(groups.items(), key=lambda item: -len(item[1]))
    return [
        f"{word}  {len(results)} x {name}  ({', '.join(result.name for result in results[:5])})"
        for name, results in ranked[:SHOWN]
    ]


def _plans(
    scenarios: Sequence[Scenario], seeds: range, time_text: str | None, mutants: tuple[str, ...]
) -> Iterator[Plan]:
    """Return a plan per seed and scenario, seed by seed: a budget that ends early has seen all scenarios.

    Raises:
        BadScenario: one of them cannot be run so; it is named before the first of them has begun.
    """

    def planned(scenario: Scenario, seed: int) -> Plan:
        time_ms = None if time_text is None else duration(time_text, scenario.spec).most_ms
        try:
            return made(scenario, seed=seed, cluster=SIMULATED, time_ms=time_ms, mutants=mutants)
        except BadScenario as problem:
            raise BadScenario(f"scenario {scenario.name}: {problem}") from None

    for scenario in scenarios:
        for seed in seeds[:1]:
            planned(scenario, seed)
    return (planned(scenario, seed) for seed in seeds for scenario in scenarios)


def _seeds(text: str) -> range:
    first, colon, end = text.partition(":")
    if not first.isdecimal() or (colon and not end.isdecimal()) or max(len(first), len(end)) > SEED_DIGITS:
        shown = text if len(text) <= 2 * SEED_DIGITS else f"{text[:SEED_DIGITS]}…"
        raise BadScenario(
            f"seeds {shown!r}: write first:end, e.g. 0:5000, or one number, of {SEED_DIGITS} digits at most"
        )
    seeds = range(int(first), int(end) if colon else int(first) + 1)
    if not seeds:
        raise BadScenario(f"seeds {text!r}: no seed; write first:end, the end behind the last one")
    return seeds


def _report(
    account: Sweep, kept: dict[Signature, list[str]], guards: Guards, table: str, *, json: bool, interrupted: bool
) -> None:
    cold = cold_guards(guards_table(account, guards))
    violations = account.verdicts[Verdict.VIOLATION.value]
    bound = upper_bound(answered(account.verdicts), violations)
    if json:
        content = {
            "seeds": len(account.results),
            "simulated_hours": account.simulated_ms / MS_PER_HOUR,
            "verdicts": dict(account.verdicts),
            "findings": {str(one): [result.name for result in found] for one, found in account.findings.items()},
            "inconclusive": {why: [result.name for result in results] for why, results in account.unclear.items()},
            "kept": {str(one): folders for one, folders in kept.items()},
            "recordings": {result.name: result.recording_hash for result in account.results},
            "probes": dict(account.probes),
            "guards": {"known": len(guards.known), "cold": cold, "table": table},
            "upper_bound_95": bound,
            "interrupted": interrupted,
        }
        echo(as_json(content))
        return
    hours = account.simulated_ms / MS_PER_HOUR
    if interrupted:
        echo("interrupted; what had ended by then:")
    echo(f"{len(account.results)} seeds, {hours:.2f} simulated hours, {counted(account.verdicts)}")
    echo(
        f"violations {violations}; with 95 % confidence at most {100 * bound:.3g} % of the runs with an answer have one"
    )
    for line in finding_lines(account):
        echo(line)
    for one, folders in kept.items():
        echo(f"kept     {one}: {', '.join(folders)}")
    for name, count in account.probes.most_common():
        echo(f"probe    {name} {count}")
    echo(f"guards   {len(guards.known) - len(cold)} of {len(guards.known)} reached; all of them: {table}")
