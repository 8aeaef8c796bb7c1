"""The identity of a finding: property, kind and invariant; never the words, so that these may be worded better.

Equal findings of different seeds are one. The text form is what files and the command line have: `lost_writes/lost` of a checker,
`invariant/differs/I4` of a simulation that stopped at one, `run/ClusterError` of a run that ended early, `harness/TypeError/<module>.<function>` of a bug of ours.
`read` also understands what was written before there were kinds, when a signature was a sentence without its digits.
"""

import re
from collections.abc import Iterable
from typing import TYPE_CHECKING, Final

import msgspec

if TYPE_CHECKING:  # `tribunal bisect` loads this module alone, beside the code of commits that have no such package
    from tribunal.results.violation import Violation

INVARIANT: Final = "invariant"
RUN: Final = "run"
HARNESS: Final = "harness"
RECORDING: Final = "recording"
FAILED: Final = "failed"
PROCESS_DIED: Final = "process_died"
GRAVE: Final = ("lost", "I4", "I5")  # what is sought first where several things show
OURS: Final = ("tribunal.", "replog.")
DIGITS: Final = re.compile(r"\d+")


class Signature(msgspec.Struct, frozen=True, order=True, omit_defaults=True, rename={"property_name": "property"}):
    """One finding's identity.

    property_name:  the property that found it; `invariant`; or whose failure it is: `run`, `harness`, `recording`.
    invariant:      I4, Z1, ...; of a bug of the harness the function that it came from; empty for everything else.
    """

    property_name: str
    kind: str
    invariant: str = ""

    def __str__(self) -> str:
        return "/".join(part for part in (self.property_name, self.kind, self.invariant) if part)

    @property
    def is_failure(self) -> bool:
        """Whether it says nothing of the system under test: the run, the recording or the harness broke."""
        return self.property_name in (RUN, HARNESS, RECORDING) or self.kind == FAILED


def of_violation(violation: "Violation") -> Signature:
    """Return the signature of an invariant that did not hold."""
    return Signature(INVARIANT, violation.kind, violation.invariant.value)


def of_finding(property_name: str, kind: str) -> Signature:
    """Return the signature of what a property found, also of one that had another name then."""
    return Signature(RENAMED.get(property_name, property_name), kind)


def of_exception(problem: BaseException) -> Signature:
    """Return the signature of a bug of the harness: what was raised, and the last function of ours that it came through."""
    place, at = "", problem.__traceback__
    while at is not None:
        module = at.tb_frame.f_globals.get("__name__", "")
        if module.startswith(OURS):
            place = f"{module}.{at.tb_frame.f_code.co_qualname}"
        at = at.tb_next
    return Signature(HARNESS, type(problem).__name__, place)


def gravity(signature: Signature) -> tuple[bool, Signature]:
    """Sort key of signatures: a loss before everything else."""
    return not any(word in str(signature) for word in GRAVE), signature


def texts(signatures: Iterable[Signature]) -> list[str]:
    """Return signatures as files and people have them."""
    return [str(signature) for signature in signatures]


def read(text: str) -> Signature:
    """Return the signature of a text form, of now or of before there were kinds; ValueError for what was never one."""
    if ": " in text:
        return _of_sentence(text)
    name, *rest = text.split("/")
    if not 1 <= len(rest) <= 2 or not all((name, *rest)):
        raise ValueError(f"signature {text!r}: property/kind, or invariant/kind/I4")
    return msgspec.structs.replace(of_finding(name, rest[0]), invariant=rest[1] if rest[1:] else "")


def renewed(text: str) -> str:
    """Return a text form as it is now; what cannot be read stays: pages show what others wrote."""
    try:
        return str(read(text))
    except ValueError:
        return text


def of_words(invariant: str, words: str) -> Signature:
    """Return the signature of an invariant of which only words are left."""
    try:
        return read(f"{invariant}: {words}")
    except ValueError:
        return Signature(INVARIANT, "unknown", invariant)


# Properties that have had another name.
RENAMED: Final = {"unseen": "skipped_records"}
# The sentences of before: invariant, a part of its words (the first that fits counts), and the kind that it is now.
SENTENCES: Final = (
    ("I1", "is led by", "two_leaders"),
    ("I1", "committed metadata", "differs"),
    ("I2", "broker epoch", "broker_epoch_went_back"),
    ("I2", "leader_epoch went", "leader_epoch_went_back"),
    ("I2", "partition_epoch went", "partition_epoch_went_back"),
    ("I3", "", "metadata_high_watermark_went_back"),
    ("I4", "exposes", "exposed_beyond_log"),
    ("I4", "ends at", "log_of_leader_ends_early"),
    ("I4", "committed", "differs"),
    ("I7", "an ELR beside", "elr_beside_full_isr"),
    ("I7", "", "bad_state"),
    ("I8", "", "log_of_elr_ends_early"),
    ("I9", "", "log_of_isr_ends_early"),
    ("I10", "is led by", "two_leaders"),
    ("I10", "", "bad_state"),
    ("I11", "", "fenced_joined"),
    ("I12", "has taken", "taken_while_recovering"),
    ("I12", "", "bad_state"),
    ("I13", "", "moved_below_min_isr"),
    ("I14", "", "two_batches"),
    ("I17", "", "out_of_sequence"),
    ("I18", "", "last_stable_offset_went_back"),
    ("I20", "", "clean_shutdown_file"),
    ("Z1", "", "stale_request_carried_out"),
    ("Z2", "", "stopped_unasked"),
    ("Z3", "", "hosted_log_gone"),
    ("Z4", "", "never_told"),
    ("liveness", "quorum alone", "no_core_progress"),
    ("liveness", "every ISR full", "no_full_isr"),
)
ENDED_EARLY: Final = "the run ended early: "


def _of_sentence(text: str) -> Signature:
    """Bring a signature of before to what it is now."""
    head, _, words = text.partition(": ")
    if head == "the harness":
        return Signature(HARNESS, PROCESS_DIED if words == "process died" else _first_name(words))
    if head == "ERROR":
        return _of_error(words)
    for invariant, part, kind in SENTENCES:
        if head == invariant and part in words:
            return Signature(INVARIANT, kind, invariant)
    raise ValueError(f"signature {text!r}: no invariant was ever worded like this")


def _of_error(words: str) -> Signature:
    if words.startswith(ENDED_EARLY):
        reason = words.removeprefix(ENDED_EARLY)
        # What went wrong in the cluster was said in its own words, a bug with the name of its exception.
        named = re.match(r"(\w+): ", reason)
        if named is not None and named[1].endswith(("Error", "Exception")):
            return Signature(RUN, named[1])
        return Signature(RUN, "Unsettled" if "not within" in reason else "ClusterError")
    failed = re.match(r"checker (\S+) failed: ", words)
    return Signature(RECORDING, "damaged") if failed is None else of_finding(failed[1], FAILED)


def _first_name(words: str) -> str:
    found = re.match(r"\w+", words)
    return "" if found is None else found[0]


def without_numbers(text: str) -> str:
    """Return a text's first line without its numbers: for people, to count alike reasons together; no identity."""
    return DIGITS.sub("#", text.partition("\n")[0])[:160]
