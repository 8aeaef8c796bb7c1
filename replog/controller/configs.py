"""Topic, broker, cluster and group configs: what names exist, what values they take, who wins (SPEC 2.11).

The table comes from the node's settings: those that name a topic config. Values are kept and compared as text, as on
the wire.
"""

from collections.abc import Callable, Mapping
from enum import IntEnum
from math import inf
from typing import Final, NamedTuple

from replog.config import DEFINITIONS
from replog.config.groups import OWN_HEARTBEAT_INTERVAL_MS, OWN_SESSION_TIMEOUT_MS, GroupsConfig
from replog.config.identity import CORDONED_LOG_DIRS
from replog.config.setting import LONG_MAX, ConfigType, as_text
from replog.config.setting import Definition as SettingDefinition
from replog.errors import Error
from replog.metadata.image import Image
from replog.metadata.record_versions import METADATA_VERSION
from replog.metadata.state import (
    BROKER_RESOURCE,
    CLIENT_METRICS_RESOURCE,
    CLUSTER_DEFAULT,
    GROUP_RESOURCE,
    TOPIC_RESOURCE,
)
from replog.wire.encoder import STRING_BYTES_MAX
from replog.wire.messages import describe_configs as d


class Source(IntEnum):
    """Where a value comes from, by its number in DescribeConfigs; lower is more specific."""

    TOPIC = 1
    DYNAMIC_BROKER = 2
    DYNAMIC_DEFAULT_BROKER = 3
    STATIC_BROKER = 4
    DEFAULT = 5
    DYNAMIC_BROKER_LOGGER = 6
    GROUP = 8  # more specific than all of these, in spite of its number


class Definition(NamedTuple):
    """A config of a topic or a group: its type, its broker-wide name, Kafka's default, which values it takes."""

    type: ConfigType
    synonym: str
    default: str
    lowest: float = 0
    highest: float = inf
    choices: tuple[str, ...] = ()
    documentation: str = ""


NOT_THROTTLED: Final = "Kept for tools that move replicas; replication is not throttled here."

# The topics' side of the node's settings, and what only topics have: kept, and obeyed by nobody, as the throttles below.
TOPIC_CONFIGS: Final[dict[str, Definition]] = {
    each.setting.topic: Definition(
        each.type,
        each.name,
        as_text(each.default),
        each.setting.lowest,
        each.highest,
        each.choices,
        each.setting.description,
    )
    for each in DEFINITIONS.values()
    if each.setting.topic and each.default is not None
} | {
    f"{role}.replication.throttled.replicas": Definition(ConfigType.LIST, "", "", documentation=NOT_THROTTLED)
    for role in ("leader", "follower")
}

# What kafka-reassign-partitions clears behind every move. Kept, and obeyed by nobody: replication is not throttled here.
THROTTLES: Final[dict[str, Definition]] = {
    name: Definition(ConfigType.LONG, name, str(LONG_MAX), highest=LONG_MAX, documentation=NOT_THROTTLED)
    for name in (
        "leader.replication.throttled.rate",
        "follower.replication.throttled.rate",
        "replica.alter.log.dirs.io.max.bytes.per.second",
    )
}

# What each broker has of its own alone, never all together.
CORDONS: Final[dict[str, Definition]] = {
    CORDONED_LOG_DIRS: Definition(
        ConfigType.LIST, CORDONED_LOG_DIRS, "", documentation=DEFINITIONS[CORDONED_LOG_DIRS].setting.description
    )
}

# Broker-wide names that may be changed while running: the synonyms above, throttles, and cordons.
BROKER_CONFIGS: Final[dict[str, Definition]] = (
    {definition.synonym: definition for definition in TOPIC_CONFIGS.values() if definition.synonym}
    | THROTTLES
    | CORDONS
)

# What only a restart changes, in Kafka's names: a node says it of itself, as Kafka's brokers do.
STATIC_CONFIGS: Final = {
    name: each for name, each in DEFINITIONS.items() if each.setting.is_kafkas and name not in BROKER_CONFIGS
}

# What single groups of the new protocol may have of their own (KIP-848). Groups of other kinds there are none.
_GROUP_SYNONYMS: Final = {
    name: DEFINITIONS[f"group.{name}"] for name in (OWN_SESSION_TIMEOUT_MS, OWN_HEARTBEAT_INTERVAL_MS)
}
GROUP_CONFIGS: Final[dict[str, Definition]] = {
    name: Definition(
        each.type, each.name, as_text(each.default), 1, each.highest, documentation=each.setting.description
    )
    for name, each in _GROUP_SYNONYMS.items()
    if each.default is not None
}


