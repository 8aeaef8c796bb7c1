"""Checkpoint files: Kafka's text layout, and nothing else is read."""

import pytest

from replog.log.checkpoints import CorruptCheckpoint, read_offsets, rendered_offsets
from replog.log.epochs import EpochCache
from replog.types import TopicPartition
from tests.log.batches import a_disk

OFFSETS = {TopicPartition("b", 0): 7, TopicPartition("a", 10): 1, TopicPartition("a", 9): 0}


def test_offsets_come_back() -> None:
    disk = a_disk()

    disk.replace_file("data/x", rendered_offsets(OFFSETS))

    assert disk.read_file("data/x") == b"0\n3\na 9 0\na 10 1\nb 0 7\n"
    assert read_offsets(disk, "data/x") == OFFSETS
    assert read_offsets(disk, "data/never") == {}


@pytest.mark.parametrize(
    "content", [b"", b"1\n0\n", b"0\n", b"0\n2\na 0 1\n", b"0\n1\na 0\n", b"0\n1\na x 1\n", b"\xff"]
)
def test_anything_else_is_corrupt(content: bytes) -> None:
    disk = a_disk()
    disk.replace_file("data/x", content)

    with pytest.raises(CorruptCheckpoint):
        read_offsets(disk, "data/x")


def test_epochs_come_back() -> None:
    cache = EpochCache([(1, 0), (5, 12)])

    assert cache.to_checkpoint() == b"0\n2\n1 0\n5 12\n"
    assert EpochCache.from_checkpoint(cache.to_checkpoint()) == cache
