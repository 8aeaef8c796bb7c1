"""Faults that overlap, and one of them fails: it is noticed at once, the others are healed, and each failure is named."""

import asyncio
from collections.abc import AsyncGenerator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path

import msgspec
import pytest

from tribunal.clusters.api import ClusterError, NotServing
from tribunal.clusters.endings import all_done, failure_of
from tribunal.clusters.simulated.guard import sealed
from tribunal.clusters.simulated.world import Simulation
from tribunal.harness.evidence.bundle import Bundle
from tribunal.harness.evidence.verify import Stated, _of_faults, _of_schedule
from tribunal.harness.plan import ExecutedFault, Plan, encoded, made, read_schedule
from tribunal.harness.progress import Silent
from tribunal.harness.run import Run
from tribunal.harness.scenario import scenario
from tribunal.harness.simulated import conduct_simulated
from tribunal.nemesis.api import Effect, Fault, FaultTarget, Proof
from tribunal.nemesis.triggers import parse_trigger
from tribunal.results.not_started import Attempt
from tribunal.results.verdict import Verdict

LONG_MS = 20_000


class NoOptions(msgspec.Struct, frozen=True):
    """Nothing to choose."""


def fault(said: list[str], name: str, *, problem: str | None = None, cannot_begin: bool = False) -> object:
    """Return a fault that says when it healed, or does not heal, or cannot even be injected."""

    @asynccontextmanager
    async def inject(cluster: FaultTarget, node: int, options: NoOptions) -> AsyncGenerator[Effect]:
        if cannot_begin:
            raise ClusterError(f"{problem}")
        effect = Effect(node, Proof(holds=True, facts={}))
        yield effect
        if problem is not None:
            raise ClusterError(problem)
        said.append(name)
        effect.heal = Proof(holds=True, facts={})

    typed: Callable[[FaultTarget, int, NoOptions], AbstractAsyncContextManager[Effect]] = inject
    return Fault(options=NoOptions, inject=typed)


def a_plan() -> Plan:
    """Return one with a long fault, while which a short one comes and goes."""
    content = {
        "scenario": "small",
        "cluster": {"controllers": 1},
        "workload": {"name": "produce-consume", "partitions": 1, "rate": 10, "readers": 0},
        "time": "1s",
        "warm_up": "10ms",
        "steps": [
            {"pause": "broker 1", "for": f"{LONG_MS}ms"},
            {"kill": "broker 2", "for": "300ms", "after": "100ms", "meanwhile": True},
        ],
    }
    return made(scenario(content), seed=1, cluster="simulated", time_ms=None, mutants=())


def lines(folder: Path) -> dict[str, ExecutedFault]:
    read = (
        msgspec.json.decode(line, type=ExecutedFault) for line in (folder / "schedule.jsonl").read_bytes().splitlines()
    )
    return {line.kind: line for line in read}


@pytest.mark.parametrize("cannot_begin", [False, True])
def test_a_later_fault_that_fails_ends_the_earlier_one_which_heals(tmp_path, monkeypatch, cannot_begin):
    said: list[str] = []
    short = fault(said, "kill", problem="it does not heal", cannot_begin=cannot_begin)
    monkeypatch.setattr("tribunal.harness.run.faults", lambda: {"pause": fault(said, "pause"), "kill": short})

    ending, _ = conduct_simulated(a_plan(), tmp_path, Silent())

    assert ending.failure == "it does not heal"
    assert said == ["pause"]
    known = lines(tmp_path)
    assert known["pause"].broken_off
    assert known["pause"].lasted_ms < 1_000
    assert known["kill"].broken_off is cannot_begin


def test_each_of_several_failures_is_named(tmp_path, monkeypatch):
    both = {kind: fault([], kind, problem=f"{kind} does not heal") for kind in ("pause", "kill")}
    monkeypatch.setattr("tribunal.harness.run.faults", lambda: both)

    ending, _ = conduct_simulated(a_plan(), tmp_path, Silent())

    assert ending.failure == "pause does not heal; kill does not heal"


def test_of_several_works_each_is_done_and_each_failure_named_once():
    done = []

    async def work(name: str, problem: str | None = None) -> str:
        await asyncio.sleep(0.001 if problem else 0.01)
        if problem is not None:
            raise ClusterError(problem)
        done.append(name)
        return name

    assert asyncio.run(all_done([work("a"), work("b")])) == ["a", "b"]
    with pytest.raises(ClusterError, match=r"^no disk; no power$"):
        asyncio.run(all_done([work("a", "no disk"), work("late"), work("b", "no power"), work("c", "no disk")]))
    assert done[-1] == "late"


def differences(run_dir: Path) -> list[str]:
    """Return what verification says of a run's faults, in its schedule and in its plan."""
    content = Bundle(
        run_id="", verdict=Verdict.PASS, claim="", findings={}, commit="", lock_sha256="", python="", files=[]
    )
    return [*_of_schedule(content, Stated(run_dir)), *_of_faults(content, Stated(run_dir))]


