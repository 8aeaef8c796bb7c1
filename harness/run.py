"""One run: bring a cluster up, load it, inject one fault at a time, let it heal, read everything, put it down.

The phases are warm-up, faults, heal, quiesce, final-read; each stands in the recording with what was completed
in it. Before each fault the cluster must be in full service: every broker unfenced, every ISR full. What goes wrong with the
cluster ends the run early but not the recording: what was seen can be judged, and the reason is in the manifest.
A cancelled run (Ctrl-C) does the same as fast as it can.
"""

import asyncio
import hashlib
import re
import subprocess
import time
from collections import Counter
from collections.abc import AsyncGenerator, Awaitable, Callable, Generator, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from functools import cache
from pathlib import Path
from typing import Final

import msgspec

from replog.config import DEFINITIONS
from tribunal import ROOT
from tribunal.clusters.api import Cluster, ClusterError, NotServing, TopicPartition, Unsettled, until
from tribunal.clusters.clock import RunClock
from tribunal.clusters.endings import all_done, failure_of, to_its_end
from tribunal.clusters.kafka.releases import release
from tribunal.clusters.notices import listening
from tribunal.harness import heal
from tribunal.harness.catalog import all_clusters, all_workloads, faults, one_of
from tribunal.harness.collect import Collector, record_final_logs
from tribunal.harness.fault_journal import ActiveFault, FaultJournal
from tribunal.harness.installed import installed_code
from tribunal.harness.plan import ExecutedFault, Plan, PlannedFault, encoded, expression
from tribunal.harness.processor_waits import ProcessorWaits
from tribunal.harness.progress import Progress
from tribunal.nemesis.api import Aimed, Effect, Loss, Proof, losses_proven
from tribunal.nemesis.targets import NoTarget, resolve
from tribunal.nemesis.triggers import Trigger, Waiting
from tribunal.results.described import Described
from tribunal.results.heal import Unhealed
from tribunal.results.manifest import LATEST_UNGUARDED, LEADER_RECOVERY, MEMBERS_UNCHECKED, PROMISED, Made, Setting
from tribunal.results.not_started import NotStarted
from tribunal.results.rows import cut_off
from tribunal.results.store import Recorder
from tribunal.results.topic_names import TopicNames
from tribunal.workloads.api import Load, Stage
from tribunal.workloads.together import Together

TOPIC_TIMEOUT_MS: Final = 20_000
TARGET_TIMEOUT_MS: Final = 8_000
WATCH_MS: Final = 50
STATUS_MS: Final = 250
QUIESCE_GRACE_MS: Final = 8_000
OPERATORS_TIMEOUT_MS: Final = 120_000  # the last order, and what it takes to put things back
CATCH_UP_MS: Final = 1_000
LOCK: Final = "requirements.lock"
COMMIT: Final = "SHIPPED_COMMIT"  # a file beside the code that was sent to another machine
RUN_NAME: Final = re.compile(r"\d{8}T\d{6}Z-.+-.+-\d+(-\d+)?", re.DOTALL)
TIMESTAMP_TYPE: Final = "log.message.timestamp.type"
# What the judge has to know of the nodes' settings besides those that the run set.
JUDGED_SETTINGS: Final = (
    "eligible.leader.replicas.enable",
    "unclean.leader.election.enable",
    "unclean.recovery.strategy",
    "unclean.recovery.manager.enabled",
    LEADER_RECOVERY,
)


class Ending(msgspec.Struct, frozen=True, kw_only=True):
    """How a run ended, besides what it recorded."""

    run_dir: Path
    failure: str | None
    interrupted: bool


def run_id(plan: Plan) -> str:
    """Return `<UTC time>-<scenario>-<cluster>-<seed>`."""
    stamp = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime())
    return f"{stamp}-{plan.scenario}-{plan.cluster}-{plan.seed}"


def is_run(folder: Path) -> bool:
    """Return whether a folder is one that a run made for itself: its name says so, and its plan is in it."""
    return RUN_NAME.fullmatch(folder.name) is not None and not folder.is_symlink() and (folder / "plan.json").is_file()


