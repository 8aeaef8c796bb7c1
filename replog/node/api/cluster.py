"""What clients ask about the cluster, answered from the broker's image: Metadata and descriptions.

An answer is as old as the image; clients refresh when they are answered NOT_LEADER_OR_FOLLOWER. The "controller" that clients
see is the broker they ask: admin requests are forwarded from everywhere (KIP-590).
"""

from collections.abc import Callable
from functools import partial
from typing import Final

from replog.broker.topic_settings import TopicSettings
from replog.config import NodeConfig
from replog.controller import config_requests, configs
from replog.controller.admin_requests import CREATE_TOPICS
from replog.controller.authorization import May, Operation, allow_all, of_cluster
from replog.controller.describe import INTERNAL_TOPICS, InvalidCursor, page
from replog.controller.served_api import ServedApi, Unasked
from replog.controller.topics import BROKER_DEFAULT, invalid_name
from replog.distinct import distinct
from replog.errors import Error
from replog.metadata.features import SUPPORTED, finalized
from replog.metadata.image import Image
from replog.metadata.state import (
    BROKER_RESOURCE,
    CLIENT_METRICS_RESOURCE,
    GROUP_RESOURCE,
    TOPIC_RESOURCE,
    Broker,
    Topic,
)
from replog.node.api.authorizer import Authorizer
from replog.node.api.described_partitions import DescribedPartitions
from replog.node.api.forwarding import Asker, counts_for, send_enclosed
from replog.node.api.standard_authorizer import hook_of
from replog.node.net.controller_link import ControllerLink, NoController
from replog.node.net.handlers import AnswersApi, HandledApi
from replog.node.net.server import ServerRequest
from replog.node.replication.replicas import Replicas
from replog.node.tasks import Tasks
from replog.types import METADATA_TOPIC, ZERO_UUID
from replog.wire.apis import CONTROLLER_APIS, Api
from replog.wire.messages import api_versions as av
from replog.wire.messages import create_topics as ct
from replog.wire.messages import describe_cluster as dc
from replog.wire.messages import describe_configs as dconf
from replog.wire.messages import describe_topic_partitions as dtp
from replog.wire.messages import list_config_resources as lcr
from replog.wire.messages import metadata as md

FIRST_VERSION_WITH_EMPTY_FOR_NONE: Final = 1  # of Metadata: v0 says "all topics" by naming none
FIRST_VERSION_WITH_IDS: Final = 12  # v10 and v11 can ask by id, and have no answer without a name
CREATION_TIMEOUT_MS: Final = 10_000
BROKERS: Final = 1  # DescribeCluster's endpoint type
BROKER_LOGGER_RESOURCE: Final = 8
# What each version of ListConfigResources may ask for (KIP-1142).
CONFIG_RESOURCES: Final = (
    (CLIENT_METRICS_RESOURCE,),
    (TOPIC_RESOURCE, BROKER_RESOURCE, BROKER_LOGGER_RESOURCE, CLIENT_METRICS_RESOURCE, GROUP_RESOURCE),
)


