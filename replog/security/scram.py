"""SCRAM (RFC 5802, RFC 7677): both ends of the exchange, and the credentials that a server keeps.

A server keeps no password: a salt, a count of iterations, and two keys that were made of the salted password. Whoever reads them cannot
pretend to be the user. Channel binding and delegation tokens are not spoken; names and passwords are taken as UTF-8, as Kafka's are.
"""

import base64
import binascii
import hashlib
import hmac
import re
from enum import Enum
from typing import Final

import msgspec

ITERATIONS_MIN: Final = 4096
ITERATIONS_MAX: Final = 16384
_NUMBER: Final = re.compile(r"[0-9]{1,9}")
GS2_HEADERS: Final = ("n", "y")  # no channel binding


class AuthenticationFailed(Exception):
    """Somebody is not who he says; the message is for logs, never for him."""


class ScramMechanism(Enum):
    """The hash functions, by Kafka's numbers in requests and records."""

    SCRAM_SHA_256 = 1
    SCRAM_SHA_512 = 2

    @property
    def sasl_name(self) -> str:
        """Its name in SASL."""
        return self.name.replace("_", "-")

    @property
    def hash_name(self) -> str:
        """Its hash function, as `hashlib` calls it."""
        return "sha" + self.name.rpartition("_")[2]

    @staticmethod
    def named(sasl_name: str) -> "ScramMechanism | None":
        """Return the mechanism of a name; None when it is another."""
        return next((one for one in ScramMechanism if one.sasl_name == sasl_name), None)


class Credential(msgspec.Struct, frozen=True, kw_only=True):
    """What a server knows of a user."""

    salt: bytes
    stored_key: bytes
    server_key: bytes
    iterations: int


def credential_of(mechanism: ScramMechanism, salted_password: bytes, *, salt: bytes, iterations: int) -> Credential:
    """Return what to keep of a salted password."""
    client_key = _hmac(mechanism, salted_password, b"Client Key")
    return Credential(
        salt=salt,
        stored_key=_hash(mechanism, client_key),
        server_key=_hmac(mechanism, salted_password, b"Server Key"),
        iterations=iterations,
    )


def salted(mechanism: ScramMechanism, password: str, *, salt: bytes, iterations: int) -> bytes:
    """Return the salted password: the part that is slow on purpose."""
    return hashlib.pbkdf2_hmac(mechanism.hash_name, password.encode(), salt, iterations)


class ServerExchange:
    """The server's part for one user who says who he is."""

    def __init__(self, mechanism: ScramMechanism, nonce: str) -> None:
        self.mechanism = mechanism
        self.user = ""
        self._nonce = nonce
        self._binding = b""
        self._client_first = ""
        self._server_first = ""

    def on_first(self, message: bytes) -> str:
        """Take the client's first message; return whose credential is wanted."""
        binding, authorization, bare = _three(_text(message))
        fields = _fields(bare)
        if binding not in GS2_HEADERS:
            raise AuthenticationFailed("channel binding is not spoken")
        self.user = _unescaped(fields.get("n", ""))
        if not self.user or not fields.get("r") or "m" in fields or fields.get("tokenauth") == "true":
            raise AuthenticationFailed("the first message has no name or no nonce, or asks for an extension")
        if authorization not in ("", f"a={_escaped(self.user)}"):
            raise AuthenticationFailed("nobody may act for others")
        self._binding = base64.b64encode(f"{binding},{authorization},".encode())
        self._client_first = bare
        self._nonce = fields["r"] + self._nonce
        return self.user

    def challenge(self, credential: Credential) -> bytes:
        """Return the answer to the first message."""
        salt = base64.b64encode(credential.salt).decode()
        self._server_first = f"r={self._nonce},s={salt},i={credential.iterations}"
        return self._server_first.encode()

    def on_final(self, message: bytes, credential: Credential) -> bytes:
        """Take the client's proof; return the server's, which the client checks."""
        text = _text(message)
        without_proof, _, proof = text.rpartition(",p=")
        fields = _fields(without_proof)
        same_binding = hmac.compare_digest(fields.get("c", "").encode(), self._binding)
        if not same_binding or not hmac.compare_digest(fields.get("r", "").encode(), self._nonce.encode()):
            raise AuthenticationFailed("the final message belongs to another exchange")
        signed = f"{self._client_first},{self._server_first},{without_proof}".encode()
        signature = _hmac(self.mechanism, credential.stored_key, signed)
        client_key = _xor(_decoded(proof), signature)
        if not hmac.compare_digest(_hash(self.mechanism, client_key), credential.stored_key):
            raise AuthenticationFailed(f"wrong password of {self.user!r}")
        return b"v=" + base64.b64encode(_hmac(self.mechanism, credential.server_key, signed))


