"""What is done to a node's files: its configuration, its log directory, its control page; here where the harness sees them."""

import asyncio
import shutil
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Protocol

from replog.config.properties import parsed
from replog.host.config_file import META_PROPERTIES
from tribunal.clusters.api import Proof, Unsupported
from tribunal.clusters.capabilities import ClockSkew, Damage, DiskTrouble
from tribunal.clusters.nodes.disk_copies import restore, save
from tribunal.clusters.nodes.final_logs import log_bytes
from tribunal.clusters.nodes.log_damage import do_damage, log_ends
from tribunal.clusters.nodes.node_control import NodeControl
from tribunal.clusters.nodes.node_software import NodeSoftware, is_zookeeper
from tribunal.clusters.run_context import RunContext
from tribunal.clusters.spec import Settings


class NodeFiles(Protocol):
    """The files of one cluster's nodes, wherever they lie. Disks are touched only while their node is down."""

    async def prepare(self) -> None:
        """Have every node's configuration and formatted log directory in place, before the first one starts."""

    async def reconfigure(self, node: int, settings: Settings) -> None:
        """Give a node other settings from its next start on."""

    async def wipe(self, node: int) -> Proof:
        """Remove the log directory and format it again."""

    async def save_disk(self, node: int) -> None:
        """Copy the log directory."""

    async def restore_disk(self, node: int) -> Proof:
        """Put the copy back."""

    async def directory_id(self, node: int) -> str | None:
        """Return the id that formatting gave the log directory; None where it cannot be read."""

    async def power_fail(self, node: int) -> Proof:
        """Take from the disk what was not synced."""

    async def damage(self, node: int, damage: Damage) -> Proof:
        """Damage the log files."""

    async def set_clock(self, node: int, skew: ClockSkew) -> Proof:
        """Move a running node's clock."""

    async def trouble_disk(self, node: int, trouble: DiskTrouble) -> Proof:
        """Make a running node's disk misbehave."""

    async def log_ends_now(self, node: int) -> Mapping[str, int] | None:
        """Return where each log on a running node's disk ends; None where it cannot be read."""

    async def fetch(self) -> None:
        """Have the log directories on this machine, once every node is down."""

    def clock_offset_ns(self, node: int) -> int:
        """Return by how much a node's monotonic clock was ahead of ours at the start."""

    async def close(self) -> None:
        """Let go of everything."""


class LocalFiles:
    """Files in the run's folder, on this machine.

    power_failure:  takes from the disk in a node's folder what was not synced.
    controlled:     the nodes whose clock and disk are controlled by a page that both sides map.
    """

    def __init__(
        self, run: RunContext, software: NodeSoftware, power_failure: Callable[[Path], Proof], controlled: Sequence[int]
    ) -> None:
        self._run = run
        self._software = software
        self._power_failure = power_failure
        self._controlled = controlled
        self._controls: dict[int, NodeControl] = {}

    async def prepare(self) -> None:
        """Write configurations and control pages, format every log directory."""
        for node in self._run.spec.node_ids:
            self._software.configure(node, {})
        for node in self._controlled:
            self._controls[node] = NodeControl(self._run.folder(node) / "control.page")
        await self._software.prepare_format()
        for node in self._run.spec.node_ids:
            self._software.format(node)

    async def reconfigure(self, node: int, settings: Settings) -> None:
        """Write the configuration anew."""
        self._software.configure(node, settings)

    async def wipe(self, node: int) -> Proof:
        """Remove the log directory and format it again: a new disk."""
        if is_zookeeper(self._run.spec, node):
            raise Unsupported("the disk of a ZooKeeper server is not wiped: what a majority loses is no loss of ours")
        data = self._run.data_dir(node)
        before, old_directory_id = log_bytes(data), directory_id(data)
        ends = await asyncio.to_thread(log_ends, data)
        shutil.rmtree(data, ignore_errors=True)
        shutil.rmtree(self._run.folder(node) / "undo", ignore_errors=True)
        self._software.format(node)
        left, new_directory_id = log_bytes(data), directory_id(data)
        return Proof(
            # (Apache Kafka before 3.7 gives directories no ids.)
            holds=bool(before)
            and not any(left.values())
            and (old_directory_id is None or old_directory_id != new_directory_id),
            facts={
                "log_bytes_before": before,
                "log_end_offsets_before": ends,
                "log_end_offsets_after": left or dict.fromkeys(ends, 0),
                "directory_id_before": old_directory_id,
                "directory_id_after": new_directory_id,
            },
        )

    async def save_disk(self, node: int) -> None:
        """Copy the log directory beside it."""
        await asyncio.to_thread(save, self._run.folder(node))

    async def restore_disk(self, node: int) -> Proof:
        """Put the copy in the log directory's place."""
        return await asyncio.to_thread(restore, self._run.folder(node))

    async def directory_id(self, node: int) -> str | None:
        """Read it in the log directory."""
        return directory_id(self._run.data_dir(node))

    async def power_fail(self, node: int) -> Proof:
        """Take back what was not synced."""
        return await asyncio.to_thread(self._power_failure, self._run.folder(node))

    async def damage(self, node: int, damage: Damage) -> Proof:
        """Damage the log files."""
        return await asyncio.to_thread(do_damage, self._run.data_dir(node), damage)

    def _control(self, node: int) -> NodeControl:
        if node not in self._controls:
            raise Unsupported(f"node {node} has no control page: its clock and its disk are its machine's")
        return self._controls[node]

    async def set_clock(self, node: int, skew: ClockSkew) -> Proof:
        """Move a running node's clock."""
        return await self._control(node).set_clock(skew)

    async def trouble_disk(self, node: int, trouble: DiskTrouble) -> Proof:
        """Make a running node's disk misbehave."""
        return await self._control(node).trouble_disk(trouble)

    async def log_ends_now(self, node: int) -> Mapping[str, int] | None:
        """Read the files under the running node: what it has written is in the page cache."""
        data = self._run.data_dir(node)
        try:
            return await asyncio.to_thread(log_ends, data) if data.is_dir() else None
        except (OSError, ValueError):  # a segment was deleted meanwhile, or the files belong to somebody else
            return None

    async def fetch(self) -> None:
        """Leave them where they are."""

    def clock_offset_ns(self, node: int) -> int:
        """Return 0: one machine, one clock."""
        return 0

    async def close(self) -> None:
        """Let go of the control pages."""
        for control in self._controls.values():
            control.close()
        self._controls.clear()


def directory_id(data: Path) -> str | None:
    """Return the id that formatting gave a log directory."""
    try:
        return directory_id_in((data / META_PROPERTIES).read_text())
    except OSError:
        return None


def directory_id_in(properties: str) -> str | None:
    """Return the id that a log directory's `meta.properties` names."""
    return parsed(properties).get("directory.id")
