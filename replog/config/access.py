"""How a client gets in at a listener: what a connection needs to know beyond the address."""

from typing import Final

import msgspec


class Access(msgspec.Struct, frozen=True, kw_only=True):
    """How to get in at a peer's listener.

    has_tls:    with this process's own certificate, where it has one.
    mechanism:  SASL's; empty where nobody is asked who he is.
    """

    has_tls: bool = False
    mechanism: str = ""
    user: str = ""
    password: str = ""


OPEN_DOOR: Final = Access()
