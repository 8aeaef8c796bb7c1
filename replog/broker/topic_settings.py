"""What the committed configuration says of a topic: how its logs behave, and how many replicas must be in sync.

A topic's own value wins over the broker's own dynamic one, that over the cluster's dynamic default, and that over the node's
file (SPEC 2.11). Values were checked
when they were set; they are text in the metadata log.
"""

from typing import Final

import msgspec

from replog.config import NodeConfig
from replog.config.log import LogConfig
from replog.config.setting import definitions_of
from replog.controller.configs import topic_value
from replog.controller.policy import MIN_ISR
from replog.log.settings import LogSettings
from replog.metadata.image import Image
from replog.metadata.state import BROKER_RESOURCE, CLUSTER_DEFAULT, TOPIC_RESOURCE

REMEMBERED_MAX: Final = 1000
OF_LOGS: Final = tuple(definition for definition in definitions_of(LogConfig) if definition.setting.topic)


# What a topic, this broker and the cluster have of their own, by names.
_Own = tuple[tuple[tuple[str, str], ...], ...]


class TopicSettings:
    """Effective settings of topics, by the image and the node's own file."""

    def __init__(self, config: NodeConfig) -> None:
        self.config = config
        self._broker = str(config.node_id)
        self._of_logs: dict[_Own, LogSettings] = {}  # most topics have nothing of their own

    def min_insync_replicas(self, image: Image, topic: str) -> int:
        """Return the configured minimum; the replication factor caps it elsewhere."""
        return int(self._text(image, topic, MIN_ISR))

    def of_log(self, image: Image, topic: str) -> LogSettings:
        """Return how the topic's logs behave; logs of the same settings share them."""
        own = tuple(
            tuple(image.configs.get(resource, {}).items())
            for resource in (
                (TOPIC_RESOURCE, topic),
                (BROKER_RESOURCE, self._broker),
                (BROKER_RESOURCE, CLUSTER_DEFAULT),
            )
        )
        known = self._of_logs.get(own)
        if known is not None:
            return known
        if len(self._of_logs) >= REMEMBERED_MAX:
            self._of_logs.clear()
        effective = {each.field: each.parsed(self._text(image, topic, each.setting.topic)) for each in OF_LOGS}
        found = self._of_logs[own] = LogSettings.of(msgspec.structs.replace(self.config.log, **effective))
        return found

    def _text(self, image: Image, topic: str, name: str) -> str:
        return topic_value(image, self.config.texts, topic, name, broker=self._broker)[0]