# A node has one logger; Kafka's names of its levels.
ROOT_LOGGER: Final = "root"
LOGGER_LEVELS: Final = {"debug": "DEBUG", "info": "INFO", "warning": "WARN", "error": "ERROR"}


class Refused(NamedTuple):
    """Why a change of configs is refused."""

    error: Error
    message: str


def invalid_value(definition: Definition, name: str, value: str) -> str | None:
    """Return what is wrong with a value, None when it is fine."""
    if len(value.encode()) > STRING_BYTES_MAX:  # lists grow by what is appended; the record could not be read back
        return f"Value of {name} exceeds {STRING_BYTES_MAX} bytes."
    check = _CHECKS[definition.type]
    if not check(definition, value):
        return f"Invalid value {value!r} for configuration {name}"
    return None


def _is_number(definition: Definition, value: str, parse: Callable[[str], float]) -> bool:
    if "_" in value:
        return False  # Python reads 1_000; a broker of Apache Kafka that finds it in the metadata log does not
    try:
        return definition.lowest <= parse(value) <= definition.highest
    except ValueError:
        return False


_CHECKS: Final[dict[ConfigType, Callable[[Definition, str], bool]]] = {
    ConfigType.BOOLEAN: lambda _, value: value in ("true", "false"),
    ConfigType.STRING: lambda definition, value: not definition.choices or value in definition.choices,
    ConfigType.PASSWORD: lambda _, __: True,
    ConfigType.SHORT: lambda definition, value: _is_number(definition, value, int),
    ConfigType.INT: lambda definition, value: _is_number(definition, value, int),
    ConfigType.LONG: lambda definition, value: _is_number(definition, value, int),
    ConfigType.DOUBLE: lambda definition, value: _is_number(definition, value, float),
    ConfigType.LIST: lambda definition, value: (
        not definition.choices or all(word.strip() in definition.choices for word in value.split(","))
    ),
}


class Operation(IntEnum):
    """What IncrementalAlterConfigs does to one value."""

    SET = 0
    DELETE = 1
    APPEND = 2
    SUBTRACT = 3


def altered_value(
    definition: Definition, name: str, operation: int, value: str | None, current: str | None
) -> str | Refused | None:
    """Return a config's next value (None: removed), or why the operation is refused."""
    if operation == Operation.DELETE:
        return None
    if value is None:
        return Refused(Error.INVALID_CONFIG, f"Null value not supported for: {name}")
    if operation in (Operation.APPEND, Operation.SUBTRACT):
        if definition.type is not ConfigType.LIST:
            return Refused(Error.INVALID_CONFIG, f"Can't append to or subtract from {name}: it is not a list")
        value = _edited_list(current if current is not None else definition.default, value, operation)
    elif operation != Operation.SET:
        return Refused(Error.INVALID_REQUEST, f"Unknown operation {operation} on {name}")
    wrong = invalid_value(definition, name, value)
    return Refused(Error.INVALID_CONFIG, wrong) if wrong else value


def _edited_list(current: str, value: str, operation: int) -> str:
    words = [word for word in current.split(",") if word]
    named = [word for word in value.split(",") if word]
    if operation == Operation.APPEND:
        words += [word for word in named if word not in words]
    else:
        words = [word for word in words if word not in named]
    return ",".join(words)


def definitions(resource_type: int) -> Mapping[str, Definition] | None:
    """Return which configs a kind of resource has, None for kinds that have none here."""
    return {TOPIC_RESOURCE: TOPIC_CONFIGS, BROKER_RESOURCE: BROKER_CONFIGS, GROUP_RESOURCE: GROUP_CONFIGS}.get(
        resource_type
    )


def resource_refusal(image: Image, resource_type: int, resource_name: str) -> Refused | None:
    """Return why a resource's configs cannot be looked at or changed."""
    is_kept = resource_type != GROUP_RESOURCE or METADATA_VERSION in image.features  # ZooKeeper keeps none of groups
    if definitions(resource_type) is None or not is_kept:
        return Refused(Error.INVALID_REQUEST, f"Configs of resource type {resource_type} are not kept here")
    if resource_type == TOPIC_RESOURCE and resource_name not in image.topics_by_name:
        return Refused(Error.UNKNOWN_TOPIC_OR_PARTITION, f"Topic {resource_name!r} does not exist")
    if resource_type == BROKER_RESOURCE and resource_name != CLUSTER_DEFAULT and not resource_name.isdecimal():
        return Refused(Error.INVALID_REQUEST, f"Broker id expected, not {resource_name!r}")
    if resource_type == GROUP_RESOURCE and not resource_name:
        return Refused(Error.INVALID_REQUEST, "Group name must not be empty.")
    return None


