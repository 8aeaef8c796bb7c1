"""Reads the corpus of histories with known verdicts: `../shared/corpus`, and a folder given by TRIBUNAL_CORPUS."""

import gzip
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec

SHARED = Path(__file__).resolve().parents[3] / "shared" / "corpus"


def folders() -> list[Path]:
    """The corpora that this machine has."""
    given = os.environ.get("TRIBUNAL_CORPUS")
    return [folder for folder in (SHARED, Path(given) if given else None) if folder is not None and folder.is_dir()]


def lines(path: Path) -> Iterator[dict[str, Any]]:
    """Yield the JSON objects of a file, compressed or not; nothing when it is missing."""
    for name in (path, path.with_name(path.name + ".gz")):
        if name.is_file():
            with gzip.open(name, "rt") if name.suffix == ".gz" else name.open() as text:
                yield from (msgspec.json.decode(line) for line in text if line.strip())


def elle_cases() -> Iterator[dict[str, Any]]:
    for folder in folders():
        for family in ("elle-small", "elle-sim", "elle-cli"):
            yield from lines(folder / family / "cases.jsonl")


def kafka_cases() -> Iterator[dict[str, Any]]:
    """Cases of both Kafka families; `load` reads the history of the large ones when it is needed."""
    for folder in folders():
        for case in lines(folder / "kafka-small" / "cases.jsonl"):
            yield case | {"load": lambda case=case: case["history"]}
        large = folder / "kafka-large"
        for case in lines(large / "index.jsonl"):
            history = large / f"{case['id']}.history.jsonl"
            verdict = json.loads((large / f"{case['id']}.verdict.json").read_text())
            yield case | {"load": lambda path=history: list(lines(path)), "verdict": verdict.get("verdict", verdict)}


def register_cases() -> Iterator[dict[str, Any]]:
    for folder in folders():
        family = folder / "porcupine"
        for case in lines(family / "index.jsonl"):
            history = family / f"{case['id']}.history.jsonl"
            yield case | {"load": lambda path=history: list(lines(path)), "valid": case["verdict"] == "Ok"}
        for case in lines(folder / "elle-cli" / "cases.jsonl"):
            if case["model"] in {"cas-register", "mutex"}:
                yield case | {"load": lambda case=case: case["history"], "valid": case["verdict"]["valid"]}
