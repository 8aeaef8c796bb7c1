"""KIP-853: a quorum whose directories are formatted with the first voters, and whose nodes are told servers to ask, not voters."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from uuid import UUID

import pytest

from replog.__main__ import Exit, main
from replog.config import Endpoint, NodeConfig
from replog.host.world import RealDisk
from replog.log.batch import ControlType, control_batch_of
from replog.node.directories.meta_properties import short
from replog.node.first_voters import WhoVotes, format_with_voters, parsed
from replog.node.quorum.metadata_log import (
    VERSION_WITH_VOTERS,
    directory_id_of,
    metadata_directory,
    snapshot_ids,
    snapshot_path,
    voters_record,
)
from replog.quorum.log_shape import FORMATTED_WITH, LogShape
from replog.quorum.messages import BatchSpan, OffsetAndEpoch
from replog.quorum.roles import Unattached
from replog.quorum.translate import spans
from replog.quorum.voters import ReplicaKey
from replog.types import NodeId
from replog.wire.codec import encode_struct
from replog.wire.records.control import LeaderChangeMessage
from tests.quorum.quorum_nodes import Node, Nodes

DIRECTORY = UUID("6f6b7b0a-0000-4000-8000-000000000101")
OWN = f"101@127.0.0.1:9101:{short(DIRECTORY)}"
SERVERS = "127.0.0.1:9101,127.0.0.1:9102"


def a_config(folder: Path, **changes: object) -> Path:
    settings: dict[str, object] = {
        "process.roles": "controller",
        "node.id": 101,
        "cluster.id": "c",
        "listeners": "127.0.0.1:9101",
        "controller.quorum.bootstrap.servers": SERVERS,
        "log.dirs": f"{folder}/a",
    } | {name.replace("__", "."): value for name, value in changes.items()}
    path = folder / "node.toml"
    path.write_text("".join(f"{name!r} = {value!r}\n" for name, value in settings.items()))
    return path


def voters_in(directory: str) -> BatchSpan:
    content = RealDisk().read_file(snapshot_path(directory, FORMATTED_WITH))
    (found,) = (span for span in spans(content) if span.voters is not None)
    return found


def test_a_controller_is_formatted_with_the_first_voters_and_the_directory_id_that_they_name(tmp_path: Path) -> None:
    other = f"102@node.two:9102:{UUID(int=2)}"

    code = main(["format", "--config", str(a_config(tmp_path)), "--initial-controllers", f"{other},{OWN}"])

    written = voters_in(f"{tmp_path}/a/__cluster_metadata-0")
    assert code == Exit.DONE
    assert directory_id_of(RealDisk(), f"{tmp_path}/a") == DIRECTORY
    assert written.voters == (ReplicaKey(NodeId(101), DIRECTORY), ReplicaKey(NodeId(102), UUID(int=2)))
    assert written.endpoints == ((101, Endpoint("127.0.0.1", 9101)), (102, Endpoint("node.two", 9102)))


def test_a_standalone_controller_votes_alone_where_others_reach_it(tmp_path: Path) -> None:
    config = a_config(tmp_path, advertised__listeners="node.one:9101")

    assert main(["format", "--config", str(config), "--standalone"]) == Exit.DONE

    written = voters_in(f"{tmp_path}/a/__cluster_metadata-0")
    assert written.voters == (ReplicaKey(NodeId(101), directory_id_of(RealDisk(), f"{tmp_path}/a")),)
    assert written.endpoints == ((101, Endpoint("node.one", 9101)),)


def test_a_node_that_is_added_later_is_formatted_without_voters(tmp_path: Path) -> None:
    assert main(["format", "--config", str(a_config(tmp_path)), "--no-initial-controllers"]) == Exit.DONE
    assert not RealDisk().exists(f"{tmp_path}/a/__cluster_metadata-0")


def test_a_formatted_directory_keeps_its_voters(tmp_path: Path) -> None:
    config = str(a_config(tmp_path))
    assert main(["format", "--config", config, "--initial-controllers", OWN]) == Exit.DONE

    assert main(["format", "--config", config, "--standalone"]) == Exit.FOREIGN_DIRECTORY
    assert main(["format", "--config", config, "--no-initial-controllers", "--ignore-formatted"]) == Exit.DONE

    assert voters_in(f"{tmp_path}/a/__cluster_metadata-0").voters == (ReplicaKey(NodeId(101), DIRECTORY),)


BROKER = {"process__roles": "broker", "node__id": 1}
STATIC = {"controller__quorum__voters": "101@127.0.0.1:9101,102@127.0.0.1:9102"}


@pytest.mark.parametrize(
    ("options", "changes", "word"),
    [
        pytest.param((), {}, "say who votes first by --standalone or --initial-controllers", id="nobody says it"),
        pytest.param(("--initial-controllers", "101"), {}, "'101' is not id@host:port:directory-id", id="no address"),
        pytest.param(
            ("--initial-controllers", f"2147483648@a:1:{DIRECTORY}"),
            {},
            "is not id@host:port:directory-id",
            id="beyond 32 bits",
        ),
        pytest.param(("--initial-controllers", "101@h:1:x"), {}, "'x' is not the id of a directory", id="no id"),
        pytest.param(
            ("--initial-controllers", f"101@h:1:{UUID(int=0)}"), {}, "is not the id of a directory", id="id of none"
        ),
        pytest.param(("--initial-controllers", ","), {}, "names nobody", id="empty"),
        pytest.param(("--initial-controllers", f"{OWN},{OWN}"), {}, "names node 101 twice", id="twice"),
        pytest.param(
            ("--initial-controllers", f"{OWN},102@h:1:{DIRECTORY}"), {}, "several nodes one directory", id="one disk"
        ),
        pytest.param(
            ("--initial-controllers", f"102@h:1:{DIRECTORY}"), {}, "does not name node 101", id="not one of them"
        ),
        pytest.param(("--standalone",), BROKER, "only controllers vote", id="a broker"),
        pytest.param(("--standalone",), STATIC, "'controller.quorum.voters'; leave it out", id="voters by file"),
        pytest.param(("--no-initial-controllers",), STATIC, "leave it out", id="voters by file and by others"),
        pytest.param(
            ("--no-initial-controllers",),
            {"controller__quorum__voters": "101@127.0.0.1:9101"},
            "leave it out",
            id="it alone by file, and others",
        ),
    ],
)
def test_what_cannot_be_formatted_is_refused_in_one_line(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    options: Sequence[str],
    changes: dict[str, object],
    word: str,
) -> None:
    assert main(["format", "--config", str(a_config(tmp_path, **changes)), *options]) == Exit.USAGE

    printed = capsys.readouterr().err
    assert word in printed
    assert printed.count("\n") == 1
    assert not (tmp_path / "a").exists()


def test_voters_are_found_in_a_batch_that_says_more() -> None:
    """Apache Kafka's first leader writes into one batch that it leads, the version, and who votes."""
    key = ReplicaKey(NodeId(101), DIRECTORY)
    entries = [
        (ControlType.LEADER_CHANGE, encode_struct(LeaderChangeMessage(leader_id=101), 0)),
        (ControlType.KRAFT_VERSION, VERSION_WITH_VOTERS),
        (ControlType.KRAFT_VOTERS, voters_record([key], [(key.node_id, Endpoint("h", 1))])),
    ]

    (found,) = spans(control_batch_of(entries, timestamp_ms=0, leader_epoch=1))

    assert (found.voters, found.endpoints) == ((key,), ((101, Endpoint("h", 1)),))
    assert (found.base_offset, found.end_offset) == (0, 3)


