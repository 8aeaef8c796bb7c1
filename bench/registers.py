"""How fast one register is judged: by the order of the log, by search, and by Porcupine in the same run.

`python bench/registers.py --sizes 1000,10000,100000 --clients 20 --json` prints one row per judge and size: operations, seconds,
cpu_seconds, answer. Porcupine comes from the Go module proxy; without Go, or without the proxy, its rows say why it is missing.
"""

import argparse
import json
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from random import Random

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from tribunal.checkers.graphs.operations import Operation
from tribunal.checkers.registers import settled
from tribunal.checkers.registers.linearizability import Limits, check
from tribunal.checkers.registers.models import REGISTER

HERE = Path(__file__).resolve().parent


def history(count: int, clients: int) -> list[Operation]:
    """Every client always has an operation open, which takes effect at one moment between its ends."""
    random = Random(7)
    moment, log, operations = 0, [-1], []
    waiting: list[tuple[int, bool]] = [(0, random.random() < 0.5) for _ in range(clients)]
    for number in range(count):
        client = random.randrange(clients)
        invoked, is_write = waiting[client]
        moment += 2
        # It takes effect just before it completes; the others overlap with it.
        value = number if is_write else log[-1]
        extra = {"offset": len(log) - 1} if is_write else {}
        if is_write:
            log.append(number)
        seen = None if value == -1 else value
        step = ("write", "x", value, value) if is_write else ("read", "x", None, seen)
        operations.append(
            Operation(index=number, process=client, outcome="ok", function=step[0], invoked=invoked, completed=moment,
                      steps=(step,), extra=extra)
        )  # fmt: skip
        waiting[client] = (moment + 1, random.random() < 0.5)
    return sorted(operations, key=lambda operation: operation.invoked)


def measured(judge) -> dict[str, object]:
    start, cpu = time.perf_counter(), time.process_time()
    answer = judge()
    seconds = {"seconds": round(time.perf_counter() - start, 3), "cpu_seconds": round(time.process_time() - cpu, 3)}
    return {"answer": answer} | seconds


def searched(operations: list[Operation], limit: float) -> str:
    deadline = time.monotonic() + limit
    result = check(operations, REGISTER, Limits(500_000, lambda: time.monotonic() > deadline))
    return f"{result.answer.value}, ordered until {result.ordered_until}"


def porcupine(folder: Path) -> tuple[Path | None, str]:
    """Build Porcupine's side; return the program, or why there is none."""
    if shutil.which("go") is None:
        return None, "no Go on this machine"
    for name in ("main.go", "go.mod"):
        shutil.copy(HERE / "porcupine" / name, folder)
    for command in (["go", "mod", "tidy"], ["go", "build", "-o", "porcupine", "."]):
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
        if done.returncode:
            return None, f"{' '.join(command)}: {done.stderr.strip().splitlines()[-1][:200]}"
    return folder / "porcupine", ""


def by_porcupine(program: Path, operations: list[Operation], limit: float) -> dict[str, object]:
    lines = []
    for operation in operations:
        step = operation.steps[0]
        value = -1 if step[3] is None else step[3]
        lines.append(
            f"{operation.process} {int(step[0] == 'write')} {value} {operation.invoked} {operation.completed}\n"
        )
    told = subprocess.run([program, str(int(limit))], input="".join(lines), capture_output=True, text=True, check=True)
    answer, seconds = told.stdout.split()
    return {"answer": answer, "seconds": round(float(seconds), 3)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sizes", default="1000,10000,100000")
    parser.add_argument("--clients", type=int, default=20)
    parser.add_argument("--limit", type=float, default=15)
    parser.add_argument("--json", action="store_true")
    chosen = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        program, missing = porcupine(Path(folder))
        for size in map(int, chosen.sizes.split(",")):
            operations = history(size, chosen.clients)
            rows = {
                "offsets": measured(lambda own=operations: settled.check(own).answer.value),
                "search": measured(lambda own=operations: searched(own, chosen.limit)),
                "porcupine": by_porcupine(program, operations, chosen.limit) if program else {"answer": missing},
            }
            for judge, row in rows.items():
                row_shown = {"judge": judge, "operations": size, "clients": chosen.clients} | row
                print(
                    json.dumps(row_shown) if chosen.json else "  ".join(f"{n} {v}" for n, v in row_shown.items()),
                    flush=True,
                )


if __name__ == "__main__":
    main()
