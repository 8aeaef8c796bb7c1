"""The controller: one event in, ordered effects out (SPEC 2).

Every controller of the quorum replays the committed log into its image. The active one decides
from the same image, on which its own records count at once; when it stops leading it takes back
what was never committed. Sessions and recoveries are soft state: a new term starts them afresh.
"""

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Final
from uuid import UUID

from replog.controller import acl_requests as acls
from replog.controller import admin_requests as admin
from replog.controller import broker_requests as broker
from replog.controller import config_requests as config
from replog.controller import credential_requests as credentials
from replog.controller import fencing
from replog.controller import quota_requests as quotas
from replog.controller.creation_rate import CreationRate
from replog.controller.election import Election, Wish
from replog.controller.events import Append, BrokerRefuses, Effect, Event, LogInfoAnswered, Request, Tick
from replog.controller.heartbeat import Sessions
from replog.controller.mutation_quotas import MutationQuotas
from replog.controller.policy import Policy, Settings
from replog.controller.recoveries import Counts, Recoveries
from replog.controller.turn import Turn
from replog.metadata import features
from replog.metadata import records as r
from replog.metadata.image import Image
from replog.metadata.record_versions import METADATA_VERSION
from replog.types import NO_NODE

if TYPE_CHECKING:
    from random import Random

ELECTIONS_PER_BALANCE_MAX = 1000


