"""Members of the metadata quorum whom anybody asks anything, on top of what they say to each other.

Not a test module. Nobody is held to what holds among members that are honest (`tests/quorum/quorum_world.py`): somebody lies here. A member that an
answer shows two leaders of one epoch ends itself, as it says (`SafetyViolation`); a request may never bring that about.
"""

from random import Random
from typing import Final
from uuid import UUID

from replog.node.quorum.member import MAX_FETCH_BYTES
from replog.quorum import events
from replog.quorum.messages import FetchAnswer, OffsetAndEpoch, Reply, VoterChangeAnswer
from replog.quorum.quorum_state import SafetyViolation
from replog.quorum.state_file import INT_MAX, StoredQuorumState, encode
from replog.quorum.translate import answer_to_wire, from_wire, to_wire
from replog.quorum.voter_changes import ChangeRequest, change_answer_to_wire, change_from_wire
from replog.types import METADATA_TOPIC_ID, QuorumEpoch
from replog.wire.apis import CONTROLLER_APIS, Api, known_versions
from replog.wire.codec import encode_request
from tests.fuzz.drawing import Asked, Drawing, Trail, Voice
from tests.quorum.quorum_world import CLUSTER, Batch, Member, World

ASKED: Final = (
    *(Api.VOTE, Api.BEGIN_QUORUM_EPOCH, Api.END_QUORUM_EPOCH, Api.FETCH, Api.FETCH_SNAPSHOT),
    *(Api.ADD_RAFT_VOTER, Api.REMOVE_RAFT_VOTER, Api.UPDATE_RAFT_VOTER),
)
STORIES: Final = (
    (Api.FETCH, Api.FETCH, Api.FETCH_SNAPSHOT, Api.FETCH),
    (Api.FETCH, Api.ADD_RAFT_VOTER, Api.FETCH, Api.REMOVE_RAFT_VOTER),
    (Api.VOTE, Api.BEGIN_QUORUM_EPOCH, Api.END_QUORUM_EPOCH, Api.VOTE),
    (Api.UPDATE_RAFT_VOTER, Api.REMOVE_RAFT_VOTER, Api.ADD_RAFT_VOTER),
)
MEMBERS: Final = (101, 102, 103, 104)  # the last one is no voter, or not yet
FIRST_TOKEN: Final = 1 << 40  # those of members among each other are counted from 1
STEPS_MS: Final = (0, 1, 5, 50, 500, 3000)


class Members(World):
    """Three voters in a network, without what only honest members keep."""

    def __init__(self, seed: int, core: "QuorumCore", **options: bool) -> None:
        super().__init__(seed, 3, **options)
        self.core_of_all = core

    def _watch(self, member: Member) -> None:
        pass

    def _watch_vote(self, member: Member, state: StoredQuorumState) -> None:
        pass

    def _watch_commit(self, member: Member, high_watermark: int) -> None:
        member.committed = high_watermark

    def _compare_committed(self, batch: Batch) -> None:
        pass

    def deliver(self, member: Member, event: events.Event) -> None:
        try:
            super().deliver(member, event)
        except SafetyViolation:
            if isinstance(event, events.Received):
                raise
            member.core = None  # it ends itself

    def _send(self, member: Member, effect: events.Send) -> None:
        api, body = to_wire(effect.request)
        encode_request(api, known_versions(api).last, 1, "q", body)
        if effect.to in self.members:
            super()._send(member, effect)
        else:
            self._fail(member, effect.request_id, events.Failure.LOST)

    def _reply(self, member: Member, token: int, answer: Reply | VoterChangeAnswer) -> None:
        if token > FIRST_TOKEN:
            self.core_of_all.answered(member, token, answer)
        else:
            assert not isinstance(answer, VoterChangeAnswer)
            super()._reply(member, token, answer)


