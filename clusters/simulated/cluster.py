"""A cluster in the simulated world: the unchanged nodes of replog, each on a machine of its own.

It offers what every cluster offers (`tribunal.clusters.api`), and more, because a simulated world can have faults that a real one
cannot: `power_fail`, disks (`machine(node).disk.faults`), clocks, single messages (`simulation.network.frames`).
Clients live together on one machine, `clients`. Whoever runs it must do so inside the loop of a
`Simulation` (`running.py`); the metadata's committed state is read from the disks, without asking anybody.
"""

import asyncio
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Final, Literal
from uuid import UUID

import msgspec

from replog.config import DEFINITIONS, Endpoint, NodeConfig
from replog.log.creation import PARTITION_METADATA_FILE
from replog.node.directories.meta_properties import short
from replog.types import METADATA_TOPIC, ZERO_UUID, NodeId, TopicPartition
from tribunal.clusters.api import (
    CLIENTS,
    ClusterError,
    ClusterSpec,
    ClusterState,
    CutMode,
    DumpedLog,
    Link,
    MetadataEntry,
    NodeEvent,
    Proof,
    RequestSeen,
    until,
)
from tribunal.clusters.capabilities import OF_SIMULATOR, Fate
from tribunal.clusters.clock import RunClock
from tribunal.clusters.links.requests import RequestLog
from tribunal.clusters.nodes.final_logs import dumped_log, topic_id_of
from tribunal.clusters.orders import Orders, OrderSeen
from tribunal.clusters.simulated.capabilities import SimulatedFaults
from tribunal.clusters.simulated.clients import SimulatedClients
from tribunal.clusters.simulated.committed import CommittedMetadata, Incarnation, QuorumMember
from tribunal.clusters.simulated.committed_znodes import CommittedZnodes
from tribunal.clusters.simulated.control_watch import ControlWatch
from tribunal.clusters.simulated.disk import Directory
from tribunal.clusters.simulated.event_fields import AboutNode
from tribunal.clusters.simulated.frames import Frame, metadata_offset_of
from tribunal.clusters.simulated.loop import Failure
from tribunal.clusters.simulated.network import Host
from tribunal.clusters.simulated.node import Ending, SimulatedNode, ZooKeeperNode
from tribunal.clusters.simulated.own_failure import own_failure
from tribunal.clusters.simulated.process import NS_PER_S
from tribunal.clusters.simulated.proposals import proposals_of
from tribunal.clusters.simulated.replica_logs import first_offset_of
from tribunal.clusters.simulated.violation import Violated
from tribunal.clusters.simulated.votes import Votes
from tribunal.clusters.simulated.watch import Watch
from tribunal.clusters.simulated.world import EPOCH_MS, Machine, Points, ReportedEvent, Simulation
from tribunal.clusters.simulated.zookeeper_model import Model
from tribunal.clusters.spec import Settings, SettingValue
from tribunal.clusters.standing_cuts import StandingCuts
from tribunal.clusters.values import Facts
from tribunal.results.violation import Invariant

POINTS_SETTING: Final = "tribunal.points"
STRUCK: Final = "point "  # before the name of a point, among rare states
ELR_SETTING: Final = "eligible.leader.replicas.enable"
PRODUCER_EXPIRATION: Final = "producer.id.expiration.ms"
PORT: Final = 9092
DATA: Final = "/data"
SERVING_TIMEOUT_MS: Final = 30_000
REGISTERED_TIMEOUT_MS: Final = 60_000
STOP_TIMEOUT_MS: Final = 30_000
CLIENTS_RANK: Final = 1_000


def log_directories(spec: ClusterSpec) -> list[str]:
    """Return where a broker's log directories are; the first one has the metadata log."""
    if spec.log_directories == 1:
        return [DATA]
    return [f"{DATA}/{number}" for number in range(spec.log_directories)]


