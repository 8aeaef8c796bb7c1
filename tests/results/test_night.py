"""The night's account: one red case per bug, a summary of one page, exit codes that distinguish the system from the harness."""

import xml.etree.ElementTree as ElementTree
from pathlib import Path

import msgspec
import pytest
import xmlschema

from tribunal.results.night import (
    Canary,
    Confirmation,
    FoundTonight,
    Night,
    NightState,
    Past,
    Quarantine,
    Swept,
    compared,
    least_runs,
)
from tribunal.results.night_files import ANNOUNCED, announced, killed, load, note_announced, save, summary
from tribunal.results.night_junit import junit
from tribunal.results.night_merge import continued, of_shards
from tribunal.results.sensitivity import Figure, Sensitivity

SCHEMA = Path(__file__).with_name("junit.xsd")


def night(**changes):
    base = Night(
        name="tribunal", began="2026-11-21T02:00:00Z", commit="c" * 40, lock_sha256="l", shard="1/1", budget_s=3600.0,
        first_seed=7, seconds=3590.0,
        swept=[Swept(scenario="rotating-swarm", runs=900, seconds=3000.0, simulated_ms=54_000_000, verdicts={"PASS": 900})],
        canaries=[Canary(mutant="m01_no_elr", scenario="s", found=True, seen_by=["x"], seeds=2, seconds=9.0, note="")],
        past=[Past(name="p", signature="I4: #", outcome="stays fixed", runs=1, max_runs=1, seconds=2.0, others=[],
                   is_bad=False, is_lost=False)],
    )  # fmt: skip
    return msgspec.structs.replace(base, **changes)


def found(signature="lost_writes/lost", state="new", **changes):
    base = FoundTonight(
        signature=signature, state=state, known_as="", count=3, scenarios=["rotating-swarm"], seeds=[7, 9, 12],
        claim="3 x lost", run_dirs=[], again="tribunal run rotating-swarm --cluster simulated --seed 7",
    )  # fmt: skip
    return msgspec.structs.replace(base, **changes)


MISSED = Canary(mutant="m44_acks_local", scenario="s", found=False, seen_by=[], seeds=80, seconds=60.0, note="")


def real(verdict):
    return Confirmation(
        scenario="produce-consume", cluster="containers", seed=7, verdict=verdict, claim="claim", reasons=["why"],
        seconds=60.0, run_dir="runs/x",
    )  # fmt: skip


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        pytest.param({}, 0, id="green"),
        pytest.param({"swept": [], "canaries": []}, 0, id="past findings alone"),
        pytest.param({"swept": [], "past": []}, 2, id="canaries alone: nothing of the system itself was run"),
        pytest.param({"swept": [], "canaries": [], "past": []}, 2, id="nothing at all"),
        pytest.param({"swept": [Swept(scenario="s")]}, 2, id="a scenario without a run, and no bound asked for"),
        pytest.param({"found": [found(state="known")]}, 0, id="a known one"),
        pytest.param({"found": [found()]}, 1, id="a new one"),
        pytest.param({"found": [found(state="regressed")]}, 1, id="a mended one is back"),
        pytest.param({"canaries": [MISSED]}, 3, id="a green canary is the harness's failure"),
        pytest.param({"canaries": [MISSED], "found": [found()]}, 1, id="a violation goes first"),
        pytest.param({"cold": ["elr_nonempty"]}, 3, id="a cold probe"),
        pytest.param({"confirmations": [real("VIOLATION")]}, 1, id="real violation"),
        pytest.param({"confirmations": [real("INCONCLUSIVE")]}, 2, id="real inconclusive"),
        pytest.param({"confirmations": [real("ERROR")]}, 3, id="real error"),
        pytest.param({"confirmations": [real("PERMITTED")]}, 0, id="real permitted"),
    ],
)
def test_exit_codes(changes, code):
    assert night(**changes).exit_code == code


def test_the_same_bug_opens_one_red_case_however_often_it_shows(tmp_path):
    save(night(found=[found(count=300, scenarios=["a", "b", "c"])]), tmp_path)

    root = ElementTree.parse(tmp_path / "junit.xml").getroot()
    assert len(root.findall(".//failure")) == 1
    assert root.find(".//failure/..").get("name") == "lost_writes/lost"