def new_run_dir(plan: Plan, out: Path) -> Path:
    """Make the run's folder, with a number behind its name where two start in one second."""
    name = run_id(plan)
    for number in range(1_000):
        folder = out / (name if number == 0 else f"{name}-{number}")
        try:
            folder.mkdir(parents=True)
        except FileExistsError:
            continue
        return folder
    raise ClusterError(f"{out}: too many runs of this second")


class Run:
    """A run in progress."""

    def __init__(self, plan: Plan, run_dir: Path, progress: Progress, journal: FaultJournal | None = None) -> None:
        self.plan = plan
        self._journal = journal
        self.run_dir = run_dir
        self.progress = progress
        self.clock = RunClock()
        self.recorder = Recorder(run_dir, run_dir.name)
        self.load = loads_of(plan)
        self.names = TopicNames()
        self.failure: str | None = None
        self.failure_kind: str | None = None  # the exception's name: what distinguishes failures
        self._running_load: asyncio.Task[None] | None = None
        self._lasting: list[asyncio.Task[None]] = []  # faults that are not healed yet
        self._faults_start_ns = 0
        self._unmet: set[int] = set()  # faults that came without what they had waited for
        self.heal: Callable[[Cluster], Awaitable[None]] = (
            _nothing_more  # after the last fault, before everything is in service again
        )
        self._not_undone: list[int] = []  # faults of which no proof says that they are undone
        self.crossed: list[int] = []  # faults whose proof says that a message waited over an event in somebody's life
        self._emptied: dict[
            tuple[TopicPartition, int], None
        ] = {}  # whose disk lost the whole log, by the proof of a fault
        self._on_disks: list[int] = []  # faults that may have altered or refused bytes on disks
        self._unhealed: Unhealed | None = None
        self._touched: list[tuple[int, int]] = []  # faults that may have changed a disk, and whose
        self._down: list[tuple[int, NotServing]] = []  # faults whose node did not come to serve when they were undone
        self._unstarted: list[tuple[int, int]] = []  # all such faults and their nodes, several of one node too
        self._not_started: tuple[NotStarted, ...] = ()
        self._place: str | None = None  # where the nodes live, where there is a choice
        self._described: Described | None = None  # what a described system was made of
        self._loop: asyncio.AbstractEventLoop | None = None  # what it runs on

    async def execute(self) -> Ending:
        """Do all of it; whatever happens, the recording is closed and nothing stays running."""
        (self.run_dir / "plan.json").write_bytes(encoded(self.plan))
        (self.run_dir / "schedule.jsonl").touch()
        interrupted = False
        try:
            await self._carry_out()
        except asyncio.CancelledError:
            interrupted = True
        except ClusterError as problem:
            self.failure, self.failure_kind = str(problem), type(problem).__name__
        except Exception as problem:  # a bug, a full disk: said by who called, but what was seen stays
            self.failure_kind = type(problem).__name__
            self.failure = f"{self.failure_kind}: {problem}"
            raise
        finally:
            self.recorder.finish(self._made(interrupted=interrupted))
        return Ending(run_dir=self.run_dir, failure=self.failure, interrupted=interrupted)

    async def _carry_out(self) -> None:
        self._loop = asyncio.get_running_loop()
        self.progress.phase("start", self._elapsed_ms())
        kind = one_of("cluster", self.plan.cluster, all_clusters())
        with listening(lambda line: self.progress.lasts(self._elapsed_ms(), line)):
            cluster = await kind.launch(self.plan.spec, self.run_dir, self.clock, self.plan.cluster_id)
        self._place, self._described = cluster.place, cluster.described
        if self._place is not None:
            self.progress.say(f"nodes live in {self._place}")
        if self._described is not None and self._described.version is not None:
            self.progress.say(f"version: {self._described.version}")
        stage = Stage(
            clients=cluster.clients,
            sink=self.recorder,
            now_ns=self.clock.now_ns,
            log_append_time=self._is_log_append_time(),
            names=self.names,
        )
        # A simulated run that dies is run again: its rows are written once, at the end.
        collector = Collector(cluster, self.recorder, self.names, in_segments=not kind.is_simulated)
        collector.start()
        waits = ProcessorWaits(cluster.process_ids, self.recorder, self.clock.now_ns)
        if not kind.is_simulated:
            waits.start()
        status = asyncio.create_task(self._show(cluster, stage))
        try:
            await self._phases(cluster, stage)
        finally:
            status.cancel()
            if self._is_on_its_loop():
                await to_its_end(self._put_down(cluster, stage, collector, waits))

    def _is_log_append_time(self) -> bool:
        return self.plan.spec.node_settings().get(TIMESTAMP_TYPE) == "LogAppendTime"

    def _is_on_its_loop(self) -> bool:
        """Return whether anything can still be waited for: a run whose loop was stopped in the middle is closed when it is collected.

        Outside of every loop asyncio makes a real one for whoever starts a task; inside of another run's it would be a task of that one.
        """
        try:
            return asyncio.get_running_loop() is self._loop
        except RuntimeError:
            return False

    # --- the phases ------------------------------------------------------------------------

    async def _phases(self, cluster: Cluster, stage: Stage) -> None:
        await self.load.prepare(stage, self.plan.spec.replication_factor)
        await until(
            lambda: self._topic_is_there(cluster), timeout_ms=TOPIC_TIMEOUT_MS, what="the topic", cluster=cluster
        )
        self._running_load = asyncio.create_task(self.load.run(stage), name="workload")
        async with self._phase("warm-up", stage):
            await self._hold(cluster, self.plan.warm_up_ms)
        async with self._phase("faults", stage):
            await self._hurt(cluster)
        async with self._phase("heal", stage):
            await self._operators_end(cluster, stage)
            await self._try_again(cluster)
            await self.heal(cluster)
            if not self._is_for_good and not await self._in_full_service(cluster):
                self._unhealed = await heal.observed(
                    cluster, not_undone=self._not_undone, on_disks=self._on_disks, emptied=self._emptied_members()
                )
        async with self._phase("quiesce", stage):
            await self._quiesce(stage)
        async with self._phase("final-read", stage):
            unread = await self.load.read_to_end(stage, self.plan.final_read_ms)
        self._check(cluster)
        if unread:
            self.progress.say(f"not read to the end: {', '.join(map(str, unread))}")

    def _topic_is_there(self, cluster: Cluster) -> bool:
        wanted = self.load.partitions()
        return all(
            partition in cluster.state.partitions and cluster.state.partitions[partition].leader >= 0
            for partition in wanted
        )

    @asynccontextmanager
    async def _phase(self, name: str, stage: Stage) -> AsyncGenerator[None]:
        self.progress.phase(name, self._elapsed_ms())
        start_ns, before = self.clock.now_ns(), stage.tally.copy()
        try:
            yield
        finally:
            self.recorder.row(
                "phases", name=name, start_ns=start_ns, end_ns=self.clock.now_ns(), load=_load(stage.tally - before)
            )

    @contextmanager
    def cut_off(self, nodes: Sequence[int]) -> Generator[None]:
        """Record that the harness itself cuts these nodes off meanwhile: a phase within the present one, without a load of its own."""
        start_ns = self.clock.now_ns()
        try:
            yield
        finally:
            self.recorder.row("phases", name=cut_off(nodes), start_ns=start_ns, end_ns=self.clock.now_ns())

    async def _hold(self, cluster: Cluster, duration_ms: int) -> None:
        """Let time pass, unless a node dies by itself or the workload does; no more of it once a fault that lasts has failed."""
        deadline = self.clock.now_ns() + duration_ms * 1_000_000
        while (left_ns := deadline - self.clock.now_ns()) > 0 and not self._has_failed_fault:
            self._check(cluster)
            await asyncio.sleep(min(WATCH_MS / 1000, left_ns / 1_000_000_000))

    def _check(self, cluster: Cluster) -> None:
        if failures := cluster.failures():
            raise ClusterError(failures[0])
        if self._running_load is not None and self._running_load.done():
            self._running_load.result()

    async def _in_full_service(self, cluster: Cluster) -> bool:
        """Wait until every broker serves and every ISR is full; return whether it came about."""
        try:
            await until(
                lambda: cluster.state.is_fully_in_sync(self.plan.spec),
                timeout_ms=self.plan.spec.recovery_timeout_ms,
                what="every ISR full",
                cluster=cluster,
            )
        except Unsettled as problem:
            self.progress.say(str(problem))
            return False
        return True

    @property
    def _is_for_good(self) -> bool:
        """Return whether nodes are down that do not start again."""
        return any(one.second is not None for one in self._not_started)

    async def _try_again(self, cluster: Cluster) -> None:
        """Start nodes again that did not come to serve, now that nothing else is in effect."""
        if not self._down:
            return
        seconds = await all_done(heal.tried_again(cluster, problem) for _, problem in self._down)
        still = {problem.node for (_, problem), second in zip(self._down, seconds, strict=True) if second is not None}
        not_ready = await heal.not_ready(cluster, still)
        struck = dict.fromkeys([*self._touched, *self._unstarted])
        unstarted = {index for index, _ in self._unstarted}
        self._not_started = tuple(
            NotStarted(
                node=problem.node,
                fault=index,
                touched=tuple(one for one, node in struck if node == problem.node and one != index),
                within_ms=problem.within_ms,
                first=problem.attempt,
                second=second,
                not_ready=not_ready,
                not_undone=tuple(one for one in self._not_undone if one not in unstarted),
            )
            for (index, problem), second in zip(self._down, seconds, strict=True)
        )
        for node in sorted(still):
            self.progress.say(f"node {node} does not start again; the run goes on without it")

    async def _operators_end(self, cluster: Cluster, stage: Stage) -> None:
        """Wait until whoever orders things has put them back."""
        stage.operators.ending.set()
        what = "no orders under way"
        await until(lambda: stage.operators.are_done, timeout_ms=OPERATORS_TIMEOUT_MS, what=what, cluster=cluster)

    async def _quiesce(self, stage: Stage) -> None:
        stage.stopping.set()
        assert self._running_load is not None
        delivery_ms = self.load.delivery_timeout_ms
        await asyncio.wait([self._running_load], timeout=(delivery_ms + QUIESCE_GRACE_MS) / 1000)
        if not self._running_load.done():
            raise ClusterError("the workload does not come to its end")
        self._running_load.result()

    # --- faults ----------------------------------------------------------------------------

    async def _hurt(self, cluster: Cluster) -> None:
        """Inject the planned faults, each when the one before has healed or, if so planned, meanwhile.

        The first round is injected whole, however long it takes: a run without it is no test. A slow machine stretches it.
        """
        self._faults_start_ns = self.clock.now_ns()
        is_stretched = False
        try:
            for planned in self.plan.faults:
                if not planned.meanwhile or self._has_failed_fault:
                    await self._all_healed()
                if self._down:
                    if planned.must:
                        self._record_missed(planned, f"node {self._down[0][1].node} does not start again")
                    continue
                is_over = self._faults_ms() >= self.plan.time_ms
                if is_over and not planned.must:
                    break
                if is_over and not is_stretched:
                    is_stretched = True
                    self.progress.say("the time for faults is over; the first round of faults goes on to its end")
                await self._hurt_by(cluster, planned)
            await self._all_healed()
        finally:
            for task in self._lasting:
                task.cancel()
            if self._is_on_its_loop():
                await asyncio.gather(*self._lasting, return_exceptions=True)

    async def _hurt_by(self, cluster: Cluster, planned: PlannedFault) -> None:
        """Inject one fault, or record why it does not come; neither where one that lasts has failed meanwhile."""
        if not await self._is_awaited(cluster, planned):
            if planned.must and planned.when is not None and not self._has_failed_fault:
                self._record_missed(planned, f"never met: {planned.when.text}")
        elif planned.meanwhile or planned.when is not None or await self._in_full_service(cluster):
            await self._hold(cluster, self._pause_before(planned))
            if not self._has_failed_fault:
                await self._begin(cluster, planned)
        elif planned.must:
            self._record_missed(planned, "the cluster did not become whole")

    async def _is_awaited(self, cluster: Cluster, planned: PlannedFault) -> bool:
        """Wait for what a fault waits for; return whether it is to come."""
        if planned.when is None or await self._met(cluster, planned.when, planned.wait_ms):
            return True
        if planned.wait_ms is not None:
            self._unmet.add(planned.index)
        return planned.wait_ms is not None

    async def _met(self, cluster: Cluster, trigger: Trigger, timeout_ms: int | None = None) -> bool:
        """Wait for a trigger; return whether it was met, within the time for faults where no other is given."""
        waiting = Waiting(trigger, cluster, self._topic())
        if timeout_ms is None:
            timeout_ms = max(self.plan.time_ms - self._faults_ms(), TARGET_TIMEOUT_MS)
        deadline_ns = self.clock.now_ns() + timeout_ms * 1_000_000
        while not waiting.is_met:
            self._check(cluster)
            if self._has_failed_fault:
                return False
            left_ms = (deadline_ns - self.clock.now_ns()) // 1_000_000
            if left_ms <= 0:
                return False
            await cluster.something_happens(min(left_ms, WATCH_MS))
        return True

    async def _begin(self, cluster: Cluster, planned: PlannedFault) -> None:
        """Return when the fault is injected; it lasts and heals in a task of its own."""
        injected = asyncio.Event()
        task = asyncio.create_task(self._inject(cluster, planned, injected), name=f"fault {planned.index}")
        self._lasting.append(task)
        waiting = asyncio.create_task(injected.wait())
        await asyncio.wait((task, waiting), return_when=asyncio.FIRST_COMPLETED)
        waiting.cancel()

    @property
    def _has_failed_fault(self) -> bool:
        """Whether a fault that lasted has failed: the others end now, and no further one begins."""
        return any(task.done() and not task.cancelled() and task.exception() is not None for task in self._lasting)

    async def _all_healed(self) -> None:
        """Wait until no fault lasts any more; only then raise what any of them failed with, each named once.

        Who fails keeps no other one from healing: a cluster that is not ours alone would stay as the fault left it.
        """
        problems: list[ClusterError] = []
        while self._lasting:
            try:
                await self._lasting[0]
            except ClusterError as problem:
                problems.append(problem)
            del self._lasting[0]
        if (failure := failure_of(problems)) is not None:
            raise failure

    def _faults_ms(self) -> int:
        return (self.clock.now_ns() - self._faults_start_ns) // 1_000_000

    def _pause_before(self, planned: PlannedFault) -> int:
        until_ms = 0 if planned.not_before_ms is None else planned.not_before_ms - self._faults_ms()
        return max(planned.after_ms, until_ms)

    async def _inject(self, cluster: Cluster, planned: PlannedFault, injected: asyncio.Event) -> None:
        try:
            node = await self._target(cluster, planned)
        except NoTarget as problem:
            self.progress.say(f"{self._elapsed_ms() / 1000:6.1f} s  {planned.kind}: {problem}")
            if planned.must:
                self._record_missed(planned, str(problem))
            return
        role = self.plan.spec.role(node)
        fault = one_of("fault", planned.kind, faults())
        aimed = fault.planned(node, planned.options)
        if heal.alters_disks(fault):
            self._on_disks.append(planned.index)
        self._touched += [(planned.index, touched) for touched in heal.touched_by(fault, cluster, node)]
        entry = _Entry(planned=planned, target=f"{role} {node}", planned_ns=self.clock.now_ns())
        if self._journal is not None:
            active = ActiveFault(index=planned.index, kind=planned.kind, target=entry.target, options=planned.options)
            self._journal.injecting(active)
        try:
            with losses_proven() as entry.proven:
                await self._last(cluster, aimed, node, entry, injected)
            entry.healed_ns = self.clock.now_ns()
            if self._journal is not None:
                self._journal.healed(planned.index)
        except NotServing as problem:
            if entry.effect is not None:
                entry.effect.heal = Proof(holds=False, facts={"not_started": msgspec.to_builtins(problem.attempt)})
            self._unstarted.append((planned.index, problem.node))
            if all(problem.node != known.node for _, known in self._down):
                self._down.append((planned.index, problem))
            self.progress.say(str(problem))
        finally:
            self._record_fault(entry)
        self.progress.say(f"{self._elapsed_ms() / 1000:6.1f} s    healed  {_healed(entry.effect)}")

    async def _last(self, cluster: Cluster, aimed: Aimed, node: int, entry: "_Entry", injected: asyncio.Event) -> None:
        """Inject a fault, let it last, heal it."""
        planned, role, started_ms = entry.planned, self.plan.spec.role(node), self._faults_ms()
        try:
            async with aimed(cluster) as effect:
                entry.effect, entry.injected_ns = effect, self.clock.now_ns()
                injected.set()
                said = f"{planned.kind} {role} {node}  {_effect(effect)}"
                self.progress.say(f"{self._elapsed_ms() / 1000:6.1f} s  {said}")
                if planned.until is None:
                    await self._hold(cluster, planned.lasts_ms)
                else:
                    await self._met(cluster, planned.until, planned.lasts_ms)
                self._schedule(entry, node, started_ms, broken_off=self._has_failed_fault)
        finally:
            # What struck is in the schedule, however it ended. (A run that is collected writes nothing: its folder may be gone.)
            if not entry.is_scheduled and self._is_on_its_loop():
                self._schedule(entry, node, started_ms, broken_off=True)

    async def _target(self, cluster: Cluster, planned: PlannedFault) -> int:
        wait_ms = TARGET_TIMEOUT_MS if planned.wait_ms is None else planned.wait_ms
        deadline = self.clock.now_ns() + wait_ms * 1_000_000
        while True:
            try:
                return resolve(planned.target, cluster, self._topic())
            except NoTarget:
                if self.clock.now_ns() > deadline or self._has_failed_fault:
                    raise
            await self._hold(cluster, WATCH_MS)

    def _topic(self) -> str:
        """Return the topic whose partitions targets and triggers name; none where there is no log."""
        return next((partition.topic for partition in self.load.partitions()), "")

    def _schedule(self, entry: "_Entry", node: int, started_ms: int, *, broken_off: bool) -> None:
        planned = entry.planned
        line = ExecutedFault(
            index=planned.index,
            kind=planned.kind,
            planned_target=planned.target.text,
            resolved=node,
            role=self.plan.spec.role(node),
            options=planned.options,
            started_ms=started_ms,
            lasted_ms=self._faults_ms() - started_ms,
            meanwhile=planned.meanwhile,
            when="" if planned.when is None or planned.index in self._unmet else planned.when.text,
            until="" if planned.until is None else planned.until.text,
            broken_off=broken_off,
        )
        entry.is_scheduled = True
        with (self.run_dir / "schedule.jsonl").open("ab") as file:
            file.write(msgspec.json.encode(line) + b"\n")

    def _record_missed(self, planned: PlannedFault, why: str) -> None:
        self.recorder.row(
            "faults",
            index=planned.index,
            kind=planned.kind,
            planned_target=planned.target.text,
            proof=msgspec.json.encode({"missed": why}).decode(),
            took_effect=False,
            losses=[],
        )

    def _record_fault(self, entry: "_Entry") -> None:
        effect, lost = entry.effect, entry.losses()
        heal_proof = effect.heal if effect else None
        losses = [self._loss(loss) for loss in lost]
        self._emptied |= dict.fromkeys(_emptied(lost))
        if effect is not None and effect.crossed:
            self.crossed.append(entry.planned.index)
        is_undone = heal_proof is not None and heal_proof.is_undone
        if not is_undone:
            self._not_undone.append(entry.planned.index)
        self.recorder.row(
            "faults",
            index=entry.planned.index,
            kind=entry.planned.kind,
            planned_target=expression(entry.planned),
            resolved_target=entry.target,
            planned_ns=entry.planned_ns,
            injected_ns=entry.injected_ns,
            healed_ns=entry.healed_ns,
            proof=_json(effect.proof) if effect else None,
            took_effect=effect.proof.holds if effect else False,
            heal_proof=_json(heal_proof) if heal_proof else None,
            healed=heal_proof.holds if heal_proof else False,
            undone=is_undone,
            losses=losses,
        )

    def _emptied_members(self) -> heal.Emptied:
        """Return whose disk lost the whole log, where that takes nobody out of the ISR: with ELR it does, and in ZooKeeper mode he is elected."""
        is_kept = not settings(self.plan).get("eligible.leader.replicas.enable", True)
        return self._emptied.keys() if is_kept and not self.plan.spec.is_zookeeper_mode else frozenset()

    def _loss(self, loss: Loss) -> dict[str, object]:
        return {**msgspec.structs.asdict(loss), "topic": self.names.of(loss.topic, loss.topic_id)}

    # --- the end ---------------------------------------------------------------------------

    async def _put_down(self, cluster: Cluster, stage: Stage, collector: Collector, waits: ProcessorWaits) -> None:
        """End workload and nodes, and take what evidence is left."""
        self.progress.phase("collect", self._elapsed_ms())
        stage.operators.ending.set()
        stage.stopping.set()
        if self._running_load is not None and not self._running_load.done():
            self._running_load.cancel()
            await asyncio.wait([self._running_load], timeout=QUIESCE_GRACE_MS / 1000)
        await asyncio.sleep(CATCH_UP_MS / 1000 if self.failure is None else 0)  # the last committed metadata arrives
        try:
            try:
                await waits.stop()
            finally:
                try:
                    await cluster.shut_down()
                finally:
                    await collector.stop()  # what was seen stays, whatever failed
            await asyncio.to_thread(record_final_logs, cluster.final_logs(), self.recorder, stage.sent, self.names)
        finally:
            await cluster.close()

    def _made(self, *, interrupted: bool) -> Made:
        plan = self.plan
        return Made(
            seed=plan.seed,
            scenario=plan.scenario,
            cluster=plan.cluster,
            mode=None if plan.spec.has_objects else plan.mode,
            place=self._place,
            mutants=plan.spec.mutants,
            commit=commit(),
            lock_sha256=lock_sha256(),
            settings=settings(plan),
            interrupted=interrupted,
            failure=self.failure,
            failure_kind=self.failure_kind,
            promised=promised_by(plan),
            unhealed=self._unhealed,
            not_started=self._not_started,
            described=self._described,
        )

    # --- showing ---------------------------------------------------------------------------

    def _elapsed_ms(self) -> int:
        return self.clock.now_ns() // 1_000_000

    async def _show(self, cluster: Cluster, stage: Stage) -> None:
        while True:
            self.progress.update(self._elapsed_ms(), _state_line(cluster), _load_line(stage))
            await asyncio.sleep(STATUS_MS / 1000)


