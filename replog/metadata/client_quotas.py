"""Quotas of users, clients and addresses, as the metadata log has them (KIP-546, KIP-612), and which of them holds for whom.

An entity is a set of parts, sorted: `("client-id", "app"), ("user", "alice")`. A part without a name (None) is the default of its type: it
holds for whoever has none of his own.
"""

from collections.abc import Iterator, Mapping
from typing import Final, NamedTuple

USER: Final = "user"
CLIENT_ID: Final = "client-id"
IP: Final = "ip"
PRODUCER_RATE: Final = "producer_byte_rate"
CONSUMER_RATE: Final = "consumer_byte_rate"
REQUEST_PERCENTAGE: Final = "request_percentage"  # of one thread's time (KIP-124)
MUTATION_RATE: Final = "controller_mutation_rate"  # partitions created and deleted in a second (KIP-599)
CONNECTION_RATE: Final = "connection_creation_rate"  # new connections from an address in a second (KIP-612)

Entity = tuple[tuple[str, str | None], ...]


class Share(NamedTuple):
    """A limit that holds for somebody, and whose requests count together: an empty name counts all of them."""

    user: str
    client_id: str
    limit: float  # in the unit of its key, a second


def entity_of(parts: Mapping[str, str | None]) -> Entity:
    """Return the entity of these parts."""
    return tuple(sorted(parts.items()))


def order(entity: Entity) -> list[tuple[str, bool, str]]:
    """Sort key of entities: names that there are come before the default of their type."""
    return [(kind, name is None, name or "") for kind, name in entity]


class ClientQuotas:
    """All that are set."""

    def __init__(self) -> None:
        self.by_entity: dict[Entity, dict[str, float]] = {}

    def value(self, entity: Entity, key: str) -> float | None:
        """Return what is set."""
        return self.by_entity.get(entity, {}).get(key)

    def put(self, entity: Entity, key: str, value: float | None) -> None:
        """Set a quota, or remove it."""
        values = self.by_entity.setdefault(entity, {})
        if value is None:
            values.pop(key, None)
        else:
            values[key] = value
        if not values:
            del self.by_entity[entity]

    def in_order(self) -> Iterator[tuple[Entity, str, float]]:
        """Yield each quota, always in the same order."""
        for entity in sorted(self.by_entity, key=order):
            for key, value in sorted(self.by_entity[entity].items()):
                yield entity, key, value

    def share_of(self, key: str, user: str, client_id: str) -> Share | None:
        """Return the limit of this key that holds for a user and what his client calls itself; the nearest one, as Kafka chooses it."""
        if not self.by_entity:
            return None
        for parts, counted_user, counted_client in _nearest_first(user, client_id):
            limit = self.value(entity_of(parts), key)
            if limit is not None:
                return Share(counted_user, counted_client, limit)
        return None

    def connection_rate(self, host: str) -> float | None:
        """Return how many connections in a second may come from an address: its own limit before the default."""
        if not self.by_entity:
            return None
        own = self.value(((IP, host),), CONNECTION_RATE)
        return self.value(((IP, None),), CONNECTION_RATE) if own is None else own


def _nearest_first(user: str, client_id: str) -> Iterator[tuple[dict[str, str | None], str, str]]:
    """Yield the entities that somebody is part of, and whose requests count together where its quota holds."""
    for user_part in (user, None):
        for client_part in (client_id, None):
            yield {USER: user_part, CLIENT_ID: client_part}, user, client_id
        yield {USER: user_part}, user, ""
    for client_part in (client_id, None):
        yield {CLIENT_ID: client_part}, "", client_id
