"""The commands that give a verdict: run and check."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Annotated, Final

import typer

from tribunal.harness.cli.complete import named
from tribunal.harness.cli.loading import loading
from tribunal.harness.cli.usage import UsageError, known_engine, must_be_folder, must_not_be_file, spark_at
from tribunal.harness.terminal import as_json, echo
from tribunal.results.verdict import EXIT_ERROR, EXIT_INTERRUPTED, worst

if TYPE_CHECKING:
    from tribunal.harness.plan import Plan
    from tribunal.results.storage import Storage
    from tribunal.results.verdict import RunVerdict

RUNS: Final = Path("runs")
DEFAULT_CLUSTER: Final = "processes"

Mutants = Annotated[
    list[str] | None, typer.Option(help="Switch a known bug back on, e.g. M44.", autocompletion=named("mutants"))
]
Json = Annotated[bool, typer.Option("--json", help="Print the result as JSON on stdout.")]
Engine = Annotated[
    str | None,
    typer.Option(
        help="Who judges: spark, inline or spark-sql; default: spark, of small runs of described systems inline."
    ),
]
Strict = Annotated[bool, typer.Option("--strict", help="Exit with 1 also when a loss was permitted.")]
Out = Annotated[
    str,
    typer.Option(help="Folder that the run's folder is made in, or a URL that it is copied to, as s3://BUCKET/RUNS."),
]


def run(  # noqa: PLR0917 - options
    scenario: Annotated[
        str | None, typer.Argument(help="Name of a scenario, or a .yaml file.", autocompletion=named("scenarios"))
    ] = None,
    cluster: Annotated[
        str | None, typer.Option(help="Kind of cluster; default: processes.", autocompletion=named("clusters"))
    ] = None,
    mode: Annotated[str | None, typer.Option(help="kraft or zookeeper; default: the scenario's.")] = None,
    seed: Annotated[int | None, typer.Option(min=0, help="Seed of every choice; default: a new one.")] = None,
    time: Annotated[str | None, typer.Option(help="How long faults go on, e.g. 45s; default: the scenario's.")] = None,
    mutant: Mutants = None,
    set_: Annotated[list[str] | None, typer.Option("--set", help="Override the scenario: name=value.")] = None,
    plan: Annotated[Path | None, typer.Option(help="Run this plan.json again.")] = None,
    schedule: Annotated[Path | None, typer.Option(help="Run this executed schedule.jsonl again.")] = None,
    out: Out = str(RUNS),
    engine: Engine = None,
    strict: Strict = False,
    keep_nodes: Annotated[bool, typer.Option("--keep-nodes", help="Keep nodes' disks also when all is well.")] = False,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Plain lines also on a terminal.")] = False,
    json: Json = False,
) -> None:
    """Run a scenario against a cluster, judge what was recorded, and report it."""
    if engine is not None:
        known_engine(engine)
    _one_of(scenario, plan, schedule)
    if scenario is None:
        _must_be_free(cluster=cluster, mode=mode, seed=seed, time=time, set=set_ or None)
    with loading():
        from tribunal.harness.catalog import is_simulated
        from tribunal.harness.cli.session import conduct
        from tribunal.harness.cli.simulate import simulation_figures
        from tribunal.results.storage import Storage, is_url

    chosen = _plan(
        scenario, cluster or DEFAULT_CLUSTER, seed, time, mutant or [], in_mode(set_ or [], mode), plan, schedule
    )
    storage = Storage(out) if is_url(out) else None
    if storage is not None:
        storage.must_answer()
    else:
        must_not_be_file("--out", Path(out))
    judged = conduct(chosen, Path(out) if storage is None else RUNS, engine, quiet=quiet, keep_nodes=keep_nodes)
    if judged is None:
        raise typer.Exit(EXIT_INTERRUPTED)
    extra = simulation_figures(judged.run_dir) if is_simulated(chosen.cluster) else {}
    _show([judged.verdict], json=json, run_dirs=[judged.run_dir], plan=chosen, extra=extra)
    code = judged.verdict.verdict.exit_code(strict=strict)
    raise typer.Exit(code if storage is None or _is_stored(judged.run_dir, storage) else code or EXIT_ERROR)


def _is_stored(run_dir: Path, storage: "Storage") -> bool:
    """Put a run into storage; what keeps it from that does not change its verdict."""
    from tribunal.results.storage import NoStorage

    try:
        where = storage.put(run_dir, storage.free(run_dir.name))
    except NoStorage as problem:
        echo(f"tribunal: {problem}; the run is in {run_dir}", err=True)
        return False
    echo(f"stored    {where}", err=True)  # stdout is the verdict's
    return True


def check(
    runs: Annotated[list[str], typer.Argument(help="Folders of runs, or their URLs, such as s3://BUCKET/RUN.")],
    engine: Engine = None,
    master: Annotated[str | None, typer.Option(help="Spark to judge with: local[N] or spark://HOST:PORT.")] = None,
    remote: Annotated[str | None, typer.Option(help="Spark Connect to judge with: sc://HOST:PORT.")] = None,
    strict: Strict = False,
    json: Json = False,
) -> None:
    """Judge recordings again, all in one job; writes each run's verdict.json, but leaves what a URL names as it is."""
    if engine is not None:
        known_engine(engine)
    cluster = _spark_at(engine, master, remote)
    with loading():
        from tribunal.checkers.judge.verdict import check as judge
        from tribunal.harness.cli.engines import INLINE, SPARK, WHY, engine_for
        from tribunal.harness.cli.stored import at_hand
        from tribunal.results.storage import is_url

    urls = [run for run in runs if is_url(run)]
    afar = bool(urls) and cluster is not None and not cluster.startswith("local")
    if afar and engine == "spark-sql":
        raise UsageError(f"{urls[0]}: with spark-sql {cluster} itself would have to read it: take --engine spark")
    for run in runs:
        if not is_url(run):
            must_be_folder(Path(run))
    with at_hand(runs, afar=afar) as (folders, stored):
        chosen = engine or (SPARK if cluster is not None or stored else engine_for(folders))
        if engine is None and chosen == INLINE:
            echo(WHY, err=True)
        verdicts = judge(folders, chosen, cluster, unwritten=_unwritten, stored=stored)
        _show(verdicts, json=json, run_dirs=folders, names=runs)
    raise typer.Exit(worst(verdict.verdict for verdict in verdicts).exit_code(strict=strict))