class SimulatedCluster(SimulatedFaults):
    """A cluster of simulated machines; see `tribunal.clusters.api.Cluster`."""

    kind = "simulated"
    capabilities = OF_SIMULATOR
    place = None
    described = None

    def __init__(self, spec: ClusterSpec, simulation: Simulation, clock: RunClock, cluster_id: str) -> None:
        self.spec = spec
        self.simulation = simulation
        simulation.cluster = self
        self.clock = clock
        self.cluster_id = cluster_id
        simulation.network.frames.on = True
        if spec.node_settings().get(POINTS_SETTING):
            simulation.points = Points(simulation.loop)
        self._copies: dict[
            int, tuple[Directory, dict[str, int]]
        ] = {}  # of brokers' disks, and where logs ended in them
        self.lost_directories: dict[tuple[int, UUID], None] = {}  # of nodes that have another disk now
        self.control_watch: ControlWatch | None = None
        self.model = Model()  # of ZooKeeper, where there is one
        self.nodes: dict[int, SimulatedNode] = {node: self._new_node(node) for node in spec.node_ids}
        machines = {node: one.machine for node, one in self.nodes.items()}
        self.committed = self._committed_state(machines)
        elr_enabled = bool(spec.node_settings().get(ELR_SETTING, DEFINITIONS[ELR_SETTING].default))
        self.watch = Watch(
            simulation,
            machines,
            DATA,
            self.committed,
            self._quorum_members,
            elr_enabled=elr_enabled,
            producer_expiration_ms=spec.timeout_ms(PRODUCER_EXPIRATION),
            log_directories=log_directories(spec),
        )
        self.watch.on_violation = self._violated
        if isinstance(self.committed, CommittedZnodes):
            self.committed.on_change = self.watch.look_soon
            self._watch_control()
        self._client_machine = simulation.add_machine("clients", "10.0.255.1", CLIENTS_RANK)
        self._node_of = simulation.network.frames.nodes = {machine.name: node for node, machine in machines.items()}
        self._drained_count = 0
        self._known_members: Mapping[Incarnation, QuorumMember] = {}
        self._members_as_of = -1
        self._own_events: list[NodeEvent] = []
        self._requests = RequestLog(self._observed_ns)
        self.orders = Orders(clock.now_ns, lambda: self.committed.state.topic_ids)
        self._is_down = False
        self._probes_reported = False
        self._expecting: list[asyncio.Future[None]] = []
        directories = {node: one.config.metadata_log_dir for node, one in self.nodes.items()}
        self._votes = Votes(machines, self._quorum_members, directories, self.watch.accuse)
        simulation.network.frames.on_message = self._message_sent
        self.watch.on_commit = self._something_happened
        self.watch.is_ending = lambda node: self.nodes[node].ending.asked_to_stop
        self._failures: list[str] = []
        self._standing_cuts = StandingCuts()
        self.standing_shapes = StandingCuts()
        self.clients: SimulatedClients
        simulation.loop.on_failure = self._failed
        simulation.loop.ends_its_node = lambda problem: own_failure(problem) is not None
        simulation.on_cluster(self)

    @property
    def state(self) -> ClusterState:
        """What is committed now: on an idle cluster a high watermark moves after the last file has moved."""
        self.watch.catch_up()
        return self.committed.state

    def now_ns(self) -> int:
        """Return the run's clock."""
        return self.clock.now_ns()

    def _observed_ns(self) -> int:
        """Return the run's clock as the harness has it also while a node runs, whose clock is another."""
        return self.simulation.loop.now_ns - self.clock.start_ns

    def clock_offset_ns(self, node: int) -> int:
        """Return 0: what nodes report is on the run's clock."""
        return 0

    def machine(self, node: int) -> Machine:
        """Return the machine of a node, for faults that only simulated ones can have."""
        return self._node(node).machine

    # --- begin and end ---------------------------------------------------------------------

    async def open(self) -> None:
        """Format and start all of it; return when every broker is unfenced."""
        self._open_clients()
        for node in self.nodes.values():
            node.format()
        for node in self.nodes.values():
            self._begin(node)
        await until(
            lambda: self.state.is_fully_in_sync(self.spec),
            timeout_ms=REGISTERED_TIMEOUT_MS,
            what="all brokers registered and unfenced",
            cluster=self,
        )

    def _open_clients(self) -> None:
        """Have a machine whose process does nothing: clients run in the harness, in its name."""
        world = self._client_machine.open_world()
        bootstrap = [Endpoint(self.nodes[broker].machine.host.address, PORT) for broker in self.spec.broker_ids]
        racks = sorted({*self.spec.racks.values()})
        self.clients = SimulatedClients(world, bootstrap, self.state, racks)

    def _watch_control(self) -> None:
        """Watch control messages (KIP-380)."""
        names = {one.machine.name: node for node, one in self.nodes.items()}
        self.control_watch = ControlWatch(names, self.watch.accuse)
        self.watch.keeps_hosted = True
        self.simulation.network.frames.observers.append(self.control_watch.observe)
        self.simulation.listeners.append(self.control_watch.note)

    def _committed_state(self, machines: Mapping[int, Machine]) -> CommittedMetadata:
        if not self.spec.is_zookeeper_mode:
            disks = {node: machine.disk for node, machine in machines.items()}
            return CommittedMetadata(
                disks,
                now_ns=self._observed_ns,
                wall_start_ms=EPOCH_MS,
                acted_offset=self._acted_offset,
                min_insync_replicas=self.spec.min_insync_replicas,
            )
        znodes = CommittedZnodes(self._observed_ns)
        self.model.on_commit = znodes.committed
        return znodes

    def _new_node(self, node: int) -> SimulatedNode:
        role = "controller" if node in self.spec.controller_ids else "broker"
        machine = self.simulation.add_machine(f"{role}-{node}", _address(node), node)
        if self.spec.is_zookeeper_mode and role == "controller":
            return ZooKeeperNode(node, machine, self._settings(node, role), self.model)
        return SimulatedNode(node, machine, self._settings(node, role))

    def _settings(self, node: int, role: str) -> dict[str, SettingValue]:
        voters = ",".join(f"{voter}@{_address(voter)}:{PORT}" for voter in self.spec.controller_ids)
        zookeeper = ",".join(f"{_address(server)}:{PORT}" for server in self.spec.controller_ids)
        metadata_source = (
            {"zookeeper.connect": zookeeper}
            if self.spec.is_zookeeper_mode
            else {"process.roles": role, "controller.quorum.voters": voters}
        )
        return {
            **metadata_source,
            "node.id": node,
            "cluster.id": self.cluster_id,
            "listeners": f"{_address(node)}:{PORT}",
            "log.dirs": ",".join(log_directories(self.spec)) if role == "broker" else DATA,
            **({"broker.rack": self.spec.racks[node]} if node in self.spec.racks else {}),
            **self.spec.node_settings(),
        }

    def _begin(self, node: SimulatedNode) -> None:
        ended = node.start()
        ending = node.ending
        ended.add_done_callback(lambda done: self._ended(node, ending, done.result()))

    def _ended(self, node: SimulatedNode, ending: Ending, problem: BaseException | None) -> None:
        """Take note of a node's end; one that nobody asked for is a failure of the run."""
        problem = ending.problem or problem  # what it was cancelled for says more than that it was
        if (facts := own_failure(problem)) is not None:  # nothing that was done to it excuses it
            self._note(node.node, "exit", reason=repr(problem))
            self.watch.report(Violated(Invariant.ASSERTION, facts, node=node.node))
            return
        if node.excuse is not None or (ending.asked_to_stop and problem is None):
            self._note(node.node, "exit", reason=node.excuse or "asked to stop")
            if ending.asked_to_stop and problem is None and node.node in self.spec.broker_ids:
                self.watch.ended_in_order(node.node)
            return
        self._failures.append(f"{node.machine.name} ended by itself: {problem!r}\n{node.last_log_lines()}")
        self._note(node.node, "exit", reason=repr(problem))

    def _failed(self, failure: Failure) -> None:
        """End the node whose callback failed; an error of the harness itself ends the run."""
        for node in self.nodes.values():
            if failure.process is node.machine.process:
                node.fail(failure)
                return
        if failure.exception is not None:
            raise failure.exception

    def _violated(self, problem: Violated) -> None:
        """Stop every node where it is: what is wrong now must not be repaired or covered up."""
        self._failures.append(f"{problem} (event {problem.event_count}, {problem.at_ns / NS_PER_S:.3f} s)")
        for node in self.nodes.values():
            if node.machine.running:
                node.machine.kill()

    async def shut_down(self) -> None:
        """End every node at once; disks stay readable."""
        if self.control_watch is not None:
            alive = {node: one.broker_epoch for node, one in self.state.brokers.items() if not one.fenced}
            self.control_watch.look_at_end(alive, self.simulation.loop.now_ns)
        self._is_down = True
        for node in self.nodes.values():
            if node.machine.running:
                node.machine.kill()
        self.watch.catch_up()

    async def close(self) -> None:
        """Leave nothing behind."""
        await self.shut_down()

    # --- faults ----------------------------------------------------------------------------

    def _node(self, node: int) -> SimulatedNode:
        try:
            return self.nodes[node]
        except KeyError:
            raise ClusterError(f"there is no node {node}; nodes are {sorted(self.nodes)}") from None

    async def start(self, node: int) -> None:
        """Start a node that is down; return when it accepts connections."""
        one = self._node(node)
        if not one.machine.running:  # else another fault, to which it was down as well, has started it
            one.machine.power_on()
            self._begin(one)
        await until(
            lambda: PORT in one.machine.host.listeners,
            timeout_ms=SERVING_TIMEOUT_MS,
            what=f"node {node} serves",
            cluster=self,
        )

    async def stop(self, node: int) -> None:
        """Ask a node to end in good order and wait for it."""
        one = self._node(node)
        one.stop()
        await until(lambda: not one.machine.running, timeout_ms=STOP_TIMEOUT_MS, what=f"node {node} ends")

    async def kill(self, node: int) -> Proof:
        """Kill -9."""
        machine = self.machine(node)
        incarnation = machine.incarnations
        if not machine.running:
            raise ClusterError(f"node {node} is down already: two faults at once have the same target")
        machine.kill()
        self._note(node, "killed", pid=incarnation)
        return self._gone(node, {"pid": incarnation})

    async def power_fail(self, node: int) -> Proof:
        """Take the power away."""
        proof = await super().power_fail(node)
        incarnation = self.machine(node).incarnations
        self._note(node, "killed", pid=incarnation)
        return Proof(holds=proof.holds, facts={**self._gone(node, {"pid": incarnation}).facts, **proof.facts})

    def _gone(self, node: int, facts: Facts) -> Proof:
        machine = self.machine(node)
        holds = not machine.running and PORT not in machine.host.listeners
        return Proof(holds=holds, facts={**facts, "process": "gone", "port": "refuses"})

    async def reconfigure(self, node: int, settings: Settings) -> None:
        """Give a node that is down other settings; they hold from its next start on."""
        one = self._node(node)
        one.config = NodeConfig({**self._settings(node, "broker"), **settings})

    async def pause(self, node: int) -> Proof:
        """SIGSTOP."""
        machine = self.machine(node)
        machine.pause()
        return Proof(holds=machine.running, facts={"state": "stopped"})

    async def resume(self, node: int) -> Proof:
        """SIGCONT; of a process that another fault has ended meanwhile nothing is stopped any more."""
        machine = self.machine(node)
        machine.resume()
        return Proof(holds=True, facts={"state": "running" if machine.running else "ended"})

    async def wipe(self, node: int) -> Proof:
        """Empty the disk of a node that is down, formatted again."""
        one = self._idle(node)
        before, old_directory_id = self.log_ends(node), one.directory_id
        had_logs = bool(self.watch.replicas[node].logs)
        one.machine.power_on()
        for directory in one.config.log_dirs:
            one.machine.disk.mend(directory)  # it is another disk
        one.machine.disk.wipe(DATA)
        if self.spec.is_zookeeper_mode:
            self.watch.lost_data(node)
        else:
            self.watch.replaced_disk(node)
        self.lost_directories[node, old_directory_id] = None
        one.format()
        after = self.log_ends(node)
        return Proof(
            holds=had_logs and not any(after.values()) and old_directory_id != one.directory_id,
            facts={
                "log_end_offsets_before": before,
                "log_end_offsets_after": after or dict.fromkeys(before, 0),
                "directory_id_before": str(old_directory_id),
                "directory_id_after": str(one.directory_id),
            },
        )

    async def save_disk(self, node: int) -> None:
        """Copy the disk of a node that is down."""
        self._copies[node] = self._idle(node).machine.disk.copied(DATA), self.log_ends(node)

    async def restore_disk(self, node: int) -> Proof:
        """Put the copy back."""
        machine, (copy, ends) = self._idle(node).machine, self._copies[node]
        before = self.log_ends(node)
        machine.power_on()
        machine.disk.put_back(DATA, copy)
        self.watch.lost_data(node)
        after = self.log_ends(node)
        return Proof(
            holds=after == ends,
            facts={"log_end_offsets_before": before, "log_end_offsets_after": {**dict.fromkeys(before, 0), **after}},
        )

    def _idle(self, node: int) -> SimulatedNode:
        """Return a node whose disk may be touched."""
        one = self._node(node)
        if one.machine.running:
            raise ClusterError(f"node {node} runs: kill it before its disk is touched")
        return one

    def directory_id(self, node: int) -> str:
        """Return the id that formatting gave a node's log directory, as Kafka's tools write it."""
        return short(self._node(node).directory_id)

    def log_ends(self, node: int) -> dict[str, int]:
        """Return where each log on a node's disk ends."""
        self.watch.catch_up()
        logs = self.watch.replicas[node].logs
        return {str(name): log.end_offset for name, log in logs.items() if name.topic != METADATA_TOPIC}

    async def cut(self, links: Sequence[Link], mode: CutMode) -> Proof:
        """Cut links."""
        pairs = self.pairs(links)
        self._standing_cuts.add(links)
        self.simulation.network.cut(pairs, mode)
        self.watch.stability.links_changed()
        facts = {str(link): self._is_cut(pair) for link, pair in zip(links, pairs, strict=True)}
        return Proof(holds=all(facts.values()), facts={"cut": facts, "mode": mode.value})

    async def heal(self, links: Sequence[Link]) -> Proof:
        """Undo cuts; links that another fault cuts stay cut."""
        free = self._standing_cuts.undo(links)
        pairs = self.pairs(free)
        self.simulation.network.heal(pairs)
        self.watch.stability.links_changed()
        facts = {str(link): not self._is_cut(pair) for link, pair in zip(free, pairs, strict=True)}
        return Proof(holds=all(facts.values()), facts={"passes": facts})

    def endpoint(self, node: int) -> tuple[str, int]:
        """Return where a node listens."""
        return _address(node), PORT

    def pairs(self, links: Sequence[Link]) -> list[tuple[Host, Host]]:
        """Return the links as machines."""
        return [(self._host(link.source), self._host(link.target)) for link in links]

    def _host(self, node: int) -> Host:
        return self._client_machine.host if node == CLIENTS else self.machine(node).host

    def _is_cut(self, pair: tuple[Host, Host]) -> bool:
        return self.simulation.network.link(*pair).cut is not None

    # --- seeing ----------------------------------------------------------------------------

    def alive(self, node: int) -> bool:
        """Return whether the node's process exists."""
        return self.machine(node).running

    def failures(self) -> list[str]:
        """Return which nodes failed without a fault."""
        return list(self._failures)

    def process_ids(self) -> Mapping[int, int]:
        """Return none: nodes wait for nobody's processor."""
        return {}

    def drain_events(self) -> list[NodeEvent]:
        """Return what nodes reported since the last call."""
        reported = self.simulation.events[self._drained_count :]
        self._drained_count = len(self.simulation.events)
        own, self._own_events = self._own_events, []
        events = [self._event(one) for one in reported if one.machine in self._node_of]
        return sorted(own + events + self._probe_events(), key=lambda event: event.at_ns)

    def _probe_events(self) -> list[NodeEvent]:
        """Return, once nobody runs any more, when each rare state was first reached, and how often; each strike of a point with its time."""
        if not self._is_down or self._probes_reported:
            return []
        self._probes_reported = True
        probes, now_ns = self.simulation.probes, self.clock.now_ns()
        found = []
        for (name, machine), count in sorted(probes.counts.items()):
            if machine in self._node_of and not name.startswith(STRUCK):
                first_ns = probes.first[name, machine] - self.clock.start_ns
                found += [
                    self._probe(name, machine, reached, at_ns)
                    for reached, at_ns in {1: first_ns, count: now_ns}.items()
                ]
        struck: Counter[tuple[str, str]] = Counter()
        for strike in () if self.simulation.points is None else self.simulation.points.struck:
            struck[strike.point, strike.machine] += 1
            if strike.machine in self._node_of:
                reached, at_ns = struck[strike.point, strike.machine], strike.at_ns - self.clock.start_ns
                found.append(self._probe(STRUCK + strike.point, strike.machine, reached, at_ns))
        return found

    def _probe(self, name: str, machine: str, count: int, at_ns: int) -> NodeEvent:
        node, fields = self._node_of[machine], {"name": name, "count": count}
        return NodeEvent(node=node, name="probe", node_ns=None, at_ns=max(at_ns, 0), fields=fields)

    def message_count(self, api: int, direction: Literal["request", "response"]) -> int:
        """Return how many messages of an API were sent."""
        return self._requests.counts[api, direction == "request"]

    def last_message(self, api: int, direction: Literal["request", "response"]) -> tuple[int, ...]:
        """Return who sent the last message of this API, and to whom."""
        return self._requests.ends.get((api, direction == "request"), ())

    async def something_happens(self, timeout_ms: int) -> None:
        """Return in the event in which it happens, or a callback later."""
        happened: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._expecting.append(happened)
        await asyncio.wait([happened], timeout=timeout_ms / 1000)
        if happened in self._expecting:
            self._expecting.remove(happened)

    def _message_sent(self, frame: Frame, fate: Fate) -> None:
        self._votes.note(frame)
        if not self.spec.is_zookeeper_mode:
            self.watch.proposed(proposals_of(frame))
        self._requests.note(frame, fate, metadata_offset=metadata_offset_of(frame))
        self._something_happened()

    def _something_happened(self) -> None:
        if self._expecting:
            expecting, self._expecting = self._expecting, []
            for one in expecting:
                one.set_result(None)

    def drain_requests(self) -> list[RequestSeen]:
        """Return what nodes said to each other since the last call, and what a rule decided on."""
        return self._requests.drain()

    def drain_orders(self) -> list[OrderSeen]:
        """Return what was ordered as an operator does since the last call."""
        return self.orders.drain()

    def drain_metadata(self) -> list[MetadataEntry]:
        """Return committed metadata records since the last call."""
        return self.committed.drain()

    async def answers(self, node: int) -> bool:
        """Return whether a node runs and is not paused: it answers then, for nothing else keeps a process from it."""
        process = self.machine(node).process
        return self.alive(node) and process is not None and not process.paused

    async def log_ends_now(self, node: int) -> Mapping[str, int] | None:
        """Return where each log on a broker's disk ends now."""
        return self.log_ends(node)

    def final_logs(self) -> Iterator[DumpedLog]:
        """Read every replica's log from the simulated disks."""
        for node in self.spec.broker_ids:
            disk = self.machine(node).disk
            by_folder: dict[str, list[tuple[int, Callable[[], bytes]]]] = {}
            partitions: dict[str, TopicPartition] = {}
            for path in disk.files_below(DATA):
                partition, base_offset = self.watch.replicas[node].partition_of(path), first_offset_of(path)
                content = disk.content(path)
                if partition is None or base_offset is None or content is None or partition.topic.startswith("__"):
                    continue
                folder = path.rpartition("/")[0]
                partitions[folder] = partition
                by_folder.setdefault(folder, []).append((base_offset, partial(bytes, content)))
            for folder, segments in by_folder.items():
                topic_id = topic_id_of(bytes(disk.content(f"{folder}/{PARTITION_METADATA_FILE}") or b""))
                yield dumped_log(node, partitions[folder], topic_id, segments)

    def _event(self, event: ReportedEvent) -> NodeEvent:
        fields = {name: value for name, value in event.fields.items() if name != "node"}
        about = msgspec.convert(event.fields, AboutNode).node
        return NodeEvent(
            node=self._node_of[event.machine] if about is None else about,
            name=event.name,
            node_ns=event.node_ns,
            at_ns=event.at_ns - self.clock.start_ns,
            fields={name: str(value) if isinstance(value, UUID) else value for name, value in fields.items()},
        )

    def _note(self, node: int, name: str, **fields: object) -> None:
        at_ns = self.clock.now_ns()
        self._own_events.append(NodeEvent(node=node, name=name, node_ns=None, at_ns=at_ns, fields=fields))

    def _acted_offset(self, process: Incarnation) -> int | None:
        node, incarnation = process
        one = self.nodes[node]
        return one.acted_offset if one.machine.incarnations == incarnation else None

    def voter_directories(self) -> Mapping[NodeId, UUID]:
        """Return who votes in the metadata quorum, and with which directory, by the longest log of a controller."""
        members = [self.nodes[node].quorum for node in self.spec.controller_ids]
        logs = [one for one in members if one is not None]
        furthest = max(logs, key=lambda one: (one.log_end.epoch, one.log_end.offset), default=None)
        if furthest is None:  # there is no quorum in ZooKeeper mode, and none while no controller runs
            return dict.fromkeys(map(NodeId, self.spec.controller_ids), ZERO_UUID)
        return furthest.voter_directories

    def _quorum_members(self) -> Mapping[Incarnation, QuorumMember]:
        if self._members_as_of == self.simulation.process_changes:
            return self._known_members
        running = {(node, one.machine.incarnations): one for node, one in self.nodes.items() if one.machine.running}
        members = {incarnation: one.quorum for incarnation, one in running.items() if one.quorum is not None}
        if len(members) == len(running):  # until then a member is still being started
            self._known_members, self._members_as_of = members, self.simulation.process_changes
        return members


def _address(node: int) -> str:
    return f"10.0.0.{node}"


async def launch(spec: ClusterSpec, directory: Path, clock: RunClock, cluster_id: str) -> SimulatedCluster:
    """Start a cluster in the simulation whose loop is running; the directory gets nothing."""
    loop = asyncio.get_running_loop()
    simulation = getattr(loop, "owner", None)
    if not isinstance(simulation, Simulation):
        raise ClusterError("a simulated cluster runs inside a simulation: tribunal run --cluster simulated")
    cluster = SimulatedCluster(spec.in_simulator, simulation, clock, cluster_id)
    await cluster.open()
    return cluster
