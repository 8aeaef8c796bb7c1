"""Reads the histories with known verdicts: those of this folder, those of others, and a folder given by TRIBUNAL_CORPUS.

Made by others, and therefore not in the repository: the families elle-cli and porcupine. They are read from
`../shared/corpus`, beside the repository, where that exists.
"""

import gzip
import os
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import packed
import pytest

HERE = Path(__file__).resolve().parent
BESIDE = HERE.parents[2] / "shared" / "corpus"
Case = dict[str, Any]


def given() -> list[Path]:
    """The folder of one's own, if there is one. It may hold every family."""
    folder = os.environ.get("TRIBUNAL_CORPUS")
    return [Path(folder)] if folder else []


def lines(path: Path) -> Iterator[Case]:
    """Yield the JSON objects of a file, compressed or not; nothing when it is missing."""
    for name in (path, path.with_name(path.name + ".gz")):
        if name.is_file():
            with gzip.open(name, "rt") if name.suffix == ".gz" else name.open() as text:
                yield from (msgspec.json.decode(line) for line in text if line.strip())


def parameters(cases: Iterable[Case], family: str) -> list[Any]:
    """One test parameter a case. Without a case there is one that is skipped and says which family is missing."""
    found = [pytest.param(case, id=case["id"]) for case in cases]
    reason = f"no histories of {family} in {BESIDE} (made by others, not in the repository) or TRIBUNAL_CORPUS"
    return found or [pytest.param(None, id=family, marks=pytest.mark.skip(reason=reason))]


def elle_cases() -> Iterator[Case]:
    for folder in (HERE, *given()):
        for family in ("elle-small", "elle-sim"):
            yield from lines(folder / family / "cases.jsonl")


def elle_cli_cases() -> Iterator[Case]:
    for folder in (BESIDE, *given()):
        yield from lines(folder / "elle-cli" / "cases.jsonl")


def kafka_cases() -> Iterator[Case]:
    """Cases of both Kafka families; `load` reads the history of the large ones when it is needed."""
    for folder in (HERE, *given()):
        for case in lines(folder / "kafka-small" / "cases.jsonl"):
            yield case | {"load": lambda case=case: case["history"]}
    yield from packed_cases()
    for folder in given():
        large = folder / "kafka-large"
        for case in lines(large / "index.jsonl"):
            history = large / f"{case['id']}.history.jsonl"
            verdict = msgspec.json.decode((large / f"{case['id']}.verdict.json").read_bytes())
            yield case | {"load": lambda path=history: list(lines(path)), "verdict": verdict.get("verdict", verdict)}


def packed_cases() -> Iterator[Case]:
    """The large Kafka histories of this folder."""
    large = HERE / "kafka-large"
    for position, case in enumerate(lines(large / "cases.jsonl")):
        yield case | {"load": lambda position=position: packed.unpacked(large, position)}


def register_cases() -> Iterator[Case]:
    for folder in (BESIDE, *given()):
        family = folder / "porcupine"
        for case in lines(family / "index.jsonl"):
            history = family / f"{case['id']}.history.jsonl"
            yield case | {"load": lambda path=history: list(lines(path)), "valid": case["verdict"] == "Ok"}
    for case in elle_cli_cases():
        if case["model"] in {"cas-register", "mutex"}:
            yield case | {"load": lambda case=case: case["history"], "valid": case["verdict"]["valid"]}
