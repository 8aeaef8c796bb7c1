"""A run inside the simulator: the same conductor on a simulated loop, and what only a simulation knows of a run.

`simulation.json` stands beside the recording: the trace hash with its checkpoints (two runs of a seed are the same if they
agree), events, virtual time, probes, and the invariant that was violated, if one was.
"""

import importlib
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Final

import msgspec
import pyarrow as pa

from replog.wire.apis import BROKER_APIS, CONTROLLER_APIS, known_versions, request_type, response_type
from replog.wire.decoder import decoder_for
from replog.wire.encoder import encoder_for
from replog.wire.layout import layout_of
from replog.wire.records.metadata import METADATA_RECORDS
from tribunal.checkers.api import properties
from tribunal.clusters.api import Cluster
from tribunal.clusters.simulated.cluster import SimulatedCluster
from tribunal.clusters.simulated.guard import sealed
from tribunal.clusters.simulated.rare_states import known_rare_states
from tribunal.clusters.simulated.violation import Violated
from tribunal.clusters.simulated.world import Simulation
from tribunal.harness.catalog import all_workloads, faults
from tribunal.harness.liveness import Liveness
from tribunal.harness.plan import Plan, chance
from tribunal.harness.progress import Progress
from tribunal.harness.run import Ending, Run, commit, lock_sha256
from tribunal.harness.scenario import BadScenario
from tribunal.harness.switches import switched_on
from tribunal.results.unreadable import UNREADABLE
from tribunal.results.violation import Violation
from tribunal.results.words import of_violation

FILE: Final = "simulation.json"
TRACE: Final = "trace.msgpack"


class SimulatedRun(msgspec.Struct, frozen=True, kw_only=True):
    """What a simulation knows of its run.

    quorum_epoch:   at the end: it grows only by elections, so it says how stable the quorum was (I15, I16).
    leader_epochs:  the sum over all partitions at the end, the same figure for brokers (M24).
    isolated_epoch_growth, isolated_leader_ms, needless_elections:  I15 and I16, see `clusters/simulated/stability.py`.
    lone_leader_ms:  the longest time that a leader alone in its ISR did not commit what it had, see `clusters/simulated/lone_leaders.py`.
    invariant, violation:  which invariant was violated, and how in words; violated: the facts.
    unreached:      the rare states that nodes of this mode can count (`probes`) and that this run did not reach.
    crossed:        which faults held a message over an event in somebody's life, by their index in the plan.
    entered:        whether code of a known bug that was switched on was called at all.
    checkpoints:    the running trace hash after each block of events: where two runs part can be seen from them.
    """

    seed: int
    trace_hash: str
    event_count: int
    message_count: int
    simulated_ns: int
    cpu_ns: int
    invariant: str | None
    violation: str | None
    violated_at_event: int | None
    violated: Violation | None = None
    probes: dict[str, int]
    quorum_epoch: int = 0
    leader_epochs: int = 0
    isolated_epoch_growth: int = 0
    isolated_leader_ms: int = 0
    needless_elections: int = 0
    lone_leader_ms: int = 0
    unreached: list[str] = []
    crossed: list[int] = []
    entered: bool = True
    checkpoints: list[str] = []


def warm_up() -> None:
    """Load and compile what every run needs, so that processes forked from this one begin at once.

    Starts no thread: a fork would lose it.
    """
    for module in ("tribunal.harness.cli.session", "tribunal.checkers.judge.verdict", "tribunal.results.report"):
        importlib.import_module(module)
    properties()
    all_workloads()
    faults()
    apis = sorted({**BROKER_APIS, **CONTROLLER_APIS})
    messages = [(of(api), known_versions(api).last) for api in apis for of in (request_type, response_type)]
    records = [(record, layout_of(record).versions.last) for record in METADATA_RECORDS.values()]
    for struct, version in messages + records:
        encoder_for(struct, version)
        decoder_for(struct, version)
    pa.array([""])  # pyarrow imports pandas with its first array
    importlib.import_module("tribunal.clusters.simulated.cluster")
    known_rare_states("kraft")
    commit()
    lock_sha256()


