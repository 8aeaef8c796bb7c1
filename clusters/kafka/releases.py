"""Released versions of Apache Kafka: what each can do, by its number.

Whatever differs between releases, and this project touches, is known here and nowhere else: what Maven is asked for, what a
configuration may name, how the metadata log is fetched, and which contract a release is judged by. A release that is newer than
all we know counts as the newest.
"""

import re
from typing import Final

import msgspec

NEWEST: Final = "4.3.1"
# Releases that this kind of cluster was tried with, oldest first. Others between them are expected to work alike.
KNOWN: Final = ("3.4.1", "3.5.2", "3.6.2", "3.9.1", "4.0.0", "4.1.1", "4.2.0", "4.3.1")
VERSION: Final = re.compile(r"(\d{1,3})\.(\d{1,3})\.(\d{1,3})")
KRAFT_SINCE: Final = (3, 3, 0)  # where KIP-833 calls KRaft fit for production
ELR_SINCE: Final = (4, 0, 0)  # KIP-966 part 1
LOG4J_2_SINCE: Final = (4, 0, 0)  # KIP-653
TOOLS_APART_SINCE: Final = (4, 0, 0)
CONTROLLERS_ADVERTISE_SINCE: Final = (3, 9, 0)  # KIP-853
JAVA_LEAST: Final = {(4, 0, 0): 17, (0, 0, 0): 11}  # KIP-1013: brokers
# The newest Fetch that a release's controllers answer: KIP-516, KIP-903, KIP-951, KIP-853.
FETCH_VERSIONS: Final = {(3, 9, 0): 17, (3, 7, 0): 16, (3, 5, 0): 15, (0, 0, 0): 13}


class Release(msgspec.Struct, frozen=True):
    """One released version."""

    numbers: tuple[int, int, int]

    @property
    def name(self) -> str:
        """As Kafka writes it."""
        return ".".join(map(str, self.numbers))

    @property
    def has_kraft(self) -> bool:
        """Whether it runs without ZooKeeper."""
        return self.numbers >= KRAFT_SINCE

    @property
    def has_elr(self) -> bool:
        """Whether it has eligible leader replicas; before, the last member stays in the ISR."""
        return self.numbers >= ELR_SINCE

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
    def java_least(self) -> int:
        """The oldest Java that runs its brokers."""
        return _since(JAVA_LEAST, self.numbers)

    @property
    def fetch_version(self) -> int:
        """By which version of Fetch its metadata log is observed."""
        return _since(FETCH_VERSIONS, self.numbers)

    @property
    def lacks(self) -> str:
        """What it cannot do that newer ones can, in words; empty: nothing."""
        return "" if self.has_elr else "no eligible leader replicas: judged without KIP-966"


def release(version: str) -> Release:
    """Return the release of this number, the newest for none; `ValueError` in one line when it is no number of a release."""
    found = VERSION.fullmatch(version or NEWEST)
    if found is None:
        raise ValueError(f"{version!r} is no version of Apache Kafka: write three numbers, like {NEWEST}")
    return Release((int(found[1]), int(found[2]), int(found[3])))


def _since(table: dict[tuple[int, int, int], int], numbers: tuple[int, int, int]) -> int:
    return next(value for since, value in table.items() if numbers >= since)