def loads_of(plan: Plan) -> Load:
    """Return what a plan's workloads do, all of them at once."""
    known = all_workloads()
    load = known[plan.workload].load(plan.workload_plan)
    others = [known[one.workload].load(one.workload_plan) for one in plan.beside]
    return Together([load, *others]) if others else load


def promised_by(plan: Plan) -> tuple[str, ...]:
    """Return the tables of the recording that a plan's workloads fill whatever happens."""
    known = all_workloads()
    names = [plan.workload, *(one.workload for one in plan.beside)]
    return tuple(dict.fromkeys(table for name in names for table in known[name].promised))


async def _nothing_more(cluster: Cluster) -> None:
    """Ask for nothing beyond what every run asks for."""


class _Entry:
    """A fault on its way into the recording."""

    def __init__(self, *, planned: PlannedFault, target: str, planned_ns: int) -> None:
        self.planned = planned
        self.target = target
        self.planned_ns = planned_ns
        self.injected_ns: int | None = None
        self.healed_ns: int | None = None
        self.effect: Effect | None = None
        self.is_scheduled = False  # it has its line in schedule.jsonl
        self.proven: list[Loss] = []  # of losses, while it was in force

    def losses(self) -> list[Loss]:
        """Return what disks have lost by it: what it says, and what was proven where it did not come to say it."""
        said = [] if self.effect is None else self.effect.losses
        return [*said, *(loss for loss in self.proven if loss not in said)]


