"""What settings are called, which types, defaults and limits they have: as in Apache Kafka 4.3.1, but for what is named here.

kafka_settings.tsv lists what the released software says of itself (Settings.java): scope, name, type, default, limits. Where a default is null there, hours or another setting say more; for topics there is always one.
"""

import re
import shutil
import subprocess
from pathlib import Path
from typing import NamedTuple

import pytest

from replog.config import DEFINITIONS
from replog.config.kafkas_names import WITHOUT_MEANING
from replog.config.properties import BOOTSTRAP, OTHER_NAMES, OTHER_UNITS, REFUSED
from replog.config.setting import HIGHEST, as_text
from replog.controller.configs import TOPIC_CONFIGS
from tests.e2e.kafka_command import QUICK_START, jars_or_skip
from tribunal.clusters.kafka.side_by_side import java

LISTED = Path(__file__).parent / "kafka_settings.tsv"
SUPER_USERS = "the authorizer's own setting, which Kafka passes on to it"
PART_TWO = "KIP-966, part 2, which no release has"
ZOOKEEPER = "a setting of ZooKeeper mode, which release 4 has not"
OF_NO_RELEASE = {
    "allow.everyone.if.no.acl.found": SUPER_USERS,
    "super.users": SUPER_USERS,
    "inter.broker.protocol.version": ZOOKEEPER,
    "unclean.recovery.manager.enabled": PART_TWO,
    "unclean.recovery.strategy": PART_TWO,
    "unclean.recovery.timeout.ms": PART_TWO,
    "zookeeper.connect": ZOOKEEPER,
    "zookeeper.connection.timeout.ms": ZOOKEEPER,
    "zookeeper.session.timeout.ms": ZOOKEEPER,
}
KERBEROS = "there is no Kerberos here; without a mechanism nobody logs in"
PEM = "PEM is the only form of key stores here"
OTHER_TYPES = {"listener.security.protocol.map": "a list here; Kafka keeps the text and splits it later"}
OTHER_DEFAULTS = {
    "listener.security.protocol.map": "the same four names, and controllers' listeners without an entry",
    "listeners": "a node says where it listens",
    "queued.max.request.bytes": "memory for requests is limited from the beginning",
    "sasl.enabled.mechanisms": KERBEROS,
    "sasl.mechanism.controller.protocol": KERBEROS,
    "sasl.mechanism.inter.broker.protocol": KERBEROS,
    "ssl.keystore.type": PEM,
    "ssl.truststore.type": PEM,
}
NOBODY_COULD_CONNECT = "0 would let nobody in"
SMALL = "small segments are how tests and scenarios roll them; Kafka has internal.segment.bytes for it"
OTHER_LIMITS = {
    "log.segment.bytes": SMALL,
    "max.connection.creation.rate": NOBODY_COULD_CONNECT,
    "max.connections": NOBODY_COULD_CONNECT,
    "process.roles": "checked where it is read: ZooKeeper mode has none",
    "segment.bytes": SMALL,
}
OTHER_IN_TIERS = ("compression.", "local.", "remote.", "internal.")  # topic configs that replog has not


class Theirs(NamedTuple):
    """A setting of Kafka's: `default` None where there is none or it is null."""

    type: str
    default: str | None
    limits: str


def _read() -> dict[tuple[str, str], Theirs]:
    lines = LISTED.read_text().splitlines()
    found = {}
    for scope, name, kind, default, limits in (line.split("\t") for line in lines):
        found[scope, name] = Theirs(kind, default[1:-1] if default.startswith("'") else None, limits)
    return found


THEIRS = _read()
BROKERS = {name: each for (scope, name), each in THEIRS.items() if scope == "broker"}
TOPICS = {name: each for (scope, name), each in THEIRS.items() if scope == "topic"}
OURS = {name: each for name, each in DEFINITIONS.items() if each.setting.is_kafkas}
SHARED = sorted(OURS.keys() & BROKERS.keys())
SHARED_TOPICS = sorted(TOPIC_CONFIGS.keys() & TOPICS.keys())


def _allows(limits: str, lowest: float, highest: float, choices: tuple[str, ...], kind: str) -> bool:
    """Return whether our limits are those of a validator's text; where Kafka checks nothing any are."""
    between = re.fullmatch(r"\[(-?[\d.]+),\.\.\.(?:,(-?[\d.]+))?\]", limits)
    if between:
        top = float(between[2]) if between[2] else HIGHEST.get(kind, float("inf"))
        return (lowest, highest) == (float(between[1]), top)
    listed = re.fullmatch(r"\[([\w, ]+)\]", limits)
    return not listed or set(choices) == set(listed[1].split(", "))


def test_each_setting_that_is_called_kafkas_is_one_or_is_named_here() -> None:
    assert OURS.keys() - BROKERS.keys() == OF_NO_RELEASE.keys()


def test_each_setting_of_kafkas_is_known_in_a_file_of_its_own() -> None:
    translated = {BOOTSTRAP, *OTHER_NAMES, *(name for names in OTHER_UNITS.values() for name in names)}

    missing = BROKERS.keys() - OURS.keys() - WITHOUT_MEANING - REFUSED.keys() - translated

    assert missing == {"security.inter.broker.protocol"}  # refused with words of its own


@pytest.mark.parametrize("name", SHARED)
def test_a_setting_is_as_in_kafka(name: str) -> None:
    ours, theirs = OURS[name], BROKERS[name]
    default = theirs.default
    if default is None and ours.setting.topic:
        default = TOPICS[ours.setting.topic].default

    assert (ours.type.name == theirs.type) != (name in OTHER_TYPES)
    text = None if ours.default is None else as_text(ours.default)
    assert ((text or "") == (default or "")) != (name in OTHER_DEFAULTS)
    allows = _allows(theirs.limits, ours.setting.lowest, ours.highest, ours.choices, ours.type)
    assert allows != (name in OTHER_LIMITS)


@pytest.mark.parametrize("name", SHARED_TOPICS)
def test_a_topics_setting_is_as_in_kafka(name: str) -> None:
    ours, theirs = TOPIC_CONFIGS[name], TOPICS[name]

    assert (ours.type.name, ours.default) == (theirs.type, theirs.default)
    assert _allows(theirs.limits, ours.lowest, ours.highest, ours.choices, ours.type) != (name in OTHER_LIMITS)


def test_what_topics_have_besides_is_of_tiers_and_of_codecs() -> None:
    assert all(name.startswith(OTHER_IN_TIERS) for name in TOPICS.keys() - TOPIC_CONFIGS.keys())
    assert TOPIC_CONFIGS.keys() - TOPICS.keys() == {"unclean.recovery.strategy"}


@pytest.mark.e2e
@pytest.mark.nightly
@pytest.mark.skipif(shutil.which("javac") is None, reason="no `javac` to compile the listing with")
def test_the_list_is_what_the_released_software_says() -> None:
    command = java(jars_or_skip(), str(LISTED.with_name("Settings.java")), heap="128m", options=QUICK_START)

    said = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True).stdout

    assert said == LISTED.read_text()
