"""A scenario may set what a system's file lets it set: it reaches the commands, is refused by name where it cannot, and stands in the evidence."""

import asyncio
import math
from pathlib import Path

import msgspec
import pytest

from tests.systems.judged import started
from tests.systems.test_sample import judged, planned
from tribunal.clusters.kinds import system as kind
from tribunal.clusters.nodes.leftovers import command_lines
from tribunal.clusters.systems.description import BadSystem, read_system
from tribunal.clusters.systems.own_settings import with_given
from tribunal.harness.cli.main import exit_code
from tribunal.harness.cli.session import write_report
from tribunal.harness.evidence.bundle import unpacked
from tribunal.harness.new import made_system
from tribunal.harness.plan import Plan, read_plan
from tribunal.harness.scenario import BadScenario
from tribunal.results.store import MANIFEST, Recording
from tribunal.results.verdict import save

LATER = {"cluster.settings.write": "later"}


def changed(folder: Path, old: str, new: str) -> Path:
    """Change the sample system's file; return it."""
    if not (folder / "keeper").exists():
        made_system("keeper", folder)
    file = folder / "keeper" / "system.toml"
    text = file.read_text()
    assert old in text
    file.write_text(text.replace(old, new))
    return file


def commands(plan: Plan, run: Path) -> list[str]:
    """Start the system of a plan; return the command lines of its nodes."""

    async def launch() -> list[str]:
        cluster = await started(plan.spec, run)
        try:
            lines = [" ".join(words) for _, words in command_lines() if any(str(run.parent) in word for word in words)]
            return [line for line in lines if "server.py" in line]
        finally:
            await cluster.close()

    run.mkdir()
    return asyncio.run(launch())


@pytest.mark.parametrize(
    ("overrides", "wanted"), [({}, "first"), (LATER, "later")], ids=["the file's", "the scenario's"]
)
def test_nodes_are_started_with_what_is_set(tmp_path: Path, overrides: dict[str, str], wanted: str) -> None:
    plan = planned(tmp_path, overrides)

    (line,) = commands(plan, tmp_path / "run")

    assert f"--write {wanted}" in line
    assert plan.spec.settings == (
        {"write": "later"} if overrides else {}
    )  # what the file says may change with the file
    assert kind.leftovers(tmp_path / "run") == []


def test_what_was_set_stands_in_the_evidence_and_a_lie_about_it_is_seen(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    changed(tmp_path, 'write = "first"', 'write = "first"\nroom = 3')
    changed(
        tmp_path,
        '"{set:write}"]',
        '"{set:write}"]\nprepare = ["echo", "{set:room}"]',
    )
    verdict, run_dir = judged(planned(tmp_path, LATER), tmp_path / "runs")
    save(verdict, run_dir / "verdict.json")
    page = write_report(run_dir).read_text()
    assert exit_code(["bundle", str(run_dir), "-o", str(tmp_path / "one.zip")]) == 0
    assert exit_code(["verify", str(tmp_path / "one.zip"), "--engine", "inline"]) == 0

    described = Recording.open(run_dir).manifest.described
    assert described.settings == {"write": "later", "room": 3}
    assert "setting write" in page
    assert read_plan(run_dir / "plan.json").spec.settings == {"write": "later"}

    unpacked(tmp_path / "one.zip", tmp_path / "forged")
    path = tmp_path / "forged" / MANIFEST
    content = msgspec.json.decode(path.read_bytes())
    content["described"]["settings"] = {"write": "first", "room": 3}
    path.write_bytes(msgspec.json.encode(content))
    capsys.readouterr()
    assert exit_code(["bundle", str(tmp_path / "forged"), "-o", str(tmp_path / "two.zip")]) == 0
    assert exit_code(["verify", str(tmp_path / "two.zip"), "--engine", "inline"]) == 3
    assert "described.settings: write: 'first' stated, 'later' found" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("overrides", "words"),
    [
        pytest.param({"cluster.settings.wriet": "later"}, r"no setting 'wriet' in \[nodes.settings\]; did you mean write\?", id="name"),
        pytest.param({"cluster.settings": "{min.insync.replicas: 2}"}, "no setting 'min.insync.replicas' .*; known: write", id="Kafka's"),
        pytest.param({"cluster.settings.write": "7"}, "setting write is 7, its file has 'first': use a text", id="type"),
        pytest.param({"cluster.settings.write": "[later]"}, "setting write is", id="list"),
        pytest.param({"cluster.settings.write": "'later; reboot'"}, "setting write is 'later; reboot': a text has letters", id="shell"),
        pytest.param({"cluster.settings.write": "'a\\nb'"}, "setting write is", id="line"),
    ],
)  # fmt: skip
def test_what_cannot_be_set_is_refused_when_it_is_planned(
    tmp_path: Path, overrides: dict[str, str], words: str
) -> None:
    with pytest.raises(BadScenario, match=words):
        planned(tmp_path, overrides)


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        pytest.param('"{set:write}"', '"{set:wriet}"', r"there is no \{set:wriet\}", id="placeholder"),
        pytest.param('"--write", "{set:write}"', "", r"no command names \{set:write\}: it would change nothing", id="idle"),
        pytest.param('write = "first"', 'write = "$HOME"', r"settings: write is '\$HOME': a text has letters", id="shell"),
        pytest.param('write = "first"', 'write = ["first"]', "settings: one of its values", id="list"),
        pytest.param('write = "first"', "write = inf", "settings: write is inf: a number is finite", id="endless"),
        pytest.param('write = "first"', "write = nan", "settings: write is nan: a number is finite", id="no number"),
        pytest.param('write = "first"', '"w rite" = "first"', "settings", id="name"),
        pytest.param('"{set:write}"', '"{set:write@2}"', r"there is no \{set:write@2\}", id="of a node"),
    ],
)  # fmt: skip
def test_a_file_whose_settings_cannot_be_is_refused(tmp_path: Path, old: str, new: str, words: str) -> None:
    file = changed(tmp_path, old, new)

    with pytest.raises(BadSystem, match=words):
        read_system(file)