def _emptied(losses: Sequence[Loss]) -> Iterator[tuple[TopicPartition, int]]:
    """Yield of what a disk lost the whole log."""
    for loss in losses:
        if loss.from_offset == 0:
            yield TopicPartition(loss.topic, loss.partition), loss.node


def settings(plan: Plan) -> dict[str, Setting]:
    """Return the nodes' settings that say what a run promises."""
    promised: dict[str, Setting] = {f"{PROMISED}{name}": value for name, value in plan.spec.promises.items()}
    if plan.spec.has_objects:
        return promised
    given: dict[str, Setting] = {
        **promised,
        **{name: DEFINITIONS[name].default for name in JUDGED_SETTINGS},
        **plan.spec.node_settings(),
    }
    if not all_clusters()[plan.cluster].has_releases:
        return given
    # Released leaders serve at once, and end no transaction of their predecessors (D3, docs/spec.md).
    given[LEADER_RECOVERY] = "off"
    if plan.spec.is_zookeeper_mode and not release(plan.spec.version).checks_members:
        given[MEMBERS_UNCHECKED] = True
    if not release(plan.spec.version).guards_latest_offset:
        given[LATEST_UNGUARDED] = True
    return given


@cache
def commit() -> str:
    """Return the commit the code is at, asked once a process, for it starts another one.

    Code that was sent to another machine brings it along. A wheel has none: it is known by its version and its hash. `unknown`: neither a
    clone nor installed. A clone of something else around it says nothing of it.
    """
    if (ROOT / COMMIT).is_file():
        return (ROOT / COMMIT).read_text().strip()
    if not (ROOT / ".git").exists():
        return installed_code(ROOT) or "unknown"
    try:
        found = subprocess.run(  # noqa: S603 - fixed words
            ["git", "-C", str(ROOT), "describe", "--always", "--dirty", "--abbrev=40"],  # noqa: S607
            capture_output=True, text=True, timeout=10, check=True,
        )  # fmt: skip
    except (OSError, subprocess.SubprocessError):
        return "unknown"
    return found.stdout.strip()


