"""Anybody can add cases by a folder in TRIBUNAL_CASES, and an adapter refuses what it does not understand."""

import copy
import importlib.util
import inspect
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.cases.cases import UnknownKeys, load

HERE = Path(__file__).parent
# The families of the controllers and their quorum.
FAMILIES = (
    *("partition_change", "alter_partition", "broker_event", "registration", "heartbeat", "clean_shutdown"),
    *("elect_leaders", "reassignment", "topic_admin", "unclean_recovery", "raft_vote", "raft_transition", "raft_log"),
    *("describe_topic_partitions", "controller_walk", "raft_vote_walk"),
)


def adapter_of(family: str) -> list[tuple[Any, list[dict[str, Any]]]]:
    """The family's test functions with the cases that each is given."""
    path = HERE / f"test_{family}.py"
    spec = importlib.util.spec_from_file_location(f"adapter_{family}", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return [
        (function, [parameter.values[0] for parameter in mark.args[1]])
        for _, function in inspect.getmembers(module, inspect.isfunction)
        for mark in getattr(function, "pytestmark", [])
        if mark.name == "parametrize"
    ]


@pytest.mark.parametrize("family", FAMILIES)
def test_an_unknown_key_is_refused_not_skipped(family: str, tmp_path: Path) -> None:
    adapters = adapter_of(family)
    assert adapters, family

    for function, known in adapters:
        for part in ("given", "when", "then"):
            case = copy.deepcopy(next(case for case in known if isinstance(case.get(part), dict)))
            case[part]["no_such_key"] = 1
            more = {"tmp_path": tmp_path / part} if "tmp_path" in inspect.signature(function).parameters else {}
            with pytest.raises((UnknownKeys, ValueError)):  # a `then` by partition index wants a number
                function(case, **more)


def test_a_folder_of_ones_own_adds_cases(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    own = {"id": "mine", "given": {}, "when": {}, "then": {}}
    (tmp_path / "raft_vote.yaml").write_text(yaml.safe_dump({"family": "raft_vote", "schema": 1, "cases": [own]}))
    before = [parameter.id for parameter in load("raft_vote")]
    monkeypatch.setenv("TRIBUNAL_CASES", str(tmp_path))

    assert [parameter.id for parameter in load("raft_vote")] == [*before, "mine"]


def test_an_unknown_key_of_a_case_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    own = {"id": "mine", "skip_me": True}
    (tmp_path / "raft_vote.yaml").write_text(yaml.safe_dump({"family": "raft_vote", "schema": 1, "cases": [own]}))
    monkeypatch.setenv("TRIBUNAL_CASES", str(tmp_path))

    with pytest.raises(UnknownKeys):
        load("raft_vote")


def test_the_families_are_all_here() -> None:
    assert {path.stem for path in (HERE / "data").glob("*.yaml")} >= set(FAMILIES)
