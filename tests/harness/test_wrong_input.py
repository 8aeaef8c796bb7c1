"""What a newcomer types wrong: each command says it at once, in a line that helps, and with the exit code of wrong usage."""

import shutil

import pytest

from tribunal.harness.campaign.findings import add, of_plan
from tribunal.harness.campaign.mutation_score import plan_of
from tribunal.harness.cli.main import exit_code
from tribunal.results.night import Night, NightState
from tribunal.results.night_files import load, save

NIGHT = "nightly: mine\nsweeps: {produce-consume: 1}\n"


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """An empty folder, in which the command is called."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "nightly.yaml").write_text(NIGHT)
    (tmp_path / "empty").mkdir()
    (tmp_path / "file.txt").write_text("hello")
    return tmp_path


@pytest.mark.parametrize(
    ("line", "words"),
    [
        pytest.param("verify file.txt --engine spak", "unknown engine 'spak'", id="verify by nobody"),
        pytest.param("nightly --engine spak", "unknown engine 'spak'", id="night judged by nobody"),
        pytest.param("merge empty --engine spak --out whole", "unknown engine 'spak'", id="merge by nobody"),
        pytest.param("doctor --cluster process", "did you mean processes?", id="doctor of no kind"),
        pytest.param("replay produce-consume:1 --until -5", "--until", id="before the first event"),
        pytest.param("findings run --folder empty", "no findings in empty", id="a folder without findings"),
        pytest.param("report empty", "no run in 'empty': neither a recording nor a verdict", id="report of nothing"),
        pytest.param("bundle empty", "neither a recording nor a verdict", id="bundle of nothing"),
        pytest.param("explain empty", "no run in 'empty': neither a recording nor a verdict", id="story of nothing"),
        pytest.param("bisect nowhere --good HEAD~2", "nowhere: no such run", id="bisect of nothing"),
        pytest.param("shrink nowhere", "nowhere", id="shrink of nothing"),
        pytest.param("likelihood nowhere", "nowhere", id="likelihood of nothing"),
        pytest.param("findings add nowhere --name x --about y", "nowhere", id="a finding of nothing"),
        pytest.param("diff nowhere empty", "nowhere", id="nothing beside nothing"),
        pytest.param("publish empty --statement campaign.yaml -o site", "campaign.yaml: No such file or directory; write campaign, system and version into it", id="no statement"),
        pytest.param("report file.txt", "no run in 'file.txt': a file", id="report of a file"),
        pytest.param("check file.txt", "no run in 'file.txt': a file", id="check of a file"),
        pytest.param("heal --out file.txt", "--out 'file.txt': a file", id="heal a file"),
        pytest.param("run produce-consume --out file.txt", "--out 'file.txt': a file", id="runs in a file"),
        pytest.param("sweep produce-consume --out file.txt", "--out 'file.txt': a file", id="a sweep in a file"),
        pytest.param("nightly --out file.txt", "--out 'file.txt': a file", id="a night in a file"),
        pytest.param("nightly --notify nobody-at-all", "--notify 'nobody-at-all': no such program", id="nobody to notify"),
        pytest.param("nightly --nights file.txt", "--nights 'file.txt': a file", id="nights in a file"),
        pytest.param("nightly --budget 10", "duration 10 has no unit: write 10s for seconds, 10m for minutes", id="a budget of what"),
        pytest.param(f"nightly --budget {'9' * 400}h", "is longer than a hundred years", id="a budget beyond all numbers"),
        pytest.param("museum --only KIP-903 --only KIP-9O3", "unknown entry 'KIP-9O3'", id="the second of two entries"),
        pytest.param("explore partition --invariant i6 --steps 1", "unknown invariant of world partition 'i6'; did you mean I6?", id="an invariant that nobody looks at"),
        pytest.param("explore quorum --set voters=0 --steps 1", "world quorum: ", id="a quorum of nobody"),
        pytest.param("explore quorum --steps 1 --out file.txt", "--out 'file.txt': a file", id="a world in a file"),
        pytest.param("run --plan file.txt --cluster processes", "--cluster goes with a scenario", id="a plan on another cluster"),
        pytest.param("run --schedule file.txt --seed 3", "--seed goes with a scenario", id="a schedule of another seed"),
        pytest.param("run --plan file.txt --set workload.rate=9", "--set goes with a scenario", id="a plan with another load"),
        pytest.param("run --schedule file.txt", "file.txt: not an executed schedule", id="no schedule"),
    ],
)  # fmt: skip
def test_what_cannot_be_is_said_before_anything_begins(line, words, folder, capsys):
    before = sorted(folder.rglob("*"))

    code = exit_code(line.split())

    said = capsys.readouterr().err
    assert (code, said.count("\n")) == (64, 1)
    assert words in said
    assert sorted(folder.rglob("*")) == before


@pytest.mark.parametrize(
    ("line", "words"),
    [
        pytest.param("run nowhere", "`tribunal list scenarios` names all of them", id="scenario"),
        pytest.param("run produce-consume --mutant q", "`tribunal list mutants` names all of them", id="mutant"),
    ],
)
def test_of_many_names_a_line_names_few(line, words, folder, capsys):
    """The line had two thousand letters."""
    assert exit_code(line.split()) == 64

    said = capsys.readouterr().err
    assert words in said
    assert len(said) < 200


def test_of_few_names_a_line_names_all(folder, capsys):
    assert exit_code(["run", "produce-consume", "--cluster", "zzz"]) == 64

    assert "known: apache-kafka, containers, existing, mixed, processes, simulated" in capsys.readouterr().err


def test_a_folder_with_findings_is_run(folder):
    """The neighbour of the empty folder, as far as the list: `run` takes seconds."""
    plan = plan_of("last-replica-standing", 3, ("m01_no_elr",))
    add(of_plan(plan, name="one", about="a", signature="lost_writes/lost", state="known", max_runs=1), folder / "kept")

    assert exit_code(["findings", "list", "--folder", "kept"]) == 0


@pytest.mark.parametrize(
    ("more", "code"),
    [
        pytest.param("", 0, id="a scenario that there is"),
        pytest.param("quarantine:\n  - {scenario: produce-consum, cluster: processes, rate: 20, owner: bob, expires: 2999-12-31}\n", 64, id="a quarantine of none"),
    ],
)  # fmt: skip
def test_a_quarantine_of_a_scenario_that_there_is_not_would_hold_nothing(more, code, folder, capsys):
    from tribunal.harness.campaign.night_file import read_config
    from tribunal.harness.catalog import Unknown

    (folder / "known.yaml").write_text(more)
    (folder / "nightly.yaml").write_text(f"{NIGHT}known: known.yaml\n")

    if code:
        with pytest.raises(Unknown, match="did you mean produce-consume"):
            read_config(folder / "nightly.yaml")
    else:
        assert read_config(folder / "nightly.yaml").known == "known.yaml"


def night(shard):
    return Night(
        name="mine", began="2026-11-28T00:00:00Z", commit="c" * 40, lock_sha256="l", shard=shard, budget_s=60, first_seed=0,
        state=NightState.ENDED,
    )  # fmt: skip


def test_a_shard_that_wrote_nothing_is_an_error_of_the_whole(folder, capsys):
    """A job that died before its night began leaves an empty folder, or none: what the others found is not lost for that."""
    for number in (1, 3):
        save(night(f"{number}/4"), folder / f"shard-{number}")

    code = exit_code(["merge", "shard-1", "nowhere", "shard-3", "empty", "--out", "whole"])

    whole = load(folder / "whole" / "nightly.json")
    assert code == 3
    assert whole.errors == [
        "nowhere: no night was written there",
        "empty: no night was written there",
        "shard 2/4 is missing",
        "shard 4/4 is missing",
    ]
    assert "shard 2/4 is missing" in capsys.readouterr().out


def test_shards_of_which_none_wrote_anything_are_wrong_usage(folder, capsys):
    assert exit_code(["merge", "nowhere", "empty", "--out", "whole"]) == 64

    assert "no night was written to nowhere, empty" in capsys.readouterr().err
    assert not (folder / "whole").exists()


def test_a_shard_whose_night_is_torn_is_wrong_usage(folder, capsys):
    save(night("1/2"), folder / "shard-1")
    shutil.copytree(folder / "shard-1", folder / "shard-2")
    (folder / "shard-2" / "nightly.json").write_text('{"name":')

    assert exit_code(["merge", "shard-1", "shard-2", "--out", "whole"]) == 64

    assert "shard-2/nightly.json: not a nightly.json" in capsys.readouterr().err
