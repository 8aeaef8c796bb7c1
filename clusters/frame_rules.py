"""The rules that decide what becomes of single messages, for relays and simulator alike.

Rules are asked in order; the first that wants a message decides its fate. What is held waits for its gate: the rule's release
opens it, or its time does. A doubled request is answered twice, and the second answer is swallowed: clients take an answer
that they did not ask for as garbage.

Who carries the messages, and how what waits keeps its place in a stream, is not known here: `links/relay.py` does it with
bytes between sockets, `simulated/frames.py` with the frames of simulated connections.
"""

from collections.abc import Callable
from typing import Final, Protocol

from tribunal.clusters.api import ClusterError
from tribunal.clusters.capabilities import FrameRule, RuleInForce

PENDING_MAX: Final = 2_000  # questions remembered a connection: some (acks=0) are never answered
UNKNOWN: Final = -1
UNASKED: Final = (UNKNOWN, UNKNOWN)  # API key and version of an answer to no known question


class Message(Protocol):
    """One message on its way: who asks what, and who decided about it. Nodes are numbers, CLIENTS included."""

    api: int
    version: int
    correlation_id: int
    is_request: bool
    rule: "Rule | None"

    @property
    def source(self) -> int:
        """Who sends it."""

    @property
    def target(self) -> int:
        """Who gets it."""


class Gate:
    """What holds a message back until it is opened."""

    __slots__ = ("_on_open", "_rule", "is_open")

    def __init__(self, rule: "Rule", on_open: Callable[[], None]) -> None:
        self.is_open = False
        self._rule = rule
        self._on_open = on_open

    def open(self) -> None:
        """Let the message go on; nothing when it has gone already."""
        if self.is_open:
            return
        self.is_open = True
        self._rule.forget(self)
        self._on_open()


class Rule:
    """A rule in force."""

    def __init__(self, rule: FrameRule) -> None:
        self.rule = rule
        self.hit_count = 0
        self._shut: dict[Gate, None] = {}  # in the order of their messages

    @property
    def held_count(self) -> int:
        """How many messages wait."""
        return len(self._shut)

    def takes(self, message: Message) -> bool:
        """Return whether this rule decides on the message, and count it."""
        rule = self.rule
        if (
            (rule.limit is not None and self.hit_count >= rule.limit)
            or message.is_request != (rule.direction == "request")
            or rule.api not in (None, message.api)
            or rule.source not in (None, message.source)
            or rule.target not in (None, message.target)
        ):
            return False
        self.hit_count += 1
        return True

    def gate(self, on_open: Callable[[], None]) -> Gate:
        """Make a gate that this rule keeps shut; `on_open` is called when it opens."""
        gate = Gate(self, on_open)
        self._shut[gate] = None
        return gate

    def forget(self, gate: Gate) -> None:
        """Count a gate no more."""
        del self._shut[gate]

    def open_gates(self) -> int:
        """Open all gates, one after the other; return how many there were."""
        gates = list(self._shut)
        for gate in gates:
            gate.open()
        return len(gates)


class Rules:
    """The rules of a network, in the order in which they are asked."""

    def __init__(self) -> None:
        self.in_force: list[Rule] = []

    def add(self, rule: FrameRule) -> Rule:
        """Ask this rule about every message from now on, after those before it."""
        found = Rule(rule)
        self.in_force.append(found)
        return found

    def release(self, rule: RuleInForce) -> int:
        """Let go on what a rule holds now; return how many messages."""
        return _own(rule).open_gates()

    def remove(self, rule: RuleInForce) -> int:
        """Ask it no more, and let go on what it holds; return how many messages."""
        if rule in self.in_force:
            self.in_force.remove(_own(rule))
        return self.release(rule)

    def clear(self) -> None:
        """Ask nothing any more; what is held stays where it is."""
        self.in_force.clear()

    def decide(self, message: Message) -> Rule | None:
        """Let the first rule that wants a message have it; return that rule."""
        message.rule = next((rule for rule in self.in_force if rule.takes(message)), None)
        return message.rule


class Questions:
    """The questions of one connection that wait for an answer."""

    def __init__(self) -> None:
        self.doubled: dict[int, int] = {}  # correlation id -> answers that nobody waits for
        self._asked: dict[int, tuple[int, int]] = {}  # correlation id -> API key and version

    def ask(self, correlation_id: int, identity: tuple[int, int]) -> None:
        """Remember a request."""
        if len(self._asked) >= PENDING_MAX:
            self._asked.pop(next(iter(self._asked)))
        self._asked[correlation_id] = identity

    def answer(self, correlation_id: int) -> tuple[int, int]:
        """Return what is answered, and forget it; UNASKED where that is not known."""
        return self._asked.pop(correlation_id, UNASKED)

    def double(self, correlation_id: int) -> None:
        """Expect one answer more than was asked for."""
        self.doubled[correlation_id] = self.doubled.get(correlation_id, 0) + 1

    def swallows(self, correlation_id: int) -> bool:
        """Return whether an answer to no known question is one too many, and expect one fewer."""
        if not self.doubled.get(correlation_id):
            return False
        self.doubled[correlation_id] -= 1
        return True


def _own(rule: RuleInForce) -> Rule:
    if not isinstance(rule, Rule):
        raise ClusterError("this rule is another cluster's")
    return rule
