"""Random small recordings with tail readers, of which some pass records over, receive them again, too early or beyond the ends, or stop.

For comparing a partition that is judged whole with the same one cut into ranges: most records are read as they stand.
"""

from collections.abc import Mapping, Set
from pathlib import Path
from random import Random

from tests.checkers.recorded import MS, Run
from tribunal.results.values import value_of

APART = 0.02  # what is judged as a whole, wherever anything is asked of ranges


def tailed_run(run_dir: Path, seed: int, *, in_transactions: bool = False) -> Path:
    """A run of one partition with up to four tail readers; every seed is another one, the same each time."""
    random = Random(seed)
    run = Run(run_dir)
    count = random.randrange(4, 40)
    log, hidden = _sends(run, random, count, Random(f"transactions of {seed}") if in_transactions else None)
    last = 100 + 10 * count
    if random.random() < 0.3:
        run.change(random.randrange(100, last), leader=2, isr=[2, 3], leader_epoch=1)
    for number in range(random.randrange(5)):
        _reader(run, random, 90 + number, log, hidden)
    final = {offset: value for offset, value in log.items() if random.random() < 0.99}
    if random.random() < 0.95:
        final, isolation = _shown(final, hidden, seed)
        run.final_read(dict(final), last + 60_000, epoch=random.choice([None, 0]), isolation=isolation)
    for node in random.choice([(), (1, 2, 3), (1, 2, 3)]):
        run.log(node, log)
    for _ in range(random.randrange(4)):
        asked = {"answered_by": 1, "asked_ns": random.randrange(100, last + 2_000) * MS}
        at = random.randrange(100, last + 2_000)
        shown = random.randrange(count + 1)
        run.watermark(shown, at, epoch=0, observer="client-1", source="fetch", last_stable_offset=shown, **asked)
    if random.random() < APART:
        times = {"invoke_ns": 400 * MS, "complete_ns": 401 * MS}
        place = {"group": "g", "topic": "t", "partition": random.choice([0, 1]), "committed_offset": 2}
        run.recorder.row("commits", process=90, kind="commit", outcome="ok", **place, **times)
    run.phase("faults", 0, last)
    return run.finish()


def _shown(log: dict[int, int], hidden: Set[int], seed: int) -> tuple[dict[int, int], str]:
    """Return what a final read shows, and what it asks for: everything, or what is committed, wherever anything is not."""
    if not hidden or seed % 2:
        return log, "read_uncommitted"
    return {offset: value for offset, value in log.items() if offset not in hidden}, "read_committed"


def _sends(run: Run, random: Random, count: int, transactions: Random | None) -> tuple[dict[int, int], set[int]]:
    """Send all records, and return where each stands, and where what is hidden from those who read what is committed; of some no offset is known."""
    log: dict[int, int] = {}
    hidden: set[int] = set()
    for offset in range(count):
        known, outcome = random.random() < 0.95, random.choice(["ok"] * 9 + ["info"])
        place = offset if known and outcome == "ok" else None
        more = {"txn_id": "x"} if random.random() < APART / count else {}
        if transactions is not None and transactions.random() < 0.5:
            more = {"txn_id": "x"}
            if _transaction(run, transactions, offset, place) != "committed":
                hidden.add(offset)
        log[offset] = run.send(offset, 100 + 10 * offset, log_offset=place, outcome=outcome, **more)
    return log, hidden


def _transaction(run: Run, random: Random, offset: int, place: int | None) -> str:
    """Write down the transaction of one record, and return its outcome."""
    outcome = random.choice(["committed", "committed", "aborted", "info"])
    step = {"kind": "send", "topic": "t", "partition": 0, "log_offset": place, "value": value_of(7, offset)}
    begin_ns = (99 + 10 * offset) * MS
    span = {"begin_ns": begin_ns, "end_ns": None if outcome == "info" else begin_ns + 5 * MS}
    run.recorder.row("txns", process=7, txn_id="x", **span, outcome=outcome, operations=[step])
    return outcome


def _reader(run: Run, random: Random, process: int, log: Mapping[int, int], hidden: Set[int]) -> None:
    """Read on from somewhere, poll by poll; what is planted is rare, so that most ranges are clean."""
    plants = random.choice([0.0, 0.0, 0.05, 0.2])
    isolation = random.choice(["read_committed", "read_uncommitted"])
    position, at = random.randrange(len(log)), 100
    for _ in range(random.randrange(1, 12)):
        end = min(position + random.randrange(6), len(log))
        at = max(at + random.choice([1, 20, 4_000]), 100 + 10 * end + 5)
        planted = random.choice(["skip", "back", "reset", "early", "beyond", "unpolled", "elsewhere"])
        if random.random() >= plants:
            planted = ""
        passed = hidden if isolation == "read_committed" and planted != "early" else set()
        records = {offset: log[offset] for offset in range(position, end) if offset not in passed}
        if planted == "skip" and records:
            del records[random.choice(sorted(records))]
        if planted == "elsewhere" and records:
            records[random.choice(sorted(records))] = random.choice([*log.values(), value_of(9, 9)])
        _poll(run, random, (process, isolation), position, records, 90 if planted == "early" else at, planted)
        position = end
        if planted == "back":
            position = random.randrange(position + 1)
        if planted == "reset":
            run.polls += 1
            _error(run, process, at + 1)
            position = random.randrange(len(log))
    if random.random() < 0.2:
        for more in (1_000, 6_000, 13_000):
            shown = position + random.choice([0, 1, 3]) + more // 1_000
            run.poll(process, "tail", position, 0, at + more, high_watermark=shown, isolation=isolation, leader_epoch=0)


def _poll(
    run: Run,
    random: Random,
    reader: tuple[int, str],
    position: int,
    records: Mapping[int, int],
    at: int,
    planted: str,
) -> None:
    process, isolation = reader
    end = max(records, default=position) + (planted != "beyond")
    if planted != "unpolled":
        shown = {"high_watermark": end, "last_stable_offset": random.choice([end, None]), "leader_epoch": 0}
        run.poll(process, "tail", position, len(records), at, isolation=isolation, **shown)
    for offset, value in records.items():
        place = {"topic": "t", "partition": 0, "log_offset": offset, "value": value, "leader_epoch": 0}
        run.recorder.row("reads", process=process, poll_index=max(run.polls - 1, 0), phase="tail", **place)


def _error(run: Run, process: int, at: int) -> None:
    run.recorder.row(
        "polls",
        process=process,
        poll_index=run.polls,
        topic="t",
        partition=0,
        isolation="read_uncommitted",
        phase="tail",
        invoke_ns=at * MS,
        complete_ns=at * MS,
        outcome="fail",
        error="OFFSET_OUT_OF_RANGE",
    )
    run.polls += 1
