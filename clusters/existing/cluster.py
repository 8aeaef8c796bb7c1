"""A cluster that is there already, as the harness sees it: observed like any broker observes it, changed by its user's commands alone.

Nothing of it is ended when the run is: nodes that were hurt are begun again, topics that the run made are deleted. Topics that were
there before are neither touched nor recorded. What no relay and no file says stays unknown: who answered a client, what nodes
themselves saw of their watermarks, how a broker's process ended before it registered anew.
"""

import asyncio
import shutil
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Final, Literal

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._config import ConfigResource
from confluent_kafka.admin._resource import ResourceType

from replog.config import DEFINITIONS
from replog.wire.messages import api_versions as av
from tribunal.clusters.api import (
    ClusterError,
    ClusterState,
    CutMode,
    DumpedLog,
    Link,
    MetadataEntry,
    NodeEvent,
    Proof,
    RequestSeen,
    TopicPartition,
    until,
)
from tribunal.clusters.capabilities import Capability, offered_by
from tribunal.clusters.clients.administration import Administration
from tribunal.clusters.clients.asking import FAILURES, Asking
from tribunal.clusters.clients.blocking import blocking
from tribunal.clusters.clients.confluent import QUIET
from tribunal.clusters.clients.list_offsets import Leader
from tribunal.clusters.clock import moment_s
from tribunal.clusters.existing.access import BadAccess, ExistingAccess
from tribunal.clusters.existing.acts import Acts
from tribunal.clusters.existing.clients import ExistingClients
from tribunal.clusters.existing.commanded import CommandedNodes
from tribunal.clusters.existing.description import ExistingCluster as Description
from tribunal.clusters.existing.description import put_in
from tribunal.clusters.existing.node import ExistingNode, answers_request, copied
from tribunal.clusters.existing.topics import OwnRecords, OwnTopics
from tribunal.clusters.kafka.events import KafkaMetadata, Registrations, seen_from_outside
from tribunal.clusters.kafka.releases import release
from tribunal.clusters.links.answers import ClientAnswers
from tribunal.clusters.metadata import MetadataObserver, MetadataView
from tribunal.clusters.nodes.final_logs import all_partition_directories, dumped_logs
from tribunal.clusters.nodes.node_exits import NodeExits
from tribunal.clusters.operated import Operated
from tribunal.clusters.orders import Orders, OrderSeen
from tribunal.clusters.run_context import RunContext
from tribunal.clusters.spec import SettingValue

LOOK_MS: Final = 5
WATCH_MS: Final = 500
SILENT_LOOKS: Final = 4  # in a row, of a node that nothing was done to
ASK_S: Final = 15.0
ASK_MS: Final = 5_000
FEATURES_VERSION: Final = 3  # of ApiVersions: the first that names features
ELR_FEATURE: Final = "eligible.leader.replicas.version"
ELR_SETTING: Final = "eligible.leader.replicas.enable"
CLIENT_ID: Final = "tribunal-look"
GONE: Final = "UNKNOWN_TOPIC_OR_PART"
# Of a broker's own settings, those that the judge and the durations of faults count on.
COUNTED_ON: Final = (
    "unclean.leader.election.enable",
    "broker.session.timeout.ms",
    "replica.lag.time.max.ms",
    "transaction.max.timeout.ms",
    "offsets.topic.num.partitions",
    "transaction.state.log.num.partitions",
    "log.cleanup.policy",
    "log.retention.ms",
    "log.retention.bytes",
    "log.message.timestamp.type",
)


