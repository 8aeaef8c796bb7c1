"""As whom everybody gets in at an existing cluster: librdkafka's settings of its cluster.toml, for its clients and for the harness's own eyes."""

import logging
import ssl
from collections.abc import Mapping
from pathlib import Path
from typing import Final, TypedDict

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

from replog.config.access import OPEN_DOOR, Access
from tribunal.clusters.secured.door import Door

PROTOCOL: Final = "security.protocol"
MECHANISMS: Final = ("sasl.mechanism", "sasl.mechanisms")
KNOWN_MECHANISMS: Final = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")
PROBE: Final = "probe"  # look where this machine has them
CLIENTS: Final = "clients"
CONTROLLER_CLIENTS: Final = "controller_clients"
# librdkafka's ways to a certificate or a key that the harness's own connections do not have.
OURS: Final = {
    "ssl.keystore.location": "ssl.certificate.location and ssl.key.location",
    "ssl.certificate.pem": "ssl.certificate.location",
    "ssl.key.pem": "ssl.key.location",
    "ssl.crl.location": "no list of revoked certificates",
    "ssl.engine.location": "ssl.key.location",
}
QUIET: Final = logging.getLogger("librdkafka")
Settings = Mapping[str, str | int | bool]


class BadAccess(ValueError):
    """Settings by which the harness itself cannot get in; one line."""


class ExistingLogin:
    """What clients need to get in; it never changes. Implements `Login`."""

    def __init__(self, settings: Settings) -> None:
        self._settings = dict(settings)

    def settings(self) -> Settings:
        """Return librdkafka's settings for it."""
        return self._settings

    def add(self, client: object) -> None:
        """Take note of nothing: nobody is given another password."""

    def remove(self, client: object) -> None:
        """Take note of nothing."""


class ExistingAccess:
    """Implements `ClientSecurity`: one and the same for the load and for administrators.

    controllers:  how controllers' listeners are got in at. Raises BadAccess for settings by which nobody gets in.
    """

    def __init__(self, settings: Settings, of_controllers: Settings | None = None) -> None:
        self._settings = dict(settings)
        self.administrator = door(settings)
        _must_be_known(settings)
        self.controllers = self.administrator if of_controllers is None else door(of_controllers, CONTROLLER_CLIENTS)

    @property
    def load(self) -> ExistingLogin:
        """As whom the load's clients log in."""
        return ExistingLogin(self._settings)

    def administrator_settings(self) -> Settings:
        """Return librdkafka's settings of an administrator."""
        return self._settings


def door(settings: Settings, table: str = CLIENTS) -> Door:
    """Return how the harness itself gets in, by the settings of this table. Raises BadAccess."""
    protocol = str(settings.get(PROTOCOL, "plaintext")).lower()
    if protocol not in ("plaintext", "ssl", "sasl_plaintext", "sasl_ssl"):
        raise BadAccess(f"{table}: there is no {PROTOCOL} {protocol!r}")
    context = _context(settings, table) if protocol.endswith("ssl") else None
    if not protocol.startswith("sasl"):
        return Door(context, OPEN_DOOR if context is None else Access(has_tls=True))
    mechanism = next((str(settings[name]) for name in MECHANISMS if name in settings), "")
    if mechanism not in KNOWN_MECHANISMS:
        raise BadAccess(f"{table}: {MECHANISMS[0]} {mechanism!r}: the harness knows {', '.join(KNOWN_MECHANISMS)}")
    if lacking := [name for name in ("sasl.username", "sasl.password") if name not in settings]:
        raise BadAccess(f"{table}: {mechanism} without {lacking[0]}")
    user, password = (str(settings.get(name, "")) for name in ("sasl.username", "sasl.password"))
    return Door(context, Access(has_tls=context is not None, mechanism=mechanism, user=user, password=password))


def _must_be_known(settings: Settings) -> None:
    """Refuse what librdkafka refuses; nobody is connected to."""
    try:
        AdminClient(dict(settings), logger=QUIET, error_cb=lambda _: None)
    except KafkaException as problem:
        raise BadAccess(f"{CLIENTS}: {problem.args[0].str()}") from None


def _context(settings: Settings, table: str) -> ssl.SSLContext:
    if foreign := next((name for name in OURS if name in settings), None):
        raise BadAccess(f"{table}: the harness itself has no {foreign}: give {OURS[foreign]}")
    try:
        context = ssl.create_default_context(**_authorities(settings))
        if (certificate := settings.get("ssl.certificate.location")) is not None:
            key = settings.get("ssl.key.location")
            context.load_cert_chain(
                str(certificate), None if key is None else str(key), lambda: str(settings.get("ssl.key.password", ""))
            )
    except OSError as problem:
        raise BadAccess(f"{table}: {problem.filename or 'a certificate'}: {problem.strerror or problem}") from None
    if settings.get("ssl.endpoint.identification.algorithm") == "none":
        context.check_hostname = False
    if str(settings.get("enable.ssl.certificate.verification", "true")).lower() == "false":
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    return context


class _Authorities(TypedDict, total=False):
    cafile: str
    capath: str
    cadata: str


def _authorities(settings: Settings) -> _Authorities:
    """Return whom to trust, as librdkafka is given it: a file, a folder or text; none: whom this machine trusts."""
    if (text := settings.get("ssl.ca.pem")) is not None:
        return {"cadata": str(text)}
    place = str(settings.get("ssl.ca.location", PROBE))
    if place == PROBE:
        return {}
    return {"capath": place} if Path(place).is_dir() else {"cafile": place}
