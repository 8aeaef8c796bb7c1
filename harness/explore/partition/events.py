"""What may happen in the world of one partition, and how much of it."""

from typing import Annotated, NamedTuple

import msgspec

from replog.broker.isr import AlterPartitionAnswer
from replog.types import BrokerEpoch, NodeId
from tribunal.harness.explore.partition.broker import Fetch, Proposed, Stored


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    """What the world is like and how much may happen in it."""

    brokers: Annotated[int, msgspec.Meta(ge=1, le=5)] = 3
    min_isr: int = 2
    elr: bool = True
    unclean: bool = False
    records: int = 2
    kills: int = 2  # of which lose their tail:
    tails: int = 1
    fences: int = 0  # of brokers that live
    raised_min_isr: int = 0  # what the operator sets once; 0: there is none
    late_metadata: bool = True  # brokers learn of what is committed when they do, or at once
    late_fetches: bool = True  # answers to fetches take their time, or none
    lates: int = 2  # proposals and answers to them that may be under way at once


class Tally(NamedTuple):
    """What has happened so far, as far as bounds and promises go."""

    produced: int
    kills: int
    tails: int
    fences: int
    raised: bool
    forgiven: bool  # a leader was elected uncleanly when the promise permitted it
    committed: Stored  # what any leader has shown as committed, from offset 0


class Produce(msgspec.Struct, frozen=True):
    """A producer's acks=all record reaches a broker that thinks it leads."""

    node: NodeId
    value: int


class Lag(msgspec.Struct, frozen=True):
    """The leader finds that members lag."""

    node: NodeId


class Retry(msgspec.Struct, frozen=True):
    """The leader sends its proposal again."""

    node: NodeId


class Replay(msgspec.Struct, frozen=True):
    """A broker replays the next batch of metadata."""

    node: NodeId
    batch: int


class Ask(msgspec.Struct, frozen=True):
    """A follower fetches; what the leader answers is under way, or (`at_once`) there."""

    node: NodeId
    at_once: bool


class Take(msgspec.Struct, frozen=True):
    """A late answer to a fetch arrives."""

    node: NodeId


class Beat(msgspec.Struct, frozen=True):
    """A heartbeat reaches the controller."""

    node: NodeId


class Expire(msgspec.Struct, frozen=True):
    """No heartbeat of a broker comes for the session timeout."""

    node: NodeId


class Crash(msgspec.Struct, frozen=True):
    """A broker's process ends."""

    node: NodeId
    loses_tail: bool


class Restart(msgspec.Struct, frozen=True):
    """A broker's process starts and registers."""

    node: NodeId


class Raise(msgspec.Struct, frozen=True):
    """The operator raises min.insync.replicas."""

    value: int


class Answer(msgspec.Struct, frozen=True):
    """The controller's answer to a proposal, under way."""

    proposed: Proposed
    answer: AlterPartitionAnswer


class Deliver(msgspec.Struct, frozen=True):
    """A proposal or the answer to one arrives."""

    message: int


Step = Produce | Lag | Retry | Replay | Ask | Take | Beat | Expire | Crash | Restart | Raise | Deliver
Message = Proposed | Answer


class Begin(msgspec.Struct, frozen=True):
    """What a registered broker begins with."""

    controller: int  # whose image it reads
    epoch: BrokerEpoch


class Heartbeat(msgspec.Struct, frozen=True):
    """What a heartbeat says."""

    node: NodeId
    epoch: BrokerEpoch


class Arrived(msgspec.Struct, frozen=True):
    """The answer to a fetch."""

    fetched: int


BrokerEvent = Produce | Lag | Retry | Replay | Crash | Answer | Fetch | Arrived | Begin
ControllerEvent = Proposed | Expire | Restart | Raise | Heartbeat
