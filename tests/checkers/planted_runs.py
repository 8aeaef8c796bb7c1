"""Random histories with planted excuses: orders, elections, lost disks and holes whose parts stand far from each other in the log.

For comparing a partition that is judged whole with the same one cut into ranges: what excuses a record may stand in another range.
"""

from collections.abc import Sequence, Set
from pathlib import Path
from random import Random

from tests.checkers.recorded import MS, Run
from tribunal.results.values import value_of


def planted_run(
    run_dir: Path, seed: int, *, in_transactions: bool = False, producers: Sequence[int] = (7, 7, 8)
) -> Path:
    """A run of one partition that is right but for what is planted; every seed is another one, the same each time."""
    random = Random(seed)
    run = Run(run_dir, **{"unclean.leader.election.enable": random.random() < 0.4})
    count = random.randrange(6, 24)
    log, last = _sends(run, random, count, Random(f"transactions of {seed}") if in_transactions else None, producers)
    start = _orders(run, random, count, last)
    turn, end = (
        random.choice([0, random.randrange(count), 99]),
        random.choice([count, count, random.randrange(1, count + 1)]),
    )
    _elections(run, random, count, last)
    gone = set(random.sample(range(count), random.choice([0, 0, 1, 2])))
    _consumers(run, random, log, last, start)
    final = {offset: value for offset, value in log.items() if start <= offset < end and offset not in gone}
    if random.random() < 0.15 and final:
        place = random.choice(list(final))
        final[place] = random.choice(list(log.values()))
    if random.random() < 0.9:
        _final_read(run, random, final, last + 600, turn=turn, start=start, end=end)
    for node in random.choice([(), (1, 2, 3), (2, 3), (3,)]):
        _replica(run, random, node, log, gone, turn=turn, start=start, end=end)
    run.phase("faults", 0, last)
    return run.finish()


def _sends(
    run: Run, random: Random, count: int, transactions: Random | None, producers: Sequence[int]
) -> tuple[dict[int, int], int]:
    """Send all records; return where each stands, and when the last was sent."""
    log: dict[int, int] = {}
    at = 100
    order = list(range(count))
    for _ in range(random.randrange(4)):
        place = random.randrange(count - 1)
        order[place], order[place + 1] = order[place + 1], order[place]
    compacted = random.random() < 0.15
    places = {sequence: offset for offset, sequence in enumerate(order)}
    for sequence in range(count):
        at += random.choice([0, 1, 10, 10, 400])
        process, known, acks = random.choice(producers), random.random() < 0.85, random.choice([-1, -1, 1])
        outcome = "ok" if known or random.random() < 0.5 else "info"
        log[places[sequence]] = value_of(process, sequence)
        row = {
            "process": process,
            "value": value_of(process, sequence),
            "outcome": outcome,
            "log_offset": places[sequence] if known else None,
            "complete_ns": (at + random.choice([1, 1, 30])) * MS,
            "leader_epoch": random.choice([None, 0]),
            "key": f"a{sequence % 3}:{random.choice([1, -1])}" if compacted or random.random() < 0.3 else None,
        }
        if transactions is not None and transactions.random() < 0.3:
            acks = -1
            row["txn_id"] = f"x{sequence}"
            _transaction(run, transactions, row, at)
        run.send(sequence, at, acks=acks, **row)
    for setting, value in _settings(random, compacted=compacted):
        since = random.randrange(100, at + 400)
        _order(run, random, since, api="set_config", setting=setting, value=value)
    return dict(sorted(log.items())), at


def _transaction(run: Run, random: Random, row: dict[str, object], at: int) -> None:
    step = {"kind": "send", "topic": "t", "partition": 0, "log_offset": row["log_offset"], "value": row["value"]}
    outcome = random.choice(["committed", "committed", "aborted", "info"])
    span = {"begin_ns": at * MS - MS, "end_ns": None if outcome == "info" else (at + 40) * MS}
    ids = {"process": row["process"], "txn_id": row["txn_id"]}
    run.recorder.row("txns", **ids, **span, outcome=outcome, operations=[step], timeout_ms=1_000)


