"""Which topics the members of a consumer group are subscribed to: their offsets are in use."""

from struct import Struct
from typing import TYPE_CHECKING, Final

from replog.wire.codec import decode_struct
from replog.wire.decoder import MalformedMessage
from replog.wire.records.consumer_protocol import ConsumerProtocolSubscription

if TYPE_CHECKING:
    from replog.coordinators.classic_group import ClassicGroup

CONSUMER: Final = "consumer"
VERSION: Final = Struct(">h")
NEWEST_VERSION: Final = 3  # a later one has the same beginning


def subscribed_topics(group: "ClassicGroup | None") -> dict[str, None] | None:
    """Return the topics in use, None when that is unknown and all have to be taken for it."""
    if group is None or not group.members:
        return {}
    if group.protocol_type != CONSUMER or group.protocol is None:
        return None
    topics: dict[str, None] = {}
    for member in group.members.values():
        metadata = member.protocols.get(group.protocol, b"")
        if len(metadata) < VERSION.size:
            return None
        version = max(0, min(VERSION.unpack_from(metadata)[0], NEWEST_VERSION))
        try:
            subscription = decode_struct(ConsumerProtocolSubscription, version, memoryview(metadata)[VERSION.size :])
        except MalformedMessage:
            return None
        topics.update(dict.fromkeys(subscription.topics))
    return topics
