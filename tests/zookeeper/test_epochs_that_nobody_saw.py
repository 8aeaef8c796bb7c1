"""Several writes of one partition that are seen as one: who led in the leader epochs between is not known, and nobody is accused of it."""

from pathlib import Path

import msgspec
import pytest

from replog.zookeeper.operations import Stat
from replog.zookeeper.znodes import PartitionStateZnode, TopicZnode, encoded
from tests.checkers.recorded import MS, Run
from tests.checkers.test_small_recordings import judged
from tribunal.clusters.api import ClusterState
from tribunal.clusters.committed_records import CommittedRecords
from tribunal.clusters.zookeeper.znode_view import ZnodeView

STATE = "/brokers/topics/u/partitions/0/state"


class Observed(Run):
    """A run of ZooKeeper mode whose partition u-0 is what an observer saw of its znodes."""

    def __init__(self, run_dir: Path) -> None:
        super().__init__(run_dir)
        self.committed = CommittedRecords(ClusterState())
        self._now_ns = 0
        self._view = ZnodeView(self.committed, lambda: self._now_ns)
        self._view.take("/brokers/topics/u", encoded(TopicZnode(partitions={"0": [1, 2, 3]})), self._stat(0))

    def _stat(self, version: int) -> Stat:
        return Stat(czxid=9, mzxid=9 + version, version=version)

    def sees(self, at: int, *, version: int, leader: int, leader_epoch: int) -> None:
        self._now_ns = at * MS
        state = PartitionStateZnode(controller_epoch=1, leader=leader, leader_epoch=leader_epoch, isr=[1, 2, 3])
        self._view.take(STATE, encoded(state), self._stat(version))

    def recorded(self) -> "Observed":
        for entry in self.committed.drain():
            if entry.record_type.startswith("Partition"):
                body = msgspec.json.encode(entry.body).decode()
                named = {"metadata_offset": self.metadata_offset, "quorum_epoch": 1, "at_ns": entry.at_ns}
                self.recorder.row("metadata", **named, record_type=entry.record_type, topic="u", partition=0, body=body)
                self.metadata_offset += 1
        return self


@pytest.mark.parametrize(("epoch", "node", "expected"), [
    pytest.param(6, 2, [], id="it may have led in between"),
    pytest.param(5, 2, ["violation"], id="somebody else led at first"),
    pytest.param(7, 2, ["violation"], id="somebody else leads in the end"),
    pytest.param(7, 3, [], id="it leads in the end"),
])  # fmt: skip
def test_who_led_between_two_looks_is_not_known(tmp_path: Path, epoch: int, node: int, expected: list[str]) -> None:
    run = Observed(tmp_path / "run")
    run.sees(0, version=0, leader=1, leader_epoch=5)
    run.sees(1000, version=2, leader=3, leader_epoch=7)
    run.recorded().watermark(1, 900, epoch=epoch, observer=f"node-{node}", topic="u")

    assert [severity for severity, _ in judged(run, "leader_not_elected")] == expected
