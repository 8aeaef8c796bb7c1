"""Apache Kafka's `server.properties` as the configuration of a node.

Three things happen to what such a file says. What replog knows is taken, some of it under another name or in another unit. What
has no meaning here is passed over, and the node lists it in its log. What would mean something else here than it says is refused:
a node that seems to obey is worse than one that does not start. So is a name that is nearly one of ours: it is a mistake.
"""

import difflib
import re
from collections.abc import Iterator, Mapping
from typing import Final

import msgspec

from replog.config.areas import DEFINITIONS
from replog.config.endpoints import ConfigError, endpoint
from replog.config.kafkas_names import WITHOUT_MEANING
from replog.config.listeners import PLAIN_NAME
from replog.config.node_config import BOOTSTRAP, VOTERS, NodeConfig
from replog.config.setting import ConfigType, words

MINUTE_MS: Final = 60_000
HOUR_MS: Final = 60 * MINUTE_MS
SURELY_MEANT: Final = 0.92  # how near a name is to one of ours that nobody else has
# By the setting that it is here: Kafka's others, most exact first, and what one of their units is in ms.
OTHER_UNITS: Final = {
    "log.retention.ms": {"log.retention.minutes": MINUTE_MS, "log.retention.hours": HOUR_MS},
    "log.roll.ms": {"log.roll.hours": HOUR_MS},
    "log.roll.jitter.ms": {"log.roll.jitter.hours": HOUR_MS},
}
OTHER_NAMES: Final = {"broker.id": "node.id", "log.dir": "log.dirs"}
LISTENER_PREFIX: Final = "listener.name."

_ESCAPE: Final = re.compile(r"\\(u[0-9A-Fa-f]{4}|.)", re.DOTALL)
_SEPARATOR: Final = re.compile(r"(?P<name>(?:\\.|[^\\=:\s])*)\s*[=:]?\s*(?P<value>.*)", re.DOTALL)
_LETTERS: Final = {"n": "\n", "t": "\t", "r": "\r", "f": "\f"}


class Refused(msgspec.Struct, frozen=True):
    """A setting that has one meaning here: what it may say nevertheless, and why nothing else."""

    allowed: frozenset[str]
    why: str


def _but(why: str, *allowed: str) -> Refused:
    return Refused(frozenset({"", *allowed}), why)


_NO_CODE: Final = _but("code of one's own is not loaded here")
_NO_PASSWORD: Final = _but("PEM files are read as they are; give one without a password")
REFUSED: Final[Mapping[str, Refused]] = {
    "alter.config.policy.class.name": _NO_CODE,
    "client.quota.callback.class": _NO_CODE,
    "config.providers": _but("values are taken as they stand"),
    "controlled.shutdown.enable": _but("a broker always hands over its partitions when it stops", "true"),
    "controller.quorum.auto.join.enable": _but("a controller is added by add-voter", "false"),
    "create.topic.policy.class.name": _NO_CODE,
    "delegation.token.secret.key": _but("there are no delegation tokens"),
    "group.coordinator.rebalance.protocols": _but(
        "both protocols of consumer groups are always on",
        *("classic,consumer", "consumer,classic", "classic,consumer,streams", "classic,consumer,share,streams"),
    ),
    "max.connections.per.ip.overrides": _but("the limit is the same for all addresses"),
    "principal.builder.class": _but(
        "code of one's own is not loaded here",
        "org.apache.kafka.common.security.authenticator.DefaultKafkaPrincipalBuilder",
    ),
    "remote.log.storage.system.enable": _but("there is no tiered storage", "false"),
    "sasl.client.callback.handler.class": _NO_CODE,
    "sasl.login.callback.handler.class": _NO_CODE,
    "sasl.login.class": _NO_CODE,
    "sasl.server.callback.handler.class": _NO_CODE,
    "security.providers": _NO_CODE,
    "ssl.cipher.suites": _but("the cipher suites are those of the system"),
    "ssl.enabled.protocols": _but("TLS 1.2 and 1.3 are always on", "TLSv1.2,TLSv1.3", "TLSv1.3,TLSv1.2"),
    "ssl.engine.factory.class": _NO_CODE,
    "ssl.keystore.password": _NO_PASSWORD,
    "ssl.truststore.password": _NO_PASSWORD,
    "transaction.two.phase.commit.enable": _but("there are no transactions of two phases", "false"),
    "unstable.api.versions.enable": _but("only what is stable is offered", "false"),
    "unstable.feature.versions.enable": _but("only what is stable is offered", "false"),
}


class Translated(msgspec.Struct, frozen=True):
    """What a file says in our settings, and the names in it that have no meaning here."""

    settings: dict[str, object]
    ignored: tuple[str, ...]


def parsed(text: str) -> dict[str, str]:
    """Read a file of Java's properties: comments, continued lines and escapes; of two values the last one counts."""
    found: dict[str, str] = {}
    for line in _logical_lines(text):
        match = _SEPARATOR.fullmatch(line)
        assert match is not None, "every part of it may be empty"
        found[_unescaped(match["name"])] = _unescaped(match["value"]).strip()
    return found


def translated(given: Mapping[str, str], *, cluster_id: str | None, host: str) -> Translated:
    """Return a file's settings as ours; `ConfigError` names what cannot be obeyed.

    cluster_id: what the directories, or whoever formats them, say; a file of Kafka's has none.
    host:       the name of this machine, under which others reach a listener that is bound to all addresses.
    """
    rest = dict(given)
    settings: dict[str, object] = {}
    for name in [name for name in rest if name in REFUSED]:
        _check(name, rest.pop(name))
    for name in [name for name in rest if name.startswith(LISTENER_PREFIX)]:
        raise ConfigError(f"{name!r}: settings of one listener are not known here; they hold for all listeners")
    _rename(rest)
    ignored = sorted(name for name in rest if name not in DEFINITIONS and _has_no_meaning(name))
    for name, value in rest.items():
        if name in DEFINITIONS:
            settings[name] = _typed(name, value)
    if cluster_id is not None:
        settings.setdefault("cluster.id", cluster_id)
    _advertise(settings, host)
    return Translated(settings, tuple(ignored))


