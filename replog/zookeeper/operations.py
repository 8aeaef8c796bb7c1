"""What can be asked of ZooKeeper, what it answers, and how it says no: values, for cores, for both ports and for the model.

A transaction is a list of operations that all happen or none. Versions are those of a znode's data, -1 for any; a znode's
`czxid` is the id of the transaction that created it and grows over the whole ensemble: that is what a broker epoch is.
"""

from enum import StrEnum
from typing import Final

import msgspec

ANY_VERSION: Final = -1
NO_SESSION: Final = 0


class Stat(msgspec.Struct, frozen=True, kw_only=True):
    """What ZooKeeper knows of a znode besides its data.

    ephemeral_owner:  id of the session it dies with; 0: it stays.
    written_ms:       when its data was written, by the wall clock of the ensemble's leader; None: nobody says it.
    """

    czxid: int
    mzxid: int
    version: int
    ephemeral_owner: int = NO_SESSION
    written_ms: int | None = None


class Create(msgspec.Struct, frozen=True, kw_only=True, tag="create"):
    """Make a znode; sequential: a number is put behind its name."""

    path: str
    data: bytes = b""
    ephemeral: bool = False
    sequential: bool = False


class SetData(msgspec.Struct, frozen=True, kw_only=True, tag="set"):
    """Replace a znode's data if it has this version."""

    path: str
    data: bytes
    version: int


class Delete(msgspec.Struct, frozen=True, kw_only=True, tag="delete"):
    """Remove a znode without children if it has this version."""

    path: str
    version: int = ANY_VERSION


class Check(msgspec.Struct, frozen=True, kw_only=True, tag="check"):
    """Do nothing, but only if the znode has this version: what fences a deposed controller."""

    path: str
    version: int


Operation = Create | SetData | Delete | Check
Result = str | Stat | None  # the created path, the znode after SetData, nothing


class Watched(StrEnum):
    """What a watch saw."""

    CREATED = "created"
    DELETED = "deleted"
    DATA = "data"
    CHILDREN = "children"


class SessionState(StrEnum):
    """What became of the session."""

    CONNECTED = "connected"  # with the old session, or with a new one: its id shows which
    SUSPENDED = "suspended"  # no server can be reached; the session may live on
    EXPIRED = "expired"  # its ephemeral znodes are gone; a new session is being made


class ZooKeeperError(Exception):
    """ZooKeeper said no, or nothing."""


class NoNode(ZooKeeperError):
    """There is no such znode."""


class NodeExists(ZooKeeperError):
    """There is such a znode already."""


class BadVersion(ZooKeeperError):
    """The znode's data are of another version."""


class NotEmpty(ZooKeeperError):
    """The znode has children."""


class NoAuth(ZooKeeperError):
    """The znode's ACL does not allow it."""


class ConnectionLoss(ZooKeeperError):
    """No answer came: nobody knows whether it was done."""


class SessionExpired(ZooKeeperError):
    """The session ended: it was not done, and ephemeral znodes are gone."""


class Unreachable(ZooKeeperError):
    """No server of the ensemble answered within the time allowed; the message names them."""


ERRORS: Final[dict[str, type[ZooKeeperError]]] = {
    error.__name__: error
    for error in (NoNode, NodeExists, BadVersion, NotEmpty, NoAuth, ConnectionLoss, SessionExpired, Unreachable)
}
