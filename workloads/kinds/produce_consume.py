"""Produce with acks 0, 1 and all at once while consumers follow; at the end read everything to the end.

Some partitions have one acks level alone, the last two are mixed. acks=all has two classes of workers:
`idempotent` retries inside librdkafka, `no-retries` is plain, so that errors come through.
"""

import asyncio
from collections.abc import Sequence
from random import Random
from typing import Final, NamedTuple

import msgspec

from tribunal.clusters.api import Acks, Admin, PartitionPoll, TopicPartition
from tribunal.clusters.endings import side_by_side
from tribunal.clusters.requested import OF_PRODUCERS
from tribunal.workloads.api import (
    IN_FLIGHT_MAX,
    Count,
    Reader,
    Readers,
    Several,
    Stage,
    Worker,
    WorkerPlan,
    Workload,
    create_topic,
    drawn_seed,
)

TOPIC: Final = "produce-consume"
FIRST_READER: Final = 901
OFFSETS_OBSERVER: Final = 951
FINAL_READER: Final = 999
POLL_RECORDS: Final = 2_000
POLL_MS: Final = 200
OFFSETS_EVERY_MS: Final = 500
KEY_COUNT: Final = 64
OUT_OF_RANGE: Final = frozenset({"OFFSET_OUT_OF_RANGE", "_AUTO_OFFSET_RESET"})