def groups_refusal(groups: GroupsConfig, own: Mapping[str, str]) -> Refused | None:
    """Return why a group may not have these values of its own, in Kafka's words, and within Kafka's bounds.

    own:  checked one by one before; what is missing holds as the controller's file has it.
    """
    session, heartbeat = OWN_SESSION_TIMEOUT_MS, OWN_HEARTBEAT_INTERVAL_MS
    session_ms = int(own.get(session, groups.consumer_session_timeout_ms))
    heartbeat_ms = int(own.get(heartbeat, groups.consumer_heartbeat_interval_ms))
    for name, value, lowest, highest in (
        (session, session_ms, groups.consumer_session_timeout_ms_min, groups.consumer_session_timeout_ms_max),
        (heartbeat, heartbeat_ms, groups.consumer_heartbeat_interval_ms_min, groups.consumer_heartbeat_interval_ms_max),
    ):
        kind = name.removeprefix("consumer.")
        if name in own and value < lowest:
            return Refused(
                Error.INVALID_CONFIG, f"{name} must be greater than or equal to group.consumer.min.{kind} ({lowest})"
            )
        if name in own and value > highest:
            return Refused(
                Error.INVALID_CONFIG, f"{name} must be less than or equal to group.consumer.max.{kind} ({highest})"
            )
    if session_ms <= heartbeat_ms:
        return Refused(Error.INVALID_CONFIG, f"{session} must be greater than {heartbeat}")
    return None


def topic_value(
    image: Image, static: Mapping[str, str], topic: str, name: str, *, broker: str = ""
) -> tuple[str, Source]:
    """Return a topic config's effective value and where it comes from.

    static: the node's own file, by broker-wide names, defaults included; may lack names.
    broker: whose own dynamic values hold for logs that it keeps; empty for what holds wherever no broker has any.
    """
    own = image.topic_config(topic, name)
    return (own, Source.TOPIC) if own is not None else _broker_value(image, static, TOPIC_CONFIGS[name], broker)


def _broker_value(image: Image, static: Mapping[str, str], definition: Definition, broker: str) -> tuple[str, Source]:
    if broker:
        own = image.configs.get((BROKER_RESOURCE, broker), {}).get(definition.synonym)
        if own is not None:
            return own, Source.DYNAMIC_BROKER
    shared = image.cluster_config(definition.synonym)
    if shared is not None:
        return shared, Source.DYNAMIC_DEFAULT_BROKER
    value = static.get(definition.synonym, definition.default)
    return value, (Source.DEFAULT if value == definition.default else Source.STATIC_BROKER)


def _undescribed(image: Image, node_id: str | None, resource: d.DescribeConfigsResource) -> Refused | None:
    kind, name = resource.resource_type, resource.resource_name
    if kind == BROKER_RESOURCE and name != CLUSTER_DEFAULT:
        words = _not_this_broker(name, node_id, " or empty string,")
        return Refused(Error.INVALID_REQUEST, words) if words else None
    if kind != CLIENT_METRICS_RESOURCE:
        return resource_refusal(image, kind, name)
    # Nobody can make a subscription here, and one that does not exist has no configs, as in the released software.
    return None if name else Refused(Error.INVALID_REQUEST, "Client metrics subscription name must not be empty")


def _not_this_broker(name: str, node_id: str | None, or_else: str) -> str | None:
    """Return why this node says nothing of a broker of this name, in Kafka's words."""
    if not name.isdecimal():
        return f"Broker id must be an integer, but it is: {name}"
    if name != node_id:
        return f"Unexpected broker id, expected {node_id}{or_else} but received {name}"
    return None


def describe(
    image: Image,
    static: Mapping[str, str],
    resource: d.DescribeConfigsResource,
    *,
    with_synonyms: bool = False,
    with_documentation: bool = False,
) -> d.DescribeConfigsResult:
    """Answer for one resource of a DescribeConfigs request, names ascending.

    Of a single broker that broker alone says anything, as in Kafka; of the default of all brokers what somebody has set.
    with_synonyms:  say with each config which values it has at which level, the one that holds first.
    """
    refused = _undescribed(image, static.get("node.id"), resource)
    if refused:
        return d.DescribeConfigsResult(
            error_code=refused.error,
            error_message=refused.message,
            resource_type=resource.resource_type,
            resource_name=resource.resource_name,
        )
    wanted = resource.configuration_keys

    def is_wanted(name: str) -> bool:
        return wanted is None or name in wanted

    shown = [
        _Shown(
            name,
            definition.type,
            _levels(image, static, resource, name, definition),
            definition.documentation,
            definition.default,
        )
        for name, definition in (definitions(resource.resource_type) or {}).items()
        if is_wanted(name)
    ]
    if resource.resource_type == BROKER_RESOURCE and resource.resource_name == CLUSTER_DEFAULT:
        shown = [each for each in shown if each.levels]
    elif resource.resource_type == BROKER_RESOURCE:
        shown += [_of_file(static, name, each) for name, each in STATIC_CONFIGS.items() if is_wanted(name)]
    return d.DescribeConfigsResult(
        error_message=None,
        resource_type=resource.resource_type,
        resource_name=resource.resource_name,
        configs=[
            each.result(with_synonyms=with_synonyms, with_documentation=with_documentation)
            for each in sorted(shown, key=lambda each: each.name)
        ],
    )