def conduct_simulated(
    plan: Plan, run_dir: Path, progress: Progress, prepared: Callable[[Simulation], None] = lambda simulation: None
) -> tuple[Ending, SimulatedRun]:
    """Run a plan in a simulation of its seed; writes simulation.json and trace.msgpack.

    prepared:  called before anything happens, for who wants to listen to the trace.
    """
    began_ns = time.process_time_ns()
    with switched_on(plan.spec.mutants) as entered, sealed(Simulation(plan.seed)) as simulation:
        prepared(simulation)
        if plan.drawn_anew is not None:
            simulation.loop.call_at_ns(plan.drawn_anew.at_ns, simulation.loop.draw_anew, plan.drawn_anew.seed)
        run = Run(plan, run_dir, progress)
        run.heal = partial(_asked_for_progress, run)
        ending: Ending = simulation.run(run.execute())
        known = _known(plan, simulation, time.process_time_ns() - began_ns, is_entered=entered.at_all)
        known = msgspec.structs.replace(known, crossed=sorted(run.crossed))
    (run_dir / TRACE).write_bytes(msgspec.msgpack.encode(simulation.loop.trace.content()))
    (run_dir / FILE).write_bytes(msgspec.json.format(msgspec.json.encode(known), indent=2) + b"\n")
    return ending, known


async def _asked_for_progress(run: Run, cluster: Cluster) -> None:
    assert isinstance(cluster, SimulatedCluster)
    liveness = Liveness(cluster, chance(run.plan.seed, "core"), run.cut_off)
    await liveness.core_progresses(run.load.written_throughout())
    await liveness.all_join()
    await liveness.readers_are_served(run.load.written_throughout())


def known_of(run_dir: Path) -> SimulatedRun:
    """Read simulation.json; `BadScenario` when the folder has none that can be read."""
    try:
        return msgspec.json.decode((run_dir / FILE).read_bytes(), type=SimulatedRun)
    except OSError as problem:
        raise BadScenario(f"{run_dir}: not the folder of a simulated run: {problem.strerror}") from None
    except UNREADABLE as problem:
        raise BadScenario(f"{run_dir / FILE}: {problem}") from None


def _known(plan: Plan, simulation: Simulation, cpu_ns: int, *, is_entered: bool) -> SimulatedRun:
    violation = _violation(simulation)
    cluster = simulation.cluster if isinstance(simulation.cluster, SimulatedCluster) else None
    state = cluster.committed.state if cluster else None
    stability = cluster.watch.stability if cluster else None
    probes: dict[str, int] = {}
    for (name, _), count in sorted(simulation.probes.counts.items()):
        probes[name] = probes.get(name, 0) + count
    return SimulatedRun(
        seed=plan.seed,
        trace_hash=simulation.loop.trace_hash(),
        event_count=simulation.loop.event_count,
        message_count=simulation.network.message_count,
        simulated_ns=simulation.loop.now_ns,
        cpu_ns=cpu_ns,
        invariant=violation.invariant if violation else None,
        violation=of_violation(violation.violation) if violation else None,
        violated=violation.violation if violation else None,
        violated_at_event=violation.event_count if violation else None,
        probes=probes,
        unreached=[name for name in known_rare_states(plan.mode) if name not in probes],
        quorum_epoch=state.quorum_epoch if state else 0,
        leader_epochs=sum(partition.leader_epoch for partition in state.partitions.values()) if state else 0,
        isolated_epoch_growth=stability.isolated_epoch_growth if stability else 0,
        isolated_leader_ms=stability.isolated_leader_ms if stability else 0,
        needless_elections=stability.needless_elections if stability else 0,
        lone_leader_ms=cluster.watch.lone_leaders.stalled_ms if cluster else 0,
        entered=is_entered,
        checkpoints=list(simulation.loop.trace.checkpoints),
    )


def _violation(simulation: Simulation) -> Violated | None:
    cluster = simulation.cluster
    return cluster.watch.violation if isinstance(cluster, SimulatedCluster) else None