class ClusterApi:
    """Descriptions for clients."""

    def __init__(
        self,
        config: NodeConfig,
        replicas: Replicas,
        link: ControllerLink,
        tasks: Tasks,
        *,
        may: May = allow_all,
        voters_in_log: Callable[[], bool] = lambda: False,
    ) -> None:
        self.config = config
        self.replicas = replicas
        self.link = link
        self.tasks = tasks
        self.settings = TopicSettings(config)
        self.authorizer = Authorizer(hook_of(config.security, lambda: self.image, may), lambda: self.image)
        self._voters_in_log = voters_in_log
        self._creating: dict[str, None] = {}
        self._described = DescribedPartitions()

    @property
    def image(self) -> Image:
        """The committed metadata, as far as it has come here."""
        return self.replicas.metadata.image

    def features(self) -> av.ApiVersionsResponse:
        """Return the feature fields of an ApiVersions answer."""
        return av.ApiVersionsResponse(
            supported_features=[
                av.SupportedFeatureKey(name=name, min_version=levels.lowest, max_version=levels.highest)
                for name, levels in SUPPORTED.items()
            ],
            finalized_features=[
                av.FinalizedFeatureKey(name=name, min_version_level=level, max_version_level=level)
                for name, level in finalized(self.image.features, voters_in_log=self._voters_in_log()).items()
            ],
            finalized_features_epoch=self.image.last_offset,
        )

    # Metadata

    def metadata(self, request: ServerRequest[md.MetadataRequest, md.MetadataResponse]) -> None:
        """Answer with brokers and topics; ask for the creation of missing topics where the client may."""
        body, peer = request.body, request.peer
        wants_all = body.topics is None or (not body.topics and request.version < FIRST_VERSION_WITH_EMPTY_FOR_NONE)
        if wants_all:
            names = [name for name in sorted(self.image.topics_by_name) if self.authorizer.may_describe(peer, name)]
            topics = [self._topic(self.image.topics_by_name[name]) for name in names]
        elif request.version < FIRST_VERSION_WITH_IDS and not all(map(_is_by_name, body.topics or [])):
            topics = [
                md.MetadataResponseTopic(error_code=Error.INVALID_REQUEST, name=wanted.name or "")
                for wanted in body.topics or []
            ]
        else:
            may_create = body.allow_auto_topic_creation and self.config.topics.auto_create_enable
            wanted_once = distinct(body.topics or [], lambda wanted: (wanted.topic_id, wanted.name))
            asker = Asker(peer, request.client_id)
            topics = [self._wanted_topic(asker, wanted, may_create=may_create) for wanted in wanted_once]
        request.reply(
            md.MetadataResponse(
                brokers=[
                    md.MetadataResponseBroker(node_id=broker.broker_id, host=host, port=port, rack=broker.rack)
                    for broker, host, port in self._alive_brokers(request.listener)
                ],
                cluster_id=self.config.cluster_id,
                controller_id=self.config.node_id,
                topics=topics,
            )
        )

    def _alive_brokers(self, listener: str) -> list[tuple[Broker, str, int]]:
        return [
            (broker, address.host, address.port)
            for _, broker in sorted(self.image.brokers.items())
            if not broker.fenced and (address := broker.endpoint(listener)) is not None
        ]

    def _wanted_topic(
        self, asker: Asker, wanted: md.MetadataRequestTopic, *, may_create: bool
    ) -> md.MetadataResponseTopic:
        peer = asker.peer
        if wanted.topic_id != ZERO_UUID:
            topic = self.image.topics.get(wanted.topic_id)
            if topic is None:
                return md.MetadataResponseTopic(error_code=Error.UNKNOWN_TOPIC_ID, name=None, topic_id=wanted.topic_id)
            if not self.authorizer.may_describe(peer, topic.name):
                error = Error.TOPIC_AUTHORIZATION_FAILED  # without its name: that is not the caller's to know
                return md.MetadataResponseTopic(error_code=error, name=None, topic_id=wanted.topic_id)
            return self._topic(topic)
        name = wanted.name or ""
        if not self.authorizer.may_describe(peer, name):
            return md.MetadataResponseTopic(error_code=Error.TOPIC_AUTHORIZATION_FAILED, name=name)
        topic = self.image.topics_by_name.get(name)
        if topic is not None:
            return self._topic(topic)
        return md.MetadataResponseTopic(error_code=self._missing(asker, name, may_create=may_create), name=name)

    def _missing(self, asker: Asker, name: str, *, may_create: bool) -> Error:
        if invalid_name(self.image, name) is not None:
            return Error.INVALID_TOPIC_EXCEPTION
        if not may_create or name in INTERNAL_TOPICS or name == METADATA_TOPIC:
            return Error.UNKNOWN_TOPIC_OR_PARTITION
        if not self.authorizer.may_create(asker.peer, name):
            return Error.TOPIC_AUTHORIZATION_FAILED
        if name not in self._creating:
            self._creating[name] = None
            self.tasks.start(self._create(name, asker))
        return Error.LEADER_NOT_AVAILABLE  # come back in a moment

    async def _create(self, name: str, asker: Asker) -> None:
        # What this broker's file does not say, the controller decides by its own.
        stated, topics = self.config.stated, self.config.topics
        count = topics.partition_count if "num.partitions" in stated else BROKER_DEFAULT
        factor = topics.replication_factor if "default.replication.factor" in stated else BROKER_DEFAULT
        body = ct.CreateTopicsRequest(
            topics=[
                ct.CreatableTopic(
                    name=name,
                    num_partitions=count,
                    replication_factor=factor,
                )
            ],
            timeout_ms=CREATION_TIMEOUT_MS,
        )
        try:
            if counts_for(asker, self.image.client_quotas):
                served, version = CREATE_TOPICS.served, CONTROLLER_APIS[Api.CREATE_TOPICS].last
                answer = await send_enclosed(self.link, served, body, version, CREATION_TIMEOUT_MS, asker)
            else:
                answer = await self.link.send(ct.EXCHANGE, body, timeout_ms=CREATION_TIMEOUT_MS)
        except NoController:
            return
        finally:
            self._creating.pop(name, None)
        for topic in answer.topics:
            if topic.error_code not in (Error.NONE, Error.TOPIC_ALREADY_EXISTS):
                journal = self.replicas.world.journal
                journal.log("warning", f"creating topic {name!r}: {topic.error_code.name} {topic.error_message or ''}")
            if topic.error_code is Error.NOT_CONTROLLER:
                self.link.drop()

    def _topic(self, topic: Topic) -> md.MetadataResponseTopic:
        return md.MetadataResponseTopic(
            name=topic.name,
            topic_id=topic.topic_id,
            is_internal=topic.name in INTERNAL_TOPICS,
            partitions=self._described.of(self.image, topic),
        )

    # Descriptions

    def describe_cluster(self, request: ServerRequest[dc.DescribeClusterRequest, dc.DescribeClusterResponse]) -> None:
        """Answer who the brokers are."""
        body = request.body
        if body.endpoint_type != BROKERS:
            request.reply(
                dc.DescribeClusterResponse(
                    error_code=Error.MISMATCHED_ENDPOINT_TYPE,
                    error_message="brokers know the endpoints of brokers",
                    endpoint_type=BROKERS,
                    cluster_id=self.config.cluster_id,
                )
            )
            return
        brokers = [
            dc.DescribeClusterBroker(
                broker_id=broker.broker_id,
                host=address.host,
                port=address.port,
                rack=broker.rack,
                is_fenced=broker.fenced,
            )
            for _, broker in sorted(self.image.brokers.items())
            if (address := broker.endpoint(request.listener)) and (body.include_fenced_brokers or not broker.fenced)
        ]
        request.reply(
            dc.DescribeClusterResponse(
                cluster_id=self.config.cluster_id, controller_id=self.config.node_id, brokers=brokers
            )
        )

    def describe_topic_partitions(
        self, request: ServerRequest[dtp.DescribeTopicPartitionsRequest, dtp.DescribeTopicPartitionsResponse]
    ) -> None:
        """Answer with one page of topics (KIP-966)."""
        limit = self.config.network.request_partition_count_max
        try:
            request.reply(page(self.image, request.body, limit, partial(self.authorizer.may_describe, request.peer)))
        except InvalidCursor as problem:
            # The answer has no error code at its top: each topic asked for carries it.
            cursor = request.body.cursor
            names = [topic.name for topic in request.body.topics] or ([] if cursor is None else [cursor.topic_name])
            journal = self.replicas.world.journal
            journal.log("debug", f"DescribeTopicPartitions: {problem}")
            request.reply(
                dtp.DescribeTopicPartitionsResponse(
                    topics=[
                        dtp.DescribeTopicPartitionsResponseTopic(error_code=Error.INVALID_REQUEST, name=name)
                        for name in names
                    ]
                )
            )

    def describe_configs(
        self, request: ServerRequest[dconf.DescribeConfigsRequest, dconf.DescribeConfigsResponse]
    ) -> None:
        """Answer with the effective configs of topics, brokers and groups, and with how much this node writes down."""
        body = request.body
        resources = distinct(body.resources, lambda resource: (resource.resource_type, resource.resource_name))
        level = self.replicas.world.journal.level
        results = [
            configs.describe_loggers(self.config.node_id, level, resource)
            if resource.resource_type == BROKER_LOGGER_RESOURCE
            else configs.describe(
                self.image,
                self.config.texts,
                resource,
                with_synonyms=body.include_synonyms,
                with_documentation=body.include_documentation,
            )
            for resource in resources
        ]
        request.reply(dconf.DescribeConfigsResponse(results=results))

    def list_config_resources(
        self, request: ServerRequest[lcr.ListConfigResourcesRequest, lcr.ListConfigResourcesResponse]
    ) -> None:
        """Answer what may have configs: topics and brokers, and groups that have some; subscriptions of client metrics there are none."""
        known = CONFIG_RESOURCES[request.version]
        wanted = distinct(request.body.resource_types or known, lambda resource_type: resource_type)
        if any(resource_type not in known for resource_type in wanted):
            request.reply(lcr.ListConfigResourcesResponse(error_code=Error.UNSUPPORTED_VERSION))
            return
        brokers = [str(broker_id) for broker_id in sorted(self.image.brokers)]
        names = {
            TOPIC_RESOURCE: sorted(self.image.topics_by_name),
            BROKER_RESOURCE: brokers,
            BROKER_LOGGER_RESOURCE: brokers,
            GROUP_RESOURCE: sorted(name for kind, name in self.image.configs if kind == GROUP_RESOURCE),
        }
        resources = [
            lcr.ConfigResource(resource_name=name, resource_type=resource_type)
            for resource_type in wanted
            for name in names.get(resource_type, [])
        ]
        request.reply(lcr.ListConfigResourcesResponse(config_resources=resources))


