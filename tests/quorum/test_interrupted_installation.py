"""A member that died between taking a fetched snapshot in and emptying its log for it."""

from pathlib import Path

import pytest

from replog.host.world import RealWorld
from replog.node.quorum.metadata_log import MetadataLog, open_metadata_log
from replog.quorum.events import AppendRecords
from replog.quorum.messages import OffsetAndEpoch
from replog.types import QuorumEpoch
from tests.quorum.quorum_nodes import Nodes

END = 100


def died(folder: Path, snapshot: OffsetAndEpoch) -> tuple[RealWorld, Nodes]:
    """A member whose log has 100 records of epoch 1, all of them synced, and that has just taken this snapshot in."""
    nodes = Nodes(folder)
    world = RealWorld(nodes.config(101), level="error")
    log = open_metadata_log(world, nodes.config(101))
    metadata = MetadataLog(world, log)
    for offset in range(END):
        metadata.append_records(AppendRecords(base_offset=offset, epoch=QuorumEpoch(1), records=(b"record",)))
    log.flush()
    metadata.note_synced()
    metadata.write_snapshot(snapshot, [b"state"])
    log.close_files()
    return world, nodes


@pytest.mark.parametrize(
    ("snapshot", "start", "end"),
    [
        pytest.param(OffsetAndEpoch(150, 5), 150, 150, id="of a log that goes further"),
        pytest.param(OffsetAndEpoch(80, 5), 80, 80, id="of a log that a later epoch goes on with"),
        pytest.param(OffsetAndEpoch(80, 1), 0, END, id="of its own log"),
        pytest.param(OffsetAndEpoch(END, 1), 0, END, id="of all of its own log"),
    ],
)
def test_the_log_goes_unless_the_snapshot_is_of_it(
    tmp_path: Path, snapshot: OffsetAndEpoch, start: int, end: int
) -> None:
    """What a deposed leader wrote alone, behind the snapshot, made the next leader's answer a truncation below what is committed."""
    world, nodes = died(tmp_path, snapshot)

    for _ in range(2):  # what the first start leaves is right for the next one
        log = open_metadata_log(world, nodes.config(101))
        outline = MetadataLog(world, log).outline()
        log.close_files()

        assert (outline.start_offset, outline.end_offset) == (start, end)
        assert outline.last_epoch == snapshot.epoch
    world.close()


@pytest.mark.parametrize("emptied", [False, True], ids=["before the log was emptied", "after it was emptied"])
def test_the_snapshots_before_it_go_as_well(tmp_path: Path, emptied: bool) -> None:
    """As a leader it offered the snapshot again, and again, to each follower that had it."""
    world, nodes = died(tmp_path, OffsetAndEpoch(40, 1))
    log = open_metadata_log(world, nodes.config(101))
    metadata = MetadataLog(world, log)
    metadata.write_snapshot(OffsetAndEpoch(150, 5), [b"state"])
    if emptied:
        log.restart_at(150)
    metadata.store_chunk(OffsetAndEpoch(90, 3), 0, b"the beginning of another that a former leader had")
    log.close_files()

    log = open_metadata_log(world, nodes.config(101))
    outline = MetadataLog(world, log).outline()

    assert outline.position_of(150, 5).is_valid
    assert list(outline.snapshots) == [OffsetAndEpoch(150, 5)]
    checkpoints = [name for name in world.disk.list_directory(log.directory) if ".checkpoint" in name]
    assert checkpoints == ["00000000000000000150-0000000005.checkpoint"]
    log.close_files()
    world.close()