@cache
def lock_sha256() -> str:
    """Return the lock file's hash, `unknown` where it is missing."""
    try:
        return hashlib.sha256((ROOT / LOCK).read_bytes()).hexdigest()
    except OSError:
        return "unknown"


def _json(proof: Proof) -> str:
    return msgspec.json.encode(proof.facts).decode()


def _load(counts: Counter[tuple[int, str]]) -> list[dict[str, int]]:
    levels = sorted({acks for acks, _ in counts})
    words = ("ok", "fail", "info", "sent")
    return [{"acks": acks, **{word: counts[acks, word] for word in words}} for acks in levels]


def _effect(effect: Effect) -> str:
    return "took effect ✓" if effect.proof.holds else "no effect ✗"


def _healed(effect: Effect | None) -> str:
    return "✓" if effect is not None and effect.heal is not None and effect.heal.holds else "✗"


def _state_line(cluster: Cluster) -> str:
    state = cluster.state
    parts = [f"controller {state.quorum_leader} e{state.quorum_epoch}"]
    for partition, known in sorted(state.partitions.items()):
        isr = ",".join(map(str, known.isr))
        parts.append(f"p{partition.partition} L{known.leader} e{known.leader_epoch} ISR{{{isr}}}")
    return "  ".join(parts)


def _load_line(stage: Stage) -> str:
    names = {-1: "all", 0: "0", 1: "1"}
    parts = []
    for acks in (-1, 1, 0):
        words = " ".join(
            f"{word} {stage.tally[acks, word]}" for word in ("ok", "sent", "fail", "info") if stage.tally[acks, word]
        )
        parts.append(f"acks={names[acks]} {words or '-'}")
    return "   ".join([*parts, f"read {stage.reads.total()}"])