def config_of(content: bytes, origin: str, *, cluster_id: str | None, host: str) -> NodeConfig:
    """Return the configuration that a server.properties describes; `ConfigError` names the file and the setting."""
    try:
        found = translated(parsed(content.decode()), cluster_id=cluster_id, host=host)
        if "cluster.id" not in found.settings:
            raise ConfigError(
                "the directories are not formatted; run: python -m replog format --cluster-id ID --config ..."
            )
        return NodeConfig(found.settings, ignored=found.ignored)
    except UnicodeDecodeError as problem:
        raise ConfigError(f"{origin}: not a file of properties: {problem}") from None
    except ConfigError as problem:
        raise ConfigError(f"{origin}: {problem}") from None


def _logical_lines(text: str) -> Iterator[str]:
    held = ""
    for line in text.splitlines():
        bare = line.lstrip()
        if not held and (not bare or bare[0] in "#!"):
            continue
        held += bare
        if (len(held) - len(held.rstrip("\\"))) % 2:
            held = held[:-1]
        else:
            yield held
            held = ""
    if held:
        yield held


def _unescaped(text: str) -> str:
    def letter(match: re.Match[str]) -> str:
        code = match[1]
        return chr(int(code[1:], 16)) if len(code) > 1 else _LETTERS.get(code, code)

    return _ESCAPE.sub(letter, text)


def _check(name: str, value: str) -> None:
    refused = REFUSED[name]
    if ",".join(words(value)) not in refused.allowed:
        shown = "what was given" if name.endswith((".password", ".key")) else repr(value)
        others = sorted(refused.allowed - {""})
        say = f"; leave it out or say {others[0]!r}" if others else "; leave it out"
        raise ConfigError(f"{name!r} cannot be {shown}: {refused.why}{say}")


def _rename(rest: dict[str, str]) -> None:
    """Give settings our names and units, in place."""
    for theirs, ours in OTHER_NAMES.items():
        value = rest.pop(theirs, None)
        if value is not None and rest.setdefault(ours, value) != value and theirs == "broker.id":
            raise ConfigError(f"{theirs!r} is {value!r}, and {ours!r} is {rest[ours]!r}; leave one out")
    for ours, units in OTHER_UNITS.items():
        for theirs, unit_ms in units.items():
            value = rest.pop(theirs, None)
            if value is not None and ours not in rest:
                rest[ours] = str(_in_ms(theirs, value, unit_ms))
    protocol = rest.pop("security.inter.broker.protocol", None)
    if protocol is not None and rest.setdefault("inter.broker.listener.name", protocol) != protocol:
        raise ConfigError(
            "'security.inter.broker.protocol' and 'inter.broker.listener.name' say the same; leave one out"
        )
    only = _only_voter(rest, words(rest.get(BOOTSTRAP, "")))
    if only is not None and not rest.get(VOTERS):
        rest[VOTERS] = only


def _in_ms(name: str, value: str, unit_ms: int) -> int:
    try:
        number = int(value)
    except ValueError:
        raise ConfigError(f"{name!r} must be int, not {value!r}") from None
    return number * unit_ms if number >= 0 else number


def _only_voter(rest: Mapping[str, str], servers: list[str]) -> str | None:
    """Return the quorum of one that a node with a controller of its own makes; None: who votes is in the metadata log."""
    own = {endpoint("listeners", text).port for text in words(rest.get("listeners", ""))}
    has_controller = "controller" in words(rest.get("process.roles", ""))
    if not has_controller or len(servers) != 1 or endpoint(BOOTSTRAP, servers[0]).port not in own:
        return None
    return f"{rest.get('node.id', '')}@{servers[0]}"


def _has_no_meaning(name: str) -> bool:
    """Return True, unless the name is nearly one of ours: then it is a mistake, and `ConfigError` says so."""
    if name not in WITHOUT_MEANING:
        near = difflib.get_close_matches(name, DEFINITIONS, n=1, cutoff=SURELY_MEANT)
        if near:
            raise ConfigError(f"unknown setting {name!r}; did you mean {near[0]!r}?")
    return True


def _typed(name: str, text: str) -> object:
    """Return a text in the type of the setting; what does not fit stays as it is, to be refused with the others."""
    try:
        match DEFINITIONS[name].type:
            case ConfigType.SHORT | ConfigType.INT | ConfigType.LONG:
                return int(text)
            case ConfigType.DOUBLE:
                return float(text)
            case ConfigType.BOOLEAN:
                return {"true": True, "false": False}.get(text.lower(), text)
            case _:
                return text
    except ValueError:
        return text


def _advertise(settings: dict[str, object], host: str) -> None:
    """State where a listener that is bound to all addresses is reached, where the file does not."""
    listeners, stated = str(settings.get("listeners", "")), str(settings.get("advertised.listeners", ""))
    named = {_listener_name(text) for text in words(stated)}
    missing = [
        f"{_listener_name(text)}://{host}:{endpoint('listeners', text).port}"
        for text in words(listeners)
        if not endpoint("listeners", text).host and _listener_name(text) not in named
    ]
    if missing:
        settings["advertised.listeners"] = ",".join([*words(stated), *missing])


def _listener_name(text: str) -> str:
    return text.partition("://")[0] if "://" in text else PLAIN_NAME
