"""When each node's processes ran: who was down cannot have answered, and a new process does not lead in an epoch of its previous incarnation.

And when nothing was hurt at all: whom nothing hinders hears of what is committed.
"""

import re
from bisect import bisect_right
from collections.abc import Iterable, Set
from typing import Final

import msgspec

from tribunal.results.rows import Fault, NodeEvent
from tribunal.results.unreadable import UNREADABLE

KILLED: Final = "killed"
DOWN: Final = frozenset({"stop", KILLED, "exit"})
NEVER: Final = 1 << 62
HOLD_OVER: Final = "hold-over"
NUMBERS: Final = re.compile(r"[0-9]+")
CARRIES_ALL: Final = frozenset({
    "bit-rot", "change-min-isr", "clock-drift", "clock-jump", "clock-strobe", "elect-leaders", "raise-metadata-version", "renew-certificate",
})  # fmt: skip
OF_MANY: Final = frozenset({
    "bridge", "change-release", "halves", "majorities-ring", "part-kill", "pause-kill", "reassign", "remove-broker", "rolling-restart", "rolling-upgrade",
    "rotating-swarm", "storm", "swizzle", "wide-swarm",
})  # fmt: skip


# Those that hinder all brokers, whichever one they were aimed at, and leave the quorum of the controllers alone.
OF_ALL_BROKERS: Final = frozenset({"brokers-from-controllers", "change-system"})
# Those that have ended, paused or cut off somebody before they count as injected: they have begun or mended him again by then, hurt one after the other,
# or wait for what he makes of it.
BEGUN_BEFORE: Final = frozenset({
    "change-release", "change-system", "early-leader-and-isr", "failing-directory", "failing-disk", "fast-bounce", "flaky", "full-disk", HOLD_OVER,
    "late-deletion", "late-leave", "late-stop-replica", "missed-bounce", "mount-full", "mount-read-only", "narrow", "part-kill", "pause-kill",
    "read-only-disk", "remove-broker", "restored-disk", "rolling-restart", "rolling-upgrade", "slow", "slow-zookeeper", "swizzle",
})  # fmt: skip


def hinders(fault: Fault, nodes: Set[int]) -> bool:
    """Whether a fault, while it is in effect, may keep messages from any of these nodes: it names one, or hurts several by its nature.

    One without a target may hurt everybody. Clocks, settings and bits at rest keep no message.
    """
    return fault.kind not in CARRIES_ALL and (fault.kind in OF_ALL_BROKERS or concerns(fault, nodes))


def concerns(fault: Fault, nodes: Set[int]) -> bool:
    """Whether a fault may have to do with any of these nodes: it names one, or none, or hurts several by its nature."""
    own = named(fault)
    return fault.kind in OF_MANY or not own or bool(own & nodes)


def named(fault: Fault) -> set[int]:
    """Return the nodes that a fault names: its target, as the recording says it (`broker 2`), and whom it hurts besides."""
    targets = set(map(int, NUMBERS.findall(fault.resolved_target or "")))
    victim = _victim(fault)
    return targets if victim is None else targets | {victim}


class _Facts(msgspec.Struct, frozen=True):
    """What the proof of a message that was held says: over the end of whose life."""

    victim: int | None = None


def _victim(fault: Fault) -> int | None:
    """Return whom a fault hurts besides its target; None where it is nobody, or nobody says so."""
    if fault.kind != HOLD_OVER:
        return None
    try:
        return msgspec.json.decode(fault.proof or "{}", type=_Facts).victim
    except UNREADABLE:
        return None


class Incarnations:
    """The starts and ends of processes, as `nodes` has them."""

    def __init__(self, nodes: Iterable[NodeEvent] = ()) -> None:
        self._times: dict[int, list[int]] = {}
        self._is_end: dict[int, list[bool]] = {}
        former: dict[int, NodeEvent] = {}
        for row in nodes:
            if row.role != "broker" or not self._counts(row, former):
                continue
            self._times.setdefault(row.node, []).append(row.at_ns)
            self._is_end.setdefault(row.node, []).append(row.event in DOWN)

    @staticmethod
    def _counts(row: NodeEvent, former: dict[int, NodeEvent]) -> bool:
        """Whether an event begins or ends an incarnation: of registrations one by another process than before.

        In ZooKeeper mode a process registers anew, with another broker epoch, whenever it has lost its session: it goes on to lead what
        it led, until it is told otherwise. Where the recording does not name the process, another broker epoch is one.
        """
        if row.event == "registered":
            before, former[row.node] = former.get(row.node), row
            if before is None:
                return False
            if row.incarnation is not None and before.incarnation is not None:
                return row.incarnation != before.incarnation
            return row.broker_epoch != before.broker_epoch
        return row.event == "start" or row.event in DOWN

    def ended_ns(self, node: int, at_ns: int) -> int:
        """Return when the incarnation ended that the node had at that moment, or had had last: NEVER where nothing recorded ended it."""
        times, is_end = self._times.get(node, []), self._is_end.get(node, [])
        end = bisect_right(times, at_ns)
        if end == 0 or not is_end[end - 1]:
            end += 1
        while end < len(times) and is_end[end - 1] and is_end[end]:  # it was asked to stop, and later it was gone
            end += 1
        return times[end - 1] if end <= len(times) else NEVER