class ClientExchange:
    """The client's part."""

    def __init__(self, mechanism: ScramMechanism, user: str, password: str, nonce: str) -> None:
        self.mechanism = mechanism
        self._password = password
        self._nonce = nonce
        self._bare = f"n={_escaped(user)},r={nonce}"
        self._server_signature = b""

    @property
    def first(self) -> bytes:
        """The first message."""
        return f"n,,{self._bare}".encode()

    def on_challenge(self, message: bytes) -> bytes:
        """Take the server's answer; return the proof."""
        text = _text(message)
        fields = _fields(text)
        nonce, iterations = fields.get("r", ""), fields.get("i", "")
        if not nonce.startswith(self._nonce) or nonce == self._nonce:
            raise AuthenticationFailed("the server's nonce does not continue ours")
        if not _NUMBER.fullmatch(iterations) or not ITERATIONS_MIN <= int(iterations) <= ITERATIONS_MAX:
            raise AuthenticationFailed(f"the server wants {iterations!r} iterations")
        password = salted(
            self.mechanism, self._password, salt=_decoded(fields.get("s", "")), iterations=int(iterations)
        )
        without_proof = f"c={base64.b64encode(b'n,,').decode()},r={nonce}"
        signed = f"{self._bare},{text},{without_proof}".encode()
        client_key = _hmac(self.mechanism, password, b"Client Key")
        signature = _hmac(self.mechanism, _hash(self.mechanism, client_key), signed)
        self._server_signature = _hmac(self.mechanism, _hmac(self.mechanism, password, b"Server Key"), signed)
        return f"{without_proof},p={base64.b64encode(_xor(client_key, signature)).decode()}".encode()

    def on_final(self, message: bytes) -> None:
        """Check that the server knows us, too."""
        if not hmac.compare_digest(_decoded(_fields(_text(message)).get("v", "")), self._server_signature):
            raise AuthenticationFailed("the server does not know the user's keys")


def _text(message: bytes) -> str:
    try:
        return message.decode()
    except UnicodeDecodeError:
        raise AuthenticationFailed("a message is no text") from None


def _three(text: str) -> tuple[str, str, str]:
    parts = text.split(",", 2)
    if len(parts) != len(("binding", "authorization", "bare")):
        raise AuthenticationFailed("the first message has no header")
    return parts[0], parts[1], parts[2]


def _fields(text: str) -> dict[str, str]:
    return {name: value for name, _, value in (part.partition("=") for part in text.split(","))}


def _decoded(text: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        raise AuthenticationFailed("a value is not base64") from None


def _escaped(name: str) -> str:
    return name.replace("=", "=3D").replace(",", "=2C")


def _unescaped(name: str) -> str:
    return name.replace("=2C", ",").replace("=3D", "=")


def _hash(mechanism: ScramMechanism, data: bytes) -> bytes:
    return hashlib.new(mechanism.hash_name, data).digest()


def _hmac(mechanism: ScramMechanism, key: bytes, data: bytes) -> bytes:
    return hmac.digest(key, data, mechanism.hash_name)


def _xor(one: bytes, other: bytes) -> bytes:
    if len(one) != len(other):
        raise AuthenticationFailed("a proof has another length than the hash")
    return bytes(a ^ b for a, b in zip(one, other, strict=True))
