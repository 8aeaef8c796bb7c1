"""Several workloads in one run: each has topics, groups and processes of its own, all of them one cluster."""

import asyncio
from collections.abc import Sequence

from tribunal.clusters.api import TopicPartition
from tribunal.workloads.api import Load, Stage


class Together:
    """Implements `tribunal.workloads.api.Load`; the first one's topic is what targets of faults mean."""

    def __init__(self, loads: Sequence[Load]) -> None:
        self._loads = list(loads)

    @property
    def delivery_timeout_ms(self) -> int:
        """How long the last sends of all may take."""
        return max(load.delivery_timeout_ms for load in self._loads)

    def partitions(self) -> list[TopicPartition]:
        """Return all partitions."""
        return [partition for load in self._loads for partition in load.partitions()]

    def written_throughout(self) -> list[TopicPartition]:
        """Return the partitions that have to make progress."""
        return [partition for load in self._loads for partition in load.written_throughout()]

    async def prepare(self, stage: Stage, replication_factor: int) -> None:
        """Create topics."""
        for index, load in enumerate(self._loads):
            await load.prepare(stage.beside(index), replication_factor)

    async def run(self, stage: Stage) -> None:
        """Go on until asked to stop; where one fails the others end."""
        running = [asyncio.create_task(load.run(stage.beside(index))) for index, load in enumerate(self._loads)]
        try:
            await asyncio.gather(*running)
        finally:
            for task in running:
                task.cancel()
            await asyncio.wait(running)

    async def read_to_end(self, stage: Stage, timeout_ms: int) -> list[TopicPartition]:
        """Read everything, at once."""
        reading = (load.read_to_end(stage.beside(index), timeout_ms) for index, load in enumerate(self._loads))
        return [partition for unread in await asyncio.gather(*reading) for partition in unread]
