"""The high watermark: the first offset that is not known to be committed (SPEC 3.5, KIP-966).

Arithmetic only. Three sets of replicas matter and are kept apart on purpose:

- the **committed ISR**, what the controller last confirmed: only its size is compared with the minimum, because a
  replica that is merely proposed may never have been accepted, and may then not stand in the ELR of the others;
- the **maximal ISR**, the committed ISR plus a proposed newcomer: all of it must hold a record, because the
  controller may already count the newcomer as electable while its answer is still under way;
- the **waiters**, replicas outside of the ISR that are caught up and may join it: waiting for them a little lets
  them join; without it a busy leader would run away from them for ever.
"""

from collections.abc import Collection, Mapping

from replog.types import NodeId


def effective_min_isr(min_insync_replicas: int, replication_factor: int) -> int:
    """Return the minimum that counts: a topic of two replicas cannot have three in sync (KIP-966, M87)."""
    return min(min_insync_replicas, replication_factor)


def high_watermark(
    *,
    current: int,
    leader_log_end_offset: int,
    follower_log_end_offsets: Mapping[NodeId, int],
    isr: Collection[NodeId],
    maximal_isr: Collection[NodeId],
    waiters: Collection[NodeId],
    min_isr: int,
) -> int:
    """Return the leader's high watermark; never less than `current`.

    follower_log_end_offsets:  of every other replica; -1 while it has not fetched from this leader.
    min_isr:                   effective, see above.
    source:                    SPEC 3.5.2 and 3.5.3.
    """
    if len(isr) < min_isr:
        # KIP-966, "Strict min ISR": what fewer than min ISR replicas hold is not committed, whoever asked for it.
        return current
    candidate = leader_log_end_offset
    for replica, log_end_offset in follower_log_end_offsets.items():
        if log_end_offset < candidate and (replica in maximal_isr or replica in waiters):
            candidate = log_end_offset
    return max(current, candidate)
