"""Between Kafka's AddRaftVoter, RemoveRaftVoter and UpdateRaftVoter and the flat messages of `messages.py`; pure."""

from typing import assert_never

import msgspec

from replog.config import Endpoint
from replog.errors import Error
from replog.quorum.messages import VoterChange, VoterChangeAnswer, VoterChangeRequest
from replog.quorum.voters import ReplicaKey
from replog.types import NO_NODE, NodeId
from replog.wire.messages import add_raft_voter as add
from replog.wire.messages import remove_raft_voter as remove
from replog.wire.messages import update_raft_voter as update

REMOVAL_TIMEOUT_MS = 30_000  # RemoveRaftVoter and UpdateRaftVoter have none of their own

ChangeRequest = add.AddRaftVoterRequest | remove.RemoveRaftVoterRequest | update.UpdateRaftVoterRequest


def change_from_wire(body: ChangeRequest) -> VoterChangeRequest:
    """Return what a request asks for."""
    kind = {
        add.AddRaftVoterRequest: VoterChange.ADD,
        remove.RemoveRaftVoterRequest: VoterChange.REMOVE,
        update.UpdateRaftVoterRequest: VoterChange.UPDATE,
    }
    listeners = getattr(body, "listeners", [])
    return VoterChangeRequest(
        change=kind[type(body)],
        cluster_id=body.cluster_id,
        voter=ReplicaKey(NodeId(body.voter_id), body.voter_directory_id),
        endpoint=Endpoint(listeners[0].host, listeners[0].port) if listeners else None,
        epoch=getattr(body, "current_leader_epoch", -1),
        timeout_ms=max(0, getattr(body, "timeout_ms", REMOVAL_TIMEOUT_MS)),
        ack_when_committed=getattr(body, "ack_when_committed", True),
    )


def voter_change_refused(body: ChangeRequest, error: Error, words: str) -> msgspec.Struct:
    """Return the answer of a node that does not let the quorum decide on the request."""
    answer = VoterChangeAnswer(
        change=change_from_wire(body).change, error=error, message=words, epoch=-1, leader_id=NO_NODE, endpoint=None
    )
    return change_answer_to_wire(answer)


def change_answer_to_wire(answer: VoterChangeAnswer) -> msgspec.Struct:
    """Return the answer to the API that was asked."""
    match answer.change:
        case VoterChange.ADD:
            return add.AddRaftVoterResponse(error_code=answer.error, error_message=answer.message)
        case VoterChange.REMOVE:
            return remove.RemoveRaftVoterResponse(error_code=answer.error, error_message=answer.message)
        case VoterChange.UPDATE:
            host, port = (answer.endpoint.host, answer.endpoint.port) if answer.endpoint else ("", 0)
            leader = update.CurrentLeader(leader_id=answer.leader_id, leader_epoch=answer.epoch, host=host, port=port)
            return update.UpdateRaftVoterResponse(error_code=answer.error, current_leader=leader)
        case _:
            assert_never(answer.change)
