"""What operators ordered that takes records away: an order excuses only what it named, from when it was sent, and only if it was not refused.

DeleteRecords names partitions and where their logs are to begin; ElectLeaders names partitions; retention is in force for a topic from
when it was set. An order whose answer was lost may be carried out at any time after it was sent.
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final

import msgspec

from tribunal.results.admin_apis import UNCLEAN, AdminApi
from tribunal.results.manifest import Setting
from tribunal.results.rows import Admin

NEVER: Final = 1 << 62
# Kafka's names of what limits how long records are kept, by their unit, the finest first; without a finite limit nothing goes.
RETENTION_MS: Final = {"retention.ms": 1, "retention.minutes": 60_000, "retention.hours": 3_600_000}
# Who has not heard of a change of settings by then is fenced: brokers follow the metadata log within their session.
APPLIED_NS: Final = 10_000_000_000
OBSERVED_NS: Final = 1_000_000_000  # a removal is observed that much behind its answer, also on a busy machine
OF_SIZE: Final = "retention.bytes"
# Of a record of ours with its share of the batch, beside its key: values have 8 bytes. No recording says how large a log was.
MOST_BYTES: Final = 1 << 10
POLICY: Final = "cleanup.policy"
DELETE: Final = "delete"
COMPACT: Final = "compact"
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


class ClockSet(msgspec.Struct, frozen=True, kw_only=True):
    """That a node's clock was set, from a moment on, and when it was set right again. node None: nobody knows whose.

    span_ns:  by how much at most records are older by it than they are; NEVER: nobody knows.
    """

    since_ns: int
    until_ns: int = NEVER
    node: int | None
    span_ns: int = NEVER


def orders(admin: Iterable[Admin], *, deletes_later: bool = False) -> list[Order]:
    """Return what was ordered; of elections only unclean ones.

    deletes_later:  the answer to a deletion says that it is queued (ZooKeeper mode): it is carried out when every replica has answered.
    """
    return [
        Order(
            api=AdminApi(row.api),
            topic=row.topic,
            partition=row.partition,
            group=row.group,
            log_offset=row.log_offset,
            since_ns=row.invoke_ns,
            until_ns=NEVER
            if row.outcome == "info" or row.complete_ns is None or (deletes_later and row.api == AdminApi.DELETE_TOPIC)
            else row.complete_ns,
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

    given:       what the nodes were started with: in force only while the topic has no value of its own.
    configured:  (when, name, value) as the committed metadata gave them to the topic, in order; None: taken back.
    ordered:     the table `admin`: an order may be carried out though nobody recorded the metadata of it.
    """
    own: list[TopicSetting] = []
    open_: dict[str, TopicSetting] = {}
    for at_ns, name, value in configured:
        if name in open_:
            own.append(msgspec.structs.replace(open_.pop(name), until_ns=at_ns))
        if value is not None:
            open_[name] = _setting(at_ns, name, value)
    own += open_.values()
    return [*_of_nodes(given, own), *own, *_of_orders(ordered, topic)]


def _of_nodes(given: Mapping[str, Setting], own: Sequence[TopicSetting]) -> Iterator[TopicSetting]:
    """Yield the nodes' settings while the topic has none of its own; of several units the finest counts, as in Kafka."""
    names = {name.removeprefix("log."): value for name, value in given.items()}
    coarser = [name for name in RETENTION_MS if name in names][1:]
    for name, value in names.items():
        if name in coarser:
            continue
        since_ns = 0
        of_topic = "retention.ms" if name in RETENTION_MS else name
        for spell in sorted((one for one in own if one.name == of_topic), key=lambda one: one.since_ns):
            if since_ns < spell.since_ns:
                yield TopicSetting(name=name, value=str(value), since_ns=since_ns, until_ns=spell.since_ns)
            since_ns = spell.until_ns
        if since_ns < NEVER:
            yield _setting(since_ns, name, value)


def _of_orders(ordered: Iterable[Admin], topic: str) -> Iterator[TopicSetting]:
    """Yield what was ordered; a change that was answered is over when a later one of the same setting has been."""
    rows = [row for row in ordered if row.outcome != "fail" and row.topic in (None, topic) and row.setting is not None]
    for row in rows:
        if row.setting is None or row.value is None:
            continue
        done_ns = None if row.outcome == "info" else row.complete_ns
        later = (
            other.complete_ns + APPLIED_NS
            for other in rows
            if done_ns is not None and other.outcome == "ok" and other.complete_ns is not None
            if (other.topic, other.setting) == (row.topic, row.setting) and other.invoke_ns >= done_ns
        )
        name = row.setting if row.topic is not None else row.setting.removeprefix("log.")
        yield msgspec.structs.replace(_setting(row.invoke_ns, name, row.value), until_ns=min(later, default=NEVER))


def _setting(at_ns: int, name: str, value: Setting) -> TopicSetting:
    return TopicSetting(name=name, value=str(value), since_ns=at_ns)


