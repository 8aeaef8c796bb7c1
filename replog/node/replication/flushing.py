"""Making logs durable earlier than replication needs it: `flush.messages` and `flush.ms` (SPEC 3.5, 3.7).

Without these settings Kafka trusts replicas, not disks, and so do we. With `flush.messages` a record is acknowledged by a
leader, and claimed by a follower's next fetch, only when it is on disk. The syncing happens beside the event loop;
while it runs, appends go on, and the next sync takes all that came: one sync for many records, partitions and producers.
"""

import asyncio
from collections.abc import Iterable, Sequence
from typing import Final

from replog.log.settings import NEVER
from replog.node.fault_injection_points import linger
from replog.node.replication.replicas import Replica, Replicas
from replog.node.tasks import Tasks

DELAY_MS_MAX: Final = 1 << 31  # what event loops take; nobody has waited for 24 days


class Flushing:
    """Syncs the logs that have to be durable sooner than the periodic flush."""

    def __init__(self, replicas: Replicas, tasks: Tasks) -> None:
        self.replicas = replicas
        self.clock = replicas.world.clock
        self.disk = replicas.world.disk
        self.tasks = tasks
        self._due: dict[Replica, None] = {}
        self._is_running = False
        self._timers: dict[Replica, tuple[int, asyncio.TimerHandle]] = {}  # with the time that they wait for

    def grew(self, replica: Replica) -> None:
        """Take note that a log grew, began to be led, or has other settings now."""
        log = replica.partition.log
        if log.must_flush:
            # A follower's next fetch waits for its disk anyhow (`make_durable`).
            if replica.partition.leadership is not None:
                self._begin(replica)
        elif log.settings.flush_ms != NEVER and log.flushed_offset < log.log_end_offset:
            self._flush_within(replica, min(log.settings.flush_ms, DELAY_MS_MAX))

    def forget(self, replica: Replica) -> None:
        """Leave a log alone that is not hosted any more."""
        self._due.pop(replica, None)
        self._disarm(replica)

    async def make_durable(self, replicas: Iterable[Replica]) -> None:
        """Return when no more of these logs is volatile than their settings allow."""
        due = [replica for replica in replicas if replica.partition.log.must_flush]
        if due:
            await self.flush(due)

    def stop(self) -> None:
        """Begin nothing more."""
        for replica in list(self._timers):
            self._disarm(replica)
        self._due.clear()

    def _flush_within(self, replica: Replica, delay_ms: int) -> None:
        """Sync a log when this time is over, unless it will be sooner: the settings may have been others before."""
        due_ms = self.clock.now_ms() + delay_ms
        if replica in self._timers:
            known_ms, _ = self._timers[replica]
            if known_ms <= due_ms:
                return
            self._disarm(replica)
        self._timers[replica] = due_ms, asyncio.get_running_loop().call_later(delay_ms / 1000, self._fire, replica)

    def _disarm(self, replica: Replica) -> None:
        if replica in self._timers:
            _, timer = self._timers.pop(replica)
            timer.cancel()

    def _fire(self, replica: Replica) -> None:
        del self._timers[replica]
        self._begin(replica)

    def _begin(self, replica: Replica) -> None:
        self._due[replica] = None
        if not self._is_running:
            self._is_running = True
            self.tasks.start(self._run())

    async def _run(self) -> None:
        try:
            while self._due:
                due, self._due = self._due, {}
                await self.flush(list(due))
        finally:
            self._is_running = False

    async def flush(self, replicas: Sequence[Replica]) -> None:
        """Make these logs durable as they are now, without holding up the event loop."""
        directories: dict[str, list[Replica]] = {}
        for replica in replicas:
            directories.setdefault(replica.partition.log.directory.rpartition("/")[0], []).append(replica)
        for together in directories.values():
            await self._flush(together)

    async def _flush(self, replicas: Sequence[Replica]) -> None:
        """Sync the logs of one directory; if that fails, none of them is durable and none is asked again."""
        logs = [(replica, replica.partition.log) for replica in replicas if not replica.partition.is_offline]
        flushes = [(replica, log, log.begin_flush()) for replica, log in logs]
        try:
            await self.disk.sync_in_background([file for _, _, flush in flushes for file in flush.files])
            await linger(self.replicas.world, "flush is noticed late")
            for replica, log, flush in flushes:
                # One that has moved to another directory meanwhile is durable there, and that one has not failed.
                if replica.is_hosted and not replica.partition.is_offline and replica.partition.log is log:
                    log.complete_flush(flush)
                    self.replicas.flushed(replica)
        except OSError as problem:
            for replica, log, _ in flushes:
                if replica.partition.log is log:
                    replica.partition.go_offline(problem)
