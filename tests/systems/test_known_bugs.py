"""Known bugs of a described system, as configurations and as patches: sought on its own nodes, and compared with the system without them."""

import difflib
import json
from pathlib import Path

import pytest

from tribunal.harness.campaign.night_file import read_config
from tribunal.harness.campaign.system_power import Sought, chosen, patched, power, read
from tribunal.harness.catalog import Unknown
from tribunal.harness.cli.main import exit_code
from tribunal.harness.new import made_system
from tribunal.harness.plan import Plan
from tribunal.harness.scenario import BadScenario
from tribunal.results.scratch import MEMORY
from tribunal.results.verdict import Finding, RunVerdict, Verdict

SYSTEMS = Path(__file__).resolve().parents[2] / "systems"
KILLED = """scenario: killed
cluster: {system: system.toml}
workload: {name: set, sets: 4, rate: 80}
time: 1s
warm_up: 200ms
steps:
  - {kill: node 1, for: 100ms, after: 300ms}
"""
LISTED = """scenario = "killed.yaml"
sound = "system.toml"

[[bug]]
name = "configured"
about = "it answers before it has written"
system = "lossy.toml"

[[bug]]
name = "patched"
about = "the same, in the code"
patch = "early.patch"
build = "touch built"
"""


def patch(old: str, new: str) -> str:
    """Return what makes one server of the other, as `diff -u` writes it."""
    lines = difflib.unified_diff(
        old.splitlines(keepends=True), new.splitlines(keepends=True), "a/server.py", "b/server.py"
    )
    return "".join(lines)


def listed(tmp_path: Path, text: str = LISTED) -> Path:
    """Make the sample system with a list of two bugs, each of which loses what a kill takes; return the list."""
    made_system("keeper", tmp_path)
    folder = tmp_path / "keeper"
    (folder / "killed.yaml").write_text(KILLED)
    server = (folder / "server.py").read_text()
    kept = 'waiting.append if options.write == "later" else store.file.write'
    assert kept in server
    early = server.replace(kept, "waiting.append")
    (folder / "early.patch").write_text(patch(server, early))
    (folder / "bugs.toml").write_text(text)
    return folder / "bugs.toml"


