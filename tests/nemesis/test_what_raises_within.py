"""A fault in the middle of which something fails: it leaves nothing behind that goes on, and what failed is said."""

import asyncio
from types import SimpleNamespace

import pytest

from tribunal.clusters.api import ClusterError, NotServing, Proof
from tribunal.clusters.spec import ClusterSpec
from tribunal.harness.catalog import faults
from tribunal.nemesis.api import Effect
from tribunal.results.not_started import Attempt

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


class Described(Trying):
    """A described system, of which one node does not come to serve when it is started."""

    def __init__(self, down: int) -> None:
        super().__init__()
        self.spec = ClusterSpec(system="system.toml")
        self.down = down
        self.paused: list[int] = []
        self.excused: dict[int, str] = {}

    async def start(self, node: int) -> None:
        if node == self.down:
            ended = Attempt(started_ns=0, seen_ns=1, how="ended", exit_code=1)
            raise NotServing("it ended", node=node, within_ms=1, attempt=ended)

    async def power_fail(self, _node: int) -> Proof:
        return Proof(holds=True, facts={})

    async def pause(self, node: int) -> Proof:
        self.paused.append(node)
        return Proof(holds=True, facts={})

    async def resume(self, node: int) -> Proof:
        self.paused.remove(node)
        return Proof(holds=True, facts={})

    async def trouble_disk(self, _node: int, _trouble: object) -> Proof:
        return Proof(holds=True, facts={})

    async def kill(self, _node: int) -> Proof:
        return Proof(holds=True, facts={})

    def excuse(self, node: int, why: str | None) -> None:
        if why is None:
            self.excused.pop(node, None)
        else:
            self.excused[node] = why


def ready(cluster: Described) -> None:
    """Let every node be ready."""
    broker = SimpleNamespace(fenced=False, incarnation="1", broker_epoch=1)
    cluster.state.brokers = dict.fromkeys(cluster.spec.broker_ids, broker)
    cluster.state.topic_ids = {}


def test_nobody_stays_paused_when_the_victim_does_not_come_back() -> None:
    """The victim is started once more when nothing else is in effect; the third stood still to the run's end."""
    cluster = Described(down=2)
    ready(cluster)

    with pytest.raises(NotServing):
        asyncio.run(entered(cluster, "pause-kill", phase_ms=1))

    assert cluster.paused == []


def test_a_node_is_excused_no_longer_when_it_does_not_come_back_on_its_mended_disk() -> None:
    """It may be started once more, and would have ended by itself then with nobody taking note."""
    cluster = Described(down=1)
    ready(cluster)

    with pytest.raises(NotServing):
        asyncio.run(entered(cluster, "full-disk"))

    assert cluster.excused == {}


def test_a_reassignment_that_found_nothing_is_not_in_effect_to_the_end() -> None:
    """Nothing was ordered, so nothing is left to undo; else it excused whatever came later."""

    async def story() -> Effect:
        async with faults()["reassign"].planned(1, {})(Trying()) as effect:
            pass
        return effect

    effect = asyncio.run(story())

    assert not effect.proof.holds
    assert effect.heal is not None
    assert effect.heal.is_undone
