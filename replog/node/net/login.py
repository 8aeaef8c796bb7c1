"""Where a connection stands on its way in by SASL: SaslHandshake, SaslAuthenticate, and nothing else before (KIP-43, KIP-152).

After SaslHandshake v0, which old clients send, tokens come without headers. Who is in may do it again before his time is over
(KIP-368), as the same user; whose time is over may do nothing else.
"""

from collections.abc import Callable, Mapping
from enum import Enum
from typing import Final

import msgspec

from replog.errors import Error
from replog.security.sasl import PLAIN, CredentialOf, PlainServer, ScramServer, ServerLogin
from replog.security.scram import AuthenticationFailed, ScramMechanism
from replog.wire.apis import Api
from replog.wire.messages.sasl_authenticate import SaslAuthenticateRequest, SaslAuthenticateResponse
from replog.wire.messages.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse

TOKEN_BYTES_MAX: Final = 524_288  # of a request before anybody is known; Kafka's limit
FIRST_VERSION_WITH_HEADERS: Final = 1  # of SaslHandshake: tokens come as SaslAuthenticate
WHILE_OUTSIDE: Final = frozenset((Api.API_VERSIONS, Api.SASL_HANDSHAKE, Api.SASL_AUTHENTICATE))
FAILED: Final = "Authentication failed."


class SaslDoor(msgspec.Struct, frozen=True, kw_only=True):
    """What a listener's SASL goes by.

    session_ms_max:  after this long who is in has to show again who he is; 0: never.
    """

    mechanisms: tuple[str, ...]
    passwords: Mapping[str, str]
    credential_of: CredentialOf
    nonce: Callable[[], str]
    session_ms_max: int


class Stage(Enum):
    """What is to come next."""

    HANDSHAKE = 0
    TOKENS = 1
    BARE_TOKENS = 2
    DONE = 3


class Login:
    """One connection's way in."""

    def __init__(self, door: SaslDoor) -> None:
        self.door = door
        self.stage = Stage.HANDSHAKE
        self.user: str | None = None  # who is in
        self.failure: str | None = None  # why the connection has to end, once it is told
        self._mechanism = ""
        self._exchange: ServerLogin | None = None
        self._ends_ms: int | None = None

    def admits(self, api: Api, now_ms: int) -> bool:
        """Return whether a request may be looked at."""
        if self.user is None:
            return api in WHILE_OUTSIDE
        return self._ends_ms is None or now_ms < self._ends_ms or api in WHILE_OUTSIDE

    def handshake(self, body: SaslHandshakeRequest, version: int) -> SaslHandshakeResponse:
        """Take the mechanism that the client wants."""
        error = Error.NONE
        if (self.stage is Stage.DONE and not self.door.session_ms_max) or self.stage in (
            Stage.TOKENS,
            Stage.BARE_TOKENS,
        ):
            error = Error.ILLEGAL_SASL_STATE
        elif body.mechanism not in self.door.mechanisms or (self.user and body.mechanism != self._mechanism):
            error = Error.UNSUPPORTED_SASL_MECHANISM
        if error is not Error.NONE:
            self.failure = f"SaslHandshake for {body.mechanism[:50]!r}: {error.name}"
        else:
            self._mechanism = body.mechanism
            self._exchange = self._new_exchange(body.mechanism)
            self.stage = Stage.TOKENS if version >= FIRST_VERSION_WITH_HEADERS else Stage.BARE_TOKENS
        return SaslHandshakeResponse(error_code=error, mechanisms=list(self.door.mechanisms))

    def authenticate(self, body: SaslAuthenticateRequest, now_ms: int) -> SaslAuthenticateResponse:
        """Take a token; the answer says whether it is the right one."""
        if self.stage is not Stage.TOKENS:
            self.failure = "SaslAuthenticate without SaslHandshake"
            words = "SaslAuthenticate request received without SaslHandshake."
            return SaslAuthenticateResponse(error_code=Error.ILLEGAL_SASL_STATE, error_message=words)
        answer = self.token(body.auth_bytes, now_ms)
        is_in = self._exchange is None
        if self.failure is not None:
            return SaslAuthenticateResponse(error_code=Error.SASL_AUTHENTICATION_FAILED, error_message=FAILED)
        return SaslAuthenticateResponse(
            error_message=None, auth_bytes=answer, session_lifetime_ms=self.door.session_ms_max if is_in else 0
        )

    def token(self, token: bytes, now_ms: int) -> bytes:
        """Take a token; return the next one. `failure` says when it is wrong."""
        assert self._exchange is not None, "a mechanism was agreed on"
        try:
            answer = self._exchange.step(token)
        except AuthenticationFailed as problem:
            self.failure = f"authentication by {self._mechanism} failed: {problem}"
            return b""
        user = self._exchange.user
        if user is not None and self.user not in (None, user):
            self.failure = f"{self.user!r} cannot become {user!r}"
        elif user is not None:
            self.user = user
            self.stage = Stage.DONE
            self._exchange = None
            self._ends_ms = now_ms + self.door.session_ms_max if self.door.session_ms_max else None
        return answer

    def _new_exchange(self, mechanism: str) -> ServerLogin:
        if mechanism == PLAIN:
            return PlainServer(self.door.passwords)
        scram = ScramMechanism.named(mechanism)
        assert scram is not None, "the settings permit no other"
        return ScramServer(scram, self.door.credential_of, self.door.nonce())
