"""The five verdicts a run may get, their precedence and their exit codes (docs/verdicts.md, last section)."""

from collections.abc import Iterable
from enum import StrEnum
from pathlib import Path
from typing import Any, Final

import msgspec

EXIT_ERROR: Final = 3
EXIT_USAGE: Final = 64
EXIT_INTERRUPTED: Final = 130


class Verdict(StrEnum):
    """What a run may say, worst first."""

    VIOLATION = "VIOLATION"
    ERROR = "ERROR"
    INCONCLUSIVE = "INCONCLUSIVE"
    PERMITTED = "PERMITTED"
    PASS = "PASS"  # noqa: S105 - a verdict, not a password

    def exit_code(self, *, strict: bool) -> int:
        """Return the process's exit code; `strict` makes a permitted loss fail."""
        return {"VIOLATION": 1, "ERROR": 3, "INCONCLUSIVE": 2, "PERMITTED": int(strict), "PASS": 0}[self.value]


PRECEDENCE: Final = tuple(Verdict)


def worst(verdicts: Iterable[Verdict]) -> Verdict:
    """Return the verdict that precedes all others; of none at all: PASS is never assumed, so INCONCLUSIVE."""
    return min(verdicts, key=PRECEDENCE.index, default=Verdict.INCONCLUSIVE)


class Finding(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, rename={"property_name": "property"}):
    """One witness of one anomaly: where it is, what was promised, and which rule decides.

    severity:  "violation", "permitted" or "note" (a figure or a fact without a verdict).
    rule:      the rule of docs/verdicts.md that permits it, or the sentence's source that forbids it.
    count:     how many anomalies this witness stands for.
    """

    property_name: str
    kind: str
    severity: str
    explanation: str
    topic: str | None = None
    partition: int | None = None
    log_offset: int | None = None
    value: int | None = None
    acks: int | None = None
    acknowledged_ns: int | None = None
    node: int | None = None
    leader_epoch: int | None = None
    rule: str = ""
    count: int = 1
    detail: dict[str, Any] = msgspec.field(default_factory=dict)

    @property
    def place(self) -> str:
        """`topic-p@offset`, as far as known."""
        if self.topic is None:
            return "cluster" if self.node is None else f"node {self.node}"
        offset = "" if self.log_offset is None else f"@{self.log_offset}"
        return f"{self.topic}-{self.partition}{offset}"


class RunVerdict(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The judgement of one run, as verdict.json holds it.

    reasons:   why no (better) verdict can be given: INCONCLUSIVE and ERROR in words, one line each.
    judged:    how much was judged: records per acks, reads, log records, observations, partitions.
    test:      was it a real test: faults with effect, load per phase and acks.
    """

    run_id: str
    verdict: Verdict
    claim: str
    findings: list[Finding] = msgspec.field(default_factory=list)
    reasons: list[str] = msgspec.field(default_factory=list)
    judged: dict[str, int] = msgspec.field(default_factory=dict)
    test: dict[str, Any] = msgspec.field(default_factory=dict)
    figures: dict[str, Any] = msgspec.field(default_factory=dict)
    engine: str = ""
    schema_version: int = 1

    @property
    def violations(self) -> list[Finding]:
        """Findings that make the run a VIOLATION."""
        return [finding for finding in self.findings if finding.severity == "violation"]

    @property
    def permitted(self) -> list[Finding]:
        """Losses and regressions that a rule permits."""
        return [finding for finding in self.findings if finding.severity == "permitted"]


def save(verdict: RunVerdict, path: Path) -> None:
    """Write verdict.json, whole or not at all."""
    temporary = path.with_suffix(".tmp")
    temporary.write_bytes(msgspec.json.format(msgspec.json.encode(verdict), indent=2) + b"\n")
    temporary.replace(path)


class NoVerdict(msgspec.ValidationError):
    """A verdict.json that is none; names the file."""


def load(path: Path) -> RunVerdict:
    """Read verdict.json; `NoVerdict` when it is not one."""
    try:
        return msgspec.json.decode(path.read_bytes(), type=RunVerdict)
    except (msgspec.DecodeError, UnicodeDecodeError) as problem:
        raise NoVerdict(f"{path}: not a verdict: {problem}") from None