class Controller:
    """The controller role of one node."""

    def __init__(
        self, settings: Settings, static_configs: Mapping[str, str], new_topic_id: Callable[[], UUID], random: "Random"
    ) -> None:
        self.settings = settings
        self.image = Image()
        self.policy = Policy(self.image, settings)
        self.sessions = Sessions(settings.session_timeout_ms)
        self.recoveries = Recoveries()
        self.creations = CreationRate(settings.partition_creation_rate)
        self.mutations = MutationQuotas()
        self.is_active = False
        self.static_configs = static_configs
        self.new_topic_id = new_topic_id
        self.random = random  # for placements only
        self._finished_before = 0  # recoveries, in earlier terms
        self._committed_offset = -1
        self._next_balance_ms = 0
        self._next_unclean_scan_ms = 0
        self._last_written_ms = 0
        # Atomic groups in the log whose ends are not committed yet, with offsets, oldest first (SPEC 2.1.6).
        self._open_groups: list[list[tuple[int, r.MetadataRecord]]] = []

    # --- a standby follows ----------------------------------------------------------------------

    def replay(self, offset: int, record: r.MetadataRecord) -> None:
        """Apply a committed record; only while not active (the active one applied its own already)."""
        assert not self.is_active
        self.image.replay(record, offset)
        self._committed_offset = offset

    def load_snapshot(self, records: list[r.MetadataRecord], end_offset: int) -> None:
        """Start over from a snapshot of everything below `end_offset`."""
        assert not self.is_active
        self.image = Image()
        self.policy = Policy(self.image, self.settings)
        for record in records:
            self.image.replay(record, end_offset - 1)
        self._committed_offset = end_offset - 1

    # --- a term ---------------------------------------------------------------------------------

    def activate(self, now_ms: int, next_offset: int) -> list[Effect]:
        """Begin to decide; everything below the epoch's start has been replayed (SPEC 1.8.4, 2.14.4)."""
        assert not self.is_active
        self.is_active = True
        self.image.undoable = True
        self._open_groups = []
        self.sessions.activate(self.image, now_ms)
        self._finished_before = self.recoveries_finished
        self.recoveries = Recoveries()
        self._last_written_ms = now_ms
        self._next_balance_ms = now_ms + self.settings.leader_imbalance_check_interval_ms
        self._next_unclean_scan_ms = now_ms + self.settings.unclean_leader_election_interval_ms
        turn = self._turn(now_ms, next_offset)
        if self.image.in_transaction:
            turn.append([r.AbortTransactionRecord(reason="the controller that began it is gone")])
        if METADATA_VERSION not in self.image.features:
            turn.append(features.bootstrap(self.settings))
        self.recoveries.review(turn)
        return self._effects(turn)

    def committed(self, offset: int) -> None:
        """Learn that the active controller's own records up to this offset are committed."""
        assert self.is_active
        self._committed_offset = max(self._committed_offset, offset)
        self.image.commit(self._committed_offset)
        while self._open_groups and self._open_groups[0][-1][0] <= offset:
            del self._open_groups[0]

    def deactivate(self) -> None:
        """Stop deciding: take back what was not committed (SPEC 1.8.7); others decide on it now."""
        self.is_active = False
        self.image.undo_to(self._committed_offset)
        self.image.undoable = False
        first = self._open_groups[0] if self._open_groups else []  # later ones begin behind its end
        begun = [(offset, record) for offset, record in first if offset <= self._committed_offset]
        if begun:
            self.image.resume_transaction(begun[1:])  # without the marker that began it
        self._open_groups = []

    # --- events ---------------------------------------------------------------------------------

    def handle(self, event: Event, now_ms: int, next_offset: int) -> list[Effect]:
        """Advance by one event.

        next_offset: where the metadata log's next record will be written.
        returns:     effects in order; replies and facts wait for the commit of what is appended before.
        """
        assert self.is_active
        turn = self._turn(now_ms, next_offset)
        match event:
            case Request():
                turn.received_ms = event.received_ms
                turn.client = event.client
                api = APIS[type(event.body)]
                turn.reply(event.token, api.answer(self, turn, event.body))
                if api.any_served.changes_nothing:
                    # Where an answer fails the node goes on (`replog/node/boundary.py`), so nothing may have been decided beside it.
                    assert not turn.records, f"{type(event.body).__name__} changes nothing"
                    return self._effects(turn)
            case LogInfoAnswered():
                self.recoveries.on_answer(turn, event)
            case BrokerRefuses():
                if broker.fence_dead_broker(turn, self.sessions, event.broker_id, event.broker_epoch):
                    self.recoveries.on_fenced(event.broker_id)
            case Tick():
                self._on_tick(turn)
        self.recoveries.review(turn)
        return self._effects(turn)

    def next_deadline_ms(self, now_ms: int) -> int:
        """Return when the next `Tick` is due."""
        deadlines = [
            self.sessions.next_expiry_ms(self.image),
            self._next_balance_ms,
            self._next_unclean_scan_ms,
            self.recoveries.next_deadline_ms(now_ms),
            self._idle_until_ms,
        ]
        return min(deadline for deadline in deadlines if deadline is not None)

    @property
    def recovery_counts(self) -> Counts:
        """KIP-966's metrics of unclean recovery."""
        return self.recoveries.counts

    @property
    def recoveries_finished(self) -> int:
        """Unclean recoveries done in this controller's process, in all its terms (KIP-966, "Metrics")."""
        return self._finished_before + self.recoveries.counts.unclean_recovery_finished

    @property
    def _idle_until_ms(self) -> int | None:
        interval_ms = self.settings.max_idle_interval_ms
        return self._last_written_ms + interval_ms if interval_ms else None

    def _turn(self, now_ms: int, next_offset: int) -> Turn:
        return Turn(self.policy, now_ms=now_ms, next_offset=next_offset)

    def _effects(self, turn: Turn) -> list[Effect]:
        effects = turn.effects()
        if turn.records:
            self._last_written_ms = turn.now_ms
        batches = [effect.records for effect in effects if isinstance(effect, Append)]
        if len(batches) > 1:
            group = [record for batch in batches for record in batch]
            self._open_groups.append(list(enumerate(group, start=turn.first_offset)))
        return effects

    def _on_tick(self, turn: Turn) -> None:
        fenced = broker.fence_one_silent_broker(turn, self.sessions)
        if fenced is not None:
            self.recoveries.on_fenced(fenced)
        if turn.now_ms >= self._next_balance_ms:
            self._next_balance_ms = turn.now_ms + self.settings.leader_imbalance_check_interval_ms
            if self.settings.leader_rebalance:
                self._balance(turn)
        if turn.now_ms >= self._next_unclean_scan_ms:
            self._next_unclean_scan_ms = turn.now_ms + self.settings.unclean_leader_election_interval_ms
            turn.append(fencing.leaders_for_leaderless(turn.policy))
        if self._idle_until_ms is not None and turn.now_ms >= self._idle_until_ms and not turn.records:
            # KIP-835: a committed record now and then proves that the quorum works, and shows who lags.
            turn.append([r.NoOpRecord()])

    def _balance(self, turn: Turn) -> None:
        """Give leadership back to preferred replicas that are in the ISR."""
        keys = [key for key in turn.image.not_preferred() if self._can_go_back(turn, key.topic_id, key.partition)]
        wish = Wish(election=Election.PREFERRED)
        turn.append(
            fencing.changes(turn.policy, keys[:ELECTIONS_PER_BALANCE_MAX], lambda *_: wish, turn.image.is_active)
        )

    def _can_go_back(self, turn: Turn, topic_id: UUID, index: int) -> bool:
        partition = turn.image.topics[topic_id].partitions[index]
        preferred = partition.preferred_leader
        fit = turn.image.fit(partition, turn.image.is_active)
        return partition.leader != NO_NODE and preferred in partition.isr and fit(preferred)


APIS: Final = {
    one.any_served.exchange.request: one
    for one in (*broker.APIS, *admin.APIS, *config.APIS, *credentials.APIS, *quotas.APIS, *acls.APIS)
}  # what the active controller decides, by the request's type
