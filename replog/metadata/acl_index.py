"""The cluster's ACLs, by what they are of: found by a resource's name in time that does not grow with their number."""

from collections import Counter
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
        # By type of resource, how long prefixes are and how many: a name is as long as somebody likes, prefixes are not.
        self._prefix_lengths: dict[int, Counter[int]] = {}

    def id_of(self, acl: Acl) -> UUID | None:
        """Return the id of an entry that says just this; None when there is none."""
        return self._ids.get(acl)

    def put(self, acl_id: UUID, acl: Acl | None) -> None:
        """Add an entry, or remove it."""
        self.changes += 1
        known = self.by_id.pop(acl_id, None)
        if known is not None:
            self._ids.pop(known, None)
            self._remove(acl_id, known)
        if acl is not None:
            self.by_id[acl_id] = acl
            self._ids[acl] = acl_id
            self._by_place.setdefault(_place(acl), {})[acl_id] = acl
            if acl.pattern_type == PatternType.PREFIXED:
                self._prefix_lengths.setdefault(acl.resource_type, Counter())[len(acl.resource_name)] += 1

    def _remove(self, acl_id: UUID, acl: Acl) -> None:
        there = self._by_place[_place(acl)]
        del there[acl_id]
        if not there:
            del self._by_place[_place(acl)]
        if acl.pattern_type == PatternType.PREFIXED:
            lengths = self._prefix_lengths[acl.resource_type]
            lengths[len(acl.resource_name)] -= 1
            if not lengths[len(acl.resource_name)]:
                del lengths[len(acl.resource_name)]

    def of(self, resource_type: int, name: str) -> Iterator[Acl]:
        """Yield the entries whose pattern fits a resource."""
        places = self._by_place
        for literal in dict.fromkeys((name, ANYTHING)):
            yield from places.get((resource_type, PatternType.LITERAL, literal), {}).values()
        for length in self._prefix_lengths.get(resource_type, ()):
            if length <= len(name):
                yield from places.get((resource_type, PatternType.PREFIXED, name[:length]), {}).values()


def _place(acl: Acl) -> Place:
    return acl.resource_type, acl.pattern_type, acl.resource_name
