"""How soon a leader that is alone in its ISR commits what it had (M43)."""

import msgspec
import pytest

from tribunal.clusters.api import PartitionState, TopicPartition
from tribunal.clusters.simulated.lone_leaders import LoneLeaders
from tribunal.clusters.simulated.process import NS_PER_MS

P = TopicPartition("t", 0)
FULL = PartitionState(replicas=(1, 2), isr=(1, 2), elr=(), leader=1, leader_epoch=4, partition_epoch=7)
ALONE = msgspec.structs.replace(FULL, isr=(1,), partition_epoch=8)


def stalled_ms(*happened):
    lone = LoneLeaders()
    for at_ms, what in happened:
        if isinstance(what, tuple):
            lone.exposed(P, *what, at_ms * NS_PER_MS)
        else:
            lone.committed(P, what, at_ms * NS_PER_MS, 10 if len(what.isr) == 1 and what.leader > 0 else None)
    return lone.stalled_ms


@pytest.mark.parametrize(
    ("happened", "expected"),
    [
        pytest.param([(5, (4, 8)), (20, ALONE), (27, (4, 10))], 7, id="until it has committed what it had"),
        pytest.param([(20, ALONE), (25, (4, 9)), (50, (4, 12))], 30, id="all of it"),
        pytest.param([(20, ALONE), (40, (4, 10)), (90, (4, 30))], 20, id="what came later is another matter"),
        pytest.param([(20, ALONE), (60, FULL), (90, (4, 10))], 40, id="until it is not alone any more"),
        pytest.param([(20, ALONE), (30, ALONE), (50, (4, 10))], 30, id="from the beginning"),
        pytest.param([(5, FULL), (90, (4, 10))], 0, id="others are waited for"),
        pytest.param(
            [(20, ALONE), (30, msgspec.structs.replace(ALONE, leader_epoch=5)), (50, (4, 10)), (60, (5, 10))],
            30,
            id="of a leader of its own epoch",
        ),
        pytest.param(
            [(20, ALONE), (25, msgspec.structs.replace(ALONE, leader=-1)), (90, (4, 10))], 0, id="nobody leads"
        ),
    ],
)
def test_it_is_measured_from_the_shrink_on(happened, expected):
    assert stalled_ms(*happened) == expected


def test_the_longest_counts():
    assert stalled_ms((20, ALONE), (90, (4, 10)), (100, FULL), (120, ALONE), (125, (4, 10))) == 70
