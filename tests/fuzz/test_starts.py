"""A node whose disk was damaged while it was down: it starts and serves nothing false, or refuses with one line that names what is damaged.

Each case is a whole process over a whole disk: any file that it reads when it starts, changed in any way, after a stop in order and after
kill -9. The gate takes a case of each file; the night goes on with other seeds. By hand: `python -m tests.fuzz.test_starts --minutes 30 --seed x`.
"""

import asyncio
import json
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from pathlib import Path
from random import Random
from typing import Final, NamedTuple

import pytest

from replog.__main__ import ClientWorld, Exit
from replog.client.client import Client
from replog.client.connection import Connection, ConnectionLost, UnsupportedVersion
from replog.config import Endpoint
from replog.errors import Error
from replog.log.batch import NewRecord, batches, build, records
from replog.log.checkpoints import HIGH_WATERMARKS
from replog.wire.messages import fetch as f
from replog.wire.messages import list_offsets as lo
from replog.wire.messages import produce as p
from tests.broker.loopback import free_ports
from tests.fuzz.mutations import changed_bytes
from tests.fuzz.targets import NIGHT_MINUTES, by_hand, repeated_for

TOPICS: Final = ("t", "u")
COUNT: Final = 40  # records of each topic, one a batch
FETCH_VERSION: Final = 12
START_S: Final = 30
REFUSED: Final = (Exit.USAGE, Exit.FOREIGN_DIRECTORY, Exit.DISK, Exit.DAMAGE)
# What is not read when a node starts, or is there for others: the lock, and events of the harness.
UNREAD: Final = (".lock",)


class Outcome(NamedTuple):
    """What became of a start: an exit code, or None and what was served by topic and offset, and of which topics readers were refused more."""

    code: int | None
    served: dict[str, dict[int, bytes]]
    refused: dict[str, None]
    said: str


class Disk(NamedTuple):
    """A node's files as it left them, and where it listens."""

    folder: Path
    port: int

    @property
    def endpoint(self) -> Endpoint:
        return Endpoint("127.0.0.1", self.port)

    def file(self, name: str) -> Path:
        """Return a file of this name; of several the last."""
        return max(self.folder.glob(f"data/{name}"))


def value_of(topic: str, offset: int) -> bytes:
    return f"{topic}/{offset}/".encode() * 8


def config_of(disk: Disk, controller_port: int) -> None:
    settings = {
        "process.roles": "broker,controller",
        "node.id": 1,
        "cluster.id": "c",
        "listeners": f"127.0.0.1:{disk.port}",
        "controller.listeners": f"127.0.0.1:{controller_port}",
        "controller.quorum.voters": f"1@127.0.0.1:{controller_port}",
        "log.dirs": "data",
        "log.segment.bytes": 2000,
        "metadata.log.max.record.bytes.between.snapshots": 500,
        "replica.high.watermark.checkpoint.interval.ms": 100,
        "log.flush.offset.checkpoint.interval.ms": 100,
        "default.replication.factor": 1,
        "min.insync.replicas": 1,
        "controller.quorum.election.timeout.ms": 100,
        "broker.session.timeout.ms": 1000,
        "broker.heartbeat.interval.ms": 100,
    }
    (disk.folder / "node.toml").write_text("".join(f'"{k}" = {json.dumps(v)}\n' for k, v in settings.items()))


@contextmanager
def process(disk: Disk) -> Iterator["subprocess.Popen[bytes]"]:
    with (disk.folder / "said").open("wb") as said:
        command = [sys.executable, "-m", "replog", "combined", "--config", "node.toml"]
        started = subprocess.Popen(command, cwd=disk.folder, stderr=said, stdout=said)
        try:
            yield started
        finally:
            if started.poll() is None:
                started.kill()
            started.wait()


