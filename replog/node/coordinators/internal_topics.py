"""Finding coordinators, and making the topics that they live on when somebody first looks for one."""

from typing import Final, NamedTuple

import msgspec

from replog.config import NodeConfig
from replog.controller.authorization import Asker, Operation, Resource, Topics, group, transactional_id
from replog.controller.served_api import Parts, ServedApi
from replog.coordinators.placement import OFFSETS_TOPIC, TRANSACTIONS_TOPIC, partition_for
from replog.errors import Error
from replog.node.net.controller_link import ControllerLink, NoController
from replog.node.net.handlers import AnswersApi, HandledApi
from replog.node.net.server import ServerRequest
from replog.node.replication.replicas import Replicas
from replog.node.tasks import Tasks
from replog.types import NO_NODE, NodeId
from replog.wire.messages import create_topics as ct
from replog.wire.messages import find_coordinator as fc

FIRST_VERSION_WITH_BATCHES: Final = 4  # of FindCoordinator
CREATION_TIMEOUT_MS: Final = 10_000
GROUP: Final = 0
TRANSACTION: Final = 1
TOPICS: Final = {GROUP: OFFSETS_TOPIC, TRANSACTION: TRANSACTIONS_TOPIC}  # by the request's key type


class Place(NamedTuple):
    """Where a coordinator is to be found, or why that is not known."""

    error: Error
    node_id: NodeId = NO_NODE
    host: str = ""
    port: int = -1


class InternalTopics:
    """The topics of the coordinators."""

    def __init__(self, config: NodeConfig, replicas: Replicas, link: ControllerLink, tasks: Tasks) -> None:
        self.config = config
        self.replicas = replicas
        self.link = link
        self.tasks = tasks
        self._creating: dict[str, None] = {}

    def find_coordinator(self, request: ServerRequest[fc.FindCoordinatorRequest, fc.FindCoordinatorResponse]) -> None:
        """FindCoordinator: one key before version 4, any number since."""
        body = request.body
        if request.version < FIRST_VERSION_WITH_BATCHES:
            place = self._place(body.key, body.key_type, request.listener)
            request.reply(
                fc.FindCoordinatorResponse(
                    error_code=place.error,
                    error_message=_words(place.error),
                    node_id=place.node_id,
                    host=place.host,
                    port=place.port,
                )
            )
            return
        coordinators = []
        for key in dict.fromkeys(body.coordinator_keys):
            place = self._place(key, body.key_type, request.listener)
            coordinators.append(
                fc.Coordinator(
                    key=key,
                    node_id=place.node_id,
                    host=place.host,
                    port=place.port,
                    error_code=place.error,
                    error_message=_words(place.error),
                )
            )
        request.reply(fc.FindCoordinatorResponse(coordinators=coordinators))

    def leader_of(self, topic: str, partition: int) -> NodeId:
        """Return who leads a partition and is alive, -1 when nobody is."""
        image = self.replicas.metadata.image
        known = image.topics_by_name.get(topic)
        found = known.partitions.get(partition) if known is not None else None
        if found is None or found.leader == NO_NODE or not image.is_alive(found.leader):
            return NO_NODE
        return found.leader

    def coordinator_of(self, topic: str, key: str) -> NodeId:
        """Return who coordinates a key, -1 when that is not known."""
        known = self.replicas.metadata.image.topics_by_name.get(topic)
        return NO_NODE if known is None else self.leader_of(topic, partition_for(key, len(known.partitions)))

    def _place(self, key: str, key_type: int, listener: str) -> Place:
        topic = TOPICS.get(key_type)
        if topic is None or (key_type == TRANSACTION and not key):
            return Place(Error.INVALID_REQUEST)
        if topic not in self.replicas.metadata.image.topics_by_name:
            self._create_soon(topic)
            return Place(Error.COORDINATOR_NOT_AVAILABLE)
        leader = self.coordinator_of(topic, key)
        endpoint = self.replicas.metadata.endpoint_of(leader, listener)
        if leader == NO_NODE or endpoint is None:
            return Place(Error.COORDINATOR_NOT_AVAILABLE)
        return Place(Error.NONE, leader, endpoint.host, endpoint.port)

    def _create_soon(self, topic: str) -> None:
        if topic not in self._creating:
            self._creating[topic] = None
            self.tasks.start(self._create(topic))

    async def _create(self, topic: str) -> None:
        body = ct.CreateTopicsRequest(topics=[self._wanted(topic)], timeout_ms=CREATION_TIMEOUT_MS)
        journal = self.replicas.world.journal
        try:
            answer = await self.link.send(ct.EXCHANGE, body, timeout_ms=CREATION_TIMEOUT_MS)
        except NoController:
            return
        finally:
            self._creating.pop(topic, None)
        for created in answer.topics:
            if created.error_code is Error.NOT_CONTROLLER:
                self.link.drop()
            elif created.error_code not in (Error.NONE, Error.TOPIC_ALREADY_EXISTS):
                problem = f"{created.error_code.name} {created.error_message or ''}"
                journal.log("warning", f"creating {topic}: {problem}")

    def _wanted(self, topic: str) -> ct.CreatableTopic:
        groups, transactions = self.config.groups, self.config.transactions
        if topic == OFFSETS_TOPIC:
            partition_count = groups.offsets_topic_partition_count
            replication_factor = groups.offsets_topic_replication_factor
            segment_bytes = groups.offsets_topic_segment_bytes
            configs = {"compression.type": "producer"}
        else:
            partition_count = transactions.topic_partition_count
            replication_factor = transactions.topic_replication_factor
            segment_bytes = transactions.topic_segment_bytes
            # What a lost transaction record stands for cannot be made up later: no unclean leader here.
            configs = {
                "min.insync.replicas": str(transactions.topic_insync_replicas_min),
                "unclean.leader.election.enable": "false",
            }
        configs |= {"cleanup.policy": "compact", "segment.bytes": str(segment_bytes)}
        return ct.CreatableTopic(
            name=topic,
            num_partitions=partition_count,
            replication_factor=replication_factor,
            configs=[ct.CreatableTopicConfig(name=name, value=value) for name, value in sorted(configs.items())],
        )


