"""What operators ordered that takes records away: an order excuses only what it named, from when it was sent, and only if it was not refused.

DeleteRecords names partitions and where their logs are to begin; ElectLeaders names partitions; retention is in force for a topic from
when it was set. An order whose answer was lost may be carried out at any time after it was sent.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

import msgspec

from tribunal.results.admin_apis import UNCLEAN, AdminApi
from tribunal.results.manifest import Setting
from tribunal.results.rows import Admin

NEVER: Final = 1 << 62
# Kafka's names of what limits how long records are kept, by their unit; without a finite limit nothing goes.
RETENTION_MS: Final = {"retention.ms": 1, "retention.minutes": 60_000, "retention.hours": 3_600_000}
OF_SIZE: Final = "retention.bytes"
POLICY: Final = "cleanup.policy"
DELETE: Final = "delete"
Place = tuple[str, int]


class Order(msgspec.Struct, frozen=True, kw_only=True):
    """One thing that somebody ordered and that was not refused. None: of everything; of DeleteRecords: up to the high watermark.

    since_ns, until_ns:  between them it was carried out, if it was.
    """

    api: AdminApi
    topic: str | None = None
    partition: int | None = None
    group: str | None = None
    log_offset: int | None = None
    since_ns: int
    until_ns: int

    def names(self, topic: str, partition: int) -> bool:
        """Whether it is about this partition."""
        return self.topic in (None, topic) and self.partition in (None, partition)

    def may_be_done(self, since_ns: int, until_ns: int | None) -> bool:
        """Whether it may have been carried out between two moments."""
        return since_ns <= self.until_ns and self.since_ns <= (NEVER if until_ns is None else until_ns)


# What takes a group's position away, or sets it.
OF_POSITIONS: Final = (AdminApi.ALTER_OFFSET, AdminApi.DELETE_OFFSET, AdminApi.DELETE_GROUP, AdminApi.DELETE_TOPIC)


class TopicSetting(msgspec.Struct, frozen=True, kw_only=True):
    """A value that a setting of a topic had, between two moments."""

    name: str
    value: str
    since_ns: int
    until_ns: int = NEVER


def orders(admin: Iterable[Admin]) -> list[Order]:
    """Return what was ordered; of elections only unclean ones."""
    return [
        Order(
            api=AdminApi(row.api),
            topic=row.topic,
            partition=row.partition,
            group=row.group,
            log_offset=row.log_offset,
            since_ns=row.invoke_ns,
            until_ns=NEVER if row.outcome == "info" or row.complete_ns is None else row.complete_ns,
        )
        for row in admin
        if row.outcome != "fail" and row.api in set(AdminApi)
        if row.api != AdminApi.ELECT_LEADERS or row.value == UNCLEAN
    ]


def settings_of_topic(
    given: Mapping[str, Setting],
    configured: Sequence[tuple[int, str, str | None]],
    ordered: Iterable[Admin],
    topic: str,
) -> list[TopicSetting]:
    """Return the values that the settings of a topic had, by the names that topics have for them.

    given:       what the nodes were started with.
    configured:  (when, name, value) as the committed metadata gave them to the topic, in order; None: taken back.
    ordered:     the table `admin`: an order may be carried out though nobody recorded the metadata of it.
    """
    found = [_setting(0, name.removeprefix("log."), value) for name, value in given.items()]
    open_: dict[str, TopicSetting] = {}
    for at_ns, name, value in configured:
        if name in open_:
            found.append(msgspec.structs.replace(open_.pop(name), until_ns=at_ns))
        if value is not None:
            open_[name] = _setting(at_ns, name, value)
    found += open_.values()
    found += [
        _setting(row.invoke_ns, row.setting, row.value)
        for row in ordered
        if row.outcome != "fail" and row.topic in (None, topic)
        if row.setting is not None and row.value is not None
    ]
    return found


def _setting(at_ns: int, name: str, value: Setting) -> TopicSetting:
    return TopicSetting(name=name, value=str(value), since_ns=at_ns)


class TopicOrders:
    """What was ordered of one partition, as far as records go by it.

    is_steady:   no clock was set, so that brokers' ages of records are what the harness measured.
    is_removed:  the committed metadata say that the topic was removed, and not created again.
    """

    def __init__(
        self,
        place: Place,
        ordered: Sequence[Order],
        settings: Sequence[TopicSetting],
        *,
        is_steady: bool,
        is_removed: bool = False,
    ) -> None:
        deleted = any(one.api == AdminApi.DELETE_TOPIC and one.names(*place) for one in ordered)
        self.is_deleted = is_removed and deleted
        self._deletions = [one for one in ordered if one.api == AdminApi.DELETE_RECORDS and one.names(*place)]
        self._settings = settings
        self._is_steady = is_steady

    @property
    def is_compacted(self) -> bool:
        """Whether older records of a key may go."""
        return any(one.name == POLICY and "compact" in one.value for one in self._settings)

    def may_take(self, log_offset: int, sent_ns: int, absent_ns: int | None) -> bool:
        """Whether a record that lies before the log start may be gone by an order when it was found to be absent (None: in the end)."""
        deleted = (
            one.log_offset is None or one.log_offset > log_offset
            for one in self._deletions
            if one.may_be_done(sent_ns, absent_ns)
        )
        return any(deleted) or any(self._limits(one, sent_ns, absent_ns) for one in self._settings)

    def _limits(self, setting: TopicSetting, sent_ns: int, absent_ns: int | None) -> bool:
        """Whether a setting lets a record of that age go."""
        last_ns = NEVER if absent_ns is None else absent_ns
        in_force = setting.since_ns <= last_ns and sent_ns <= setting.until_ns
        if not in_force or re.fullmatch(r"\d+", setting.value) is None:
            return False
        if setting.name == OF_SIZE:
            return True
        unit = RETENTION_MS.get(setting.name)
        return unit is not None and (not self._is_steady or last_ns - sent_ns >= int(setting.value) * unit * 1_000_000)