class TopicOrders:
    """What was ordered of one partition, as far as records go by it.

    Each replica deletes by its own clock, and who leads moves the log start. Until its clock was set a broker's ages of records are what the
    harness measured.

    clocks:               that were set, of those that led, or of nobody knows whom.
    clocks_of_followers:  that were set, of whoever is known.
    removed_ns:           when the committed metadata say that the topic was removed, and not created again; None: it was not.
    """

    def __init__(
        self,
        place: Place,
        ordered: Sequence[Order],
        settings: Sequence[TopicSetting],
        *,
        clocks: Sequence[ClockSet] = (),
        clocks_of_followers: Sequence[ClockSet] = (),
        removed_ns: int | None = None,
    ) -> None:
        deletions = (one for one in ordered if one.api == AdminApi.DELETE_TOPIC and one.names(*place))
        last_ns = NEVER if removed_ns is None else removed_ns - OBSERVED_NS
        self._deleted_ns = min((one.since_ns for one in deletions if one.until_ns >= last_ns), default=NEVER)
        self.is_deleted = removed_ns is not None and self._deleted_ns <= removed_ns
        self._deletions = [one for one in ordered if one.api == AdminApi.DELETE_RECORDS and one.names(*place)]
        self._settings = settings
        self._clocks = clocks
        self._clocks_of_followers = clocks_of_followers

    def is_deleted_before(self, at_ns: int | None) -> bool:
        """Whether what was missing at a moment (None: in the end) may have gone with the topic."""
        return self.is_deleted and self._deleted_ns <= (NEVER if at_ns is None else at_ns)

    @property
    def is_compacted(self) -> bool:
        """Whether older records of a key may go."""
        return any(one.name == POLICY and COMPACT in one.value for one in self._settings)

    def compacted_ns(self, sent_ns: int, absent_ns: int | None) -> int | None:
        """Return since when older records of a key could go between two moments; None: they could not."""
        own = self._in_force(sent_ns, absent_ns)
        return next((one.since_ns for one in own if one.name == POLICY and COMPACT in one.value), None)

    def _may_delete(self, sent_ns: int, last_ns: int) -> bool:
        """Whether old segments could go between two moments: as long as no policy without that is in force all the time."""
        policies = [one for one in self._in_force(sent_ns, last_ns) if one.name == POLICY]
        others = (one.since_ns <= sent_ns and one.until_ns >= last_ns for one in policies if DELETE not in one.value)
        return any(DELETE in one.value for one in policies) or not any(others)

    def _in_force(self, sent_ns: int, absent_ns: int | None) -> list[TopicSetting]:
        last_ns = NEVER if absent_ns is None else absent_ns
        return [one for one in self._settings if one.since_ns <= last_ns and sent_ns <= one.until_ns]

    def taken_ns(
        self,
        log_offset: int,
        sent_ns: int,
        there_ns: int,
        absent_ns: int | None,
        behind_bytes: int,
        node: int | None = None,
    ) -> int | None:
        """Return since when an order may have taken a record that lies before the log start and was found to be absent (None: in the end).

        there_ns:      when it was there still, at or after it was sent.
        behind_bytes:  how much may stand behind it at most.
        node:          whose replica lacks it; None: the log.
        """
        deleted = (
            one.since_ns
            for one in self._deletions
            if one.may_be_done(there_ns, absent_ns) and (one.log_offset is None or one.log_offset > log_offset)
        )
        last_ns = NEVER if absent_ns is None else absent_ns
        clocks = [*self._clocks, *(one for one in self._clocks_of_followers if one.node == node)]
        unsteady = [one for one in clocks if one.since_ns <= last_ns and one.until_ns >= sent_ns]
        limited = (
            one.since_ns
            for one in self._in_force(max(sent_ns, there_ns - APPLIED_NS), absent_ns)
            if self._may_delete(sent_ns, last_ns)
            and self._limits(one, _age_ns(one, sent_ns, last_ns, unsteady), behind_bytes)
        )
        return next(deleted, next(limited, None))

    def _limits(self, setting: TopicSetting, age_ns: int, behind_bytes: int) -> bool:
        """Whether a setting that is in force lets a record of that age go, or one with so much behind it."""
        if re.fullmatch(r"\d+", setting.value) is None:
            return False
        if setting.name == OF_SIZE:  # what is left has at least that size
            return behind_bytes >= int(setting.value)
        unit = RETENTION_MS.get(setting.name)
        return unit is not None and age_ns >= int(setting.value) * unit * 1_000_000


def _age_ns(setting: TopicSetting, sent_ns: int, last_ns: int, unsteady: Sequence[ClockSet]) -> int:
    """Return how old a record was at most, by the clocks of those that delete, while a setting was in force, and until brokers had heard of the next."""
    until_ns = min(last_ns, setting.until_ns + APPLIED_NS)
    wrong_ns = sum(one.span_ns for one in unsteady if one.since_ns <= until_ns and one.until_ns >= setting.since_ns)
    return min(until_ns - sent_ns + wrong_ns, NEVER)
