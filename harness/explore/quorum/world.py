"""Three controllers: elections, pre-votes, replication and a change of voters (KIP-595, KIP-996, KIP-853).

Between two members there is at most one request of each to the other, or its answer; it may be delivered at any time or, which is the
same, never: then the asker's time limit passes. A request that its asker has given up is lost here, never late.

Besides safety one thing is judged that no single state shows: that a leader can be elected. From every state in which a majority of
the voters is up, the world is let run in calm: every message is delivered, and the members' time passes in turn. If no leader comes
of it, however often all took their turn, then the cluster stays without one until somebody restarts a node.
"""

import struct
from collections.abc import Iterator, Mapping, Sequence
from typing import Annotated, Final, NamedTuple

import msgspec

from replog.quorum.messages import Reply, Request
from replog.types import NodeId
from tribunal.harness.explore.cores import Cores, Numbered, Remembered, grown
from tribunal.harness.explore.engine import State
from tribunal.harness.explore.quorum.member import Answer, Seen, Sent, SmallMember, Written, key_of
from tribunal.results.explored import Broken, Row

CALM_TURNS: Final = 30  # an election takes a majority of the members three turns each: time passes, pre-vote, vote
CALM_MESSAGES: Final = 60  # between two turns


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    """What the world is like and how much may happen in it."""

    voters: Annotated[int, msgspec.Meta(ge=1, le=5)] = 3
    observers: Annotated[int, msgspec.Meta(ge=0, le=3)] = 0  # that an operator may make voters, one after another
    records: int = 1
    crashes: int = 1
    restarts: bool = True
    wipes: int = 0  # of the crashes, so many lose the disk
    ticks: int = 6  # how often a member's time passes up to its next deadline


class Tally(NamedTuple):
    """What has happened so far."""

    records: int
    crashes: int
    wipes: int
    ticks: int
    added: int
    leaders: tuple[tuple[int, NodeId], ...]  # by epoch
    committed: tuple[Written, ...]


class Tick(msgspec.Struct, frozen=True):
    """A member's time passes up to its next deadline."""

    node: NodeId


class Append(msgspec.Struct, frozen=True):
    """The leader's state machine appends a record."""

    node: NodeId
    record: int


class AddVoter(msgspec.Struct, frozen=True):
    """An operator asks the leader for another voter."""

    node: NodeId
    voter: NodeId
    directory: int


class Crash(msgspec.Struct, frozen=True):
    """A member's process ends."""

    node: NodeId
    loses_disk: bool


class Restart(msgspec.Struct, frozen=True):
    """A member's process starts."""

    node: NodeId


class Deliver(msgspec.Struct, frozen=True):
    """The message between an asker and a peer arrives."""

    asker: NodeId
    peer: NodeId
    message: int


class Received(msgspec.Struct, frozen=True):
    """A request arrives."""

    asker: NodeId
    request: Request


class Replied(msgspec.Struct, frozen=True):
    """An answer arrives."""

    peer: NodeId
    answer: Reply


Step = Tick | Append | AddVoter | Crash | Restart | Deliver
MemberEvent = Tick | Append | AddVoter | Crash | Restart | Received | Replied
Message = Request | Reply
Numbers = tuple[int, ...]


class Outcome(NamedTuple):
    """What an event did to a member: requests to peers, and an answer to an asker, by their numbers."""

    after: int
    sent: tuple[tuple[NodeId, int], ...]
    answered: tuple[tuple[NodeId, int], ...]


class Here(NamedTuple):
    """A state, unpacked; `messages` has one place for each ordered pair of asker and peer, 0 where there is none."""

    members: Numbers
    messages: Numbers
    tally: int


