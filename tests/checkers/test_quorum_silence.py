"""A quorum whose majority runs unhurt goes on committing: pairs of a silence that accuses and its neighbour that does not."""

from pathlib import Path
from typing import Any

import pytest

from tests.checkers.recorded import MS, Run
from tests.checkers.test_sql import agree

DIED, BACK, END = 5_000, 60_000, 62_000


class Quorum(Run):
    """Three controllers that commit a NoOpRecord twice a second; 101 is killed at 5 s and is back at 60 s."""

    def __init__(self, run_dir: Path, **settings: Any) -> None:
        super().__init__(run_dir, **settings)
        for node in (101, 102, 103):
            self.controller(node, "start", 0)

    def controller(self, node: int, event: str, at: int) -> None:
        self.recorder.row("nodes", node=node, role="controller", event=event, at_ns=at * MS)

    def commits(self, since: int, until: int) -> None:
        for at in range(since, until, 500):
            self.metadata("NoOpRecord", at)

    def dies(self, *, kind: str = "kill", lasts: int = BACK - DIED, target: str = "controller 101") -> None:
        if kind == "kill":
            self.controller(101, "killed", DIED)
            self.controller(101, "start", BACK)
        self.fault(kind, DIED, node=101, target=target, lasts=lasts)


def accused(run: Run, **manifest: Any) -> list[str]:
    """Return what kernels and SQL, which agree, say of the quorum."""
    return [kind for kind in agree(run.finish(**manifest), "control_plane") if kind == "quorum_commits_nothing"]


@pytest.fixture
def run(tmp_path: Path) -> Quorum:
    return Quorum(tmp_path / "run")


@pytest.mark.parametrize(
    ("again", "expected"),
    [
        pytest.param(BACK, ["quorum_commits_nothing"], id="until the dead one is back"),
        pytest.param(DIED + 27_000, ["quorum_commits_nothing"], id="for longer than a busy machine explains"),
        pytest.param(DIED + 19_000, [], id="for less than that"),
    ],
)
def test_two_of_three_elect(run: Quorum, again: int, expected: list[str]) -> None:
    run.commits(0, DIED)
    run.dies()
    run.commits(again, END)

    assert accused(run) == expected


@pytest.mark.parametrize(
    ("fetch_ms", "expected"), [(4_000, ["quorum_commits_nothing"]), (12_000, [])], ids=["short", "long"]
)
def test_time_outs_are_the_runs_own(tmp_path: Path, fetch_ms: int, expected: list[str]) -> None:
    names = {"controller.quorum.fetch.timeout.ms": fetch_ms, "controller.quorum.election.timeout.ms": 1_000}
    run = Quorum(tmp_path / "run", **names)
    run.commits(0, DIED)
    run.dies()
    run.commits(BACK - 5_000, END)

    assert accused(run) == expected


@pytest.mark.parametrize(
    ("target", "kind", "lasts", "expected"),
    [
        pytest.param("controller 102", "isolate", BACK - DIED, [], id="a second one was cut off all the time"),
        pytest.param("controller 102", "isolate", 25_000, ["quorum_commits_nothing"], id="it was cut off for a while"),
        pytest.param("controller 102", "isolate", 40_000, [], id="what was left was short"),
        pytest.param("broker 2", "isolate", BACK - DIED, ["quorum_commits_nothing"], id="a broker was cut off"),
        pytest.param("controller 102", "wipe", 10, [], id="a disk was emptied: it may lack its vote"),
        pytest.param("broker 2", "wipe", 10, ["quorum_commits_nothing"], id="a broker's disk was emptied"),
        pytest.param("controller 102", "clock-drift", BACK - DIED, [], id="its clock went wrong"),
        pytest.param("broker 2", "halves", BACK - DIED, [], id="the network was cut into halves"),
        pytest.param(
            "controller 102", "raise-metadata-version", 10, ["quorum_commits_nothing"], id="a level was raised"
        ),
        pytest.param("somebody", "isolate", BACK - DIED, [], id="nobody knows whom it hurt"),
    ],
)
def test_only_who_ran_unhurt_counts(run: Quorum, target: str, kind: str, lasts: int, expected: list[str]) -> None:
    run.commits(0, DIED)
    run.dies()
    run.fault(kind, DIED, node=0, target=target, lasts=lasts, index=1)
    run.commits(BACK, END)

    assert accused(run) == expected


def test_one_that_was_never_healed_counts_as_hurt(run: Quorum) -> None:
    run.commits(0, DIED)
    run.dies()
    names = {"index": 1, "kind": "isolate", "planned_target": "controller 102", "resolved_target": "controller 102"}
    run.recorder.row("faults", **names, planned_ns=DIED * MS, injected_ns=DIED * MS, took_effect=True, losses=[])
    run.commits(BACK, END)

    assert accused(run) == []


