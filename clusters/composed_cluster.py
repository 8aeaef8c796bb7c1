"""A cluster as the harness sees it, composed of parts: what a kind of cluster does differently, it does by another part.

`assembly.py` puts the parts together. The cluster itself only knows in which order they are used: a disk is touched while
its node is down, the observer stops before the nodes do, and nothing is left behind however it ends.
"""

import asyncio
from collections.abc import Iterator, Mapping, Sequence
from typing import Final, Literal, Protocol

import msgspec

from tribunal.clusters.api import (
    ClientFactory,
    ClusterError,
    ClusterState,
    CutMode,
    DumpedLog,
    Link,
    MetadataEntry,
    NodeEvent,
    Proof,
    RequestSeen,
    Unsupported,
    until,
)
from tribunal.clusters.capabilities import (
    RELEASED,
    Capability,
    ClockSkew,
    Damage,
    DiskTrouble,
    FrameRule,
    RuleInForce,
    Shape,
    SystemName,
    offered_by,
)
from tribunal.clusters.clients.administration import Administration
from tribunal.clusters.clients.finalized_features import FinalizedFeatures
from tribunal.clusters.clients.membership import Membership
from tribunal.clusters.endings import all_done, completed
from tribunal.clusters.frame_rules import Rule
from tribunal.clusters.host_environment import HostedNode, HostEnvironment, processes_here
from tribunal.clusters.links.answers import ClientAnswers
from tribunal.clusters.links.link_faults import LinkFaults
from tribunal.clusters.links.relays import Links
from tribunal.clusters.links.requests import RequestLog
from tribunal.clusters.nodes.final_logs import dumped_logs
from tribunal.clusters.nodes.mounts import MountedDisks
from tribunal.clusters.nodes.node_events import NodeEvents
from tribunal.clusters.nodes.node_exits import NodeExits
from tribunal.clusters.nodes.node_files import NodeFiles
from tribunal.clusters.nodes.node_software import NodeSoftware
from tribunal.clusters.operated import Operated
from tribunal.clusters.orders import Orders, OrderSeen
from tribunal.clusters.run_context import RunContext
from tribunal.clusters.secured.secured_operation import SecuredOperation
from tribunal.clusters.spec import Settings

LOOK_MS: Final = 5
ANSWER_WAIT_MS: Final = 10_000  # a JVM on a busy machine
SECURED: Final = ", TLS (ended at the links) and SASL"


class Observer(Protocol):
    """Follows the cluster's committed metadata past all faults, into a `ClusterState`."""

    @property
    def overtaken(self) -> str:
        """What it missed; empty: nothing."""

    def start(self) -> None:
        """Follow from now on."""

    async def stop(self) -> None:
        """Stop following; what was seen stays."""


class MetadataSource(Protocol):
    """Where committed metadata records are gathered."""

    def drain(self) -> list[MetadataEntry]:
        """Hand over what came since the last call."""


class Releases(Protocol):
    """Which release of its system each node runs."""

    async def fetch_release(self, version: str) -> None:
        """Have a release here; `ClusterError` where that is impossible."""

    def change_release(self, node: int, version: str) -> Proof:
        """Let a node run another release, which is here, from its next start on."""

    def runs_release(self, pid: int | None, version: str) -> Proof:
        """Say whether a process is of that release."""


class Systems(Protocol):
    """Which of two systems each node runs."""

    def system_of(self, node: int) -> SystemName:
        """Return the system that a node runs, or runs from its next start on."""

    def change_system(self, node: int, system: SystemName) -> Proof:
        """Let a node that is down run this system from its next start on."""

    def runs_system(self, pid: int | None, system: SystemName) -> Proof:
        """Say whether a process is of that system."""


class Parts(msgspec.Struct, frozen=True, kw_only=True):
    """What a cluster is composed of."""

    kind: str
    capabilities: frozenset[Capability]
    environment: HostEnvironment
    software: NodeSoftware
    nodes: Mapping[int, HostedNode]
    files: NodeFiles
    mounts: MountedDisks
    events: NodeEvents
    exits: NodeExits
    links: Links
    link_faults: LinkFaults
    requests: RequestLog
    state: ClusterState
    observer: Observer
    metadata: MetadataSource
    clients: ClientFactory
    administration: Administration
    membership: Membership
    answers: ClientAnswers
    secured: SecuredOperation | None = None
    releases: Releases | None = None  # of a system that is released, where one cluster may have several
    systems: Systems | None = None  # of a cluster of two systems


