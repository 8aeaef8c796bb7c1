"""The `tribunal` command: run, check, report, list.

Exit codes: 0 PASS and PERMITTED (1 for PERMITTED with --strict), 1 VIOLATION, 2 INCONCLUSIVE, 3 ERROR, 64 wrong
usage, 130 interrupted. What went wrong is one clear line on stderr; verdicts go to stdout.
"""

import signal
import sys
import traceback
from collections.abc import Mapping, Sequence
from importlib.metadata import distribution
from pathlib import Path
from types import MappingProxyType
from typing import Annotated, Final, NoReturn

import msgspec
import typer

from tribunal.checkers.spark.java import NoJava
from tribunal.checkers.spark.session import NoSpark
from tribunal.clusters.api import ClusterError
from tribunal.harness.catalog import KINDS, Unknown, is_simulated, listing, mutant_named, scenario_file
from tribunal.harness.cli.calibrate import calibrate
from tribunal.harness.cli.complete import kinds, named
from tribunal.harness.cli.confirm import confirm
from tribunal.harness.cli.evidence import bisect, bundle, diff, publish, verify
from tribunal.harness.cli.explain import explain
from tribunal.harness.cli.explore import explore_
from tribunal.harness.cli.findings import findings
from tribunal.harness.cli.histories import export_history, import_history
from tribunal.harness.cli.make import new
from tribunal.harness.cli.museum import museum
from tribunal.harness.cli.night import merge, nightly
from tribunal.harness.cli.pages import report, serve
from tribunal.harness.cli.safety import clean, doctor, heal
from tribunal.harness.cli.screen import one_screen
from tribunal.harness.cli.search import search
from tribunal.harness.cli.session import conduct
from tribunal.harness.cli.simulate import demo, likelihood, power, replay, shrink, simulation_figures, sweep
from tribunal.harness.cli.stored import at_hand
from tribunal.harness.cli.trends import trends
from tribunal.harness.cli.up import up
from tribunal.harness.cli.usage import UsageError, known_engine, must_be_folder, must_not_be_file, spark_at
from tribunal.harness.event_loop import leave
from tribunal.harness.plan import Plan, made, must_be_possible, read_plan, read_schedule
from tribunal.harness.scenario import BadScenario, duration, load
from tribunal.harness.terminal import as_json, echo
from tribunal.results.plugins import BadPlugin
from tribunal.results.recording import DamagedRecording
from tribunal.results.storage import BadUrl, NoStorage, Storage, is_url
from tribunal.results.verdict import EXIT_ERROR, EXIT_INTERRUPTED, EXIT_USAGE, NoVerdict, RunVerdict, worst

DISTRIBUTION: Final = "replog"
RUNS: Final = Path("runs")

app = typer.Typer(
    no_args_is_help=True,
    context_settings={"help_option_names": ["-h", "--help"]},
    pretty_exceptions_enable=False,
)

Mutants = Annotated[
    list[str] | None, typer.Option(help="Switch a known bug back on, e.g. M44.", autocompletion=named("mutants"))
]
Json = Annotated[bool, typer.Option("--json", help="Print the result as JSON on stdout.")]
Engine = Annotated[str, typer.Option(help="Who judges: spark, inline or spark-sql.")]
Strict = Annotated[bool, typer.Option("--strict", help="Exit with 1 also when a loss was permitted.")]
Out = Annotated[
    str,
    typer.Option(help="Folder that the run's folder is made in, or a URL that it is copied to, as s3://BUCKET/RUNS."),
]


def _say_version(*, wanted: bool) -> None:
    if wanted:
        found = distribution(DISTRIBUTION)
        python = ".".join(map(str, sys.version_info[:3]))
        echo(f"tribunal {found.version} (of the distribution {found.name}, Python {python})")
        raise typer.Exit


@app.callback()
def every_command(
    *,
    version: Annotated[
        bool, typer.Option("--version", help="Print the version and exit.", callback=_say_version, is_eager=True)
    ] = False,
) -> None:
    """Puts a replicated log on trial: runs clusters, injects faults, judges what clients saw."""


