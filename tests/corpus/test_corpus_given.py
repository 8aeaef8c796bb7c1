"""A folder given by TRIBUNAL_CORPUS is judged like this one: right verdicts pass, a wrong one fails by its name."""

import json
import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
HISTORY = [
    {"index": 0, "process": 0, "type": "invoke", "f": "txn", "time": 0, "mops": [["append", 1, 1], ["r", 2, None]]},
    {"index": 1, "process": 1, "type": "invoke", "f": "txn", "time": 1, "mops": [["append", 2, 1], ["r", 1, None]]},
    {"index": 2, "process": 0, "type": "ok", "f": "txn", "time": 2, "mops": [["append", 1, 1], ["r", 2, [1]]]},
    {"index": 3, "process": 1, "type": "ok", "f": "txn", "time": 3, "mops": [["append", 2, 1], ["r", 1, [1]]]},
]


def case(name: str, *anomalies: str, weakest: tuple[str, ...] = (), stronger: tuple[str, ...] = ()) -> str:
    verdict = {
        "valid": not anomalies,
        "anomaly_types": list(anomalies),
        "not": list(weakest),
        "also_not": list(stronger),
    }
    given = {"id": name, "model": "list-append", "history": HISTORY, "verdict": {"read-committed": verdict}}
    return json.dumps(given | {"options": {}})


def test_corpus_folder_that_is_given_is_judged_too(tmp_path: Path) -> None:
    from tribunal.checkers.graphs.models import ruled_out

    weakest, stronger = ruled_out({"G1c"})
    cases = [case("given-right", "G1c", weakest=tuple(weakest), stronger=tuple(stronger)), case("given-wrong")]
    (tmp_path / "elle-small").mkdir()
    (tmp_path / "elle-small" / "cases.jsonl").write_text("\n".join(cases) + "\n")

    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-k", "given-"]
    completed = subprocess.run(
        [*command, "tests/corpus/test_corpus_graphs.py"],
        cwd=ROOT,
        env=os.environ | {"TRIBUNAL_CORPUS": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
    )

    assert "1 failed, 1 passed" in completed.stdout, completed.stdout[-3000:]
    assert "test_corpus_transactions_agree_with_elle[given-wrong]" in completed.stdout
