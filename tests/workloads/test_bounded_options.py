"""What a scenario asks a workload for is drawn before anything starts, so it is bounded: a file of a few lines may not fill the memory."""

import contextlib
import time
from random import Random
from typing import Final

import msgspec
import pytest

from tribunal.harness.catalog import all_workloads

CPU_S_MAX: Final = 2.0
HUGE: Final = 2**63 - 1
MOST: Final = 1_000


def numbers_of(workload: str) -> list[str]:
    options = all_workloads()[workload].options
    assert issubclass(options, msgspec.Struct)
    return [
        field.name
        for field in msgspec.structs.fields(options)
        if isinstance(field.default, int) and not isinstance(field.default, bool)
    ]


OPTIONS: Final = [(workload, option) for workload in sorted(all_workloads()) for option in numbers_of(workload)]


@pytest.mark.parametrize("value", [MOST, HUGE])
@pytest.mark.parametrize(("workload", "option"), OPTIONS)
def test_every_number_is_drawn_in_a_moment_or_refused(workload: str, option: str, value: int) -> None:
    began_s = time.process_time()

    with contextlib.suppress(msgspec.ValidationError):
        all_workloads()[workload].drawn({option: value}, Random(1))

    assert time.process_time() - began_s < CPU_S_MAX


def test_a_bank_has_two_accounts_at_least() -> None:
    """With one there is nobody to transfer anything to: the run ended in an error."""
    assert all_workloads()["bank"].drawn({"partitions": 2}, Random(1))
    with pytest.raises(msgspec.ValidationError, match=">= 2"):
        all_workloads()["bank"].drawn({"partitions": 1}, Random(1))


@pytest.mark.parametrize(
    ("workload", "option"), [("produce-consume", "partitions"), ("register", "keys"), ("lock", "locks")]
)
def test_a_thousand_of_a_thing_are_granted_and_no_more(workload: str, option: str) -> None:
    assert all_workloads()[workload].drawn({option: MOST}, Random(1))
    with pytest.raises(msgspec.ValidationError, match="<= 1000"):
        all_workloads()[workload].drawn({option: MOST + 1}, Random(1))


WHO: Final = ("readers", "workers", "members", "processors", "processes", "tellers")


@pytest.mark.parametrize(("workload", "option"), [(workload, option) for workload, option in OPTIONS if option in WHO])
def test_no_two_of_a_workload_have_the_number_of_one_process(workload: str, option: str) -> None:
    """Reader 51 was taken for the observer of offsets: what one was told, and the other then polled, was a watermark that goes back."""
    most = 50 if option == "readers" else 800

    assert all_workloads()[workload].drawn({option: most}, Random(1))
    with pytest.raises(msgspec.ValidationError, match=f"<= {most}"):
        all_workloads()[workload].drawn({option: most + 1}, Random(1))


def test_somebody_has_to_operate() -> None:
    """Nobody else sees which topics there are to write to: without operators the workload sent nothing, and said nothing of it."""
    assert all_workloads()["operator"].drawn({"operators": 1}, Random(1))
    with pytest.raises(msgspec.ValidationError, match=">= 1"):
        all_workloads()["operator"].drawn({"operators": 0}, Random(1))
