"""What secures one run's cluster: TLS and SASL at every listener, an authorizer, and the principals that come there.

Three principals, each with what it needs. Nodes are `node`, super users as Kafka's have to be, and log in by PLAIN: controllers
know no SCRAM credential before they have the metadata. The harness's own look at the cluster, and its orders, are those of
`administrator`, a super user who logs in by PLAIN, too. The load's clients are `load`: a SCRAM credential, and ACLs for what clients do.

The relays on the links end TLS on both sides with certificates of this run's authority (docs/decisions/0013-tls-ends-at-the-relays.md).
"""

import datetime
import ssl
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Final, Protocol
from weakref import WeakSet

from replog.config.access import Access
from replog.config.security import STANDARD_AUTHORIZER
from replog.host.world import RealClock, RealEntropy
from tribunal.clusters.secured.authority import Authority
from tribunal.clusters.secured.door import Door
from tribunal.clusters.spec import SettingValue

NODE: Final = "node"
ADMINISTRATOR: Final = "administrator"
LOAD: Final = "load"
PLAIN: Final = "PLAIN"
SCRAM: Final = "SCRAM-SHA-512"
CLIENT_LISTENER: Final = "CLIENTS"
CONTROLLER_LISTENER: Final = "CONTROLLER"
ClientSettings = Mapping[str, str]
OF_SECURITY: Final = frozenset(
    {
        "listener.security.protocol.map",
        "controller.listener.names",
        "inter.broker.listener.name",
        "ssl.keystore.location",
        "ssl.keystore.certificate.chain",
        "ssl.keystore.key",
        "ssl.key.password",
        "ssl.truststore.location",
        "ssl.truststore.certificates",
        "ssl.client.auth",
        "sasl.enabled.mechanisms",
        "sasl.mechanism.inter.broker.protocol",
        "sasl.mechanism.controller.protocol",
        "sasl.jaas.config",
        "authorizer.class.name",
        "super.users",
    }
)
"""Settings that no scenario may have beside."""


class LogsIn(Protocol):
    """A client that can be given another password while it lives."""

    def log_in_with(self, password: str) -> None:
        """Use it from the next login on."""


class Login(Protocol):
    """As whom a cluster's clients log in."""

    def settings(self) -> Mapping[str, str | int | bool]:
        """Return librdkafka's settings for it."""

    def add(self, client: LogsIn) -> None:
        """Let a client know of changes as long as it lives."""

    def remove(self, client: LogsIn) -> None:
        """Let a client know of nothing any more: it is being closed."""


class ClientSecurity(Protocol):
    """What those need who come to a secured cluster."""

    @property
    def load(self) -> Login:
        """As whom the load's clients log in."""

    @property
    def administrator(self) -> Door:
        """How the harness looks at a cluster, and orders what administrators order."""

    def administrator_settings(self) -> Mapping[str, str | int | bool]:
        """Return the same as librdkafka's settings."""


class LoadLogin:
    """As whom the load's clients log in; those that live learn of a change."""

    def __init__(self, context: ssl.SSLContext, trust: Path, password: str) -> None:
        self._context = context
        self._trust = trust
        self._clients: WeakSet[LogsIn] = WeakSet()
        self.password = password

    def settings(self) -> ClientSettings:
        """Return librdkafka's settings for it."""
        return client_settings(self._trust, SCRAM, LOAD, self.password)

    def door(self, password: str) -> Door:
        """Return how the harness tries a password itself."""
        return Door(self._context, Access(has_tls=True, mechanism=SCRAM, user=LOAD, password=password))

    def add(self, client: LogsIn) -> None:
        """Let a client know of changes as long as it lives."""
        self._clients.add(client)

    def remove(self, client: LogsIn) -> None:
        """Let a client know of nothing any more: it is being closed."""
        self._clients.discard(client)

    def change(self, password: str) -> int:
        """Give all clients another password; return how many there are."""
        self.password = password
        clients = list(self._clients)
        for client in clients:
            client.log_in_with(password)
        return len(clients)


