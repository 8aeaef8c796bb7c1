"""The packed histories are those that were packed, event for event."""

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))
import corpus
import packed


def event(index: int, process: int, kind: str, **rest: object) -> packed.Event:
    return {"index": index, "process": process, "type": kind, "time": 1000 + 7 * index, "f": "txn"} | rest


HISTORY = [
    event(0, 0, "invoke", f="assign", keys=["x", "y"]),
    event(1, 0, "ok", f="assign", keys=["x", "y"]),
    event(2, 0, "invoke", mops=[["send", "x", 1], ["poll"], ["send", "y", 1]]),
    event(3, 1, "invoke", mops=[["send", "x", 7]]),
    event(4, 1, "info", mops=[["send", "x", 7]], error="timeout"),
    event(5, 0, "ok", mops=[["send", "x", [0, 1]], ["poll", {}], ["send", "y", [3, 1]]]),
    event(6, 2, "invoke", mops=[["poll"], ["send", "x", 3], ["poll"]]),
    # One record at two offsets, one offset with two records, a gap, a poll that goes back, keys against the alphabet.
    event(
        7,
        2,
        "ok",
        mops=[
            ["poll", {"y": [[3, 1]], "x": [[0, 1], [4, 3]]}],
            ["send", "x", [9, 3]],
            ["poll", {"x": [[0, 1], [0, 7]]}],
        ],
    ),
    event(8, 3, "invoke", mops=[["send", "y", 2]]),
    event(9, 3, "fail", mops=[["send", "y", 2]], error="aborted"),
    event(10, 0, "invoke", f="crash"),
    event(11, 0, "info", f="crash"),
    event(12, 4, "invoke", f="poll", mops=[["poll"]]),
]


def test_packed_histories_come_back_as_they_were(tmp_path):
    packed.packed([HISTORY, HISTORY[:6]], tmp_path)

    assert packed.unpacked(tmp_path, 0) == HISTORY
    assert packed.unpacked(tmp_path, 1) == HISTORY[:6]
    polled = packed.unpacked(tmp_path, 0)[7]["mops"][0][1]
    assert list(polled) == ["y", "x"]


def test_a_history_that_cannot_be_packed_is_refused(tmp_path):
    unnumbered = [event(5, 0, "invoke", f="crash")]

    with pytest.raises(AssertionError, match="history 0 does not come back"):
        packed.packed([unnumbered], tmp_path)


# All were compared when they were packed. The larger ones are left out here: their JSON alone takes seconds.
SMALL = [case for case in corpus.packed_cases() if case["events"] < 5000]


@pytest.mark.parametrize("case", corpus.parameters(SMALL, "kafka-large"))
def test_corpus_histories_have_the_digest_of_those_that_were_packed(case):
    history = case["load"]()

    assert len(history) == case["events"]
    assert packed.digest(history) == case["sha256"]
