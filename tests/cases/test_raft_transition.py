"""Family raft_transition: one state, one event, the next state and what it makes the member say (SPEC 1.3, 1.4)."""

from collections.abc import Callable
from typing import Any

import pytest

from replog.errors import Error
from replog.quorum import events
from replog.quorum.events import Effect, Event, Failure
from replog.quorum.messages import BeginQuorumEpochRequest, EndQuorumEpochRequest, FetchRequest, VoteAnswer, VoteRequest
from replog.quorum.quorum_state import Settings
from replog.quorum.roles import Follower, Prospective
from replog.quorum.state_file import StoredQuorumState, encode
from replog.quorum.voters import ReplicaKey
from replog.types import NO_NODE, NodeId, QuorumEpoch
from tests.cases.cases import load, only
from tests.cases.voters import a_member, answers, node, outline, placed, promises_come_late, seen
from tests.quorum.quorum_world import World

GIVEN = {
    "id",
    "voters",
    "state",
    "epoch",
    "leader",
    "voted",
    "fetched",
    "log",
    "stored",
    "fetch_timeout_ms",
    "election_timeout_ms",
    "election_backoff_max_ms",
    "pre_vote_supported",
}
THEN = {
    "state",
    "epoch",
    "leader",
    "voted",
    "durable_write",
    "sends",
    "answers",
    "after_ms",
    "fetch_timer_ms",
}
OF_WORLDS = {"state", "epoch", "leader", "cluster_epoch_after_heal", "leader_after_heal"}


class Drive:
    """One member, driven by a case; `effects` are those of the deciding event only."""

    def __init__(self, given: dict[str, Any]) -> None:
        limits = ("fetch_timeout_ms", "election_timeout_ms", "election_backoff_max_ms")
        settings = Settings(**{name: given[name] for name in limits if name in given})
        stored = given.get("stored")
        self.member = a_member(given, outline(given), settings=settings, stored=_stored(stored), voters=given["voters"])
        self.sent: dict[NodeId, events.Send] = {}
        self.effects: list[Effect] = []
        if given["state"] != "down":
            placed(self.member, given)
            self.take(events.Tick(now_ms=0))
        self.effects = []

    def take(self, event: Event) -> None:
        """Deliver the event; its effects become the deciding ones. What it asks to sync is synced at once."""
        self.effects = self.member.handle(event)
        assert not promises_come_late(self.effects)
        for effect in list(self.effects):
            if isinstance(effect, events.Send):
                self.sent[effect.to] = effect
            if isinstance(effect, events.SyncLog):
                synced = events.Synced(now_ms=event.now_ms, sync_id=effect.sync_id)
                self.effects += self.member.handle(synced)

    def receive(self, request: Any, now_ms: int = 0) -> None:
        self.take(events.Received(now_ms=now_ms, token=1, request=request))

    def reply(self, peer: NodeId, answer: VoteAnswer) -> None:
        request_id = self.sent[peer].request_id if peer in self.sent else 0
        self.take(events.Replied(now_ms=0, request_id=request_id, answer=answer))

    def peers(self) -> list[NodeId]:
        return [voter for voter in self.member.voters.ids if voter != self.member._state.me.node_id]

    def decide(self, *, granted: bool) -> None:
        """Let voters answer, all alike, until they are a majority."""
        voters = len(self.member.voters.ids)
        # Itself is granted: n/2 more make a majority; one more than that refusing makes it impossible.
        deciding = voters // 2 if granted else voters - voters // 2
        for peer in self.peers()[:deciding]:
            self.reply(peer, VoteAnswer(epoch=self.member.epoch, granted=granted))


def _stored(stored: dict[str, Any] | None) -> StoredQuorumState | None:
    if stored is None:
        return None
    only(stored, {"leader", "epoch", "voted"}, "stored")
    voted = stored.get("voted")
    return StoredQuorumState(
        epoch=QuorumEpoch(stored["epoch"]),
        leader_id=node(stored.get("leader")),
        voted=None if voted is None else ReplicaKey(NodeId(voted)),
    )


# --- events


def start(drive: Drive, when: dict[str, Any]) -> None:
    drive.take(events.Started(now_ms=0))


def timeout(drive: Drive, when: dict[str, Any]) -> None:
    role = drive.member.role
    deadline_ms = role.fetch_deadline_ms if isinstance(role, Follower) else role.election_deadline_ms  # type: ignore[union-attr]
    drive.take(events.Tick(now_ms=deadline_ms))