async def connection_to(disk: Disk, node: "subprocess.Popen[bytes]") -> Connection | None:
    """Return a connection, None when the node has ended."""
    until_s = time.monotonic() + START_S
    while node.poll() is None:
        connection = Connection(ClientWorld(), disk.endpoint, "test")
        try:
            await connection.open(timeout_ms=2000)
        except (OSError, ConnectionLost, UnsupportedVersion):
            assert time.monotonic() < until_s, "it neither listens nor ends"
            await asyncio.sleep(0.05)
        else:
            return connection
    return None


def fill(disk: Disk, ending: signal.Signals) -> None:
    """Let a node write two topics, and end."""

    async def scenario(node: "subprocess.Popen[bytes]") -> None:
        connection = await connection_to(disk, node)
        assert connection is not None
        client = Client(ClientWorld(), [disk.endpoint])
        for topic in TOPICS:
            await client.create_topic(topic, partitions=1, replication_factor=1)
        for topic in TOPICS:
            offset = 0
            while offset < COUNT:
                batch = build([NewRecord(b"k", value_of(topic, offset))], timestamp_ms=ClientWorld().clock.wall_ms())
                data = p.TopicProduceData(name=topic, partition_data=[p.PartitionProduceData(index=0, records=batch)])
                body = p.ProduceRequest(acks=-1, timeout_ms=5000, topic_data=[data])
                answer = await connection.send(p.EXCHANGE, body, version=9, timeout_ms=5000)
                offset += answer.responses[0].partition_responses[0].error_code is Error.NONE
        await asyncio.sleep(0.5)  # checkpoints and a snapshot of the metadata
        connection.close()
        await client.close()

    with process(disk) as node:
        asyncio.run(scenario(node))
        node.send_signal(ending)
        node.wait(20)


async def served_by(disk: Disk, node: "subprocess.Popen[bytes]") -> tuple[dict[str, dict[int, bytes]], dict[str, None]]:
    """Return every record that a consumer is given, from the first offset on, and the topics that end where the node says that it does not go on."""
    found: dict[str, dict[int, bytes]] = {topic: {} for topic in TOPICS}
    refused: dict[str, None] = {}
    connection = await connection_to(disk, node)
    if connection is None:
        return found, refused
    try:
        for topic in TOPICS:
            offset, until_s = 0, time.monotonic() + 4
            while offset < COUNT and time.monotonic() < until_s:
                wanted = f.FetchPartition(partition=0, fetch_offset=offset, partition_max_bytes=10**6)
                body = f.FetchRequest(
                    max_wait_ms=50, min_bytes=1, topics=[f.FetchTopic(topic=topic, partitions=[wanted])]
                )
                answer = await connection.send(f.EXCHANGE, body, version=FETCH_VERSION, timeout_ms=5000)
                (part,) = answer.responses[0].partitions
                if part.error_code in (Error.CORRUPT_MESSAGE, Error.KAFKA_STORAGE_ERROR):
                    refused[topic] = None
                    break
                if part.error_code is Error.OFFSET_OUT_OF_RANGE:
                    earliest = lo.ListOffsetsTopic(
                        name=topic, partitions=[lo.ListOffsetsPartition(partition_index=0, timestamp=-2)]
                    )
                    asked = lo.ListOffsetsRequest(topics=[earliest])
                    first = await connection.send(lo.EXCHANGE, asked, timeout_ms=5000)
                    begins = first.topics[0].partitions[0].offset
                    if begins <= offset:
                        break
                    offset = begins
                    continue
                content = bytes(part.records or b"")
                for header in batches(content):
                    for record in records(memoryview(content)[header.position : header.end]):
                        if record.offset >= offset:
                            found[topic][record.offset] = bytes(record.value or b"")
                    offset = header.next_offset
                if not content:
                    await asyncio.sleep(0.05)
                    if part.error_code is Error.NONE and part.high_watermark <= offset and part.high_watermark >= 0:
                        break
    except ConnectionLost:
        pass
    finally:
        connection.close()
    return found, refused


