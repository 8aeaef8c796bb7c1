"""The first voters of a quorum, as controllers' directories are formatted with them (KIP-853).

They stand in a snapshot at offset 0 that holds nothing else, as Apache Kafka's StorageTool writes it. Whoever leads first
writes them into the log; who was formatted without them learns of them there.
"""

import itertools
from collections.abc import Callable, Sequence
from functools import partial
from typing import Final
from uuid import UUID

import msgspec

from replog.config import ConfigError, Endpoint, NodeConfig, endpoint
from replog.config.endpoints import is_node_id
from replog.config.node_config import BOOTSTRAP, VOTERS
from replog.config.setting import words
from replog.node.directories.meta_properties import directory_id, format_directories
from replog.node.quorum.metadata_log import metadata_directory, snapshot_batches, snapshot_path, voters_record
from replog.ports import Disk
from replog.quorum.log_shape import FORMATTED_WITH
from replog.quorum.voters import ReplicaKey
from replog.types import ZERO_UUID, NodeId

OPTION: Final = "--initial-controllers"
STANDALONE: Final = "--standalone"
BY_OTHERS: Final = "--no-initial-controllers"


class FirstVoter(msgspec.Struct, frozen=True):
    """A voter from the beginning: a vote belongs to a directory of a node."""

    key: ReplicaKey
    endpoint: Endpoint


class WhoVotes(msgspec.Struct, frozen=True):
    """What a directory is formatted with.

    voters:      the first voters; empty: the node's configuration names them, or others do.
    standalone:  where this node listens, as the only voter, whose directory is yet to get its id; None: it is not.
    """

    voters: tuple[FirstVoter, ...] = ()
    standalone: Endpoint | None = None


def parsed(text: str) -> tuple[FirstVoter, ...]:
    """Parse `id@host:port:directory-id,...`, as Apache Kafka's StorageTool takes it; `ConfigError` says what is wrong."""
    voters = tuple(sorted(map(_voter, words(text)), key=lambda one: one.key))
    if not voters:
        raise ConfigError(f"{OPTION} names nobody")
    for earlier, later in itertools.pairwise(voters):
        if earlier.key.node_id == later.key.node_id:
            raise ConfigError(f"{OPTION} names node {later.key.node_id} twice")
    if len({one.key.directory_id for one in voters}) < len(voters):
        raise ConfigError(f"{OPTION} gives several nodes one directory id")
    return voters


def _voter(text: str) -> FirstVoter:
    node_id, at, rest = text.partition("@")
    address, colon, directory = rest.rpartition(":")
    if not at or not colon or not is_node_id(node_id):
        raise ConfigError(f"{OPTION}: {text!r} is not id@host:port:directory-id")
    try:
        own = directory_id(directory)
    except ValueError:
        own = ZERO_UUID
    if own == ZERO_UUID:
        raise ConfigError(f"{OPTION}: {text!r}: {directory!r} is not the id of a directory")
    return FirstVoter(ReplicaKey(NodeId(int(node_id)), own), endpoint(OPTION, address))


def who_votes(config: NodeConfig, named: Sequence[FirstVoter], *, standalone: bool, by_others: bool) -> WhoVotes:
    """Return what a node's directory is formatted with; `ConfigError` where options and configuration do not fit each other.

    named:       by `--initial-controllers`.
    standalone:  `--standalone` was given.
    by_others:   `--no-initial-controllers` was given.
    """
    option = OPTION if named else STANDALONE if standalone else BY_OTHERS if by_others else None
    only_itself = [voter.node_id for voter in config.voters] == [config.node_id]
    is_controller = "controller" in config.roles
    if option is None:
        if is_controller and not config.voters:
            raise ConfigError(
                f"{VOTERS!r} is missing: say who votes first by {STANDALONE} or {OPTION}, or {BY_OTHERS} for a node that is added later"
            )
        return WhoVotes()
    if config.is_zookeeper_mode:
        raise ConfigError(f"{option}: in ZooKeeper mode nobody votes")
    if config.voters and not (only_itself and not by_others):
        raise ConfigError(
            f"{option}: the configuration says who votes by {VOTERS!r}; leave it out, and give {BOOTSTRAP!r}"
        )
    if by_others:
        return WhoVotes()
    if not is_controller:
        raise ConfigError(f"{option}: node {config.node_id} is a broker, and only controllers vote; give {BY_OTHERS}")
    if named and config.node_id not in {one.key.node_id for one in named}:
        raise ConfigError(
            f"{option} does not name node {config.node_id}; give {BY_OTHERS} for a node that is added later"
        )
    return WhoVotes(tuple(named), config.listeners.controllers[0].advertised if standalone else None)


def format_with_voters(
    disk: Disk,
    config: NodeConfig,
    new_id: Callable[[], UUID],
    who: WhoVotes,
    *,
    now_ms: int,
    ignore_formatted: bool,
) -> list[str]:
    """Format a node's directories (`format_directories`), that of the metadata log with the first voters.

    now_ms:  the time of the snapshot that holds them, ms since 1970.
    """
    own = next((one.key.directory_id for one in who.voters if one.key.node_id == config.node_id), None)
    return format_directories(
        disk,
        config,
        new_id,
        ignore_formatted=ignore_formatted,
        prepare_metadata=partial(_write, disk, config, who, now_ms) if who != WhoVotes() else None,
        metadata_id=own,
    )


def _write(disk: Disk, config: NodeConfig, who: WhoVotes, now_ms: int, own_id: UUID) -> None:
    voters = who.voters
    if who.standalone is not None:
        voters = (FirstVoter(ReplicaKey(config.node_id, own_id), who.standalone),)
    record = voters_record([one.key for one in voters], [(one.key.node_id, one.endpoint) for one in voters])
    directory = metadata_directory(config)
    disk.make_directory(directory)
    disk.sync_directory(config.metadata_log_dir)
    content = b"".join(snapshot_batches((), FORMATTED_WITH.epoch, now_ms, record))
    disk.replace_file(snapshot_path(directory, FORMATTED_WITH), content)