def test_what_the_harness_failed_at_is_an_error_and_not_a_failure():
    root = ElementTree.fromstring(junit(night(canaries=[MISSED], cold=["x"])).tostring())

    assert len(root.findall(".//error")) == 2
    assert not root.findall(".//failure")


KNOWN_ON_REAL_NODES = msgspec.structs.replace(
    real("VIOLATION"), signatures=["lost_writes/lost"], reasons=["\x1b[31mthe node said so in red"]
)


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"found": [found(signature='<b>"&\x00\ud800', claim="]]>\x1b[31m")]},
        {"canaries": [MISSED], "cold": ["x"], "confirmations": [real("ERROR"), real("PASS")]},
        {"found": [found(state="known", owner="\x1b[1mann")], "confirmations": [KNOWN_ON_REAL_NODES]},
        {"found": [found(claim="\ufffe\uffff")]},
        {"swept": [Swept(scenario="never-begun")]},
    ],
)
def test_junit_is_read_by_a_strict_parser(tmp_path, changes):
    save_only_junit = tmp_path / "junit.xml"
    junit(night(**changes)).write(str(save_only_junit), pretty=True)

    xmlschema.XMLSchema(SCHEMA).validate(str(save_only_junit))


def test_the_summary_has_at_most_40_lines_however_bad_the_night_was():
    bad = night(
        found=[found(signature=f"s{number}") for number in range(50)],
        canaries=[MISSED] * 30,
        cold=[f"probe{number}" for number in range(60)],
        confirmations=[real("VIOLATION")] * 40,
        errors=["e"] * 40,
        trend={f"figure {number}": [1.0, 2.0] for number in range(8)},
        fallen=[f"class{number}: 1 of 2, last 2 of 2" for number in range(60)],
    )

    text = summary(bad)

    assert len(text.splitlines()) <= 40
    assert "44 more signatures" in text


def test_the_summary_takes_no_markup_from_what_it_reports():
    text = summary(night(found=[found(signature="<script>|`x`")]))

    assert "<script>" not in text.replace("\\<", "")
    assert "\\|" in text


def test_a_line_that_was_cut_off_hides_nothing_that_is_announced_after_it(tmp_path):
    """The night that went on wrote behind it, and could not be gone on with a second time."""
    note_announced(tmp_path, "a/b")
    with (tmp_path / ANNOUNCED).open("ab") as file:
        file.write(b'"c/d')

    note_announced(tmp_path, "e/f")

    assert announced(tmp_path) == ["a/b", "e/f"]


def test_a_night_reads_as_it_was_saved(tmp_path):
    kept = night(found=[found()])
    save(kept, tmp_path)

    assert load(tmp_path / "nightly.json") == kept


def measured(**figures):
    return Sensitivity(
        runs=["s, seed 1"], figures={name: Figure(injected=2, seen=seen) for name, seen in figures.items()}
    )


def test_a_class_that_is_seen_less_than_last_night_fails_the_harness():
    last, now = night(sensitivity=measured(hole=2, torn=1)), night(sensitivity=measured(hole=1, torn=1))

    compared(now, last)

    assert now.fallen == ["hole: 1 of 2, last 2 of 2"]
    assert now.exit_code == 3
    assert now.trend["anomalies seen, %"] == [75.0, 50.0]
    assert "**anomalies seen** 2/4 put into 1 recordings; fell: hole: 1 of 2, last 2 of 2" in summary(now)
    root = ElementTree.fromstring(junit(now).tostring())
    cases = {
        case.get("name"): case.find("error") is not None
        for case in root.iter("testcase")
        if "sensitivity" in case.get("classname")
    }
    assert cases == {"hole": True, "torn": False}


def test_a_night_that_sees_as_much_as_the_last_one_is_green():
    now = night(sensitivity=measured(hole=2, torn=1))

    compared(now, night(sensitivity=measured(hole=2)))

    assert (now.fallen, now.exit_code) == ([], 0)


