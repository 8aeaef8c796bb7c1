"""A night: its file is checked before anything starts, its parts happen in order, its shards see different seeds."""

import time
from types import SimpleNamespace

import pytest

from tribunal.harness.campaign.nightly import Nightly, RealRun, Shard, Terms, first_seed_of, read_config
from tribunal.harness.cli.main import exit_code
from tribunal.harness.scenario import BadScenario
from tribunal.results.night import load
from tribunal.results.verdict import RunVerdict, Verdict

NIGHT = """nightly: small
canaries: {mutants: [M01], share: 20}
sweeps: {last-replica-standing: 1}
calibrate: {share: 5, classes: [hole, changed-key]}
confirm: {runs: [{scenario: produce-consume, cluster: processes}]}
probes: [never-reached-by-anything]
"""


def written(tmp_path, text=NIGHT):
    path = tmp_path / "nightly.yaml"
    path.write_text(text)
    return path


def night_in(folder, *, conduct=lambda plan, folder: None, **terms):
    """A small night whose findings go below a folder."""
    return Nightly(
        read_config(written(folder)),
        terms=Terms(**terms),
        base=folder,
        out=folder / "out",
        scratch=folder / "scratch",
        conduct=conduct,
        notify=lambda line: None,
    )


@pytest.mark.parametrize(
    ("text", "line"),
    [
        pytest.param("nightly: x\nsweeps: {}\n", "at least one scenario", id="empty"),
        pytest.param("nightly: x\nsweeps: {a: 0}\n", "unknown scenario", id="scenario"),
        pytest.param("nightly: x\nsweeps: {produce-consume: 0}\n", "weight above 0", id="weight"),
        pytest.param("nightly: x\nsweeps: {produce-consume: 1}\nfoo: 1\n", "unknown field `foo`", id="field"),
        pytest.param("nightly: [\n", "nightly.yaml", id="yaml"),
        pytest.param("sweeps: {produce-consume: 1}\n", "missing required field", id="name"),
        pytest.param(NIGHT.replace("M01", "M999"), "unknown mutant", id="mutant"),
        pytest.param(NIGHT.replace("processes", "process"), "did you mean processes", id="cluster"),
        pytest.param(NIGHT.replace("share: 20", "share: 95"), "nothing for the sweeps", id="shares"),
        pytest.param(NIGHT.replace("share: 5", "share: 85"), "nothing for the sweeps", id="calibrate's share"),
        pytest.param(NIGHT.replace("hole", "hoel"), "did you mean hole", id="class"),
        pytest.param("#\n" * 30 + NIGHT, "more than 25 lines", id="long"),
    ],
)
def test_a_bad_file_is_one_line_and_64(tmp_path, capsys, text, line):
    assert exit_code(["nightly", str(written(tmp_path, text))]) == 64
    said = capsys.readouterr().err
    assert line in said
    assert said.count("\n") == 1


@pytest.mark.parametrize("shard", ["0/2", "3/2", "1", "a/b", "1/"])
def test_a_bad_shard_is_refused(tmp_path, capsys, shard):
    assert exit_code(["nightly", str(written(tmp_path)), "--shard", shard]) == 64
    assert "write i/n" in capsys.readouterr().err


def test_every_night_sees_other_seeds_and_the_same_night_the_same():
    friday, saturday = time.strptime("2026-11-20", "%Y-%m-%d"), time.strptime("2026-11-21", "%Y-%m-%d")

    assert first_seed_of(friday) == first_seed_of(friday)
    assert first_seed_of(friday) < first_seed_of(saturday)


