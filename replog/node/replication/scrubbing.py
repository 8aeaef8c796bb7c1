"""Reading segments again, slowly, to find what went bad on the disk before somebody needs it (`log.scrub.bytes.per.second`).

Nothing damaged is served, whoever finds it: reads of it are answered with CORRUPT_MESSAGE. Here it is looked for, put right from another member
of the ISR, by leaders and followers alike, and counted. It is asked for as Kafka's tool for verifying replicas asks, as a debugging consumer: followers
answer, too, nothing but what is committed, and no position is taken of it.
"""

import asyncio
from collections.abc import Iterator
from typing import Final

from replog.broker.partition import Partition
from replog.client.connection import Connection, ConnectionLost, UnsupportedVersion
from replog.config.access import Access
from replog.errors import Error
from replog.log.batch import CorruptBatch
from replog.log.scrubbing import STEP_BYTES, Scrub
from replog.node.boundary import contain
from replog.node.replication.replicas import Replica, Replicas
from replog.node.tasks import Tasks
from replog.types import DEBUGGING_CONSUMER, NodeId
from replog.wire.messages import fetch

PAUSE_S: Final = 1.0  # between two looks at all logs
TIMEOUT_MS: Final = 10_000
ANSWER_BYTES_MAX: Final = 1 << 20

Place = tuple[str, int]  # a file and a position in it


class NothingToPutBack(Exception):
    """A broker does not have what is damaged here; the message says why."""


