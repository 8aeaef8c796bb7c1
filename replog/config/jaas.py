"""`sasl.jaas.config`: names and passwords, in the form that Kafka has from Java.

One module for each mechanism: `org.apache.kafka.common.security.plain.PlainLoginModule required username="me" password="mine"
user_alice="hers";`. `username` and `password` are this node's own, each `user_NAME` of PLAIN is somebody who may log in.
"""

import re
from typing import Final

import msgspec

from replog.config.endpoints import ConfigError

PLAIN_MODULE: Final = "PlainLoginModule"
SCRAM_MODULE: Final = "ScramLoginModule"
_MODULE: Final = re.compile(
    r'\s*(?:[\w.]+\.)?(\w+)\s+required((?:\s+[\w.-]+\s*=\s*(?:"(?:\\.|[^"\\])*"|[^\s;"]+))*)\s*;'
)
_OPTION: Final = re.compile(r'([\w.-]+)\s*=\s*(?:"((?:\\.|[^"\\])*)"|([^\s;"]+))')
_USER: Final = "user_"


class Secrets(msgspec.Struct, frozen=True, kw_only=True):
    """The node's own name and password by module, and those of who may log in by PLAIN."""

    own: dict[str, tuple[str, str]] = {}
    plain: dict[str, str] = {}


def secrets_of(text: str) -> Secrets:
    """Parse the setting; `ConfigError` says that it is wrong, and nothing of what it holds."""
    own: dict[str, tuple[str, str]] = {}
    plain: dict[str, str] = {}
    position = 0
    while text[position:].strip():
        found = _MODULE.match(text, position)
        if found is None or found[1] not in (PLAIN_MODULE, SCRAM_MODULE):
            raise ConfigError(
                f"'sasl.jaas.config' is not `{PLAIN_MODULE} required name=\"value\" ...;`, or of {SCRAM_MODULE}"
            )
        options = {name: re.sub(r"\\(.)", r"\1", quoted) or bare for name, quoted, bare in _OPTION.findall(found[2])}
        if "username" in options:
            own[found[1]] = (options["username"], options.get("password", ""))
        if found[1] == PLAIN_MODULE:
            plain |= {name.removeprefix(_USER): value for name, value in options.items() if name.startswith(_USER)}
        position = found.end()
    return Secrets(own=own, plain=plain)
