"""A verdict in plain words: the sentences that stand first, on the report as on the terminal.

The first says whether a promise was broken, the second how much is gone of how much, and why it may be. Nothing is judged here.
"""

from collections.abc import Iterable, Mapping, Sequence

from tribunal.results.verdict import Finding, RunVerdict, Verdict, acks_word

LOST = "lost"
READ = "lost_after_read"  # nobody had acknowledged it
LOSSES = (LOST, READ)
ONLY_READ = "that somebody had read and nobody had acknowledged"
ACKNOWLEDGED = "acknowledged, acks="
CALLS = ("calls on ", "transactions on ")  # objects, of a system that is no log
MOST_KINDS = 3


def sentences(verdict: RunVerdict) -> list[str]:
    """Return what happened in plain words, the most important sentence first."""
    match verdict.verdict:
        case Verdict.VIOLATION:
            return _broken(verdict)
        case Verdict.PERMITTED:
            return ["Nothing that was promised was lost.", *_permitted(verdict)]
        case Verdict.PASS:
            return _kept(verdict)
        case Verdict.INCONCLUSIVE:
            return ["This run proves nothing, neither for nor against the system: something that it needed is missing."]
        case Verdict.ERROR:
            return ["There is no verdict: the run, the recording or the judge broke."]


def _broken(verdict: RunVerdict) -> list[str]:
    lost = [one for one in verdict.violations if one.kind == LOST]
    read = sum(one.count for one in verdict.violations if one.kind == READ)
    others = [one for one in verdict.violations if one.kind not in LOSSES]
    found = []
    if lost:
        count = sum(one.count for one in lost)
        are = "record that had to survive is" if count == 1 else "records that had to survive are"
        found.append(f"{count:,} {are} lost: {_by_acks(lost)}.")
    if read:
        are = "is" if read == 1 else "are"
        found.append(f"{read:,} record{'' if read == 1 else 's'} {ONLY_READ} {are} lost, and no rule permits it.")
    for words, count in _by_words(others)[:MOST_KINDS]:
        often = "" if count == 1 else f" ({count:,} times)"
        found.append(f"What must not be is there: {words}{often}.")
    found = found or ["A promise was broken."]
    return [*found, *_permitted(verdict, besides=True)]


def _permitted(verdict: RunVerdict, *, besides: bool = False) -> list[str]:
    """Say how much more is gone, and why it may be."""
    lost = [one for one in verdict.permitted if one.kind == LOST]
    read = [one for one in verdict.permitted if one.kind == READ]
    others = [one for one in verdict.permitted if one.kind not in LOSSES]
    found = []
    more = " more" if besides else ""
    if lost:
        count, of_all = sum(one.count for one in lost), acknowledged(verdict)
        of = f" of {of_all:,} acknowledged" if of_all >= count else ""
        found.append(f"{count:,}{more}{of} records are gone, and each may be: {_by_rule(lost)}.")
    if read:
        count = sum(one.count for one in read)
        found.append(f"{count:,}{more} records {ONLY_READ} are gone, and each may be: {_by_rule(read)}.")
    if others:
        kinds = ", ".join(f"{count:,} x {words}" for words, count in _by_words(others)[:MOST_KINDS])
        found.append(f"Permitted too: {kinds} ({', '.join(sorted({one.rule for one in others}))}).")
    return found


def _kept(verdict: RunVerdict) -> list[str]:
    count, calls = acknowledged(verdict), judged_calls(verdict.judged)
    if calls and not count:
        return ["No promise was broken.", f"{calls_words(calls)} were judged."]
    if not count:
        return ["Nothing was lost and nothing went back."]
    return [
        "Nothing was lost and nothing went back.",
        f"All {count:,} acknowledged records were found again at the end.",
    ]


def acknowledged(verdict: RunVerdict) -> int:
    """Return how many records were acknowledged."""
    return sum(count for name, count in verdict.judged.items() if name.startswith(ACKNOWLEDGED))


def judged_calls(judged: Mapping[str, int]) -> dict[str, int]:
    """Return how many calls on objects are among what was judged, by what they are called: "calls on registers"."""
    return {name: count for name, count in judged.items() if name.startswith(CALLS) and count}


def calls_words(calls: Mapping[str, int]) -> str:
    """Return "995 calls on registers and 705 transactions on lists"."""
    return " and ".join(f"{count:,} {name}" for name, count in sorted(calls.items()))


def _by_acks(findings: Iterable[Finding]) -> str:
    counts: dict[int | None, int] = {}
    for one in findings:
        counts[one.acks] = counts.get(one.acks, 0) + one.count
    if list(counts) == [None]:
        return "no rule permits it"
    if len(counts) == 1:
        return f"acknowledged with acks={acks_word(next(iter(counts)))}, and no rule permits it"
    said = [f"{count:,} acknowledged with acks={acks_word(acks)}" for acks, count in counts.items() if acks is not None]
    return ", ".join(said)


def _by_rule(findings: Iterable[Finding]) -> str:
    counts: dict[str, dict[int | None, int]] = {}
    why: dict[str, str] = {}
    for one in findings:
        own = counts.setdefault(one.rule, {})
        own[one.acks] = own.get(one.acks, 0) + one.count
        why.setdefault(one.rule, one.detail.promise or "")
    said = []
    for rule, by_acks in counts.items():
        levels = [
            f"{count:,}" + ("" if acks is None else f" with acks={acks_word(acks)}") for acks, count in by_acks.items()
        ]
        listed = " and ".join(part for part in (", ".join(levels[:-1]), levels[-1]) if part)
        said.append(f"{listed} by {rule}{f' ({why[rule]})' if why[rule] else ''}")
    return "; ".join(said)


def _by_words(findings: Sequence[Finding]) -> list[tuple[str, int]]:
    counts: dict[str, int] = {}
    for one in findings:
        words = one.explanation.partition("\n")[0].rstrip(".") or one.kind.replace("_", " ")
        counts[words] = counts.get(words, 0) + one.count
    return sorted(counts.items(), key=lambda item: -item[1])