def _is_by_name(wanted: md.MetadataRequestTopic) -> bool:
    return wanted.name is not None and wanted.topic_id == ZERO_UUID


METADATA: Final = HandledApi(ServedApi(md.EXCHANGE, unasked=Unasked.WHERE_ANSWERED), ClusterApi.metadata)
DESCRIBE_CLUSTER: Final = HandledApi(ServedApi(dc.EXCHANGE, unasked=Unasked.EVERYBODYS), ClusterApi.describe_cluster)
DESCRIBE_TOPIC_PARTITIONS: Final = HandledApi(
    ServedApi(dtp.EXCHANGE, unasked=Unasked.WHERE_ANSWERED), ClusterApi.describe_topic_partitions
)
DESCRIBE_CONFIGS: Final = HandledApi(config_requests.DESCRIBE_CONFIGS.served, ClusterApi.describe_configs)
LIST_CONFIG_RESOURCES: Final = HandledApi(
    ServedApi(lcr.EXCHANGE, questions=(of_cluster(Operation.DESCRIBE_CONFIGS),)), ClusterApi.list_config_resources
)
APIS: Final[tuple[AnswersApi[ClusterApi], ...]] = (
    METADATA,
    DESCRIBE_CLUSTER,
    DESCRIBE_TOPIC_PARTITIONS,
    DESCRIBE_CONFIGS,
    LIST_CONFIG_RESOURCES,
)
