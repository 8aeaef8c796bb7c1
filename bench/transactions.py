"""How fast transactions are checked: list-append (strict serializable) and send/poll, as Elle's and Jepsen's checkers were measured.

`python bench/transactions.py --sizes 10000,100000 --json` prints one row per kind and size: transactions, seconds
and cpu_seconds of checking (reading is not part of it), peak_mib of the process. COMPARISON: 10 clients, 1 to 4
steps, 32 appends a key; send/poll with 15 messages read an operation. Each measurement runs in a process of its own.
"""

import argparse
import json
import resource
import subprocess
import sys
import time
from pathlib import Path
from random import Random

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from checkers.graphs import list_append, send_poll
from checkers.graphs.operations import Operation

CLIENTS = 10
APPENDS_A_KEY = 32
LIVE_KEYS = 8


def list_transactions(count: int) -> list[Operation]:
    """Return a strictly serializable history: each transaction takes effect at one moment between its ends."""
    random = Random(7)
    lists: dict[int, tuple[int, ...]] = {}
    keys, newest = list(range(LIVE_KEYS)), LIVE_KEYS
    operations = []
    for number in range(count):
        steps = []
        for _ in range(random.randrange(1, 5)):
            place = random.randrange(LIVE_KEYS)
            key = keys[place]
            held = lists.get(key, ())
            if random.random() < 0.5:
                steps.append(("r", key, list(held)))
                continue
            lists[key] = (*held, len(held) + 1)
            steps.append(("append", key, len(held) + 1))
            if len(held) + 1 == APPENDS_A_KEY:
                keys[place], newest = newest, newest + 1
        operations.append(_operation(number, number % CLIENTS, "ok", steps))
    return operations


def log_transactions(count: int) -> list[Operation]:
    """Return send/poll operations: every client polls all partitions in turn, 15 messages an operation on average."""
    random = Random(7)
    logs: list[list[list[int]]] = [[] for _ in range(LIVE_KEYS)]
    positions = [[0] * LIVE_KEYS for _ in range(CLIENTS)]
    operations = []
    for number in range(count):
        process, steps = number % CLIENTS, []
        for _ in range(2):
            key = random.randrange(LIVE_KEYS)
            logs[key].append([len(logs[key]), number * 4 + len(steps)])
            steps.append(("send", str(key), logs[key][-1]))
        place = number // CLIENTS % LIVE_KEYS
        read = logs[place][positions[process][place] :][:160]
        # What it sends itself it may not read in the same transaction.
        read = [message for message in read if message[1] < number * 4]
        positions[process][place] += len(read)
        steps.append(("poll", {str(place): read}))
        operations.append(_operation(number, process, "ok", steps))
    return operations


def _operation(number: int, process: int, outcome: str, steps: list) -> Operation:
    """Ten clients at once: an operation overlaps with those of the nine others."""
    return Operation(
        index=2 * number + 1, process=process, outcome=outcome, function="txn", invoked=2 * number,
        completed=2 * number + 2 * CLIENTS - 1, steps=tuple(steps),
    )  # fmt: skip


KINDS = {
    "list-append": (list_transactions, list_append.check),
    "send-poll": (log_transactions, send_poll.check),
}


def measure(kind: str, size: int) -> dict[str, object]:
    make, check = KINDS[kind]
    operations = make(size)
    messages = sum(len(m) for o in operations for s in o.steps if s[0] == "poll" for m in s[1].values())
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10
    start, cpu = time.perf_counter(), time.process_time()
    found = check(operations)
    row = {
        "kind": kind,
        "transactions": size,
        "messages_read": messages,
        "seconds": round(time.perf_counter() - start, 2),
        "cpu_seconds": round(time.process_time() - cpu, 2),
        "peak_mib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10,
        "history_mib": before,
    }
    wrong = found.anomalies - {"unseen", "G0", "G0-realtime", "int-send-skip"}
    assert not wrong, (kind, {name: found.witnesses[name][:1] for name in wrong})
    return row


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sizes", default="10000,100000")
    parser.add_argument("--kinds", default=",".join(KINDS))
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--one", nargs=2, metavar=("KIND", "SIZE"), help=argparse.SUPPRESS)
    chosen = parser.parse_args()
    if chosen.one:
        print(json.dumps(measure(chosen.one[0], int(chosen.one[1]))))
        return
    for kind in chosen.kinds.split(","):
        for size in chosen.sizes.split(","):
            told = subprocess.run(
                [sys.executable, __file__, "--one", kind, size], capture_output=True, text=True, check=True
            )
            row = json.loads(told.stdout)
            print(
                json.dumps(row) if chosen.json else "  ".join(f"{name} {value}" for name, value in row.items()),
                flush=True,
            )


if __name__ == "__main__":
    main()
