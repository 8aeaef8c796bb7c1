"""M84: offsets are committed whatever generation they come from.

Evidence: after a rebalance the earlier owner of a partition commits, too; the committed offset goes back.
"""

from replog.coordinators.classic_group import ClassicGroup
from replog.coordinators.events import Now
from replog.errors import Error

SCENARIO = "consumer-group"


def install() -> None:
    """Take every commit."""

    def commit_error(
        self: ClassicGroup,
        member_id: str,
        instance_id: str | None,
        generation: int,
        now: Now,
        *,
        is_transactional: bool,
    ) -> Error:
        return Error.NONE

    ClassicGroup.commit_error = commit_error  # type: ignore[method-assign]
