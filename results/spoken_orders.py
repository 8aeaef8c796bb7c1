"""Orders of operators as version 1 recorded them: the name of an API and a text, JSON or not. What they name is found here.

What cannot be distinguished is an order about everything: such an old recording excuses more than it would today.
"""

import re
from collections.abc import Iterator, Mapping
from typing import Final

import msgspec

from tribunal.results.admin_apis import AdminApi
from tribunal.results.unreadable import UNREADABLE

Json = str | int | float | bool | None | list["Json"] | dict[str, "Json"]

PARTITION: Final = re.compile(r"(?<![\w.-])([\w.][\w.-]*)-(\d+)(?![\w.-])")
SETTING: Final = re.compile(r"([a-z]+(?:\.[a-z]+)+)\s*[=:]\s*\"?([^\s,\"}\]]*)")
SETTING_NAME: Final = re.compile(r"[a-z]+(\.[a-z]+)+")
ELECTION: Final = re.compile(r"unclean|preferred", re.IGNORECASE)
TOPIC_KEYS: Final = frozenset({"topic", "topics", "name", "resource_name"})
GROUP_KEYS: Final = frozenset({"group", "groups", "group_id"})
OFFSET_KEYS: Final = frozenset({"offset", "log_offset", "before_offset"})


class Spoken(msgspec.Struct, frozen=True):
    """An order as it stands in a recording of version 1."""

    api: str | None
    arguments: str | None


class Thing(msgspec.Struct, frozen=True, kw_only=True):
    """One thing that an order names; null is everything."""

    api: str | None
    topic: str | None = None
    partition: int | None = None
    log_offset: int | None = None
    setting: str | None = None
    value: str | None = None
    group: str | None = None


class _Named:
    """What an order's text names, gathered."""

    def __init__(self) -> None:
        self.places: dict[tuple[str, int | None], int | None] = {}
        self.settings: dict[str, str | None] = {}
        self.groups: dict[str, None] = {}
        self.partition: int | None = None
        self.log_offset: int | None = None

    def walk(self, spoken: Json, topic: str | None = None) -> None:
        """Take in a part of a JSON text; `topic`: of what it stands within."""
        match spoken:
            case dict():
                self._walk_fields(spoken, topic)
            case list():
                for one in spoken:
                    self.walk(one, topic)
            case str():
                self.text(spoken)
            case _:
                pass  # a number or nothing names nothing by itself

    def _walk_fields(self, spoken: Mapping[str, Json], topic: str | None) -> None:
        name = spoken.get("name")
        if isinstance(name, str) and SETTING_NAME.fullmatch(name) and "value" in spoken:
            self.settings[name] = _text(spoken["value"])
            return
        own = [value for key, value in spoken.items() if key in TOPIC_KEYS and isinstance(value, str)]
        topic = own[0] if own else topic
        former = set(self.places)
        is_place = self._place(spoken, topic)
        whole: dict[str, None] = {}
        for key, value in spoken.items():
            place = PARTITION.fullmatch(key)
            if place is not None:
                self.places[place[1], int(place[2])] = value if isinstance(value, int) else None
            elif SETTING_NAME.fullmatch(key):
                self.settings[key] = _text(value)
            elif key in TOPIC_KEYS | GROUP_KEYS:
                self._names(value, self.groups if key in GROUP_KEYS else whole)
            elif key in OFFSET_KEYS | {"partition"} and isinstance(value, int):
                self._number(key, value, is_place=is_place)
            else:
                self.walk(value, topic)
        placed = {place[0] for place in self.places.keys() - former}
        self.places |= {(one, None): None for one in whole if one not in placed and not (is_place and one == topic)}

    def _place(self, spoken: Mapping[str, Json], topic: str | None) -> bool:
        """Return whether fields name one partition of a topic, which is taken in."""
        number = spoken.get("partition")
        if topic is None or not isinstance(number, int):
            return False
        offsets = [value for key, value in spoken.items() if key in OFFSET_KEYS and isinstance(value, int)]
        self.places[topic, number] = offsets[0] if offsets else None
        return True

    def _number(self, key: str, value: int, *, is_place: bool) -> None:
        """Take in a partition or an offset; that of a partition with its topic says nothing of others."""
        if is_place:
            return
        if key == "partition":
            self.partition = value
        else:
            self.log_offset = value

    def _names(self, value: Json, names: dict[str, None]) -> None:
        for one in value if isinstance(value, list) else [value]:
            if isinstance(one, str):
                names[one] = None
            else:
                self.walk(one)

    def text(self, spoken: str) -> None:
        """Take in a text that is not JSON."""
        self.settings |= dict(SETTING.findall(spoken))
        self.places |= {(place[1], int(place[2])): None for place in PARTITION.finditer(spoken)}

    def things(self, api: str | None, value: str | None) -> Iterator[Thing]:
        """Yield one thing each."""
        places: dict[tuple[str | None, int | None], int | None] = {
            (topic, self.partition if number is None else number): self.log_offset if offset is None else offset
            for (topic, number), offset in self.places.items()
        }
        settings: list[tuple[str | None, str | None]] = [*self.settings.items()] or [(None, value)]
        groups: list[str | None] = [*self.groups] or [None]
        for (topic, number), offset in (places or {(None, None): self.log_offset}).items():
            for setting, text in settings:
                for group in groups:
                    yield Thing(
                        api=api,
                        topic=topic,
                        partition=number,
                        log_offset=offset,
                        setting=setting,
                        value=text,
                        group=group,
                    )


def named_things(order: Spoken) -> list[Thing]:
    """Return everything that an order names; one thing that is everything where nothing is named."""
    text = order.arguments or ""
    named = _Named()
    try:
        spoken: Json = msgspec.json.decode(text)
        named.walk(spoken)
    except UNREADABLE:
        named.text(text)
    api = _api(order.api)
    election = ELECTION.search(text) if api == AdminApi.ELECT_LEADERS else None
    return list(named.things(api, election[0].lower() if election else None))


def _api(name: str | None) -> str | None:
    if name is not None and "config" in name:
        return AdminApi.SET_CONFIG.value
    singular = (name or "").removesuffix("s")
    return singular if singular in set(AdminApi) else name


def _text(value: Json) -> str | None:
    return value if value is None or isinstance(value, str) else msgspec.json.encode(value).decode()
