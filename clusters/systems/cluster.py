"""A cluster of a described system: its nodes are processes or containers of this machine, or daemons on hosts, each with an address of its own (`places.py`).

It is a `Cluster` like any other. Of objects, what only a log has stays empty: no partitions, no committed metadata, no final logs, no clients
of records; in full service means that every node is ready, and a node that is not counts as fenced. A log that speaks Kafka's protocol has all
of that (`kafka_view.py`), and can be operated (`LogCluster`).
"""

import asyncio
import signal
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final, Literal

from tribunal.clusters.api import (
    ClientFactory,
    ClusterError,
    ClusterState,
    CutMode,
    DumpedLog,
    Link,
    MetadataEntry,
    NodeEvent,
    NotServing,
    Proof,
    RequestSeen,
    Unsupported,
    until,
)
from tribunal.clusters.capabilities import Capability, ClockSkew, DiskTrouble, Failing, FileDamage, PartLost, offered_by
from tribunal.clusters.endings import all_done, completed
from tribunal.clusters.host_environment import processes_here
from tribunal.clusters.nodes.final_logs import unreadable
from tribunal.clusters.nodes.leftovers import end_processes, own_processes
from tribunal.clusters.nodes.log_damage import log_ends
from tribunal.clusters.nodes.node_control import NodeControl
from tribunal.clusters.nodes.node_exits import NodeExits
from tribunal.clusters.nodes.node_process import last_lines
from tribunal.clusters.nodes.serving import rest
from tribunal.clusters.nodes.shared_memory import note_segments, remove_segments
from tribunal.clusters.operated import Operated
from tribunal.clusters.orders import OrderSeen
from tribunal.clusters.run_context import RunContext
from tribunal.clusters.systems import clocks
from tribunal.clusters.systems.commands import carried_out
from tribunal.clusters.systems.damage import damaged
from tribunal.clusters.systems.description import Addresses, System
from tribunal.clusters.systems.disks import ForgetfulDisk, Forgotten
from tribunal.clusters.systems.folder import kept
from tribunal.clusters.systems.kafka_view import KafkaView, files_of
from tribunal.clusters.systems.places import Place, RunningNode
from tribunal.clusters.systems.program import SystemProgram
from tribunal.clusters.systems.views import View
from tribunal.results.described import Described
from tribunal.results.not_started import Attempt

LOOK_MS: Final = 5
WATCH_MS: Final = 100
ROLES_MS: Final = 500
PREPARE_MS: Final = 60_000
VERSION_MS: Final = 30_000
VERSION_LETTERS: Final = 200
KILLED: Final = (-signal.SIGKILL, 128 + signal.SIGKILL)  # by itself, or behind a shell or an engine
# Indexes are built anew from what is copied, and may take as much room as everything else.
# A pipe ends as its last program does: what could not be read has to be said by the first one.
COPY: Final = (
    'rm -rf "$2" "$2.torn" && mkdir "$2" && cd "$1"'
    ' && { tar -cf - --exclude="*.*index" . || : >"$2.torn"; } | tar -xf - -C "$2" && [ ! -e "$2.torn" ]'
)
UNASKED: Final = "the node's program has not asked the C library for the time: what does not ask is touched by no clock"
PROBE: Final = ("sh", "-c", ': >"$0"', "{data}/tribunal-probe")
NOT_SEEN: Final = (
    "the container engine has mounts of its own, as one in a container has: use one that shares this machine's"
)
CHILDREN_MS: Final = 10_000  # what a killed node's children get to end by themselves


