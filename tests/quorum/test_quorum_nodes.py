"""Three quorum nodes on loopback sockets: the shell, the wire and the disk together with the core."""

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path

import pytest

from replog.host.world import RealDisk
from replog.node.quorum import member, metadata_log
from replog.node.quorum.member import NotLeading
from replog.node.quorum.metadata_log import MetadataLog
from replog.ports import File
from tests.quorum.quorum_nodes import Nodes, until


def play(scenario: Callable[[Nodes], Awaitable[None]], nodes: Nodes) -> None:
    async def main() -> None:
        try:
            await nodes.start()
            await scenario(nodes)
        finally:
            nodes.close()
            await asyncio.sleep(0.01)  # transports close in the loop's next turns

    asyncio.run(main())


def test_elect_append_commit_kill_and_lose_nothing(tmp_path: Path) -> None:
    async def scenario(nodes: Nodes) -> None:
        leader = await nodes.led()
        leader.quorum.append([b"a", b"b"])
        await nodes.agreed()
        old = leader.config.node_id

        nodes.kill(old)
        successor = await nodes.led(besides=[old])
        successor.quorum.append([b"c"])
        await nodes.start(old)
        await nodes.agreed()

        assert [node.state.values for node in nodes.alive.values()] == [[b"a", b"b", b"c"]] * 3

    play(scenario, Nodes(tmp_path))


def test_a_commit_takes_milliseconds(tmp_path: Path) -> None:
    async def scenario(nodes: Nodes) -> None:
        leader = await nodes.led()
        await nodes.agreed()
        took = []
        for index in range(30):
            began = time.perf_counter()
            leader.quorum.append([b"%d" % index])
            end = leader.quorum.log_end_offset
            while leader.quorum.applied_offset < end:  # noqa: ASYNC110 - as fast as the loop turns
                await asyncio.sleep(0)
            took.append((time.perf_counter() - began) * 1000)
        print(f"commit took {sorted(took)[15]:.1f} ms in the middle, {max(took):.1f} ms at most")

        # Three disks and one core: the bound is for a loaded machine.
        assert sorted(took)[15] < 200

    play(scenario, Nodes(tmp_path))


def test_observers_learn_of_leader_and_records(tmp_path: Path) -> None:
    async def scenario(nodes: Nodes) -> None:
        leader = await nodes.led()
        leader.quorum.append([b"x"])
        await nodes.agreed()

        observer = nodes.alive[1]
        assert observer.state.values == [b"x"]
        assert observer.quorum.leader == leader.quorum.leader
        with pytest.raises(NotLeading):
            observer.quorum.append([b"y"])

    play(scenario, Nodes(tmp_path, observers=1))


def test_a_leader_that_stops_hands_over_at_once(tmp_path: Path) -> None:
    async def scenario(nodes: Nodes) -> None:
        leader = await nodes.led()
        await nodes.agreed()
        old = leader.config.node_id

        began = time.perf_counter()
        await nodes.stop(old)
        await nodes.led(besides=[old])

        # The fetch timeout, which a killed leader costs, is 5 s here.
        assert time.perf_counter() - began < 4
        assert leader.state.leading is None

    settings = {"controller.quorum.fetch.timeout.ms": 5000}
    play(scenario, Nodes(tmp_path, **settings))


def test_a_whole_quorum_restarts_with_its_log(tmp_path: Path) -> None:
    async def scenario(nodes: Nodes) -> None:
        leader = await nodes.led()
        leader.quorum.append([b"x"])
        await nodes.agreed()
        epoch = leader.quorum.leader[1]

        for node_id in nodes.voters:
            nodes.kill(node_id)
        await nodes.start()
        await nodes.agreed()

        assert (await nodes.led()).quorum.leader[1] > epoch
        assert [node.state.values for node in nodes.alive.values()] == [[b"x"]] * 3

    play(scenario, Nodes(tmp_path))


class HeldDisk(RealDisk):
    """Its syncs in the background wait until they may."""

    def __init__(self) -> None:
        super().__init__()
        self.may_sync = asyncio.Event()

    async def sync_in_background(self, files: Sequence[File]) -> None:
        await self.may_sync.wait()
        await super().sync_in_background(files)


def test_a_leader_goes_on_while_old_log_waits_to_be_dropped_for_a_sync(tmp_path: Path) -> None:
    """The other two commit before the leader's own disk has synced; a snapshot then moves the log's start."""

    async def scenario(nodes: Nodes) -> None:
        leader = await nodes.led()
        for value in (b"a", b"b"):
            leader.quorum.append([value])
            await nodes.agreed()
            leader.quorum.take_snapshot(leader.state.values)
        await until(lambda: leader.log.log_start_offset > 0)  # old log is dropped behind a sync, here as well
        start = leader.log.log_start_offset
        disk = HeldDisk()
        leader.world.disk = disk
        try:
            first = leader.quorum.append([b"c"])
            await until(lambda: leader.quorum.applied_offset > first)
            leader.quorum.take_snapshot(leader.state.values)

            assert [leader.quorum.append([b"d"]), leader.quorum.append([b"e"])] == [first + 1, first + 2]
            assert leader.quorum.log_end_offset == first + 3
            await nodes.agreed()
            assert leader.log.log_start_offset == start  # what is being synced is not taken away
        finally:
            disk.may_sync.set()
        await until(lambda: leader.log.log_start_offset > start)
        disk.close()

    play(scenario, Nodes(tmp_path))


