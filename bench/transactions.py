"""How fast transactions are checked: list-append (strict serializable) and send/poll, as Elle's and Jepsen's checkers were measured.

`python bench/transactions.py --sizes 10000,100000 --json` prints one row per kind and size: transactions, seconds
and cpu_seconds of checking (reading is not part of it), peak_mib of the process. Histories are of 10 clients, 1 to 4
steps, 32 appends a key; send/poll with 15 messages read an operation. Each measurement runs in a process of its own.

`--recorded` writes them as a recording, in which transactions end out of order, and judges what it says of them: by one task, and dealt
out (`--dealt`: that alone, for all of it at once takes 4.7 GiB a million). It prints one row per kind of work item: how many there are, the CPU seconds of all and of the longest, the most memory that one took
(each in a process of its own; `driver` is the process that asks), and the MiB of what they answered.
"""

import argparse
import json
import multiprocessing
import resource
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Iterator
from itertools import product
from pathlib import Path

import msgspec
import numpy as np
import pyarrow as pa

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from bench.judge import table
from tribunal.checkers.graphs import list_append, send_poll
from tribunal.checkers.graphs.columns import ListSteps, Numbering, Transactions
from tribunal.checkers.graphs.send_poll import LogHistory, Messages
from tribunal.checkers.judge.items import Lists, Offsets, WorkItem, work_items
from tribunal.checkers.judge.items import Transactions as AllTransactions
from tribunal.checkers.judge.judge import judge_item, second_look
from tribunal.checkers.judge.tables import TableRow, Tables
from tribunal.results.recording import TABLES
from tribunal.results.store import Recorder

CLIENTS = 10
APPENDS_A_KEY = 32
LIVE_KEYS = 8
PIECE = 100_000


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


def messages(count: int) -> tuple[Messages, Messages]:
    """Return what operations send and poll: every client polls all partitions in turn, 15 messages an operation on average."""
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
    return Messages(txn, key, value, offset), Messages(operation, read_key, read_value, read_offset)


def log_transactions(count: int):
    sends, reads = messages(count)
    names = {live: str(live) for live in range(LIVE_KEYS)}
    return lambda: LogHistory(transactions(count), sends, reads, names), reads.operation.size


KINDS = {
    "list-append": lambda size: listing(list_transactions(size)),
    "send-poll": lambda size: polling(*log_transactions(size)),
}


def listing(history):
    return lambda: list_append.check(history), None


def polling(history, messages: int):
    return lambda: send_poll.check(history(), ww=True), messages


def record(run_dir: Path, count: int, kind: str) -> None:
    """Write transactions as a run writes them, some after the others."""
    recorder, random = Recorder(run_dir, run_dir.name), np.random.default_rng(8)
    ids = [f"w{client}" for client in range(CLIENTS)]
    for low, high, txn, columns in STEPS_OF[kind](count):
        of = TABLES["txns"].fields["operations"]
        fields = [columns[field.name].cast(field.type) for field in of.value_type]
        begins = np.searchsorted(txn, np.arange(low, high + 1)).astype(np.int32)
        operations = pa.ListArray.from_arrays(
            pa.array(begins), pa.StructArray.from_arrays(fields, fields=list(of.value_type))
        )
        number = np.arange(low, high)
        client = number % CLIENTS
        known = {"process": client, "producer_id": client, "producer_epoch": 0, "outcome": "committed"}
        ends = {"begin_ns": 2 * number, "end_ns": 2 * number + random.integers(1, 4 * CLIENTS, number.size)}
        rows_of = table("txns", high - low, **known, **ends)
        made = pa.DictionaryArray.from_arrays(pa.array(client.astype(np.int32)), ids)
        for name, values in {"operations": operations, "txn_id": made}.items():
            place_of = rows_of.column_names.index(name)
            rows_of = rows_of.set_column(place_of, rows_of.schema.field(place_of).with_type(values.type), values)
        recorder.write("txns", rows_of)
    recorder.close_segment()


def steps_of_lists(count: int) -> Iterator[tuple[int, int, np.ndarray, dict[str, pa.Array]]]:
    steps = list_transactions(count)
    for low in range(0, count, PIECE):
        high = min(low + PIECE, count)
        first, end = np.searchsorted(steps.txn, [low, high])
        own = slice(first, end)
        # A read is a row an element, or one without a value; an append is one row.
        rows = np.maximum(np.where(steps.is_read[own], steps.length[own], 1), 1)
        # Two neighbouring reads of one list would be written as one.
        again = steps.is_read[own][1:] & steps.is_read[own][:-1]
        for column in (steps.txn, steps.key):
            again &= column[own][1:] == column[own][:-1]
        rows[1:][again] = 0
        step = np.repeat(np.arange(first, end), rows)
        place = ranges(rows)
        is_read, is_empty = steps.is_read[step], steps.is_read[step] & (steps.length[step] == 0)
        element = np.minimum(steps.first[step] + place, max(steps.elements.size - 1, 0))
        value = np.where(is_read, steps.elements[element], steps.value[step])
        columns = {
            "kind": pa.array(["append", "read"]).take(pa.array(is_read.astype(np.int8))),
            "topic": pa.array(["t"]).take(pa.array(np.zeros(step.size, np.int64))),
            "partition": pa.array(steps.key[step].astype(np.int32)),
            "log_offset": pa.nulls(step.size, pa.int64()),
            "value": pa.array(value, mask=is_empty),
        }
        yield low, high, steps.txn[step], columns


