"""How a partition's committed history ends: from which leader epoch on nothing may have gone, and whose disks are still hurt.

What was shown of the log since the last election that may have taken records has to be in the logs of every member of the final
ISR and ELR, and in the final log. Members whose own disk provably lost records of this partition, and that were not whole again
since, are the only ones that may lack them. A member is whole again when it joins the ISR of another, or when it is elected itself: then its
log is the log, as it is. Only what was cut under its running process is found no earlier than at its next start.
"""

from collections.abc import Sequence
from typing import Final

import msgspec

from tribunal.checkers.guarantees import CutLive, Elected, How, JoinedIsr, ProvenLoss, ShutDownUncleanly
from tribunal.checkers.judge.timeline import OBSERVATION_LAG_NS, Entry
from tribunal.results.metadata import NO_LEADER, State

NO_END: Final = 1 << 62


class Ending(msgspec.Struct, frozen=True, kw_only=True):
    """The end of a partition's history; without metadata nothing of it is known.

    state:        the last committed one.
    since_epoch:  the leader epoch that began with the last election of a replica that may have lacked records; -1: there was none.
    since_ns:     when that was observed.
    anew_ns:      after that a topic that was deleted and made anew is the one that is shown; -1: it was not. All else is of that one.
    hurt:         (node, from offset, end offset) of what disks provably lost of nodes that were not whole again; what stood behind that end
                  was never there, so no fault took it. NO_END: what was cut under a running process takes what it went on to write.
    damaged:      (node, from offset, end offset) of batches that were damaged where no checksum sees it: they may stay so for ever.
    """

    state: State | None = None
    since_epoch: int = -1
    since_ns: int = -1
    anew_ns: int = -1
    hurt: tuple[tuple[int, int, int], ...] = ()
    damaged: tuple[tuple[int, int, int], ...] = ()

    @property
    def members(self) -> tuple[int, ...]:
        """Members of the final ISR and ELR: each holds everything below the high watermark (I8, I9)."""
        return () if self.state is None else self.state.members

    @property
    def leader(self) -> int:
        """The last leader, NO_LEADER for none."""
        return NO_LEADER if self.state is None else self.state.leader


def ending(entries: Sequence[Entry]) -> Ending:
    """Walk a partition's history to its end."""
    hurt: dict[int, dict[tuple[int, int], None]] = {}
    cut_live: dict[int, None] = {}
    damaged: dict[tuple[int, int, int], None] = {}
    since_epoch = since_ns = anew_ns = -1
    made_anew = 0
    for entry in entries:
        if entry.made_anew != made_anew:
            made_anew, since_epoch, since_ns, anew_ns = (
                entry.made_anew,
                -1,
                entry.at_ns,
                entry.at_ns + OBSERVATION_LAG_NS,
            )
            hurt.clear()
            cut_live.clear()
            damaged.clear()
        for fact in entry.facts:
            match fact:
                case ProvenLoss(node=node) | CutLive(node=node):
                    hurt.setdefault(node, {})[entry.from_offset, _end(fact, entry)] = None
                    if entry.unseen_end_offset is not None:
                        damaged[node, entry.from_offset, entry.unseen_end_offset] = None
                    if isinstance(fact, CutLive):
                        cut_live[node] = None
                case ShutDownUncleanly(node=node):
                    cut_live.pop(node, None)
                case JoinedIsr(node=node):
                    hurt.pop(node, None)
                    cut_live.pop(node, None)
                case Elected(leader=node, how=how):
                    if how is not How.CLEAN or node in hurt:
                        since_epoch, since_ns = entry.state.leader_epoch, entry.at_ns
                    if node not in cut_live:  # the leader's log is the log, and what it writes from here on is whole
                        hurt.pop(node, None)
                case _:
                    pass  # takes nothing off a disk
    state = entries[-1].state if entries else None
    return Ending(
        state=state,
        since_epoch=since_epoch,
        since_ns=since_ns,
        anew_ns=anew_ns,
        hurt=tuple(sorted((node, *span) for node, spans in hurt.items() for span in spans)),
        damaged=tuple(sorted(damaged)),
    )


def _end(fact: ProvenLoss | CutLive, entry: Entry) -> int:
    """Return where a loss ends: of a node that was down, where its log had ended; of a running process nobody knows how far it wrote on."""
    return NO_END if isinstance(fact, CutLive) or entry.end_offset is None else entry.end_offset
