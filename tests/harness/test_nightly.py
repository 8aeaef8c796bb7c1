"""A night: its file is checked before anything starts, its parts happen in order, its shards see different seeds."""

import fcntl
import http.server
import os
import tempfile
import threading
import time
from collections import Counter
from contextlib import ExitStack, contextmanager
from pathlib import Path
from types import SimpleNamespace

import msgspec
import pytest

from tribunal.harness.campaign.findings import Rerun
from tribunal.harness.campaign.night_file import KnownIssue, RealRun, read_config, read_known
from tribunal.harness.campaign.night_findings import Announcement, FindingsOfNight, NotAnnounced, Seen, announce
from tribunal.harness.campaign.nightly import Earlier, Folders, Nightly, Outside, Shard, Terms, first_seed_of
from tribunal.harness.campaign.runners import LocalRunner
from tribunal.harness.campaign.search import Ran, Searched
from tribunal.harness.campaign.sweep import SeedResult, Sweep, run_name
from tribunal.harness.campaign.variations import Chosen
from tribunal.harness.catalog import Unknown
from tribunal.harness.cli.main import exit_code
from tribunal.harness.plan import made, read_plan
from tribunal.harness.scenario import BadScenario
from tribunal.results.guards import added, cold
from tribunal.results.guards import read as read_guards
from tribunal.results.guards import write as write_guards
from tribunal.results.night import Canary, FoundTonight, NightState, Past
from tribunal.results.night_files import LOCK, held, is_held, load, save, summary
from tribunal.results.power import By, Power, brought_up_to_date, read
from tribunal.results.power import write as write_power
from tribunal.results.signature import Signature
from tribunal.results.verdict import Finding, RunVerdict, Verdict

NIGHT = """nightly: small
canaries: {mutants: [M01], share: 20}
sweeps: {last-replica-standing: 1}
calibrate: {share: 5, classes: [hole, changed-key]}
confirm: {runs: [{scenario: produce-consume, cluster: processes}]}
probes: [reassignment_completed]
"""
NOBODY = 65534  # the user who owns nothing
EVERY = "nightly: small\nevery_scenario: {share: 20, without: {zookeeper: [exact-stale-join]}}\n"


def written(tmp_path, text=NIGHT):
    tmp_path.mkdir(exist_ok=True)
    path = tmp_path / "nightly.yaml"
    path.write_text(text)
    return path


def night_in(
    folder, *, conduct=lambda plan, folder: None, text=NIGHT, former=None, killed=None, known=(), news=None, corpora=None,
    **terms,
):  # fmt: skip
    """A small night whose findings go below a folder."""
    return Nightly(
        read_config(written(folder, text)),
        terms=Terms(**terms),
        folders=Folders(base=folder, out=folder / "out", scratch=folder / "scratch"),
        outside=Outside(conduct=conduct, notify=lambda line: None, news=news or (lambda news: None)),
        earlier=Earlier(former=former, killed=killed, power=known, corpora=corpora),
    )


