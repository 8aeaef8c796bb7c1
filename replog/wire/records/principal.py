"""Who a client is, as a broker puts it into an envelope beside the client's request (KIP-590).

It starts with an int16 version. The layout is that of Apache Kafka's message schema (Apache License 2.0).
"""

from typing import Annotated, ClassVar

import msgspec

from replog.wire.layout import Layout, Wire


class DefaultPrincipalData(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    LAYOUT: ClassVar = Layout(key=-1, kind="data", versions="0-0", flexible="0+")
    type: Annotated[str, Wire("string", "0+")] = ""
    name: Annotated[str, Wire("string", "0+")] = ""
    token_authenticated: Annotated[bool, Wire("bool", "0+")] = False
