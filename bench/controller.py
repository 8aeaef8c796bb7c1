"""How dear are the controller's decisions: python bench/controller.py [PARTITIONS | growth].

Prints one line a figure: cost of one partition change, of fencing a broker that leads a third of all partitions (so that
each of them is elected anew), of one AlterPartition among them all, memory a partition, and undoing it all.
`growth` goes from 1,000 to 100,000 partitions and prints how many times dearer each step makes it: a figure that grows
as the partitions do has the ratio 10.
"""

import gc
import sys
import time
import tracemalloc
from collections.abc import Callable
from uuid import UUID

from replog.controller import fencing
from replog.controller.election import Rules, Wish, partition_change
from replog.controller.elr import LastKnownMode
from replog.controller.image import Image
from replog.controller.record_versions import RecordWriter
from replog.controller.state import Partition
from replog.controller.topics import new_partition
from replog.types import LeaderEpoch, NodeId, PartitionEpoch, TopicIdPartition
from replog.wire.records.metadata import decode_metadata_record, encode_metadata_record
from tests.cases.controllers import Box

PARTITIONS_A_TOPIC = 10


def timed(what: str, work: Callable[[], object], unit: str, per: int = 1) -> None:
    best_ns = None
    for _ in range(3):
        start_ns = time.perf_counter_ns()
        work()
        took_ns = time.perf_counter_ns() - start_ns
        best_ns = took_ns if best_ns is None else min(best_ns, took_ns)
    assert best_ns is not None
    scale = {"us": 1e3, "ms": 1e6}[unit]
    print(f"{what:<60} {best_ns / scale / per:10.2f} {unit}")


def one_change() -> None:
    nodes = tuple(NodeId(node) for node in (1, 2, 3))
    key = TopicIdPartition(UUID(int=1), 0)
    partition = Partition(
        replicas=nodes, isr=nodes, leader=nodes[0], leader_epoch=LeaderEpoch(0), partition_epoch=PartitionEpoch(0)
    )
    rules = Rules(min_insync_replicas=2, elr_enabled=True, last_known_mode=LastKnownMode.LEADER)
    wish = Wish(target_isr=nodes[1:])

    def work() -> None:
        for _ in range(10_000):
            partition_change(key, partition, wish, rules, lambda node: node != 1)

    timed("one partition change with election", work, "us", 10_000)


def a_cluster(count: int) -> Box:
    box = Box(min_insync_replicas=2).features()
    for broker_id in (1, 2, 3):
        box.broker(broker_id)
    for topic in range(count // PARTITIONS_A_TOPIC):
        partitions = []
        for index in range(PARTITIONS_A_TOPIC):
            first = (topic + index) % 3
            replicas = tuple(NodeId(1 + (first + step) % 3) for step in range(3))
            partitions.append(new_partition(box.image, replicas))
        box.topic(*partitions, name=f"t{topic}", topic_id=UUID(int=topic + 1))
    return box


def memory(count: int) -> None:
    gc.collect()
    tracemalloc.start()
    box = a_cluster(count)
    gc.collect()
    held_bytes = tracemalloc.get_traced_memory()[0]
    tracemalloc.stop()
    print(f"{'memory a partition':<60} {held_bytes / count:10.0f} bytes")
    assert box.image.partition_count == count


def re_election(count: int) -> None:
    box = a_cluster(count).activate()
    policy = box.controller.policy
    broker = box.image.brokers[NodeId(1)]
    records = fencing.fence(policy, broker)
    print(f"{'records of fencing one of three brokers':<60} {len(records):10d}")
    timed(
        f"fencing it ({count} partitions, {count // 3} led by it): decide", lambda: fencing.fence(policy, broker), "ms"
    )
    timed("  the same, encoded", lambda: [encode_metadata_record(record) for record in records], "ms")
    image = box.image

    def apply_and_undo() -> None:
        for offset, record in enumerate(records, start=box.offset):
            image.replay(record, offset)
        image.undo_to(box.offset - 1)

    timed("  the same, applied and undone", apply_and_undo, "ms")
    before = image.partition_count
    timed("snapshot of the image", lambda: list(image.snapshot()), "ms")
    timed("replay of the snapshot", lambda: replayed(image), "ms")
    assert image.partition_count == before


def replayed(image: Image) -> None:
    again = Image()
    for record in image.snapshot():
        again.replay(record, 0)


GROWTH = (1_000, 10_000, 100_000)


def figures(count: int) -> dict[str, float]:
    """What grows with the partitions, in its unit."""
    gc.collect()
    tracemalloc.start()
    box = a_cluster(count)
    gc.collect()
    held_bytes = tracemalloc.get_traced_memory()[0]
    tracemalloc.stop()
    box.activate()
    policy, broker = box.controller.policy, box.image.brokers[NodeId(1)]
    snapshot = list(RecordWriter(box.image.metadata_version).encoded(box.image.snapshot()))

    def load() -> None:
        again = Image()
        for value in snapshot:
            again.replay(decode_metadata_record(value), 0)

    gc.collect()
    gc.freeze()  # as a node does; else the collector walks the image over and over
    found = {
        "image, MiB": held_bytes / (1 << 20),
        "snapshot load, ms": took_ms(load),
        "fencing one of three brokers, ms": took_ms(lambda: fencing.fence(policy, broker)),
        "one partition's change, us": 1000 * took_ms(lambda: one_of_many(box)),
    }
    gc.unfreeze()
    return found


def one_of_many(box: Box) -> None:
    policy = box.controller.policy
    wish = Wish(target_isr=(NodeId(1), NodeId(2)))
    key = TopicIdPartition(UUID(int=1), 0)
    fencing.changes(policy, [key], lambda *_: wish, box.image.is_active)


def took_ms(work: Callable[[], object]) -> float:
    start_ns = time.perf_counter_ns()
    work()
    return (time.perf_counter_ns() - start_ns) / 1e6


def growth() -> None:
    before: dict[str, float] = {}
    for count in GROWTH:
        now = figures(count)
        for what, value in now.items():
            ratio = f"x {value / before[what]:.1f}" if what in before else ""
            print(f"{count:>9,} partitions  {what:<40} {value:12.2f} {ratio:>8}")
        before = now


if __name__ == "__main__":
    if sys.argv[1:] == ["growth"]:
        growth()
        sys.exit()
    wanted = int(sys.argv[1]) if len(sys.argv) > 1 else 10_000
    one_change()
    memory(wanted)
    re_election(wanted)