@app.command()
def run(  # noqa: PLR0917 - options
    scenario: Annotated[
        str | None, typer.Argument(help="Name of a scenario, or a .yaml file.", autocompletion=named("scenarios"))
    ] = None,
    cluster: Annotated[str, typer.Option(help="Kind of cluster.", autocompletion=named("clusters"))] = "processes",
    mode: Annotated[str | None, typer.Option(help="kraft or zookeeper; default: the scenario's.")] = None,
    seed: Annotated[int | None, typer.Option(min=0, help="Seed of every choice; default: a new one.")] = None,
    time: Annotated[str | None, typer.Option(help="How long faults go on, e.g. 45s; default: the scenario's.")] = None,
    mutant: Mutants = None,
    set_: Annotated[list[str] | None, typer.Option("--set", help="Override the scenario: name=value.")] = None,
    plan: Annotated[Path | None, typer.Option(help="Run this plan.json again.")] = None,
    schedule: Annotated[Path | None, typer.Option(help="Run this executed schedule.jsonl again.")] = None,
    out: Out = str(RUNS),
    engine: Engine = "spark",
    strict: Strict = False,
    keep_nodes: Annotated[bool, typer.Option("--keep-nodes", help="Keep nodes' disks also when all is well.")] = False,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Plain lines also on a terminal.")] = False,
    json: Json = False,
) -> None:
    """Run a scenario against a cluster, judge what was recorded, and report it."""
    known_engine(engine)
    chosen = _plan(scenario, cluster, seed, time, mutant or [], in_mode(set_ or [], mode), plan, schedule)
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


def _is_stored(run_dir: Path, storage: Storage) -> bool:
    """Put a run into storage; what keeps it from that does not change its verdict."""
    try:
        where = storage.put(run_dir, storage.free(run_dir.name))
    except NoStorage as problem:
        echo(f"tribunal: {problem}; the run is in {run_dir}", err=True)
        return False
    echo(f"stored    {where}", err=True)  # stdout is the verdict's
    return True


@app.command()
def check(
    runs: Annotated[list[str], typer.Argument(help="Folders of runs, or their URLs, such as s3://BUCKET/RUN.")],
    engine: Engine = "spark",
    master: Annotated[str | None, typer.Option(help="Spark to judge with: local[N] or spark://HOST:PORT.")] = None,
    remote: Annotated[str | None, typer.Option(help="Spark Connect to judge with: sc://HOST:PORT.")] = None,
    strict: Strict = False,
    json: Json = False,
) -> None:
    """Judge recordings again, all in one job; writes each run's verdict.json, but leaves what a URL names as it is."""
    from tribunal.checkers.judge.verdict import check as judge

    known_engine(engine)
    cluster = _spark_at(engine, master, remote)
    urls = [run for run in runs if is_url(run)]
    afar = bool(urls) and cluster is not None and not cluster.startswith("local")
    if afar and engine == "spark-sql":
        raise UsageError(f"{urls[0]}: with spark-sql {cluster} itself would have to read it: take --engine spark")
    for run in runs:
        if not is_url(run):
            must_be_folder(Path(run))
    with at_hand(runs, afar=afar) as (folders, stored):
        verdicts = judge(folders, engine, cluster, unwritten=_unwritten, stored=stored)
        _show(verdicts, json=json, run_dirs=folders, names=runs)
    raise typer.Exit(worst(verdict.verdict for verdict in verdicts).exit_code(strict=strict))


def _unwritten(path: Path, problem: OSError) -> None:
    echo(f"tribunal: {path} was not written, the verdict stands: {problem.strerror or problem}", err=True)


app.command()(report)
app.command()(serve)
app.command()(sweep)
app.command()(search)
for command in (power, replay, shrink, likelihood, demo, explain):
    app.command()(command)
app.command()(nightly)
app.command()(merge)
app.command()(trends)
app.command()(museum)
app.command()(calibrate)
app.command("explore")(explore_)
app.command()(new)
app.command()(bundle)
app.command()(verify)
app.command()(publish)
app.command()(diff)
app.command()(bisect)
app.command("import")(import_history)
app.command("export")(export_history)
app.command()(confirm)
app.command()(up)
app.command()(doctor)
app.command()(heal)
app.command()(clean)
app.add_typer(findings, name="findings")


