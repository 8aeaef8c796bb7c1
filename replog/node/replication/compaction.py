"""When logs are compacted: all that want it, one after the other, a step at a time beside everything else.

What is compacted, and what has to stay, is the log's business (`replog.log.cleaner`). Here time is given to it, so that
requests hardly notice: a step takes some milliseconds, and syncs happen in the background.
"""

import asyncio

from replog.log.batch import CorruptBatch
from replog.log.cleaner import Cleaner
from replog.node.replication.flushing import Flushing
from replog.node.replication.replicas import Replica, Replicas
from replog.node.tasks import Tasks


class Compaction:
    """Compacts the logs of one broker."""

    def __init__(self, replicas: Replicas, flushing: Flushing, tasks: Tasks) -> None:
        self.replicas = replicas
        self.flushing = flushing
        self.world = replicas.world
        self.tasks = tasks
        self._is_running = False

    def begin(self) -> None:
        """Look through all logs once, unless that is still going on."""
        if not self._is_running:
            self._is_running = True
            self.tasks.start(self._round())

    async def _round(self) -> None:
        try:
            for replica in self.replicas:
                log = replica.partition.log
                if log.settings.compacts and len(log.segments) > 1:
                    try:
                        await self._compact(replica)
                    except OSError as problem:
                        if replica.partition.log is log:  # else it has moved away from the disk that says no
                            replica.partition.go_offline(problem)
                    except CorruptBatch as problem:
                        self.world.journal.log("warning", f"{replica.name}: not compacted: {problem}")
        finally:
            self._is_running = False

    async def _compact(self, replica: Replica) -> None:
        log = replica.partition.log
        if log.flushed_offset < log.segments[-1].base_offset:
            await self.flushing.flush([replica])  # what is not durable here is not touched
        cleaner = Cleaner(log, high_watermark=replica.partition.high_watermark, now_ms=self.world.clock.wall_ms())
        steps = cleaner.steps()
        # A log that has moved to another directory meanwhile is cleaned there, another time.
        while replica.is_hosted and not replica.partition.is_offline and replica.partition.log is log:
            try:
                file = next(steps)
            except StopIteration:
                break
            if file is None:
                await asyncio.sleep(0)
            else:
                await self.world.disk.sync_in_background([file])
        if cleaner.cleaned is not None:
            done = cleaner.cleaned
            self.world.journal.log(
                "info",
                f"{replica.name}: compacted to {done.end_offset}, {done.bytes_before} to {done.bytes_after} bytes",
            )
            self.world.journal.probe("log_compacted")
