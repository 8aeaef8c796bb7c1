"""Small text files that say how far a disk can be trusted, in Kafka's formats.

One of each per log directory, covering *all* its partitions (a file that knows only some of them loses the
others' high watermarks: KAFKA-7235): `recovery-point-offset-checkpoint`, `replication-offset-checkpoint` (high
watermarks), `log-start-offset-checkpoint`; and one `leader-epoch-checkpoint` per partition. Layout: version 0,
number of lines, lines of fields parted by blanks. They are replaced atomically and durably. What stands in them
is a lower bound: the log may know better.
"""

import re
from collections.abc import Iterable, Mapping
from typing import Final

from replog.config.setting import LONG_MAX
from replog.ports import Disk
from replog.types import TopicPartition

RECOVERY_POINTS: Final = "recovery-point-offset-checkpoint"
HIGH_WATERMARKS: Final = "replication-offset-checkpoint"
LOG_STARTS: Final = "log-start-offset-checkpoint"
VERSION: Final = "0"
NUMBER: Final = re.compile(r"-?[0-9]{1,19}")


class CorruptCheckpoint(Exception):
    """A checkpoint file does not have the layout of one."""


def rendered(lines: Iterable[str]) -> bytes:
    """Return a checkpoint file's content."""
    listed = list(lines)
    return "".join(f"{line}\n" for line in (VERSION, len(listed), *listed)).encode()


def parsed_lines(content: bytes, *, fields: int, numbers: tuple[int, ...]) -> list[list[str]]:
    """Return the fields of each line.

    fields:   how many a line must have.
    numbers:  indexes of those that must be whole numbers.
    Raises `CorruptCheckpoint` on a wrong version, count or line.
    """
    try:
        version, count, *lines = content.decode().splitlines()
    except ValueError as problem:
        raise CorruptCheckpoint(str(problem)) from None
    if version != VERSION or count != str(len(lines)):
        raise CorruptCheckpoint(f"version {version!r}, count {count!r}, {len(lines)} lines")
    parsed = [line.split() for line in lines]
    for line in parsed:
        if len(line) != fields or not all(_is_offset(line[index]) for index in numbers):
            raise CorruptCheckpoint(f"line {' '.join(line)!r}")
    return parsed


def _is_offset(text: str) -> bool:
    """Return whether this is a number as files have them: digits of ASCII, in 64 bits."""
    return NUMBER.fullmatch(text) is not None and -LONG_MAX <= int(text) <= LONG_MAX


def rendered_offsets(offsets: Mapping[TopicPartition, int]) -> bytes:
    """Return the content of a directory's checkpoint of one offset a partition."""
    return rendered(f"{p.topic} {p.partition} {offset}" for p, offset in sorted(offsets.items()))


def read_offsets(disk: Disk, path: str) -> dict[TopicPartition, int]:
    """Return the checkpointed offsets; none when the file was never written. Raises `CorruptCheckpoint`."""
    if not disk.exists(path):
        return {}
    lines = parsed_lines(disk.read_file(path), fields=3, numbers=(1, 2))
    return {TopicPartition(topic, int(partition)): int(offset) for topic, partition, offset in lines}