def test_known_bugs_are_found_and_the_system_without_them_is_not_accused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A configuration and a patch; the folder itself stays as it is."""
    bugs = listed(tmp_path)
    server = (bugs.parent / "server.py").read_text()

    code = exit_code(
        ["power", "--bugs", str(bugs), "--seeds", "1:9", "--budget", "2m", "--out", str(tmp_path / "runs"), "--json"]
    )

    found = json.loads(capsys.readouterr().out)
    assert [(one["mutant"], one["found"], one["seen_by"]) for one in found] == [
        ("configured", True, ["sets/element_lost"]),
        ("patched", True, ["sets/element_lost"]),
    ]
    assert code == 0
    assert (bugs.parent / "server.py").read_text() == server
    assert not (bugs.parent / "built").exists()
    assert all((Path(one["run_dir"]) / "verdict.json").is_file() for one in found)


def test_what_the_sound_system_shows_too_counts_for_no_bug(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """It is a finding of the system as it is."""
    bugs = listed(tmp_path, LISTED.replace('sound = "system.toml"', 'sound = "lossy.toml"'))

    code = exit_code(
        ["power", "--bugs", str(bugs), "--mutant", "configured", "--seeds", "1:4", "--out", str(tmp_path / "runs")]
    )

    said = capsys.readouterr()
    assert code == 1
    assert "the sound system by itself: sets/element_lost" in said.err
    assert "the sound system shows it too, so it does not count: sets/element_lost" in said.out
    assert "found 0 of 1" in said.out


@pytest.mark.parametrize(
    ("sound", "found", "seeds"),
    [
        pytest.param([Verdict.PASS], True, 1, id="it has an answer"),
        pytest.param([Verdict.INCONCLUSIVE, Verdict.PERMITTED], True, 2, id="the second time"),
        pytest.param([Verdict.ERROR, Verdict.ERROR, Verdict.ERROR], False, 3, id="it never runs"),
    ],
)
def test_a_run_of_the_sound_system_without_an_answer_proves_nothing(
    tmp_path: Path, sound: list[Verdict], found: bool, seeds: int
) -> None:
    """Whoever does not run shows nothing either: a bug counts where the sound system was judged and does not have it."""
    bugs = listed(tmp_path)
    left = list(sound)

    def conduct(plan: Plan, out: Path) -> tuple[Path, RunVerdict]:
        lost = Finding(property_name="sets", kind="element_lost", severity="violation", explanation="")
        if plan.spec.system.endswith("lossy.toml"):
            return out / "bug", RunVerdict(run_id="r", verdict=Verdict.VIOLATION, claim="", findings=[lost])
        return out / "sound", RunVerdict(run_id="r", verdict=left.pop(0), claim="")

    how = Sought(seeds=range(1, 4), budget_s=600, conduct=conduct, out=tmp_path / "runs")
    (one,) = power(bugs.parent, read(bugs), chosen(read(bugs), ["configured"]), how, tmp_path / "scratch")

    assert (one.found, one.seeds, left) == (found, seeds, [])
    assert ("the sound system has no answer" in one.note) is not found


def test_a_copy_has_all_of_a_folder_but_its_runs(tmp_path: Path) -> None:
    """Where links lead there is what they lead to, one that leads nowhere is left out; and sources may be called runs."""
    folder = listed(tmp_path).parent
    (folder / "nowhere").symlink_to("not-made-yet")
    (tmp_path / "elsewhere").write_text("shared")
    (folder / "linked").symlink_to("../elsewhere")
    for name in ("runs/one", "other/two", "source/runs"):
        (folder / name).mkdir(parents=True)
        (folder / name / "file").touch()
    for name in ("runs/one", "other/two"):
        (folder / name / "plan.json").touch()

    copy = patched(folder, chosen(read(folder / "bugs.toml"), ["patched"])[0], tmp_path / "scratch")

    assert not (copy / "nowhere").exists()
    assert (copy / "linked").read_text() == "shared"
    assert (copy / "source" / "runs" / "file").is_file()
    assert not (copy / "runs" / "one").exists()
    assert not (copy / "other" / "two").exists()


def test_a_bug_that_is_named_twice_is_sought_once(tmp_path: Path) -> None:
    """Its patched copy was there already."""
    assert [one.name for one in chosen(read(listed(tmp_path)), ["patched", "configured", "patched"])] == [
        "patched", "configured",
    ]  # fmt: skip


def test_a_patch_that_does_not_fit_is_named_and_the_others_are_sought(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Git alone would pass over a patch of a folder within a repository, and call that well done."""
    bugs = listed(tmp_path)
    (bugs.parent / "early.patch").write_text(patch("nobody wrote this\n", "nor this\n"))

    code = exit_code(["power", "--bugs", str(bugs), "--mutant", "patched", "--out", str(tmp_path / "runs")])

    said = capsys.readouterr().out
    assert code == 1
    assert "patched: early.patch does not fit: " in said
    assert "seeds   0" in said


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        pytest.param('system = "lossy.toml"', "", "configured: what has it: system = a file, or patch", id="nothing"),
        pytest.param('"lossy.toml"', '"none.toml"', "configured: there is no file .*none.toml", id="no system"),
        pytest.param('"killed.yaml"', '"none.yaml"', "there is no file .*none.yaml", id="no scenario"),
        pytest.param('name = "patched"', 'name = "configured"', "two bugs are called configured", id="twice"),
        pytest.param('name = "patched"', 'name = "a/b"', "not a list of known bugs", id="a name"),
        pytest.param('patch = "early.patch"', 'system = "lossy.toml"', "build goes with a patch", id="a build"),
        pytest.param("[[bug]]", "[[bugs]]", "not a list of known bugs", id="an unknown word"),
        pytest.param('scenario = "killed', 'scenario = killed', "not a list of known bugs", id="no TOML"),
    ],
)  # fmt: skip
def test_a_list_that_names_nothing_to_seek_is_refused(tmp_path: Path, old: str, new: str, words: str) -> None:
    """In one line that names the file, before anything is run."""
    with pytest.raises(BadScenario, match=rf"bugs.toml: .*{words}|{words}"):
        read(listed(tmp_path, LISTED.replace(old, new)))