class ExistingCluster(Operated):
    """See `tribunal.clusters.api.Cluster`."""

    kind = "existing"
    described = None

    def __init__(self, run: RunContext, given: Description, path: Path, capabilities: frozenset[Capability]) -> None:
        try:
            access = ExistingAccess(given.clients, given.controller_clients)
        except BadAccess as problem:
            raise ClusterError(f"{path}: {problem}") from None
        self.place = f"{given.name}, where it is already"
        self.spec = run.spec
        self.state = ClusterState()
        self.capabilities = capabilities
        self._run = run
        self._given = given
        self._folder = path.resolve().parent
        self._access = access
        self._acts = Acts(run.directory, path)
        self._own = OwnTopics(frozenset(), self._acts)
        self._committed = OwnRecords(self.state, ())
        registrations = Registrations(self._committed, None, run.clock.now_ns)
        self._events = seen_from_outside(run.spec.node_ids, registrations, run.clock.now_ns)
        self._metadata = KafkaMetadata(registrations)
        self._exits = NodeExits(self._events)
        self._orders = Orders(run.clock.now_ns, lambda: self.state.topic_ids)
        self._endpoints = given.endpoints
        brokers = {node: self._endpoints[node] for node in run.spec.broker_ids}
        self._administration = Administration(lambda: brokers, access.administrator)
        self.clients = ExistingClients(
            list(brokers.values()),
            self._leader,
            ClientAnswers(lambda: self.state.topic_ids, moment_s),
            self._administration,
            list_offsets_version=release(run.spec.version).list_offsets_version,
            security=access,
            topic_settings={"min.insync.replicas": str(run.spec.min_insync_replicas)},
            own=self._own,
        )
        addresses = [f"{host}:{port}" for host, port in brokers.values()]
        self._admin: AdminClient | None = administrator(access, addresses)
        self._observer: MetadataObserver | None = None
        self._watching: asyncio.Task[None] | None = None
        self.nodes = {node: self._node_of(node) for node in run.spec.node_ids}
        self._commanded = CommandedNodes(given.name, self.nodes, self._acts)

    def _node_of(self, node: int) -> ExistingNode:
        given, endpoint = self._given, self._endpoints[node]
        door = self._access.administrator if node in self.spec.broker_ids else self._access.controllers
        return ExistingNode(
            node,
            endpoint,
            partial(answers_request, endpoint, door),
            partial(self._words, node),
            command_within_ms=given.command_within_ms,
            serving_within_ms=given.serving_within_ms,
        )

    def _words(self, node: int, name: str, target: Path | None = None) -> list[str] | None:
        words = self._given.commands.named().get(name)
        return None if words is None else put_in(words, node, self._endpoints[node], self._folder, target)

    def _leader(self, partition: TopicPartition) -> Leader | None:
        known = self.state.partitions.get(partition)
        if known is None or known.leader not in self._endpoints:
            return None
        return Leader(known.leader, self._endpoints[known.leader], known.leader_epoch)

    # --- begin and end ---------------------------------------------------------------------

    async def bring_up(self) -> None:
        """Look at what is there; return when it is in full service. It is refused where it is not what its file says."""
        assert self._admin is not None
        try:
            seen = await blocking(partial(self._admin.list_topics, timeout=ASK_S), ASK_S)
        except (KafkaException, TimeoutError) as problem:
            raise ClusterError(
                f"{self._given.name}: no broker answers at {self.clients.bootstrap}: {problem}"
            ) from None
        if (known := sorted(seen.brokers)) != sorted(self.spec.broker_ids):
            raise ClusterError(
                f"{self._given.name} has brokers {known}, cluster.toml names {list(self.spec.broker_ids)}"
            )
        await self._must_be_as_said()
        foreign = frozenset(name for name in seen.topics if not name.startswith("__"))
        self._own.foreign = self._committed.foreign = foreign
        operator = self.clients.operator("tribunal-look")
        self.clients.groups = frozenset(await operator.groups())
        self.clients.transactional_ids = frozenset(await operator.transactional_ids())
        view = MetadataView(self._committed, now_ns=self._run.clock.now_ns, wall_start_ms=self._run.clock.wall_start_ms)
        controllers = {node.id: node.endpoint for node in self._given.controllers}
        self._observer = MetadataObserver(
            view,
            controllers,
            str(seen.cluster_id),
            fetch_version=release(self.spec.version).fetch_version,
            door=self._access.controllers,
        )
        self._observer.start()
        await until(
            lambda: self.state.is_fully_in_sync(self.spec),
            timeout_ms=self._given.serving_within_ms,
            what=f"{self._given.name}: its metadata log read from its controllers, and all brokers unfenced",
            cluster=self,
        )
        self._watching = asyncio.create_task(self._watch(), name="nodes of the existing cluster")

    async def _must_be_as_said(self) -> None:
        """Compare what the run counts on with what the brokers say of themselves; `ClusterError` names what differs."""
        assert self._admin is not None
        wanted = {**{name: DEFINITIONS[name].default for name in COUNTED_ON}, **self.spec.node_settings()}
        counted_on = {*COUNTED_ON, *self.spec.settings}
        said = {broker: await self._settings_of(broker) for broker in self.spec.broker_ids}
        first, *others = self.spec.broker_ids
        for name in sorted(counted_on & said[first].keys()):
            if other := next((one for one in others if said[one].get(name) != said[first][name]), None):
                raise ClusterError(
                    f"{self._given.name}: {name} is {said[first][name]!r} of broker {first} and {said[other].get(name)!r} of broker {other}:"
                    " a run is judged by one value for all"
                )
        differing = [
            f'"{name}" = {_toml(value)}'
            for name, value in sorted(said[first].items())
            if name in counted_on and not _same(wanted[name], value)
        ]
        differing += await self._elr_differs(first, wanted_on=wanted.get(ELR_SETTING, True) is True)
        if differing:
            raise ClusterError(
                f"{self._given.name} is not as its cluster.toml and the scenario say; under [settings] belongs what it has: "
                + "; ".join(differing)
            )

    async def _settings_of(self, broker: int) -> dict[str, str]:
        """Return what a broker says that its settings are, by name; those without a value are left out."""
        assert self._admin is not None
        resource = ConfigResource(ResourceType.BROKER, str(broker))
        try:
            futures = self._admin.describe_configs([resource], request_timeout=ASK_S)
            found = await blocking(partial(futures[resource].result, ASK_S), ASK_S)
        except (KafkaException, TimeoutError) as problem:
            raise ClusterError(f"{self._given.name}: broker {broker} does not say its settings: {problem}") from None
        return {name: entry.value for name, entry in found.items() if entry.value is not None}

    async def _elr_differs(self, broker: int, *, wanted_on: bool) -> list[str]:
        try:
            asking = await Asking.open(self._endpoints[broker], CLIENT_ID, ASK_MS, self._access.administrator)
            try:
                body = av.ApiVersionsRequest(client_software_name="tribunal", client_software_version="1")
                said = await asking.ask(av.EXCHANGE, FEATURES_VERSION, body, ASK_MS)
            finally:
                asking.close()
        except FAILURES as problem:
            raise ClusterError(f"{self._given.name}: broker {broker} does not say its features: {problem}") from None
        levels = {one.name: one.max_version_level for one in said.finalized_features}
        is_on = levels.get(ELR_FEATURE, 0) > 0
        return [] if is_on == wanted_on else [f'"{ELR_SETTING}" = {str(is_on).lower()}']

    async def _watch(self) -> None:
        silent = dict.fromkeys(self.spec.broker_ids, 0)
        while True:
            await asyncio.sleep(WATCH_MS / 1000)
            for node in silent:
                one = self.nodes[node]
                if not one.is_expected or await one.answers():
                    silent[node] = 0
                elif one.is_expected:  # nothing was done to it meanwhile
                    silent[node] += 1
                if silent[node] == SILENT_LOOKS:
                    self._exits.note(
                        node, f"node {node} of {self._given.name} does not answer, and nothing was done to it"
                    )

    async def shut_down(self) -> None:
        """Stop looking, and copy the logs; the cluster goes on."""
        if self._watching is not None:
            self._watching.cancel()
            await asyncio.wait([self._watching])
        if self._observer is not None:
            await self._observer.stop()
        problems: list[ClusterError] = []
        for node in self.spec.broker_ids if self._acts.done.topics else ():
            try:
                await self._copy_logs(node)
            except ClusterError as problem:  # the others' logs are evidence all the same
                problems.append(problem)
        if problems:
            raise problems[0]

    async def _copy_logs(self, node: int) -> None:
        """Let the user's command copy a node's log directory; of what it copies only the run's own topics stay."""
        data = self._run.data_dir(node)
        words = self._words(node, "copy_logs", data)
        if words is None or data.exists():
            return
        try:
            await copied(node, words, data, self._given.command_within_ms)
            for topic, _, folder in all_partition_directories(data):
                if topic in self._own.foreign:
                    await asyncio.to_thread(shutil.rmtree, folder)
        except OSError as problem:
            where = f"{problem.filename or data}: {problem.strerror or problem}"
            raise ClusterError(f"node {node}: what copy_logs has copied must be this user's own: {where}") from None

    async def close(self) -> None:
        """Undo what was done, and delete the topics that were made; what cannot be undone keeps nothing else from it."""
        try:
            await self._commanded.undo_all(before=[self.shut_down], after=[self._delete_topics])
        finally:
            self._admin = None

    async def _delete_topics(self) -> None:
        made = list(self._acts.done.topics)
        if not made or self._admin is None:
            return
        futures = self._admin.delete_topics(made, operation_timeout=ASK_S, request_timeout=ASK_S)
        for topic, future in futures.items():
            try:
                await blocking(partial(future.result, ASK_S), ASK_S)
            except (KafkaException, TimeoutError) as problem:
                code = problem.args[0].name() if isinstance(problem, KafkaException) else "no answer"
                if code != GONE:
                    raise ClusterError(f"{self._given.name}: topic {topic} cannot be deleted: {code}") from None
            self._acts.deleted(topic)

    # --- nodes -----------------------------------------------------------------------------

    def _node(self, node: int) -> ExistingNode:
        try:
            return self.nodes[node]
        except KeyError:
            raise ClusterError(f"there is no node {node}; nodes are {sorted(self.nodes)}") from None

    async def start(self, node: int) -> None:
        """Start a node that is down; return when it serves."""
        self._node(node)
        self._events.starting(node)
        await self._commanded.begin(node)

    async def stop(self, node: int) -> None:
        """Ask a node to end in good order."""
        self._node(node)
        proof = await self._commanded.end(node, "stop")
        if not proof.holds:
            raise ClusterError(f"node {node} answers yet after {' '.join(self._words(node, 'stop') or [])}")
        self._events.stopped(node)

    async def kill(self, node: int) -> Proof:
        """Kill -9, by the user's command."""
        self._node(node)
        proof = await self._commanded.end(node, "kill")
        if proof.holds:  # else it may go on, or end in good order later
            self._events.killed(node, None)
        return proof

    async def pause(self, node: int) -> Proof:
        """Stop a node's execution."""
        self._node(node)
        return await self._commanded.silence(node, "pause")

    async def resume(self, node: int) -> Proof:
        """Let it go on."""
        self._node(node)
        return await self._commanded.let_answer(node, "resume")

    async def cut(self, links: Sequence[Link], mode: CutMode) -> Proof:
        """Isolate a whole node; what becomes of the bytes is the user's command's doing."""
        return await self._commanded.cut(links, mode)

    async def heal(self, links: Sequence[Link]) -> Proof:
        """Let it rejoin."""
        return await self._commanded.heal(links)

    def alive(self, node: int) -> bool:
        """Return whether the node's process exists, as far as our commands go."""
        return self._node(node).alive

    def excuse(self, node: int, why: str | None) -> None:
        """Expect (or no longer expect) the node to end by itself."""
        self._exits.excuse(node, why)

    async def answers(self, node: int) -> bool:
        """Return whether a node answers a request now."""
        return await self._node(node).answers()

    # --- administration --------------------------------------------------------------------

    async def set_topic_config(self, topic: str, name: str, value: str | None) -> None:
        """Set one of a topic's settings; back to the default means what the run made it with."""
        if value is None and name == "min.insync.replicas":
            value = str(self.spec.min_insync_replicas)
        await super().set_topic_config(topic, name, value)

    # --- what was seen ---------------------------------------------------------------------

    def now_ns(self) -> int:
        """Return the run's clock."""
        return self._run.clock.now_ns()

    def message_count(self, api: int, direction: Literal["request", "response"]) -> int:
        """Return none: nobody looks at what nodes say to each other."""
        return 0

    def last_message(self, api: int, direction: Literal["request", "response"]) -> tuple[int, ...]:
        """Return nobody: nobody looks at what nodes say to each other."""
        return ()

    async def something_happens(self, timeout_ms: int) -> None:
        """Rest for a moment."""
        await asyncio.sleep(min(timeout_ms, LOOK_MS) / 1000)

    def failures(self) -> list[str]:
        """Return what went wrong with nodes without a fault."""
        overtaken = "" if self._observer is None else self._observer.overtaken
        return [*self._exits.failures, *([f"{self._given.name}: {overtaken}"] if overtaken else [])]

    def clock_offset_ns(self, node: int) -> int:
        """Return none: nodes report nothing by their clocks."""
        return 0

    def process_ids(self) -> Mapping[int, int]:
        """Return none: nodes are not ours."""
        return {}

    def drain_events(self) -> list[NodeEvent]:
        """Return what was seen of nodes' starts and ends since the last call."""
        return self._events.drain()

    def drain_metadata(self) -> list[MetadataEntry]:
        """Return committed metadata records since the last call, of no topic that was there before."""
        return self._metadata.drain()

    def drain_requests(self) -> list[RequestSeen]:
        """Return none: there are no relays."""
        return []

    def drain_orders(self) -> list[OrderSeen]:
        """Return what was ordered as an operator does since the last call."""
        return self._orders.drain()

    async def log_ends_now(self, node: int) -> Mapping[str, int] | None:
        """Return None: the disk is not read while the run goes on."""
        return None

    def final_logs(self) -> Iterator[DumpedLog]:
        """Read the copies of the logs of the run's own topics."""
        for node in self.spec.broker_ids:
            for log in dumped_logs(node, self._run.data_dir(node)):
                if log.topic not in self._own.foreign:
                    yield log


CAPABILITIES: Final = offered_by(ExistingCluster)


def administrator(access: ExistingAccess, addresses: Sequence[str]) -> AdminClient:
    """Return who asks brokers at these addresses what librdkafka knows how to ask."""
    config: dict[str, str | int | float | bool] = {
        "bootstrap.servers": ",".join(addresses),
        "client.id": CLIENT_ID,
        **access.administrator_settings(),
    }
    return AdminClient(config, logger=QUIET, error_cb=lambda _: None)


def _same(wanted: SettingValue | None, said: str) -> bool:
    if isinstance(wanted, bool):
        return said.lower() == str(wanted).lower()
    if wanted is None or isinstance(wanted, (int, float, str)):
        return said == ("" if wanted is None else str(wanted))
    return [one.strip() for one in said.split(",")] == list(map(str, wanted))


def _toml(said: str) -> str:
    return said if said.lstrip("-").isdecimal() or said in ("true", "false") else f'"{said}"'
