"""From committed metadata to hosted replicas: who appears, changes role, gets new settings, goes (SPEC 3.1).

Nothing is acted upon before this broker's own registration is visible in the image: only then is the image of the
present (see `replog.broker.metadata`). From then on every committed batch is acted upon when it comes.

What is done for a partition follows from the image as it is then, so a broker that falls behind catches up with the present.
Partitions are independent: much at once is done in slices, and heartbeats, fetches and clients go on in between. New logs
come last, many together: their files are laid down in the background, and who asks for them meanwhile is answered with a retriable error.
"""

import asyncio
from collections.abc import Callable, Iterable
from itertools import islice
from typing import Final
from uuid import UUID

from replog.broker.metadata import Action, Assigned, Change, Removed
from replog.log.log import Log
from replog.metadata.state import LOST, MIGRATING, UNASSIGNED
from replog.node.directories.log_directories import NewLog
from replog.node.hosted_replicas import HostedReplicas
from replog.node.tasks import Tasks
from replog.types import NO_BROKER_EPOCH, TopicIdPartition, TopicPartition

SLICE_MS: Final = 10  # so long nobody else is served
NEW_LOGS_MAX: Final = 100  # made in one go
TOGETHER_MAX: Final = 16  # looked at before the time is


class Hosting:
    """Keeps the hosted replicas as the metadata wants them."""

    def __init__(
        self,
        hosted: HostedReplicas,
        tasks: Tasks,
        *,
        on_deleted: Callable[[Iterable[str]], None],
        on_caught_up: Callable[[], None],
    ) -> None:
        """`on_deleted` is called with topics, before anything is done; `on_caught_up` when what `update` had left is done as well."""
        self.hosted = hosted
        self.tasks = tasks
        self.replicas = hosted.replicas
        self.directories = hosted.directories
        self.metadata = hosted.metadata
        self.identity = hosted.identity
        self.has_begun = False
        self.on_deleted = on_deleted
        self.on_caught_up = on_caught_up
        self._clock = hosted.replicas.world.clock
        self._earlier: dict[
            TopicIdPartition, None
        ] = {}  # partitions of earlier incarnations, kept while a directory is offline
        self._due: dict[TopicIdPartition, None] = {}  # to be looked at
        self._new: dict[TopicIdPartition, None] = {}  # to be created
        self._is_working = False

    @property
    def is_behind(self) -> bool:
        """Return whether replicas still wait for roles, or for logs, that the metadata replayed so far give them."""
        return self._is_working or self.metadata.image.in_transaction

    def update(self) -> None:
        """Act upon what changed since the last call."""
        is_history = not self.has_begun
        if is_history:
            if not self._knows_this_registration():
                return
            self._begin()
        change = self.metadata.take_change()
        if change is None:
            return
        if is_history:
            change.deleted.clear()  # groups may have committed offsets of others of these names since
        self._apply(change)

    def _knows_this_registration(self) -> bool:
        registered = self.metadata.image.brokers.get(self.replicas.node_id)
        return registered is not None and registered.epoch == self.identity.broker_epoch != NO_BROKER_EPOCH

    def _begin(self) -> None:
        """Act for the first time: whatever the image holds is new, whatever it does not hold is stray."""
        self.has_begun = True
        assigned = {self._name(key): key for key in self.metadata.assigned()}
        if self.directories.offline:
            self._earlier = dict.fromkeys(assigned.values())
        for name in list(self.directories.logs):
            key = assigned.get(name)
            self.directories.choose(name, None if key is None else key.topic_id)
            if name in self.directories.logs and not self._belongs(name, assigned.get(name)):
                self._put_aside(name)
        self._act(assigned.values())

    def _put_aside(self, name: TopicPartition) -> None:
        directory = self.directories.logs[name].directory
        try:
            self.directories.put_aside(name)
        except OSError as problem:
            self.directories.fail(directory, problem)

    def _belongs(self, name: TopicPartition, key: TopicIdPartition | None) -> bool:
        # A log without an id was created by a process that ended before it could write one down: it is empty.
        return key is not None and self.directories.logs[name].log.topic_id in (None, key.topic_id)

    def _apply(self, change: Change) -> None:
        if change.deleted:
            self.on_deleted(change.deleted.values())
        self.hosted.apply_settings(change)
        self._act(change.partitions)
        self.hosted.apply_brokers(change)

    def _act(self, keys: Iterable[TopicIdPartition]) -> None:
        """Look at these partitions, at once as far as a slice of time goes."""
        self._due.update(dict.fromkeys(keys))
        self._work_a_slice()
        if (self._due or self._new) and not self._is_working:
            self._is_working = True
            self.tasks.start(self._work())

    async def _work(self) -> None:
        """Do what is left, roles before new logs."""
        while self._due or self._new:
            if self._due:
                await asyncio.sleep(0)
                self._work_a_slice()
            else:
                keys = list(islice(self._new, NEW_LOGS_MAX))
                for key in keys:
                    del self._new[key]
                await self._create(keys)
        self._is_working = False
        self.on_caught_up()

    def _work_a_slice(self) -> None:
        end_ms = self._clock.now_ms() + SLICE_MS
        while self._due and self._clock.now_ms() < end_ms:
            keys = list(islice(self._due, TOGETHER_MAX))
            for key in keys:
                del self._due[key]
            actions = list(self.metadata.actions(keys))
            self._begin_epochs(actions)
            for key, action in zip(keys, actions, strict=True):
                self._do(key, action)

    def _do(self, key: TopicIdPartition, action: Action) -> None:
        match action:
            case Assigned() as assigned if self._is_lost(assigned):
                self.replicas.offline.setdefault(key, self._lost_directory(key))
            case Assigned() as assigned if not self._is_here(assigned):
                self._new[key] = None
            case Assigned() as assigned:
                self.hosted.assign(assigned)
            case Removed():
                self._remove(key)

    def _begin_epochs(self, actions: Iterable[Action]) -> None:
        """Write down together what each new leader of these has to note before it leads: one by one it is what takeovers take their time for."""
        elected: dict[str, list[tuple[Log, int]]] = {}
        for action in actions:
            if isinstance(action, Assigned) and action.state.leader == self.replicas.node_id:
                replica = self.replicas.find_by_id(*action.key)
                if replica is not None and replica.partition.will_begin_to_lead(action.state):
                    log = replica.partition.log
                    elected.setdefault(log.directory.rpartition("/")[0], []).append((log, action.state.leader_epoch))
        for path, together in elected.items():
            if len(together) > 1:
                try:
                    Log.begin_epochs(together)
                except OSError as problem:
                    self.directories.fail(path, problem)

    def _is_here(self, assigned: Assigned) -> bool:
        if self.replicas.find_by_id(*assigned.key) is not None:
            return True
        stored = self.directories.find(assigned.name)
        return stored is not None and stored.log.topic_id in (None, assigned.key.topic_id)

    def _lost_directory(self, key: TopicIdPartition) -> UUID:
        """Return what to report to the controller: where it thinks that the replica lies, or that this was lost."""
        partition = self.metadata.image.partition(*key)
        directory = UNASSIGNED if partition is None else partition.directory_of(self.replicas.node_id)
        return LOST if directory in (UNASSIGNED, MIGRATING) else directory

    def _is_lost(self, assigned: Assigned) -> bool:
        """Return whether the replica lies in a directory that is offline, or may: then there must not be an empty one.

        Where nobody has said in which directory it lies, one from an earlier incarnation that counts as in sync may be full.
        """
        if not self.directories.offline or self._is_here(assigned):
            return False
        if assigned.key in self.replicas.offline:
            return True
        node = self.replicas.node_id
        partition = self.metadata.image.partition(*assigned.key)
        assert partition is not None
        directory = partition.directory_of(node)
        if directory in (UNASSIGNED, MIGRATING):
            return assigned.key in self._earlier and node in (*partition.isr, *partition.elr)
        return directory not in self.directories.online_ids

    async def _create(self, keys: list[TopicIdPartition]) -> None:
        """Make new logs together, then give each the role that it has by then."""
        actions = self.metadata.actions(keys)
        wanted = [action for action in actions if isinstance(action, Assigned) and not self._is_here(action)]
        await self.directories.prepare([self._new_log(assigned) for assigned in wanted])
        for key, name, _ in wanted:
            match self.metadata.action(key):
                case Assigned() as assigned:
                    self.hosted.assign(assigned)
                case Removed():
                    self.directories.drop_prepared(name)
            if self._due:
                self._work_a_slice()
            await asyncio.sleep(0)

    def _new_log(self, assigned: Assigned) -> NewLog:
        leads = assigned.state.leader == self.replicas.node_id
        return NewLog(assigned.name, assigned.key.topic_id, assigned.state.leader_epoch if leads else None)

    def _remove(self, key: TopicIdPartition) -> None:
        self.replicas.offline.pop(key, None)
        replica = self.replicas.find_by_id(*key)
        if replica is None:
            return
        self.replicas.remove(replica)
        stored = self.directories.find(replica.name)
        if stored is not None:
            try:
                self.directories.delete(replica.name)
            except OSError as problem:
                self.directories.fail(stored.directory, problem)

    def _name(self, key: TopicIdPartition) -> TopicPartition:
        return TopicPartition(self.metadata.image.topics[key.topic_id].name, key.partition)
