"""The five verdicts a run may get, their precedence and their exit codes (docs/verdicts.md, last section)."""

from collections.abc import Iterable, Mapping
from enum import StrEnum
from pathlib import Path
from typing import Final

import msgspec

from tribunal.results import signature
from tribunal.results.signature import Signature
from tribunal.results.unreadable import UNREADABLE
from tribunal.results.violation import Violation
from tribunal.results.whole_files import put_json

EXIT_ERROR: Final = 3
EXIT_USAGE: Final = 64
EXIT_INTERRUPTED: Final = 130
SCHEMA_VERSION: Final = 2
PERMITTED_TABLE: Final = "permitted.parquet"
JUDGED: Final = " judged"  # ends a figure's name where another one, which ends in " observed", says of how many

Figures = dict[str, object]  # whatever JSON can say: a checker of anybody makes them, for readers alone


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
WITHOUT_ANSWER: Final = (Verdict.ERROR, Verdict.INCONCLUSIVE)


def worst(verdicts: Iterable[Verdict]) -> Verdict:
    """Return the verdict that precedes all others; of none at all: PASS is never assumed, so INCONCLUSIVE."""
    return min(verdicts, key=PRECEDENCE.index, default=Verdict.INCONCLUSIVE)


def counted(counts: Mapping[str, int]) -> str:
    """Return how many runs got each verdict, as every table says it: runs without an answer also where there are none."""
    shown = [one for one in PRECEDENCE if counts.get(one.value) or one in WITHOUT_ANSWER]
    return "  ".join(f"{one.value} {counts.get(one.value, 0)}" for one in shown)


def answered(counts: Mapping[str, int]) -> int:
    """Return how many runs said something of the system under test: what is claimed of runs is claimed of these."""
    return sum(count for verdict, count in counts.items() if verdict not in WITHOUT_ANSWER)


def acks_word(acks: int | None) -> str:
    """Return acks as users write it."""
    return {None: "?", -1: "all"}.get(acks, str(acks))


class GuiltyElection(msgspec.Struct, frozen=True, kw_only=True):
    """The election at which a record was lost; `how` is a word of `guarantees.How`.

    topic, partition:  where it was: what follows from a loss may be elsewhere.
    holders:           who was known to hold the record; lost: whose disks provably had not got it.
    rule:              that permits the loss there, where the finding's own rule names what follows from it.
    """

    leader: int
    how: str
    leader_epoch: int
    at_ns: int | None = None
    topic: str | None = None
    partition: int | None = None
    holders: tuple[int, ...] = ()
    lost: tuple[int, ...] = ()
    rule: str | None = None