class RunSecurity:
    """Certificates, names and passwords of one run, made when it begins.

    folder:  where the authority and the relays' certificate lie.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        now = datetime.datetime.fromtimestamp(RealClock().wall_ms() / 1000, datetime.UTC)
        self.authority = Authority(folder, now)
        self._node_password = fresh_password()
        self._administrator_password = fresh_password()
        self.context = ssl.create_default_context(cafile=str(self.authority.trust))  # of whoever connects
        self._issued: dict[int, tuple[Sequence[str], Path]] = {}  # for which addresses and to where, by node
        self.load = LoadLogin(self.context, self.authority.trust.resolve(), fresh_password())

    @property
    def administrator(self) -> Door:
        """How the harness looks at a cluster, and orders what administrators order."""
        access = Access(has_tls=True, mechanism=PLAIN, user=ADMINISTRATOR, password=self._administrator_password)
        return Door(self.context, access)

    def administrator_settings(self) -> ClientSettings:
        """Return the same as librdkafka's settings."""
        return client_settings(self.authority.trust.resolve(), PLAIN, ADMINISTRATOR, self._administrator_password)

    def relays(self, hosts: Iterable[str]) -> ssl.SSLContext:
        """Return what all relays show to who connects; `hosts` are their addresses."""
        path = self.folder / "relays.pem"
        self.authority.issue("relays", hosts, path)
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        context.load_cert_chain(path)
        path.unlink()  # nobody else reads it
        return context

    def issue(self, node: int, hosts: Sequence[str], path: Path, *, is_expired: bool = False) -> int:
        """Write a node's key and certificate; return the serial number."""
        self._issued[node] = (hosts, path)
        return self.authority.issue(f"node-{node}", hosts, path, is_expired=is_expired)

    def issue_again(self, node: int, *, is_expired: bool) -> int:
        """Write another key and certificate of a node in place of the ones before; return the serial number."""
        hosts, path = self._issued[node]
        return self.issue(node, hosts, path, is_expired=is_expired)

    @staticmethod
    def listener(role: str) -> str:
        """Return the name of the listener that a node has."""
        return CONTROLLER_LISTENER if role == "controller" else CLIENT_LISTENER

    def settings(self, keystore: str) -> dict[str, SettingValue]:
        """Return what all nodes have in common, but for where the key store lies as the node sees it."""
        own = f'username="{NODE}" password="{self._node_password}"'
        users = f'user_{NODE}="{self._node_password}" user_{ADMINISTRATOR}="{self._administrator_password}"'
        return {
            "listener.security.protocol.map": f"{CLIENT_LISTENER}:SASL_SSL,{CONTROLLER_LISTENER}:SASL_SSL",
            "controller.listener.names": CONTROLLER_LISTENER,
            "inter.broker.listener.name": CLIENT_LISTENER,
            "ssl.keystore.location": keystore,
            "ssl.truststore.location": str(self.authority.trust.resolve()),
            "sasl.enabled.mechanisms": [PLAIN, SCRAM],
            "sasl.mechanism.inter.broker.protocol": PLAIN,
            "sasl.mechanism.controller.protocol": PLAIN,
            "sasl.jaas.config": f"org.apache.kafka.common.security.plain.PlainLoginModule required {own} {users};",
            "authorizer.class.name": STANDARD_AUTHORIZER,
            "super.users": f"User:{NODE};User:{ADMINISTRATOR}",
        }


def fresh_password() -> str:
    """Return a password that nobody has used yet."""
    return RealEntropy().uuid().hex


def client_settings(trust: Path, mechanism: str, user: str, password: str) -> ClientSettings:
    """Return librdkafka's settings of who logs in."""
    return {
        "security.protocol": "sasl_ssl",
        "ssl.ca.location": str(trust),
        "sasl.mechanism": mechanism,
        "sasl.username": user,
        "sasl.password": password,
    }