def test_a_late_member_starts_from_a_snapshot(tmp_path: Path) -> None:
    async def scenario(nodes: Nodes) -> None:
        late = nodes.voters[0]
        nodes.kill(late)
        leader = await nodes.led(besides=[late])
        for round_ in range(3):
            leader.quorum.append([b"%d.%d" % (round_, index) for index in range(50)])
            await nodes.agreed()
            leader.quorum.take_snapshot(leader.state.values)
        assert leader.log.log_start_offset > 0

        await nodes.start(late)
        await nodes.agreed()
        leader.quorum.append([b"last"])
        await nodes.agreed()

        assert nodes.alive[late].state.snapshots >= 1
        assert nodes.alive[late].state.values == leader.state.values

    play(scenario, Nodes(tmp_path))


def test_a_member_starts_from_a_snapshot_also_while_it_is_still_notified_of_older_records(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It learns that its own log is committed, applies it piece by piece, and meanwhile the leader has only a snapshot for it."""
    pieces = 300

    async def scenario(nodes: Nodes) -> None:
        leader = await nodes.led()
        late = next(node_id for node_id in nodes.voters if node_id != leader.config.node_id)
        for number in range(pieces):
            leader.quorum.append([b"%d" % number])
        await nodes.agreed()
        nodes.kill(late)
        for number in range(20):
            leader.quorum.append([b"while it was away %d" % number])
        await nodes.agreed()
        leader.quorum.take_snapshot([b"all of it"])
        leader.quorum.append([b"last"])
        await nodes.agreed()
        monkeypatch.setattr(member, "NOTICE_BYTES", 1)
        monkeypatch.setattr(member, "MAX_FETCH_BYTES", 1)
        monkeypatch.setattr(metadata_log, "READ_BYTES", 1)
        await nodes.start(late)
        node = nodes.alive[late]
        while node.quorum.applied_offset == 0:  # noqa: ASYNC110 - as fast as the loop turns
            await asyncio.sleep(0)
        leader.quorum.take_snapshot([b"all of it"])
        assert node.quorum.applied_offset < pieces < leader.log.log_start_offset
        leader.quorum.append([b"behind it"])
        await nodes.agreed()

        assert node.state.snapshots == 1
        assert node.state.values[-1] == b"behind it"

    play(scenario, Nodes(tmp_path))


def test_the_voter_set_outlives_the_log_below_a_snapshot(tmp_path: Path) -> None:
    """KIP-853: else a restart would fall back to the configured set, and a removed voter would vote again."""
    nodes = Nodes(tmp_path)
    for node_id in nodes.voters:
        nodes.format(node_id, f"00000000-0000-4000-8000-000000000{node_id}")

    async def scenario(nodes: Nodes) -> None:
        leader = await nodes.led()
        late = next(node_id for node_id in nodes.voters if node_id != leader.config.node_id)
        await nodes.agreed()
        await until(lambda: all(one.quorum.voter_directories_known for one in nodes.alive.values()))
        nodes.kill(late)
        for path in (tmp_path / str(late) / "__cluster_metadata-0").iterdir():
            path.unlink()
        for round_ in range(3):
            leader.quorum.append([b"%d" % round_])
            await nodes.agreed()
            leader.quorum.take_snapshot(leader.state.values)

        await nodes.start(late)
        await nodes.agreed()

        assert nodes.alive[late].state.snapshots >= 1
        assert nodes.alive[late].quorum.voter_directories_known
        restarted = MetadataLog(leader.world, leader.log).outline()
        assert restarted.start_offset > 0
        assert restarted.latest_voters is not None
        assert len(restarted.latest_voters) == 3

    play(scenario, nodes)


def test_a_voter_that_lost_its_disk_is_an_observer(tmp_path: Path) -> None:
    """KIP-853: with another directory id it neither counts nor votes, but it copies."""
    nodes = Nodes(tmp_path)
    for node_id in nodes.voters:
        nodes.format(node_id, f"00000000-0000-4000-8000-000000000{node_id}")

    async def scenario(nodes: Nodes) -> None:
        leader = await nodes.led()
        wiped = next(node_id for node_id in nodes.voters if node_id != leader.config.node_id)
        await nodes.agreed()
        await until(lambda: all(one.quorum.voter_directories_known for one in nodes.alive.values()))
        nodes.kill(wiped)
        for path in (tmp_path / str(wiped) / "__cluster_metadata-0").iterdir():
            path.unlink()
        nodes.format(wiped, "00000000-0000-4000-8000-00000000ffff")

        await nodes.start(wiped)
        (await nodes.led()).quorum.append([b"x"])
        await nodes.agreed()

        assert not nodes.alive[wiped].quorum.is_voter
        assert nodes.alive[wiped].state.values == [b"x"]

    play(scenario, nodes)
