"""One partition on three brokers and the controller that decides about it: who may lead, and what may be lost (KIP-966, KIP-903, KIP-101).

The cores are the product's: the controller with its partition change, ELR and AlterPartition checks, leaders and followers with their
logs and epoch caches, the brokers' view of the metadata. A proposal, an answer, a fetched batch of records or a batch of metadata may
take any time; a message that is never delivered is a lost one. Brokers are killed, lose what they had not synced, are fenced although
they live; an operator raises min.insync.replicas.

Judged is what KIP-966 promises: no committed record is lost as long as fewer than min ISR brokers lost the tail of their log.

Nodes are not merged by symmetry: the order of the replicas decides who is elected, so no two of them are alike.
"""

import struct
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import msgspec

from replog.types import BrokerEpoch, NodeId
from tribunal.harness.explore.cores import Cores, Numbered, Remembered, grown
from tribunal.harness.explore.engine import State
from tribunal.harness.explore.partition.broker import Fetch, Fetched, Proposed, Seen, SmallBroker
from tribunal.harness.explore.partition.controller import Batch, Known, SmallController
from tribunal.harness.explore.partition.events import (
    Answer,
    Arrived,
    Ask,
    Beat,
    Begin,
    BrokerEvent,
    ControllerEvent,
    Crash,
    Deliver,
    Expire,
    Heartbeat,
    Lag,
    Message,
    Produce,
    Raise,
    Replay,
    Restart,
    Retry,
    Settings,
    Step,
    Take,
    Tally,
)
from tribunal.harness.explore.partition.invariants import INVARIANTS, broken
from tribunal.harness.explore.partition.scenario import Moment, scenario
from tribunal.harness.explore.partition.words import (
    broker_words,
    controller_words,
    log_words,
    message_words,
    step_words,
)
from tribunal.results.explored import Broken, Row

Numbers = tuple[int, ...]  # one of each broker


class BrokerOutcome(NamedTuple):
    """What an event did to a broker."""

    after: int
    sent: tuple[int, ...]  # proposals
    fetched: int = -1


class ControllerOutcome(NamedTuple):
    """What an event did to the controller."""

    after: int
    batches: tuple[int, ...]
    answer: int = -1
    epoch: BrokerEpoch = BrokerEpoch(-1)


class Here(NamedTuple):
    """A state, unpacked: numbers of its parts."""

    controller: int
    brokers: Numbers
    unread: Numbers
    messages: int
    fetched: Numbers  # 0: no answer is under way; else one more than its number
    tally: int


