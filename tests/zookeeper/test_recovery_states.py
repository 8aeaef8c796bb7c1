"""KIP-704, "AlterPartition RPC", at the controller of ZooKeeper mode: the second refusal, and what the answer says."""

from typing import Any

import pytest

from replog.controller.events import Reply, Request
from replog.errors import Error
from replog.wire.apis import Api
from replog.zookeeper.controller import BrokersChanged, ZooKeeperController
from tests.kips.test_kip_380_zookeeper import a_controller, proposal, read_back, registered


def answer_to(controller: ZooKeeperController, body: Any, version: int) -> Any:
    request = Request(token=1, body=read_back(Api.ALTER_PARTITION, version, body), received_ms=0)
    (reply,) = (effect.body for effect in controller.handle(request, 0, version) if isinstance(effect, Reply))
    (partition,) = reply.topics[0].partitions
    return partition


@pytest.mark.parametrize(("version", "error"), [(1, Error.INVALID_REQUEST), (0, Error.NONE)])
def test_who_has_recovered_is_not_recovering_again(version: int, error: Error) -> None:
    """ "The LeaderRecoveryState is changing from RECOVERED to RECOVERING"; version 0 cannot say so."""
    controller = a_controller({1: 10, 2: 20, 3: 30}, isr=(1,))

    answer = answer_to(controller, proposal(4, 5, [1], 1, leader=1, broker_epoch=10), version)

    assert answer.error_code is error
    assert controller.image.topics_by_name["t"].partitions[0].leader_recovery_state == 0


def test_the_answer_says_what_is_in_force_now() -> None:
    """ "Add a property to indicate the leader recovery state after processing the AlterPartition request"."""
    controller = a_controller({1: 10, 2: 20, 3: 30}, isr=(1,), unclean=True)
    controller.handle(BrokersChanged(registered({2: 20, 3: 30})), 0)
    before = controller.image.topics_by_name["t"].partitions[0]

    answer = answer_to(controller, proposal(before.leader_epoch, before.partition_epoch, [2], 0), 1)

    assert before.leader_recovery_state == 1
    assert answer.leader_recovery_state == 0
    assert answer.leader_epoch == before.leader_epoch
    assert answer.partition_epoch == before.partition_epoch + 1


def test_that_a_leader_has_recovered_is_written_by_an_old_protocol_too() -> None:
    """KIP-704, "Compatibility": in the second round of an upgrade a controller may find what a newer one has written."""
    controller = a_controller({1: 10, 2: 20, 3: 30}, protocol="3.1", isr=(1,), recovery=1)

    grown = answer_to(controller, proposal(4, 5, [1, 2], 0, leader=1, broker_epoch=10), 0)

    assert grown.error_code is Error.NONE
    partition = controller.image.topics_by_name["t"].partitions[0]
    assert (partition.isr, partition.leader_recovery_state) == ((1, 2), 0)
