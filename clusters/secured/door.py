"""How the harness itself gets in at a node's listener: by which certificates, and as whom."""

import ssl
from typing import Final, NamedTuple

from replog.config.access import OPEN_DOOR, Access


class Door(NamedTuple):
    """The way in at a listener; without a context bytes are plain, without a mechanism nobody is asked who he is."""

    context: ssl.SSLContext | None
    access: Access


OPEN: Final = Door(None, OPEN_DOOR)
