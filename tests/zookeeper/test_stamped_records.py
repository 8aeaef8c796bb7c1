"""What ZooKeeper says of when a znode was written stands in the recording, by the run's clock."""

import json

import pytest

from replog.zookeeper.operations import Stat
from tribunal.clusters.api import ClusterState
from tribunal.clusters.committed_records import CommittedRecords
from tribunal.clusters.zookeeper.znode_view import ZnodeView

WALL_START_MS = 1_000_000.5


@pytest.mark.parametrize(("written_ms", "stamped_ns"), [
    pytest.param(1_000_007, 6_500_000, id="after the run's start"),
    pytest.param(999_999, -1_500_000, id="before it"),
    pytest.param(None, None, id="nobody says it"),
])  # fmt: skip
def test_a_record_has_the_time_of_its_znode(written_ms: int | None, stamped_ns: int | None) -> None:
    committed = CommittedRecords(ClusterState())
    view = ZnodeView(committed, lambda: 9_000_000, WALL_START_MS)
    topic = json.dumps({"version": 1, "partitions": {"0": [1]}}).encode()

    view.take("/brokers/topics/t", topic, Stat(czxid=1, mzxid=1, version=0, written_ms=written_ms))

    assert [(one.at_ns, one.stamped_ns) for one in committed.drain()] == [(9_000_000, stamped_ns)]