class SystemCluster:
    """See `tribunal.clusters.api.Cluster`."""

    kind = "system"

    def __init__(
        self,
        run: RunContext,
        system: System,
        place: Place,
        addresses: Addresses,
        capabilities: frozenset[Capability],
        view: View,
    ) -> None:
        self.place = f"{system.name}, {place.words}"
        self.capabilities = capabilities
        self.spec = run.spec
        self.state: ClusterState = view.state
        self.clients: ClientFactory = view.clients
        self.described: Described | None = None
        self._view = view
        self._run = run
        self._place = place
        self._system = system
        self._addresses = addresses
        self._events = view.events
        self._exits = NodeExits(self._events)
        self._watching: asyncio.Task[None] | None = None
        self._was_ready: dict[int, str | None] = {}  # as which process each node was ready when it was last asked
        self._late: dict[int, str] = {}  # processes that did not come to serve in time, and go on
        self._has_clocks = system.nodes.has_own_clock and not clocks.lacking()
        self._clocks: dict[int, NodeControl] = {}
        self.nodes = {node: self._process(node) for node in run.spec.broker_ids}
        self._disks = {node: self._disk(node) for node in self.nodes} if system.nodes.may_forget else {}
        self._programs = {node: self._program(node) for node in self.nodes}

    def _program(self, node: int) -> SystemProgram:
        before = clocks.words(self._run.folder(node), self._run.directory) if self._has_clocks else ()
        title = f"a node of {self._system.name}"
        return SystemProgram(title, self._system.nodes, node, self._addresses, self._place, before)

    def _process(self, node: int) -> RunningNode:
        return self._place.node(
            self._run, node, self._program(node), self._addresses, lambda reason: self._exits.note(node, reason)
        )

    def _disk(self, node: int) -> ForgetfulDisk:
        return ForgetfulDisk(self._addresses.data[node], self._log("disk", node), self._run.directory)

    # --- begin and end ---------------------------------------------------------------------

    async def bring_up(self) -> None:
        """Start every node; return when all are ready."""
        self.described = await self._seen()
        if self._has_clocks:
            await clocks.built(self._run.directory)
        for node in self.nodes:
            self._run.data_dir(node).mkdir(parents=True, exist_ok=True)
            if self._has_clocks:
                self._clocks[node] = clocks.controlled(self._run.folder(node))
            if node in self._disks:
                await self._mount(node)
            await self._prepare(node)
        self._view.start()
        begun = await asyncio.gather(*map(self._spawn, self.nodes), return_exceptions=True)
        if problem := next((one for one in begun if one is not None), None):
            raise problem
        await asyncio.gather(*(process.serving() for process in self.nodes.values()))
        self._watching = asyncio.create_task(self._watch(), name="readiness")
        await until(
            lambda: self.state.is_fully_in_sync(self.spec),
            timeout_ms=self._system.nodes.ready.within_ms,
            what="all nodes ready",
            cluster=self,
        )

    async def _mount(self, node: int) -> None:
        """Mount its disk, and prove that what runs where the node runs writes there: else a loss would take nothing, and pass for one."""
        disk, data = self._disks[node], self._addresses.data[node]
        await disk.mount(self._place.prefix(node))
        had, log = (await disk.ask("opened")).held, self._log("disk", node)
        said = f"node {node}: to write to the disk that is mounted on {data}"
        if not await self._ended_in_time(PROBE, node, log, said, PREPARE_MS):
            raise ClusterError(f"{said} failed; its log {log} ends:\n{last_lines(log)}")
        if (await disk.ask("opened")).held == had:
            raise ClusterError(f"{said} did not reach it: {NOT_SEEN}")
        await disk.ask("wipe")

    async def _seen(self) -> Described:
        """Say what is run, and keep with the run what lies beside its file."""
        version, path = await self._version(), Path(self.spec.system)
        files, more = await asyncio.to_thread(kept, path, self._system, self._run.directory)
        settings = dict(self._addresses.settings)
        return Described(file=path.name, version=version, files=files, more=more, settings=settings)

    async def _version(self) -> str | None:
        """Ask for the system's version; None where nothing says how."""
        words, node = self._system.nodes.version, min(self.nodes)
        if words is None:
            return None
        log = self._log("version", node)
        said = f"version: {' '.join(self._addresses.command(words, node))}"
        is_said = await self._ended_in_time(words, node, log, said, VERSION_MS)
        text = await asyncio.to_thread(log.read_text, encoding="utf-8", errors="replace") if log.is_file() else ""
        first = next((line.strip() for line in text.splitlines() if line.strip()), "")
        if not is_said or not first:
            problem = "said nothing" if is_said else "failed"
            raise ClusterError(f"{said} {problem}; its log {log} ends:\n{last_lines(log)}")
        return "".join(letter for letter in first if letter.isprintable())[:VERSION_LETTERS]

    async def _prepare(self, node: int) -> None:
        if self._system.nodes.prepare is not None:
            said = f"node {node}: {' '.join(self._addresses.command(self._system.nodes.prepare, node))}"
            log = self._log("prepare", node)
            is_prepared = await self._ended_in_time(self._system.nodes.prepare, node, log, said, PREPARE_MS)
            if not is_prepared:
                raise ClusterError(f"{said} failed; its log {log} ends:\n{last_lines(log)}")

    async def _ended_in_time(self, words: tuple[str, ...], node: int, log: Path, said: str, within_ms: int) -> bool:
        """Run a command to its end; return whether that was 0. `said` is what it is called in an error."""
        try:
            async with asyncio.timeout(within_ms / 1000):
                return await self._carried_out(words, node, log)
        except TimeoutError:
            problem = f"{said} does not end within {within_ms} ms"
            raise ClusterError(f"{problem}; its log {log} ends:\n{last_lines(log)}") from None

    async def _carried_out(self, words: tuple[str, ...], node: int, log: Path) -> bool:
        command = self._addresses.command(words, node)
        return await self._place.carried_out(node, command, log, self._run.directory)

    def _log(self, name: str, node: int) -> Path:
        return self._run.log_file(node).with_name(f"{name}-{node}.log")

    async def _spawn(self, node: int) -> None:
        self._events.starting(node)
        await self.nodes[node].spawn()

    async def _watch(self) -> None:
        await asyncio.gather(*map(self._watch_node, self.nodes), *map(self._watch_role, self._system.nodes.roles))

    async def _watch_role(self, role: str) -> None:
        answers: dict[int, bool] = {}
        await asyncio.gather(*(self._watch_role_of(node, role, answers) for node in self.nodes))

    async def _watch_role_of(self, node: int, role: str, answers: dict[int, bool]) -> None:
        """Ask a node again and again whether it has a role; whoever does not answer in time has not, and holds up no other's answer.

        answers:  of all nodes; before each has been asked once nobody knows who does not have the role.
        """
        loop = asyncio.get_running_loop()
        while True:
            began = loop.time()
            answers[node] = await self._has_role(role, node)
            if len(answers) == len(self.nodes):
                self._view.has_role(role, frozenset(one for one, has in answers.items() if has))
            await rest(loop.time() - began, poll_ms=ROLES_MS)

    async def _has_role(self, role: str, node: int) -> bool:
        return self.alive(node) and await self._programs[node].has_role(role)

    async def _watch_node(self, node: int) -> None:
        """Look again and again; whoever does not answer holds up no other's look."""
        loop = asyncio.get_running_loop()
        while True:
            began = loop.time()
            await self._look(node)
            await rest(loop.time() - began, poll_ms=WATCH_MS)

    async def _look(self, node: int) -> None:
        process, program = self.nodes[node], self._programs[node]
        incarnation = self._incarnation(node)
        ready = process.alive and await program.answers(self._addresses.endpoint(node), wait_ms=program.answer_wait_ms)
        # Who was killed and started again meanwhile was not looked at.
        ready = ready and incarnation == self._incarnation(node)
        if ready and self._was_ready.get(node) != incarnation:
            await asyncio.to_thread(note_segments, self._run.directory)
        self._was_ready[node] = incarnation if ready else None
        if ready and self._late.get(node) == incarnation:
            del self._late[node]
            self._exits.started(node)  # late, but it serves: from now on its end is one that nobody asked for
        self._view.looked(node, incarnation, is_ready=ready)

    def _incarnation(self, node: int) -> str:
        """Return as which process a node runs now."""
        return str(self.nodes[node].pid)

    async def shut_down(self) -> None:
        """End every client and every node at once."""
        if self._watching is not None:
            self._watching.cancel()
            await asyncio.wait([self._watching])
        await self._view.close()
        try:
            await all_done(node.kill() for node in self.nodes.values())
        finally:
            await all_done(disk.close() for disk in self._disks.values())

    async def close(self) -> None:
        """Leave nothing behind but files, also where what nodes wrote cannot be had any more."""
        try:
            await self.shut_down()
        finally:
            try:
                # Where a node's command is a shell, the program that it runs outlives it.
                left = await asyncio.to_thread(own_processes, self._run.directory)
                await asyncio.to_thread(end_processes, left)
                await asyncio.to_thread(remove_segments, self._run.directory)
            finally:
                for clock in self._clocks.values():
                    clock.close()
                self._clocks.clear()
                await self._place.close()

    # --- nodes -----------------------------------------------------------------------------

    def _node(self, node: int) -> RunningNode:
        try:
            return self.nodes[node]
        except KeyError:
            raise ClusterError(f"there is no node {node}; nodes are {sorted(self.nodes)}") from None

    async def start(self, node: int) -> None:
        """Start a node that is down; return when it is ready. `NotServing` where the node itself does not come to serve."""
        process, began_ns = self._node(node), self.now_ns()
        self._exits.starting(node)
        await self._spawn(node)
        try:
            await process.serving()
        except ClusterError as problem:
            raise await self._not_serving(node, began_ns, problem) from None
        self._exits.started(node)

    async def _not_serving(self, node: int, began_ns: int, problem: ClusterError) -> ClusterError:
        process = self._node(node)
        if not process.is_here:
            return problem  # of another host nobody knows whether it had a processor, and how a process ended
        exit_code = None if process.alive else await process.exit_code()
        if not process.alive and (exit_code is None or exit_code in KILLED):
            return problem  # somebody else ended it, or nobody knows
        if process.alive:
            self._late[node] = self._incarnation(node)
        return NotServing(
            str(problem),
            node=node,
            within_ms=self._system.nodes.ready.within_ms,
            attempt=Attempt(
                started_ns=began_ns,
                seen_ns=self.now_ns(),
                how="silent" if process.alive else "ended",
                exit_code=exit_code,
            ),
        )

    async def stop(self, node: int) -> None:
        """Ask a node to end in good order."""
        nodes, process = self._system.nodes, self._node(node)
        if nodes.stop is None:
            ended = await process.terminate(nodes.stop_within_ms)
        else:
            asking = self._carried_out(nodes.stop, node, self._log("stop", node))
            ended = await process.ends_by(asking, nodes.stop_within_ms)
        if not ended:
            raise ClusterError(f"node {node} does not end within {nodes.stop_within_ms} ms of being asked to")
        self._events.stopped(node)

    async def kill(self, node: int) -> Proof:
        """Kill -9."""
        pid = self._node(node).pid
        await asyncio.to_thread(note_segments, self._run.directory)
        proof = await self._node(node).kill()
        self._events.killed(node, pid)
        return proof

    async def pause(self, node: int) -> Proof:
        """SIGSTOP; prove that the process is stopped, and that it does not answer where being ready means more than an open port."""
        proof = await self._node(node).pause()
        if not self._system.nodes.ready.is_port:
            return proof
        # The kernel accepts connections for a process that is stopped.
        return Proof(holds=proof.facts["stopped"] is True, facts=proof.facts)

    async def resume(self, node: int) -> Proof:
        """SIGCONT; prove that the process goes on, and that it is ready within the time that its start has: it may have to catch up first."""
        resumed = await self._node(node).resume()
        if resumed.holds or resumed.facts["running"] is not True:
            return resumed
        try:
            await self._node(node).serving()
            ready = True
        except ClusterError:
            ready = False
        return Proof(holds=ready, facts={**resumed.facts, "answers": ready})

    async def wipe(self, node: int) -> Proof:
        """Empty a dead node's data folder, and prepare it again."""
        if self._node(node).alive:
            raise ClusterError(f"node {node} runs: kill it before its disk is touched")
        return await completed(self._wiped(node))

    async def _wiped(self, node: int) -> Proof:
        closed = True
        ends = await self._log_ends(node)
        if node in self._disks:
            # Children of the node that live on for a moment must not write to its next disk.
            closed = await self._disks[node].is_closed(CHILDREN_MS)
            before = (await self._disks[node].ask("wipe")).bytes
            gone = (await self._disks[node].ask("wipe")).bytes == 0
        else:
            before, gone = await self._place.emptied(node, self._run.data_dir(node))
        await self._prepare(node)
        lost = {} if ends is None else {"log_end_offsets_before": ends, "log_end_offsets_after": dict.fromkeys(ends, 0)}
        return Proof(holds=gone and closed, facts={"bytes_before": before, "all_closed": closed, **lost})

    async def power_fail(self, node: int) -> Proof:
        """Kill a node, and let its disk forget what was not synced; proven by the disk's having nothing left to forget."""
        return await completed(self._powerless(node, lambda disk: disk.ask("forget")))

    async def damage_files(self, node: int, damage: FileDamage) -> Proof:
        """Damage some files of a dead node, whoever wrote them."""
        if self._node(node).alive:
            raise ClusterError(f"node {node} runs: kill it before its files are damaged")
        return await completed(self._damaged(node, damage))

    async def _damaged(self, node: int, damage: FileDamage) -> Proof:
        # Children of the node that live on for a moment may write a file anew; who has one open on the machine's own disk nobody asks.
        closed = await self._disks[node].is_closed(CHILDREN_MS) if node in self._disks else None
        prefix, data = self._place.prefix(node), self._addresses.data[node]
        proof = await damaged(prefix, data, damage, self._log("damage", node), self._run.directory)
        if closed is None:
            return proof
        return Proof(holds=proof.holds and closed, facts={"all_closed": closed, **proof.facts})

    async def lose_part(self, node: int, loss: PartLost) -> Proof:
        """The same, but a part of what was not synced had reached the disk; the facts say how many bytes (`bytes_kept`)."""
        return await completed(self._powerless(node, lambda disk: disk.forget_part(loss), loss.files))

    async def _powerless(
        self, node: int, forget: Callable[[ForgetfulDisk], Awaitable[Forgotten]], files: str = ""
    ) -> Proof:
        """Kill a node and let its disk forget; of some files alone where a pattern says which, and then there have to be some."""
        disk = self._own_disk(node)
        killed = await self.kill(node)
        # Children of the node may live on for a moment, and must not write to the disk that has lost power.
        closed = await disk.is_closed(CHILDREN_MS)
        before = await self._log_ends(node)
        lost = await forget(disk)
        left = await disk.ask("forget")
        after = await self._log_ends(node)
        facts: dict[str, object] = {
            "all_closed": closed,
            "bytes_lost": lost.bytes,
            "bytes_kept": lost.kept,
            "lengths_changed": lost.lengths,
            "files_rolled_back": lost.files,
            "names_rolled_back": lost.names,
        }
        ends = {} if before is None else {"log_end_offsets_before": before, "log_end_offsets_after": after}
        is_done = killed.holds and closed and left == Forgotten()
        if not files:
            return Proof(holds=is_done, facts={**killed.facts, **facts, **ends})
        facts["files_matching"] = lost.matching
        if not lost.matching:
            facts["missing"] = f"a file that matches {files!r}; there is {', '.join(lost.others) or 'none'}"
        return Proof(holds=is_done and lost.matching > 0, facts={**killed.facts, **facts, **ends})

    async def _log_ends(self, node: int) -> Mapping[str, int] | None:
        """Return where each log on a dead node's disk ends; None of a system whose files nobody knows."""
        return None

    async def trouble_disk(self, node: int, trouble: DiskTrouble) -> Proof:
        """Let a node's disk be full, read-only or slow; proven by requests of the node that met it."""
        return await self._own_disk(node).trouble(trouble)

    async def fail_disk(self, node: int, failing: Failing) -> Proof:
        """Let a node's disk fail; proven by requests of the node that it refused."""
        return await self._own_disk(node).fail(failing)

    def _own_disk(self, node: int) -> ForgetfulDisk:
        if node not in self._disks:
            raise Unsupported(f'{self._system.name} has no disk = "forgetful"')
        return self._disks[node]

    # --- clocks ----------------------------------------------------------------------------

    async def set_clock(self, node: int, skew: ClockSkew) -> Proof:
        """Let a running node's wall clock be wrong; proven by what its program was answered when it asked."""
        if node not in self._clocks:
            raise Unsupported(f'{self._system.name} has no clock = "shim"')
        proof = await self._clocks[node].set_clock(skew)
        return proof if proof.facts["heard"] else Proof(holds=False, facts={**proof.facts, "missing": UNASKED})

    # --- links -----------------------------------------------------------------------------

    async def cut(self, links: Sequence[Link], mode: CutMode) -> Proof:
        """Stop the packets between nodes."""
        return await self._place.links.cut(links, mode)

    async def heal(self, links: Sequence[Link]) -> Proof:
        """Let them pass again."""
        return await self._place.links.heal(links)

    # --- nodes' state ----------------------------------------------------------------------

    def alive(self, node: int) -> bool:
        """Return whether the node's process exists."""
        return self._node(node).alive

    def excuse(self, node: int, why: str | None) -> None:
        """Expect (or no longer expect) the node to end by itself."""
        self._exits.excuse(node, why)

    # --- what was seen ---------------------------------------------------------------------

    def now_ns(self) -> int:
        """Return the run's clock."""
        return self._run.clock.now_ns()

    def message_count(self, api: int, direction: Literal["request", "response"]) -> int:
        """Return none: nobody looks at what nodes of this system say."""
        return 0

    def last_message(self, api: int, direction: Literal["request", "response"]) -> tuple[int, ...]:
        """Return nobody: nobody looks at what nodes of this system say."""
        return ()

    async def something_happens(self, timeout_ms: int) -> None:
        """Rest for a moment."""
        await asyncio.sleep(min(timeout_ms, LOOK_MS) / 1000)

    def failures(self) -> list[str]:
        """Return which nodes ended without a fault, and what was missed of the others."""
        return [*self._exits.failures, *self._view.failures(), *self._unwatched()]

    def _unwatched(self) -> list[str]:
        """Return why nobody looks at the nodes any more, where somebody should: each would stay as ready as it was last seen."""
        watching = self._watching
        problem = None if watching is None or not watching.done() or watching.cancelled() else watching.exception()
        return [] if problem is None else [f"nobody looks at its nodes any more: {type(problem).__name__}: {problem}"]

    def clock_offset_ns(self, node: int) -> int:
        """Return none: nodes are on this machine."""
        return 0

    def process_ids(self) -> Mapping[int, int]:
        """Return the processes of this machine in which nodes run now."""
        return processes_here(self.nodes)

    def drain_events(self) -> list[NodeEvent]:
        """Return what was seen of nodes' starts and ends since the last call."""
        return self._events.drain()

    def drain_metadata(self) -> list[MetadataEntry]:
        """Return committed metadata records since the last call; none where there is no metadata log."""
        return self._view.drain_metadata()

    def drain_requests(self) -> list[RequestSeen]:
        """Return none: there are no relays."""
        return []

    def drain_orders(self) -> list[OrderSeen]:
        """Return what was ordered as an operator does since the last call; none where nobody operates it."""
        return self._view.drain_orders()

    async def answers(self, node: int) -> bool:
        """Return False: nobody knows how to ask it."""
        return False

    async def log_ends_now(self, node: int) -> Mapping[str, int] | None:
        """Return None: nobody knows its files."""
        return None

    def final_logs(self) -> Iterator[DumpedLog]:
        """Read every replica's log; none of a system whose files nobody knows."""
        return self._view.final_logs()


