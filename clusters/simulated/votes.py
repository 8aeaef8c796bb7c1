"""Votes of the quorum, watched on the simulated network and held against KIP-595 and KIP-996 (I23).

Who grants a vote or a pre-vote has no longer log than who asks for it. Who grants a pre-vote neither leads nor follows a leader that it fetches
from. Who grants a vote has it in its quorum-state file before it answers.

An answer is written in the event in which a node decides, unless answers before it on the same connection wait. So what a node was is asked
twice, when the request is written and when the answer is: it is accused only of what it was both times, in the same process and role.
"""

from collections.abc import Callable, Mapping
from typing import Final, NamedTuple

from replog.errors import Error
from replog.quorum.messages import OffsetAndEpoch
from replog.quorum.roles import Follower, Leader, Role
from replog.quorum.state_file import FILE_NAME, decode
from replog.types import METADATA_TOPIC
from replog.wire.apis import Api
from replog.wire.codec import decode_response
from replog.wire.decoder import MalformedMessage
from replog.wire.exchange import exchange_of
from replog.wire.messages.vote import VoteRequest, VoteRequestPartitionData, VoteResponse
from tribunal.clusters.api import CLIENTS
from tribunal.clusters.simulated.committed import Incarnation, QuorumMember
from tribunal.clusters.simulated.frames import LENGTH_BYTES, Frame, request_body
from tribunal.clusters.simulated.violation import Violated
from tribunal.clusters.simulated.world import Machine
from tribunal.results.violation import GrantedBesideLeader, GrantedToShorterLog, Invariant, VoteNotKept

VOTE: Final = int(Api.VOTE)


class Standing(NamedTuple):
    """What a voter is at a moment."""

    incarnation: Incarnation
    role: Role
    leader: int
    has_leader: bool
    log_end: OffsetAndEpoch


class Asked(NamedTuple):
    """A request that waits for its answer: what it asks for, and what the voter was when it was written."""

    version: int
    ballot: VoteRequestPartitionData
    standing: Standing


class Votes:
    """All votes of one simulation."""

    def __init__(
        self,
        machines: Mapping[int, Machine],
        members: Callable[[], Mapping[Incarnation, QuorumMember]],
        metadata_directories: Mapping[int, str],
        accuse: Callable[[Violated], None],
    ) -> None:
        """Follow these machines.

        members:               the running nodes' members of the quorum.
        metadata_directories:  where each node keeps its metadata log.
        accuse:                gets what is wrong.
        """
        self._machines = machines
        self._members = members
        self._files = {
            node: f"{directory}/{METADATA_TOPIC}-0/{FILE_NAME}" for node, directory in metadata_directories.items()
        }
        self._accuse = accuse
        self._asked: dict[tuple[int, int], Asked] = {}

    def note(self, frame: Frame) -> None:
        """Take a message as it is written, whatever becomes of it."""
        if frame.api != VOTE or CLIENTS in (frame.source, frame.target):
            return
        try:
            if frame.is_request:
                self._request(frame)
            else:
                self._answer(frame)
        except MalformedMessage:
            return  # the receiver will say so

    def _standing(self, node: int) -> Standing | None:
        incarnation = (node, self._machines[node].incarnations)
        member = self._members().get(incarnation)
        if member is None:
            return None
        role = member.role
        has_leader = isinstance(role, Leader) or (isinstance(role, Follower) and role.has_fetched)
        return Standing(incarnation, role, member.leader[0], has_leader, member.log_end)

    def _request(self, frame: Frame) -> None:
        body, standing = request_body(frame), self._standing(frame.target)
        if isinstance(body, VoteRequest) and standing is not None and body.topics and body.topics[0].partitions:
            ballot = body.topics[0].partitions[0]
            self._asked[frame.transport.number, frame.correlation_id] = Asked(frame.version, ballot, standing)

    def _answer(self, frame: Frame) -> None:
        asked = self._asked.pop((frame.transport.peer.number, frame.correlation_id), None)
        now = self._standing(frame.source)
        if asked is None or now is None:
            return
        content = memoryview(frame.data)[LENGTH_BYTES:]
        _, body = decode_response(exchange_of(Api.VOTE), asked.version, content)
        assert isinstance(body, VoteResponse)
        given = [one for topic in body.topics for one in topic.partitions]
        if body.error_code is Error.NONE and given and given[0].vote_granted:
            self._granted(frame.source, asked.ballot, asked.standing, now)

    def _granted(self, voter: int, ballot: VoteRequestPartitionData, before: Standing, now: Standing) -> None:
        is_same_process = before.incarnation == now.incarnation
        if ballot.pre_vote and is_same_process and before.role is now.role and before.has_leader and now.has_leader:
            beside = GrantedBesideLeader(candidate=ballot.replica_id, leader=now.leader)
            self._accuse(Violated(Invariant.I23, beside, node=voter, epoch=ballot.replica_epoch))
        end = now.log_end
        if (
            is_same_process
            and before.log_end == end
            and (ballot.last_offset_epoch, ballot.last_offset) < (end.epoch, end.offset)
        ):
            shorter = GrantedToShorterLog(
                candidate=ballot.replica_id,
                candidate_last_epoch=ballot.last_offset_epoch,
                candidate_log_end_offset=ballot.last_offset,
                last_epoch=end.epoch,
                log_end_offset=end.offset,
                pre_vote=ballot.pre_vote,
            )
            self._accuse(Violated(Invariant.I23, shorter, node=voter, epoch=ballot.replica_epoch))
        if not ballot.pre_vote:
            self._is_kept(voter, ballot)

    def _is_kept(self, voter: int, ballot: VoteRequestPartitionData) -> None:
        content = self._machines[voter].disk.content(self._files[voter])
        stored = None if content is None else decode(bytes(content))
        if stored is not None and stored.epoch > ballot.replica_epoch:
            return  # it has gone on since
        epoch = None if stored is None else stored.epoch
        voted = None if stored is None or stored.voted is None else stored.voted.node_id
        if (epoch, voted) != (ballot.replica_epoch, ballot.replica_id):
            lost = VoteNotKept(candidate=ballot.replica_id, stored_epoch=epoch, stored_vote=voted)
            self._accuse(Violated(Invariant.I23, lost, node=voter, epoch=ballot.replica_epoch))
