"""Random small recordings with groups, transactions that consume, and banks, of which some pass records over, take them twice, or lack money.

For comparing a partition that is judged whole with the same one cut into ranges: most records are read, and received, where they were
acknowledged; a few stand, or were received, elsewhere, stand twice, have an offset that nobody knows or one that others were given, too.
"""

from collections.abc import Mapping
from pathlib import Path
from random import Random

import pyarrow.parquet as pq

from tests.checkers.recorded import MS, Run
from tribunal.results.values import value_of

PLACE = {"topic": "t", "partition": 0}


def grouped_run(run_dir: Path, seed: int) -> Path:
    """A run of one partition with up to three groups; every seed is another one, the same each time."""
    random = Random(f"groups of {seed}")
    run = Run(run_dir, **{"unclean.leader.election.enable": random.random() < 0.3})
    count = random.randrange(4, 24)
    log, hidden = _sends(run, random, count, is_bank=random.random() < 0.5)
    if random.random() < 0.2:
        run.change(random.randrange(100, 100 + 10 * count), leader=2, isr=[2, 3], leader_epoch=1)
    for number in range(random.randrange(4)):
        if random.random() < 0.5:
            _members(run, random, number, log)
        else:
            _transactions(run, random, number, log)
    final = _standing(random, log)
    isolation = random.choice(["read_committed", "read_committed", "read_uncommitted"])
    if isolation == "read_committed":
        final = {offset: value for offset, value in final.items() if value not in hidden or random.random() < 0.05}
    if random.random() < 0.2:
        start = random.choice([0, 1])
        run.poll(98, "final", start, 0, 890, high_watermark=count, isolation=isolation, log_start_offset=start)
    if random.random() < 0.95:
        run.final_read(dict(final), isolation=isolation, epoch=random.choice([None, 0, 1]))
    for node in random.choice([(), (1, 2, 3)]):
        run.log(node, log)
    return run.finish()


def in_row_groups(run_dir: Path, rows: int) -> Path:
    """Write the files of a recording anew, in row groups of so many rows."""
    for path in run_dir.rglob("*.parquet"):
        pq.write_table(pq.read_table(path), path, row_group_size=rows)
    (run_dir / "manifest.json").unlink()
    return run_dir


def _sends(run: Run, random: Random, count: int, *, is_bank: bool) -> tuple[dict[int, int], set[int]]:
    """Send all records; return where each stands, and the values that are not known to be committed."""
    log: dict[int, int] = {}
    hidden: set[int] = set()
    for offset in range(count):
        others = [("info", None), ("ok", None), ("fail", None), ("ok", random.randrange(offset + 1))]
        outcome, place = random.choice([("ok", offset)] * 14 + others)
        more: dict[str, object] = {"acks": random.choice([-1, -1, -1, 1])}
        if is_bank and random.random() < 0.9:
            more = {"worker_class": "transactional-bank", "key": f"a{offset % 3}:{(-1) ** offset * (offset // 2 + 1)}"}
        if is_bank or random.random() < 0.3:
            more |= {"acks": -1, "txn_id": "x"}
            if _transfer(run, random, offset, place) != "committed":
                hidden.add(value_of(7, offset))
        log[offset] = run.send(offset, 100 + 10 * offset, log_offset=place, outcome=outcome, **more)
    return log, hidden


def _transfer(run: Run, random: Random, offset: int, place: int | None) -> str:
    """Write down the transaction that sent one record, and return its outcome."""
    outcome = random.choice(["committed"] * 6 + ["aborted", "info"])
    steps: list[dict[str, object]] = [{"kind": "send", "log_offset": place, "value": value_of(7, offset), **PLACE}]
    if random.random() < 0.02:
        steps.append({"kind": "send", "topic": "u", "partition": 0, "log_offset": None, "value": value_of(6, offset)})
    begin_ns = (99 + 10 * offset) * MS
    span = {"begin_ns": begin_ns, "end_ns": None if outcome == "info" else begin_ns + 5 * MS}
    run.recorder.row("txns", process=7, txn_id="x", **span, outcome=outcome, operations=steps)
    return outcome


def _standing(random: Random, log: Mapping[int, int]) -> dict[int, int]:
    """Return what stands in the log in the end: what was sent there, but for a few."""
    final = dict(log)
    for offset in log:
        match random.choice([""] * 25 + ["gone", "moved", "twice"]):
            case "gone":
                final.pop(offset, None)
            case "moved":
                other = random.choice(list(log))
                final[offset], final[other] = final.get(other, log[other]), final.get(offset, log[offset])
            case "twice":
                final[offset] = log[random.choice(list(log))]
    return final


def _members(run: Run, random: Random, number: int, log: Mapping[int, int]) -> None:
    """Two members of a group receive everything in turns, but for what is planted, and commit."""
    own = (50 + 2 * number, 51 + 2 * number)
    plants = random.choice([0.0, 0.1, 0.3])
    at = 400
    for first in range(0, len(log), 3):
        process, at = random.choice(own), at + 10
        records: dict[int, int | None] = {}
        for offset in range(first, min(first + 3, len(log))):
            planted = random.choice(["", "lacks", "elsewhere"]) if random.random() < plants else ""
            if planted != "lacks":
                records[offset] = log[random.choice(list(log)) if planted == "elsewhere" else offset]
        run.read(records, at, process=process, isolation=random.choice(["read_committed", "read_uncommitted"]))
        if random.random() < 0.7:
            _commit(run, random, number, process, min(first + 3, len(log)), at + 1)


def _commit(run: Run, random: Random, number: int, process: int, offset: int, at: int) -> None:
    times = {"invoke_ns": at * MS, "complete_ns": (at + 1) * MS}
    row = {"group": f"g{number}", "kind": "commit", "committed_offset": offset, "generation": random.choice([1, 1, 2])}
    outcome = random.choice(["ok"] * 8 + ["info", "fail"])
    run.recorder.row("commits", process=process, **row, **PLACE, **times, outcome=outcome)


def _transactions(run: Run, random: Random, number: int, log: Mapping[int, int]) -> None:
    """Transactions of a group consume everything, but for what is planted, and commit its position."""
    process, at = 20 + number, 400
    plants = random.choice([0.0, 0.1, 0.3])
    if random.random() < 0.5:
        run.poll(process, "tail", random.choice([0, 0, 1, 3]), 0, at - 5, high_watermark=len(log))
    for first in range(random.choice([0, 0, 2]), len(log), 3):
        at += 20
        polled = [offset for offset in range(first, min(first + 3, len(log))) if random.random() >= plants]
        polled += [random.choice(list(log))] if random.random() < plants else []
        outcome = random.choice(["committed"] * 6 + ["aborted", "info"])
        steps = [{"kind": "poll", "log_offset": offset, "value": log[offset], **PLACE} for offset in polled]
        span = {"begin_ns": at * MS, "end_ns": (at + 10) * MS}
        run.recorder.row("txns", process=process, txn_id=f"y{number}", **span, outcome=outcome, operations=steps)
        if random.random() < 0.95:
            _commit(run, random, number, process, min(first + 3, len(log)), at + 5)
