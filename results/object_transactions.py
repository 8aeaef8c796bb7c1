"""Transactions on objects, as a client takes and gives them and as a recording keeps them.

A transaction is a JSON array of its steps, each an array of three: `["append", "l0", 5]`, `["w", "x0", 5]`, `["r", "l0", null]`. Its answer
is the same array with what the reads saw: a list's elements, a register's value, null where nobody wrote.
"""

from enum import StrEnum
from typing import Final

import msgspec


class StepKind(StrEnum):
    """What a step of a transaction does."""

    READ = "r"  # a list, or a register
    APPEND = "append"  # an element to a list's end
    WRITE = "w"  # of a register


class Step(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """One step.

    value:  what is appended or written; of a read what it saw, None before it was made and where nobody wrote.
    """

    kind: StepKind
    key: str
    value: int | tuple[int, ...] | None


Steps = tuple[Step, ...]
LISTS: Final = "txn-lists"
REGISTERS: Final = "txn-registers"
_SEEN: Final = {LISTS: tuple, REGISTERS: int}
_CHANGES: Final = {LISTS: StepKind.APPEND, REGISTERS: StepKind.WRITE}


class NoAnswer(ValueError):
    """What is said to be a transaction's answer, and is none; one line that says why."""


def read_steps(encoded: bytes | str) -> Steps:
    """Read a transaction. Raises msgspec.DecodeError (which is a ValueError)."""
    return msgspec.json.decode(encoded, type=Steps)


def must_answer(function: str, asked: Steps, said: Steps) -> None:
    """Refuse an answer whose steps are others than the transaction's, or whose reads saw what such objects cannot hold. Raises NoAnswer."""
    if len(said) != len(asked):
        raise NoAnswer(f"{len(said)} steps answer {len(asked)}")
    for number, (step, answer) in enumerate(zip(asked, said, strict=True), start=1):
        is_read = step.kind is StepKind.READ
        if (answer.kind, answer.key) != (step.kind, step.key) or not (is_read or answer.value == step.value):
            raise NoAnswer(f"step {number} is {_words(step)}, answered as {_words(answer)}")
        if step.kind not in (StepKind.READ, _CHANGES[function]):
            raise NoAnswer(f"step {number}: {function} has no {step.kind}")
        if is_read and not isinstance(answer.value, _SEEN[function] | None):
            raise NoAnswer(f"step {number}: {function} cannot read {_words(answer)}")


def _words(step: Step) -> str:
    return msgspec.json.encode(step).decode()
