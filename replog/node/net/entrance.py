"""What a listener asks of who connects to it."""

from typing import Final

import msgspec

from replog.config import NodeConfig
from replog.config.listeners import PLAIN_NAME, ListenerConfig
from replog.node.net.login import SaslDoor
from replog.ports import World
from replog.security.principals import Rule, rules_of
from replog.security.sasl import CredentialOf


class Entrance(msgspec.Struct, frozen=True, kw_only=True):
    """One listener's name, and how it finds out who is there.

    sasl:  None where nobody is asked for a name and a password.
    """

    listener: str = PLAIN_NAME
    has_tls: bool = False
    rules: tuple[Rule, ...] = ()
    sasl: SaslDoor | None = None


OPEN: Final = Entrance()


def entrance_of(world: World, listener: ListenerConfig, config: NodeConfig, credential_of: CredentialOf) -> Entrance:
    """Return what the settings ask of who connects to a listener.

    credential_of:  what the metadata say of a user.
    """
    security = config.security
    sasl = SaslDoor(
        mechanisms=security.sasl_mechanisms,
        passwords=config.secrets.plain,
        credential_of=credential_of,
        nonce=lambda: world.entropy.uuid().hex + world.entropy.uuid().hex,
        session_ms_max=security.reauthentication_ms_max,
    )
    return Entrance(
        listener=listener.name,
        has_tls=listener.protocol.has_tls,
        rules=rules_of(security.principal_mapping_rules),
        sasl=sasl if listener.protocol.has_sasl else None,
    )
