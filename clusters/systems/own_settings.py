"""Settings of a described system of objects: its file says which there are (`[nodes.settings]`), a scenario may say another value of each.

They stand in commands, `{set:NAME}`. Their names are the system's own; nobody judges by them.
"""

import math
import re
from collections.abc import Mapping, Sequence
from typing import Final

from tribunal.clusters.spec import SettingValue
from tribunal.results.near_words import hint

SetValue = bool | int | float | str
SET: Final = "set"
SET_NAME: Final = r"^\w[\w.-]*$"
# Any plan may set them, and a command may be a shell's: nothing that a shell takes for more than words.
TEXT: Final = re.compile(r"[\w .,:/@%+=-]*")


def as_text(value: SetValue) -> str:
    """Return a value as it stands in a command."""
    return str(value).lower() if isinstance(value, bool) else str(value)


def unfit(name: str, value: SetValue) -> str:
    """Return why a value cannot stand in a command; empty: it can."""
    if isinstance(value, str) and not TEXT.fullmatch(value):
        return f"{name} is {value!r}: a text has letters, digits, spaces, and . , : / @ % + = - _"
    if isinstance(value, float) and not math.isfinite(value):
        return f"{name} is {value}: a number is finite"  # JSON, as plan and manifest are, has no other
    return ""


def with_given(of_file: Mapping[str, SetValue], given: Mapping[str, SettingValue]) -> dict[str, SetValue]:
    """Return what nodes are started with: what the file says, and before it what a scenario does. A plan has what the scenario says alone.

    Raises ValueError in one line where there is no such setting, and for a value that the file's own shows to be none of its kind.
    """
    merged = dict(of_file)
    for name, value in given.items():
        if name not in of_file:
            raise ValueError(f"there is no setting {name!r} in [nodes.settings]; {hint(name, of_file)}")
        if (isinstance(value, Sequence) and not isinstance(value, str)) or not _is_alike(value, of_file[name]):
            raise ValueError(f"setting {name} is {value!r}, its file has {of_file[name]!r}: {_kind(of_file[name])}")
        if wrong := unfit(name, value):
            raise ValueError(f"setting {wrong}")
        merged[name] = value
    return merged


def _is_alike(value: SetValue, of_file: SetValue) -> bool:
    if isinstance(value, float):
        return isinstance(of_file, float)
    if type(value) is int and isinstance(of_file, float):
        return True
    return type(value) is type(of_file)


def _kind(of_file: SetValue) -> str:
    match of_file:
        case bool():
            return "use true or false"
        case int():
            return "use a whole number"
        case float():
            return "use a number"
        case str():
            return "use a text"
