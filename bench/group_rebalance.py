"""How long a full rebalance of one group takes while its coordinator has a thousand groups of ten members: ours beside Apache Kafka.

    python bench/group_rebalance.py                          # a table, both
    python bench/group_rebalance.py --groups 100 --json --only tribunal

One node, one partition of `__consumer_offsets`: all groups have one coordinator. Every member of every other group sends
heartbeats meanwhile, one each `--heartbeat` seconds. Then all ten members of one group join again at once; the time runs from the
first JoinGroup until the last SyncGroup is answered. So the protocol's own delays are not in it: heartbeats by which members
learn of a rebalance, and the initial delay, which the first round of a group has alone.
"""

import argparse
import asyncio
import json
import statistics
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from bench.wire import Wire
from replog.errors import Error
from replog.wire.apis import Api
from replog.wire.messages import find_coordinator as fc
from replog.wire.messages import heartbeat as hb
from replog.wire.messages import join_group as jg
from replog.wire.messages import sync_group as sg
from tribunal.clusters.kafka.jars import kafka_jars
from tribunal.clusters.kafka.side_by_side import ApacheKafka, Ours, SideBySide, Software
from tribunal.clusters.maven_jars import NoJars

VERSIONS = {Api.JOIN_GROUP: 7, Api.SYNC_GROUP: 5, Api.HEARTBEAT: 4, Api.FIND_COORDINATOR: 4}
SESSION_MS = 300_000
LANES = 20  # groups that are founded at once
LOADING = (Error.NOT_COORDINATOR, Error.COORDINATOR_LOAD_IN_PROGRESS, Error.COORDINATOR_NOT_AVAILABLE)
SETTINGS = {
    "offsets.topic.replication.factor": 1,
    "offsets.topic.num.partitions": 1,
    "group.initial.rebalance.delay.ms": 500,  # for the first round of each group: its members come together
    "group.max.session.timeout.ms": SESSION_MS,
}


class Group:
    """One group; its members, each with a connection that it shares with members of other groups."""

    def __init__(self, name: str, wires: list[Wire]) -> None:
        self.name = name
        self.wires = wires
        self.members = [""] * len(wires)
        self.generation = -1

    async def found(self) -> None:
        """Have all members named, so that nobody is waited for in vain, and let them join."""
        for place in range(len(self.wires)):
            await self._named(place)
        await self.rebalance()

    async def _named(self, place: int) -> None:
        while not self.members[place]:
            joined = await self.wires[place].ask(Api.JOIN_GROUP, self._join_request(place))
            assert joined.error_code in (*LOADING, Error.MEMBER_ID_REQUIRED), joined.error_code
            self.members[place] = joined.member_id

    def _join_request(self, place: int) -> jg.JoinGroupRequest:
        return jg.JoinGroupRequest(
            group_id=self.name,
            session_timeout_ms=SESSION_MS,
            rebalance_timeout_ms=60_000,
            member_id=self.members[place],
            protocol_type="consumer",
            protocols=[jg.JoinGroupRequestProtocol(name="range", metadata=b"%f" % time.monotonic())],
        )

    async def rebalance(self) -> None:
        """All join at once, and take what the leader gives them."""
        await asyncio.gather(*(self._join(place) for place in range(len(self.wires))))

    async def _join(self, place: int) -> None:
        wire = self.wires[place]
        joined = await wire.ask(Api.JOIN_GROUP, self._join_request(place))
        assert joined.error_code is Error.NONE, joined.error_code
        shares = [
            sg.SyncGroupRequestAssignment(member_id=member.member_id, assignment=b"partitions")
            for member in joined.members
        ]
        synced = await wire.ask(
            Api.SYNC_GROUP,
            sg.SyncGroupRequest(
                group_id=self.name,
                generation_id=joined.generation_id,
                member_id=joined.member_id,
                protocol_type="consumer",
                protocol_name="range",
                assignments=shares,
            ),
        )
        assert synced.error_code is Error.NONE, synced.error_code
        self.generation = joined.generation_id

    def beat(self, place: int) -> hb.HeartbeatRequest:
        """Return a member's heartbeat."""
        return hb.HeartbeatRequest(group_id=self.name, generation_id=self.generation, member_id=self.members[place])