def vote_response(drive: Drive, when: dict[str, Any]) -> None:
    answer = VoteAnswer(
        error=Error[when.get("error", "NONE")],
        epoch=when["epoch"],
        leader_id=node(when.get("leader")),
        granted=when.get("granted", False),
    )
    if when.get("error") == "UNSUPPORTED_VERSION":
        request_id = drive.sent[node(when.get("peer", drive.peers()[0]))].request_id
        unsupported = Failure.UNSUPPORTED_VERSION
        drive.take(events.Unanswered(now_ms=0, request_id=request_id, failure=unsupported))
        return
    drive.reply(NodeId(when.get("peer", drive.peers()[0])), answer)


def vote_request_timeout(drive: Drive, when: dict[str, Any]) -> None:
    before = drive.sent[NodeId(when["peer"])]
    lost = events.Unanswered(now_ms=0, request_id=before.request_id, failure=Failure.LOST)
    drive.take(lost)
    drive.take(events.Tick(now_ms=drive.member._state.settings.retry_backoff_ms))
    assert drive.sent[NodeId(when["peer"])].request_id != before.request_id


def begin_quorum_epoch(drive: Drive, when: dict[str, Any]) -> None:
    drive.receive(BeginQuorumEpochRequest(epoch=when["epoch"], leader_id=NodeId(when["leader"])))


def end_quorum_epoch(drive: Drive, when: dict[str, Any]) -> None:
    preferred = tuple(ReplicaKey(NodeId(successor)) for successor in when["preferred"])
    request = EndQuorumEpochRequest(epoch=when["epoch"], leader_id=NodeId(when["leader"]), preferred=preferred)
    drive.receive(request)


def vote_request(drive: Drive, when: dict[str, Any]) -> None:
    request = VoteRequest(
        epoch=when["epoch"],
        candidate=ReplicaKey(NodeId(when["candidate"])),
        last_epoch=when["last_epoch"],
        last_offset=when["last_offset"],
        pre_vote=when["pre_vote"],
    )
    drive.receive(request)


def fetch(drive: Drive, replica: int, epoch: int, now_ms: int) -> None:
    request = FetchRequest(
        replica=ReplicaKey(NodeId(replica)),
        epoch=epoch,
        fetch_offset=drive.member.log.end_offset,
        last_fetched_epoch=drive.member.log.last_epoch,
        max_wait_ms=0,
    )
    drive.receive(request, now_ms)


def fetch_request(drive: Drive, when: dict[str, Any]) -> None:
    fetch(drive, when.get("replica", 2), when["epoch"], 0)


def fetch_from(drive: Drive, when: dict[str, Any]) -> None:
    for voter in when["voters"]:
        fetch(drive, voter, drive.member.epoch, when["within_ms"] - 1)
    check_ms = drive.member._state.settings.check_quorum_timeout_ms
    drive.take(events.Tick(now_ms=max(check_ms, when["within_ms"])))


def no_majority_fetch_for(drive: Drive, when: dict[str, Any]) -> None:
    drive.take(events.Tick(now_ms=when["ms"]))


EVENTS: dict[str, tuple[Callable[[Drive, dict[str, Any]], None], set[str]]] = {
    "start": (start, set()),
    "fetch_timeout": (timeout, set()),
    "election_timeout": (timeout, set()),
    "vote_response": (vote_response, {"error", "granted", "epoch", "leader", "peer"}),
    "vote_request_timeout": (vote_request_timeout, {"peer"}),
    "begin_quorum_epoch": (begin_quorum_epoch, {"epoch", "leader"}),
    "end_quorum_epoch": (end_quorum_epoch, {"epoch", "leader", "preferred"}),
    "vote_request": (vote_request, {"pre_vote", "candidate", "epoch", "last_epoch", "last_offset"}),
    "fetch_request": (fetch_request, {"epoch", "replica"}),
    "fetch_from": (fetch_from, {"voters", "within_ms"}),
    "no_majority_fetch_for": (no_majority_fetch_for, {"ms"}),
    "pre_vote_granted_majority": (lambda drive, when: drive.decide(granted=True), set()),
    "vote_granted_majority": (lambda drive, when: drive.decide(granted=True), set()),
    "pre_vote_rejected_majority": (lambda drive, when: drive.decide(granted=False), set()),
    "vote_rejected_majority": (lambda drive, when: drive.decide(granted=False), set()),
    "resign": (lambda drive, when: drive.take(events.ResignAsked(now_ms=0)), set()),
    "shutdown": (lambda drive, when: drive.take(events.ShutDownAsked(now_ms=0)), set()),
}


# --- what was said


def sends(effects: list[Effect]) -> list[str]:
    """Requests as the cases write them: one line a kind, with all it goes to."""
    lines: dict[str, list[str]] = {}
    for effect in effects:
        if isinstance(effect, events.Send):
            lines.setdefault(_kind_of_request(effect.request), []).append(str(effect.to))
    return [f"{line} to {','.join(peers)}" for line, peers in lines.items()]