def _words(error: Error) -> str | None:
    return None if error is Error.NONE else f"The coordinator cannot be told: {error.name}."


def _coordinated(body: fc.FindCoordinatorRequest, key: str) -> Resource:
    return transactional_id(key) if body.key_type == TRANSACTION else group(key)


def _finds_one(ask: Asker, body: fc.FindCoordinatorRequest) -> Error:
    """Ask for the one key of versions below 4, the empty one of the group without a name, too; of several each is decided by itself."""
    return Error.NONE if body.coordinator_keys else ask.error(Operation.DESCRIBE, _coordinated(body, body.key))


def _coordinator(body: msgspec.Struct, key: object, _: Topics) -> Resource:
    assert isinstance(body, fc.FindCoordinatorRequest)
    return _coordinated(body, str(key))


def _refused(body: fc.FindCoordinatorRequest, error: Error) -> fc.FindCoordinatorResponse:
    answer = fc.Coordinator
    coordinators = [answer(key=key, node_id=-1, port=-1, error_code=error) for key in body.coordinator_keys]
    if coordinators:
        return fc.FindCoordinatorResponse(coordinators=coordinators)
    return fc.FindCoordinatorResponse(error_code=error, node_id=-1, port=-1)


FIND_COORDINATOR: Final = HandledApi(
    ServedApi(
        fc.EXCHANGE,
        questions=(_finds_one,),
        parts=Parts(("coordinator_keys",), "coordinators", Operation.DESCRIBE, _coordinator),
        refuse=_refused,
    ),
    InternalTopics.find_coordinator,
)
APIS: Final[tuple[AnswersApi[InternalTopics], ...]] = (FIND_COORDINATOR,)