class Scrubbing:
    """Looks through the logs of one broker, again and again.

    checked_bytes, damaged_count, repaired_count:  what was read, how many places were damaged, how many batches were put back.
    """

    def __init__(self, replicas: Replicas, tasks: Tasks, access: Access, bytes_per_second: int) -> None:
        """`bytes_per_second`: how much is read, at most."""
        self.replicas = replicas
        self.world = replicas.world
        self.tasks = tasks
        self.access = access
        self.bytes_per_second = bytes_per_second
        self.checked_bytes = 0
        self.damaged_count = 0
        self.repaired_count = 0
        self._unrepaired: dict[Place, None] = {}
        self._seen: dict[Place, None] = {}  # those of the present round

    @property
    def unrepaired_count(self) -> int:
        """How many places are damaged for which nobody has had anything to put there."""
        return len({**self._unrepaired, **self._seen})

    def begin(self) -> None:
        """Look through all logs from now on."""
        self.tasks.start(self._run())

    async def _run(self) -> None:
        while True:
            self._seen = {}
            for replica in self.replicas:
                await self._look_through(replica)
            self._unrepaired = self._seen
            await asyncio.sleep(PAUSE_S)

    async def _look_through(self, replica: Replica) -> None:
        log = replica.partition.log
        try:
            for segment in [*log.segments]:
                is_active = segment is log.segments[-1]
                await self._scrub(replica, Scrub(log, segment, replica.partition.high_watermark if is_active else None))
        except OSError as problem:
            if replica.partition.log is log:  # else it has moved away from the disk that says no
                replica.partition.go_offline(problem)

    async def _scrub(self, replica: Replica, scrub: Scrub) -> None:
        limit_bytes = min(STEP_BYTES, self.bytes_per_second)
        while _is_there(replica, scrub):
            try:
                checked_bytes = scrub.step(limit_bytes)
            except CorruptBatch as problem:
                checked_bytes = STEP_BYTES  # a repair costs at least as much
                if not await self._repair(replica, scrub, problem) and not (_is_there(replica, scrub) and scrub.skip()):
                    return
            else:
                self.checked_bytes += checked_bytes
            if not checked_bytes:
                return
            await asyncio.sleep(checked_bytes / self.bytes_per_second)

    async def _repair(self, replica: Replica, scrub: Scrub, problem: CorruptBatch) -> bool:
        """Put right what is damaged from here on; return whether something was."""
        place = (scrub.file.path, scrub.position)
        is_new = place not in self._unrepaired and place not in self._seen
        offset = scrub.offset
        if is_new:
            self.damaged_count += 1
            self.world.journal.probe("log_damage_found")
        outcome, count = await self._put_back(replica, scrub)
        if count:
            self.repaired_count += count
            self._unrepaired.pop(place, None)
            self.world.journal.probe("log_damage_repaired")
        else:
            self._seen[place] = None
        if count or is_new:
            what = f"{replica.name}: {place[0]} at {place[1]}, offset {offset}: {problem.reason}"
            self.world.journal.log("warning" if count else "error", f"{what}; {outcome}")
        return count > 0

    async def _put_back(self, replica: Replica, scrub: Scrub) -> tuple[str, int]:
        """Ask one member of the ISR after the other; return what to say of it, and how many batches were put back."""
        if scrub.offset >= replica.partition.high_watermark:
            return "not repaired, it is not committed yet", 0
        reasons = []
        for peer in _others_in_sync(replica.partition):
            try:
                content = await self._fetch(peer, replica, scrub.offset)
                if not _is_there(replica, scrub):
                    return "not repaired, the segment went meanwhile", 0
                count = scrub.put_back(content)
            except (NothingToPutBack, CorruptBatch) as problem:
                reasons.append(f"broker {peer}: {problem}")
                continue
            await self.world.disk.sync_in_background([scrub.file])
            return f"{count} put back from broker {peer}", count
        return f"not repaired: {'; '.join(reasons) or 'nobody else is in the ISR'}", 0

    async def _fetch(self, peer: NodeId, replica: Replica, offset: int) -> bytes:
        """Return the batches from this offset on that another broker holds. Raises `NothingToPutBack`."""
        endpoint = self.replicas.metadata.endpoint_of(peer)
        if endpoint is None:
            raise NothingToPutBack("not registered")
        connection = Connection(self.world, endpoint, f"broker-{self.replicas.node_id}-scrubber", self.access)
        try:
            await connection.open(timeout_ms=TIMEOUT_MS)
            answer = await connection.send(fetch.EXCHANGE, _request(replica, offset), timeout_ms=TIMEOUT_MS)
        except (ConnectionLost, UnsupportedVersion) as problem:
            raise NothingToPutBack(str(problem)) from None
        except Exception as problem:  # noqa: BLE001  # the boundary of a link
            contain(self.world.journal, f"scrubbing with broker {peer}", problem)
            raise NothingToPutBack(type(problem).__name__) from None
        finally:
            connection.close()
        if answer.error_code is not Error.NONE:
            raise NothingToPutBack(answer.error_code.name)
        for topic in answer.responses:
            for partition in topic.partitions:
                if partition.error_code is not Error.NONE:
                    raise NothingToPutBack(partition.error_code.name)
                if partition.records:
                    return bytes(partition.records)
        raise NothingToPutBack("it has no records there")


def _is_there(replica: Replica, scrub: Scrub) -> bool:
    partition = replica.partition
    return replica.is_hosted and not partition.is_offline and partition.log is scrub.log and scrub.is_current


def _others_in_sync(partition: Partition) -> Iterator[NodeId]:
    """Yield the other members of the ISR, the leader first."""
    state = partition.state
    if state is not None:
        yield from sorted(
            (node for node in state.isr if node != partition.node_id), key=lambda node: node != state.leader
        )


def _request(replica: Replica, offset: int) -> fetch.FetchRequest:
    wanted = fetch.FetchPartition(
        partition=replica.name.partition,
        current_leader_epoch=replica.partition.leader_epoch,
        fetch_offset=offset,
        partition_max_bytes=ANSWER_BYTES_MAX,
    )
    return fetch.FetchRequest(
        max_bytes=ANSWER_BYTES_MAX,
        topics=[fetch.FetchTopic(topic_id=replica.key.topic_id, partitions=[wanted])],
        replica_state=fetch.ReplicaState(replica_id=DEBUGGING_CONSUMER),
    )