def started(disk: Disk) -> Outcome:
    """Start a node over this disk, read what it serves, stop it."""
    with process(disk) as node:
        served, refused = asyncio.run(served_by(disk, node))
        code = node.poll()
        if code is None:
            node.send_signal(signal.SIGTERM)
            ended = node.wait(30)
            assert ended == 0, f"stopped with {ended}: {(disk.folder / 'said').read_text(errors='replace')}"
    return Outcome(code, served, refused, (disk.folder / "said").read_text(errors="replace"))


def judge(outcome: Outcome, damaged: Sequence[Path]) -> None:
    """Fail for a traceback, an answer that was never written, and for what is missing without a word about that partition."""
    said = outcome.said
    assert "Traceback" not in said, said
    for topic, found in outcome.served.items():
        for offset, value in found.items():
            assert offset < COUNT, f"{topic} offset {offset} was never written"
            assert value == value_of(topic, offset), f"{topic} offset {offset}: {value[:40]!r}"
    if outcome.code is not None:
        assert outcome.code in REFUSED, f"exit code {outcome.code}: {said}"
        last = said.rstrip().splitlines()[-1]
        assert last.startswith("replog combined: "), said
        assert any(names(last, path) for path in damaged), f"{last} names none of {[str(path) for path in damaged]}"
    else:
        for topic, found in outcome.served.items():
            assert len(found) == COUNT or topic in outcome.refused or warns_of(said, topic, damaged), (
                f"of {topic} something is missing, and nothing was said of it: {said}"
            )


def names(line: str, path: Path) -> bool:
    """Return whether a line names a file, or the folder that lacks it."""
    return path.name in line or (not path.exists() and path.parent.name in line)


def warns_of(said: str, topic: str, damaged: Sequence[Path]) -> bool:
    """Return whether a node warned of the topic's partition, or that it does not know any more what of it was committed.

    A log that was cut where a batch begins contradicts nothing but the checkpoint of high watermarks (docs/security.md). Where that
    was damaged as well, a warning of the checkpoint is all that can be had.
    """
    named = re.compile(rf"(?<![\w.-]){re.escape(topic)}-0(?![\w.-])")
    warnings = [line for line in said.splitlines() if " WARNING " in line or " ERROR " in line]
    has_no_watermarks = any(path.name == HIGH_WATERMARKS for path in damaged)
    return any(named.search(line) or (has_no_watermarks and HIGH_WATERMARKS in line) for line in warnings)


def change(path: Path, random: Random, others: list[Path]) -> str:
    """Damage a file in one of the ways in which files go bad; return which."""
    content = path.read_bytes()
    match random.randrange(7):
        case 0:
            path.unlink()
            return "gone"
        case 1:
            path.write_bytes(b"")
            return "empty"
        case 2:
            path.write_bytes(content[: random.randrange(len(content) + 1)])
            return "torn"
        case 3:
            path.write_bytes(random.randbytes(random.randrange(200)))
            return "noise"
        case 4:
            path.write_bytes(random.choice(others).read_bytes())
            return "another file's"
        case 5:
            path.write_bytes(content + bytes(random.randrange(1, 200)))
            return "zeros behind it"
        case _:
            path.write_bytes(changed_bytes(content, random))
            return "changed"


@pytest.fixture(scope="module")
def disks(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Disk]:
    return filled(tmp_path_factory.mktemp("disks"))


def filled(folder: Path) -> dict[str, Disk]:
    """Return the disks of a node that stopped in order, and of one that was killed."""
    made = {}
    for name, ending in (("stopped", signal.SIGTERM), ("killed", signal.SIGKILL)):
        port, controller_port = free_ports(2)
        disk = made[name] = Disk(folder / name, port)
        disk.folder.mkdir()
        config_of(disk, controller_port)
        command = [sys.executable, "-m", "replog", "format", "--config", "node.toml"]
        subprocess.run(command, cwd=disk.folder, check=True, stdout=subprocess.DEVNULL)
        fill(disk, ending)
    return made


def copied(disk: Disk, folder: Path) -> Disk:
    target = folder / "node"
    shutil.rmtree(target, ignore_errors=True)
    shutil.copytree(disk.folder, target)
    return disk._replace(folder=target)