class LogCluster(Operated, SystemCluster):
    """One whose nodes are a log that speaks Kafka's protocol: it can be operated as well."""

    def __init__(
        self,
        run: RunContext,
        system: System,
        place: Place,
        addresses: Addresses,
        capabilities: frozenset[Capability],
        view: KafkaView,
    ) -> None:
        super().__init__(run, system, place, addresses, capabilities, view)
        self._copied = self.nodes.keys() if place.fetching is not None else self._disks.keys()
        self._is_copied = False  # whether the last copies are made
        self._administration = view.administration
        self._orders = view.orders

    async def answers(self, node: int) -> bool:
        """Return whether a node's process exists and is ready now."""
        program = self._programs[node]
        return self.alive(node) and await program.answers(
            self._addresses.endpoint(node), wait_ms=program.answer_wait_ms
        )

    async def _spawn(self, node: int) -> None:
        await self._see_files(node)  # how the process before ended is said by a file that the next one removes
        await super()._spawn(node)

    async def shut_down(self) -> None:
        """End every client and every node at once, and keep what is on disks that end with the run, or on hosts that are left."""
        try:
            await all_done(node.kill() for node in self.nodes.values())
            if not self._is_copied:  # the second time the disks are gone
                await all_done(map(self._see_files, self._copied))
                self._is_copied = True
        finally:
            await super().shut_down()

    async def _see_files(self, node: int) -> None:
        """Copy what a dead node's disk has to where this process sees it; files on this machine's own disk are there already."""
        if node not in self._copied:
            return
        copy = files_of(self._run, node, are_copied=True).resolve()
        if self._place.fetching is not None:
            await self._place.fetching(node, copy)
            return
        command = ["/bin/sh", "-c", COPY, "sh", str(self._addresses.data[node]), str(copy)]
        log = self._log("copy", node)
        # Behind the prefix is where its disk is mounted, which is not within its container.
        if not await carried_out(self._place.prefix(node), command, log, self._run.directory):
            raise ClusterError(f"node {node}: its files cannot be copied; the log {log} ends:\n{last_lines(log)}")

    async def _log_ends(self, node: int) -> Mapping[str, int] | None:
        await self._see_files(node)
        try:
            return await asyncio.to_thread(log_ends, files_of(self._run, node, are_copied=node in self._copied))
        except OSError as problem:
            raise unreadable(node, problem) from None

    async def log_ends_now(self, node: int) -> Mapping[str, int] | None:
        """Read the files under the running node: what it has written is in the page cache; None of a disk that only the node sees."""
        if node in self._copied:
            return None
        try:
            return await asyncio.to_thread(log_ends, self._run.data_dir(node))
        except (OSError, ValueError):  # a segment was deleted meanwhile
            return None


OF_OBJECTS: Final = offered_by(SystemCluster)
CAPABILITIES: Final = offered_by(LogCluster)
