"""Reading from followers (KIP-392): who is preferred, and what a follower says of offsets that it does not have."""

from pathlib import Path

import pytest

from replog.broker.read_replica import Readable, preferred_read_replica
from replog.errors import Error
from replog.types import NodeId
from tests.cases.replicas import WALL_MS, a_log, a_replica, apply_metadata, fetched_by, record_batch, state

NEAR = Readable(NodeId(2), "near", 10, 5)


@pytest.mark.parametrize(
    ("rack", "readable", "preferred"),
    [
        pytest.param("near", [NEAR], 2, id="a replica of the rack"),
        pytest.param("", [NEAR], None, id="a reader without a rack"),
        pytest.param("leader", [NEAR], None, id="the leader is as near"),
        pytest.param("far", [NEAR], None, id="nobody is near"),
        pytest.param("near", [], None, id="nobody is in sync"),
        pytest.param("near", [NEAR, Readable(NodeId(3), "near", 11, 0)], 3, id="the one that has more"),
        pytest.param("near", [Readable(NodeId(3), "near", 10, 6), NEAR], 3, id="the one caught up last"),
        pytest.param("near", [Readable(NodeId(3), "near", 10, 5), NEAR], 2, id="the first of equals"),
    ],
)
def test_who_is_preferred(rack: str, readable: list[Readable], preferred: int | None) -> None:
    assert preferred_read_replica(rack, leader_rack="leader", readable=readable) == preferred


def test_only_replicas_in_sync_that_hold_the_offset_are_readable(tmp_path: Path) -> None:
    replica = a_replica(a_log(tmp_path, end=10, epochs=[[0, 0]], start=2), high_watermark=10)
    apply_metadata(replica, state(leader=1, replicas=[1, 2, 3], isr=[1, 2]))
    fetched_by(replica, 2, 8, log_start_offset=2)
    fetched_by(replica, 3, 8, log_start_offset=2)

    def readable(fetch_offset: int, leader_epoch: int = 0) -> list[int]:
        found = replica.readable_followers(current_leader_epoch=leader_epoch, fetch_offset=fetch_offset)
        return [node for node, _ in found]

    assert readable(8) == [2]  # 3 is not in the ISR
    assert readable(9) == []
    assert readable(1) == []
    assert readable(8, leader_epoch=9) == []  # whoever asks has to learn that first
    apply_metadata(replica, state(leader=2, leader_epoch=1, partition_epoch=1))
    assert readable(8, leader_epoch=-1) == []


@pytest.mark.parametrize(
    ("offset", "error", "count"),
    [
        pytest.param(1, Error.NONE, 3, id="committed and here"),
        pytest.param(4, Error.NONE, 0, id="here, not known to be committed"),
        pytest.param(5, Error.NONE, 0, id="the log's end"),
        pytest.param(6, Error.OFFSET_NOT_AVAILABLE, 0, id="committed, not here yet"),
        pytest.param(8, Error.OFFSET_NOT_AVAILABLE, 0, id="the leader's high watermark"),
        pytest.param(9, Error.OFFSET_OUT_OF_RANGE, 0, id="beyond all that is committed"),
    ],
)
@pytest.mark.parametrize("committed", [4, 8])
def test_what_a_follower_says_of_an_offset(
    tmp_path: Path, committed: int, offset: int, error: Error, count: int
) -> None:
    """KIP-392, "Fetching from followers": an offset that is committed elsewhere is not out of range."""
    follower = a_replica(a_log(tmp_path, end=4, epochs=[[0, 0]]), high_watermark=4)
    apply_metadata(follower, state(leader=2))
    follower.on_fetched(record_batch(4, 0), high_watermark=committed, log_start_offset=0, wall_ms=WALL_MS)

    answer = follower.fetch_as_consumer(
        current_leader_epoch=-1,
        fetch_offset=offset,
        last_fetched_epoch=-1,
        isolation=0,
        leader_only=False,
        max_bytes=1 << 20,
        at_least_one=True,
    )

    if committed == 8:
        assert answer.error is error
        assert answer.high_watermark == 5
    else:
        assert answer.error is (Error.NONE if offset <= 5 else Error.OFFSET_OUT_OF_RANGE)
        assert len(answer.records) == count * len(record_batch(0, 0))