@app.command("list")
def list_(
    kind: Annotated[str, typer.Argument(help=", ".join(KINDS), autocompletion=kinds)],
    json: Json = False,
) -> None:
    """List what there is: scenarios, faults, workloads, checkers, mutants or clusters."""
    found = listing(kind)
    if json:
        echo(as_json(found))
        return
    width = max(map(len, found), default=0)
    for name, about in found.items():
        echo(f"{name:<{width}}  {about}")


def _plan(
    scenario: str | None,
    cluster: str,
    seed: int | None,
    time: str | None,
    mutants: Sequence[str],
    settings: Sequence[str],
    plan: Path | None,
    schedule: Path | None,
) -> Plan:
    """Return the plan that the options ask for."""
    if sum(given is not None for given in (scenario, plan, schedule)) != 1:
        raise UsageError("name a scenario, or give --plan or --schedule")
    switched_on = tuple(mutant_named(name) for name in mutants)
    if scenario is None:
        again = read_plan(plan) if plan is not None else read_schedule(schedule or Path())
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


def _spark_at(engine: str, master: str | None, remote: str | None) -> str | None:
    found = spark_at(master, remote)
    if found is not None and engine == "inline":
        raise UsageError("--engine inline needs no Spark: leave --master and --remote away")
    return found


def _show(
    verdicts: Sequence[RunVerdict],
    *,
    json: bool,
    run_dirs: Sequence[Path],
    names: Sequence[str] | None = None,
    plan: Plan | None = None,
    extra: Mapping[str, object] = MappingProxyType({}),
) -> None:
    """Print verdicts; `names` are what folders are called that are only copies."""
    if json:
        contents = [{**msgspec.to_builtins(verdict), **extra} for verdict in verdicts]
        echo(as_json(contents[0] if len(contents) == 1 else contents))
        return
    for verdict, folder, name in zip(verdicts, run_dirs, names or map(str, run_dirs), strict=True):
        text = one_screen(verdict, folder, plan)
        echo(text if name == str(folder) else _of_a_copy(text, folder, name))


def _of_a_copy(text: str, folder: Path, url: str) -> str:
    """Return what is shown of a run whose folder here is gone by then: no line names a file of it."""
    lines = [line for line in text.splitlines() if str(folder) not in line]
    more = f"  more: --json, or a copy of {url} on this machine"
    return "\n".join(lines if len(lines) == len(text.splitlines()) else [*lines, more])


def main(arguments: Sequence[str] | None = None) -> NoReturn:
    """Run the command and end the process with the right exit code; SIGTERM ends it in good order, as Ctrl-C does."""
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    leave(exit_code(sys.argv[1:] if arguments is None else list(arguments)))


def exit_code(arguments: Sequence[str]) -> int:
    """Run the command; return its exit code, with what went wrong said in one line."""
    try:
        code = app(list(arguments), standalone_mode=False)
    except UsageError as problem:
        return _failed(problem.format_message() or "try tribunal --help", EXIT_USAGE)
    except (Unknown, BadScenario, BadPlugin, BadUrl) as problem:
        return _failed(str(problem), EXIT_USAGE)
    except (ClusterError, DamagedRecording, NoVerdict, NoJava, NoSpark, NoStorage) as problem:
        return _failed(str(problem), EXIT_ERROR)
    except OSError as problem:
        return _failed(f"{problem.filename or 'the system'}: {problem.strerror or problem}", EXIT_ERROR)
    except (KeyboardInterrupt, typer.Abort):
        return EXIT_INTERRUPTED
    except SystemExit as problem:
        if not isinstance(problem.__context__, BrokenPipeError):
            raise
        return EXIT_ERROR  # typer ends so where the reader of its output went away, with 1: that would be a VIOLATION
    except Exception:  # noqa: BLE001 - the top: a bug of ours is an ERROR, never a verdict's exit code
        echo(traceback.format_exc().rstrip("\n"), err=True)
        return _failed("this is a bug of the harness", EXIT_ERROR)
    return code if isinstance(code, int) else 0


def _failed(message: str, code: int) -> int:
    echo(f"tribunal: {message}", err=True)
    return code


if __name__ == "__main__":
    main()
