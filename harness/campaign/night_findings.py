"""What a night finds, and who knows of it: kept findings, known issues until their day, and what the last night said.

Each signature that nobody knows of is announced once, when it is first seen: a program is called with it, or it is posted
to an address. What the last night has found already was announced then.
"""

import shlex
import shutil
import subprocess  # the program that the user named
import urllib.request
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from http.client import HTTPException
from typing import Final

import msgspec

from tribunal.harness.campaign.findings import KnownFinding
from tribunal.harness.campaign.night_file import KnownIssue
from tribunal.harness.scenario import BadScenario
from tribunal.results.night import GRAVITY, FoundState, FoundTonight, Night

ADDRESSES: Final = ("http://", "https://")
PROGRAM_S: Final = 60
ADDRESS_S: Final = 20
MOST_SEEDS: Final = 5


class Announcement(msgspec.Struct, frozen=True, kw_only=True):
    """A new signature, as a program reads it on its standard input and an address gets it posted."""

    night: str
    began: str
    shard: str
    commit: str
    signature: str
    state: FoundState
    scenario: str
    seed: int
    claim: str
    again: str
    run_dir: str


class NotAnnounced(Exception):
    """Nobody received it."""


def announce(target: str, news: Announcement) -> None:
    """Say it to a program or to an address; `NotAnnounced` says why nobody received it."""
    content = msgspec.json.encode(news)
    if target.startswith(ADDRESSES):
        _post(target, content)
    else:
        _call(target, content)


def must_be_program(program: str) -> None:
    """Raise `BadScenario` where nobody could be called: a night must not find that out at its first finding."""
    try:
        words = shlex.split(program)
    except ValueError as problem:
        raise BadScenario(f"--notify {program!r}: {problem}") from None
    if not words or shutil.which(words[0]) is None:
        raise BadScenario(f"--notify {program!r}: no such program, or it may not be run")


def _post(address: str, content: bytes) -> None:
    try:
        request = urllib.request.Request(  # noqa: S310  # begins with http
            address, data=content, headers={"Content-Type": "application/json"}, method="POST"
        )
        with urllib.request.urlopen(request, timeout=ADDRESS_S) as answer:  # noqa: S310
            answer.read(1)
    except (OSError, HTTPException, ValueError) as problem:  # ValueError: no such address can be
        raise NotAnnounced(f"{address}: {problem}") from None


def _call(program: str, content: bytes) -> None:
    try:
        words = shlex.split(program)
        if not words:
            raise NotAnnounced("no program is named")
        ended = subprocess.run(  # noqa: S603  # what the user asked for
            words, input=content, timeout=PROGRAM_S, capture_output=True, check=False
        )
    except (OSError, ValueError, subprocess.TimeoutExpired) as problem:
        raise NotAnnounced(f"{program}: {problem}") from None
    if ended.returncode:
        last = ended.stderr.decode("utf-8", "replace").strip().splitlines()[-1:]
        raise NotAnnounced(f"{program}: exit code {ended.returncode} {' '.join(last)}".strip())


class Seen(msgspec.Struct, frozen=True, kw_only=True):
    """One run that showed a signature.

    scenario, mode:  as a known issue names them; where:  the scenario as people read it, if they need to know more.
    """

    scenario: str
    mode: str = ""
    where: str = ""
    seed: int
    claim: str
    again: str
    run_dir: str = ""


def _said_by(former: Night) -> Iterator[str]:
    """Yield what a night announced: what its runs found, and what its past findings showed again or besides."""
    yield from (one.signature for one in former.found if one.state != "known")
    for past in former.past:
        if past.is_bad:
            yield from (*past.others, *([past.signature] if past.outcome == "regressed" else []))


class FindingsOfNight:
    """The signatures of a night in progress.

    kept:      a finding that was mended counts before others of its signature. One whose plan switches a known bug on says
               nothing of the code as it is: the same signature without the bug is news.
    former:    the last night; announced: signatures that an earlier part of this night has announced.
    news:      is called with each signature that is new, once.
    """

    def __init__(
        self,
        *,
        kept: Sequence[KnownFinding],
        issues: Iterable[KnownIssue],
        today: str,
        former: Night | None,
        announced: Iterable[str],
        news: Callable[[str, FoundState, Seen], None],
    ) -> None:
        own = [finding for finding in kept if not finding.plan.spec.mutants]
        in_order = sorted(own, key=lambda finding: finding.state == "fixed")
        self._kept = {str(finding.shows): finding for finding in in_order}
        self._issues = list(issues)
        self._today = today
        self._since = {} if former is None else {one.signature: one.since or former.began for one in former.found}
        self._announced = {*announced, *(() if former is None else _said_by(former))}
        self._news = news
        self._seen: dict[str, list[Seen]] = {}

    def saw(self, signature: str, seen: Seen) -> None:
        """Count a run that showed a signature."""
        self._seen.setdefault(signature, []).append(seen)
        self.announce_once(signature, seen)

    def announce_once(self, signature: str, seen: Seen) -> None:
        """Announce a signature, if nobody knows of it and nobody has said it yet."""
        state = self.state(signature, seen.scenario, seen.mode)
        if state != "known" and signature not in self._announced:
            self._announced.add(signature)
            self._news(signature, state, seen)

    def state(self, signature: str, scenario: str, mode: str) -> FoundState:
        """Return what is known today of a signature that a run of this scenario in this mode showed."""
        kept, issue = self._kept.get(signature), self._issue(signature, scenario, mode)
        if kept is not None and kept.state == "fixed":
            return "regressed"
        if issue is not None:
            return "known" if self._today <= issue.expires else "expired"
        return "new" if kept is None else "known"

    def _issue(self, signature: str, scenario: str, mode: str) -> KnownIssue | None:
        """Return the known issue that a run showed; of several the one that holds longest."""
        covering = [issue for issue in self._issues if issue.covers(signature, scenario, mode)]
        return max(covering, key=lambda issue: issue.expires, default=None)

    def found(self, began: str, run_dirs: Mapping[str, Sequence[str]]) -> list[FoundTonight]:
        """Return all of them, the most frequent first.

        began:     when this night began.
        run_dirs:  signature -> folders of runs that were kept.
        """
        in_order = sorted(self._seen.items(), key=lambda item: -len(item[1]))
        return [self._row(signature, seen, began, run_dirs.get(signature, ())) for signature, seen in in_order]

    def _row(self, signature: str, seen: Sequence[Seen], began: str, run_dirs: Sequence[str]) -> FoundTonight:
        """Return what is said of a signature: what nobody has in hand, where some runs showed that and others a known issue."""
        kept = self._kept.get(signature)
        states = [self.state(signature, one.scenario, one.mode) for one in seen]
        worst = min(states, key=GRAVITY.index)
        telling = [one for one, state in zip(seen, states, strict=True) if state == worst]
        issue = self._issue(signature, telling[0].scenario, telling[0].mode)
        return FoundTonight(
            signature=signature,
            state=worst,
            known_as="" if kept is None else kept.name,
            count=len(seen),
            scenarios=sorted({one.where or one.scenario for one in telling}),
            seeds=[one.seed for one in telling[:MOST_SEEDS]],
            claim=telling[0].claim,
            run_dirs=list(run_dirs),
            again=telling[0].again,
            owner="" if issue is None else issue.owner,
            link="" if issue is None else issue.link,
            expires="" if issue is None else issue.expires,
            since=self._since.get(signature, began),
        )