def test_a_night_without_calibration_is_compared_without_its_figure():
    now = night(sensitivity=measured(hole=2))

    compared(now, night())

    assert (now.fallen, now.exit_code) == ([], 0)
    assert "anomalies seen, %" not in now.trend


STOPPED = [NightState.RUNNING, NightState.INTERRUPTED, NightState.FAILED]


@pytest.mark.parametrize("state", STOPPED)
def test_a_night_that_did_not_end_says_so_everywhere(tmp_path, state):
    save(night(state=state, under_way="sweeps", done=["canaries"]), tmp_path)

    kept = load(tmp_path / "nightly.json")
    assert (kept.word, kept.exit_code) == ("did not end", 3)
    assert f"This night did not end: it is {state}, at sweeps" in (tmp_path / "summary.md").read_text()
    root = ElementTree.parse(tmp_path / "junit.xml").getroot()
    (case,) = [case for case in root.iter("testcase") if case.find("error") is not None]
    assert (case.get("name"), case.find("error").get("message")) == (
        "the night", f"the night did not end: {state} at sweeps",
    )  # fmt: skip
    assert (killed(tmp_path) is not None) == (state is NightState.RUNNING)


def test_a_night_that_ended_has_no_such_word(tmp_path):
    save(night(), tmp_path)

    assert "did not end" not in (tmp_path / "summary.md").read_text()
    assert "<error" not in (tmp_path / "junit.xml").read_text()
    assert killed(tmp_path) is None


@pytest.mark.parametrize(
    ("runs", "word", "code"), [pytest.param(29, "green", 0, id="enough"), pytest.param(28, "not enough seeds", 2, id="one too few")]
)  # fmt: skip
def test_a_bound_of_ten_per_cent_needs_29_runs(runs, word, code):
    """0.95 = 1 - 0.9 ** 28.4: the rule of three."""
    few = night(bound=10, least_runs=least_runs(10), swept=[Swept(scenario="s", runs=runs, verdicts={"PASS": runs})])

    assert (few.word, few.exit_code) == (word, code)
    assert ("not enough seeds" in junit(few).tostring().decode()) == (code == 2)


@pytest.mark.parametrize(
    ("state", "word", "shortfalls"),
    [
        pytest.param("known", "not enough seeds", 1, id="a known one says nothing of what else there may be"),
        pytest.param("new", "RED", 0, id="a new one makes it red"),
    ],
)
def test_a_violation_in_few_runs_makes_no_night_green(state, word, shortfalls):
    swept = Swept(scenario="s", runs=1, verdicts={"VIOLATION": 1})
    few = night(bound=10, least_runs=29, swept=[swept], found=[found(state=state)])

    assert (few.word, len(few.shortfalls)) == (word, shortfalls)


def test_runs_without_an_answer_do_not_make_a_night_green():
    few = night(
        bound=10, least_runs=29, swept=[Swept(scenario="s", runs=90, verdicts={"INCONCLUSIVE": 80, "PASS": 10})]
    )

    assert few.shortfalls == ["s: 10 runs with an answer, 29 are needed for a bound of 10 %"]


@pytest.mark.parametrize(
    ("seeds", "word", "code", "line"),
    [
        pytest.param(0, "not enough seeds", 2, "no time was left for a seed", id="no seed ended"),
        pytest.param(1, "harness failure", 3, "the canary is green", id="a seed did not find it"),
    ],
)
def test_a_canary_that_no_time_was_left_for_was_not_missed(seeds, word, code, line):
    """On a machine with load 11 the first canary took the time of the second, and the night said that the harness had failed."""
    canary = Canary(mutant="m44_acks_local", scenario="s", found=False, seen_by=[], seeds=seeds, seconds=0.1, note="")
    slow = night(canaries=[canary])

    assert (slow.word, slow.exit_code) == (word, code)
    assert line in junit(slow).tostring().decode()
    assert ("no time for m44" in summary(slow)) == (code == 2)


def held(rate):
    return Quarantine(scenario="produce-consume", cluster="containers", rate=rate, owner="ann", expires="2099-01-01")


