"""Released versions of Apache Kafka: what each can do, by its number.

Whatever differs between releases, and this project touches, is known here and nowhere else: what Maven is asked for, what a
configuration may name, which Java runs it, how its metadata log and its offsets are asked for, and which contract it is judged by. A release that is newer than
all we know counts as the newest.
"""

import re
from collections.abc import Mapping
from typing import Final

import msgspec

NEWEST: Final = "4.3.1"
# Releases that this kind of cluster was tried with, oldest first. Others between them are expected to work alike.
KNOWN: Final = (
    *("2.1.1", "2.2.2", "2.8.2", "3.1.2"),
    *("3.4.1", "3.5.2", "3.6.2", "3.9.1", "4.0.0", "4.1.1", "4.2.0", "4.3.1"),
)
DYNAMIC_VOTERS: Final = "tribunal.dynamic.voters"  # no name of Kafka's: how its quorum is formatted (KIP-853)
# Switches that our own log has not; its voters can always be changed.
KAFKA_ALONE: Final = frozenset({"controlled.shutdown.enable", DYNAMIC_VOTERS})
VERSION: Final = re.compile(r"(\d{1,3})\.(\d{1,3})\.(\d{1,3})")
KRAFT_SINCE: Final = (3, 3, 0)  # where KIP-833 calls KRaft fit for production
NO_ZOOKEEPER_SINCE: Final = (4, 0, 0)  # KIP-500
ZOOKEEPER_MODE_LAST: Final = "3.9"
# KIP-841: before, in ZooKeeper mode, nobody asks whether who joins an ISR is registered.
CHECKED_MEMBERS_SINCE: Final = (3, 3, 0)
# KIP-207: before, a new leader says as the latest offset what it knows to be committed, which may be less than was shown.
GUARDED_LATEST_SINCE: Final = (2, 2, 0)
ELR_SINCE: Final = (4, 0, 0)  # KIP-966 part 1
LOG4J_2_SINCE: Final = (4, 0, 0)  # KIP-653
TOOLS_APART_SINCE: Final = (4, 0, 0)
CONTROLLERS_ADVERTISE_SINCE: Final = (3, 9, 0)  # KIP-853
DYNAMIC_VOTERS_SINCE: Final = (3, 9, 0)  # KIP-853
JAVA_LEAST: Final = {(4, 0, 0): 17, (0, 0, 0): 11}  # KIP-1013: brokers
# Before, its ZooKeeper client cannot connect on Java 14 and newer: there the text of an unresolved address is another one.
ANY_JAVA_SINCE: Final = (2, 6, 0)
JAVA_MOST_OF_OLD: Final = 13
SCALA_2_13_SINCE: Final = (2, 4, 0)
REASSIGNMENT_SINCE: Final = (2, 4, 0)  # KIP-455; KIP-460's elections came with it
INCREMENTAL_CONFIGS_SINCE: Final = (2, 3, 0)  # KIP-339
# The newest Fetch that a release's controllers answer: KIP-516, KIP-903, KIP-951, KIP-853.
FETCH_VERSIONS: Final = {(3, 9, 0): 17, (3, 7, 0): 16, (3, 5, 0): 15, (0, 0, 0): 13}
# The newest ListOffsets that we ask of a release's brokers: KIP-734, KIP-207, KIP-320.
LIST_OFFSETS_VERSIONS: Final = {(3, 0, 0): 7, (2, 2, 0): 5, (0, 0, 0): 4}
# The metadata.version that a release formats with: the newest that it knows (KIP-778).
METADATA_VERSIONS: Final = {
    (4, 3, 0): 30,
    (4, 2, 0): 29,
    (4, 1, 0): 27,
    (4, 0, 0): 25,
    (3, 9, 0): 21,
    (3, 8, 0): 20,
    (3, 7, 0): 19,
    (3, 6, 0): 14,
    (3, 5, 0): 11,
    (3, 4, 0): 8,
    (3, 3, 0): 7,
    (0, 0, 0): 0,
}