def rewritten(run_dir: Path, **changes: object) -> None:
    """Let every line of a schedule say something else."""
    written = [msgspec.structs.replace(line, **changes) for line in lines(run_dir).values()]
    (run_dir / "schedule.jsonl").write_bytes(b"\n".join(map(msgspec.json.encode, written)))


def not_serving(node: int) -> NotServing:
    attempt = Attempt(started_ns=1, seen_ns=2, how="silent")
    return NotServing(f"node {node} does not start", node=node, within_ms=1, attempt=attempt)


@pytest.mark.parametrize(("problems", "raised"), [
    pytest.param([], None, id="nothing"),
    pytest.param([ClusterError("a"), ZeroDivisionError("bug")], ZeroDivisionError, id="a bug before all else"),
    pytest.param([not_serving(1), not_serving(2)], NotServing, id="nodes that are down keep no run from going on"),
    pytest.param([not_serving(1), ClusterError("a link is cut")], ClusterError, id="what was not undone does"),
])  # fmt: skip
def test_what_is_raised_of_several_failures(problems, raised):
    found = failure_of([None, *problems, "a result"])

    assert (None if found is None else type(found)) is raised
    if raised is ClusterError:
        assert str(found) == "node 1 does not start; a link is cut"


async def interrupted(run: Run, is_time: Callable[[Run], bool]) -> None:
    running = asyncio.ensure_future(run.execute())
    while not running.done():
        if is_time(run):
            running.cancel()
            break
        await asyncio.sleep(0.02)
    assert (await running).interrupted


def test_a_fault_that_was_broken_off_stands_in_the_schedule(tmp_path):
    """Who reads the archive sees that it struck, verification takes it as it is, and whoever repeats it gives it all of its time."""
    plan = a_plan()
    run_dir = tmp_path / "20260101T000000Z-small-simulated-1"
    run_dir.mkdir()

    with sealed(Simulation(plan.seed)) as simulation:
        simulation.run(interrupted(Run(plan, run_dir, Silent()), lambda run: len(run._lasting) == 2))

    known = lines(run_dir)
    assert known["pause"].broken_off
    assert known["pause"].lasted_ms < LONG_MS
    assert differences(run_dir) == []
    again = {one.kind: one for one in read_schedule(run_dir / "schedule.jsonl").faults}
    assert again["pause"].lasts_ms == LONG_MS

    rewritten(run_dir, broken_off=False)
    assert any("lasted_ms" in line for line in differences(run_dir))

    (run_dir / "schedule.jsonl").write_bytes(b"")  # as earlier versions had it, of a run that was interrupted
    assert differences(run_dir) == []


def test_a_fault_that_was_never_healed_in_a_run_that_came_to_its_end_has_its_line(tmp_path, monkeypatch):
    """Its node did not start again, and the run went on: whoever takes the line out is found out."""

    @asynccontextmanager
    async def inject(cluster: FaultTarget, node: int, options: NoOptions) -> AsyncGenerator[Effect]:
        yield Effect(node, await cluster.kill(node))
        raise not_serving(node)

    monkeypatch.setattr("tribunal.harness.run.faults", lambda: {"kill": Fault(options=NoOptions, inject=inject)})
    plan = a_plan()
    (_, short) = plan.faults
    alone = msgspec.structs.replace(short, index=0, meanwhile=False)

    ending, _ = conduct_simulated(msgspec.structs.replace(plan, faults=(alone,)), tmp_path, Silent())

    assert ending.failure is None
    assert Stated(tmp_path).faults[0].healed_ns is None
    assert differences(tmp_path) == []

    (tmp_path / "schedule.jsonl").write_bytes(b"")
    assert differences(tmp_path) == ["schedule.jsonl: fault 0: is missing, the recording has it"]


def test_a_fault_that_came_without_its_trigger_is_no_difference_and_a_whole_one_called_broken_off_is(tmp_path):
    plan = a_plan()
    never = parse_trigger("|isr(p0)| = 1", plan.spec, 1)
    (_, short) = plan.faults
    alone = msgspec.structs.replace(short, index=0, meanwhile=False, when=never, wait_ms=100)

    ending, _ = conduct_simulated(msgspec.structs.replace(plan, faults=(alone,)), tmp_path, Silent())

    assert ending.failure is None
    assert lines(tmp_path)["kill"].when == ""
    assert differences(tmp_path) == []

    rewritten(tmp_path, broken_off=True)
    assert [line.split(": ")[2] for line in differences(tmp_path)] == ["broken_off"]


def test_a_plan_that_somebody_took_faults_out_of_by_hand_is_verified_by_its_indices(tmp_path):
    plan = a_plan()
    (_, short) = plan.faults
    alone = msgspec.structs.replace(short, index=7, meanwhile=False)

    conduct_simulated(msgspec.structs.replace(plan, faults=(alone,)), tmp_path, Silent())

    assert lines(tmp_path)["kill"].index == 7
    assert differences(tmp_path) == []

    other = msgspec.structs.replace(plan, faults=(msgspec.structs.replace(alone, index=0),))
    (tmp_path / "plan.json").write_bytes(encoded(other))
    assert [line for line in differences(tmp_path) if line.startswith("plan.json: faults: 7 (kill) is missing")]