@pytest.mark.parametrize("died", [True, False], ids=["a second one ended", "it lived"])
def test_a_process_that_ended_does_not_vote(run: Quorum, died: bool) -> None:
    run.commits(0, DIED)
    run.dies()
    if died:
        run.controller(102, "exit", DIED + 10_000)
    run.commits(BACK, END)

    assert accused(run) == ([] if died else ["quorum_commits_nothing"])


@pytest.mark.parametrize(
    ("phase", "expected"),
    [
        pytest.param("heal", ["quorum_commits_nothing"], id="while everybody looked on"),
        pytest.param("final-read", [], id="in the final read the observers are stopped"),
    ],
)
def test_the_end_counts(run: Quorum, phase: str, expected: list[str]) -> None:
    run.commits(0, DIED)
    run.phase("faults", 0, DIED)
    run.phase(phase, DIED, END)

    assert accused(run) == expected


def test_without_idle_commits_silence_is_no_sign(run: Quorum) -> None:
    """Releases before 3.3 write nothing where nothing changes."""
    run.change(1_000, isr=[1, 2])
    run.dies()
    run.change(BACK, isr=[1, 2, 3])

    assert accused(run) == []


def test_in_zookeeper_mode_there_is_no_quorum(run: Quorum) -> None:
    run.commits(0, DIED)
    run.dies()
    run.commits(BACK, END)

    assert accused(run, mode="zookeeper") == []


@pytest.mark.parametrize(
    ("holder", "node", "since", "waited", "expected"),
    [
        pytest.param("node", 102, DIED + 2_000, 9_000, [], id="one of them had no processor"),
        pytest.param("node", 102, DIED + 2_000, 3_000, ["quorum_commits_nothing"], id="not for long enough"),
        pytest.param("node", 102, DIED + 28_000, 9_000, ["quorum_commits_nothing"], id="at another time"),
        pytest.param("node", 101, DIED + 2_000, 9_000, ["quorum_commits_nothing"], id="who was dead had none"),
        pytest.param("node", 2, DIED + 2_000, 9_000, ["quorum_commits_nothing"], id="a broker had none"),
        pytest.param("harness", None, DIED + 2_000, 9_000, [], id="who looks on had none"),
        pytest.param("machine", None, DIED + 2_000, 9_000, [], id="somebody else took the machine's"),
    ],
)
def test_who_waits_for_a_processor_has_longer(
    run: Quorum, holder: str, node: int | None, since: int, waited: int, expected: list[str]
) -> None:
    run.commits(0, DIED)
    run.dies()
    run.commits(DIED + 27_000, END)
    span = {"since_ns": since * MS, "until_ns": (since + 10_000) * MS}
    run.recorder.row("waits", holder=holder, node=node, waited_ns=waited * MS, **span)

    assert accused(run) == expected


@pytest.mark.parametrize(
    ("until", "expected"),
    [
        pytest.param(
            [DIED + 12_000] * 2, ["quorum_commits_nothing"], id="two at the same time: one of them has the turn"
        ),
        pytest.param([DIED + 12_000, DIED + 22_000], [], id="one after the other"),
    ],
)
def test_who_waits_beside_another_adds_nothing(run: Quorum, until: list[int], expected: list[str]) -> None:
    run.commits(0, DIED)
    run.dies()
    run.commits(DIED + 27_000, END)
    for node, end in zip((102, 103), until, strict=True):
        span = {"since_ns": (end - 10_000) * MS, "until_ns": end * MS}
        run.recorder.row("waits", holder="node", node=node, waited_ns=4_000 * MS, **span)

    assert accused(run) == expected


@pytest.mark.parametrize(("kind", "healed", "undone", "expected"), [
    pytest.param("change-release", True, True, [], id="what puts nodes down before it counts as injected"),
    pytest.param("pause", True, True, ["quorum_commits_nothing"], id="what begins when it is injected"),
    pytest.param("pause", False, True, ["quorum_commits_nothing"], id="and was undone without full service"),
    pytest.param("pause", False, False, [], id="and was not undone"),
    pytest.param("pause", False, None, ["quorum_commits_nothing"], id="and of which a recording says no more"),
])  # fmt: skip
def test_a_controller_is_hurt_since_a_fault_began_and_until_it_was_undone(
    run: Quorum, kind: str, healed: bool, undone: bool | None, expected: list[str]
) -> None:
    run.commits(0, DIED)
    run.dies()
    injected = DIED + 40_000 if healed else DIED
    times = {"planned_ns": DIED * MS, "injected_ns": injected * MS, "healed_ns": (injected + 100) * MS}
    fault = {"index": 1, "kind": kind, "resolved_target": "controller 102", "proof": "{}", "heal_proof": "{}"}
    run.recorder.row("faults", **fault, **times, took_effect=True, healed=healed, undone=undone, losses=[])
    run.commits(BACK, END)

    assert accused(run) == expected
