"""Where replicas of new partitions go: as many racks as there can be, the load of each broker the same."""

from collections import Counter
from random import Random
from uuid import UUID

import pytest

from replog.controller.placement import placements
from replog.metadata.image import Image
from replog.metadata.state import Broker


def placed(racks: dict[int, str | None], factor: int, *, partitions: int, seed: int, fenced: tuple[int, ...] = ()):
    image = Image()
    for node, rack in racks.items():
        image.brokers[node] = Broker(
            broker_id=node, epoch=1, incarnation_id=UUID(int=1), rack=rack, fenced=node in fenced
        )
    return placements(image, partition_count=partitions, replication_factor=factor, first_index=0, random=Random(seed))


@pytest.mark.parametrize("seed", range(20))
@pytest.mark.parametrize(("racks", "factor", "distinct"), [
    pytest.param({0: "a", 1: "a", 2: "b", 3: "b"}, 2, 2, id="two brokers in each of two racks"),
    pytest.param({0: "a", 1: "a", 2: "b", 3: "b", 4: "c", 5: "c"}, 3, 3, id="one replica in each of three racks"),
    pytest.param({0: "a", 1: "a", 2: "a", 3: "b"}, 2, 2, id="racks of different sizes"),
    pytest.param({0: "a", 1: "b", 2: "b", 3: None}, 3, 3, id="brokers without a rack are one rack"),
])  # fmt: skip
def test_replicas_of_a_partition_are_in_as_many_racks_as_can_be(
    racks: dict[int, str | None], factor: int, distinct: int, seed: int
) -> None:
    for replicas in placed(racks, factor, partitions=24, seed=seed):
        assert len(set(replicas)) == factor
        assert len({racks[node] for node in replicas}) == distinct


@pytest.mark.parametrize("seed", range(20))
def test_racks_take_the_same_number_of_replicas_where_there_are_fewer_of_them(seed: int) -> None:
    racks = {0: "a", 1: "a", 2: "b", 3: "b"}

    for replicas in placed(racks, 4, partitions=8, seed=seed):
        assert Counter(racks[node] for node in replicas) == {"a": 2, "b": 2}


@pytest.mark.parametrize("seed", range(20))
@pytest.mark.parametrize("racks", [
    pytest.param(dict.fromkeys(range(4)), id="no racks"),
    pytest.param({0: "a", 1: "a", 2: "b", 3: "b"}, id="two racks"),
])  # fmt: skip
def test_brokers_lead_and_follow_equally_often(racks: dict[int, str | None], seed: int) -> None:
    found = placed(racks, 2, partitions=8, seed=seed)

    assert set(Counter(replicas[0] for replicas in found).values()) == {2}
    assert set(Counter(node for replicas in found for node in replicas).values()) == {4}


def test_fenced_brokers_fill_up_where_there_are_too_few_others() -> None:
    (replicas,) = placed({0: "a", 1: "b", 2: "c"}, 3, partitions=1, seed=1, fenced=(1,))

    assert replicas[2] == 1
    assert placed({0: "a", 1: "b"}, 3, partitions=1, seed=1) is None