def files_of(disk: Disk) -> list[Path]:
    return sorted(path for path in (disk.folder / "data").rglob("*") if path.is_file() and path.name not in UNREAD)


def start_over_damage(disks: dict[str, Disk], folder: Path, seed: str) -> Outcome:
    """Draw what is damaged and how, start, and judge."""
    random = Random(seed)
    disk = copied(disks[random.choice(sorted(disks))], folder)
    files, done, damaged = files_of(disk), [], []
    for _ in range(random.choice((1, 1, 1, 2, 3))):
        path = random.choice(files)
        if path.exists():
            damaged.append(path)
            done.append(
                f"{path.relative_to(disk.folder)} {change(path, random, [one for one in files if one.exists()])}"
            )
    try:
        outcome = started(disk)
        judge(outcome, damaged)
    except BaseException as problem:
        problem.add_note(f"seed {seed}: {', '.join(done)}")
        raise
    return outcome


@pytest.mark.parametrize(
    ("warning", "damaged", "is_enough"),
    [
        pytest.param("t-0: cut at 37 in recovery: torn", "data/t-0/37.log", True, id="of the partition"),
        pytest.param("t-01: cut at 37 in recovery: torn", "data/t-0/37.log", False, id="of another partition"),
        pytest.param("registration: DUPLICATE_BROKER_REGISTRATION", "data/t-0/37.log", False, id="of anything else"),
        pytest.param(
            f"data/{HIGH_WATERMARKS}: 3 lines", f"data/{HIGH_WATERMARKS}", True, id="nothing says what it had"
        ),
        pytest.param(f"data/{HIGH_WATERMARKS}: 3 lines", "data/t-0/37.log", False, id="a checkpoint nobody damaged"),
    ],
)
def test_only_a_warning_of_the_partition_explains_what_is_missing(warning: str, damaged: str, is_enough: bool) -> None:
    whole = {offset: value_of("t", offset) for offset in range(COUNT)}
    served = {"t": dict(list(whole.items())[:37]), "u": {offset: value_of("u", offset) for offset in range(COUNT)}}
    outcome = Outcome(None, served, {}, f"05:18:30.777 WARNING node 1: {warning}")

    with nullcontext() if is_enough else pytest.raises(AssertionError, match="nothing was said"):
        judge(outcome, [Path(damaged)])


@pytest.mark.parametrize("ending", ["stopped", "killed"])
def test_what_was_not_damaged_is_served_whole(disks: dict[str, Disk], tmp_path: Path, ending: str) -> None:
    outcome = started(copied(disks[ending], tmp_path))

    judge(outcome, [])
    assert outcome.code is None
    assert {topic: len(found) for topic, found in outcome.served.items()} == dict.fromkeys(TOPICS, COUNT)


@pytest.mark.parametrize(
    "name", ["meta.properties", "__cluster_metadata-0/quorum-state", "__cluster_metadata-0/*.checkpoint"]
)
def test_a_node_that_cannot_trust_its_identity_or_metadata_refuses_with_one_line(
    disks: dict[str, Disk], tmp_path: Path, name: str
) -> None:
    disk = copied(disks["killed"], tmp_path)
    path = disk.file(name)
    path.write_bytes(b"\xff\xfe no file of ours")

    outcome = started(disk)

    judge(outcome, [path])
    assert outcome.code in REFUSED
    assert Path(name).parent.name in outcome.said.splitlines()[-1]


@pytest.mark.nightly
@pytest.mark.timeout(NIGHT_MINUTES * 60 + 300)
def test_starts_over_damaged_disks_for_half_an_hour(tmp_path: Path) -> None:
    assert repeated(tmp_path, NIGHT_MINUTES, "night")


def repeated(folder: Path, minutes: float, seed: str) -> int:
    made = filled(folder)
    return repeated_for(minutes, lambda number: start_over_damage(made, folder, number), seed) if made else 0


if __name__ == "__main__":
    by_hand(__doc__, repeated)
