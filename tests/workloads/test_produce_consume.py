"""The produce-consume workload's plan: who writes where, drawn from the seed."""

from random import Random

import pytest
from msgspec.structs import replace

from tribunal.workloads.kinds.produce_consume import Options, partitions, partitions_of, plan, written_throughout


@pytest.mark.parametrize(
    ("acks", "expected"),
    [pytest.param(-1, (0, 1, 4, 5), id="all"), pytest.param(1, (2, 4, 5), id="1"), pytest.param(0, (3, 4, 5), id="0")],
)
def test_every_acks_level_has_partitions_of_its_own_and_mixed_ones(acks, expected):
    assert partitions_of(acks, 6) == expected


@pytest.mark.parametrize("count", [1, 2, 3])
def test_few_partitions_are_all_mixed_or_nearly(count):
    assert all(partitions_of(acks, count) for acks in (-1, 0, 1))


def test_workers_are_one_class_each_and_share_the_rate():
    chosen = plan(Options(rate=200), Random(1))

    assert [worker.process for worker in chosen.workers] == [1, 2, 3, 4]
    assert sum(worker.rate_per_s for worker in chosen.workers) == 200
    assert [worker.idempotent for worker in chosen.workers] == [True, False, False, False]
    assert len({worker.seed for worker in chosen.workers}) == 4


def test_the_plan_is_the_seeds():
    assert plan(Options(), Random(1)) == plan(Options(), Random(1))
    assert plan(Options(), Random(1)) != plan(Options(), Random(2))


def test_partitions_are_named():
    assert [str(partition) for partition in partitions(plan(Options(partitions=2), Random(1)))] == [
        "produce-consume-0",
        "produce-consume-1",
    ]


def test_written_throughout_is_where_somebody_gets_answers_to_the_end():
    chosen = plan(Options(partitions=6), Random(1))
    at_rest = replace(chosen, workers=tuple(replace(worker, records_max=3) for worker in chosen.workers))

    assert [one.partition for one in written_throughout(chosen)] == [0, 1, 2, 4, 5]
    assert written_throughout(at_rest) == []
