"""From a plan to a verdict in one go: the run on its event loop, then the judge, then the report.

Ctrl-C and SIGTERM end the run at the next await: nodes are killed, the recording is closed. A second one ends the
harness on the spot; nodes die with it (each asks the kernel for that), and what else there is the run's guard removes.
"""

import asyncio
import os
import shutil
import signal
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Final

import msgspec

from tribunal.checkers.spark.session import Prepared
from tribunal.clusters.api import ClusterError
from tribunal.clusters.spec import ClusterSpec
from tribunal.harness.catalog import all_clusters, is_simulated
from tribunal.harness.cli.engines import INLINE, SPARK, WHY, engine_for
from tribunal.harness.cli.meanwhile import StartsSpark
from tribunal.harness.event_loop import run_and_leave
from tribunal.harness.fault_journal import FaultJournal, refuse_unless_healed
from tribunal.harness.guard import Guard
from tribunal.harness.plan import Plan, releases
from tribunal.harness.progress import Progress, Silent, shown_on
from tribunal.harness.run import Ending, Run, new_run_dir
from tribunal.harness.terminal import echo
from tribunal.results.verdict import EXIT_INTERRUPTED, RunVerdict, Verdict

if TYPE_CHECKING:
    from tribunal.results.report.window import Window

NOTHING_TO_LOOK_INTO: Final = (Verdict.PASS, Verdict.PERMITTED)


class Judged(msgspec.Struct, frozen=True):
    """A run and what was said of it."""

    run_dir: Path
    verdict: RunVerdict


def size(spec: ClusterSpec) -> str:
    """Say how large a cluster is."""
    if spec.system:
        return f"{spec.brokers} nodes of {spec.system}"
    if spec.file:
        return f"{spec.brokers} brokers of {spec.file}  min ISR {spec.min_insync_replicas}"
    bosses = "ZooKeeper servers" if spec.is_zookeeper_mode else "controllers"
    return f"{spec.brokers} brokers {spec.controllers} {bosses}  min ISR {spec.min_insync_replicas}"


def conduct(
    plan: Plan, out: Path, engine: str | None, *, quiet: bool, keep_nodes: bool = False, is_one_of_many: bool = False
) -> Judged | None:
    """Run, judge, report; None when interrupted. Nodes' disks stay where there is something to look into, or on demand.

    engine:  who judges; None: whoever is the sooner done (`engine_for`).
    is_one_of_many:  nothing is shown meanwhile, and nobody reads a report of it.
    """
    refuse_unless_healed(out)
    all_clusters()[plan.cluster].prepare(plan.spec, releases(plan))
    run_dir = new_run_dir(plan, out)
    title = f"{plan.scenario}  {plan.cluster}  seed {plan.seed}  {size(plan.spec)}"
    if plan.spec.mutants:
        title += f"  mutants {', '.join(plan.spec.mutants)}"
    # Nodes that are simulated wait for nobody's processor.
    prepared_for = Prepared(niceness=0) if is_simulated(plan.cluster) else Prepared()
    with Silent() if is_one_of_many else shown_on(title, quiet=quiet) as progress, prepared_for as prepared:
        # Of a described system nobody knows yet how large its recording will be: most are judged before Spark has started.
        spark = prepared if (engine or (INLINE if plan.spec.system else SPARK)) == SPARK else None
        ending = _on_loop(plan, run_dir, progress if spark is None else StartsSpark(progress, spark))
        if ending.interrupted:
            progress.say(f"interrupted; what was recorded can be judged: tribunal check {quote(str(run_dir))}")
            return None
        progress.phase("check", 0)
        if engine is None and spark is None:
            engine = engine_for([run_dir])
            spark = prepared if engine == SPARK else None
            progress.say(f"         {WHY if engine == INLINE else 'a large recording: Spark judges it'}")
        if spark is not None and spark.is_starting:
            progress.say(
                "         Spark is starting; on a busy machine that takes its time (--engine inline needs none)"
            )
        verdict = judged(ending, engine or SPARK, spark)
    if not is_one_of_many:
        write_report(run_dir)
    if verdict.verdict in NOTHING_TO_LOOK_INTO and not keep_nodes:
        shutil.rmtree(run_dir / "nodes", ignore_errors=True)
    return Judged(run_dir, verdict)


def _on_loop(plan: Plan, run_dir: Path, progress: Progress) -> Ending:
    if is_simulated(plan.cluster):
        from tribunal.harness.simulated import conduct_simulated

        return conduct_simulated(plan, run_dir, progress)[0]
    with Guard(run_dir), FaultJournal(run_dir, plan.cluster) as journal:
        ending = run_and_leave(_until_signalled(plan, run_dir, progress, journal), progress.say)
    if journal.left:
        progress.say(f"left behind: {', '.join(journal.left)}; tribunal heal --out {quote(str(run_dir.parent))}")
    return ending


async def _until_signalled(plan: Plan, run_dir: Path, progress: Progress, journal: FaultJournal) -> Ending:
    loop = asyncio.get_running_loop()
    task = asyncio.create_task(Run(plan, run_dir, progress, journal).execute(), name="run")
    signals = 0

    def interrupt() -> None:
        nonlocal signals
        signals += 1
        if signals > 1:
            echo("interrupted again: leaving at once", err=True)
            os._exit(EXIT_INTERRUPTED)
        task.cancel()

    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    for number in before:
        loop.add_signal_handler(number, interrupt)
    try:
        return await task
    except asyncio.CancelledError:
        # Cancelled before it could begin, or while it closed the recording.
        return Ending(run_dir=run_dir, failure=None, interrupted=True)
    finally:
        for number, handler in before.items():
            loop.remove_signal_handler(number)
            signal.signal(number, handler)


def judged(ending: Ending, engine: str, prepared: Prepared | None = None) -> RunVerdict:
    """Judge a run; one that ended early is an ERROR, unless a violation is proven (the manifest says so)."""
    from tribunal.checkers.judge.verdict import check

    (verdict,) = check([ending.run_dir], engine, prepared=prepared)
    return verdict


def write_report(run_dir: Path, window: "Window | None" = None) -> Path:
    """Write report.html, or that of a window; `ClusterError` when the run was never judged."""
    from tribunal.results import report

    if not (run_dir / "verdict.json").is_file():
        raise ClusterError(f"{run_dir} has no verdict yet: tribunal check {run_dir}")
    path: Path = report.write(run_dir, window)
    return path