async def connected(endpoint: tuple[str, int], count: int) -> list[Wire]:
    return [await Wire.open(endpoint, VERSIONS) for _ in range(count)]


async def beats(groups: list[Group], place: int, interval_s: float, tally: list[int]) -> None:
    """Send the heartbeats of the members at this place, evenly spread."""
    wire = groups[0].wires[place]
    begin, sent = time.monotonic(), 0
    while True:
        answer = await wire.ask(Api.HEARTBEAT, groups[sent % len(groups)].beat(place))
        assert answer.error_code is Error.NONE, answer.error_code
        sent += 1
        tally[0] += 1
        await asyncio.sleep(max(0.0, begin + sent * interval_s / len(groups) - time.monotonic()))


async def _found(groups: list[Group]) -> None:
    for group in groups:
        await group.found()


async def drive(endpoint: tuple[str, int], options: argparse.Namespace) -> dict[str, float]:
    """Fill the coordinator, then rebalance one group again and again."""
    lanes = [await connected(endpoint, options.members) for _ in range(LANES)]
    find = fc.FindCoordinatorRequest(key_type=0, coordinator_keys=["measured"])
    while (await lanes[0][0].ask(Api.FIND_COORDINATOR, find)).coordinators[0].error_code is not Error.NONE:  # noqa: ASYNC110
        await asyncio.sleep(0.2)
    numbers = range(options.groups - 1)
    groups = [[Group(f"group-{number}", lane) for number in numbers[index::LANES]] for index, lane in enumerate(lanes)]
    measured = Group("measured", await connected(endpoint, options.members))
    await asyncio.gather(measured.found(), *(_found(lane) for lane in groups))
    tally = [0]
    beating = [
        asyncio.create_task(beats(lane, place, options.heartbeat, tally))
        for lane in groups
        if lane
        for place in range(options.members)
    ]
    await asyncio.sleep(1)
    begin, before, took = time.monotonic(), tally[0], []
    for _ in range(options.times):
        start = time.perf_counter()
        await measured.rebalance()
        took.append((time.perf_counter() - start) * 1000)
        await asyncio.sleep(0.05)
    seconds = time.monotonic() - begin
    for task in beating:
        task.cancel()
    return {
        "median_ms": statistics.median(took),
        "p99_ms": sorted(took)[int(len(took) * 0.99)],
        "largest_ms": max(took),
        "heartbeats_per_s": (tally[0] - before) / seconds,
    }


def measure(software: Software, options: argparse.Namespace) -> dict[str, float]:
    with (
        tempfile.TemporaryDirectory() as folder,
        SideBySide(software, Path(folder), brokers=1, controllers=0, settings=SETTINGS) as cluster,
    ):
        cluster.up()
        host, port = cluster.bootstrap.rsplit(":", 1)
        return asyncio.run(drive((host, int(port)), options))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--groups", type=int, default=1000)
    parser.add_argument("--members", type=int, default=10)
    parser.add_argument("--heartbeat", type=float, default=3.0)
    parser.add_argument("--times", type=int, default=100)
    parser.add_argument("--only", choices=["tribunal", "kafka"])
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    figures: dict[str, dict[str, float]] = {}
    if options.only != "kafka":
        figures["tribunal"] = measure(Ours(), options)
    if options.only != "tribunal":
        try:
            figures["kafka"] = measure(ApacheKafka(kafka_jars()), options)
        except NoJars as problem:
            print(problem, file=sys.stderr)
    if options.json:
        print(json.dumps(figures))
    for name, found in figures.items() if not options.json else ():
        print(f"{name:10}" + "".join(f"  {what} {value:.1f}" for what, value in found.items()))


if __name__ == "__main__":
    main()
