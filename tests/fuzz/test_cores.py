"""No event, however it is meant, brings an exception out of a core: a bad request costs its sender only.

An exception out of a state machine ends the node (`replog/node/boundary.py`). Each core is driven without a shell, a socket or a clock, so that thousands of
events take a second. `python -m tests.fuzz.test_cores groups --minutes 30 --seed x` goes on by hand.
"""

import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Final, Protocol

import pytest

from tests.fuzz.controller_cores import ControllerCore
from tests.fuzz.coordinator_cores import GroupCore, TransactionCore
from tests.fuzz.drawing import Trail
from tests.fuzz.partition_cores import PartitionCore
from tests.fuzz.quorum_cores import QuorumCore
from tests.fuzz.targets import NIGHT_MINUTES, by_hand, repeated_for
from tests.fuzz.zookeeper_cores import ZooKeeperBrokerCore, ZooKeeperControllerCore

EVENTS: Final = 400  # to one core
CORES: Final = 5  # of each kind, in the gate


class DrivenCore(Protocol):
    """A core to which anything may happen."""

    trail: Trail

    def step(self) -> None:
        """Let something happen."""


KINDS: Final[dict[str, Callable[[str], DrivenCore]]] = {
    "groups": GroupCore,
    "transactions": TransactionCore,
    "controller": ControllerCore,
    "quorum": QuorumCore,
    "partition": PartitionCore,
    "zookeeper broker": ZooKeeperBrokerCore,
    "zookeeper controller": ZooKeeperControllerCore,
}


def drive(kind: str, seed: str) -> None:
    """Let things happen to one core; a failure names its seed and what was last."""
    core = KINDS[kind](seed)
    try:
        for _ in range(EVENTS):
            core.step()
    except Exception as problem:
        core.trail.explain(problem, seed)
        raise


@pytest.mark.parametrize("kind", KINDS)
def test_nothing_that_happens_ends_a_core(kind: str) -> None:
    for number in range(CORES):
        drive(kind, f"gate-{number}")


@pytest.mark.nightly
@pytest.mark.timeout(NIGHT_MINUTES * 60 + 300)
@pytest.mark.parametrize("kind", KINDS)
def test_nothing_ends_a_core_in_half_an_hour(kind: str, tmp_path: Path) -> None:
    assert repeated(kind, tmp_path, NIGHT_MINUTES, "night")


def repeated(kind: str, _: Path, minutes: float, seed: str) -> int:
    """Drive one core after the other; return how many."""
    began_s = time.monotonic()
    number = repeated_for(minutes, partial(drive, kind), f"{seed}-{kind}")
    print(f"{kind}: {number} cores of {EVENTS} events in {time.monotonic() - began_s:.0f} s", flush=True)
    return number


if __name__ == "__main__":
    by_hand(__doc__, {kind: partial(repeated, kind) for kind in KINDS})
