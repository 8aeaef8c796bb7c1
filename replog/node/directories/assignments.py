"""Reporting to the controller in which log directory each replica lies (AssignReplicasToDirs, KIP-858).

The committed metadata is compared with what is here, and what differs is reported until it does not. So nothing has to be
remembered, and no answer is trusted: a controller that forgot gets the report again. A broker with one directory has something to
say only where that is another than it was, or replicas are of before directories were reported.
"""

import asyncio
from typing import Final
from uuid import UUID

from replog.broker.identity import BrokerIdentity
from replog.errors import Error
from replog.metadata.state import DIRECTORIES_LEVEL, UNASSIGNED
from replog.node.directories.log_directories import LogDirectories
from replog.node.net.controller_link import ControllerLink, NoController
from replog.node.replication.replicas import Replica, Replicas
from replog.node.tasks import Tasks
from replog.types import TopicIdPartition
from replog.wire.messages import assign_replicas_to_dirs as m

LOOK_MS: Final = 200
PAUSE_MS: Final = 500  # for the metadata to come back, or before the next try
TIMEOUT_MS: Final = 5_000
PARTITIONS_MAX: Final = 2_000


class DirectoryAssignments:
    """Keeps the committed directories of one broker's replicas true."""

    def __init__(
        self,
        replicas: Replicas,
        directories: LogDirectories,
        link: ControllerLink,
        tasks: Tasks,
        identity: BrokerIdentity,
    ) -> None:
        self.replicas = replicas
        self.directories = directories
        self.link = link
        self.tasks = tasks
        self.identity = identity
        self._is_reporting = False
        self._seen: tuple[int, int] = (-1, -1)

    def look(self) -> None:
        """Report what is not known, if anything can have changed since the last look."""
        now = (self.replicas.metadata.image.last_offset, len(self.replicas.offline))
        if now == self._seen or not self._may_report():
            return
        self._seen = now
        if self._unreported():
            self._is_reporting = True
            self.tasks.start(self._tell())

    def hosted(self, replica: Replica) -> None:
        """Look at one replica whose metadata changed: enough where there is one directory, nothing moves there."""
        if not self._may_report():
            return
        stored = self.directories.find(replica.name)
        directory = UNASSIGNED if stored is None else self.directories.ids.get(stored.directory, UNASSIGNED)
        if directory not in (UNASSIGNED, self._reported(replica.key)):
            self._is_reporting = True
            self.tasks.start(self._tell())

    def _may_report(self) -> bool:
        level = self.replicas.metadata.image.metadata_version
        return not self._is_reporting and self.identity.is_registered and level >= DIRECTORIES_LEVEL

    def moved(self) -> None:
        """Look again next time: a replica lies elsewhere now."""
        self._seen = (-1, -1)

    def _unreported(self) -> list[tuple[TopicIdPartition, UUID]]:
        """Return the replicas that lie elsewhere than the metadata says, and where."""
        here = [
            (replica.key, self.directories.ids[stored.directory])
            for replica in self.replicas
            if (stored := self.directories.find(replica.name)) is not None and stored.directory in self.directories.ids
        ]
        return [
            (key, directory)
            for key, directory in (*here, *self.replicas.offline.items())
            if directory not in (UNASSIGNED, self._reported(key))
        ]

    def _reported(self, key: TopicIdPartition) -> UUID:
        partition = self.replicas.metadata.image.partition(*key)
        return UNASSIGNED if partition is None else partition.directory_of(self.replicas.node_id)

    async def _tell(self) -> None:
        while unreported := self._unreported():
            try:
                answer = await self.link.send(
                    m.EXCHANGE, self._request(unreported[:PARTITIONS_MAX]), timeout_ms=TIMEOUT_MS
                )
            except NoController:
                pass
            else:
                if answer.error_code is Error.NOT_CONTROLLER:
                    self.link.drop()
                elif answer.error_code is not Error.NONE:
                    self.replicas.world.journal.log("warning", f"directories of replicas: {answer.error_code.name}")
            await asyncio.sleep(PAUSE_MS / 1000)
        self._is_reporting = False

    def _request(self, unreported: list[tuple[TopicIdPartition, UUID]]) -> m.AssignReplicasToDirsRequest:
        directories: dict[UUID, dict[UUID, list[m.AssignReplicasToDirsRequestPartitionData]]] = {}
        for key, directory in unreported:
            partitions = directories.setdefault(directory, {}).setdefault(key.topic_id, [])
            partitions.append(m.AssignReplicasToDirsRequestPartitionData(partition_index=key.partition))
        return m.AssignReplicasToDirsRequest(
            broker_id=self.replicas.node_id,
            broker_epoch=self.identity.broker_epoch,
            directories=[
                m.AssignReplicasToDirsRequestDirectoryData(
                    id_=directory,
                    topics=[
                        m.AssignReplicasToDirsRequestTopicData(topic_id=topic_id, partitions=partitions)
                        for topic_id, partitions in topics.items()
                    ],
                )
                for directory, topics in directories.items()
            ],
        )