@pytest.mark.parametrize(
    ("quarantine", "inconclusive", "code"),
    [
        pytest.param([], 1, 2, id="nobody has it in hand"),
        pytest.param([held(20)], 1, 0, id="in hand"),
        pytest.param([held(20)], 3, 2, id="in hand, and far too many"),
    ],
)
def test_what_cannot_be_judged_is_passed_over_up_to_a_stated_rate(quarantine, inconclusive, code):
    real_runs = [real("INCONCLUSIVE")] * inconclusive
    tonight = night(confirmations=real_runs, quarantine=quarantine)

    assert tonight.exit_code == code
    assert len(ElementTree.fromstring(junit(tonight).tostring()).findall(".//error")) == (inconclusive if code else 0)
    assert f"INCONCLUSIVE: produce-consume on containers {inconclusive} of {inconclusive} (100 %" in summary(tonight)


def test_a_known_violation_on_real_nodes_is_known():
    known = found(state="known", owner="ann", link="https://issues/1", expires="2099-01-01")
    bad = msgspec.structs.replace(real("VIOLATION"), signatures=[known.signature])

    assert night(found=[known], confirmations=[bad]).exit_code == 0
    assert night(found=[found(state="expired")], confirmations=[bad]).exit_code == 1


def part(index, **changes):
    return night(shard=f"{index}/2", bound=10, least_runs=15, **changes)


def swept(runs):
    return [Swept(scenario="s", runs=runs, seconds=1.0, verdicts={"PASS": runs})]


def test_shards_are_one_night():
    whole = of_shards(
        [
            part(1, swept=swept(15), probes={"x": 1}, cold=["y"]),
            part(2, swept=swept(14), probes={"y": 2}, cold=["x"], found=[found()]),
        ]
    )

    assert [(one.runs, one.verdicts) for one in whole.swept] == [(29, {"PASS": 29})]
    assert (whole.probes, whole.cold, whole.shortfalls) == ({"x": 1, "y": 2}, [], [])
    assert (whole.word, [one.signature for one in whole.found]) == ("RED", ["lost_writes/lost"])


def test_a_signature_of_two_shards_is_one():
    whole = of_shards([part(1, found=[found(count=2, seeds=[1])]), part(2, found=[found(count=3, seeds=[2])])])

    assert [(one.count, one.seeds) for one in whole.found] == [(5, [1, 2])]


@pytest.mark.parametrize(
    ("shards", "error"),
    [
        pytest.param([part(1, swept=swept(99))], "shard 2/2 is missing", id="missing"),
        pytest.param(
            [part(1, swept=swept(99)), part(2, state=NightState.RUNNING, under_way="sweeps")],
            "shard 2/2 did not end: running at sweeps",
            id="killed",
        ),
    ],
)
def test_a_shard_that_is_missing_or_did_not_end_keeps_the_night_from_being_green(shards, error):
    whole = of_shards(shards)

    assert whole.errors == [error]
    assert whole.exit_code == 3


@pytest.mark.parametrize(
    "other", [pytest.param(part(1), id="twice"), pytest.param(night(shard="2/2", first_seed=8), id="of another night")]
)
def test_what_is_not_of_one_night_is_refused(other):
    with pytest.raises(ValueError, match="of one night"):
        of_shards([part(1), other])


def test_shards_with_other_seeds_are_refused_with_what_helps_and_other_programs_without():
    with pytest.raises(ValueError, match=r"both sides of midnight.*: give all the same --first-seed$"):
        of_shards([part(1), night(shard="2/2", first_seed=8)])
    with pytest.raises(ValueError, match=r"seeds from \d+$"):
        of_shards([part(1), night(shard="2/2", first_seed=8, commit="f" * 40)])


def test_a_night_that_went_on_is_one_night():
    before = night(
        state=NightState.RUNNING,
        under_way="sweeps",
        done=["canaries"],
        swept=swept(20),
        seconds=50.0,
        found=[found(count=1)],
    )
    after = night(
        began="later", done=["sweeps"], swept=swept(20), seconds=30.0, canaries=[], past=[], found=[found(count=2)]
    )

    whole = continued(before, after)

    assert (whole.began, whole.has_ended, whole.done, whole.seconds) == (
        before.began,
        True,
        ["canaries", "sweeps"],
        80.0,
    )
    assert (whole.runs, [one.count for one in whole.found], len(whole.canaries)) == (40, [3], 1)