def test_a_bug_that_is_not_listed_is_refused_by_name(tmp_path: Path) -> None:
    """With the nearest one."""
    with pytest.raises(Unknown, match="did you mean patched"):
        chosen(read(listed(tmp_path)), ["patches"])


@pytest.mark.parametrize("option", [["--by", "swarm"], ["--scenario", "produce-consume"], ["--rest"], ["--jobs", "2"]])
def test_what_is_of_the_simulator_is_refused_with_a_list(tmp_path: Path, option: list[str]) -> None:
    """Real runs come one after the other, of the scenarios that the list names."""
    assert exit_code(["power", "--bugs", str(listed(tmp_path)), *option]) == 64


def test_the_lists_of_the_repository_can_be_read() -> None:
    """Each file that they name is there."""
    found = {path.parent.name: len(read(path).bug) for path in SYSTEMS.glob("*/bugs.toml")}

    assert found["redis"] == 4


def test_a_night_builds_where_programs_may_be_run(tmp_path: Path) -> None:
    """Memory that looks like a disk may forbid that, and has little room: in most containers of a CI."""
    bugs, places = listed(tmp_path), tmp_path / "places"
    alone = LISTED[: LISTED.index("[[bug]]")] + LISTED[LISTED.rindex("[[bug]]") :]
    bugs.write_text(alone.replace("touch built", f"sh -c 'pwd >> {places}'"))
    night = tmp_path / "night.yaml"
    night.write_text(f"nightly: keeper\ncanaries: {{bugs: {bugs}, share: 50}}\n")

    exit_code(["nightly", str(night), "--budget", "1ms", "--engine", "inline", "--out", str(tmp_path / "night")])

    (place,) = places.read_text().splitlines()
    assert not Path(place).is_relative_to(MEMORY)


def test_a_known_issue_may_be_of_a_scenario_in_which_bugs_are_sought(tmp_path: Path) -> None:
    """The system without them is run in it too, and what that shows may be in somebody's hands."""
    bugs = listed(tmp_path)
    night, known = tmp_path / "night.yaml", tmp_path / "known.yaml"
    night.write_text(f"nightly: keeper\nknown: known.yaml\ncanaries: {{bugs: {bugs}, share: 50}}\n")
    issue = "issues: [{signature: sets/element_lost, owner: me, expires: 2099-01-01, scenario: NAME}]\n"

    known.write_text(issue.replace("NAME", "killed"))
    assert read_config(night).canaries.bugs == str(bugs)

    known.write_text(issue.replace("NAME", "kiled"))
    with pytest.raises(Unknown, match="did you mean killed"):
        read_config(night)


@pytest.mark.nightly
def test_a_night_has_them_for_canaries(tmp_path: Path) -> None:
    """Each has to be found."""
    bugs = listed(tmp_path)
    night = tmp_path / "night.yaml"
    real = f"{{scenario: {bugs.parent / 'killed.yaml'}, cluster: system, count: 1}}"
    night.write_text(
        f"nightly: keeper\ncanaries: {{bugs: {bugs}, share: 50}}\nconfirm: {{share: 40, runs: [{real}]}}\n"
    )

    code = exit_code(["nightly", str(night), "--budget", "90s", "--engine", "inline", "--out", str(tmp_path / "night")])

    night_said = json.loads((tmp_path / "night" / "nightly.json").read_text())
    assert [(one["mutant"], one["found"]) for one in night_said["canaries"]] == [
        ("configured", True),
        ("patched", True),
    ]
    assert code == 0