class QuorumWorld:
    """The transition system."""

    invariants = ("I1", "liveness", "assertion")

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self._nodes = tuple(NodeId(101 + index) for index in range(settings.voters + settings.observers))
        self._pairs = tuple((asker, peer) for asker in self._nodes for peer in self._nodes if asker != peer)
        self._place = {pair: index for index, pair in enumerate(self._pairs)}
        self._packing = struct.Struct(f"{1 + len(self._nodes) + len(self._pairs)}I")
        self._members = Cores(SmallMember.key)
        self._seen: dict[int, Seen] = {}
        self._messages: Numbered[Message | None] = Numbered()
        self._messages.number(None)
        self._tallies: Numbered[Tally] = Numbered()
        self._steps: Numbered[Step] = Numbered()
        self._outcomes: Remembered[MemberEvent, Outcome] = Remembered(self._work_out)
        self._elects: dict[tuple[Numbers, Numbers], bool] = {}

    # --- the engine's questions

    def start(self) -> State:
        """Return a quorum that has a leader; the observers follow it."""
        voters = self._nodes[: self.settings.voters]
        members = [SmallMember(node, voters) for node in self._nodes]
        here = Here(
            members=tuple(self._members.number(member) for member in members),
            messages=(0,) * len(self._pairs),
            tally=self._tallies.number(Tally(0, 0, 0, 0, 0, (), ())),
        )
        for index, node in enumerate(self._nodes):
            here = self._moved(here, index, Restart(node))
        here = self._calmed(here, everybody=True)
        assert any(self._look(number).leads for number in here.members), "nobody leads at the beginning"
        return self._packed(here)

    def steps(self, state: State) -> Iterator[tuple[int, State]]:
        """Yield what may happen next."""
        here = self._unpacked(state)
        for step, after in self._all(here):
            if after != here:
                yield self._steps.number(step), self._packed(after)

    def broken(self, state: State) -> list[Broken]:
        """Return the invariants that do not hold."""
        here = self._unpacked(state)
        seen = {node: self._look(number) for node, number in zip(self._nodes, here.members, strict=True)}
        found = [*_safety(seen, self._tallies[here.tally])]
        if not found and self._can_elect(seen) and not self._elects_in_calm(here):
            up = [node for node, one in seen.items() if one.alive]
            found.append(Broken(invariant="liveness", words=f"{up} are up and elect no leader, however long they try"))
        return found

    def words(self, step: int) -> str:
        """Describe a step."""
        return self._words(self._steps[step])

    def rows(self, state: State) -> list[Row]:
        """Describe the members and what is under way."""
        here = self._unpacked(state)
        rows = [
            Row(part=f"controller {node}", words=_member_words(self._look(number)))
            for node, number in zip(self._nodes, here.members, strict=True)
        ]
        under_way = [
            _message_words(asker, peer, self._messages[number])
            for (asker, peer), number in zip(self._pairs, here.messages, strict=True)
            if number
        ]
        return [*rows, Row(part="under way", words="; ".join(under_way) or "nothing")]

    def scenario(self, steps: Sequence[int], words: str) -> None:
        """Return none: faults of scenarios choose brokers and links, not single requests between controllers."""

    def not_explored(self) -> list[str]:
        """Return what does not happen here."""
        return [
            "a request that arrives after its asker gave it up",
            "writes that are not synced yet, snapshots, downloads",
            "a voter removed; another address of one; directories unknown to the voter set",
            "time limits that are drawn: the order in which they end is explored instead",
        ]

    def sizes(self) -> dict[str, int]:
        """Return how many states of each core were met."""
        return {"states of a member": len(self._members), "events of members worked out": len(self._outcomes)}

    # --- what may happen

    def _all(self, here: Here) -> Iterator[tuple[Step, Here]]:
        tally = self._tallies[here.tally]
        for index, node in enumerate(self._nodes):
            seen = self._look(here.members[index])
            if not seen.alive:
                if self.settings.restarts and not seen.failed:
                    yield Restart(node), self._moved(here, index, Restart(node))
                continue
            if tally.ticks < self.settings.ticks:
                yield (
                    Tick(node),
                    self._moved(self._tallied(here, tally._replace(ticks=tally.ticks + 1)), index, Tick(node)),
                )
            if tally.crashes < self.settings.crashes:
                yield from self._crashes(here, index, node, tally)
            if seen.leads:
                yield from self._of_leader(here, index, node, tally)
        for (asker, peer), message in zip(self._pairs, here.messages, strict=True):
            if message and self._is_up(here, asker) and self._is_up(here, peer):
                yield Deliver(asker, peer, message), self._delivered(here, asker, peer)

    def _crashes(self, here: Here, index: int, node: NodeId, tally: Tally) -> Iterator[tuple[Step, Here]]:
        crashed = self._tallied(here, tally._replace(crashes=tally.crashes + 1))
        kill = Crash(node, loses_disk=False)
        yield kill, self._moved(crashed, index, kill)
        if tally.wipes < self.settings.wipes:
            wipe = Crash(node, loses_disk=True)
            wiped = self._tallied(here, tally._replace(crashes=tally.crashes + 1, wipes=tally.wipes + 1))
            yield wipe, self._moved(wiped, index, wipe)

    def _of_leader(self, here: Here, index: int, node: NodeId, tally: Tally) -> Iterator[tuple[Step, Here]]:
        if tally.records < self.settings.records:
            append = Append(node, tally.records + 1)
            yield append, self._moved(self._tallied(here, tally._replace(records=tally.records + 1)), index, append)
        if tally.added < self.settings.observers:
            voter = self._nodes[self.settings.voters + tally.added]
            add = AddVoter(node, voter, self._look(here.members[self._nodes.index(voter)]).directory)
            yield add, self._moved(self._tallied(here, tally._replace(added=tally.added + 1)), index, add)

    def _delivered(self, here: Here, asker: NodeId, peer: NodeId) -> Here:
        place = self._place[asker, peer]
        message = self._messages[here.messages[place]]
        assert message is not None
        taken = here._replace(messages=_put(here.messages, place, 0))
        if isinstance(message, Request):
            return self._moved(taken, self._nodes.index(peer), Received(asker, message))
        return self._moved(taken, self._nodes.index(asker), Replied(peer, message))

    # --- how states change

    def _moved(self, here: Here, index: int, event: MemberEvent) -> Here:
        """Let an event happen to a member, and put what it sends under way."""
        node, outcome = self._nodes[index], self._outcomes.outcome(here.members[index], event)
        seen = self._look(outcome.after)
        messages = list(here.messages)
        for peer in self._nodes:
            if peer != node and peer not in seen.awaits:
                messages[self._place[node, peer]] = 0  # it waits for no answer any more
        for peer, number in outcome.sent:
            if peer in self._nodes:
                messages[self._place[node, peer]] = number
        for asker, number in outcome.answered:
            messages[self._place[asker, node]] = number
        after = Here(_put(here.members, index, outcome.after), tuple(messages), here.tally)
        return self._noted(after, node, seen)

    def _noted(self, here: Here, node: NodeId, seen: Seen) -> Here:
        """Note who leads which epoch and what is committed."""
        tally = self._tallies[here.tally]
        leaders = tally.leaders
        if seen.role == "Leader" and (seen.epoch, node) not in leaders:
            leaders = (*leaders, (seen.epoch, node))
        committed = grown(tally.committed, _below(seen.log, seen.high_watermark))
        return here._replace(tally=self._tallies.number(tally._replace(leaders=leaders, committed=committed)))

    def _tallied(self, here: Here, tally: Tally) -> Here:
        return here._replace(tally=self._tallies.number(tally))

    # --- calm

    def _can_elect(self, seen: Mapping[NodeId, Seen]) -> bool:
        """Return whether a majority of the voters is up: those of the longest log among the living."""
        living = [one for one in seen.values() if one.alive]
        if not living or any(one.leads for one in living):
            return False
        best = max(living, key=lambda one: (one.log[-1][0].epoch if one.log else -1, len(one.log)))
        up = {key_of(node, one.directory) for node, one in seen.items() if one.alive}
        votes = sum(any(voter.names(key) for key in up) for voter in best.voters)
        return votes > len(best.voters) // 2

    def _elects_in_calm(self, here: Here) -> bool:
        key = (here.members, here.messages)
        found = self._elects.get(key)
        if found is None:
            found = self._elects[key] = any(
                self._look(number).leads for number in self._calmed(here, everybody=False).members
            )
        return found

    def _calmed(self, here: Here, *, everybody: bool) -> Here:
        """Let the world run without faults until somebody leads (and, if asked, all know it)."""
        for turn in range(CALM_TURNS * len(self._nodes)):
            here = self._quiet(here)
            seen = [self._look(number) for number in here.members]
            if any(one.leads for one in seen) and (
                not everybody or all(one.leads or (one.role == "Follower" and one.log) for one in seen)
            ):
                return self._quiet(here)
            index = turn % len(self._nodes)
            if seen[index].alive:
                here = self._moved(here, index, Tick(self._nodes[index]))
        return here

    def _quiet(self, here: Here) -> Here:
        """Deliver what is under way, round by round, a bounded number of times: followers fetch for ever."""
        for _ in range(CALM_MESSAGES // len(self._pairs) + 1):
            for asker, peer in self._pairs:
                if here.messages[self._place[asker, peer]] and self._is_up(here, asker) and self._is_up(here, peer):
                    here = self._delivered(here, asker, peer)
        return here

    # --- the cores, asked once

    def _look(self, number: int) -> Seen:
        seen = self._seen.get(number)
        if seen is None:
            seen = self._seen[number] = self._members.core(number).seen()
        return seen

    def _is_up(self, here: Here, node: NodeId) -> bool:
        return self._look(here.members[self._nodes.index(node)]).alive

    def _work_out(self, number: int, event: MemberEvent) -> Outcome:
        member = self._members.core(number)
        sent: list[Sent | Answer] = []
        match event:
            case Tick():
                sent = member.tick()
            case Append(record=record):
                sent = member.append(f"record {record}")
            case AddVoter(voter=voter, directory=directory):
                sent = member.add_voter(key_of(voter, directory))
            case Crash(loses_disk=loses_disk):
                member.crash(loses_disk=loses_disk)
            case Restart():
                sent = member.start()
            case Received(asker=asker, request=request):
                sent = member.receive(asker, request)
            case Replied(peer=peer, answer=answer):
                sent = member.take(peer, answer)
        return Outcome(
            self._members.number(member),
            tuple((one.to, self._messages.number(one.request)) for one in sent if isinstance(one, Sent)),
            tuple((one.asker, self._messages.number(one.answer)) for one in sent if isinstance(one, Answer)),
        )

    def _packed(self, here: Here) -> State:
        return self._packing.pack(here.tally, *here.members, *here.messages)

    def _unpacked(self, state: State) -> Here:
        tally, *numbers = self._packing.unpack(state)
        count = len(self._nodes)
        return Here(tuple(numbers[:count]), tuple(numbers[count:]), tally)

    def _words(self, step: Step) -> str:
        match step:
            case Tick():
                return f"controller {step.node}'s time passes up to its next deadline"
            case Append():
                return f"leader {step.node} appends record {step.record}"
            case AddVoter():
                return f"the operator asks leader {step.node} to make controller {step.voter} a voter"
            case Crash(loses_disk=True):
                return f"controller {step.node} crashes, its disk is lost"
            case Crash():
                return f"controller {step.node} crashes"
            case Restart():
                return f"controller {step.node} starts"
            case Deliver():
                return f"delivered: {_message_words(step.asker, step.peer, self._messages[step.message])}"


def _safety(seen: Mapping[NodeId, Seen], tally: Tally) -> Iterator[Broken]:
    for node, one in seen.items():
        if one.failed:
            yield Broken(invariant="assertion", words=f"controller {node} ended itself: {one.failed}")
        shown = _below(one.log, one.high_watermark)
        if shown != tally.committed[: len(shown)]:
            yield Broken(invariant="I1", words=f"controller {node} has committed what others have not")
    led: dict[int, NodeId] = {}
    for epoch, node in tally.leaders:
        if led.setdefault(epoch, node) != node:
            yield Broken(invariant="I1", words=f"{led[epoch]} and {node} both led epoch {epoch}")


def _below(log: tuple[Written, ...], high_watermark: int) -> tuple[Written, ...]:
    return tuple(one for one in log if one[0].end_offset <= high_watermark)


def _put(numbers: Numbers, index: int, number: int) -> Numbers:
    return (*numbers[:index], number, *numbers[index + 1 :])


def _member_words(seen: Seen) -> str:
    log = ", ".join(f"{content} @{span.epoch}" for span, content in seen.log)
    if not seen.alive:
        return f"down{': ' + seen.failed if seen.failed else ''}, log [{log}]"
    kind = "voter" if seen.is_voter else "observer"
    leader = f", leader {seen.leader}" if seen.leader >= 0 else ", no leader known"
    return (
        f"{seen.role} ({kind}), epoch {seen.epoch}{leader}, voters {[voter.node_id for voter in seen.voters]}, "
        f"committed up to {seen.high_watermark}, log [{log}]"
    )


def _message_words(asker: NodeId, peer: NodeId, message: Message | None) -> str:
    if isinstance(message, Request):
        kind = "PreVote" if getattr(message, "pre_vote", False) else type(message).__name__.removesuffix("Request")
        return f"{asker} asks {peer}: {kind}"
    granted = getattr(message, "granted", None)
    said = "" if granted is None else ": granted" if granted else ": refused"
    return f"{peer} answers {asker}: {type(message).__name__.removesuffix('Answer')}{said}"
