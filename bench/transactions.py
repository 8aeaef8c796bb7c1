"""How fast transactions are checked: list-append (strict serializable) and send/poll, as Elle's and Jepsen's checkers were measured.

`python bench/transactions.py --sizes 10000,100000 --json` prints one row per kind and size: transactions, seconds
and cpu_seconds of checking (reading is not part of it), peak_mib of the process. Histories are of 10 clients, 1 to 4
steps, 32 appends a key; send/poll with 15 messages read an operation. Each measurement runs in a process of its own.
"""

import argparse
import json
import resource
import subprocess
import sys
import time
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from tribunal.checkers.graphs import list_append, send_poll
from tribunal.checkers.graphs.columns import ListSteps, Numbering, Transactions
from tribunal.checkers.graphs.send_poll import LogHistory, Messages

CLIENTS = 10
APPENDS_A_KEY = 32
LIVE_KEYS = 8


def transactions(count: int) -> Transactions:
    """Ten clients at once: a transaction overlaps with those of the nine others."""
    number = np.arange(count)
    return Transactions(
        2 * number + 1, number % CLIENTS, np.zeros(count, np.int8), 2 * number, 2 * number + 2 * CLIENTS - 1
    )


def list_transactions(count: int) -> ListSteps:
    """Return a strictly serializable history: each transaction takes effect at one moment between its ends."""
    random = np.random.default_rng(7)
    sizes = random.integers(1, 5, count)
    txn = np.repeat(np.arange(count), sizes)
    slot = random.integers(0, LIVE_KEYS, txn.size)
    is_read = random.random(txn.size) < 0.5
    held = np.zeros(txn.size, np.int64)
    for live in range(LIVE_KEYS):
        own = slot == live
        held[own] = np.cumsum(~is_read[own]) - ~is_read[own]
    length = np.where(is_read, held % APPENDS_A_KEY, 0)
    first = np.cumsum(length) - length
    elements = ranges(length) + 1
    key = slot + LIVE_KEYS * (held // APPENDS_A_KEY)
    names = range(int(key.max()) + 1)
    value = held % APPENDS_A_KEY + 1
    return ListSteps(transactions(count), txn, is_read, key, value, first, length, elements, names, Numbering())


def ranges(lengths: np.ndarray) -> np.ndarray:
    ends = np.cumsum(lengths)
    return np.arange(ends[-1]) - np.repeat(ends - lengths, lengths)


def log_transactions(count: int) -> LogHistory:
    """Return send/poll operations: every client polls all partitions in turn, 15 messages an operation on average."""
    random = np.random.default_rng(7)
    sizes = random.integers(1, 3, count)
    txn = np.repeat(np.arange(count), sizes)
    key = random.integers(0, LIVE_KEYS, txn.size)
    offset = np.zeros(txn.size, np.int64)
    value = 4 * txn + ranges(sizes)
    polled = np.arange(count) // CLIENTS % LIVE_KEYS
    low, high = np.zeros(count, np.int64), np.zeros(count, np.int64)
    places = []
    for live in range(LIVE_KEYS):
        own = np.flatnonzero(key == live)
        offset[own] = np.arange(own.size)
        places.append(own)
        # What it sends itself an operation may not read: only what was sent before it.
        for client in range(CLIENTS):
            polls = np.flatnonzero((polled == live) & (np.arange(count) % CLIENTS == client))
            high[polls] = np.searchsorted(txn[own], polls)
            low[polls] = np.concatenate([[0], high[polls][:-1]])
    lengths = high - low
    operation = np.repeat(np.arange(count), lengths)
    read_key = polled[operation]
    read_offset = np.repeat(low, lengths) + ranges(lengths)
    read_value = np.zeros(operation.size, np.int64)
    for live in range(LIVE_KEYS):
        chosen = read_key == live
        read_value[chosen] = value[places[live]][read_offset[chosen]]
    names = {live: str(live) for live in range(LIVE_KEYS)}
    sends, reads = Messages(txn, key, value, offset), Messages(operation, read_key, read_value, read_offset)
    return lambda: LogHistory(transactions(count), sends, reads, names), operation.size


KINDS = {
    "list-append": lambda size: listing(list_transactions(size)),
    "send-poll": lambda size: polling(*log_transactions(size)),
}


def listing(history):
    return lambda: list_append.check(history), None


def polling(history, messages: int):
    return lambda: send_poll.check(history(), ww=True), messages


def measure(kind: str, size: int) -> dict[str, object]:
    judge, messages = KINDS[kind](size)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10
    start, cpu = time.perf_counter(), time.process_time()
    found = judge()
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
    assert not found.undecided
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
            finished = subprocess.run(
                [sys.executable, __file__, "--one", kind, size], capture_output=True, text=True, check=True
            )
            row = json.loads(finished.stdout)
            print(
                json.dumps(row) if chosen.json else "  ".join(f"{name} {value}" for name, value in row.items()),
                flush=True,
            )


if __name__ == "__main__":
    main()