@pytest.mark.parametrize(
    ("text", "line"),
    [
        pytest.param("nightly: x\nsweeps: {}\n", "nothing to do", id="empty"),
        pytest.param("nightly: x\nsweeps: {a: 0}\n", "unknown scenario", id="scenario"),
        pytest.param("nightly: x\nsweeps: {produce-consume: 0}\n", "weight above 0", id="weight"),
        pytest.param("nightly: x\nsweeps: {produce-consume: 1}\nfoo: 1\n", "unknown field `foo`", id="field"),
        pytest.param(
            "nightly: x\nsweeps: {produce-consume: much}\n",
            "nightly.yaml: sweeps: one of its values: a number is needed, not a text",
            id="sort of a value",
        ),
        pytest.param(
            "nightly: x\nsweeps: produce-consume\n",
            "nightly.yaml: sweeps: names with values are needed, not a text",
            id="sort of a part",
        ),
        pytest.param("nightly: [\n", "nightly.yaml", id="yaml"),
        pytest.param("sweeps: {produce-consume: 1}\n", "`nightly` is missing", id="name"),
        pytest.param(NIGHT.replace("M01", "M999"), "unknown mutant", id="mutant"),
        pytest.param(NIGHT.replace("processes", "process"), "did you mean processes", id="cluster"),
        pytest.param(NIGHT.replace("share: 20", "share: 95"), "nothing for the sweeps", id="shares"),
        pytest.param(NIGHT.replace("share: 5", "share: 85"), "nothing for the sweeps", id="calibrate's share"),
        pytest.param(NIGHT.replace("hole", "hoel"), "did you mean hole", id="class"),
        pytest.param(
            EVERY.replace("exact-stale", "exact-state"), "did you mean exact-stale-join", id="scenario left out"
        ),
        pytest.param(EVERY.replace("zookeeper", "raft"), "every_scenario", id="mode"),
        pytest.param(EVERY.replace("20", "100"), "nothing for the sweeps", id="every scenario's share"),
        pytest.param(NIGHT + "bound: 100\n", "between 0 and 100", id="bound"),
        pytest.param(
            "nightly: x\nconfirm: {runs: [{scenario: produce-consume, cluster: processes}]}\nprobes: [a]\n",
            "there are none",
            id="probes of no sweep",
        ),
        pytest.param(NIGHT.replace("reassignment_completed", "elr_nonemtpy"), "did you mean elr_nonempty", id="probe"),
        pytest.param(
            NIGHT.replace("reassignment_completed", "zookeeper_session_expired"),
            "unknown probe 'zookeeper_session_expired'",
            id="a probe of the mode that no sweep is in",
        ),
        pytest.param(NIGHT + "known: nowhere.yaml\n", "nowhere.yaml", id="known issues"),
        pytest.param("nightly: x\nsweeps: {produce-consume: .nan}\n", "weight above 0", id="weight that is no number"),
        pytest.param(NIGHT.replace("share: 20", "share: -5"), "canaries: a share between", id="a share below nothing"),
        pytest.param(NIGHT.replace("processes}", "processes, count: 0}"), "a count of 1 or more", id="count"),
        pytest.param(NIGHT.replace("share: 5", "share: 5, per_class: 0"), "per_class: 1 or more", id="per class"),
        pytest.param("nightly: x\nsearch: {scenarios: [a]}\n", "unknown scenario", id="scenario of the search"),
        pytest.param(
            "nightly: x\nsearch: {scenarios: [disruptive-voter], modes: [zookeeper]}\n",
            "disruptive-voter",
            id="mode that a searched scenario has not",
        ),
        pytest.param(
            "nightly: x\nsearch: {scenarios: [rotating-swarm], share: 0}\n", "a share above 0", id="search without time"
        ),
        pytest.param(
            "nightly: x\nsearch: {scenarios: [rotating-swarm, rotating-swarm]}\n",
            "two scenarios are called rotating-swarm",
            id="twice",
        ),
        pytest.param(NIGHT + "artefacts_mb: .inf\n", "artefacts_mb: a number above 0", id="size"),
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

    earlier = Power(
        mutant="m44_acks_local", scenario="s", found=False, by=By.OWN, seen_by=[], seed=None, seeds=3, seconds=1.0
    )
    night = night_in(
        tmp_path, conduct=conduct, known=(earlier,), budget_s=30, shard=Shard(1, 1), first_seed=5, jobs=2
    ).run()

    assert [one.found for one in night.canaries] == [True]
    assert night.runs >= 1
    assert {name: figure.seen for name, figure in night.sensitivity.figures.items()} == {
        name: figure.injected for name, figure in night.sensitivity.figures.items()
    }
    assert night.sensitivity.total.injected >= 1
    assert night.sensitivity.runs[0] == "last-replica-standing, seed 5"
    assert night.cold == ["reassignment_completed"]
    assert asked == [("produce-consume", "processes")]
    assert (tmp_path / "out" / "runs" / "real").is_dir()  # no passing run: its folder is evidence
    assert night.exit_code in (1, 3)
    assert load(tmp_path / "out" / "nightly.json") == night
    assert (tmp_path / "out" / "junit.xml").is_file()
    assert (tmp_path / "out" / "summary.md").is_file()
    assert [(one.mutant, one.found) for one in read(tmp_path / "out" / "power.json")] == [
        ("m01_no_elr", True),
        ("m44_acks_local", False),  # what earlier nights have measured stays
    ]


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


def test_every_scenario_is_run_once_in_every_mode_that_it_can_do(tmp_path, monkeypatch):
    """By plan: what is of one mode alone, or of no simulated cluster, is no error, and each shard has its part."""
    asked = []

    def ran(plans, *, notify, **options):
        first, *asked[len(asked) :] = [*plans]
        asked.append(first)
        notify(SeedResult(scenario=first.scenario, seed=first.seed, verdict=Verdict.PASS, claim=""), Sweep())
        return Sweep()

    monkeypatch.setattr("tribunal.harness.campaign.nightly.swept", ran)
    nights = [
        night_in(
            tmp_path / str(index), text=EVERY, budget_s=100.0, shard=Shard(index, 2), first_seed=7_000_000, jobs=1
        ).run()
        for index in (1, 2)
    ]

    modes = {(plan.scenario, plan.mode) for plan in asked}
    assert len(modes) == len(asked) == sum(len(night.once) for night in nights)
    assert {("rotating-swarm", "kraft"), ("rotating-swarm", "zookeeper"), ("exact-stale-join", "kraft")} <= modes
    assert {mode for name, mode in modes if name == "wide-swarm"} == {"kraft", "zookeeper"}
    assert {mode for name, mode in modes if name == "zookeeper-upgrade"} == {"zookeeper"}
    assert ("exact-stale-join", "zookeeper") not in modes
    assert all(sum(bool(one.verdict) for one in night.once) == 1 for night in nights)
    assert all(len(night.not_begun) == len(night.once) - 1 for night in nights)
    assert "not begun: " in summary(nights[0])


def test_what_a_killed_night_had_run_of_every_scenario_is_not_run_again(tmp_path, monkeypatch):
    asked = []
    monkeypatch.setattr("tribunal.harness.campaign.nightly.swept", lambda plans, **options: asked.extend(plans))
    terms = {"budget_s": 100.0, "shard": Shard(1, 1), "first_seed": 7_000_000, "jobs": 1}
    killed = night_in(tmp_path / "one", text=EVERY, **terms).run()
    begun = len(asked)
    killed.once = [msgspec.structs.replace(one, verdict="PASS") for one in killed.once[:3]]
    killed.done = ["past findings", "canaries"]

    night_in(tmp_path / "two", text=EVERY, killed=killed, **terms).run()

    assert len(asked) == 2 * begun - 3


def test_what_every_scenario_finds_is_announced_with_the_mode_that_it_needs(tmp_path, monkeypatch):
    news = []

    def ran(plans, *, notify, **options):
        first = next(plan for plan in plans if plan.mode == "zookeeper")
        signature = Signature("lost_writes", "lost")
        notify(
            SeedResult(
                scenario=first.scenario, seed=first.seed, verdict=Verdict.VIOLATION, claim="", signatures=[signature]
            ),
            Sweep(),
        )

    monkeypatch.setattr("tribunal.harness.campaign.nightly.swept", ran)
    terms = {"budget_s": 100.0, "shard": Shard(1, 1), "first_seed": 7_000_000, "jobs": 1}

    night = night_in(tmp_path, text=EVERY, news=news.append, **terms).run()

    assert night.word == "RED"
    assert [one.again.endswith("--mode zookeeper") for one in news] == [True]


def test_the_line_that_does_it_again_names_a_scenario_by_its_file(tmp_path, monkeypatch):
    """It named what the file calls itself, which `tribunal run` does not know."""
    news = []

    def ran(plans, *, notify, **options):
        first = next(iter(plans))
        signatures = [Signature("lost_writes", "lost")]
        notify(
            SeedResult(
                scenario=first.scenario, seed=first.seed, verdict=Verdict.VIOLATION, claim="", signatures=signatures
            ),
            Sweep(),
        )

    monkeypatch.setattr("tribunal.harness.campaign.nightly.swept", ran)
    own = tmp_path / "my own.yaml"
    own.write_text(
        "scenario: small\nabout: x\nworkload: {name: produce-consume}\ntime: 2s\nsteps: [{kill: leader(p0), for: 1s}]\n"
    )
    terms = {"budget_s": 100.0, "shard": Shard(1, 1), "first_seed": 7_000_000, "jobs": 1}

    night_in(tmp_path, text=f"nightly: x\nsweeps: {{'{own}': 1}}\n", news=news.append, **terms).run()

    assert [one.again.partition(" --cluster")[0] for one in news] == [f"tribunal run '{own}'"]


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

    confirmed = night._confirmation(RealRun(scenario=str(tmp_path / "odd.yaml"), cluster="containers"), 0)

    assert confirmed.verdict == "ERROR"
    assert "slow-zookeeper" in confirmed.reasons[0]


def test_a_scenario_that_the_simulator_cannot_run_is_refused_before_the_night_begins(tmp_path, capsys):
    """The night ran everything that comes before its sweeps, and broke there."""
    (tmp_path / "odd.yaml").write_text(
        "scenario: odd\nworkload: produce-consume\nsteps: [{slow-zookeeper: random broker}]\n"
    )
    night = written(tmp_path, f"nightly: x\ncanaries: {{mutants: [M01]}}\nsweeps: {{{tmp_path}/odd.yaml: 1}}\n")

    assert exit_code(["nightly", str(night), "--out", str(tmp_path / "out")]) == 64

    assert f"sweeps: {tmp_path}/odd.yaml: " in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


def test_two_scenarios_of_one_name_are_refused(tmp_path, capsys):
    for name in ("one", "two"):
        (tmp_path / f"{name}.yaml").write_text("scenario: same\nworkload: produce-consume\nsteps: []\n")
    text = f"nightly: x\nsweeps: {{{tmp_path}/one.yaml: 1, {tmp_path}/two.yaml: 1}}\n"

    assert exit_code(["nightly", str(written(tmp_path, text)), "--out", str(tmp_path / "out")]) == 64
    assert "two scenarios of one name" in capsys.readouterr().err


REAL = "nightly: small\nconfirm: {runs: [{scenario: produce-consume, cluster: processes}]}\n"
BROKEN = Finding(topic="t", partition=0, property_name="lost_writes", kind="lost", severity="violation", explanation="")


def violating(plan, folder):
    """Stands in for real nodes: a run that lost a record."""
    run_dir = folder / "real"
    run_dir.mkdir(parents=True)
    (run_dir / "content").write_bytes(bytes(1000))
    verdict = RunVerdict(run_id="real", verdict=Verdict.VIOLATION, claim="1 x lost", findings=[BROKEN])
    return SimpleNamespace(run_dir=run_dir, verdict=verdict)


def known_issues(folder, expires):
    text = f"issues: [{{signature: lost_writes/lost, owner: ann, link: https://issues/7, expires: {expires}}}]\n"
    (folder / "known.yaml").write_text(text)
    return REAL + "known: known.yaml\n"


TERMS = {"budget_s": 5, "shard": Shard(1, 1), "first_seed": 5, "jobs": 1}


def test_real_runs_may_have_all_the_time_that_nothing_else_needs(tmp_path):
    """Of a described system there is nothing but real runs: canaries that there are not take no share."""
    config = read_config(
        written(tmp_path, "nightly: x\nconfirm: {share: 99, runs: [{scenario: produce-consume, cluster: processes}]}\n")
    )

    assert (config.confirm.share, config.canaries.mutants) == (99, ())


def test_a_night_needs_no_sweeps(tmp_path):
    night = night_in(tmp_path, text=REAL, conduct=violating, **TERMS).run()

    assert (night.word, night.exit_code) == ("RED", 1)
    assert [(one.signature, one.state, one.count) for one in night.found] == [("lost_writes/lost", "new", 1)]


@pytest.mark.parametrize(
    ("expires", "state", "code"),
    [pytest.param("2099-01-01", "known", 0, id="in hand"), pytest.param("2020-01-01", "expired", 1, id="expired")],
)
def test_a_known_issue_is_known_until_its_day(tmp_path, expires, state, code):
    received = []
    night = night_in(
        tmp_path, text=known_issues(tmp_path, expires), conduct=violating, news=received.append, **TERMS
    ).run()

    assert [(one.state, one.owner) for one in night.found] == [(state, "ann")]
    assert night.exit_code == code
    assert [one.state for one in received] == ([state] if code else [])


def finding_kept(name, state, *mutants):
    plan = SimpleNamespace(scenario="s", mode="kraft", seed=1, spec=SimpleNamespace(mutants=mutants))
    return SimpleNamespace(name=name, shows="lost_writes/lost", state=state, plan=plan)


@pytest.mark.parametrize(
    ("kept", "state"),
    [
        pytest.param([finding_kept("a", "known")], "known", id="known"),
        pytest.param([finding_kept("a", "known", "M44")], "new", id="known with a bug switched on"),
        pytest.param([finding_kept("a", "fixed"), finding_kept("z", "known")], "regressed", id="mended once"),
        pytest.param([finding_kept("a", "known"), finding_kept("z", "fixed")], "regressed", id="mended since"),
    ],
)
def test_only_a_kept_finding_of_the_code_as_it_is_makes_a_signature_known(kept, state):
    night = FindingsOfNight(
        kept=kept, issues=[], today="2026-01-01", former=None, announced=[], news=lambda signature, state, seen: None
    )

    assert night.state("lost_writes/lost", "s", "kraft") == state


def known_in(scenario="", mode="", expires="2099-01-01"):
    return KnownIssue(signature="lost_writes/lost", owner="ann", expires=expires, scenario=scenario, mode=mode)


def seen_in(scenario, mode, seed):
    return Seen(scenario=scenario, mode=mode, seed=seed, claim=f"of {scenario}", again=f"{scenario} {seed}")


@pytest.mark.parametrize(
    ("issues", "state", "announced", "named"),
    [
        pytest.param([known_in()], "known", [], ["bank", "swizzle"], id="everywhere"),
        pytest.param([known_in("bank")], "new", [("new", 2)], ["swizzle"], id="in one scenario"),
        pytest.param([known_in("bank", "zookeeper")], "new", [("new", 1)], ["bank", "swizzle"], id="in another mode"),
        pytest.param([known_in(mode="kraft")], "known", [], ["bank", "swizzle"], id="in one mode"),
        pytest.param([known_in("bank"), known_in("swizzle")], "known", [], ["bank", "swizzle"], id="in both"),
        pytest.param(
            [known_in("bank"), known_in("swizzle", expires="2020-01-01")], "expired", [("expired", 2)], ["swizzle"],
            id="no more in one of both",
        ),
        pytest.param(
            [known_in("bank"), known_in("swizzle"), known_in(expires="2020-01-01")], "known", [], ["bank", "swizzle"],
            id="the one that holds longest",
        ),
    ],
)  # fmt: skip
def test_an_issue_that_is_known_in_one_place_is_news_in_others(issues, state, announced, named):
    received = []
    night = FindingsOfNight(
        kept=[], issues=issues, today="2026-01-01", former=None, announced=[],
        news=lambda signature, of, seen: received.append((of, seen.seed)),
    )  # fmt: skip

    night.saw("lost_writes/lost", seen_in("bank", "kraft", 1))
    night.saw("lost_writes/lost", seen_in("swizzle", "kraft", 2))

    (found,) = night.found("2026-01-01", {})
    assert (found.state, found.count, found.scenarios, received) == (state, 2, named, announced)
    assert found.again == f"{named[0]} {1 if named[0] == 'bank' else 2}"


@pytest.mark.parametrize("place", ["scenario: no-such-scenario", "mode: krafty"])
def test_a_known_issue_in_a_place_that_there_is_not_is_refused(tmp_path, place):
    text = f"issues: [{{signature: lost_writes/lost, owner: ann, expires: 2099-01-01, {place}}}]\n"
    (tmp_path / "known.yaml").write_text(text)

    with pytest.raises(Unknown, match=place.rpartition(" ")[2]):
        read_known(tmp_path / "known.yaml")


@pytest.mark.parametrize(
    ("expires", "code"), [pytest.param("2099-01-01", 0, id="in hand"), pytest.param("2020-01-01", 1, id="expired")]
)
def test_what_a_kept_finding_shows_besides_is_known_until_its_day(tmp_path, monkeypatch, expires, code):
    plan = SimpleNamespace(scenario="s", mode="kraft", seed=1, spec=SimpleNamespace(mutants=()))
    kept = SimpleNamespace(name="f", shows="a/b", state="known", plan=plan)
    again = Rerun(
        name="f", about="", signature="a/b", outcome="reproduced", runs=1, max_runs=1, seconds=0.1, others=["lost_writes/lost"]
    )  # fmt: skip
    monkeypatch.setattr("tribunal.harness.campaign.nightly.all_findings", lambda folder: [kept])
    monkeypatch.setattr("tribunal.harness.campaign.nightly.rerun", lambda findings, **_: [again])
    known_issues(tmp_path, expires)
    (tmp_path / "findings").mkdir()

    night = night_in(tmp_path, text="nightly: small\nfindings: findings\nknown: known.yaml\n", **TERMS).run()

    assert night.exit_code == code


@pytest.mark.parametrize(
    ("outcome", "others", "line"),
    [
        pytest.param("regressed", [], "f regressed (a/b): `tribunal findings run f`", id="back"),
        pytest.param(
            "regressed", ["c/d"], "f regressed (a/b, besides c/d): `tribunal findings run f`", id="back, and more"
        ),
        pytest.param("fixed", ["c/d"], "f fixed (besides c/d): `tribunal findings run f`", id="fixed, but"),
    ],
)
def test_the_summary_says_what_a_past_finding_shows_and_how_to_see_it_again(tmp_path, outcome, others, line):
    """A night that was red because of one said `No signature was found tonight` and gave no line to paste."""
    night = night_in(tmp_path, text=REAL, **TERMS).night
    night.past = [
        Past(
            name="f", signature="a/b", outcome=outcome, runs=1, max_runs=1, seconds=0.1, others=others, is_bad=True, is_lost=False
        )
    ]  # fmt: skip

    said = summary(night)

    assert line in said
    assert "No signature was found so far beside those of past findings." in said
    assert " of 5 seconds, shard 1/1" in said


def test_what_was_announced_in_the_last_moment_is_not_announced_again_by_the_night_that_goes_on(tmp_path):
    """The night's file was last written before the finding: it is younger than what it says."""
    received = []
    first = night_in(tmp_path, text=REAL, conduct=violating, news=received.append, **TERMS).run()
    first.found, first.done, first.state = [], [], NightState.RUNNING

    night_in(tmp_path, text=REAL, conduct=violating_anew(), killed=first, news=received.append, **TERMS).run()

    assert [one.signature for one in received] == ["lost_writes/lost"]


def test_a_new_signature_is_announced_once_and_not_again_the_next_night(tmp_path):
    received = []
    first = night_in(
        tmp_path / "1",
        text=REAL.replace("processes}", "processes, count: 2}"),
        conduct=violating_anew(),
        news=received.append,
        **TERMS,
    ).run()
    second = night_in(tmp_path / "2", text=REAL, conduct=violating, former=first, news=received.append, **TERMS).run()

    assert [(one.signature, one.scenario) for one in received] == [("lost_writes/lost", "produce-consume on processes")]
    assert (first.found[0].count, second.found[0].since) == (2, first.began)
    assert [one.word for one in second.before] == ["RED"]


def violating_anew():
    numbers = iter("ab")
    return lambda plan, folder: violating(plan, folder / next(numbers))


def test_a_program_is_given_a_new_signature_and_its_failure_is_the_nights(tmp_path):
    def to(program):
        return night_in(
            tmp_path / f"delivered-{Path(program).name}", text=REAL, conduct=violating, news=lambda news: announce(program, news), **TERMS
        ).run()  # fmt: skip

    received = tmp_path / "received"
    script = tmp_path / "say"
    script.write_text(f"#!/bin/sh\ncat > {received}\n")
    script.chmod(0o755)

    delivered, undelivered = to(str(script)), to("/bin/false")

    assert msgspec.json.decode(received.read_bytes(), type=Announcement).signature == "lost_writes/lost"
    assert (delivered.errors, undelivered.errors) == (
        [],
        ["lost_writes/lost was not announced: /bin/false: exit code 1"],
    )


def test_an_address_gets_a_new_signature_posted(tmp_path):
    got = []

    class Receives(http.server.BaseHTTPRequestHandler):
        def do_POST(self):
            got.append(self.rfile.read(int(self.headers["Content-Length"])))
            self.send_response(204)
            self.end_headers()

        def log_message(self, *_):
            pass

    with http.server.HTTPServer(("127.0.0.1", 0), Receives) as server:
        answering = threading.Thread(target=server.handle_request)
        answering.start()
        address = f"http://127.0.0.1:{server.server_port}/"
        night_in(tmp_path, text=REAL, conduct=violating, news=lambda news: announce(address, news), **TERMS).run()
        answering.join()

    assert msgspec.json.decode(got[0], type=Announcement).claim == "1 x lost"


@pytest.mark.parametrize(
    "target",
    [
        pytest.param("http://[::1/", id="no address can be"),
        pytest.param("http://.example.invalid/", id="no name can be"),
        pytest.param("'", id="a quote that does not end"),
        pytest.param("", id="nobody"),
    ],
)
def test_an_address_that_cannot_be_notified_is_an_error_of_the_night_not_its_end(target):
    news = Announcement(
        night="n", began="", shard="1/1", commit="", signature="s", state="new", scenario="", seed=1, claim="", again="", run_dir=""
    )  # fmt: skip

    with pytest.raises(NotAnnounced):
        announce(target, news)


@pytest.mark.parametrize("target", ["", " ", "ftp://example.invalid/"])
def test_an_empty_address_to_notify_is_refused_before_the_night_begins(tmp_path, capsys, target):
    """`--notify "$ADDRESS"` of a variable that nobody has set ended the night at its first finding."""
    order = ["nightly", str(written(tmp_path)), "--out", str(tmp_path / "out"), "--notify", target]

    assert exit_code(order) == 64
    assert "a program, or an address" in capsys.readouterr().err


def test_what_is_too_large_is_not_kept_and_said(tmp_path):
    night = night_in(tmp_path, text=REAL + "artefacts_mb: 0.0005\n", conduct=violating, **TERMS).run()

    assert night.left_out == ["run real was not kept: the size limit"]
    assert not (tmp_path / "out" / "runs" / "real").exists()
    assert night.found[0].run_dirs == []


def test_a_night_that_goes_on_keeps_first_what_was_found_before_it_was_killed(tmp_path):
    runs, text = tmp_path / "out" / "runs", REAL + "artefacts_mb: 0.001\n"
    for name in ("a-run-that-nobody-named", "the-run-that-showed-it"):
        (runs / name).mkdir(parents=True)
        (runs / name / "content").write_bytes(bytes(800))
    killed = night_in(tmp_path, text=text, **TERMS).night
    killed.done = ["past findings", "canaries", "sweeps", "sensitivity", "real nodes"]
    killed.found = [
        FoundTonight(
            signature="lost_writes/lost", state="new", known_as="", count=1, scenarios=["s"], seeds=[1], claim="1 x lost",
            run_dirs=[str(runs / "the-run-that-showed-it")], again="",
        )
    ]  # fmt: skip

    night = night_in(tmp_path, text=text, killed=killed, **TERMS).run()

    assert [path.name for path in runs.iterdir()] == ["the-run-that-showed-it"]
    assert night.left_out == ["run a-run-that-nobody-named was not kept: the size limit"]


def sweeping(reached, *, then=None):
    """Stands in for the simulator: one seed of each sweep, which reached guards so often."""

    def swept(plans, *, notify, account, guards, **options):
        plan = next(iter(plans))
        words = [str(guard) for guard in guards.known]
        result = SeedResult(
            scenario=plan.scenario, seed=plan.seed, verdict=Verdict.PASS, claim="",
            guards={words[place]: count for place, count in reached.items()},
        )  # fmt: skip
        account.add(result)
        notify(result, account)
        if then is not None:
            raise then

    return swept


def counts_of(folder):
    return sorted(count for count in read_guards(folder).values() if count)


def test_a_night_that_goes_on_adds_its_guards_to_those_of_its_first_part(tmp_path, monkeypatch):
    """The table had the second part's counts alone, beside an account with the guards of both."""
    monkeypatch.setattr("tribunal.harness.campaign.nightly.SAVED_EVERY_S", -1)
    monkeypatch.setattr("tribunal.harness.campaign.nightly.swept", sweeping({0: 2, 1: 1}, then=KeyboardInterrupt()))
    first = night_in(tmp_path, text="nightly: small\nsweeps: {produce-consume: 1}\n", **TERMS)
    with pytest.raises(KeyboardInterrupt):
        first.run()
    killed = load(tmp_path / "out" / "nightly.json")
    killed.state = NightState.RUNNING

    monkeypatch.setattr("tribunal.harness.campaign.nightly.swept", sweeping({1: 3, 2: 5}))
    text = "nightly: small\nsweeps: {produce-consume: 1}\n"
    whole = night_in(tmp_path, text=text, killed=killed, **TERMS).run()

    assert counts_of(tmp_path / "out") == [2, 4, 5]
    assert whole.guards_known - len(whole.guards_cold) == 3
    assert whole.guards_cold == cold(read_guards(tmp_path / "out"))


def test_guards_are_written_down_while_a_sweep_is_under_way(tmp_path, monkeypatch):
    """A night that was killed in its sweep left no table: what its first part reached was lost to the whole."""
    seen = []
    monkeypatch.setattr("tribunal.harness.campaign.nightly.SAVED_EVERY_S", -1)

    def swept(plans, **options):
        sweeping({0: 2})(plans, **options)
        seen.extend(counts_of(tmp_path / "out"))

    monkeypatch.setattr("tribunal.harness.campaign.nightly.swept", swept)

    night_in(tmp_path, text="nightly: small\nsweeps: {produce-consume: 1}\n", **TERMS).run()

    assert seen == [2]


def test_runs_of_every_scenario_reach_guards_and_are_written_down_as_they_end(tmp_path, monkeypatch):
    seen = []
    monkeypatch.setattr("tribunal.harness.campaign.nightly.SAVED_EVERY_S", -1)

    def swept(plans, **options):
        sweeping({4: 7})(plans, **options)
        seen.append(load(tmp_path / "out" / "nightly.json").once_verdicts)

    monkeypatch.setattr("tribunal.harness.campaign.nightly.swept", swept)

    night = night_in(tmp_path, text=EVERY, **TERMS).run()

    assert seen == [{"PASS": 1}]
    assert counts_of(tmp_path / "out") == [7]
    assert night.guards_known - len(night.guards_cold) == 1


def test_a_night_without_a_simulated_run_says_that_no_guard_was_reached(tmp_path):
    """It wrote no table, or left that of the night before it there."""
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "guards.csv").write_text("module,function,guard,reached\nreplog.log,f,raises X,9\n")

    night = night_in(tmp_path, text=REAL, conduct=violating, **TERMS).run()

    assert night.guards_known == 0
    table = read_guards(tmp_path / "out")
    assert len(table) > 500
    assert set(table.values()) == {0}


@pytest.mark.parametrize("content", [b"a,b\n", b"module,function,guard,reached\na,b,c\n", b"\xff"])
def test_a_table_of_guards_that_is_none_is_refused_by_its_name(tmp_path, capsys, content):
    night_in(tmp_path, text=REAL, conduct=violating, **TERMS).run()
    table = tmp_path / "out" / "guards.csv"
    table.write_bytes(content)

    assert exit_code(["merge", str(tmp_path / "out"), "--out", str(tmp_path / "whole")]) == 64
    assert f"{table}: not a table of guards" in capsys.readouterr().err
    assert not (tmp_path / "whole").exists()


def test_the_whole_of_shards_has_their_guards_and_their_measurements_of_known_bugs(tmp_path):
    """Neither was merged: the night after it (`--last`) knew of no known bug any more."""
    folders = []
    before = [measured(name, found=False, seconds=1.0) for name in ("m01_no_elr", "m44_acks_local")]
    for index, own in ((1, "m01_no_elr"), (2, "m44_acks_local")):
        terms = {**TERMS, "shard": Shard(index, 2)}
        folder = tmp_path / str(index) / "out"
        text = REAL.replace("processes}", "processes, count: 2}")
        night = night_in(tmp_path / str(index), text=text, conduct=violating, known=before, **terms).run()
        night.canaries = [
            Canary(mutant=own, scenario="s", found=True, seen_by=[], seeds=1, seconds=2.0 * index, note="")
        ]
        save(night, folder)
        write_power(folder / "power.json", brought_up_to_date(before, [measured(own, found=True, seconds=2.0 * index)]))
        places = list(read_guards(folder))
        write_guards(folder, added([read_guards(folder), Counter({places[0]: index, places[index]: 1})]))
        folders.append(str(folder))

    exit_code(["merge", *folders, "--out", str(tmp_path / "whole")])

    assert counts_of(tmp_path / "whole") == [1, 1, 3]
    assert len(read_guards(tmp_path / "whole")) == len(places)
    known = {one.mutant: (one.found, one.seconds) for one in read(tmp_path / "whole" / "power.json")}
    assert known == {"m01_no_elr": (True, 2.0), "m44_acks_local": (True, 4.0)}


def measured(mutant, *, found, seconds):
    return Power(mutant=mutant, scenario="s", found=found, by=By.OWN, seen_by=[], seed=None, seeds=3, seconds=seconds)


def test_measurements_of_known_bugs_stay_where_a_night_has_no_canaries(tmp_path):
    """The chain from night to night broke there, and at every shard without one."""
    before = measured("m44_acks_local", found=False, seconds=1.0)

    night_in(tmp_path, text=REAL, conduct=violating, known=(before,), **TERMS).run()

    assert read(tmp_path / "out" / "power.json") == [before]


def test_a_night_that_broke_says_so(tmp_path):
    def broken(plan, folder):
        raise ValueError("no such thing")

    with pytest.raises(ValueError, match="no such thing"):
        night_in(tmp_path, text=REAL, conduct=broken, **TERMS).run()

    left = load(tmp_path / "out" / "nightly.json")
    assert (left.state, left.under_way, left.errors) == (NightState.FAILED, "real nodes", ["ValueError: no such thing"])
    assert "did not end: it is failed, at real nodes" in (tmp_path / "out" / "index.html").read_text()


def test_the_next_command_says_that_a_night_was_killed_and_resume_goes_on(tmp_path, capsys):
    out = tmp_path / "out"
    killed = night_in(tmp_path, text=REAL, **TERMS).night
    killed.under_way, killed.done, killed.began = (
        "real nodes",
        ["past findings", "canaries", "sweeps"],
        "2026-11-21T02:00:00Z",
    )
    save(killed, out)
    file = written(tmp_path, "nightly: small\nfindings: findings\n")
    (tmp_path / "findings").mkdir()
    options = ["--out", str(out), "--engine", "inline", "--budget", "5s"]

    assert exit_code(["nightly", str(file), *options, "--resume"]) == 2  # there are no past findings: nothing was run
    assert "killed at real nodes" in capsys.readouterr().err
    assert load(out / "nightly.json").done[-1] == "tables"
    assert exit_code(["nightly", str(file), *options, "--resume"]) == 64
    save(killed, out)
    assert exit_code(["nightly", str(file), *options]) == 2
    assert "did not end: killed at real nodes" in capsys.readouterr().err
    with held(out):
        assert exit_code(["nightly", str(file), *options]) == 64


@pytest.mark.parametrize(
    "wrong",
    [
        pytest.param(["--budget", "much"], id="budget"),
        pytest.param(["--shard", "5/4"], id="shard"),
        pytest.param(["--last", "nowhere.json"], id="last night"),
    ],
)
def test_wrong_usage_leaves_a_killed_night_where_it_can_be_gone_on_with(tmp_path, capsys, wrong):
    """A word that was mistyped moved its account aside: `--resume` found nothing any more."""
    out = tmp_path / "out"
    killed = night_in(tmp_path, text=REAL, **TERMS).night
    save(killed, out)

    assert exit_code(["nightly", str(written(tmp_path)), "--out", str(out), *wrong]) == 64
    assert (out / "nightly.json").is_file()
    assert not list(out.glob("killed-*.json"))


def test_the_night_after_one_that_was_killed_in_the_same_folder_is_compared_with_it(tmp_path, capsys):
    """`--last OUT/nightly.json` of a killed night was looked for after it had been moved aside: no night began any more."""
    out = tmp_path / "out"
    killed = night_in(tmp_path, text=REAL, **TERMS).night
    killed.began = "2026-11-21T02:00:00Z"
    save(killed, out)
    (tmp_path / "findings").mkdir()
    file = written(tmp_path, "nightly: small\nfindings: findings\n")
    options = ["--out", str(out), "--last", str(out / "nightly.json"), "--engine", "inline", "--budget", "5s"]

    assert exit_code(["nightly", str(file), *options]) == 2  # there are no past findings: nothing was run
    assert "killed" in capsys.readouterr().err
    assert [one.began for one in load(out / "nightly.json").before] == [killed.began]


def test_a_night_does_not_go_on_with_another_commit(tmp_path, capsys):
    """Its account named the first commit alone."""
    out = tmp_path / "out"
    killed = night_in(tmp_path, text=REAL, **TERMS).night
    killed.commit = "a" * 40
    save(killed, out)

    assert exit_code(["nightly", str(written(tmp_path, REAL)), "--out", str(out), "--resume"]) == 64
    assert "ran commit aaaaaaaaaaaa, this is" in capsys.readouterr().err
    assert load(out / "nightly.json").commit == killed.commit


def test_a_night_that_could_not_be_added_says_so_on_its_index_page_too(tmp_path, monkeypatch):
    def refused(store, night):
        raise BadScenario(f"{store}: no room")

    monkeypatch.setattr("tribunal.harness.cli.night.keep", refused)
    monkeypatch.setattr("tribunal.harness.cli.night.can_keep", lambda: None)
    (tmp_path / "findings").mkdir()
    file, out = written(tmp_path, "nightly: small\nfindings: findings\n"), tmp_path / "out"

    options = ["--out", str(out), "--engine", "inline", "--budget", "5s", "--nights", str(tmp_path / "nights")]

    assert exit_code(["nightly", str(file), *options]) == 3
    assert "harness failure" in (out / "summary.md").read_text()
    assert "harness failure" in (out / "index.html").read_text()


def test_what_a_past_finding_showed_last_night_is_not_announced_again(tmp_path, monkeypatch):
    """A fixed bug that was back was announced every night."""
    received = []
    plan = SimpleNamespace(scenario="s", mode="kraft", seed=1, spec=SimpleNamespace(mutants=()))
    kept = SimpleNamespace(name="f", shows="a/b", state="fixed", plan=plan)
    again = Rerun(
        name="f", about="", signature="a/b", outcome="regressed", runs=1, max_runs=1, seconds=0.1, others=["c/d"]
    )
    monkeypatch.setattr("tribunal.harness.campaign.nightly.all_findings", lambda folder: [kept])
    monkeypatch.setattr("tribunal.harness.campaign.nightly.rerun", lambda findings, **_: [again])
    (tmp_path / "findings").mkdir()
    text = "nightly: small\nfindings: ../findings\n"

    first = night_in(tmp_path / "1", text=text, news=received.append, **TERMS).run()
    second = night_in(tmp_path / "2", text=text, news=received.append, former=first, **TERMS).run()

    assert (first.exit_code, second.exit_code) == (1, 1)
    assert sorted(one.signature for one in received) == ["a/b", "c/d"]


def test_a_scenario_of_ones_own_is_known_and_in_quarantine_by_its_name(tmp_path):
    """A known issue there was refused, and a quarantine there held nothing: a real run was called by its file's path."""
    own = tmp_path / "my own.yaml"
    own.write_text("scenario: mine\nabout: x\nworkload: produce-consume\ntime: 2s\nsteps: []\n")
    (tmp_path / "known.yaml").write_text(
        "issues: [{signature: lost_writes/lost, owner: ann, expires: 2099-01-01, scenario: mine}]\n"
        "quarantine: [{scenario: mine, cluster: processes, rate: 90, owner: bob, expires: 2099-01-01}]\n"
    )
    text = f"nightly: x\nknown: known.yaml\nconfirm: {{runs: [{{scenario: '{own}', cluster: processes}}]}}\n"

    def unjudged(plan, folder):
        (folder / "real").mkdir(parents=True)
        verdict = RunVerdict(run_id="real", verdict=Verdict.INCONCLUSIVE, claim="", reasons=["why"])
        return SimpleNamespace(run_dir=folder / "real", verdict=verdict)

    known = night_in(tmp_path / "1", text=text.replace("known.yaml", "../known.yaml"), conduct=violating, **TERMS).run()
    held = night_in(tmp_path / "2", text=text.replace("known.yaml", "../known.yaml"), conduct=unjudged, **TERMS).run()

    assert (known.exit_code, held.exit_code) == (0, 0)
    assert known.found[0].again == f"tribunal run '{own}' --cluster processes --seed 5"


def test_seeds_that_a_killed_night_has_left_do_not_hold_its_folder(tmp_path):
    """`--resume` right after `kill -9` found no night that was killed while one of its forked seeds went on to its end."""
    reader, writer = os.pipe()
    begun, begins = os.pipe()
    with held(tmp_path):
        seed = os.fork()
        if seed == 0:
            os.close(writer)
            os.write(begins, b"1")
            os.read(reader, 1)
            os._exit(0)
        os.close(reader)
        assert os.read(begun, 1)
    try:
        is_free = not is_held(tmp_path)
    finally:
        for descriptor in (writer, begun, begins):
            os.close(descriptor)
        os.waitpid(seed, 0)

    assert is_free


@contextmanager
def as_reader(folder):
    """Be somebody who may read a folder, and not write there."""
    for path, mode in ((folder, 0o555), *((one, 0o444) for one in folder.iterdir())):
        path.chmod(mode)
    is_root = os.geteuid() == 0
    if is_root:
        os.seteuid(NOBODY)
    try:
        yield
    finally:
        if is_root:
            os.seteuid(0)
        folder.chmod(0o755)


@pytest.mark.parametrize("looks", [1, 2], ids=["alone", "beside somebody else who looks"])
def test_who_may_only_read_sees_that_no_night_is_under_way(looks):
    with tempfile.TemporaryDirectory() as made:
        folder = Path(made)
        with held(folder), as_reader(folder):
            assert is_held(folder)
        with as_reader(folder), ExitStack() as others:
            for _ in range(looks - 1):
                fcntl.flock(others.enter_context((folder / LOCK).open("rb")), fcntl.LOCK_SH)
            assert not is_held(folder)


def test_one_command_makes_one_night_of_its_shards(tmp_path, capsys):
    for index in (1, 2):
        text = REAL.replace("processes}", "processes, count: 2}")
        terms = {**TERMS, "shard": Shard(index, 2)}
        night_in(tmp_path / str(index), text=text, conduct=violating, **terms).run()
    folders = [str(tmp_path / index / "out") for index in "12"]

    assert exit_code(["merge", *folders, "--out", str(tmp_path / "whole")]) == 1

    whole = load(tmp_path / "whole" / "nightly.json")
    assert [one.count for one in whole.found] == [2]
    assert sorted(path.name for path in (tmp_path / "whole" / "runs").iterdir()) == ["real", "real.2"]
    assert (tmp_path / "whole" / "index.html").is_file()
    assert exit_code(["merge", folders[0], folders[0], "--out", str(tmp_path / "twice")]) == 64
    assert exit_code(["merge", folders[0], "--out", str(tmp_path / "half")]) == 1
    assert "shard 2/2 is missing" in capsys.readouterr().out


def test_runs_of_one_name_in_several_shards_stay_those_of_their_findings(tmp_path):
    folders = []
    for index in (1, 2):
        terms = {**TERMS, "shard": Shard(index, 2)}
        night_in(
            tmp_path / str(index), text=REAL.replace("processes}", "processes, count: 2}"), conduct=violating, **terms
        ).run()
        folder = tmp_path / str(index) / "out"
        (folder / "runs" / "real" / "of").write_text(str(index))
        shard = load(folder / "nightly.json")
        shard.found = [msgspec.structs.replace(one, signature=f"{one.signature}{index}") for one in shard.found]
        save(shard, folder)
        folders.append(str(folder))

    exit_code(["merge", *folders, "--out", str(tmp_path / "whole")])

    whole = load(tmp_path / "whole" / "nightly.json")
    runs_of = {one.signature[-1]: [Path(run, "of").read_text() for run in one.run_dirs] for one in whole.found}
    assert runs_of == {"1": ["1"], "2": ["2"]}
    assert [Path(one.run_dir, "of").read_text() for one in whole.confirmations] == ["1", "2"]
    assert all(Path(one.run_dir).is_relative_to(tmp_path / "whole") for one in whole.confirmations)


def test_a_shard_that_is_not_there_is_wrong_usage(tmp_path, capsys):
    assert exit_code(["merge", str(tmp_path / "gone"), "--out", str(tmp_path / "whole")]) == 64
    assert capsys.readouterr().err.splitlines() == [
        f"tribunal: no night was written to {tmp_path}/gone: name the folders of `tribunal nightly --out`"
    ]


SEARCH = "nightly: small\nsearch: {scenarios: [rotating-swarm], modes: [kraft, zookeeper], share: 80}\n"


def searching(ran, *, after=4, new=3):
    """Stand for the search: a run that shows something, one that does not, and a corpus that grew."""

    def search(scenarios, corpus, *, seed, budget_s, runner, scratch, account, notify):
        ran.append((scenarios[0].spec.mode, corpus.runs, seed, budget_s))
        plan = made(scenarios[0], seed=seed, cluster="simulated", time_ms=None, mutants=())
        shown = [Signature("lost_writes", "lost")]
        for number, (signatures, verdict) in enumerate([(shown, Verdict.VIOLATION), ([], Verdict.PASS)]):
            folder = scratch / f"rotating-swarm.{number}-{seed}"
            folder.mkdir(parents=True)
            result = SeedResult(
                scenario=f"{plan.scenario}.{number}", mode=plan.mode, seed=seed, verdict=verdict, claim="",
                signatures=signatures, run_dir=str(folder),
            )  # fmt: skip
            account.add(result)
            corpus.runs += after
            corpus.save()
            notify(
                Ran(number, Chosen(plan, "drawn"), result, []),
                Searched(runs=number + 1, new=new, states=9, seconds=60.0),
            )

    return search


def test_a_night_searches_in_each_mode_and_the_next_one_goes_on_from_its_corpora(tmp_path, monkeypatch):
    ran: list = []
    monkeypatch.setattr("tribunal.harness.campaign.nightly.search_for", searching(ran))
    terms = {"budget_s": 100, "shard": Shard(1, 1), "first_seed": 7, "jobs": 1}
    news: list[Announcement] = []

    first = night_in(tmp_path / "first", text=SEARCH, news=news.append, **terms).run()
    night_in(tmp_path / "second", text=SEARCH, corpora=tmp_path / "first" / "out" / "corpus", **terms).run()

    assert [(mode, runs, seed) for mode, runs, seed, _ in ran] == [
        ("kraft", 0, 7), ("zookeeper", 0, 7), ("kraft", 8, 7), ("zookeeper", 8, 7),
    ]  # fmt: skip
    assert all(39 < budget_s <= 40 for *_, budget_s in ran)
    assert [(one.mode, one.runs, one.new, one.verdicts) for one in first.guided] == [
        (mode, 2, 3, {"VIOLATION": 1, "PASS": 1}) for mode in ("kraft", "zookeeper")
    ]
    assert (first.word, first.exit_code) == ("RED", 1)
    assert "guided search" in summary(first)
    (found,) = news
    plan = tmp_path / "first" / "out" / "runs" / "rotating-swarm.0-7" / "plan.json"
    assert found.again == f"tribunal run --plan {plan}"
    assert read_plan(plan).scenario == "rotating-swarm"
    assert first.found[0].again == found.again


def test_what_a_search_had_found_in_the_round_that_was_interrupted_is_in_the_night(tmp_path, monkeypatch):
    def one_found_and_no_more(self, plans, *, scratch, account, **_):
        folder = scratch / run_name(plans[0])
        folder.mkdir(parents=True)
        account.add(
            SeedResult(
                scenario=plans[0].scenario, seed=plans[0].seed, verdict=Verdict.VIOLATION, claim="1 x lost",
                signatures=[Signature("lost_writes", "lost")], run_dir=str(folder),
            )
        )  # fmt: skip
        raise KeyboardInterrupt

    monkeypatch.setattr(LocalRunner, "swept", one_found_and_no_more)
    nightly = night_in(tmp_path, text=SEARCH, budget_s=100, shard=Shard(1, 1), first_seed=7, jobs=1)

    with pytest.raises(KeyboardInterrupt):
        nightly.run()

    night = load(tmp_path / "out" / "nightly.json")
    (found,) = night.found
    place = Path(found.run_dirs[0])
    assert (found.signature, night.guided[0].verdicts) == ("lost_writes/lost", {"VIOLATION": 1})
    assert read_plan(place / "plan.json").scenario == "rotating-swarm"
    assert found.again == f"tribunal run --plan {place / 'plan.json'}"


def test_a_corpus_that_cannot_be_gone_on_with_stays_beside_a_new_one(tmp_path, monkeypatch):
    ran: list = []
    monkeypatch.setattr("tribunal.harness.campaign.nightly.search_for", searching(ran))
    corpus = tmp_path / "out" / "corpus" / "kraft"
    corpus.mkdir(parents=True)
    (corpus / "corpus.json").write_text('{"corpus_version": 0}')

    text = SEARCH.replace(", zookeeper", "")
    night = night_in(tmp_path, text=text, budget_s=100, shard=Shard(1, 1), first_seed=7, jobs=1).run()

    assert [runs for _, runs, *_ in ran] == [0]
    (line,) = night.left_out
    assert "search in kraft mode began anew" in line
    assert "corpus version 0" in line
    assert (tmp_path / "out" / "corpus" / "kraft-not-used" / "corpus.json").exists()


def test_shards_search_with_seeds_and_corpora_of_their_own_and_are_one_night(tmp_path, monkeypatch, capsys):
    ran: list = []
    monkeypatch.setattr("tribunal.harness.campaign.nightly.search_for", searching(ran))
    text = SEARCH.replace(", zookeeper", "")
    for number in (1, 2):
        night_in(tmp_path / str(number), text=text, budget_s=100, shard=Shard(number, 2), first_seed=7, jobs=1).run()

    code = exit_code(
        ["merge", *(str(tmp_path / f"{number}" / "out") for number in (1, 2)), "--out", str(tmp_path / "all")]
    )

    whole = load(tmp_path / "all" / "nightly.json")
    assert code == 1
    assert [seed for _, _, seed, _ in ran] == [7, 8]
    assert [(one.mode, one.runs, one.new, one.states, one.verdicts) for one in whole.guided] == [
        ("kraft", 4, 6, 9, {"VIOLATION": 2, "PASS": 2})
    ]
    assert sorted(path.name for path in (tmp_path / "all" / "corpus").iterdir()) == ["kraft-1of2", "kraft-2of2"]


@pytest.mark.nightly
@pytest.mark.timeout(200)
def test_a_night_of_a_real_search_leaves_a_corpus(tmp_path):
    text = "nightly: small\nsearch: {scenarios: [rotating-swarm], share: 50}\n"

    night = night_in(tmp_path, text=text, budget_s=2, shard=Shard(1, 1), first_seed=7, jobs=2).run()

    (guided,) = night.guided
    assert guided.runs == 4  # one round, however short the time
    assert guided.new > 100
    assert night.guards_known > len(night.guards_cold)
    assert (tmp_path / "out" / "corpus" / "kraft" / "corpus.json").exists()
    assert night.word == "green", night.harness_failures