def cases(night):
    """Return the JUnit cases that are no success, by name."""
    return {case.name: str(case.result[0].message) for suite in junit(night) for case in suite if case.result}


def test_junit_is_red_where_a_quarantine_is_exceeded():
    """The night ended with exit code 2, and every case of the file was green."""
    scenario = Swept(scenario="s", runs=40, verdicts={"PASS": 10, "INCONCLUSIVE": 30}, seconds=1.0)
    held = Quarantine(scenario="s", rate=20, owner="bob", expires="2099-01-01")
    tried = night(swept=[scenario], quarantine=[held])
    within = night(swept=[scenario], quarantine=[msgspec.structs.replace(held, rate=80)])

    assert (tried.exit_code, within.exit_code) == (2, 0)
    assert cases(tried) == {"s": "INCONCLUSIVE 30 of 40: more than its quarantine allows"}
    assert cases(within) == {}


def test_junit_is_red_where_nothing_was_run():
    nothing = night(swept=[], past=[])

    assert nothing.exit_code == 2
    assert cases(nothing) == {"the night": "nothing was run that could have found anything"}


def test_a_finding_that_is_known_in_one_shard_and_new_in_another_is_said_where_it_is_new():
    """The whole named the places where somebody has it in hand among those where nobody has."""
    known = found(state="known", scenarios=["bank"], seeds=[1], owner="ann")
    new = found(scenarios=["swizzle"], seeds=[9])

    (whole,) = of_shards([part(1, found=[known]), part(2, found=[new])]).found

    assert (whole.state, whole.scenarios, whole.seeds, whole.count) == ("new", ["swizzle"], [9], 6)


def test_a_quarantine_that_is_over_is_said_once_of_all_shards():
    said = "the quarantine of s has expired"

    whole = of_shards([part(1, left_out=[said]), part(2, left_out=[said, "no time was left for s on ssh, seed 8"])])

    assert whole.left_out == [said, "no time was left for s on ssh, seed 8"]


def test_the_summary_counts_runs_on_real_nodes_of_one_scenario_together():
    """Seven runs were six times PASS and six of thirteen "no time was left", each by itself, and no bound beside them."""
    runs = [real("PASS") for _ in range(7)]
    lines = [f"no time was left for s on containers, seed {seed}" for seed in range(13)]

    said = summary(night(confirmations=runs, left_out=lines))

    assert (
        "**real nodes** produce-consume on containers: ERROR 0  INCONCLUSIVE 0  PASS 7, at most 34.8 % of such runs have a violation; "
        "no time was left for s on containers, seed 0" in said
    )
    assert "; and 10 more left out, in nightly.json" in said
    assert "PASS 7" not in summary(night(confirmations=[*runs, real("ERROR")][1:], left_out=[]))


def test_why_a_finding_or_a_canary_could_not_be_run_is_said_wherever_the_night_is_read():
    """As where a system's software is not installed, or a bug's patch does not fit any more: neither is a want of time."""
    lost = Past(
        name="old", signature="sets/element_lost", outcome="error", runs=0, max_runs=3, seconds=0.1, others=[],
        is_bad=False, is_lost=True, reasons=["there is no program redis-server"],
    )  # fmt: skip
    unfit = Canary(
        mutant="early-answer", scenario="kill", found=False, seen_by=[], seeds=0, seconds=0.1, note="early.patch does not fit",
    )  # fmt: skip
    late = msgspec.structs.replace(unfit, mutant="late", note="")

    of_night = night(past=[lost], canaries=[unfit, late])
    xml = junit(of_night).tostring().decode()

    assert "finding old: error: there is no program redis-server" in of_night.harness_failures
    assert "there is no program redis-server" in xml
    assert "early.patch does not fit" in {case.get("message") for case in ElementTree.fromstring(xml).iter("error")}
    assert xml.count("no time was left for a seed") == 1
    assert "there is no program redis-server" in summary(of_night)
    assert "early-answer: early.patch does not fit" in summary(of_night)
    assert "no time for late" in summary(of_night)