def test_a_night_end_to_end(tmp_path):
    """A few seconds of each part; what happens on real nodes is somebody else's test."""
    asked = []

    def conduct(plan, folder):
        asked.append((plan.scenario, plan.cluster))
        run_dir = folder / "real"
        run_dir.mkdir(parents=True)
        return SimpleNamespace(
            run_dir=run_dir, verdict=RunVerdict(run_id="real", verdict=Verdict.INCONCLUSIVE, claim="", reasons=["why"])
        )

    night = night_in(tmp_path, conduct=conduct, budget_s=30, shard=Shard(1, 1), first_seed=5, jobs=2).run()

    assert [one.found for one in night.canaries] == [True]
    assert night.runs >= 1
    assert {name: figure.seen for name, figure in night.sensitivity.figures.items()} == {
        name: figure.injected for name, figure in night.sensitivity.figures.items()
    }
    assert night.sensitivity.total.injected >= 1
    assert night.sensitivity.runs[0] == "last-replica-standing, seed 5"
    assert night.cold == ["never-reached-by-anything"]
    assert asked == [("produce-consume", "processes")]
    assert (tmp_path / "out" / "runs" / "real").is_dir()  # no passing run: its folder is evidence
    assert night.exit_code in (1, 3)
    assert load(tmp_path / "out" / "nightly.json") == night
    assert (tmp_path / "out" / "junit.xml").is_file()
    assert (tmp_path / "out" / "summary.md").is_file()


@pytest.mark.parametrize("part", ["upcoming", "_real"])
def test_an_interrupted_night_says_what_had_ended_by_then(tmp_path, monkeypatch, part):
    def one_and_no_more(night):
        yield next(upcoming(night))
        raise KeyboardInterrupt  # asked for when the first has ended: there is one job

    def interrupted(_):
        raise KeyboardInterrupt

    upcoming = Nightly.upcoming
    monkeypatch.setattr(Nightly, part, one_and_no_more if part == "upcoming" else interrupted)
    nightly = night_in(tmp_path, budget_s=5, shard=Shard(1, 1), first_seed=5, jobs=1)

    with pytest.raises(KeyboardInterrupt):
        nightly.run()

    night = load(tmp_path / "out" / "nightly.json")
    assert night.errors == ["interrupted; what had ended by then is what this night says"]
    assert [one.found for one in night.canaries] == [True]
    assert night.runs >= 1


def test_shards_split_the_seeds(tmp_path):
    seeds = []
    for index in (1, 2):
        nightly = night_in(tmp_path, budget_s=30, shard=Shard(index, 2), first_seed=100, jobs=1)
        plans = nightly.upcoming()
        seeds.append([next(plans).seed for _ in range(3)])

    assert seeds == [[100, 102, 104], [101, 103, 105]]


def test_no_former_night(tmp_path, capsys):
    (tmp_path / "last.json").write_text("{}")

    with pytest.raises(BadScenario):
        read_config(tmp_path / "nowhere.yaml")
    assert exit_code(["nightly", str(written(tmp_path)), "--last", str(tmp_path / "last.json")]) == 64
    assert "not a nightly.json" in capsys.readouterr().err


def test_a_fault_that_this_cluster_cannot_do_is_one_run_of_the_night_not_its_end(tmp_path):
    (tmp_path / "odd.yaml").write_text(
        "scenario: odd\nworkload: produce-consume\nsteps: [{slow-zookeeper: random broker}]\n"
    )
    night = night_in(tmp_path, budget_s=30, shard=Shard(1, 1), first_seed=5, jobs=1)

    confirmed = night._confirmation(RealRun(scenario=str(tmp_path / "odd.yaml"), cluster="containers"), 5)

    assert confirmed.verdict == "ERROR"
    assert "slow-zookeeper" in confirmed.reasons[0]


def test_two_scenarios_of_one_name_are_refused(tmp_path, capsys):
    for name in ("one", "two"):
        (tmp_path / f"{name}.yaml").write_text("scenario: same\nworkload: produce-consume\nsteps: []\n")
    text = f"nightly: x\nsweeps: {{{tmp_path}/one.yaml: 1, {tmp_path}/two.yaml: 1}}\n"

    assert exit_code(["nightly", str(written(tmp_path, text)), "--out", str(tmp_path / "out")]) == 64
    assert "two scenarios of one name" in capsys.readouterr().err
