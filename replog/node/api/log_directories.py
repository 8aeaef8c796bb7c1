"""What clients ask about log directories: what lies where (DescribeLogDirs), and to move it (AlterReplicaLogDirs)."""

from typing import Final

from replog.controller.authorization import Operation, of_cluster
from replog.controller.served_api import ServedApi
from replog.errors import Error
from replog.node.directories.log_directories import LogDirectories, StoredLog
from replog.node.directories.moves import DirectoryMoves
from replog.node.net.handlers import AnswersApi, HandledApi
from replog.node.net.server import ServerRequest
from replog.node.replication.replicas import Replicas
from replog.types import TopicPartition
from replog.wire.messages import alter_replica_log_dirs as alter
from replog.wire.messages import describe_log_dirs as dl


class DirectoryApi:
    """Answers of one broker."""

    def __init__(self, replicas: Replicas, directories: LogDirectories, moves: DirectoryMoves) -> None:
        self.replicas = replicas
        self.directories = directories
        self.moves = moves

    def alter(
        self, request: ServerRequest[alter.AlterReplicaLogDirsRequest, alter.AlterReplicaLogDirsResponse]
    ) -> None:
        """AlterReplicaLogDirs: say of each replica whether its move begins."""
        body = request.body
        topics: dict[str, list[alter.AlterReplicaLogDirPartitionResult]] = {}
        for directory in body.dirs:
            for topic in directory.topics:
                for index in topic.partitions:
                    error = self.moves.move(TopicPartition(topic.name, index), directory.path)
                    result = alter.AlterReplicaLogDirPartitionResult(partition_index=index, error_code=error)
                    topics.setdefault(topic.name, []).append(result)
        results = [
            alter.AlterReplicaLogDirTopicResult(topic_name=name, partitions=results) for name, results in topics.items()
        ]
        request.reply(alter.AlterReplicaLogDirsResponse(results=results))

    def describe(self, request: ServerRequest[dl.DescribeLogDirsRequest, dl.DescribeLogDirsResponse]) -> None:
        """DescribeLogDirs: what lies in our directories, how far each copy lags behind, how much room there is."""
        body = request.body
        wanted: dict[TopicPartition, None] | None = None
        if body.topics is not None:
            wanted = {TopicPartition(topic.topic, index): None for topic in body.topics for index in topic.partitions}
        request.reply(
            dl.DescribeLogDirsResponse(results=[self._directory(path, wanted) for path in self.directories.paths])
        )

    def _directory(self, path: str, wanted: dict[TopicPartition, None] | None) -> dl.DescribeLogDirsResult:
        if path in self.directories.offline:
            return dl.DescribeLogDirsResult(log_dir=path, error_code=Error.KAFKA_STORAGE_ERROR)
        topics: dict[str, list[dl.DescribeLogDirsPartition]] = {}
        for name, stored in sorted(self.directories.logs.items()):
            if stored.directory == path and (wanted is None or name in wanted):
                topics.setdefault(name.topic, []).append(self._stored(name, stored))
        for name, copy in sorted(self.moves.copies.items()):
            if copy.path.rpartition("/")[0] == path and (wanted is None or name in wanted):
                future = dl.DescribeLogDirsPartition(
                    partition_index=name.partition,
                    partition_size=copy.log.size,
                    offset_lag=max(0, copy.source.log_end_offset - copy.log.log_end_offset),
                    is_future_key=True,
                )
                topics.setdefault(name.topic, []).append(future)
        space = self.directories.world.disk.space(path)
        return dl.DescribeLogDirsResult(
            log_dir=path,
            topics=[dl.DescribeLogDirsTopic(name=topic, partitions=partitions) for topic, partitions in topics.items()],
            total_bytes=space.total_bytes,
            usable_bytes=space.usable_bytes,
            is_cordoned=path in self.directories.cordoned,
        )

    def _stored(self, name: TopicPartition, stored: StoredLog) -> dl.DescribeLogDirsPartition:
        replica = self.replicas.find(name)
        high_watermark = stored.high_watermark if replica is None else replica.partition.high_watermark
        return dl.DescribeLogDirsPartition(
            partition_index=name.partition,
            partition_size=stored.log.size,
            offset_lag=max(0, high_watermark - stored.log.log_end_offset),
        )


def _no_moves(body: alter.AlterReplicaLogDirsRequest, error: Error) -> alter.AlterReplicaLogDirsResponse:
    answer = alter.AlterReplicaLogDirPartitionResult
    results = [
        alter.AlterReplicaLogDirTopicResult(
            topic_name=topic.name,
            partitions=[answer(partition_index=index, error_code=error) for index in topic.partitions],
        )
        for directory in body.dirs
        for topic in directory.topics
    ]
    return alter.AlterReplicaLogDirsResponse(results=results)


ALTER_REPLICA_LOG_DIRS: Final = HandledApi(
    ServedApi(alter.EXCHANGE, questions=(of_cluster(Operation.ALTER),), refuse=_no_moves), DirectoryApi.alter
)
DESCRIBE_LOG_DIRS: Final = HandledApi(
    ServedApi(dl.EXCHANGE, questions=(of_cluster(Operation.DESCRIBE),)), DirectoryApi.describe
)
APIS: Final[tuple[AnswersApi[DirectoryApi], ...]] = (ALTER_REPLICA_LOG_DIRS, DESCRIBE_LOG_DIRS)
