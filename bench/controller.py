"""How dear are the controller's decisions: python bench/controller.py [PARTITIONS | growth].

Prints one line a figure: cost of one partition change, of fencing a broker that leads a third of all partitions (so that
each of them is elected anew), of one AlterPartition among them all, memory a partition, and undoing it all.
`growth` goes from 1,000 to 100,000 partitions and prints how many times dearer each step makes it: a figure that grows
as the partitions do has the ratio 10. Where a goal is set, it stands behind; a goal that is missed makes the exit code 1.
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
from replog.controller.topics import new_partition
from replog.metadata.image import Image
from replog.metadata.record_versions import RecordWriter
from replog.metadata.state import Partition
from replog.types import LeaderEpoch, NodeId, PartitionEpoch, TopicIdPartition
from replog.wire.records.metadata import decode_metadata_record, encode_metadata_record
from tests.cases.controllers import Box

PARTITIONS_A_TOPIC = 10


def timed(what: str, work: Callable[[], object], unit: str, per: int = 1) -> None:
    best_ns = None
    for _ in range(3):
        start_ns = time.process_time_ns()
        work()
        took_ns = time.process_time_ns() - start_ns
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
REPEATS = 3  # the best counts; and CPU time, not wall time: the machine has other things to do
GOALS: dict[tuple[int, str], float] = {
    **{(count, "one partition's change, us"): 20 for count in GROWTH},
    **{(count, "memory a partition, bytes"): 2048 for count in GROWTH},
    (10_000, "a broker lost: all re-elected and encoded, ms"): 1000,
    (100_000, "snapshot load, ms"): 10_000,
}


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

    def re_elect() -> None:
        """What a controller does when a session ends: decide, apply, encode; then undo, to do it again."""
        records = fencing.fence(policy, broker)
        for offset, record in enumerate(records, start=box.offset):
            box.image.replay(record, offset)
        list(RecordWriter(box.image.metadata_version).encoded(records))
        box.image.undo_to(box.offset - 1)

    gc.collect()
    return {
        "memory a partition, bytes": held_bytes / count,
        "snapshot load, ms": took_ms(load),
        "a broker lost: all re-elected and encoded, ms": took_ms(re_elect),
        "one partition's change, us": took_ms(lambda: change_some(box)),
    }


def change_some(box: Box) -> None:
    """Decide on 1,000 partitions all over the image, one by one: microseconds a change = milliseconds in all."""
    policy = box.controller.policy
    wish = Wish(target_isr=(NodeId(1), NodeId(2)))
    step = len(box.image.topics) * PARTITIONS_A_TOPIC / 1000
    for number in range(1000):
        topic, index = divmod(int(number * step), PARTITIONS_A_TOPIC)
        key = TopicIdPartition(UUID(int=topic + 1), index)
        fencing.changes(policy, [key], lambda *_: wish, box.image.is_active)


def took_ms(work: Callable[[], object]) -> float:
    """Return the best of some runs."""
    best_ns = None
    for _ in range(REPEATS):
        start_ns = time.process_time_ns()
        work()
        took_ns = time.process_time_ns() - start_ns
        best_ns = took_ns if best_ns is None else min(best_ns, took_ns)
    assert best_ns is not None
    return best_ns / 1e6


def growth() -> bool:
    """Print all figures; return whether all goals are met."""
    before: dict[str, float] = {}
    met = True
    for count in GROWTH:
        now = figures(count)
        for what, value in now.items():
            ratio = f"x {value / before[what]:.1f}" if what in before else ""
            goal = GOALS.get((count, what))
            met = met and (goal is None or value < goal)
            said = "" if goal is None else f"goal < {goal:,.0f}{'' if value < goal else '  MISSED'}"
            print(f"{count:>9,} partitions  {what:<48} {value:12.2f} {ratio:>8}  {said}".rstrip())
        before = now
    return met


if __name__ == "__main__":
    if sys.argv[1:] == ["growth"]:
        sys.exit(not growth())
    wanted = int(sys.argv[1]) if len(sys.argv) > 1 else 10_000
    one_change()
    memory(wanted)
    re_election(wanted)