class QuorumCore:
    """A quorum, and somebody who asks its members."""

    def __init__(self, seed: str) -> None:
        apis = {api: CONTROLLER_APIS[api] for api in ASKED}
        self.drawing = Drawing(seed, apis, [Voice(f"q{node}", own_of(node)) for node in MEMBERS], STORIES)
        self.drawing.known.cluster_id = CLUSTER
        self.random: Random = self.drawing.random
        self.trail = Trail()
        self.waiting: dict[int, Asked] = {}
        self._tokens = FIRST_TOKEN
        self.world = Members(self.random.getrandbits(16), self, directories=self.random.random() < 0.7)
        if self.random.random() < 0.2:
            self._begin_late()
        self.world.start()
        self.world.run(3000)

    def _begin_late(self) -> None:
        """Let epochs be near their end."""
        epoch = QuorumEpoch(INT_MAX - self.random.choice((0, 1, 3, 999, 1000)))
        for member in self.world.members.values():
            member.disk.state_file = encode(StoredQuorumState(epoch=epoch))

    def step(self) -> None:
        """Let something happen."""
        world, random = self.world, self.random
        members = [*world.members.values()]
        member = random.choice(members)
        match random.choices(("ask", "run", "append", "trouble", "snapshot"), (60, 30, 10, 4, 4))[0]:
            case "ask":
                self._ask(member)
            case "run":
                world.run(random.choice(STEPS_MS))
            case "append":
                world.append("x")
            case "trouble":
                self._trouble(member)
            case _:
                self._take_snapshot(member)

    def _trouble(self, member: Member) -> None:
        self.trail.note("trouble", member.node_id)
        match self.random.choice(("crash", "start", "isolate", "heal", "resign")):
            case "crash" if member.core is not None:
                self.world.crash(member.node_id)
            case "start" if member.core is None:
                self.world.start(member.node_id)
            case "isolate":
                self.world.isolate(member.node_id)
            case "resign" if member.core is not None:
                self.world.deliver(member, events.ResignAsked(now_ms=self.world.now_ms))
            case _:
                self.world.heal()

    def _take_snapshot(self, member: Member) -> None:
        core = member.core
        if core is None or core.high_watermark <= (core.log.latest_snapshot or OffsetAndEpoch(-1, -1)).offset:
            return
        snapshot = OffsetAndEpoch(core.high_watermark, core.log.epoch_before(core.high_watermark))
        member.disk.snapshots[snapshot] = b"snapshot"
        self.trail.note("snapshot", member.node_id, snapshot)
        self.world.deliver(member, events.SnapshotTaken(now_ms=self.world.now_ms, snapshot=snapshot, size=8))

    def _ask(self, member: Member) -> None:
        core = member.core
        if core is None:
            return
        for voice in self.drawing.voices:
            voice.remembered["epoch"] = [core.epoch]
            voice.own |= dict.fromkeys(("leader_epoch", "replica_epoch", "current_leader_epoch", "epoch"), core.epoch)
            voice.own["fetch_offset"] = voice.own["last_offset"] = core.log.end_offset
            voice.own["last_fetched_epoch"] = voice.own["last_offset_epoch"] = core.log.last_epoch
            snapshot = core.log.latest_snapshot
            if snapshot is not None:
                voice.own |= {"end_offset": snapshot.offset, "FETCH_SNAPSHOT.epoch": snapshot.epoch}
            voice.own["replica_directory_id"] = voice.own["voter_directory_id"] = self._directory_of(voice)
        asked = self.drawing.asked()
        if asked is None:
            return
        self.trail.note(member.node_id, asked)
        body = asked.body
        request = change_from_wire(body) if isinstance(body, ChangeRequest) else from_wire(asked.version, body)
        self._tokens += 1
        self.waiting[self._tokens] = asked
        self.world.deliver(member, events.Received(now_ms=self.world.now_ms, token=self._tokens, request=request))

    def _directory_of(self, voice: Voice) -> UUID:
        member = self.world.members.get(voice.own["voter_id"])
        return member.disk.directory_id if member is not None else UUID(int=104)

    def answered(self, member: Member, token: int, answer: Reply | VoterChangeAnswer) -> None:
        """Take what somebody is answered who is no member."""
        asked = self.waiting.pop(token)
        if isinstance(answer, VoterChangeAnswer):
            self.drawing.learn(asked, change_answer_to_wire(answer))
            return
        assert not isinstance(answer, FetchAnswer) or answer.read_end - answer.read_offset < MAX_FETCH_BYTES
        self.drawing.learn(asked, answer_to_wire(answer, asked.version))


def own_of(node: int) -> dict[str, object]:
    """Return what a member says of itself."""
    return {
        **dict.fromkeys(("replica_id", "voter_id", "candidate_id", "leader_id"), node),
        "topic_id": METADATA_TOPIC_ID,
        **dict.fromkeys(("topic", "topic_name", "FETCH_SNAPSHOT.name"), "__cluster_metadata"),
        **dict.fromkeys(("partition", "partition_index", "position", "FETCH.replica_epoch"), 0),
        **dict.fromkeys(("max_wait_ms", "timeout_ms"), 100),
    }