def steps_of_messages(count: int) -> Iterator[tuple[int, int, np.ndarray, dict[str, pa.Array]]]:
    both = messages(count)
    for low in range(0, count, PIECE):
        high = min(low + PIECE, count)
        own = [slice(*np.searchsorted(side.operation, [low, high])) for side in both]
        txn, key, value, offset = (
            np.concatenate([getattr(side, name)[rows] for side, rows in zip(both, own, strict=True)])
            for name in ("operation", "key", "value", "offset")
        )
        is_poll = np.repeat([False, True], [rows.stop - rows.start for rows in own])
        order = np.argsort(txn, kind="stable")
        columns = {
            "kind": pa.array(["send", "poll"]).take(pa.array(is_poll[order].astype(np.int8))),
            "topic": pa.array(["t"]).take(pa.array(np.zeros(order.size, np.int64))),
            "partition": pa.array(key[order].astype(np.int32)),
            "log_offset": pa.array(offset[order]),
            "value": pa.array(value[order]),
        }
        yield low, high, txn[order], columns


STEPS_OF = {"list-append": steps_of_lists, "send-poll": steps_of_messages}


def in_a_process(item: WorkItem) -> tuple[list[TableRow], float, int]:
    """Judge an item in a process of its own; return its answers, CPU seconds, and the most MiB that it took."""
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        return pool.apply(judged, (item,))


def judged(item: WorkItem) -> tuple[list[TableRow], float, int]:
    start = time.process_time()
    answers = judge_item(item)
    return answers, time.process_time() - start, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10


def recorded(kind: str, size: int, folder: Path, *, at_once: bool) -> Iterator[dict[str, object]]:
    """Judge the transactions of a recording, by one task and dealt out."""
    run_dir = folder / str(size)
    maker = multiprocessing.get_context("spawn").Process(target=record, args=(run_dir, size, kind))
    maker.start()
    maker.join()
    assert maker.exitcode == 0
    took: dict[str, list[tuple[float, int, float]]] = defaultdict(list)

    def look(name: str, item: WorkItem) -> list[TableRow]:
        answers, seconds, mebibytes = in_a_process(item)
        took[name].append((seconds, mebibytes, len(msgspec.msgpack.encode(answers)) / (1 << 20)))
        return answers

    start = time.process_time()
    tables, items = Tables(), work_items(run_dir)
    assert any(isinstance(item, Lists | Offsets) for item in items), "too few to be dealt out"
    while items:
        for item in items:
            tables.add(look(type(item).__name__, item))
        items = second_look(tables)
    assert not [*tables.damages, *tables.failures, *tables.findings], tables.failures
    own = (time.process_time() - start, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10, 0.0)
    took["driver"].append(own)
    if at_once:
        look("Transactions, all", AllTransactions(str(run_dir)))
    for name, each in took.items():
        seconds, mebibytes, answered = zip(*each, strict=True)
        yield {
            "kind": kind,
            "transactions": size,
            "item": name,
            "count": len(each),
            "cpu_seconds": round(sum(seconds), 1),
            "longest": round(max(seconds), 2),
            "peak_mib": max(mebibytes),
            "answers_mib": round(sum(answered), 1),
        }


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
    parser.add_argument("--recorded", action="store_true")
    parser.add_argument("--dealt", action="store_true", help="leave out one task that judges all of it")
    parser.add_argument("--one", nargs=2, metavar=("KIND", "SIZE"), help=argparse.SUPPRESS)
    chosen = parser.parse_args()
    if chosen.one:
        print(json.dumps(measure(chosen.one[0], int(chosen.one[1]))))
        return
    if chosen.recorded:
        for kind, size in product(chosen.kinds.split(","), chosen.sizes.split(",")):
            with tempfile.TemporaryDirectory(prefix="tribunal-bench-") as folder:
                for row in recorded(kind, int(size), Path(folder), at_once=not chosen.dealt):
                    print(
                        json.dumps(row) if chosen.json else "  ".join(f"{name} {value}" for name, value in row.items()),
                        flush=True,
                    )
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
