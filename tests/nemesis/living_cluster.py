"""A real cluster under a light load, with its event loop, that tests of faults share: bringing one up for each would cost most."""

import asyncio
import itertools
from contextlib import suppress

from tribunal.clusters.api import ProducerSettings, TopicPartition, until
from tribunal.clusters.clock import RunClock
from tribunal.clusters.spec import ClusterSpec

TOPIC = "t"
PARTITIONS = 3
WHOLE_TIMEOUT_MS = 25_000
ON_EVERY_DISK = 8 * PARTITIONS  # acknowledged by full ISRs: a fault of disks finds something to harm


class LivingCluster:
    """A cluster, its loop and its load."""

    def __init__(self, runner, cluster):
        self.runner = runner
        self.cluster = cluster
        self.acknowledged = 0

    @classmethod
    def launched(cls, module, directory, spec=None):
        runner = asyncio.Runner()
        spec = spec or ClusterSpec(settings={"broker.session.timeout.ms": 5000})
        try:
            cluster = runner.run(module.launch(spec, directory, RunClock(), "AAAAAAAAAAAAAAAAAAAAAA"))
        except BaseException:
            runner.close()
            raise
        living = cls(runner, cluster)
        runner.run(living._prepare())
        return living

    async def _prepare(self):
        admin = self.cluster.clients.admin("setup")
        await admin.create_topic(TOPIC, PARTITIONS, self.cluster.spec.replication_factor, 10_000)
        await admin.close()
        await until(
            lambda: len(self.cluster.state.partitions) >= PARTITIONS,
            timeout_ms=10_000,
            what="the topic",
            cluster=self.cluster,
        )

    def run(self, story):
        """Run a story of this cluster under load; it begins and ends whole."""
        return self.runner.run(asyncio.wait_for(self._under_load(story), 100))

    async def _under_load(self, story):
        producer = self.cluster.clients.producer(
            ProducerSettings(acks=-1, idempotent=True, delivery_timeout_ms=20_000, request_timeout_ms=2_000), "load"
        )
        load = asyncio.create_task(self._load(producer))
        enough = self.acknowledged + ON_EVERY_DISK
        try:
            await self._whole()
            await until(
                lambda: self.acknowledged >= enough,
                timeout_ms=WHOLE_TIMEOUT_MS,
                what="records on every disk",
                cluster=self.cluster,
            )
            return await story(self.cluster)
        finally:
            load.cancel()
            with suppress(asyncio.CancelledError):
                await load
            await producer.close()

    async def _whole(self):
        await until(
            lambda: self.cluster.state.is_fully_in_sync(self.cluster.spec),
            timeout_ms=WHOLE_TIMEOUT_MS,
            what="every ISR full",
            cluster=self.cluster,
        )

    async def _load(self, producer):
        for number in itertools.count():
            partition = TopicPartition(TOPIC, number % PARTITIONS)
            producer.send(partition, None, number.to_bytes(8), self._done)
            await asyncio.sleep(0.01)

    def _done(self, delivery):
        self.acknowledged += delivery.outcome == "ok"

    def close(self):
        try:
            self.runner.run(self.cluster.close())
        finally:
            self.runner.close()


async def hurt(cluster, fault, node, lasts_s=0.3, **options):
    """Inject one fault, let it last, heal it; return its effect."""
    async with fault.aimed(node, fault.options(**options))(cluster) as effect:
        await asyncio.sleep(lasts_s)
    return effect


def broken(facts, path=""):
    """Return the parts of a proof that do not hold; all of it if it has no parts."""
    parts = {f"{path}/{name}": part for name, part in facts.items() if isinstance(part, dict) and "holds" in part}
    found = {}
    for name, part in parts.items():
        if not part["holds"]:
            found |= broken(part, name)
    return found or {path: facts}
