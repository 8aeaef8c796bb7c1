"""M75: the retry of a batch that is not replicated yet is acknowledged at once.

Evidence: an acknowledged record is lost when the leader dies after the retry. Needs a lost first answer.
"""

from replog.broker.purgatory import ProduceResult
from replog.broker.verification import Guard
from replog.errors import Error
from replog.log.validation import Checked
from replog.node.api.produce import ProduceApi
from replog.node.replication.replicas import Replica
from replog.wire.messages.produce import PartitionProduceData, TopicProduceData

SCENARIO = "lost-answers"


def install() -> None:
    """Let what is in the log already count as committed."""
    strict = ProduceApi._append

    def _append(  # noqa: PLR0913, PLR0917 - as the method that it stands for
        self: ProduceApi,
        replica: Replica,
        topic: TopicProduceData,
        data: PartitionProduceData,
        acks: int,
        now_ms: int,
        wall_ms: int,
        guard: Guard | None,
        checked: Checked | None,
    ) -> ProduceResult:
        end_offset = replica.partition.log.log_end_offset
        result = strict(self, replica, topic, data, acks, now_ms, wall_ms, guard, checked)
        if result.error is None and 0 <= result.required_offset < end_offset:
            result.error = Error.NONE
        return result

    ProduceApi._append = _append  # type: ignore[method-assign]
