"""Roles that a described system's nodes say they have, and faults that are aimed by them."""

import asyncio
import re
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.systems.judged import started
from tribunal.clusters.api import ClusterError, until
from tribunal.clusters.spec import ClusterSpec
from tribunal.clusters.systems import program
from tribunal.clusters.systems.description import BadSystem, read_system
from tribunal.harness.new import made_system
from tribunal.harness.plan import Plan, made
from tribunal.harness.scenario import BadScenario, load
from tribunal.nemesis.targets import NoTarget, Target, resolve

LEADS = 'count = 3\nroles = { leader = ["test", "-e", "{data}/leads"] }'


def described(folder: Path, roles: str = LEADS) -> Path:
    """Make the sample system with three nodes, of which one leads whose data folder says so; return its file."""
    made_system("keeper", folder)
    file = folder / "keeper" / "system.toml"
    file.write_text(file.read_text().replace("count = 1", roles))
    return file


def planned(file: Path, target: str) -> Plan:
    """Plan a kill of somebody."""
    scenario = load(file.parent / "scenario.yaml", {"steps": f"[{{kill: {target}}}]"})
    return made(scenario, seed=1, cluster="system", time_ms=None, mutants=())


def test_a_target_is_who_has_the_role_now(tmp_path: Path) -> None:
    """Whoever has it, or all others; who is down has none, and is no target."""
    file, run = described(tmp_path), tmp_path / "run"
    run.mkdir()
    spec = planned(file, "leader").spec
    leader, others = (Target(text=text, partition=None, pick=0.6) for text in ("leader", "not leader"))

    async def tried() -> Sequence[int | str]:
        cluster = await started(spec, run)

        async def having(nodes: set[int]) -> None:
            await until(
                lambda: cluster.state.roles.get("leader") == nodes, timeout_ms=20_000, what="it leads", cluster=cluster
            )

        def aimed(target: Target) -> int | str:
            try:
                return resolve(target, cluster, "")
            except NoTarget as problem:
                return str(problem)

        try:
            found = [aimed(leader)] if not cluster.state.roles else ["target 'leader' fits no node that runs"]
            await having(set())
            found.append(aimed(leader))
            await asyncio.to_thread((run / "nodes" / "2" / "data" / "leads").touch)
            await having({2})
            found += [aimed(leader), aimed(others)]
            await cluster.kill(2)
            found.append(aimed(leader))
            await having(set())
            await asyncio.to_thread((run / "nodes" / "3" / "data" / "leads").touch)
            await having({3})
            return [*found, aimed(leader), aimed(others)]
        finally:
            await cluster.close()

    nobody = "target 'leader' fits no node that runs"
    assert asyncio.run(tried()) == [nobody, nobody, 2, 3, nobody, 3, 1]
    assert isinstance(spec, ClusterSpec)


def test_a_node_that_does_not_answer_holds_up_no_other_s_answer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A leader that is paused: who leads after it is the target at once, not when the paused one has had its time."""
    hangs = "while [ -e {data}/hangs ]; do sleep 0.1; done; [ -e {data}/leads ]"
    file, run = described(tmp_path, f'count = 3\nroles = {{ leader = ["sh", "-c", "{hangs}"] }}'), tmp_path / "run"
    run.mkdir()
    spec = planned(file, "leader").spec

    async def tried() -> None:
        cluster = await started(spec, run)

        async def having(nodes: set[int]) -> None:
            await until(
                lambda: cluster.state.roles.get("leader") == nodes, timeout_ms=20_000, what="it leads", cluster=cluster
            )

        try:
            await having(set())
            await asyncio.to_thread((run / "nodes" / "1" / "data" / "hangs").touch)
            monkeypatch.setattr(program, "LOOK_MS", 600_000)
            await asyncio.to_thread((run / "nodes" / "2" / "data" / "leads").touch)
            await having({2})
            await asyncio.to_thread((run / "nodes" / "2" / "data" / "leads").unlink)
            await asyncio.to_thread((run / "nodes" / "3" / "data" / "leads").touch)
            await having({3})
        finally:
            await cluster.close()

    asyncio.run(tried())


def test_a_role_whose_program_is_missing_is_said_when_the_nodes_are_started(tmp_path: Path) -> None:
    """Nobody would ever have it, and faults that are aimed by it would wait in vain."""
    file, run = described(tmp_path, 'count = 3\nroles = { leader = ["no-such-program", "{node}"] }'), tmp_path / "run"
    run.mkdir()

    with pytest.raises(ClusterError, match="there is no program no-such-program"):
        asyncio.run(started(planned(file, "leader").spec, run))


@pytest.mark.parametrize("target", ["leader", "not leader"])
def test_a_plan_is_aimed_by_what_the_file_names(tmp_path: Path, target: str) -> None:
    """And says so in its own words."""
    plan = planned(described(tmp_path), target)

    assert [fault.target.text for fault in plan.faults if fault.kind == "kill"][:1] == [target]


@pytest.mark.parametrize(
    ("roles", "target", "words"),
    [
        pytest.param(LEADS, "primary", "none of: random node, node N, leader, not leader", id="another role"),
        pytest.param(
            "count = 3", "leader", "none of: random node, node N (others are what its file calls", id="no role"
        ),
    ],
)
def test_a_role_that_nobody_has_is_refused_when_it_is_planned(
    tmp_path: Path, roles: str, target: str, words: str
) -> None:
    """By what there is."""
    with pytest.raises(BadScenario, match=re.escape(words)):
        planned(described(tmp_path, roles), target)


def test_a_scenario_makes_up_no_roles(tmp_path: Path) -> None:
    """Nobody would be asked for them."""
    file = described(tmp_path)

    with pytest.raises(BadScenario, match="roles is said by the file of a system"):
        load(file.parent / "scenario.yaml", {"cluster.roles": "[leader]"})


@pytest.mark.parametrize(
    ("roles", "words"),
    [
        pytest.param('count = 3\nroles = { random = ["true"] }', "roles", id="a word of targets"),
        pytest.param('count = 3\nroles = { "two words" = ["true"] }', "roles", id="two words"),
        pytest.param('count = 3\nroles = { leader = [] }', "roles", id="no command"),
        pytest.param('count = 3\nroles = { leader = ["test", "{dota}"] }', "there is no {dota}", id="a placeholder"),
    ],
)  # fmt: skip
def test_a_role_that_cannot_be_asked_for_is_refused(tmp_path: Path, roles: str, words: str) -> None:
    """When the file is read."""
    with pytest.raises(BadSystem, match=words):
        read_system(described(tmp_path, roles))
