"""What a member may hold next, given what it holds, what it shall have and what others hold (KIP-848, "Reconciliation").

A member first gives up what the target takes from it and stays in its epoch until it says that it has. Then it moves to
the target's epoch with all that is free; what others have not given up yet follows when they have.
"""

from collections.abc import Callable

from replog.coordinators.consumer_group import NOTHING, MemberState, Partitions, Place
from replog.types import TopicIdPartition


def reconciled(
    place: Place,
    *,
    target: Partitions,
    target_epoch: int,
    owned: Partitions | None,
    is_free: Callable[[TopicIdPartition], bool],
) -> Place:
    """Return a member's next place, the same one when there is nothing to do.

    owned:    what the member says it has; None when it did not say.
    is_free:  whether nobody else owns a partition.
    """
    match place.state:
        case MemberState.STABLE if place.epoch == target_epoch:
            return place
        case MemberState.UNREVOKED if owned is None or owned & place.revoking:
            return place  # KIP-848: only its own word sets partitions free
        case _:
            return _next(place, target, target_epoch, owned, is_free)


def _next(
    place: Place,
    target: Partitions,
    target_epoch: int,
    owned: Partitions | None,
    is_free: Callable[[TopicIdPartition], bool],
) -> Place:
    kept = place.assigned & target
    revoking = place.assigned - target
    if revoking and (owned is None or owned & revoking):
        return Place(
            epoch=place.epoch,
            previous_epoch=place.previous_epoch,
            state=MemberState.UNREVOKED,
            assigned=kept,
            revoking=revoking,
        )
    free = frozenset(partition for partition in target - kept if is_free(partition))
    return Place(
        epoch=target_epoch,
        previous_epoch=place.epoch if place.epoch != target_epoch else place.previous_epoch,
        state=MemberState.STABLE if kept | free == target else MemberState.UNRELEASED,
        assigned=kept | free,
        revoking=NOTHING,
    )
