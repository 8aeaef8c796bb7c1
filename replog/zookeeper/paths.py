"""Where Kafka keeps what in ZooKeeper."""

from typing import Final

from replog.types import TopicPartition

BROKER_IDS: Final = "/brokers/ids"
TOPICS: Final = "/brokers/topics"
CONTROLLER: Final = "/controller"
CONTROLLER_EPOCH: Final = "/controller_epoch"
CLUSTER_ID: Final = "/cluster/id"
TOPIC_CONFIGS: Final = "/config/topics"
BROKER_CONFIGS: Final = "/config/brokers"
DEFAULT_ENTITY: Final = "<default>"
CONFIG_CHANGES: Final = "/config/changes"
CONFIG_CHANGE: Final = f"{CONFIG_CHANGES}/config_change_"
DELETE_TOPICS: Final = "/admin/delete_topics"
PRODUCER_IDS: Final = "/latest_producer_id_block"

# What has to be there before anything else; parents come first.
PERSISTENT: Final = (
    "/brokers",
    BROKER_IDS,
    TOPICS,
    "/cluster",
    "/config",
    TOPIC_CONFIGS,
    BROKER_CONFIGS,
    CONFIG_CHANGES,
    "/admin",
    DELETE_TOPICS,
)


def broker(node: int) -> str:
    """Return a broker's registration."""
    return f"{BROKER_IDS}/{node}"


def topic(name: str) -> str:
    """Return a topic's assignment."""
    return f"{TOPICS}/{name}"


def partitions(name: str) -> str:
    """Return the parent of a topic's partitions."""
    return f"{TOPICS}/{name}/partitions"


def partition(key: TopicPartition) -> str:
    """Return the parent of a partition's state."""
    return f"{TOPICS}/{key.topic}/partitions/{key.partition}"


def state(key: TopicPartition) -> str:
    """Return a partition's state."""
    return f"{partition(key)}/state"


def topic_config(name: str) -> str:
    """Return a topic's configuration."""
    return f"{TOPIC_CONFIGS}/{name}"


def broker_config(name: str) -> str:
    """Return a broker's dynamic configuration; the empty name is the whole cluster's."""
    return f"{BROKER_CONFIGS}/{name or DEFAULT_ENTITY}"


def deletion(name: str) -> str:
    """Return the mark of a topic that is to be deleted."""
    return f"{DELETE_TOPICS}/{name}"