def test_a_client_may_be_given_what_is_set(tmp_path: Path) -> None:
    file = changed(tmp_path, '"{folder}/client.py"]', '"{folder}/client.py", "{set:write}"]')

    client = read_system(file).client
    assert client is not None
    assert client.command[-1] == "{set:write}"


def test_a_plan_whose_setting_its_file_does_not_have_any_more_is_refused(tmp_path: Path) -> None:
    plan = planned(tmp_path, LATER)
    changed(tmp_path, '"--write", "{set:write}"', '"--write", "{set:how}"')
    changed(tmp_path, 'write = "first"', 'how = "first"')

    assert "no setting 'write'" in kind.refused(plan.spec)


@pytest.mark.parametrize(
    ("of_file", "given", "is_taken"),
    [
        (True, False, True), (True, 1, False), (1, True, False), (1, 2, True), (1, 1.5, False), (1.5, 2, True), (1.5, "2", False),
        (1.5, math.inf, False), (1.5, math.nan, False),
        ("a", "b-1.0,x=/y:z@%+", True), ("a", "b c", True), ("a", "$(b)", False), ("a", "`b`", False), ("a", "", True),
    ],
)  # fmt: skip
def test_a_value_is_of_the_kind_of_the_file_s(
    of_file: bool | float | str, given: bool | float | str, is_taken: bool
) -> None:
    if is_taken:
        assert with_given({"one": of_file, "other": 1}, {"one": given}) == {"one": given, "other": 1}
    else:
        with pytest.raises(ValueError, match="setting one is"):
            with_given({"one": of_file}, {"one": given})


def test_a_plan_that_promises_less_than_the_file_is_refused_and_a_forged_one_is_seen(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Who rewrites plan and manifest together would have losses permitted that the system does not permit."""
    verdict, run_dir = judged(planned(tmp_path, {}), tmp_path / "runs")
    save(verdict, run_dir / "verdict.json")
    plan = read_plan(run_dir / "plan.json")
    less = msgspec.structs.replace(
        plan, spec=msgspec.structs.replace(plan.spec, promises={**plan.spec.promises, "one_lost.kill": True})
    )
    assert kind.refused(plan.spec) == ""
    assert kind.refused(less.spec).endswith(
        "promises: one_lost.kill: the plan says True, the file nothing; draw the plan anew from its scenario"
    )

    (run_dir / "plan.json").write_bytes(msgspec.json.encode(less))
    path = run_dir / MANIFEST
    content = msgspec.json.decode(path.read_bytes())
    content["settings"]["promises.one_lost.kill"] = True
    path.write_bytes(msgspec.json.encode(content))
    capsys.readouterr()
    exit_code(["bundle", str(run_dir), "-o", str(tmp_path / "one.zip")])
    assert exit_code(["verify", str(tmp_path / "one.zip"), "--engine", "inline"]) == 3
    assert "plan.json: spec.promises: one_lost.kill: stated, not found" in capsys.readouterr().out
