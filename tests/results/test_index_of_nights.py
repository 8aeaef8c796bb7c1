"""What the page over many runs says of several nights."""

import msgspec
import pytest

from tribunal.results.night import Canary, FoundTonight, Night
from tribunal.results.night_files import save
from tribunal.results.report.index import index
from tribunal.results.verdict import RunVerdict, Verdict
from tribunal.results.verdict import save as save_verdict

BASE = Night(
    name="tribunal", began="2026-11-21T02:00:00Z", commit="c" * 40, lock_sha256="l", shard="1/1", budget_s=60.0,
    first_seed=7,
)  # fmt: skip
EARLY, LATE = "2026-11-21T02:00:00Z", "2026-11-21T14:00:00Z"


@pytest.mark.parametrize(
    ("nights", "compared"),
    [
        pytest.param([("tribunal", EARLY, "1/1"), ("tribunal", LATE, "1/1")], 2, id="two nights on one day"),
        pytest.param([("tribunal", EARLY, "2/4"), ("tribunal", LATE, "2/4")], 2, id="one shard of two nights"),
        pytest.param([("tribunal", EARLY, "1/4"), ("tribunal", EARLY, "2/4")], 0, id="two shards of one night"),
        pytest.param(
            [("tribunal", EARLY, "1/2"), ("tribunal", EARLY, "2/2"), ("tribunal", EARLY, "1/1"), ("tribunal", LATE, "1/1")],
            2,
            id="a night beside the shards that it was made of, and another one",
        ),
        pytest.param([("tribunal", EARLY, "1/1"), ("other", LATE, "1/1")], 0, id="two names"),
    ],
)  # fmt: skip
def test_nights_of_one_name_are_compared_and_nothing_else(tmp_path, nights, compared):
    for number, (name, began, shard) in enumerate(nights):
        save(msgspec.structs.replace(BASE, name=name, began=began, shard=shard), tmp_path / str(number))

    trends = {trend.name: trend for trend in index(tmp_path).trends}

    assert {len(trend.values) for trend in trends.values()} == ({compared} if compared else set())
    assert ("probes reached" in trends) == bool(compared)


def test_where_there_are_several_names_each_figure_says_whose_it_is(tmp_path):
    for number, (name, began) in enumerate([("one", EARLY), ("one", LATE), ("two", EARLY), ("two", LATE)]):
        save(msgspec.structs.replace(BASE, name=name, began=began, first_seed=number), tmp_path / str(number))

    names = {trend.name for trend in index(tmp_path).trends}

    assert {"one: probes reached", "two: probes reached"} <= names
    assert "probes reached" not in names


def test_what_a_night_has_kept_is_counted_once(tmp_path):
    """Its own count has the runs that lie below it; who was there before may have left some, too."""
    save(msgspec.structs.replace(BASE, probes={"isr_shrunk": 5, "elected": 1}), tmp_path / "night")
    for place in ("night/runs/kept", "alone"):
        verdict = RunVerdict(run_id="r", verdict=Verdict.VIOLATION, claim="c", findings=[], engine="inline")
        (tmp_path / place).mkdir(parents=True)
        save_verdict(verdict, tmp_path / place / "verdict.json")
        probes = {"isr_shrunk": 2, "torn": 1}
        (tmp_path / place / "simulation.json").write_bytes(msgspec.json.encode({"probes": probes}))

    assert dict(index(tmp_path).probes) == {"isr_shrunk": 7, "torn": 2, "elected": 1}


def found(state, count):
    return FoundTonight(
        signature="lost_writes/lost", state=state, known_as="", count=count, scenarios=["bank"], seeds=[1], claim="", run_dirs=[],
        again="tribunal run bank", owner="ann" if state == "known" else "", expires="2099-01-01" if state == "known" else "",
    )  # fmt: skip


def test_what_one_shard_knows_and_another_does_not_is_new_on_the_page_of_both(tmp_path):
    """It said what the shard that began last had said: somebody had it in hand."""
    for shard, began, one in (("1/2", EARLY, found("new", 2)), ("2/2", LATE, found("known", 3))):
        save(msgspec.structs.replace(BASE, began=began, shard=shard, found=[one]), tmp_path / shard[0])

    (signature,) = index(tmp_path).signatures

    assert (signature.state, signature.count, signature.in_hand) == ("new", 5, "")


def test_what_the_newest_night_says_of_a_signature_counts(tmp_path):
    for number, (began, one) in enumerate(((EARLY, found("new", 2)), (LATE, found("known", 3)))):
        save(msgspec.structs.replace(BASE, began=began, found=[one]), tmp_path / str(number))

    (signature,) = index(tmp_path).signatures

    assert (signature.state, signature.count, signature.last) == ("known", 3, LATE)


CANARY = Canary(mutant="m01_no_elr", scenario="s", found=False, seen_by=[], seeds=0, seconds=30.0, note="")
SOUGHT = '[{"mutant": "m01_no_elr", "scenario": "s", "found": true, "seen_by": ["x"], "seeds": 4, "seconds": 9.0}]'


@pytest.mark.parametrize(
    ("seeds", "measured", "shown"),
    [
        pytest.param(0, "", [], id="no time was left for it"),
        pytest.param(0, SOUGHT, [(True, 4)], id="no time was left for it, and it was measured before"),
        pytest.param(3, SOUGHT, [(False, 3)], id="it was missed"),
    ],
)
def test_a_known_bug_that_no_seed_was_run_with_was_not_missed(tmp_path, seeds, measured, shown):
    """The page called it missed, also where power.json says how soon it is found."""
    save(msgspec.structs.replace(BASE, canaries=[msgspec.structs.replace(CANARY, seeds=seeds)]), tmp_path)
    if measured:
        (tmp_path / "power.json").write_text(measured)

    assert [(cell.found, cell.seeds) for cell in index(tmp_path).power] == shown