def _settings(random: Random, *, compacted: bool) -> list[tuple[str, str]]:
    found = [("cleanup.policy", "compact")] if compacted else []
    if random.random() < 0.4:
        found.append(("retention.ms", str(random.choice([10, 500, 3000]))))
    if random.random() < 0.3:
        found.append(("retention.bytes", str(random.choice([100, 400, 1000, 3000]))))
    return found


def _order(run: Run, random: Random, at: int, **order: object) -> None:
    times = {"invoke_ns": at * MS, "complete_ns": (at + 5) * MS}
    run.recorder.row("admin", topic="t", **order, **times, outcome=random.choice(["ok", "ok", "info", "fail"]))


def _orders(run: Run, random: Random, count: int, last: int) -> int:
    """Perhaps move the log start, by order or not; return it."""
    start = random.choice([0, 0, random.randrange(count)])
    if random.random() < 0.2 and start:
        at, offset = random.randrange(100, last + 400), random.choice([start, start, max(0, start - 1)])
        _order(run, random, at, api="delete_records", partition=0, log_offset=offset)
    return start


def _elections(run: Run, random: Random, count: int, last: int) -> None:
    if random.random() < 0.6:
        run.change(random.randrange(100, last + 200), leader=2, isr=[2, 3], leader_epoch=1)
    if random.random() < 0.4:
        recovery = random.choice([0, 1])
        run.change(last + 200, leader=3, isr=[3], leader_epoch=2, leader_recovery_state=recovery)
    if random.random() < 0.4:
        run.registered(random.choice([1, 2, 3]), random.randrange(100, last + 100), random.choice([-1, 0]))
    if random.random() < 0.3:
        at, node = random.randrange(100, last), random.choice([1, 2, 3])
        lost_from, lost_end = random.choice([None, random.randrange(count)]), random.choice([None, count])
        run.fault("kill", at, node=node, lost_from=lost_from, lost_end=lost_end)


def _consumers(run: Run, random: Random, log: dict[int, int], last: int, start: int) -> None:
    for number in range(random.randrange(3)):
        first = random.randrange(len(log))
        read: dict[int, int | None] = {offset: log[offset] for offset in range(first, min(len(log), first + 5))}
        run.read(read, random.randrange(100, last + 200), process=90 + number, epoch=random.choice([None, 0, 1]))
    for _ in range(random.randrange(4)):
        shown, at = random.randrange(len(log) + 1), random.randrange(100, last + 300)
        run.watermark(shown, at, epoch=random.choice([0, 1, None]), log_start_offset=random.choice([None, start]))


def _final_read(run: Run, random: Random, final: dict[int, int], at: int, *, turn: int, start: int, end: int) -> None:
    shown = {"high_watermark": end, "log_start_offset": start}
    run.poll(99, "final", start, len(final), at, **shown)
    for offset, value in final.items():
        place = {"topic": "t", "partition": 0, "log_offset": offset, "value": value, "phase": "final"}
        epoch = int(offset >= turn) if random.random() < 0.8 else None
        run.recorder.row("reads", process=99, poll_index=run.polls - 1, leader_epoch=epoch, **place)
    run.poll(99, "final", end, 0, at + 1, **shown)


def _replica(
    run: Run, random: Random, node: int, log: dict[int, int], gone: Set[int], *, turn: int, start: int, end: int
) -> None:
    """Record a replica's log, of which records are missing here and there."""
    own = {
        offset: value
        for offset, value in log.items()
        if random.choice([start, 0, start + 1]) <= offset < random.choice([end, end, len(log)])
        if offset not in gone
    }
    hole = set(random.sample(range(len(log)), random.choice([0, 0, 0, 1])))
    run.log(node, {offset: value for offset, value in own.items() if offset not in hole}, turn=turn)
    if random.random() < 0.6:
        run.dump(node, start=start, end=end, count=len(own))