def _kind_of_request(request: object) -> str:
    match request:
        case VoteRequest():
            return f"vote {'pre_vote' if request.pre_vote else 'standard'} epoch={request.epoch}"
        case BeginQuorumEpochRequest():
            return "begin_quorum_epoch"
        case EndQuorumEpochRequest():
            return "end_quorum_epoch"
        case _:
            return "fetch"


def is_said(wanted: str, found: list[str]) -> bool:
    if wanted == "fetch to any bootstrap voter":
        return any(line.startswith("fetch to ") for line in found)
    return wanted.removesuffix(" (new correlation id)") in found


def answered(effects: list[Effect]) -> str:
    (answer,) = answers(effects)
    if answer.top_error or answer.error:
        return (answer.top_error or answer.error).name
    return f"granted={str(answer.granted).lower()}"


@pytest.mark.parametrize("case", [one for one in load("raft_transition") if one.values[0]["then"].keys() <= THEN])
def test_transition(case: dict[str, Any]) -> None:
    given = only(case["given"], GIVEN, "given")
    kind = case["when"]["event"]
    if kind == "link_cut":
        link_cut(given, case["when"], case["then"])
        return
    event, keys = EVENTS[kind]
    when = only(case["when"], keys | {"event"}, "when")
    then = dict(only(case["then"], THEN, "then"))
    drive = Drive(given)

    event(drive, when)

    _must_have_said(drive, then)
    assert {key: seen(drive.member)[key] for key in then} == then


def _must_have_said(drive: Drive, then: dict[str, Any]) -> None:
    """Check, and take out of `then`, what is not the state itself."""
    if "sends" in then:
        wanted, found = then.pop("sends"), sends(drive.effects)
        assert len(found) == len(wanted), found
        assert all(is_said(line, found) for line in wanted), found
    if "durable_write" in then:
        durable = any(isinstance(effect, events.Persist) for effect in drive.effects)
        assert durable is then.pop("durable_write")
    if "answers" in then:
        assert answered(drive.effects) == then.pop("answers")
    if "fetch_timer_ms" in then:
        role = drive.member.role
        assert isinstance(role, Follower)
        assert role.fetch_deadline_ms == then.pop("fetch_timer_ms")
    assert then.pop("after_ms", 0) == 0, "all the cases look at the very moment"


# --- cases about a whole quorum


def a_world(given: dict[str, Any], leader: int, **options: Any) -> World:
    """A quorum of which one is about to win the given epoch: it has voted for itself."""
    world = World(7, given["voters"], directories=False, **options)
    epoch = given["epoch"]
    for voter, member in world.members.items():
        voted = ReplicaKey(voter) if voter == leader else None
        state = StoredQuorumState(epoch=QuorumEpoch(epoch if voted else epoch - 1), leader_id=NO_NODE, voted=voted)
        member.disk.state_file = encode(state)
    world.start()
    world.run_until(world.agrees)
    assert (world.leader(), world.epochs()) == (leader, [epoch] * len(given["voters"]))
    return world


def link_cut(given: dict[str, Any], when: dict[str, Any], then: dict[str, Any]) -> None:
    only(when, {"event", "between", "reachable_via"}, "when")
    world = a_world(given, given["leader"])

    one, other = (NodeId(number) for number in when["between"])
    world.cut([one], [other])
    world.run(60_000)

    found = seen(world.core(NodeId(given.get("id", 1))))
    assert {key: found[key] for key in only(then, {"state", "epoch", "leader"}, "then")} == then
    assert set(world.epochs()) == {given["epoch"]}


@pytest.mark.parametrize("case", [one for one in load("raft_transition") if not one.values[0]["then"].keys() <= THEN])
def test_partitioned_for_n_election_timeouts(case: dict[str, Any]) -> None:
    given, when = only(case["given"], GIVEN, "given"), only(case["when"], {"event", "n"}, "when")
    then = only(case["then"], OF_WORLDS, "then")
    lone, leader = NodeId(given["id"]), given.get("leader", given["voters"][-1])
    world = a_world(given, leader, pre_vote_supported=given.get("pre_vote_supported", True))

    world.isolate(lone)
    for _ in range(when["n"]):
        world.run_until(lambda: not isinstance(world.core(lone).role, Prospective))
        world.run_until(lambda: isinstance(world.core(lone).role, Prospective))
    world.run(10)
    alone = seen(world.core(lone))
    world.heal()
    world.run_until(world.agrees)

    assert alone["state"] in then["state"].split("_or_")
    assert alone["epoch"] == then["epoch"]
    after = max(world.epochs())
    if str(then["cluster_epoch_after_heal"]).startswith(">="):
        assert after >= int(then["cluster_epoch_after_heal"][2:])
    else:
        assert after == then["cluster_epoch_after_heal"]
    assert then["leader_after_heal"] in ("any", world.leader())
