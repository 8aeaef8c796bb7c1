"""Access control lists: what they say, which of them a filter means, and what they allow (KIP-11, KIP-290, KIP-801).

Deny comes before allow. An ACL is of one resource by name, of all by `*`, or of those whose names begin with a prefix. Numbers are Kafka's.
"""

from collections.abc import Iterable
from enum import IntEnum
from typing import Final, NamedTuple

import msgspec

ANYTHING: Final = "*"
EVERYBODY: Final = "User:*"


class ResourceType(IntEnum):
    """What an ACL is of."""

    UNKNOWN = 0
    ANY = 1
    TOPIC = 2
    GROUP = 3
    CLUSTER = 4
    TRANSACTIONAL_ID = 5
    DELEGATION_TOKEN = 6
    USER = 7


class PatternType(IntEnum):
    """How an ACL's name, or a filter's, is meant."""

    UNKNOWN = 0
    ANY = 1
    MATCH = 2
    LITERAL = 3
    PREFIXED = 4


class Permission(IntEnum):
    """What an ACL does."""

    UNKNOWN = 0
    ANY = 1
    DENY = 2
    ALLOW = 3


class AclOperation(IntEnum):
    """What somebody wants to do."""

    UNKNOWN = 0
    ANY = 1
    ALL = 2
    READ = 3
    WRITE = 4
    CREATE = 5
    DELETE = 6
    ALTER = 7
    DESCRIBE = 8
    CLUSTER_ACTION = 9
    DESCRIBE_CONFIGS = 10
    ALTER_CONFIGS = 11
    IDEMPOTENT_WRITE = 12
    CREATE_TOKENS = 13
    DESCRIBE_TOKENS = 14
    TWO_PHASE_COMMIT = 15


# Who may do one of these may do it, too.
IMPLIED_BY: Final = {
    AclOperation.DESCRIBE: frozenset(
        (AclOperation.READ, AclOperation.WRITE, AclOperation.DELETE, AclOperation.ALTER, AclOperation.DESCRIBE)
    ),
    AclOperation.DESCRIBE_CONFIGS: frozenset((AclOperation.ALTER_CONFIGS, AclOperation.DESCRIBE_CONFIGS)),
}


class Acl(msgspec.Struct, frozen=True, kw_only=True):
    """One entry."""

    resource_type: int
    resource_name: str
    pattern_type: int
    principal: str
    host: str
    operation: int
    permission: int

    def is_of(self, principal: str, host: str) -> bool:
        """Return whether it speaks of somebody who asks from this address."""
        return self.principal in (principal, EVERYBODY) and self.host in (host, ANYTHING)


class AclFilter(msgspec.Struct, frozen=True, kw_only=True):
    """Which entries are meant; None is any."""

    resource_type: int
    resource_name: str | None
    pattern_type: int
    principal: str | None
    host: str | None
    operation: int
    permission: int

    @property
    def is_known(self) -> bool:
        """Return whether nothing in it is of a later version than ours."""
        return all(
            number != 0 and number in list(kind)
            for number, kind in (
                (self.resource_type, ResourceType),
                (self.pattern_type, PatternType),
                (self.operation, AclOperation),
                (self.permission, Permission),
            )
        )

    def means(self, acl: Acl) -> bool:
        """Return whether an entry is meant."""
        return (
            self.resource_type in (ResourceType.ANY, acl.resource_type)
            and self._names(acl)
            and self.principal in (None, acl.principal)
            and self.host in (None, acl.host)
            and self.operation in (AclOperation.ANY, acl.operation)
            and self.permission in (Permission.ANY, acl.permission)
        )

    def _names(self, acl: Acl) -> bool:
        if self.pattern_type not in (PatternType.ANY, PatternType.MATCH, acl.pattern_type):
            return False
        name = self.resource_name
        if name is None or name == acl.resource_name:
            return True
        if self.pattern_type != PatternType.MATCH:
            return False
        return (
            name.startswith(acl.resource_name)
            if acl.pattern_type == PatternType.PREFIXED
            else acl.resource_name == ANYTHING
        )


class Wanted(NamedTuple):
    """What somebody asks for."""

    principal: str
    host: str
    operation: AclOperation
    resource_type: ResourceType
    resource_name: str


def permits(acls: Iterable[Acl], wanted: Wanted, *, without_any: bool) -> bool:
    """Return whether the entries of a resource let somebody do something.

    acls:         those whose pattern fits the resource, in any order.
    without_any:  the answer where there is none.
    """
    is_allowed, has_any = False, False
    for acl in acls:
        has_any = True
        if not acl.is_of(wanted.principal, wanted.host):
            continue
        if _denies(acl, wanted):
            return False
        is_allowed = is_allowed or _allows(acl, wanted)
    return is_allowed if has_any else without_any


def permits_some(acls: Iterable[Acl], wanted: Wanted, *, without_any: bool) -> bool:
    """Return whether there is a name at all with which somebody may do something (KIP-679), whatever exists so far.

    acls:         all entries, in any order.
    without_any:  the answer where there is none for all names.
    """
    of_kind = [acl for acl in acls if acl.resource_type == wanted.resource_type]
    if permits((acl for acl in of_kind if _is_of_all_names(acl)), wanted, without_any=without_any):
        return True
    of_asker = [acl for acl in of_kind if acl.is_of(wanted.principal, wanted.host)]
    denied = [acl for acl in of_asker if _denies(acl, wanted)]
    return any(_allows(acl, wanted) and not any(_covers(deny, acl) for deny in denied) for acl in of_asker)


def _allows(acl: Acl, wanted: Wanted) -> bool:
    enough = IMPLIED_BY.get(wanted.operation, (wanted.operation,))
    return acl.permission == Permission.ALLOW and (acl.operation == AclOperation.ALL or acl.operation in enough)


def _denies(acl: Acl, wanted: Wanted) -> bool:
    return acl.permission == Permission.DENY and acl.operation in (AclOperation.ALL, wanted.operation)


def _is_of_all_names(acl: Acl) -> bool:
    return acl.pattern_type == PatternType.LITERAL and acl.resource_name == ANYTHING


def _covers(deny: Acl, allow: Acl) -> bool:
    """Return whether all names that an entry is of are those of another, too."""
    if _is_of_all_names(deny):
        return True
    if deny.pattern_type == PatternType.PREFIXED:
        return allow.resource_name.startswith(deny.resource_name) and not _is_of_all_names(allow)
    return allow.pattern_type == PatternType.LITERAL and allow.resource_name == deny.resource_name