def describe_loggers(node_id: int, level: str, resource: d.DescribeConfigsResource) -> d.DescribeConfigsResult:
    """Answer how much a node writes down for people: it has one logger, and its level is chosen when the node starts."""
    name = resource.resource_name
    words = _not_this_broker(name, str(node_id), "") if name else "Broker id must not be empty"
    return d.DescribeConfigsResult(
        error_code=Error.INVALID_REQUEST if words else Error.NONE,
        error_message=words,
        resource_type=resource.resource_type,
        resource_name=name,
        configs=[]
        if words or ROOT_LOGGER not in (resource.configuration_keys or [ROOT_LOGGER])
        else [
            d.DescribeConfigsResourceResult(
                name=ROOT_LOGGER,
                value=LOGGER_LEVELS[level],
                read_only=True,
                config_source=Source.DYNAMIC_BROKER_LOGGER,
                documentation=None,
            )
        ],
    )


class _Shown(NamedTuple):
    """A config as it is described. `levels` are the values that it has, the one that holds first."""

    name: str
    type: ConfigType
    levels: list[d.DescribeConfigsSynonym]
    documentation: str
    default: str | None = None  # where no level has a value
    is_read_only: bool = False

    def result(self, *, with_synonyms: bool, with_documentation: bool) -> d.DescribeConfigsResourceResult:
        """Return it in the answer's form."""
        first = self.levels[0] if self.levels else None
        return d.DescribeConfigsResourceResult(
            name=self.name,
            value=first.value if first else self.default,
            read_only=self.is_read_only,
            is_sensitive=self.type is ConfigType.PASSWORD,
            config_source=first.source if first else Source.DEFAULT,
            config_type=self.type,
            documentation=self.documentation if with_documentation else None,
            synonyms=self.levels if with_synonyms else [],
        )


def _of_file(static: Mapping[str, str], name: str, of: SettingDefinition) -> _Shown:
    """Say what the answering node was started with; what is secret is named and not said."""
    default = None if of.default is None else _unless_empty(of, as_text(of.default))
    stated = _unless_empty(of, static[name]) if name in static else default
    is_secret = of.type is ConfigType.PASSWORD
    levels = []
    if stated != default or (is_secret and name in static):
        levels.append(
            d.DescribeConfigsSynonym(name=name, value=None if is_secret else stated, source=Source.STATIC_BROKER)
        )
    if default is not None:
        levels.append(d.DescribeConfigsSynonym(name=name, value=default, source=Source.DEFAULT))
    return _Shown(name, of.type, levels, of.setting.description, is_read_only=True)


def _unless_empty(of: SettingDefinition, text: str) -> str | None:
    return None if not text and of.type in (ConfigType.STRING, ConfigType.PASSWORD) else text


def _levels(
    image: Image, static: Mapping[str, str], resource: d.DescribeConfigsResource, name: str, definition: Definition
) -> list[d.DescribeConfigsSynonym]:
    synonym = definition.synonym
    kind, resource_name, answerer = resource.resource_type, resource.resource_name, static.get("node.id", "")
    found = [(synonym, image.cluster_config(synonym), Source.DYNAMIC_DEFAULT_BROKER)]
    if (kind, resource_name) != (BROKER_RESOURCE, CLUSTER_DEFAULT):
        stated = static.get(synonym, definition.default)
        found.append((synonym, stated if stated != definition.default else None, Source.STATIC_BROKER))
        found.append((synonym, definition.default if synonym else None, Source.DEFAULT))
        if kind != GROUP_RESOURCE:  # a broker's own value holds for what it keeps itself
            own = image.configs.get((BROKER_RESOURCE, answerer), {}).get(synonym)
            found.insert(0, (synonym, own, Source.DYNAMIC_BROKER))
        if kind in (TOPIC_RESOURCE, GROUP_RESOURCE):
            source = Source.TOPIC if kind == TOPIC_RESOURCE else Source.GROUP
            found.insert(0, (name, image.configs.get((kind, resource_name), {}).get(name), source))
    return [
        d.DescribeConfigsSynonym(name=synonym, value=value, source=source)
        for synonym, value, source in found
        if value is not None
    ]