def _unwritten(path: Path, problem: OSError) -> None:
    echo(f"tribunal: {path} was not written, the verdict stands: {problem.strerror or problem}", err=True)


def _one_of(*given: object) -> None:
    """Raise `UsageError` unless a run is asked for in one way."""
    if sum(one is not None for one in given) != 1:
        raise UsageError("name a scenario, or give --plan or --schedule")


def _must_be_free(**options: object) -> None:
    """Raise `UsageError` for what a plan or a schedule says itself: it would be run as it is, whatever was asked for."""
    for name, given in options.items():
        if given is not None:
            raise UsageError(f"--{name} goes with a scenario: --plan and --schedule run again what they say")


def _plan(
    scenario: str | None,
    cluster: str,
    seed: int | None,
    time: str | None,
    mutants: Sequence[str],
    settings: Sequence[str],
    plan: Path | None,
    schedule: Path | None,
) -> "Plan":
    """Return the plan that the options ask for."""
    import msgspec

    from tribunal.harness.catalog import mutant_named, scenario_file
    from tribunal.harness.plan import made, must_be_possible, read_plan, read_schedule
    from tribunal.harness.scenario import duration, load

    switched_on = tuple(mutant_named(name) for name in mutants)
    if scenario is None:
        again = read_plan(plan) if plan is not None else read_schedule(schedule or Path())
        own = (plan or schedule or Path()).parent.resolve()
        if again.spec.system and Path(again.spec.system).is_relative_to(own):
            echo(f"system    {again.spec.system}: kept with the run; what was run is not here", err=True)
        spec = msgspec.structs.replace(again.spec, mutants=switched_on or again.spec.mutants)
        must_be_possible((planned.kind for planned in again.faults), spec, again.cluster)
        return msgspec.structs.replace(again, spec=spec)
    wanted = load(scenario_file(scenario), _overrides(settings))
    time_ms = None
    if time is not None:
        time_ms = duration(f"{time}s" if time.replace(".", "", 1).isdecimal() else time, wanted.spec).most_ms
    drawn = seed if seed is not None else fresh_seed()
    return made(wanted, seed=drawn, cluster=cluster, time_ms=time_ms, mutants=switched_on)


def in_mode(settings: Sequence[str], mode: str | None) -> list[str]:
    """Return the overrides with a mode put in."""
    return [*settings, *([] if mode is None else [f"cluster.mode={mode}"])]


def fresh_seed() -> int:
    """Return a seed nobody chose, short enough to be typed."""
    from random import SystemRandom

    return SystemRandom().randrange(1_000_000)


def _overrides(settings: Sequence[str]) -> dict[str, str]:
    found = {}
    for text in settings:
        name, equals, value = text.partition("=")
        if not equals or not name:
            raise UsageError(f"--set {text!r}: write name=value, e.g. workload.rate=200")
        found[name] = value
    return found


def _spark_at(engine: str | None, master: str | None, remote: str | None) -> str | None:
    found = spark_at(master, remote)
    if found is not None and engine == "inline":
        raise UsageError("--engine inline needs no Spark: leave --master and --remote away")
    return found


def _show(
    verdicts: "Sequence[RunVerdict]",
    *,
    json: bool,
    run_dirs: Sequence[Path],
    names: Sequence[str] | None = None,
    plan: "Plan | None" = None,
    extra: Mapping[str, object] = MappingProxyType({}),
) -> None:
    """Print verdicts; `names` are what folders are called that are only copies."""
    if json:
        import msgspec

        contents = [{**msgspec.to_builtins(verdict), **extra} for verdict in verdicts]
        echo(as_json(contents[0] if len(contents) == 1 else contents))
        return
    from tribunal.harness.cli.screen import one_screen

    for verdict, folder, name in zip(verdicts, run_dirs, names or map(str, run_dirs), strict=True):
        text = one_screen(verdict, folder, plan)
        echo(text if name == str(folder) else _of_a_copy(text, folder, name))


def _of_a_copy(text: str, folder: Path, url: str) -> str:
    """Return what is shown of a run whose folder here is gone by then: no line names a file of it."""
    lines = [line for line in text.splitlines() if str(folder) not in line]
    more = f"  more: --json, or a copy of {url} on this machine"
    return "\n".join(lines if len(lines) == len(text.splitlines()) else [*lines, more])
