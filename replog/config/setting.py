"""What is written about a setting beside its field, and what follows from it.

A field of a configuration struct is annotated with `kafka(...)` or `ours(...)`: the name in the file, the limits, and
one sentence for `docs/configuration.md`. Its type and its default are the field's own. `definitions_of` puts the two
together; files, scenarios, DescribeConfigs and the documentation all read these definitions.
"""

from enum import IntEnum
from functools import cache
from math import inf
from typing import Annotated, Final, Literal, get_args, get_origin

import msgspec

from replog.config.endpoints import ConfigError

Value = bool | int | float | str | tuple[str, ...]


class ConfigType(IntEnum):
    """Types of config values, by their numbers in DescribeConfigs."""

    BOOLEAN = 1
    STRING = 2
    INT = 3
    SHORT = 4
    LONG = 5
    DOUBLE = 6
    LIST = 7
    PASSWORD = 9


SHORT_MAX: Final = 2**15 - 1
INT_MAX: Final = 2**31 - 1
LONG_MAX: Final = 2**63 - 1
HIGHEST: Final = {ConfigType.SHORT: SHORT_MAX, ConfigType.INT: INT_MAX, ConfigType.LONG: LONG_MAX}
UNITS: Final = ("ms", "bytes", "seconds", "minutes")

Short = Annotated[int, ConfigType.SHORT]  # a whole number of 16 bits
Long = Annotated[int, ConfigType.LONG]  # a whole number of 64 bits; a plain `int` has 32, as in Kafka
Secret = Annotated[str, ConfigType.PASSWORD]  # a text that is never shown

TYPES: Final[dict[object, ConfigType]] = {
    bool: ConfigType.BOOLEAN,
    int: ConfigType.INT,
    float: ConfigType.DOUBLE,
    str: ConfigType.STRING,
    Literal: ConfigType.STRING,
    tuple: ConfigType.LIST,
}
FILE_TYPES: Final[dict[ConfigType, type]] = {
    ConfigType.BOOLEAN: bool,
    ConfigType.STRING: str,
    ConfigType.INT: int,
    ConfigType.SHORT: int,
    ConfigType.LONG: int,
    ConfigType.DOUBLE: float,
    ConfigType.LIST: list,
    ConfigType.PASSWORD: str,
}


class Setting(msgspec.Struct, frozen=True, kw_only=True):
    """What a field's type and default do not say.

    is_kafkas:  Apache Kafka has a setting of this name (or a KIP has given it one); else it is ours.
    topic:      the name of the topic config that overrides it; such a setting may also be changed while brokers run.
    has_effect: whether anything reads it; what Kafka's files may name is accepted, shown and marked where it does nothing here.
    """

    name: str
    description: str
    is_kafkas: bool
    lowest: float = 0
    highest: float = inf
    topic: str = ""
    has_effect: bool = True


def kafka(name: str, description: str, *, lowest: float = 0, highest: float = inf, topic: str = "") -> Setting:
    """Describe a setting that Kafka has, too."""
    return Setting(name=name, description=description, is_kafkas=True, lowest=lowest, highest=highest, topic=topic)


def without_effect(name: str, description: str, *, topic: str = "") -> Setting:
    """Describe a setting of Kafka's that is accepted and shown, and that nothing reads."""
    return Setting(name=name, description=description, is_kafkas=True, topic=topic, has_effect=False)


def ours(name: str, description: str, *, lowest: float = 0, highest: float = inf) -> Setting:
    """Describe a setting that only replog has."""
    return Setting(name=name, description=description, is_kafkas=False, lowest=lowest, highest=highest)


class Definition(msgspec.Struct, frozen=True, kw_only=True):
    """All that is known of one setting.

    default:  None where the setting must be given.
    choices:  of a list, what its members may be; empty where anything goes.
    """

    setting: Setting
    field: str
    type: ConfigType
    default: Value | None
    choices: tuple[str, ...]

    @property
    def name(self) -> str:
        """The name in a node's file."""
        return self.setting.name

    @property
    def highest(self) -> float:
        """The highest value of a number; infinite where nothing limits it."""
        return min(self.setting.highest, HIGHEST.get(self.type, inf))

    @property
    def unit(self) -> str:
        """The unit of a number, by its name; empty for what is only counted."""
        return next((unit for unit in UNITS if unit in self.name.split(".")), "") if self.type in HIGHEST else ""

    def checked(self, given: object) -> Value:
        """Return a file's value in the type of its field; `ConfigError` names what is wrong."""
        value = tuple(words(given)) if self.type is ConfigType.LIST and isinstance(given, str) else given
        wanted = FILE_TYPES[self.type]
        if isinstance(value, list) and wanted is list and all(isinstance(word, str) for word in value):
            value = tuple(value)
        if self.type is ConfigType.DOUBLE and type(value) is int:
            value = float(value)
        if not isinstance(value, bool | int | float | str | tuple) or type(value) is not (
            tuple if wanted is list else wanted
        ):
            shown = "what was given" if self.type is ConfigType.PASSWORD else repr(given)
            raise ConfigError(f"{self.name!r} must be {wanted.__name__}, not {shown}")
        self._check_limits(value)
        return value

    def parsed(self, text: str) -> Value:
        """Return the value of a text that was checked before, such as one from the metadata log."""
        match self.type:
            case ConfigType.BOOLEAN:
                return text == "true"
            case ConfigType.SHORT | ConfigType.INT | ConfigType.LONG:
                return int(text)
            case ConfigType.DOUBLE:
                return float(text)
            case ConfigType.LIST:
                return tuple(words(text))
            case ConfigType.STRING | ConfigType.PASSWORD:
                return text

    def _check_limits(self, value: Value) -> None:
        name, lowest, highest = self.name, self.setting.lowest, self.highest
        if isinstance(value, str | tuple):
            for word in (value,) if isinstance(value, str) else value:
                if self.choices and word not in self.choices:
                    raise ConfigError(f"{name!r} is {word!r}; use {' or '.join(map(repr, self.choices))}")
        elif lowest == 0 and value < 0:
            raise ConfigError(f"{name!r} must not be negative: {value}")
        elif value < lowest:
            raise ConfigError(f"{name!r} must be at least {lowest}: {value}")
        elif not value <= highest:  # what is no number is not below it either
            raise ConfigError(f"{name!r} must be at most {highest}: {value}")


def words(text: str) -> list[str]:
    """Return the members of a list that is written as Kafka writes lists: with commas."""
    return [word.strip() for word in text.split(",") if word.strip()]


def as_text(value: Value) -> str:
    """Return a value as Kafka writes it."""
    if isinstance(value, tuple):
        return ",".join(value)
    return str(value).lower() if isinstance(value, bool) else str(value)


@cache
def definitions_of(area: type[msgspec.Struct]) -> tuple[Definition, ...]:
    """Return the settings of one area, in the order of its fields."""
    return tuple(_definition(field) for field in msgspec.structs.fields(area))


def _definition(field: msgspec.structs.FieldInfo) -> Definition:
    bare, *notes = get_args(field.type)
    (setting,) = [note for note in notes if isinstance(note, Setting)]
    (kind,) = [note for note in notes if isinstance(note, ConfigType)] or [TYPES[get_origin(bare) or bare]]
    choice = get_args(bare)[0] if kind is ConfigType.LIST else bare
    return Definition(
        setting=setting,
        field=field.name,
        type=kind,
        default=None if field.default is msgspec.NODEFAULT else field.default,
        choices=get_args(choice) if get_origin(choice) is Literal else (),
    )
