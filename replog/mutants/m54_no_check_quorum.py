"""M54: a leader of the quorum that reaches no majority goes on leading.

Evidence: two active controllers for longer than 1.5 fetch time-outs. Nothing that it decides is committed: this is a figure of
stability. KAFKA-4447, KAFKA-15489.
"""

from replog.quorum.election import Election
from replog.quorum.roles import Leader

SCENARIO = "disruptive-voter"
FIGURE = "isolated_leader_ms"
FIGURE_GROWTH = 500


def install() -> None:
    """Never look at when a majority last fetched."""
    strict = Election._step_leader

    def _step_leader(self: Election, role: Leader, now_ms: int) -> None:
        role.check_quorum_deadline_ms = max(role.check_quorum_deadline_ms, now_ms + 1)
        strict(self, role, now_ms)

    Election._step_leader = _step_leader  # type: ignore[method-assign]
