"""Where an error that nobody foresaw stops: at the connection, the link or the request that brought it.

What comes from outside may reach a mistake of ours in parsing, in answering or on a link. That costs its sender the answer or the
connection; it is logged once with its cause and counted (`Journal.unforeseen`). The state machines are different: one
that failed half-way through an event may hold what cannot be true, and going on would write it down. So an error that came
through one of them, a failed assertion and an error of the disk end the node, as ever.
"""

from types import TracebackType
from typing import Final

from replog.ports import Journal
from replog.wire.apis import Api

STATE_MACHINES: Final = (
    *("replog.broker.", "replog.controller.", "replog.coordinators.", "replog.log.", "replog.metadata."),
    *("replog.quorum.", "replog.zookeeper."),
)
# Functions of these folders that only answer, and keep nothing.
STATELESS: Final = frozenset(
    (
        *("replog.controller.authorization", "replog.controller.configs", "replog.controller.describe"),
        *("replog.controller.served_api", "replog.coordinators.topic_pattern", "replog.log.batch"),
        *("replog.log.compression", "replog.quorum.translate"),
    )
)
# What only reads leaves a state machine as it was, wherever it failed.
READS: Final = frozenset(
    (
        *(Api.METADATA, Api.LIST_OFFSETS, Api.OFFSET_FOR_LEADER_EPOCH, Api.FIND_COORDINATOR, Api.OFFSET_FETCH),
        *(Api.LIST_GROUPS, Api.DESCRIBE_GROUPS, Api.CONSUMER_GROUP_DESCRIBE, Api.DESCRIBE_CONFIGS),
        *(Api.LIST_TRANSACTIONS, Api.DESCRIBE_TRANSACTIONS, Api.DESCRIBE_PRODUCERS, Api.DESCRIBE_LOG_DIRS),
        *(Api.DESCRIBE_CLUSTER, Api.DESCRIBE_QUORUM, Api.DESCRIBE_TOPIC_PARTITIONS),
        *(Api.LIST_PARTITION_REASSIGNMENTS, Api.LIST_CONFIG_RESOURCES, Api.GET_REPLICA_LOG_INFO),
    )
)


def ends_the_node(problem: BaseException, api: Api | None = None) -> bool:
    """Return whether going on after this error would be wrong; `api` is what was being answered."""
    if not isinstance(problem, Exception) or isinstance(problem, AssertionError | OSError):
        return True
    return api not in READS and _came_through_a_state_machine(problem.__traceback__)


def _came_through_a_state_machine(traceback: TracebackType | None) -> bool:
    while traceback is not None:
        module = traceback.tb_frame.f_globals.get("__name__", "")
        if module.startswith(STATE_MACHINES) and module not in STATELESS:
            return True
        traceback = traceback.tb_next
    return False


def contain(journal: Journal, where: str, problem: Exception, api: Api | None = None) -> None:
    """Note an error that costs no more than what is going on here; raise it again when it ends the node."""
    if ends_the_node(problem, api):
        raise problem
    journal.unforeseen(where, problem)
