"""As whom everybody gets in at an existing cluster: librdkafka's settings of its cluster.toml, for its clients and for the harness's own eyes."""

import ssl
from collections.abc import Mapping
from typing import Final

from replog.config.access import OPEN_DOOR, Access
from tribunal.clusters.secured.door import Door

PROTOCOL: Final = "security.protocol"
MECHANISMS: Final = ("sasl.mechanism", "sasl.mechanisms")
KNOWN_MECHANISMS: Final = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")
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
    """Implements `ClientSecurity`: one and the same for the load and for administrators."""

    def __init__(self, settings: Settings) -> None:
        self._settings = dict(settings)
        self.administrator = door(settings)

    @property
    def load(self) -> ExistingLogin:
        """As whom the load's clients log in."""
        return ExistingLogin(self._settings)

    def administrator_settings(self) -> Settings:
        """Return librdkafka's settings of an administrator."""
        return self._settings


def door(settings: Settings) -> Door:
    """Return how the harness itself gets in. Raises BadAccess."""
    protocol = str(settings.get(PROTOCOL, "plaintext")).lower()
    if protocol not in ("plaintext", "ssl", "sasl_plaintext", "sasl_ssl"):
        raise BadAccess(f"clients: there is no {PROTOCOL} {protocol!r}")
    context = _context(settings) if protocol.endswith("ssl") else None
    if not protocol.startswith("sasl"):
        return Door(context, OPEN_DOOR if context is None else Access(has_tls=True))
    mechanism = next((str(settings[name]) for name in MECHANISMS if name in settings), "")
    if mechanism not in KNOWN_MECHANISMS:
        raise BadAccess(f"clients: {MECHANISMS[0]} {mechanism!r}: the harness knows {', '.join(KNOWN_MECHANISMS)}")
    user, password = (str(settings.get(name, "")) for name in ("sasl.username", "sasl.password"))
    return Door(context, Access(has_tls=context is not None, mechanism=mechanism, user=user, password=password))


def _context(settings: Settings) -> ssl.SSLContext:
    try:
        authority = settings.get("ssl.ca.location")
        context = ssl.create_default_context(cafile=None if authority is None else str(authority))
        if (certificate := settings.get("ssl.certificate.location")) is not None:
            key = settings.get("ssl.key.location")
            context.load_cert_chain(
                str(certificate), None if key is None else str(key), lambda: str(settings.get("ssl.key.password", ""))
            )
    except OSError as problem:
        raise BadAccess(f"clients: {problem.filename or 'a certificate'}: {problem.strerror or problem}") from None
    if settings.get("ssl.endpoint.identification.algorithm") == "none":
        context.check_hostname = False
    if str(settings.get("enable.ssl.certificate.verification", "true")).lower() == "false":
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    return context