@pytest.mark.parametrize(
    ("snapshots", "is_sent"),
    [
        pytest.param([FORMATTED_WITH], False, id="formatted with voters"),
        pytest.param([OffsetAndEpoch(10, 1)], True, id="a snapshot of records"),
        pytest.param([FORMATTED_WITH, OffsetAndEpoch(10, 1)], True, id="both"),
    ],
)
def test_nobody_has_to_fetch_what_a_directory_was_formatted_with(
    snapshots: list[OffsetAndEpoch], is_sent: bool
) -> None:
    log = LogShape(end_offset=20, epochs=[(1, 0)], snapshots=[(one, 100) for one in snapshots])

    assert (log.position_of(0, 0).snapshot is not None) is is_sent


class FormattedNodes(Nodes):
    """Nodes that know addresses, and of the voters what their directories were formatted with."""

    def config(self, node_id: int) -> NodeConfig:
        servers = ",".join(map(str, self._endpoints.values()))
        static = super().config(node_id)
        settings = {name: value for name, value in static.texts.items() if name in static.stated}
        del settings["controller.quorum.voters"]
        given = {
            name: int(value) if name == "node.id" or name.endswith(".ms") else value for name, value in settings.items()
        }
        return NodeConfig(given | {"controller.quorum.bootstrap.servers": servers})

    def format_all(self, voters: Sequence[int]) -> None:
        text = ",".join(f"{node}@{self._endpoints[node]}:{UUID(int=node)}" for node in voters)
        for node in (*self.voters, *self.observers):
            self.format_again(node, WhoVotes(parsed(text)) if node in voters else WhoVotes())

    def format_again(self, node: int, who: WhoVotes) -> None:
        format_with_voters(
            RealDisk(), self.config(node), lambda: UUID(int=1000 + node), who, now_ms=0, ignore_formatted=False
        )


