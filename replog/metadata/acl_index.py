"""The cluster's ACLs, by what they are of: found by a resource's name in time that does not grow with their number."""

from collections.abc import Iterator
from uuid import UUID

from replog.security.acls import ANYTHING, Acl, PatternType

Place = tuple[int, int, str]  # type of resource, of pattern, name


class AclIndex:
    """All entries of one image.

    changes:  how often it has changed: who remembers answers asks again.
    """

    def __init__(self) -> None:
        self.by_id: dict[UUID, Acl] = {}
        self.changes = 0
        self._by_place: dict[Place, dict[UUID, Acl]] = {}
        self._ids: dict[Acl, UUID] = {}

    def id_of(self, acl: Acl) -> UUID | None:
        """Return the id of an entry that says just this; None when there is none."""
        return self._ids.get(acl)

    def put(self, acl_id: UUID, acl: Acl | None) -> None:
        """Add an entry, or remove it."""
        self.changes += 1
        known = self.by_id.pop(acl_id, None)
        if known is not None:
            self._ids.pop(known, None)
            there = self._by_place[_place(known)]
            del there[acl_id]
            if not there:
                del self._by_place[_place(known)]
        if acl is not None:
            self.by_id[acl_id] = acl
            self._ids[acl] = acl_id
            self._by_place.setdefault(_place(acl), {})[acl_id] = acl

    def of(self, resource_type: int, name: str) -> Iterator[Acl]:
        """Yield the entries whose pattern fits a resource."""
        places = self._by_place
        for literal in dict.fromkeys((name, ANYTHING)):
            yield from places.get((resource_type, PatternType.LITERAL, literal), {}).values()
        for end in range(len(name) + 1):
            found = places.get((resource_type, PatternType.PREFIXED, name[:end]))
            if found is not None:
                yield from found.values()


def _place(acl: Acl) -> Place:
    return acl.resource_type, acl.pattern_type, acl.resource_name