class ExcusingEvent(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What a rule excuses an anomaly by, where that is no election: an order, or a loss on disk.

    at_ns:    when it was; of an order: since when it may have been carried out.
    holders:  who was known to hold the record then; lost: whose disks provably had not got it.
    """

    event: str
    topic: str | None = None
    partition: int | None = None
    at_ns: int | None = None
    holders: tuple[int, ...] = ()
    lost: tuple[int, ...] = ()


class EdgeKind(StrEnum):
    """Why one transaction has to come before another."""

    WW = "ww"  # it wrote a version that the other one replaced
    WR = "wr"  # it wrote a version that the other one read
    RW = "rw"  # it read a version that the other one replaced
    PROCESS = "process"  # the same process issued it before
    REALTIME = "realtime"  # it had completed before the other one was invoked


class TransactionEdge(msgspec.Struct, frozen=True, kw_only=True):
    """One transaction before another, both by their rows in the table `txns`, or `operations` where they are calls on objects.

    Of an imported history both are places among its events.
    """

    source: int
    target: int
    kind: EdgeKind


class Detail(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What else is known of a finding; what does not apply is None.

    detail:      what the property says of this one in its own words, for people.
    promise:     why it counts as what it is, for people.
    exposed_ns:  when it was first observed to lie below a high watermark, or a consumer received it, before it was lost; from then on it had the guarantee
                 of acks=all. None: it was neither, as far as anybody saw.
    was_at:      the offset that `log_offset` is compared with: where a watermark had been, where a duplicate stood first.
    event:       the simulation's event after which it was seen.
    edges:       of transactions that no order explains: a circle of who has to come before whom, and why.
    operations:  of an imported history: the places of the operations that show it.
    rules_out:   the consistency models that a history with this cannot have.
    """

    detail: str | None = None
    promise: str | None = None
    election: GuiltyElection | None = None
    excuse: ExcusingEvent | None = None
    exposed_ns: int | None = None
    was_at: int | None = None
    event: int | None = None
    edges: tuple[TransactionEdge, ...] | None = None
    operations: tuple[int, ...] | None = None
    rules_out: tuple[str, ...] | None = None


class Finding(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, rename={"property_name": "property"}):
    """One witness of one anomaly: where it is, what was promised, and which rule decides.

    severity:  "violation", "permitted" or "note" (a figure or a fact without a verdict).
    rule:      the rule of docs/verdicts.md that permits it, or the sentence's source that forbids it.
    count:     how many anomalies this witness stands for.
    violation: of an invariant: the facts.
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
    detail: Detail = Detail()
    violation: Violation | None = None

    @property
    def signature(self) -> Signature:
        """Its identity: findings with equal signatures are the same bug."""
        if self.violation is not None:
            return signature.of_violation(self.violation)
        if self.property_name == signature.INVARIANT:  # of a run before there were facts
            return signature.of_words(self.kind, self.explanation)
        return signature.of_finding(self.property_name, self.kind)

    @property
    def place(self) -> str:
        """`topic-p@offset`, as far as known."""
        if self.topic is None:
            return "cluster" if self.node is None else f"node {self.node}"
        offset = "" if self.log_offset is None else f"@{self.log_offset}"
        return f"{self.topic}-{self.partition}{offset}"


class Failure(msgspec.Struct, frozen=True, kw_only=True):
    """Why there is no verdict: a recording that contradicts itself, a checker that failed, a run that ended early.

    words:  for people.
    """

    signature: Signature
    words: str


class InjectedFault(msgspec.Struct, frozen=True, kw_only=True):
    """A fault of the run; what the recording does not say is None."""

    index: int
    kind: str
    resolved_target: str | None = None
    injected_ns: int | None = None
    healed_ns: int | None = None
    proof: str | None = None
    took_effect: bool | None = None
    healed: bool | None = None
    heal_proof: str | None = None


class PhaseLoad(msgspec.Struct, frozen=True, kw_only=True):
    """How many sends of one acks level were completed in a phase, by their outcome."""

    phase: str
    acks: int
    ok: int
    fail: int
    info: int
    sent: int

    @property
    def completed(self) -> int:
        """How much of it was acknowledged, or sent where nothing ever is."""
        return self.sent if self.acks == 0 else self.ok


class Conditions(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What the run was put through: its faults, and the load per phase and acks.

    least_load:  of a phase: how much of each acks level had to be completed in it, in all and in each partition.
    """

    faults: tuple[InjectedFault, ...] = ()
    load: tuple[PhaseLoad, ...] = ()
    least_load: dict[str, int] = {}


class MissingInput(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Something that a run of its kind records, and that this one did not: these properties could not judge there.

    input:  a table's name, or "final read".
    topic, partition:  None: it is missing everywhere.
    node:   of a replica's log: whose it is.
    """

    input: str
    properties: tuple[str, ...]
    topic: str | None = None
    partition: int | None = None
    node: int | None = None


class Coverage(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """How many cells (a property in a partition) there were, how many had all of their inputs, and what the others lacked.

    without_rows:  properties that had not one row to look at: this run says nothing of them.
    """

    cells: int = 0
    judged: int = 0
    missing: tuple[MissingInput, ...] = ()
    without_rows: tuple[str, ...] = ()


class RunVerdict(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The judgement of one run, as verdict.json holds it.

    permitted_rows:  how many rows `permitted.parquet` has, beside verdict.json: each permitted anomaly with its rule and the event that excuses it.
    reasons:   why no (better) verdict can be given: INCONCLUSIVE and ERROR in words, one line each.
    failures:  those that make it an ERROR, as data.
    judged:    how much was judged: records per acks, reads, log records, observations, partitions.
    coverage:  which properties had their inputs in which partitions.
    test:      was it a real test: faults with effect, load per phase and acks.
    figures:   of properties, without a verdict: a number, or the rows of a table.
    schema_version:  of verdict.json; files of version 1 do not name it.
    """

    run_id: str
    verdict: Verdict
    claim: str
    findings: list[Finding] = msgspec.field(default_factory=list)
    permitted_rows: int = 0
    reasons: list[str] = msgspec.field(default_factory=list)
    failures: list[Failure] = msgspec.field(default_factory=list)
    judged: dict[str, int] = msgspec.field(default_factory=dict)
    coverage: Coverage = Coverage()
    test: Conditions = Conditions()
    figures: dict[str, Figures] = msgspec.field(default_factory=dict)
    engine: str = ""
    schema_version: int = 1

    @property
    def counted(self) -> set[str]:
        """What there was some of among what was judged, and the properties that have figures."""
        return {name for known in (self.judged, self.figures) for name, figure in known.items() if figure}

    @property
    def violations(self) -> list[Finding]:
        """Findings that make the run a VIOLATION."""
        return [finding for finding in self.findings if finding.severity == "violation"]

    @property
    def signatures(self) -> list[Signature]:
        """What was found, each once: the violations; of an ERROR without any, the first failure."""
        found = {finding.signature for finding in self.violations}
        if not found and self.verdict is Verdict.ERROR:
            found = {failure.signature for failure in self.failures[:1]}
        return sorted(found)

    @property
    def permitted(self) -> list[Finding]:
        """Losses and regressions that a rule permits."""
        return [finding for finding in self.findings if finding.severity == "permitted"]


def how_much(judged: Mapping[str, int]) -> list[str]:
    """Return what was judged in words; of what was observed and not all judged, how much of how much."""
    return [
        f"{count:,} of {judged[_observed(name)]:,} {name.removesuffix(JUDGED)}" if _observed(name) in judged else f"{count:,} {name}"
        for name, count in judged.items()
        if count and name not in {_observed(other) for other in judged}
    ]  # fmt: skip


def _observed(name: str) -> str:
    return f"{name.removesuffix(JUDGED)} observed" if name.endswith(JUDGED) else ""


def save(verdict: RunVerdict, path: Path) -> None:
    """Write verdict.json completely or not at all."""
    put_json(path, msgspec.structs.replace(verdict, schema_version=SCHEMA_VERSION))


class NoVerdict(msgspec.ValidationError):
    """A verdict.json that is none; names the file."""


def load(path: Path) -> RunVerdict:
    """Read verdict.json; `NoVerdict` when it is not one."""
    try:
        content = path.read_bytes()
        verdict = msgspec.json.decode(content, type=RunVerdict)
        return (
            verdict if verdict.schema_version != 1 else _renewed(verdict, msgspec.json.decode(content, type=_Version1))
        )
    except UNREADABLE as problem:
        raise NoVerdict(f"{path}: not a verdict: {problem}") from None


class _FaultOfVersion1(msgspec.Struct, frozen=True):
    bit: bool | None = None


class _ConditionsOfVersion1(msgspec.Struct, frozen=True):
    faults: tuple[_FaultOfVersion1, ...] = ()


class _Version1(msgspec.Struct, frozen=True):
    """What verdict.json of version 1 calls otherwise."""

    test: _ConditionsOfVersion1 = _ConditionsOfVersion1()


def _renewed(verdict: RunVerdict, former: _Version1) -> RunVerdict:
    faults = tuple(
        msgspec.structs.replace(fault, took_effect=was.bit)
        for fault, was in zip(verdict.test.faults, former.test.faults, strict=True)
    )
    test = msgspec.structs.replace(verdict.test, faults=faults)
    return msgspec.structs.replace(verdict, test=test, schema_version=SCHEMA_VERSION)
