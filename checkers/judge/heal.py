"""Whether a heal that did not come about is the system's own failure: a pure function of what the run saw.

The rule is in docs/verdicts.md, "A heal that does not come about". Whatever moves, does not answer or is not known leaves it open.
"""

from collections.abc import Callable

from tribunal.results.heal import Look, PartitionSeen, Unhealed
from tribunal.results.violation import Expected, Invariant, NoProgress, Violation

PassedOver = Callable[[str, int, int], bool]


def stands_still(seen: Unhealed | None, passed_over: PassedOver = lambda name, node, at_ns: False) -> Violation | None:
    """Return the violation that the two looks prove; None: they prove none.

    passed_over:  says of a partition's name, a replica and a time whether nobody elects it there because its disk was replaced (without ELR).
    """
    if seen is None or seen.not_undone or seen.on_disks or seen.first is None or seen.second is None:
        return None
    first, second = seen.first, seen.second
    if (
        not (_is_whole(first, seen) and _is_whole(second, seen))
        or second.at_ns - first.at_ns < seen.timeout_ms * 1_000_000
    ):
        return None
    before = {one.name: one for one in first.lacking}
    if {one.name for one in second.lacking} != set(before):
        return None
    if not all(_is_unmoved(before[one.name], one) for one in second.lacking):
        return None
    stuck = [one for one in second.lacking if not _needs_an_operator(one, passed_over, second.at_ns)]
    if not stuck:
        return None
    return Violation(
        invariant=Invariant.LIVENESS,
        facts=NoProgress(
            expected=Expected.FULL_ISR,
            timeout_ms=seen.timeout_ms,
            states={one.name: one.state for one in stuck},
            first_ns=first.at_ns,
            second_ns=second.at_ns,
            log_ends={one.name: (before[one.name].log_ends, one.log_ends) for one in stuck},
        ),
    )


def _is_whole(look: Look, seen: Unhealed) -> bool:
    return set(look.answering) >= set(seen.nodes) and set(look.unfenced) >= set(seen.brokers)


def _is_unmoved(before: PartitionSeen, now: PartitionSeen) -> bool:
    """Return whether the committed state is the same, and so are the log ends of those who ought to catch up.

    Members of the ISR go on taking what clients send: their log ends say nothing.
    """
    awaited = _awaited(now)
    known = all(node in before.log_ends and node in now.log_ends for node in awaited)
    return before.state == now.state and known and all(before.log_ends[one] == now.log_ends[one] for one in awaited)


def _awaited(seen: PartitionSeen) -> list[int]:
    state = seen.state
    return [node for node in state.replicas if state.leader < 0 or node not in state.isr]


def _needs_an_operator(seen: PartitionSeen, passed_over: PassedOver, at_ns: int) -> bool:
    """Return whether nobody may be elected cleanly: whom to trust is then for an operator to say (KIP-966, strategy None).

    So it is without ELR where each member of the ISR holds nothing, because its own disk lost it, or was replaced with nothing on it.
    """
    state = seen.state
    empty = [node for node in state.isr if not seen.log_ends.get(node, 1)]
    emptied = [node for node in empty if node in seen.emptied or passed_over(seen.name, node, at_ns)]
    return state.leader < 0 and len(emptied) == len(state.isr) and not state.elr