class Release(msgspec.Struct, frozen=True):
    """One released version."""

    numbers: tuple[int, int, int]

    @property
    def name(self) -> str:
        """As Kafka writes it."""
        return ".".join(map(str, self.numbers))

    @property
    def metadata_version_name(self) -> str:
        """Its metadata.version as Kafka's formatting tool takes it: the newest one of a release without its patch number."""
        return ".".join(map(str, self.numbers[:2]))

    @property
    def has_kraft(self) -> bool:
        """Whether it runs without ZooKeeper."""
        return self.numbers >= KRAFT_SINCE

    @property
    def has_zookeeper(self) -> bool:
        """Whether it has ZooKeeper mode."""
        return self.numbers < NO_ZOOKEEPER_SINCE

    @property
    def has_elr(self) -> bool:
        """Whether it has eligible leader replicas; before, the last member stays in the ISR."""
        return self.numbers >= ELR_SINCE

    @property
    def checks_members(self) -> bool:
        """Whether a broker that is not registered may not join an ISR."""
        return self.numbers >= CHECKED_MEMBERS_SINCE

    @property
    def guards_latest_offset(self) -> bool:
        """Whether a new leader answers ListOffsets only when it has caught up with what former leaders had shown."""
        return self.numbers >= GUARDED_LATEST_SINCE

    @property
    def logs_by_log4j_2(self) -> bool:
        """Whether its log lines go through log4j 2; before, through reload4j."""
        return self.numbers >= LOG4J_2_SINCE

    @property
    def has_tools_apart(self) -> bool:
        """Whether its command line tools are in an artifact of their own."""
        return self.numbers >= TOOLS_APART_SINCE

    @property
    def controllers_advertise(self) -> bool:
        """Whether a controller may have `advertised.listeners`; before, it refuses to start with them."""
        return self.numbers >= CONTROLLERS_ADVERTISE_SINCE

    @property
    def has_dynamic_voters(self) -> bool:
        """Whether voters can be taken away and given back while it runs."""
        return self.numbers >= DYNAMIC_VOTERS_SINCE

    @property
    def java_least(self) -> int:
        """The oldest Java that runs its brokers."""
        return _since(JAVA_LEAST, self.numbers)

    @property
    def java_most(self) -> int | None:
        """The newest Java that runs its brokers; None: any that is newer than the least."""
        return None if self.numbers >= ANY_JAVA_SINCE else JAVA_MOST_OF_OLD

    def runs_on(self, java: int) -> bool:
        """Whether this Java runs its brokers."""
        return self.java_least <= java and (self.java_most is None or java <= self.java_most)

    @property
    def needed_java(self) -> str:
        """Which Java runs it, in words."""
        return f"Java {self.java_least} " + ("or newer" if self.java_most is None else f"to {self.java_most}")

    @property
    def scala(self) -> str:
        """For which Scala its artifact is made."""
        return "2.13" if self.numbers >= SCALA_2_13_SINCE else "2.12"

    @property
    def reassigns_on_request(self) -> bool:
        """Whether it takes requests for reassignments, and for elections of preferred leaders."""
        return self.numbers >= REASSIGNMENT_SINCE

    @property
    def alters_single_settings(self) -> bool:
        """Whether one setting of a topic can be changed by a request."""
        return self.numbers >= INCREMENTAL_CONFIGS_SINCE

    @property
    def list_offsets_version(self) -> int:
        """By which version of ListOffsets its brokers are asked."""
        return _since(LIST_OFFSETS_VERSIONS, self.numbers)

    @property
    def fetch_version(self) -> int:
        """By which version of Fetch its metadata log is observed."""
        return _since(FETCH_VERSIONS, self.numbers)

    @property
    def metadata_version(self) -> int:
        """The level of metadata.version that it formats with; 0: it has none."""
        return _since(METADATA_VERSIONS, self.numbers)

    @property
    def lacks(self) -> str:
        """What it cannot do that newer ones can, in words; empty: nothing."""
        lacks = [] if self.has_kraft else ["ZooKeeper mode alone (--mode zookeeper)"]
        lacks += [] if self.java_most is None else [f"needs {self.needed_java}"]
        return "; ".join([*lacks, *([] if self.has_elr else ["no eligible leader replicas: judged without KIP-966"])])


def release(version: str) -> Release:
    """Return the release of this number, the newest for none; `ValueError` in one line when it is no number of a release."""
    found = VERSION.fullmatch(version or NEWEST)
    if found is None:
        raise ValueError(f"{version!r} is no version of Apache Kafka: write three numbers, like {NEWEST}")
    return Release((int(found[1]), int(found[2]), int(found[3])))


def _since(table: Mapping[tuple[int, int, int], int], numbers: tuple[int, int, int]) -> int:
    return next(value for since, value in table.items() if numbers >= since)