class Calm:
    """The times in which no fault was in effect, and a node was not fenced; a fault that was not undone never ends."""

    def __init__(self, faults: Iterable[Fault] = (), fenced: Iterable[tuple[int, int, bool]] = ()) -> None:
        """Take the faults, and (when, node, whether it is fenced now) in order."""
        self._faults = [one for one in faults if begun_ns(one) is not None]
        self._hurt = [in_effect(one) for one in self._faults]
        self._hindered: dict[int, list[tuple[int, int]]] = {}
        self._fenced: dict[int, list[tuple[int, int]]] = {}
        self._brokers: set[int] = set()  # that are known to have registered
        since: dict[int, int] = {}
        for at_ns, node, is_fenced in fenced:
            self._brokers.add(node)
            if is_fenced:
                since.setdefault(node, at_ns)
            elif node in since:
                self._fenced.setdefault(node, []).append((since.pop(node), at_ns))
        for node, at_ns in since.items():
            self._fenced.setdefault(node, []).append((at_ns, NEVER))

    def lasted(self, node: int, since_ns: int, until_ns: int, least_ns: int) -> bool:
        """Whether there was such a time of a node between two moments, of that length."""
        return self.lasted_ns(node, since_ns, least_ns) <= until_ns

    def lasted_ns(self, node: int, since_ns: int, least_ns: int) -> int:
        """Return when the first such time of a node, of that length, had lasted that long; NEVER where a fault is in effect to the end."""
        return _lasted_ns([*self._hurt, *self._fenced.get(node, ())], since_ns, least_ns)

    def left_alone(self, node: int, since_ns: int, until_ns: int, least_ns: int) -> bool:
        """Whether there was a time between two moments, of that length, in which no fault hindered this node or who notifies it of its successor.

        Those are the controllers: a fault names one where it names a node that never registered as a broker.
        """
        if node not in self._hindered:
            hindering = [one for one in self._faults if hinders(one, {node, *self._controllers(one)})]
            self._hindered[node] = [in_effect(one) for one in hindering]
        return _lasted_ns(self._hindered[node], since_ns, least_ns) <= until_ns

    def _controllers(self, fault: Fault) -> set[int]:
        return named(fault) - self._brokers if self._brokers else set()


def in_effect(fault: Fault) -> tuple[int, int]:
    """Return since when and until when a fault was in effect."""
    since_ns = begun_ns(fault)
    assert since_ns is not None
    return since_ns, undone_ns(fault, without_proof=False)


def undone_ns(fault: Fault, *, without_proof: bool) -> int:
    """Return when a fault was undone; NEVER: it was not, and is in effect to the end.

    It is undone where the links pass and the processes run, also where full service does not come about: a partition that nobody leads keeps its own ISR
    from being full, and would be excused by what it is accused of.

    without_proof:  of a recording that does not say it (before version 9): whether a heal that was not proven counts as one.
    """
    if fault.healed_ns is None:
        return NEVER
    is_undone = fault.healed is True or (without_proof if fault.undone is None else fault.undone)
    return fault.healed_ns if is_undone else NEVER


def begun_ns(fault: Fault) -> int | None:
    """Return since when a fault was in effect; None: it never was.

    What hurts somebody, and waits until he is back or has noticed it, is injected when that is over: it was in effect since it had been begun,
    also where it was broken off before that was over.
    """
    if fault.kind in BEGUN_BEFORE and fault.planned_ns is not None:
        return fault.planned_ns
    return fault.injected_ns


def _lasted_ns(spans: Iterable[tuple[int, int]], since_ns: int, least_ns: int) -> int:
    """Return when these spans had first left a time of that length free from a moment on; NEVER or later: they leave none."""
    for begin_ns, end_ns in sorted(spans):
        if begin_ns - since_ns >= least_ns:
            break
        since_ns = max(since_ns, end_ns)
    return since_ns + least_ns
