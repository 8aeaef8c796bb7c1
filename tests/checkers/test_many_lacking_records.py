"""What groups or readers lack is explained in a time that grows with how much that is, not with its square."""

import time
from pathlib import Path

from tests.checkers.recorded import MS, Run
from tribunal.checkers.judge.engine import judge_runs

RECORDS = 3000
POSITIONS = 3000
TRANSACTIONS = 3000
MOST_S = 15  # of CPU: each record looked anew through all that others had done, which took minutes


def test_a_group_that_lacks_very_much_is_explained_fast(tmp_path: Path) -> None:
    """Its members had read on before an election that nobody had allowed: nothing of it is an excuse."""
    run = Run(tmp_path / "run")
    row = {
        "process": 50,
        "group": "g",
        "generation": 5,
        "topic": "t",
        "partition": 0,
        "kind": "commit",
        "outcome": "ok",
    }
    run.change(40, isr=[1, 2])
    for number in range(POSITIONS):
        at_ns = 50 * MS + number
        run.recorder.row("commits", **row, committed_offset=number + 1, invoke_ns=at_ns, complete_ns=at_ns + 1)
    run.change(60, leader=3, isr=[3], leader_recovery_state=1)
    values = [run.send(sequence, 100 + sequence) for sequence in range(RECORDS)]
    end = {"committed_offset": RECORDS, "invoke_ns": 9000 * MS, "complete_ns": 9001 * MS}
    run.recorder.row("commits", **row, **end)
    run.final_read(dict(enumerate(values)), at=9900, epoch=1)
    run_dir = run.finish()
    began = time.process_time()

    found = [row.finding for row in judge_runs([run_dir], "inline").findings]

    assert time.process_time() - began < MOST_S
    lacking = [one for one in found if one.kind == "unconsumed"]
    assert {one.severity for one in lacking} == {"violation"}
    assert sum(one.count for one in lacking) == RECORDS


def test_transactions_of_which_nothing_is_visible_are_explained_fast(tmp_path: Path) -> None:
    """Each was committed, and stands in all logs; what shows that its marker is there is read once for all of them."""
    run = Run(tmp_path / "run")
    created = {"partition_id": 0, "replicas": [1, 2, 3], "isr": [1, 2, 3], "leader": 1, "leader_epoch": 0}
    run.metadata("PartitionRecord", 0, topic="__transaction_state", **created)
    for number in range(TRANSACTIONS):
        run.poll(80, "tail", 0, 0, 100 + number, high_watermark=number, isolation="read_committed")
        value = run.send(number, 100 + number, txn_id="x")
        step = {"kind": "send", "topic": "t", "partition": 0, "log_offset": number, "value": value}
        times = {"begin_ns": (100 + number) * MS, "end_ns": (101 + number) * MS}
        run.recorder.row("txns", process=7, txn_id="x", outcome="committed", operations=[step], **times)
        for node in (1, 2, 3):
            run.log(node, {number: value})
    run.final_read({}, at=9000, isolation="read_committed")
    run_dir = run.finish()
    began = time.process_time()

    found = [row.finding for row in judge_runs([run_dir], "inline").findings]

    assert time.process_time() - began < MOST_S
    assert sum(one.count for one in found if (one.kind, one.severity) == ("unread", "violation")) == TRANSACTIONS
