"""Who is behind a connection: SASL's exchange, one value a connection, for both ends (KIP-43, KIP-152, KIP-368).

PLAIN sends a name and a password, checked against those of the settings; SCRAM against the credentials of the metadata log. What is
wrong with a try is for the log: the peer learns that it failed, never why.
"""

import hmac
from collections.abc import Callable, Mapping
from typing import Final

from replog.config.access import Access
from replog.security.scram import (
    AuthenticationFailed,
    ClientExchange,
    Credential,
    ScramMechanism,
    ServerExchange,
)

PLAIN: Final = "PLAIN"
MECHANISMS: Final = (PLAIN, *(one.sasl_name for one in ScramMechanism))
CredentialOf = Callable[[ScramMechanism, str], Credential | None]


class PlainServer:
    """One try to log in by name and password."""

    def __init__(self, passwords: Mapping[str, str]) -> None:
        self._passwords = passwords
        self.user: str | None = None

    def step(self, token: bytes) -> bytes:
        """Take what the client says; return the answer. `AuthenticationFailed` when it is wrong."""
        parts = token.split(b"\0")
        if len(parts) != len(("for whom", "name", "password")):
            raise AuthenticationFailed("PLAIN wants a name and a password")
        acting_for, name, password = (part.decode(errors="replace") for part in parts)
        if acting_for not in ("", name):
            raise AuthenticationFailed("nobody may act for others")
        known = self._passwords.get(name)
        # Who is unknown takes as long as who has another password.
        if not hmac.compare_digest((known or "").encode(), password.encode()) or not known:
            raise AuthenticationFailed(f"wrong name or password of {name!r}")
        self.user = name
        return b""


class ScramServer:
    """One try to log in by SCRAM."""

    def __init__(self, mechanism: ScramMechanism, credential_of: CredentialOf, nonce: str) -> None:
        self._exchange = ServerExchange(mechanism, nonce)
        self._credential_of = credential_of
        self._credential: Credential | None = None
        self.user: str | None = None

    def step(self, token: bytes) -> bytes:
        """Take the next message; return the answer. `AuthenticationFailed` when it is wrong."""
        if self.user is not None:
            raise AuthenticationFailed("the exchange is over")
        if self._credential is None:
            user = self._exchange.on_first(token)
            self._credential = self._credential_of(self._exchange.mechanism, user)
            if self._credential is None:
                raise AuthenticationFailed(f"no {self._exchange.mechanism.sasl_name} credential of {user!r}")
            return self._exchange.challenge(self._credential)
        answer = self._exchange.on_final(token, self._credential)
        self.user = self._exchange.user
        return answer


ServerLogin = PlainServer | ScramServer


class SaslClient:
    """Our own side of an exchange: `first`, then `answer` until it returns None."""

    def __init__(self, access: Access, nonce: str) -> None:
        mechanism = ScramMechanism.named(access.mechanism)
        self._access = access
        self._scram = None if mechanism is None else ClientExchange(mechanism, access.user, access.password, nonce)
        self._is_proven = False

    @property
    def first(self) -> bytes:
        """What to say first."""
        if self._scram is not None:
            return self._scram.first
        return b"\0".join((b"", self._access.user.encode(), self._access.password.encode()))

    def answer(self, token: bytes) -> bytes | None:
        """Take what the server says; return the next message, None at the end. `AuthenticationFailed` when it is not who we think."""
        if self._scram is None:
            return None
        if not self._is_proven:
            self._is_proven = True
            return self._scram.on_challenge(token)
        self._scram.on_final(token)
        return None
