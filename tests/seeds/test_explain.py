"""The story of a lost record: who took it, acknowledged it, led, and cut it away on whose order."""

import pytest

from tribunal.harness.cli.main import exit_code
from tribunal.harness.evidence.explain import explained, lines
from tribunal.harness.plan import made
from tribunal.harness.progress import Silent
from tribunal.harness.scenario import scenario
from tribunal.harness.simulated import conduct_simulated
from tribunal.results.report.moments import changes_of
from tribunal.results.report.story import log_ends
from tribunal.results.store import Recording

PAUSED = {
    "scenario": "paused",
    "cluster": {"brokers": 3, "controllers": 1, "profile": "ci"},
    "workload": {"name": "produce-consume", "partitions": 1, "rate": 80, "readers": 0},
    "time": "3s",
    "warm_up": "500ms",
    "steps": [
        {"pause": "follower(p0)", "for": "400ms"},
        {"isolate": "leader(p0)", "from": "nodes", "for": "2.6s", "after": "100ms", "meanwhile": True},
    ],
}


def run_of(folder, mutants):
    plan = made(scenario(PAUSED), seed=1, cluster="simulated", time_ms=None, mutants=mutants)
    folder.mkdir()
    conduct_simulated(plan, folder, Silent())
    return folder


@pytest.fixture(scope="module")
def lost(tmp_path_factory):
    """A leader that is cut off acknowledges acks=1 records; the others elect without it: lost, and permitted."""
    return run_of(tmp_path_factory.mktemp("explain") / "run", ())


def test_followers_say_what_they_bring_into_an_epoch_and_what_they_cut(lost):
    recording = Recording.open(lost)
    epochs = {change.state.leader_epoch for change in changes_of(recording, "produce-consume-0")}

    ends = log_ends(recording, "produce-consume-0")

    assert {end.leader_epoch for end in ends} <= epochs
    cut = [end for end in ends if end.after is not None]
    assert cut
    assert all(end.after < end.before for end in cut)


def test_the_story_names_who_took_the_record_and_who_cut_it_away_on_whose_order(lost):
    stories = [one for one in explained(lost) if one.story.finding.kind == "lost"]
    assert stories, "this seed loses acks=1 records"

    text = "\n".join(lines(stories[0]))

    assert text.startswith(("PERMITTED", "VIOLATION"))
    for words in ("sends its record", "acknowledged at offset", "The controllers elect broker", "cuts its log from"):
        assert words in text, text
    order = [text.index(words) for words in ("sends its record", "The controllers elect", "cuts its log")]
    assert order == sorted(order)


def test_one_offset_is_explained_alone_and_nothing_found_is_said(lost, capsys):
    offset = next(explained(lost)).story.finding.log_offset

    assert exit_code(["explain", str(lost), "--offset", str(offset)]) == 0
    assert f"@{offset}" in capsys.readouterr().out
    assert exit_code(["explain", str(lost), "--offset", "999999"]) == 0
    assert "no story" in capsys.readouterr().out
