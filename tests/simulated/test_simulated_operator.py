"""What the simulator's operator says of an order that was refused: that nothing was done, only where the answers prove it."""

import asyncio

import pytest

from replog.errors import Error
from replog.wire.messages import alter_partition_reassignments as apr
from tribunal.clusters.api import Declined, Refused, TopicPartition
from tribunal.clusters.simulated import operator as module
from tribunal.clusters.simulated.operator import SimulatedOperator

PARTITION = TopicPartition("t", 0)


class Answering:
    """A cluster that answers with these errors, one after the other."""

    def __init__(self, *errors: Error) -> None:
        self.errors = list(errors)

    async def ask(self, _exchange, _body):
        return apr.AlterPartitionReassignmentsResponse(error_code=self.errors.pop(0))


@pytest.mark.parametrize(
    ("errors", "surely_not"),
    [
        pytest.param([Error.CLUSTER_AUTHORIZATION_FAILED], True, id="refused"),
        pytest.param([Error.REQUEST_TIMED_OUT, Error.CLUSTER_AUTHORIZATION_FAILED], False, id="after a time-out"),
        pytest.param([Error.UNKNOWN_SERVER_ERROR, Error.CLUSTER_AUTHORIZATION_FAILED], False, id="after a failure"),
    ],
)
def test_an_order_is_surely_not_carried_out_only_where_the_answers_say_so(errors, surely_not, monkeypatch):
    """A handler that failed somewhere may have failed behind what it wrote."""
    monkeypatch.setattr(module, "RETRY_MS", 1)
    operator = SimulatedOperator(Answering(*errors))

    with pytest.raises(Declined) as problem:
        asyncio.run(operator.reassign(PARTITION, [1, 2, 3]))

    assert isinstance(problem.value, Refused) is surely_not