class PartitionWorld:
    """The transition system."""

    invariants = INVARIANTS

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self._nodes = tuple(NodeId(1 + index) for index in range(settings.brokers))
        self._packing = struct.Struct(f"{3 + 3 * settings.brokers}I")
        self._brokers = Cores(SmallBroker.key)
        self._controllers = Cores(SmallController.key)
        self._seen: dict[int, Seen] = {}
        self._known: dict[int, Known] = {}
        self._asked: dict[int, Fetch | None] = {}
        self._batches: list[Batch] = []
        self._batch_numbers: Numbered[tuple[tuple[int, str, bytes], ...]] = Numbered()
        self._queues: Numbered[tuple[int, ...]] = Numbered()
        self._messages: Numbered[Message] = Numbered()
        self._under_way: Numbered[tuple[int, ...]] = Numbered()
        self._fetched: Numbered[Fetched] = Numbered()
        self._tallies: Numbered[Tally] = Numbered()
        self._steps: Numbered[Step] = Numbered()
        self._broker_outcomes = Remembered(self._work_out_broker)
        self._controller_outcomes = Remembered(self._work_out_controller)
        self._nothing = self._queues.number(())
        self._quiet = self._under_way.number(())
        self._broken: dict[tuple[int, Numbers, int], list[Broken]] = {}

    # --- the engine's questions

    def start(self) -> State:
        """Return three brokers that are all in sync, and an empty log."""
        controller = SmallController(
            min_isr=self.settings.min_isr, elr=self.settings.elr, unclean=self.settings.unclean
        )
        brokers = {node: SmallBroker(node, self.settings.min_isr) for node in self._nodes}
        epochs = {node: controller.register(node)[0] for node in self._nodes}
        for node in self._nodes:
            controller.heartbeat(node, epochs[node])
        controller.create_topic(self._nodes)
        image = controller.core.image
        for node in self._nodes:
            brokers[node].start(epochs[node], image.last_offset, image.snapshot())
        for node in self._nodes[1:]:
            fetch = brokers[node].fetch()
            assert fetch is not None
            fetched, _ = brokers[self._nodes[0]].answer_fetch(fetch)
            brokers[node].take_fetched(fetched)
        tally = Tally(produced=0, kills=0, tails=0, fences=0, raised=False, forgiven=False, committed=())
        return self._packed(
            Here(
                controller=self._controllers.number(controller),
                brokers=tuple(self._brokers.number(brokers[node]) for node in self._nodes),
                unread=(self._nothing,) * len(self._nodes),
                messages=self._quiet,
                fetched=(0,) * len(self._nodes),
                tally=self._tallies.number(tally),
            )
        )

    def steps(self, state: State) -> Iterator[tuple[int, State]]:
        """Yield what may happen next."""
        here = self._unpacked(state)
        for index, node in enumerate(self._nodes):
            seen = self._look(here.brokers[index])
            steps = self._of_living(here, index, node, seen) if seen.alive else self._of_dead(here, index, node)
            for step, after in steps:
                if after != here:
                    yield self._steps.number(step), self._packed(after)
        for step, after in self._of_all(here):
            if after != here:
                yield self._steps.number(step), self._packed(after)

    def broken(self, state: State) -> list[Broken]:
        """Return the invariants that do not hold."""
        here = self._unpacked(state)
        key = (here.controller, here.brokers, here.tally)
        found = self._broken.get(key)
        if found is None:
            known, tally = self._knows(here.controller), self._tallies[here.tally]
            seen = dict(zip(self._nodes, (self._look(number) for number in here.brokers), strict=True))
            found = broken(known, seen, tally)
            self._broken[key] = found
        return found

    def words(self, step: int) -> str:
        """Describe a step."""
        return step_words(self._steps[step], self._messages.values, self._batches)

    def step(self, number: int) -> Step:
        """Return a step as data."""
        return self._steps[number]

    def rows(self, state: State) -> list[Row]:
        """Describe the controller, the brokers and what is under way."""
        here = self._unpacked(state)
        known, tally = self._knows(here.controller), self._tallies[here.tally]
        rows = [Row(part="controller", words=controller_words(known))]
        for index, node in enumerate(self._nodes):
            waiting = len(self._queues[here.unread[index]])
            rows.append(Row(part=f"broker {node}", words=broker_words(node, self._look(here.brokers[index]), waiting)))
        under_way = [message_words(self._messages[one]) for one in self._under_way[here.messages]]
        under_way += [
            f"an answer to broker {node}'s fetch"
            for node, number in zip(self._nodes, here.fetched, strict=True)
            if number
        ]
        rows.append(Row(part="under way", words="; ".join(under_way) or "nothing"))
        rows.append(Row(part="committed", words=log_words(tally.committed)))
        return rows

    def scenario(self, steps: Sequence[int], words: str) -> str | None:
        """Return a scenario that makes a cluster take these steps."""
        return scenario(
            [self._moment(state) for state in self._states(steps)],
            [self._steps[step] for step in steps],
            self.settings,
            words,
        )

    def _states(self, steps: Sequence[int]) -> Iterator[State]:
        here = self.start()
        yield here
        for step in steps:
            here = next(after for taken, after in self.steps(here) if taken == step)
            yield here

    def _moment(self, state: State) -> Moment:
        here = self._unpacked(state)
        return Moment(
            seen={node: self._look(number) for node, number in zip(self._nodes, here.brokers, strict=True)},
            unread={node: len(self._queues[queue]) for node, queue in zip(self._nodes, here.unread, strict=True)},
            under_way={number: self._messages[number] for number in self._under_way[here.messages]},
        )

    def not_explored(self) -> list[str]:
        """Return what does not happen here."""
        return [
            "reassignment, log directories, topics deleted, controlled shutdown, records deleted",
            "a controller that fails over: there is one, and what it appends is committed at once",
            "unclean recovery by a manager (KIP-966, part 2); transactions; consumers",
            "a log that loses only the end of its tail; a fetch that brings only some of the records",
            "requests delivered twice; a fetch of an earlier incarnation",
        ]

    def sizes(self) -> dict[str, int]:
        """Return how many states of each core were met."""
        return {
            "states of a controller": len(self._controllers),
            "states of a broker": len(self._brokers),
            "events of controllers worked out": len(self._controller_outcomes),
            "events of brokers worked out": len(self._broker_outcomes),
        }

    def _packed(self, here: Here) -> State:
        return self._packing.pack(
            here.controller, here.messages, here.tally, *here.brokers, *here.unread, *here.fetched
        )

    def _unpacked(self, state: State) -> Here:
        controller, messages, tally, *numbers = self._packing.unpack(state)
        count = len(self._nodes)
        return Here(
            controller=controller,
            brokers=tuple(numbers[:count]),
            unread=tuple(numbers[count : 2 * count]),
            messages=messages,
            fetched=tuple(numbers[2 * count :]),
            tally=tally,
        )

    # --- what may happen

    def _of_dead(self, here: Here, index: int, node: NodeId) -> Iterator[tuple[Step, Here]]:
        outcome = self._controller_outcomes.outcome(here.controller, Restart(node))
        if outcome.epoch == -1:
            return
        after = self._published(here, outcome)
        begun = self._broker_outcomes.outcome(here.brokers[index], Begin(outcome.after, outcome.epoch))
        yield Restart(node), self._moved(after, index, begun)

    def _of_living(self, here: Here, index: int, node: NodeId, seen: Seen) -> Iterator[tuple[Step, Here]]:
        number, tally = here.brokers[index], self._tallies[here.tally]
        queue = self._queues[here.unread[index]]
        if queue:
            replay = Replay(node, queue[0])
            replayed = here._replace(unread=_put(here.unread, index, self._queues.number(queue[1:])))
            yield replay, self._moved(replayed, index, self._broker_outcomes.outcome(number, replay))
        if self._is_fenced(here, node):
            beat = self._controller_outcomes.outcome(here.controller, Heartbeat(node, seen.broker_epoch))
            yield Beat(node), self._published(here, beat)
        if seen.leads:
            yield Lag(node), self._moved(here, index, self._broker_outcomes.outcome(number, Lag(node)))
            if tally.produced < self.settings.records:
                produce = Produce(node, tally.produced + 1)
                outcome = self._broker_outcomes.outcome(number, produce)
                if outcome.after != number:
                    counted = self._tallied(here, tally._replace(produced=tally.produced + 1))
                    yield produce, self._moved(counted, index, outcome)
            if seen.pending is not None and not self._is_under_way(here, seen.pending):
                retry = Retry(node)
                yield retry, self._moved(here, index, self._broker_outcomes.outcome(number, retry))
        elif here.fetched[index]:
            fetched = here._replace(fetched=_put(here.fetched, index, 0))
            taken = self._broker_outcomes.outcome(number, Arrived(here.fetched[index] - 1))
            yield Take(node), self._moved(fetched, index, taken)
        else:
            yield from self._fetches(here, index, node)
        if tally.kills < self.settings.kills:
            killed, kill = tally._replace(kills=tally.kills + 1), Crash(node, loses_tail=False)
            yield kill, self._crashed(here, index, kill, killed)
            if tally.tails < self.settings.tails and seen.stored:
                lost, power_loss = killed._replace(tails=tally.tails + 1), Crash(node, loses_tail=True)
                yield power_loss, self._crashed(here, index, power_loss, lost)

    def _fetches(self, here: Here, index: int, node: NodeId) -> Iterator[tuple[Step, Here]]:
        fetch = self._fetch_of(here.brokers[index])
        seen = self._look(here.brokers[index])
        if fetch is None or seen.source is None:
            return
        source = self._nodes.index(seen.source)
        if not self._look(here.brokers[source]).alive:
            return
        outcome = self._broker_outcomes.outcome(here.brokers[source], fetch)
        answered = self._moved(here, source, outcome)
        taken = self._broker_outcomes.outcome(here.brokers[index], Arrived(outcome.fetched))
        yield Ask(node, at_once=True), self._moved(answered, index, taken)
        if self.settings.late_fetches and taken.after != here.brokers[index]:
            yield Ask(node, at_once=False), answered._replace(fetched=_put(here.fetched, index, outcome.fetched + 1))

    def _crashed(self, here: Here, index: int, crash: Crash, tally: Tally) -> Here:
        after = self._broker_outcomes.outcome(here.brokers[index], crash).after
        return self._tallied(here, tally)._replace(
            brokers=_put(here.brokers, index, after),
            unread=_put(here.unread, index, self._nothing),
            fetched=_put(here.fetched, index, 0),
            messages=self._without_answers(here.messages, self._nodes[index]),
        )

    def _of_all(self, here: Here) -> Iterator[tuple[Step, Here]]:
        tally = self._tallies[here.tally]
        for registered in self._knows(here.controller).brokers:
            if registered.fenced:
                continue
            expire, alive = Expire(registered.node), self._look(here.brokers[self._nodes.index(registered.node)]).alive
            if alive and tally.fences >= self.settings.fences:
                continue
            counted = self._tallied(here, tally._replace(fences=tally.fences + alive))
            yield expire, self._published(counted, self._controller_outcomes.outcome(here.controller, expire))
        if self.settings.raised_min_isr and not tally.raised:
            act = Raise(self.settings.raised_min_isr)
            raised = self._tallied(here, tally._replace(raised=True))
            yield act, self._published(raised, self._controller_outcomes.outcome(here.controller, act))
        for number in self._under_way[here.messages]:
            yield Deliver(number), self._delivered(here, number)

    def _delivered(self, here: Here, number: int) -> Here:
        message = self._messages[number]
        left = tuple(other for other in self._under_way[here.messages] if other != number)
        here = here._replace(messages=self._under_way.number(left))
        if isinstance(message, Proposed):
            outcome = self._controller_outcomes.outcome(here.controller, message)
            answered = self._published(here, outcome)
            sender = self._look(here.brokers[self._nodes.index(message.sender)])
            if sender.pending != message:
                return answered  # nobody waits for the answer
            return self._sent(answered, (outcome.answer,))
        index = self._nodes.index(message.proposed.sender)
        return self._moved(here, index, self._broker_outcomes.outcome(here.brokers[index], message))

    # --- how states change

    def _moved(self, here: Here, index: int, outcome: BrokerOutcome) -> Here:
        """Put a broker into its next state, send what it sends, and note what it shows as committed."""
        if outcome.after == here.brokers[index] and not outcome.sent:
            return here
        after = here._replace(brokers=_put(here.brokers, index, outcome.after))
        seen = self._look(outcome.after)
        if here.fetched[index] and seen.leader_epoch != self._look(here.brokers[index]).leader_epoch:
            after = after._replace(fetched=_put(after.fetched, index, 0))  # a new epoch begins with a new fetch
        if seen.pending != self._look(here.brokers[index]).pending:
            after = after._replace(messages=self._without_answers(after.messages, self._nodes[index]))
        if outcome.sent:
            after = self._sent(after, outcome.sent)
        if seen.leads:
            tally = self._tallies[after.tally]
            shown = seen.stored[: seen.high_watermark]
            after = self._tallied(after, tally._replace(committed=grown(tally.committed, shown)))
        return after

    def _sent(self, here: Here, messages: tuple[int, ...]) -> Here:
        before = self._under_way[here.messages]
        under_way = tuple(sorted({*before, *messages}))
        if len(under_way) > self.settings.lates:
            return here  # one more would be lost, as every message may be
        return here._replace(messages=self._under_way.number(under_way))

    def _published(self, here: Here, outcome: ControllerOutcome) -> Here:
        after = self._forgiven(here._replace(controller=outcome.after), here.controller)
        if not outcome.batches:
            return after
        if not self.settings.late_metadata:
            for index, node in enumerate(self._nodes):
                for batch in outcome.batches if self._look(after.brokers[index]).alive else ():
                    replayed = self._broker_outcomes.outcome(after.brokers[index], Replay(node, batch))
                    after = self._moved(after, index, replayed)
            return after
        unread = tuple(
            self._queues.number((*self._queues[queue], *outcome.batches)) if self._look(broker).alive else queue
            for broker, queue in zip(here.brokers, here.unread, strict=True)
        )
        return after._replace(unread=unread)

    def _forgiven(self, here: Here, before: int) -> Here:
        """Begin the committed prefix anew with a leader that is elected uncleanly, where the promise permits it.

        What counts is the smaller min ISR: a crash may have been before it was raised.
        """
        known, tally = self._knows(here.controller), self._tallies[here.tally]
        if not known.is_recovering or self._knows(before).is_recovering or tally.kills < self.settings.min_isr:
            return here
        elected = self._look(here.brokers[self._nodes.index(known.partition.leader)])
        left = elected.stored[: len(tally.committed)]
        return self._tallied(here, tally._replace(committed=left, forgiven=True))

    def _tallied(self, here: Here, tally: Tally) -> Here:
        return here._replace(tally=self._tallies.number(tally))

    def _without_answers(self, messages: int, node: NodeId) -> int:
        left = tuple(
            number
            for number in self._under_way[messages]
            if not (isinstance(message := self._messages[number], Answer) and message.proposed.sender == node)
        )
        return self._under_way.number(left)

    def _is_under_way(self, here: Here, proposed: Proposed) -> bool:
        for number in self._under_way[here.messages]:
            message = self._messages[number]
            if proposed == (message.proposed if isinstance(message, Answer) else message):
                return True
        return False

    def _is_fenced(self, here: Here, node: NodeId) -> bool:
        return any(broker.node == node and broker.fenced for broker in self._knows(here.controller).brokers)

    # --- the cores, asked once

    def _look(self, number: int) -> Seen:
        seen = self._seen.get(number)
        if seen is None:
            seen = self._seen[number] = self._brokers.core(number).seen()
        return seen

    def _knows(self, number: int) -> Known:
        known = self._known.get(number)
        if known is None:
            known = self._known[number] = self._controllers.core(number).known()
        return known

    def _fetch_of(self, number: int) -> Fetch | None:
        if number not in self._asked:
            self._asked[number] = self._brokers.core(number).fetch()
        return self._asked[number]

    def _work_out_broker(self, number: int, event: BrokerEvent) -> BrokerOutcome:
        broker = self._brokers.core(number)
        sent: list[Proposed] = []
        fetched = -1
        match event:
            case Produce(value=value):
                broker.produce(value)
            case Lag():
                sent = broker.lag()
            case Retry():
                sent = broker.retry()
            case Replay(batch=batch):
                sent = broker.replay(self._batches[batch])
            case Crash(loses_tail=loses_tail):
                broker.crash(loses_tail=loses_tail)
            case Answer(proposed=proposed, answer=answer):
                sent = broker.take_answer(proposed, answer)
            case Fetch():
                answered, sent = broker.answer_fetch(event)
                fetched = self._fetched.number(answered)
            case Arrived(fetched=number_of_answer):
                broker.take_fetched(self._fetched[number_of_answer])
            case Begin(controller=controller, epoch=epoch):
                image = self._controllers.core(controller).core.image
                sent = broker.start(epoch, image.last_offset, image.snapshot())
        return BrokerOutcome(self._brokers.number(broker), tuple(self._messages.number(one) for one in sent), fetched)

    def _work_out_controller(self, number: int, event: ControllerEvent) -> ControllerOutcome:
        controller = self._controllers.core(number)
        batches: list[Batch] = []
        answered, epoch = -1, BrokerEpoch(-1)
        match event:
            case Proposed():
                answer, batches = controller.alter_partition(event)
                answered = self._messages.number(Answer(event, answer))
            case Expire(node=node):
                batches = controller.expire(node)
            case Restart(node=node):
                epoch, batches = controller.register(node)
            case Raise(value=value):
                batches = controller.set_min_isr(value)
            case Heartbeat(node=node, epoch=broker_epoch):
                batches = controller.heartbeat(node, broker_epoch)
        numbers = tuple(self._batch_number(batch) for batch in batches)
        return ControllerOutcome(self._controllers.number(controller), numbers, answered, epoch)

    def _batch_number(self, batch: Batch) -> int:
        number = self._batch_numbers.number(
            tuple((offset, type(record).__name__, msgspec.msgpack.encode(record)) for offset, record in batch)
        )
        if number == len(self._batches):
            self._batches.append(batch)
        return number


def _put(numbers: Numbers, index: int, number: int) -> Numbers:
    return (*numbers[:index], number, *numbers[index + 1 :])
