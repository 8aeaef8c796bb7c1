"""A fault in the middle of which something fails: it leaves nothing behind that goes on, and what failed is said."""

import asyncio
from types import SimpleNamespace

import pytest

from tribunal.clusters.api import ClusterError, Proof
from tribunal.clusters.spec import ClusterSpec
from tribunal.harness.catalog import faults

HOLDS = Proof(holds=True, facts={})


class Trying:
    """A cluster of which something fails after so many times."""

    def __init__(self, *, fails_after: int = 1) -> None:
        self.spec = ClusterSpec()
        self.state = SimpleNamespace(brokers={}, partitions={}, is_fully_in_sync=lambda _: True)
        self.fails_after = fails_after
        self.tried = 0
        self.is_stopping = False
        self.rules: list[SimpleNamespace] = []

    def now_ns(self) -> int:
        return 0

    def alive(self, _node: int) -> bool:
        return True

    async def something_happens(self, _timeout_ms: int) -> None:
        await asyncio.sleep(0.001)

    def _try(self) -> Proof:
        self.tried += 1
        if self.tried > self.fails_after:
            raise ClusterError("it does not work")
        return HOLDS

    async def set_clock(self, _node: int, skew: object) -> Proof:
        return HOLDS if skew == type(skew)() else self._try()

    async def stop(self, _node: int) -> None:
        self.is_stopping = True
        try:
            await asyncio.Event().wait()
        finally:
            self.is_stopping = False

    async def kill(self, _node: int) -> Proof:
        return self._try()

    async def start(self, _node: int) -> None:
        """Be there again."""

    def add_rule(self, rule: object) -> SimpleNamespace:
        self.rules.append(SimpleNamespace(rule=rule, held_count=1, hit_count=1))
        return self.rules[-1]

    def remove_rule(self, rule: SimpleNamespace) -> int:
        self.rules.remove(rule)
        return 1


async def entered(cluster: Trying, name: str, lasts_ms: int = 0, **options: object) -> None:
    async with faults()[name].planned(1, options)(cluster):
        await asyncio.sleep(lasts_ms / 1000)


def test_an_orderly_end_is_asked_for_no_longer_when_its_fault_is_broken_off() -> None:
    async def story() -> None:
        cluster = Trying()
        task = asyncio.create_task(entered(cluster, "kill-in-shutdown", after_ms=10_000))
        await asyncio.sleep(0.01)
        assert cluster.is_stopping
        task.cancel()
        await asyncio.wait([task])
        await asyncio.sleep(0)
        assert not cluster.is_stopping

    asyncio.run(story())


def test_a_message_is_held_no_longer_when_a_node_does_not_come_back() -> None:
    """The run goes on without that node, and its first request waited to the end."""

    async def story() -> None:
        cluster = Trying(fails_after=1)
        with pytest.raises(ClusterError):
            await entered(cluster, "fast-bounce", how="kill", times=2, late="fetch")
        assert cluster.tried == 2
        assert cluster.rules == []

    asyncio.run(story())


def test_a_clock_that_stopped_jumping_is_no_strobe() -> None:
    async def story(fails_after: int) -> None:
        await entered(Trying(fails_after=fails_after), "clock-strobe", lasts_ms=50, period_ms=1)

    asyncio.run(story(fails_after=1_000))
    with pytest.raises(ClusterError, match="does not work"):
        asyncio.run(story(fails_after=3))