class ComposedCluster(Operated):
    """A cluster of real nodes; see `tribunal.clusters.api.Cluster` and `tribunal.clusters.capabilities`."""

    described = None

    def __init__(self, run: RunContext, parts: Parts) -> None:
        self.kind = parts.kind
        self.place = parts.environment.place + (SECURED if parts.secured is not None else "")
        self.capabilities = parts.capabilities
        self.spec = run.spec
        self.state = parts.state
        self.clients = parts.clients
        self.nodes = parts.nodes
        self.links = parts.links
        self._run = run
        self._parts = parts
        self._administration = parts.administration
        self._orders = Orders(run.clock.now_ns, lambda: self.state.topic_ids)

    def now_ns(self) -> int:
        """Return the run's clock."""
        return self._run.clock.now_ns()

    # --- begin and end ---------------------------------------------------------------------

    async def bring_up(self) -> None:
        """Start every node, the relays being open; return when every broker is unfenced."""
        order = self._parts.software.boot_order
        await self._parts.files.prepare()
        for nodes in order.before_observer:
            await self._start_together(nodes)
        self._parts.observer.start()
        for nodes in order.after_observer:
            await self._start_together(nodes)
        what = "all brokers registered and unfenced"
        await until(
            lambda: self.state.is_fully_in_sync(self.spec), timeout_ms=order.in_sync_timeout_ms, what=what, cluster=self
        )
        if self._parts.secured is not None:
            await self._parts.secured.admit_load(self.spec.broker_ids)

    async def _start_together(self, nodes: Sequence[int]) -> None:
        # Until none is on its way any more, also when one cannot be started: whoever closes finds all that were.
        begun = await asyncio.gather(*map(self._spawn, nodes), return_exceptions=True)
        if problem := next((one for one in begun if one is not None), None):
            raise problem
        await asyncio.gather(*(self.nodes[node].serving() for node in nodes))

    async def _spawn(self, node: int) -> None:
        self._parts.events.starting(node)
        await self.nodes[node].spawn()

    async def shut_down(self) -> None:
        """End every node at once: what they wrote is in the page cache, so the files are complete."""
        await self._parts.observer.stop()
        await all_done(node.kill() for node in self.nodes.values())
        await self._parts.mounts.close()
        await self._parts.files.fetch()

    async def close(self) -> None:
        """Leave nothing behind but files."""
        try:
            await self.shut_down()
        finally:
            await self._parts.environment.close()
            await self._parts.files.close()

    # --- nodes -----------------------------------------------------------------------------

    def _node(self, node: int) -> HostedNode:
        try:
            return self.nodes[node]
        except KeyError:
            raise ClusterError(f"there is no node {node}; nodes are {sorted(self.nodes)}") from None

    def _must_be_down(self, node: int) -> None:
        if self._node(node).alive:
            raise ClusterError(f"node {node} runs: kill it before its disk is touched")

    async def start(self, node: int) -> None:
        """Start a node that is down; return when it serves."""
        node_process = self._node(node)
        await self._spawn(node)
        await node_process.serving()

    async def stop(self, node: int) -> None:
        """Ask a node to end in good order."""
        timeout_ms = self._parts.software.stop_timeout_ms
        if not await self._node(node).terminate(timeout_ms):
            raise ClusterError(f"node {node} does not end within {timeout_ms} ms of SIGTERM")
        self._parts.events.stopped(node)

    async def kill(self, node: int) -> Proof:
        """Kill -9."""
        pid = self._node(node).pid
        proof = await self._node(node).kill()
        self._parts.events.killed(node, pid)
        return proof

    async def pause(self, node: int) -> Proof:
        """SIGSTOP."""
        return await self._node(node).pause()

    async def resume(self, node: int) -> Proof:
        """SIGCONT."""
        return await self._node(node).resume()

    def alive(self, node: int) -> bool:
        """Return whether the node's process exists."""
        return self._node(node).alive

    def excuse(self, node: int, why: str | None) -> None:
        """Expect (or no longer expect) the node to end by itself."""
        self._parts.exits.excuse(node, why)

    # --- disks and clocks ------------------------------------------------------------------

    async def reconfigure(self, node: int, settings: Settings) -> None:
        """Give a node that is down other settings; they hold from its next start on."""
        self._node(node)
        await self._parts.files.reconfigure(node, settings)

    @property
    def _releases(self) -> Releases:
        if self._parts.releases is None:
            raise Unsupported("its nodes run this project's own software, of one version")
        return self._parts.releases

    async def fetch_release(self, version: str) -> None:
        """Have a release here."""
        await self._releases.fetch_release(version)

    async def change_release(self, node: int, version: str) -> Proof:
        """Let a dead node run another release from its next start on."""
        self._must_be_down(node)
        return self._releases.change_release(node, version)

    async def runs_release(self, node: int, version: str) -> Proof:
        """Say whether a running node's process is of that release."""
        return self._releases.runs_release(self._node(node).pid, version)

    @property
    def _systems(self) -> Systems:
        if self._parts.systems is None:
            raise Unsupported("all of its nodes run one system")
        return self._parts.systems

    def system_of(self, node: int) -> SystemName:
        """Return the system that a node runs, or runs from its next start on."""
        return self._systems.system_of(node)

    async def change_system(self, node: int, system: SystemName) -> Proof:
        """Let a dead node run another system, on the files that the one before has left."""
        self._must_be_down(node)
        return self._systems.change_system(node, system)

    async def runs_system(self, node: int, system: SystemName) -> Proof:
        """Say whether a running node's process is of that system."""
        return self._systems.runs_system(self._node(node).pid, system)

    async def metadata_version(self) -> int:
        """Return the finalized level of metadata.version."""
        return await FinalizedFeatures(self._parts.administration).metadata_version()

    async def raise_metadata_version(self, level: int) -> None:
        """Finalize a higher level."""
        await FinalizedFeatures(self._parts.administration).raise_metadata_version(level)

    async def wipe(self, node: int) -> Proof:
        """Remove a dead node's log directory and format it again: a new disk."""
        self._must_be_down(node)
        return await completed(self._parts.files.wipe(node))

    async def save_disk(self, node: int) -> None:
        """Copy a dead node's log directory."""
        self._must_be_down(node)
        await completed(self._parts.files.save_disk(node))

    async def restore_disk(self, node: int) -> Proof:
        """Put the copy in the place of a dead node's log directory."""
        self._must_be_down(node)
        return await completed(self._parts.files.restore_disk(node))

    async def power_fail(self, node: int) -> Proof:
        """Kill -9, then take back from the disk what was not synced."""
        return await completed(self._powerless(node))

    async def _powerless(self, node: int) -> Proof:
        gone = await self.kill(node)
        lost = await self._parts.files.power_fail(node)
        return Proof(holds=gone.holds and lost.holds, facts={**gone.facts, **lost.facts})

    async def damage(self, node: int, damage: Damage) -> Proof:
        """Damage the log files of a dead node."""
        self._must_be_down(node)
        return await completed(self._parts.files.damage(node, damage))

    async def set_clock(self, node: int, skew: ClockSkew) -> Proof:
        """Move a running node's clock."""
        self._node(node)
        return await self._parts.files.set_clock(node, skew)

    async def trouble_disk(self, node: int, trouble: DiskTrouble) -> Proof:
        """Make a running node's disk misbehave."""
        self._node(node)
        return await self._parts.files.trouble_disk(node, trouble)

    async def mount_disk(self, node: int, writes: Literal["full", "read-only"]) -> Proof:
        """Let the kernel refuse a node's writes."""
        mounts = self._parts.mounts
        if writes == "read-only" and mounts.while_running:
            return await mounts.freeze(node)
        await self.kill(node)
        if writes == "read-only":
            proof = await mounts.freeze(node)
            await self._spawn(node)  # it will not get far
            return proof
        await mounts.move(node)
        await self.start(node)
        return await mounts.fill(node)

    async def mend_mount(self, node: int) -> Proof:
        """Give a dead node its old disk back."""
        return await self._parts.mounts.mend(node)

    # --- links -----------------------------------------------------------------------------

    async def cut(self, links: Sequence[Link], mode: CutMode) -> Proof:
        """Cut links."""
        return await self.links.cut(links, mode)

    async def heal(self, links: Sequence[Link]) -> Proof:
        """Undo cuts."""
        return await self.links.heal(links)

    async def shape(self, links: Sequence[Link], shape: Shape) -> Proof:
        """Make links slow, lossy or narrow, or as they were."""
        return await self._parts.link_faults.shape(links, shape)

    async def reset(self, links: Sequence[Link]) -> Proof:
        """Reset the connections there are, once."""
        return await self._parts.link_faults.reset(links)

    async def half_open(self, links: Sequence[Link]) -> Proof:
        """Let each link's target forget its connections while the source goes on taking them for open."""
        return await self._parts.link_faults.half_open(links)

    async def close_half_open(self, links: Sequence[Link]) -> Proof:
        """Reset the ends that are still open."""
        return await self._parts.link_faults.close_half_open(links)

    def add_rule(self, rule: FrameRule) -> Rule:
        """Ask this rule about every message from now on."""
        return self._parts.link_faults.add_rule(rule)

    def release(self, rule: RuleInForce) -> int:
        """Let go on what the rule holds now."""
        return self._parts.link_faults.release(rule)

    def remove_rule(self, rule: RuleInForce) -> int:
        """Ask it no more, and let go on what it holds."""
        return self._parts.link_faults.remove_rule(rule)

    # --- administration --------------------------------------------------------------------

    async def unregister(self, node: int) -> None:
        """Let the controllers forget a broker."""
        await self._parts.membership.unregister(node)

    async def voters(self) -> list[int]:
        """Return who votes."""
        return await self._parts.membership.voters()

    async def remove_voter(self, node: int) -> None:
        """Take a controller's vote."""
        await self._parts.membership.remove_voter(node)

    async def add_voter(self, node: int) -> None:
        """Give an observing controller a vote."""
        own = await self._parts.files.directory_id(node)
        await self._parts.membership.add_voter(node, self.links.advertised(node), own)

    # --- who may come in -------------------------------------------------------------------

    @property
    def _secured(self) -> SecuredOperation:
        if self._parts.secured is None:
            raise Unsupported("everybody may come in: there are no passwords and no certificates")
        return self._parts.secured

    def answered_counts(self) -> Mapping[int, int]:
        """Return how many of the load's produces and fetches were answered."""
        return dict(self._parts.answers.answered_counts)

    async def change_password(self) -> Proof:
        """Give the load's clients another password."""
        return await self._secured.change_password([node for node in self.spec.broker_ids if self.alive(node)])

    async def renew_certificate(self, node: int, *, is_expired: bool) -> Proof:
        """Put another certificate into a running node's file."""
        return await self._secured.renew_certificate(node, is_expired=is_expired)

    # --- what was seen ---------------------------------------------------------------------

    def message_count(self, api: int, direction: Literal["request", "response"]) -> int:
        """Return how many messages of an API passed the relays."""
        return self._parts.requests.counts[api, direction == "request"]

    def last_message(self, api: int, direction: Literal["request", "response"]) -> tuple[int, ...]:
        """Return who sent the last message of this API that passed the relays, and to whom."""
        return self._parts.requests.ends.get((api, direction == "request"), ())

    async def something_happens(self, timeout_ms: int) -> None:
        """Rest for a moment: relays and observer are asked again."""
        await asyncio.sleep(min(timeout_ms, LOOK_MS) / 1000)

    def failures(self) -> list[str]:
        """Return what went wrong with nodes without a fault."""
        overtaken = self._parts.observer.overtaken
        return [*self._parts.exits.failures, *([overtaken] if overtaken else [])]

    def process_ids(self) -> Mapping[int, int]:
        """Return the processes of this machine in which nodes run now."""
        return processes_here(self.nodes)

    def drain_events(self) -> list[NodeEvent]:
        """Return what nodes reported, and what was seen of their starts and ends, since the last call."""
        return self._parts.events.drain()

    def drain_metadata(self) -> list[MetadataEntry]:
        """Return committed metadata records since the last call."""
        return self._parts.metadata.drain()

    def drain_requests(self) -> list[RequestSeen]:
        """Return the messages between nodes that the relays saw since the last call."""
        return self._parts.requests.drain()

    def drain_orders(self) -> list[OrderSeen]:
        """Return what was ordered as an operator does since the last call."""
        return self._orders.drain()

    def clock_offset_ns(self, node: int) -> int:
        """Return by how much a node's monotonic clock was ahead of ours at the start."""
        return self._parts.files.clock_offset_ns(node)

    async def answers(self, node: int) -> bool:
        """Return whether a node's process exists and answers a request now."""
        if not self._node(node).alive:
            return False
        try:
            async with asyncio.timeout(ANSWER_WAIT_MS / 1000):
                await self._node(node).serving()
        except (TimeoutError, ClusterError):
            return False
        return True

    async def log_ends_now(self, node: int) -> Mapping[str, int] | None:
        """Return where each log on a broker's disk ends now."""
        return await self._parts.files.log_ends_now(node)

    def final_logs(self) -> Iterator[DumpedLog]:
        """Read every replica's log."""
        for node in self.spec.broker_ids:
            yield from dumped_logs(node, self._run.data_dir(node))


CAPABILITIES: Final = offered_by(ComposedCluster) - RELEASED  # of every kind that does not take one out