def play(scenario: Callable[[FormattedNodes], Awaitable[None]], nodes: FormattedNodes) -> None:
    async def run() -> None:
        try:
            await nodes.start()
            await scenario(nodes)
        finally:
            nodes.close()
            await asyncio.sleep(0.01)

    asyncio.run(run())


def voters_of(node: Node) -> dict[NodeId, UUID]:
    return node.quorum.voter_directories


def written_voters(node: Node) -> int:
    """Return how many batches of the log say who votes."""
    content = node.log.read(0, max_bytes=1 << 20, end_offset=node.log.log_end_offset, at_least_one=True)
    return sum(span.voters is not None for span in spans(content))


def test_who_was_formatted_without_voters_learns_of_them_from_the_log(tmp_path: Path) -> None:
    """Two controllers vote; a third and a broker find the leader by the servers that they were told."""
    nodes = FormattedNodes(tmp_path, voters=3, observers=1)
    nodes.format_all([101, 102])

    async def scenario(nodes: FormattedNodes) -> None:
        leader = await nodes.led()
        leader.quorum.append([b"a"])
        await nodes.agreed()

        first = {101: UUID(int=101), 102: UUID(int=102)}
        assert [voters_of(node) for node in nodes.alive.values()] == [first] * 4
        assert [node.state.values for node in nodes.alive.values()] == [[b"a"]] * 4
        assert [node.state.snapshots for node in nodes.alive.values()] == [0] * 4
        kept = [snapshot_ids(RealDisk(), metadata_directory(node.config)) for node in nodes.alive.values()]
        assert kept == [[FORMATTED_WITH], [FORMATTED_WITH], [], []]

    play(scenario, nodes)


def test_a_later_leader_does_not_write_the_first_voters_again(tmp_path: Path) -> None:
    nodes = FormattedNodes(tmp_path)
    nodes.format_all([101, 102, 103])

    async def scenario(nodes: FormattedNodes) -> None:
        first = await nodes.led()
        await nodes.agreed()
        nodes.kill(first.config.node_id)
        await nodes.led(besides=[first.config.node_id])
        await nodes.start(first.config.node_id)
        await nodes.agreed()

        assert [written_voters(node) for node in nodes.alive.values()] == [1] * 3

    play(scenario, nodes)


def test_a_wiped_controller_stands_for_no_election(tmp_path: Path) -> None:
    """With voters by configuration it would: it knows of no directory that it had (KIP-996, disk loss)."""
    nodes = FormattedNodes(tmp_path)
    nodes.format_all([101, 102])
    for node in (101, 102):
        for path in (tmp_path / str(node)).rglob("*"):
            if path.is_file():
                path.unlink()
        nodes.format_again(node, WhoVotes())

    async def scenario(nodes: FormattedNodes) -> None:
        await asyncio.sleep(1.5)  # several election time-outs

        roles = [node.quorum.role for node in nodes.alive.values()]
        assert all(isinstance(role, Unattached) for role in roles), roles
        assert [node.quorum.leader[1] for node in nodes.alive.values()] == [0, 0, 0]

    play(scenario, nodes)