class Options(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What a scenario may say: partitions of the topic, records per second in all, readers.

    batches_in_flight:  of an idempotent producer of ours to one partition; librdkafka has its own.
    """

    partitions: Several = 6
    rate: Count = 400
    readers: Readers = 2
    delivery_timeout_ms: Count = 8_000
    request_timeout_ms: Count = 2_500
    batches_in_flight: Count = 1


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """The workload with every choice made."""

    topic: str
    partitions: Several
    workers: tuple[WorkerPlan, ...]
    readers: Readers
    delivery_timeout_ms: Count
    request_timeout_ms: Count


# worker class, acks, idempotent, share of the rate in percent
CLASSES: Final[tuple[tuple[str, Acks, bool, int], ...]] = (
    ("idempotent", -1, True, 35),
    ("no-retries", -1, False, 25),
    ("leader-only", 1, False, 25),
    ("fire-and-forget", 0, False, 15),
)


def partitions_of(acks: Acks, count: int) -> tuple[int, ...]:
    """Return where records of this acks level go: partitions of their own and the mixed last two."""
    mixed = tuple(range(max(0, count - 2), count))
    own = range(count - len(mixed))
    wanted = {-1: [p for p in own if p % 4 < 2], 1: [p for p in own if p % 4 == 2], 0: [p for p in own if p % 4 == 3]}
    return (*wanted[acks], *mixed)


def plan(options: Options, random: Random) -> Plan:
    """Draw the workers' seeds."""
    workers = tuple(
        WorkerPlan(
            process=process,
            worker_class=worker_class,
            acks=acks,
            idempotent=idempotent,
            partitions=partitions_of(acks, options.partitions),
            rate_per_s=max(1, options.rate * share // 100),
            seed=drawn_seed(random),
            batches_in_flight=options.batches_in_flight,
        )
        for process, (worker_class, acks, idempotent, share) in enumerate(CLASSES, start=1)
    )
    return Plan(
        topic=TOPIC,
        partitions=options.partitions,
        workers=workers,
        readers=options.readers,
        delivery_timeout_ms=options.delivery_timeout_ms,
        request_timeout_ms=options.request_timeout_ms,
    )


async def run(stage: Stage, chosen: Plan) -> None:
    """Produce and follow until asked to stop; returns when every send's fate is written down."""
    followers = [_follow(stage, chosen, FIRST_READER + number) for number in range(chosen.readers)]
    readers = [asyncio.create_task(reader) for reader in (*followers, _observe_offsets(stage, chosen))]
    try:
        await side_by_side(_produce(stage, chosen, worker) for worker in chosen.workers)
    finally:
        for reader in readers:
            reader.cancel()
        await asyncio.wait(readers)
    for reader in readers:
        if not reader.cancelled():
            reader.result()  # it ended by itself, which is a bug of ours


async def _produce(stage: Stage, chosen: Plan, worker_plan: WorkerPlan) -> None:
    worker = Worker(
        stage,
        worker_plan,
        delivery_timeout_ms=chosen.delivery_timeout_ms,
        request_timeout_ms=chosen.request_timeout_ms,
    )
    random = Random(worker_plan.seed)
    loop = asyncio.get_running_loop()
    try:
        due = loop.time()
        left = worker_plan.records_max
        while not stage.stopping.is_set():
            if left == 0:
                await stage.stopping.wait()
            elif worker.in_flight < IN_FLIGHT_MAX:
                left = None if left is None else left - 1
                number = random.choice(worker_plan.partitions)
                worker.produce(TopicPartition(chosen.topic, number), f"key-{random.randrange(KEY_COUNT)}")
            # (Behind by more than a moment: the machine was busy; do not catch up in a burst.)
            due = max(due + 1 / worker_plan.rate_per_s, loop.time() - 0.1)
            await asyncio.sleep(max(0.0, due - loop.time()))
        await worker.finish(chosen.delivery_timeout_ms)
    finally:
        await worker.close()


async def _follow(stage: Stage, chosen: Plan, process: int) -> None:
    reader = Reader(stage, process, "tail")
    admin = stage.clients.admin(f"reader-{process}-offsets")
    try:
        reader.assign(dict.fromkeys(partitions(chosen), 0))
        while True:
            for poll in await reader.poll(POLL_RECORDS, POLL_MS):
                if poll.error in OUT_OF_RANGE and not poll.records:
                    await _stay_in_range(admin, reader, poll)
    finally:
        await reader.close()
        await admin.close()


async def _stay_in_range(admin: Admin, reader: Reader, poll: PartitionPoll) -> None:
    """Move a reader whose position the log no longer has: it is written down, reading goes on."""
    (offsets,) = await admin.offsets([poll.partition], 2_000)
    if offsets.latest_offset is not None and offsets.log_start_offset is not None:
        nearest = min(poll.position, offsets.latest_offset)
        reader.seek(poll.partition, max(nearest, offsets.log_start_offset))


async def _observe_offsets(stage: Stage, chosen: Plan) -> None:
    """Ask for earliest and latest offsets all the time: latest may never go back (KIP-207)."""
    admin = stage.clients.admin("offsets-observer")
    try:
        while True:
            await record_offsets(stage, admin, partitions(chosen))
            await asyncio.sleep(OFFSETS_EVERY_MS / 1000)
    finally:
        await admin.close()


class Ends(NamedTuple):
    """Earliest and latest offset of a partition, and who said so in which leader epoch."""

    start: int
    end: int
    answered_by: int | None
    leader_epoch: int | None


async def record_offsets(
    stage: Stage, admin: Admin, wanted: Sequence[TopicPartition], timeout_ms: int = 2_000
) -> dict[TopicPartition, Ends]:
    """Ask each leader for its offsets and record them; return those of which both are known."""
    known = {}
    for offsets in await admin.offsets(wanted, timeout_ms):
        if offsets.latest_offset is None or offsets.log_start_offset is None:
            continue
        known[offsets.partition] = Ends(
            offsets.log_start_offset, offsets.latest_offset, offsets.answered_by, offsets.leader_epoch
        )
        stage.sink.row(
            "watermarks",
            observer=f"client-{stage.first_process + OFFSETS_OBSERVER}",
            source="list_offsets",
            topic=stage.recorded(offsets.partition.topic),
            partition=offsets.partition.partition,
            answered_by=offsets.answered_by,
            leader_epoch=offsets.leader_epoch,
            high_watermark=offsets.latest_offset,
            log_end_offset=offsets.latest_offset,
            log_start_offset=offsets.log_start_offset,
            at_ns=stage.answered_ns(offsets),
            asked_ns=stage.asked_ns(offsets.asked_s),
        )
    return known


def partitions(chosen: Plan) -> list[TopicPartition]:
    """Return all partitions of the workload's topic."""
    return [TopicPartition(chosen.topic, number) for number in range(chosen.partitions)]


def written_throughout(chosen: Plan) -> list[TopicPartition]:
    """Return the partitions that somebody who gets answers writes to as long as the run lasts.

    Who sends with acks=0 does not notice that its leader went silent: such a partition need not make progress.
    """
    writers = [worker for worker in chosen.workers if worker.acks != 0 and worker.records_max is None]
    return [one for one in partitions(chosen) if any(one.partition in worker.partitions for worker in writers)]


async def read_to_end(stage: Stage, chosen: Plan, timeout_ms: int) -> list[TopicPartition]:
    """Read everything."""
    return await read_whole(stage, partitions(chosen), timeout_ms)


async def read_whole(
    stage: Stage,
    wanted: Sequence[TopicPartition],
    timeout_ms: int,
    process: int = FINAL_READER,
    *,
    finds_end: bool = False,
) -> list[TopicPartition]:
    """Read every partition from its start to its end, after everything is quiet; return those not reached.

    A partition's final read is closed by a poll that brought nothing, at its end as its leader states it. What arrives
    behind that end, as a record of acks=0 that its followers get only now, moves the end: it is asked for and read again. Where
    retention moved the log start past what was to be read next, reading goes on from there.
    """
    deadline = asyncio.get_running_loop().time() + timeout_ms / 1000
    admin = stage.clients.admin("final-read-offsets")
    reader = Reader(stage, process, "final", finds_end=finds_end)
    unread: list[TopicPartition] = []
    missing = list(wanted)
    try:
        # A topic that was deleted for good answers nothing: those that are there must not wait for it until no time is left.
        while missing and (ends := await _known_ends(stage, admin, missing, deadline)):
            unread += await _read_known(stage, admin, reader, ends, deadline)
            missing = [partition for partition in missing if partition not in ends]
    finally:
        await reader.close()
        await admin.close()
    return unread + missing


async def _read_known(
    stage: Stage, admin: Admin, reader: Reader, ends: dict[TopicPartition, Ends], deadline: float
) -> list[TopicPartition]:
    """Read partitions to their ends, as long as there is time; return those not reached."""
    loop = asyncio.get_running_loop()
    positions = {partition: known.start for partition, known in ends.items()}
    reader.assign(positions)
    ends = dict(ends)
    open_ = list(ends)
    while True:
        while loop.time() < deadline and any(positions[p] < ends[p].end for p in open_):
            await _poll(stage, admin, reader, positions, ends)
        open_ = await _close_final_read(stage, admin, reader, positions, {p: ends[p] for p in open_})
        if not open_ or loop.time() >= deadline:
            return open_
        ends |= await record_offsets(stage, admin, open_)


async def _known_ends(
    stage: Stage, admin: Admin, wanted: Sequence[TopicPartition], deadline: float
) -> dict[TopicPartition, Ends]:
    """Return the ends of the partitions whose leaders answer, and once the latest is behind what was acknowledged; in half of the time, where any does.

    With acks=1 a leader answers before its followers have the records, and a member of the ISR may have fetched nothing
    for seconds: read at once, the last ones would be missing. What a fault took never comes: it is waited for at most half
    of the time; the judge then sees that it was not read.
    """
    loop = asyncio.get_running_loop()
    early_until = (loop.time() + deadline) / 2
    ends: dict[TopicPartition, Ends] = {}
    missing = list(wanted)
    while True:
        ends |= await record_offsets(stage, admin, missing)
        is_early = loop.time() < early_until
        missing = [p for p in wanted if p not in ends or (is_early and ends[p].end <= stage.acknowledged.get(p, -1))]
        if not missing or loop.time() >= deadline or (ends and not is_early):
            return ends
        await asyncio.sleep(POLL_MS / 1000)


async def _poll(
    stage: Stage, admin: Admin, reader: Reader, positions: dict[TopicPartition, int], ends: dict[TopicPartition, Ends]
) -> set[TopicPartition]:
    """Read on; return the partitions that brought records or an error."""
    answered = await reader.poll(POLL_RECORDS, POLL_MS)
    polls = [poll for poll in answered if poll.records or poll.error]
    for poll in answered:
        if poll.records:
            positions[poll.partition] = poll.records[-1].log_offset + 1
        # Behind the markers of transactions, which nobody receives.
        if not poll.error and poll.next_position is not None:
            positions[poll.partition] = max(positions[poll.partition], poll.next_position)
    out_of_range = [poll.partition for poll in polls if poll.error in OUT_OF_RANGE and not poll.records]
    if out_of_range:
        ends |= await record_offsets(stage, admin, out_of_range)
        for partition in out_of_range:
            if partition in ends:  # of one whose read is closed nobody need say where it begins now
                positions[partition] = max(positions[partition], ends[partition].start)
            reader.seek(partition, positions[partition])
        await asyncio.sleep(POLL_MS / 1000)  # who does not know yet where it begins may be asked for long
    return {poll.partition for poll in polls}


async def _close_final_read(
    stage: Stage,
    admin: Admin,
    reader: Reader,
    positions: dict[TopicPartition, int],
    ends: dict[TopicPartition, Ends],
) -> list[TopicPartition]:
    invoke_ns = stage.now_ns()
    late = await _poll(stage, admin, reader, positions, ends)
    unread = []
    for partition, known in ends.items():
        if positions[partition] < known.end or partition in late:
            unread.append(partition)
            continue
        closing = PartitionPoll(
            partition=partition,
            position=positions[partition],
            records=[],
            high_watermark=known.end,
            log_start_offset=known.start,
            answered_by=known.answered_by,
            leader_epoch=known.leader_epoch,
        )
        reader.record_closing(closing, invoke_ns)
    return unread


async def prepare(stage: Stage, chosen: Plan, replication_factor: int) -> None:
    """Create the topic."""
    admin = stage.clients.admin("topic-maker")
    try:
        await create_topic(stage, admin, chosen.topic, chosen.partitions, replication_factor)
    finally:
        await admin.close()


WORKLOAD: Final = Workload(
    options=Options,
    chosen=Plan,
    plan=plan,
    partitions=partitions,
    prepare=prepare,
    run=run,
    read_to_end=read_to_end,
    written_throughout=written_throughout,
    sends=OF_PRODUCERS,
)
