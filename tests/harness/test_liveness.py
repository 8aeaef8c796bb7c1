"""Which brokers are enough to make progress."""

import pytest

from tribunal.clusters.api import ClusterState, PartitionState, TopicPartition
from tribunal.harness.liveness import may_progress

P = TopicPartition("t", 0)


@pytest.mark.parametrize(
    ("isr", "elr", "brokers", "may"),
    [
        pytest.param((1, 2, 3), (), (1, 2), True, id="two of three"),
        pytest.param((3,), (2,), (1, 2), False, id="the ISR is elsewhere"),
        pytest.param((), (2, 3), (1, 2), True, id="an ELR member is among them"),
        pytest.param((), (3,), (1, 2), False, id="the ELR is elsewhere"),
        pytest.param((1, 2, 3), (), (1,), False, id="fewer than min ISR"),
    ],
)
def test_who_may_make_progress(isr, elr, brokers, may):
    partition = PartitionState(leader=1, leader_epoch=1, partition_epoch=1, replicas=(1, 2, 3), isr=isr, elr=elr)
    state = ClusterState(partitions={P: partition})

    assert may_progress(state, P, brokers, 2) is may


def test_what_an_operator_made_the_min_isr_counts():
    partition = PartitionState(leader=1, leader_epoch=1, partition_epoch=1, replicas=(1, 2, 3), isr=(1, 2, 3), elr=())
    state = ClusterState(partitions={P: partition})

    assert not may_progress(state, P, (1, 2), 3)
    assert may_progress(state, P, (1, 2, 3), 3)
    assert may_progress(state, P, (1, 2, 3), 4)
