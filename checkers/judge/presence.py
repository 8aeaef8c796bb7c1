"""Since when brokers could lead, since when a leader surely knew that its ISR was too small, and whom an ELR forgot.

All from what the harness observed. A broker can lead while it is registered, neither fenced nor in controlled shutdown, with its
log directories online, and its process runs.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator, Sequence, Set
from functools import cached_property
from itertools import islice, pairwise
from typing import Final

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from tribunal.checkers.guarantees import (
    CutLive,
    Elected,
    How,
    JoinedIsr,
    ProvenLoss,
    SettingsChanged,
    ShutDownUncleanly,
)
from tribunal.checkers.judge.cuts import with_cuts
from tribunal.checkers.judge.endings import ending
from tribunal.checkers.judge.incarnations import DOWN, NEVER, OF_ALL_BROKERS, OF_MANY, begun_ns, named, undone_ns
from tribunal.checkers.judge.removals import HEARTBEAT, Said, said
from tribunal.checkers.judge.timeline import OBSERVATION_LAG_NS, Entry, NodeSettings, Timeline
from tribunal.checkers.judge.waits import Waits
from tribunal.results.manifest import KRAFT, integer
from tribunal.results.metadata import (
    NO_LEADER,
    BrokerRegistrationChangeRecord,
    PartitionChangeRecord,
    PartitionRecord,
    RegisterBrokerRecord,
    State,
    decoded,
)
from tribunal.results.rows import Fault, typed

LED_WITHIN_NS: Final = (
    1_000_000_000  # of commits observed: an election is in the very batch that makes it possible (SPEC 2.6)
)
ENSEMBLE_LED_WITHIN_NS: Final = (
    5_000_000_000  # beyond the session's time-out, by which a controller of ZooKeeper mode is replaced
)
SETTLING_NS: Final = 2_000_000_000  # after a heal, until everybody has heard everything
SESSION_MS: Final = ("broker.session.timeout.ms", 9_000)
ENSEMBLE_SESSION_MS: Final = ("zookeeper.session.timeout.ms", 18_000)
QUORUM_REQUEST_MS: Final = ("controller.quorum.request.timeout.ms", 2_000)
FETCH: Final = 1
DELIVERED: Final = "delivered"
HELD: Final = "held"
OF_OTHERS_TOO: Final = OF_MANY | OF_ALL_BROKERS  # faults that hurt more than whom they name
OfRun = Callable[[str], pa.Table]
Place = tuple[str, int]  # a partition: topic, as the recording names it, and number
UNFENCED: Final = -1
# KIP-858: unassigned, and migrating from the time before directories were reported. Nobody has said where a replica in one of these lies.
ANYWHERE: Final = ("00000000-0000-0000-0000-000000000000", "00000000-0000-0000-0000-000000000002")


class Span(msgspec.Struct, frozen=True):
    """A time from `since_ns` on and before `until_ns`."""

    since_ns: int
    until_ns: int


class Leaderless(msgspec.Struct, frozen=True, kw_only=True):
    """A partition without leader although a member of its ISR could lead, or, that being empty, of its ELR or of the one that was taken from it."""

    since_ns: int
    until_ns: int
    node: int
    leader_epoch: int


class TooSmall(msgspec.Struct, frozen=True, kw_only=True):
    """A time in which the committed ISR was below min ISR, and the leader surely knew.

    by:        it holds for what this node said, the only leader it ever had or not, in leader epoch `of_epoch`; None: for what anybody said.
    """

    since_ns: int
    until_ns: int
    by: int | None
    of_epoch: int
    is_only: bool


class Led(msgspec.Struct, frozen=True, kw_only=True):
    """Every node that led a partition since its topic was created, as far as that was observed before `until_ns`."""

    nodes: tuple[int, ...]
    until_ns: int


def ever_led(history: Sequence[Entry], settings: NodeSettings, of_run: OfRun) -> Led | None:
    """Return who led a partition in its whole history, first leader epoch and all; None: nobody knows.

    returns:  None in ZooKeeper mode, where a leader acts on what its controller sent it, and where the history does not begin with leader epoch 0.
              An observer may lag by seconds: of the last two before its last record nothing is claimed.
    """
    if settings.get("mode") != KRAFT or not history or history[0].state.leader_epoch != 0:
        return None
    nodes = {entry.state.leader for entry in history} - {NO_LEADER}
    return Led(nodes=tuple(sorted(nodes)), until_ns=_observed_ns(of_run("metadata")) - SETTLING_NS)


def able(metadata: pa.Table, nodes: pa.Table) -> dict[int, list[Span]]:
    """Return when each broker could lead, as far as anybody observed it."""
    events = sorted([*_registered(metadata), *_lived(nodes)], key=lambda event: event[0])
    barred: dict[int, dict[str, bool]] = {}
    since: dict[int, int] = {}
    spans: dict[int, list[Span]] = {}
    for at_ns, node, what, is_barred in events:
        own = barred.setdefault(node, {"registration": True})
        own[what] = is_barred
        if not any(own.values()):
            since.setdefault(node, at_ns)
        elif node in since:
            spans.setdefault(node, []).append(Span(since.pop(node), at_ns))
    for node, at_ns in since.items():
        spans.setdefault(node, []).append(Span(at_ns, NEVER))
    return spans


def _registered(metadata: pa.Table) -> Iterator[tuple[int, int, str, bool]]:
    at_ns = 0
    for row in metadata.sort_by("metadata_offset").select(["at_ns", "record_type", "body"]).to_pylist():
        at_ns = max(at_ns, row["at_ns"] or 0)
        match row["record_type"]:
            case "RegisterBrokerRecord":
                body = msgspec.json.decode(row["body"])
                yield at_ns, body["broker_id"], "registration", body.get("fenced", True)
                yield at_ns, body["broker_id"], "shutdown", bool(body.get("in_controlled_shutdown"))
                yield at_ns, body["broker_id"], "directories", False
            case "BrokerRegistrationChangeRecord":
                body = msgspec.json.decode(row["body"])
                if body.get("fenced"):
                    yield at_ns, body["broker_id"], "registration", body["fenced"] == 1
                if body.get("in_controlled_shutdown"):
                    yield at_ns, body["broker_id"], "shutdown", True
                if body.get("log_dirs"):
                    yield at_ns, body["broker_id"], "directories", True
            case "UnregisterBrokerRecord":
                yield at_ns, msgspec.json.decode(row["body"])["broker_id"], "registration", True
            case _:
                pass  # says nothing of a broker


def _lived(nodes: pa.Table) -> Iterator[tuple[int, int, str, bool]]:
    for row in nodes.select(["node", "role", "event", "at_ns"]).to_pylist():
        if row["role"] == "broker" and (row["event"] in DOWN or row["event"] in ("start", "registered")):
            yield row["at_ns"], row["node"], "process", row["event"] in DOWN


def in_effect(faults: pa.Table, left_hurt: Set[int] = frozenset()) -> list[Span]:
    """Return when faults were in effect; one that was not undone never ends.

    left_hurt:  nodes of which what was never undone does not count.
    """
    spans = []
    for fault in typed(faults, Fault):
        since_ns = begun_ns(fault)
        if since_ns is None:
            continue
        until_ns = undone_ns(fault, without_proof=True)
        targets = named(fault)
        is_theirs = bool(targets) and targets <= left_hurt and fault.kind not in OF_OTHERS_TOO
        if until_ns < NEVER or not is_theirs:
            spans.append(Span(since_ns, until_ns))
    return spans


def leaderless(
    history: Sequence[Entry], settings: NodeSettings, of_run: OfRun, place: Place | None = None
) -> Leaderless | None:
    """Return for how long a partition was left without leader after the last heal, to the end or not, if that is too long.

    place:  the partition's topic, as the recording names it, and number; None where nobody knows: then no replica of it was ever on a disk that was replaced.
    """
    spans = list(_without_leader(history))
    if not spans:
        return None
    metadata, nodes, zookeeper = of_run("metadata"), of_run("nodes"), settings.get("mode") == "zookeeper"
    within_ns = ENSEMBLE_LED_WITHIN_NS + _session_ns(settings) if zookeeper else LED_WITHIN_NS
    # A quorum commits something all the time; in ZooKeeper mode nothing is written where nothing changes.
    clock = of_run("phases")["end_ns"] if zookeeper else metadata["at_ns"]
    observed = [0, *sorted({at_ns for at_ns in clock.to_pylist() if at_ns is not None})]
    able_spans, of_one = able(metadata, nodes), set() if zookeeper else _brokers_alone(nodes)
    intact, faults = _intact(history, nodes), of_run("faults")
    # An election is in the very batch that makes it possible, however slow the machine is; a controller of ZooKeeper mode has to act.
    waits = Waits.of(of_run("waits")) if zookeeper else Waits(())
    cuts = in_effect(with_cuts(faults.slice(0, 0), of_run("phases")))
    healed_ns: dict[int, int] = {}  # when the last fault was undone that keeps a node from being elected
    known_gone: dict[int, list[Span]] = {}
    for entry, ended_ns, cleared in spans:
        # What was committed together with the next change says nothing of the time before.
        before_ns = observed[max(bisect_left(observed, ended_ns) - 1, 0)]
        until_ns = ended_ns if zookeeper and ended_ns < NEVER else before_ns
        for node in sorted({*(entry.state.isr or entry.state.elr or intact.intersection(cleared))}):
            if node not in healed_ns:
                hurts = in_effect(faults, of_one - {node})
                healed_ns[node] = max((fault.until_ns for fault in hurts), default=0)
            since_ns = max(entry.at_ns, healed_ns[node])
            if until_ns - since_ns <= within_ns:
                continue  # of very many: nothing else is looked for of these
            if not zookeeper and not entry.settings.elr and node in _emptied(history, ended_ns):
                continue
            if node not in known_gone and not zookeeper and place is not None:
                known_gone[node] = passed_over(metadata, place, node)
            gone = [] if entry.settings.elr else known_gone.get(node, [])
            for could_lead in able_spans.get(node, ()):
                led = Span(max(since_ns, could_lead.since_ns), min(until_ns, could_lead.until_ns))
                for alone in without(led, [*cuts, *gone]):
                    waited_ns = waits.within(alone.since_ns, alone.until_ns)
                    if alone.until_ns - alone.since_ns - waited_ns > within_ns:
                        epoch = entry.state.leader_epoch
                        return Leaderless(
                            since_ns=alone.since_ns, until_ns=alone.until_ns, node=node, leader_epoch=epoch
                        )
    return None


def passed_over(metadata: pa.Table, place: Place, node: int) -> list[Span]:
    """Return when a broker is not elected in a partition because metadata said, when it was unfenced, that its replica lies in a directory that it has no longer.

    Its disk was replaced. It says then where the replica lies now, and of the last member of an ISR no election follows from that (KIP-858): the next one is
    when a broker with a replica is unfenced (SPEC 2.4.2). With ELR it is in neither list any more (KIP-966).
    """
    at_ns, since_ns, spans = 0, None, []
    directories, own = frozenset[str](), ""
    replicas: tuple[int, ...] = ()
    columns = ["at_ns", "record_type", "topic", "partition", "body"]
    for row in metadata.sort_by("metadata_offset").select(columns).to_pylist():
        at_ns = max(at_ns, row["at_ns"] or 0)
        match decoded(row["record_type"], row["body"]):
            case RegisterBrokerRecord() as one:
                directories = frozenset(one.log_dirs or ()) if one.broker_id == node else directories
                is_asked = not one.fenced and one.broker_id in replicas
            case BrokerRegistrationChangeRecord() as one:
                is_asked = one.fenced == UNFENCED and one.broker_id in replicas
            case PartitionRecord() | PartitionChangeRecord() as one if (row["topic"], row["partition"]) == place:
                replicas = replicas if one.replicas is None else one.replicas
                own = dict(zip(replicas, one.directories or (), strict=False)).get(node, own)
                is_asked = one.leader > NO_LEADER
            case _:
                continue
        is_gone = bool(directories) and own not in {"", *ANYWHERE, *directories}
        if is_asked and is_gone and since_ns is None:
            since_ns = at_ns
        elif is_asked and not is_gone and since_ns is not None:
            spans.append(Span(since_ns, at_ns))
            since_ns = None
    return spans if since_ns is None else [*spans, Span(since_ns, NEVER)]


def _emptied(history: Sequence[Entry], until_ns: int) -> set[int]:
    """Return the nodes whose disk lost the whole log, and that were not whole again since: another directory has taken its place.

    Without ELR such a member stays in the ISR, and is not elected as if it were whole (docs/spec.md, 2.6.4).
    """
    hurt = ending([entry for entry in history if entry.at_ns < until_ns]).hurt
    return {node for node, from_offset, _ in hurt if from_offset == 0}


def _without_leader(history: Sequence[Entry]) -> Iterator[tuple[Entry, int, tuple[int, ...]]]:
    """Yield the changes that left a partition without leader, when the next one was observed (NEVER where there was none), and whose ELR was cleared."""
    places = [place for place, entry in enumerate(history) if entry.changed or entry.removed]
    cleared: tuple[int, ...] = ()
    for number, place in enumerate(places):
        entry = history[place]
        cleared = (
            (cleared or _cleared(history, places[number - 1], place)) if number and _has_nobody(entry.state) else ()
        )
        if not entry.removed and entry.state.leader == NO_LEADER:
            yield entry, history[places[number + 1]].at_ns if number + 1 < len(places) else NEVER, cleared


def _cleared(history: Sequence[Entry], before: int, place: int) -> tuple[int, ...]:
    """Return the ELR that a change of min ISR took from a partition whose ISR is empty.

    KIP-966 lets it go "if the new min ISR <= current ISR": an empty one is never large enough, whatever the value (D5).
    """
    former, entry = history[before].state, history[place]
    if former.isr or entry.facts or entry.removed or former.replicas != entry.state.replicas or not entry.settings.elr:
        return ()
    beside = (*history[place - 1 : place], *history[place + 1 : place + 2])
    ordered = any(
        isinstance(fact, SettingsChanged) and one.at_ns == entry.at_ns for one in beside for fact in one.facts
    )
    return former.elr if ordered else ()


def _has_nobody(state: State) -> bool:
    return state.leader == NO_LEADER and not state.isr and not state.elr


def _intact(history: Sequence[Entry], nodes: pa.Table) -> set[int]:
    """Return the nodes whose disks surely kept everything: no fault took of it, and each registration names the one before it (KIP-966: clean)."""
    hurt = {
        fact.node
        for entry in history
        for fact in entry.facts
        if isinstance(fact, ShutDownUncleanly | ProvenLoss | CutLive)
    }
    rows = nodes.filter(pc.equal(nodes["event"], "registered")).sort_by("at_ns")
    former: dict[int, int | None] = {}
    for row in rows.select(["node", "broker_epoch", "previous_broker_epoch"]).to_pylist():
        node, epoch, said = row["node"], row["broker_epoch"], row["previous_broker_epoch"]
        # A process that registers once more keeps its epoch, and says again what it said before.
        if node in former and (former[node] is None or former[node] not in (epoch, said)):
            hurt.add(node)
        former[node] = epoch
    return set(former) - hurt


def _brokers_alone(nodes: pa.Table) -> set[int]:
    """Return the nodes that are brokers and nothing else: what hurts one of them keeps no other one from being elected."""
    roles: dict[int, set[str]] = {}
    for row in nodes.select(["node", "role"]).to_pylist():
        roles.setdefault(row["node"], set()).add(row["role"])
    return {node for node, own in roles.items() if own == {"broker"}}


def _session_ns(settings: NodeSettings) -> int:
    name, default = ENSEMBLE_SESSION_MS if settings.get("mode") == "zookeeper" else SESSION_MS
    return integer(settings, name, default) * 1_000_000


def below_min_isr(history: Sequence[Entry], settings: NodeSettings, of_run: OfRun) -> list[TooSmall]:
    """Return when the committed ISR was too small and the leader knew it for certain.

    A change is committed up to the lag of observation before it was observed. A leader knows a change that began its own leader epoch; any
    other one that its ISR shrank by half a lag later if nothing was hurt then, and when a controller has answered it since.
    """
    if "min.insync.replicas" not in settings or not history:
        return []
    ends = [*(entry.at_ns for entry in history[1:]), _observed_ns(of_run("metadata"))]
    hurts = in_effect(with_cuts(of_run("faults"), of_run("phases")))
    faults = [Span(one.since_ns, one.until_ns + SETTLING_NS) for one in hurts]
    leaders = {entry.state.leader for entry in history} - {NO_LEADER}
    found: list[TooSmall] = []
    heartbeats: _Heartbeats | None = None  # read where the first change asks for it
    first = 0
    for place, entry in enumerate(history):
        if place and not _same(history[place - 1], entry):
            first = place
        if not _is_small(entry) or (place + 1 < len(history) and _same(history[place + 1], entry)):
            continue  # all is well, or goes on like this
        until_ns = ends[place] - OBSERVATION_LAG_NS
        leader, epoch = _term(entry)
        began = first == 0 or history[first - 1].state.leader_epoch != epoch
        before = {leader} if first == 0 else {leader, history[first - 1].state.leader}
        heartbeats = (
            _Heartbeats(of_run("metadata"), of_run("requests"), hurts, settings) if heartbeats is None else heartbeats
        )
        ignorant_ns = heartbeats.ignorant_ns(before, history[first].at_ns)
        known = Span(max(history[first].at_ns + OBSERVATION_LAG_NS // 2, ignorant_ns), until_ns)
        known_ns = -1
        if not began:
            known_ns = max(heartbeats.known_ns(leader, history[first].at_ns), ignorant_ns)
        times: list[tuple[Span, int | None]] = [(quiet, None) for quiet in without(known, faults)]
        times += [(Span(known_ns, until_ns), leader)] if known_ns < until_ns else []
        found += [
            TooSmall(since_ns=time.since_ns, until_ns=time.until_ns, by=by, of_epoch=epoch, is_only=len(leaders) == 1)
            for time, by in times
        ]
    return found


class _Heartbeats:
    """What brokers said to controllers and heard from them: read once, and asked in the order of what was committed."""

    def __init__(self, metadata: pa.Table, requests: pa.Table, faults: Sequence[Span], settings: NodeSettings) -> None:
        self._requests, self._faults, self._settings = requests, faults, settings
        self._offsets: dict[int, int] = {}  # by when it was committed, the first record
        for at_ns, offset in zip(metadata["at_ns"].to_pylist(), metadata["metadata_offset"].to_pylist(), strict=True):
            if at_ns is not None:
                self._offsets[at_ns] = min(offset, self._offsets.get(at_ns, offset))
        self._said: dict[int, list[Said]] = {}
        for one in said(requests):
            self._said.setdefault(one.node, []).append(one)
        self._answered: dict[int, list[int]] = {}
        self._asked: dict[int, list[int]] = {}
        self._controllers: dict[int, set[int]] = {}
        for row in requests.filter(pc.equal(requests["api_key"], HEARTBEAT)).sort_by("at_ns").to_pylist():
            if row["direction"] == "request":
                self._asked.setdefault(row["from"], []).append(row["at_ns"])
            elif row["direction"] == "response":
                self._controllers.setdefault(row["to"], set()).add(row["from"])
                if row["fate"] == DELIVERED:
                    self._answered.setdefault(row["to"], []).append(row["at_ns"])
        self._spans: dict[int, list[Span]] = {}

    def ignorant_ns(self, nodes: Set[int], since_ns: int) -> int:
        """Return when one of these nodes last said, by a heartbeat, that it did not know yet what was committed at a moment; -1: none did.

        A node that has said that it knows has known since: what a later process of it does not know yet, this one knew.
        """
        committed = self._offsets.get(since_ns)
        if committed is None:
            return -1
        last_ns = -1
        for node in nodes:
            own = self._said.get(node, [])
            for one in islice(own, bisect_left(own, since_ns, key=lambda said: said.at_ns), None):
                if one.metadata_offset >= committed:
                    break
                last_ns = max(last_ns, one.at_ns)
        return last_ns

    def known_ns(self, leader: int, since_ns: int) -> int:
        """Return when a leader surely knew what was committed before: it asked once more after a controller had answered its heartbeat.

        A heartbeat brings no metadata: while a leader was hindered to fetch them it may know nothing, however often it was answered.
        """
        if leader not in self._spans:
            self._spans[leader] = sorted(self._hindered(leader), key=lambda one: one.since_ns)
        # Those that are over by now are over for all that was committed later.
        spans = self._spans[leader] = [one for one in self._spans[leader] if one.until_ns > since_ns]
        known_ns = self._asked_again(leader, since_ns)
        for span in spans:
            if span.since_ns > known_ns:
                break
            if span.until_ns > since_ns:
                since_ns = span.until_ns
                known_ns = self._asked_again(leader, since_ns)
        return known_ns

    def _asked_again(self, node: int, since_ns: int) -> int:
        """Return when a node asked once more after the first answer since a moment. NEVER: it did not."""
        answered, asked = self._answered.get(node, []), self._asked.get(node, [])
        place = bisect_right(answered, since_ns)
        if place == len(answered):
            return NEVER
        place = bisect_right(asked, answered[place])
        return asked[place] if place < len(asked) else NEVER

    def _hindered(self, leader: int) -> Iterator[Span]:
        """Yield when messages of a leader's fetches from controllers did not arrive as they were sent.

        What is held arrives when its fault ends; behind anything else the leader fetches again, once it waits no longer.
        """
        controllers = self._controllers.get(leader, set())
        waits_ns = integer(self._settings, *QUORUM_REQUEST_MS) * 1_000_000
        for source, target, fate, at_ns in self._not_arrived:
            other = target if source == leader else source if target == leader else None
            if other not in controllers:
                continue
            until_ns = at_ns + waits_ns
            if fate == HELD:
                ends_ns = [
                    one.until_ns for one in self._faults if one.since_ns - OBSERVATION_LAG_NS <= at_ns <= one.until_ns
                ]
                until_ns = max(ends_ns, default=NEVER)
            yield Span(at_ns, min(until_ns + SETTLING_NS, NEVER))

    @cached_property
    def _not_arrived(self) -> list[tuple[int, int, str, int]]:
        """Who sent whom the messages of fetches that did not arrive as they were sent, what became of them, and when."""
        fates = self._requests["fate"]
        rows = self._requests.filter(
            pc.and_(pc.equal(self._requests["api_key"], FETCH), pc.not_equal(fates, DELIVERED))
        )
        return [*zip(*(rows[name].to_pylist() for name in ("from", "to", "fate", "at_ns")), strict=True)]


def _observed_ns(metadata: pa.Table) -> int:
    return max((at_ns for at_ns in metadata["at_ns"].to_pylist() if at_ns is not None), default=0)


def _is_small(entry: Entry) -> bool:
    least = entry.settings.effective_min_isr
    return entry.state.leader != NO_LEADER and len(dict.fromkeys(entry.state.isr)) < least


def _term(entry: Entry) -> tuple[int, int]:
    return entry.state.leader, entry.state.leader_epoch


def _same(entry: Entry, other: Entry) -> bool:
    """Whether an entry's ISR is too small, under the same leader in the same leader epoch as another one's."""
    return _is_small(entry) and _term(entry) == _term(other)


def without(span: Span, others: Sequence[Span]) -> Iterator[Span]:
    """Yield what is left of a time without others."""
    since_ns = span.since_ns
    for other in sorted(others, key=lambda one: one.since_ns):
        if since_ns < min(other.since_ns, span.until_ns):
            yield Span(since_ns, min(other.since_ns, span.until_ns))
        since_ns = max(since_ns, other.until_ns)
    if since_ns < span.until_ns:
        yield Span(since_ns, span.until_ns)


def forgotten(timeline: Timeline) -> Iterator[tuple[int, int]]:
    """Yield the entries, by position, with a node that leaves ISR and ELR although the ELR should have kept it (SPEC 2.5.2).

    Below min ISR a member that leaves the ISR goes over to the ELR, and stays there until it is back, has registered after an unclean shutdown,
    or is no replica any more. An election that was not clean empties the ELR, and so does a change of min ISR. Whoever began another
    life meanwhile may have been unclean, if nobody recorded how the former one ended. A topic that is made anew begins with replicas that have all of it.
    """
    unclean: dict[int, None] = {}
    joined_ns: dict[int, int] = {}
    made_ns = timeline.entries[0].at_ns if timeline.entries else 0
    for position, (before, entry) in enumerate(pairwise(timeline.entries), start=1):
        if entry.made_anew != before.made_anew:
            unclean, joined_ns, made_ns = {}, {}, entry.at_ns
        for fact in (*(before.facts if position == 1 else ()), *entry.facts):
            match fact:
                case ShutDownUncleanly(node=node):
                    unclean[node] = None
                case JoinedIsr(node=node):
                    unclean.pop(node, None)
                    joined_ns[node] = entry.at_ns
                case Elected(leader=node, how=how) if how is not How.CLEAN:
                    unclean.pop(node, None)
                case _:
                    pass  # says nothing of who may be in the ELR
        if not _keeps(before, entry, timeline.entries[position + 1 : position + 2]):
            continue
        # The change that an unclean registration makes stands before it, in the same batch.
        following = [fact for one in timeline.entries[position + 1 : position + 2] for fact in one.facts]
        registering = [fact.node for fact in following if isinstance(fact, ShutDownUncleanly)]
        kept = (*entry.state.isr, *entry.state.elr, *registering)
        for node in dict.fromkeys((*before.state.isr, *before.state.elr)):
            since_ns = joined_ns.get(node, made_ns)
            restarted = timeline.restarted_between(node, since_ns, entry.at_ns + OBSERVATION_LAG_NS)
            is_replica = node in entry.state.replicas  # a reassignment that takes others away, or none, keeps it
            if is_replica and node not in kept and node not in unclean and not restarted:
                yield position, node


def _keeps(before: Entry, entry: Entry, after: Sequence[Entry]) -> bool:
    """Whether a change has to leave everybody who was in the ISR or the ELR in one of the two."""
    # A change of the partition that has one changed its replication factor only.
    beside = [fact for one in (before, *after) if not one.changed for fact in one.facts]
    ordered = any(isinstance(fact, SettingsChanged) for fact in beside)
    elected = any(isinstance(fact, Elected) and fact.how is not How.CLEAN for fact in entry.facts)
    is_small = len(dict.fromkeys(entry.state.isr)) < entry.settings.effective_min_isr
    same = before.made_anew == entry.made_anew and before.settings.elr and entry.settings.elr
    return entry.changed and is_small and same and not ordered and not elected
