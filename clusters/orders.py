"""What operators ordered of a cluster, as the recording's table `admin` has it: one row for each thing that an order names.

Whoever asks as an operator wraps the asking in `Orders.given`. An order that was surely refused is `fail`; one that nobody answered, or
that was refused when an earlier attempt may have been carried out already, is `info`: it may have been done.
"""

from collections.abc import AsyncGenerator, Callable, Iterable, Mapping
from contextlib import asynccontextmanager
from typing import Final, Literal

import msgspec

from replog.types import TopicPartition
from tribunal.clusters.values import ClusterError, Refused
from tribunal.results.admin_apis import AdminApi
from tribunal.results.topic_names import TopicNames

AGAIN: Final = "an attempt before the answered one may be carried out yet"


class Order(msgspec.Struct, frozen=True, kw_only=True):
    """One thing that an operator asks for (docs/recording-format.md, admin); null: not named."""

    api: AdminApi
    topic: str | None = None
    partition: int | None = None
    log_offset: int | None = None
    setting: str | None = None
    value: str | None = None
    group: str | None = None


class OrderSeen(msgspec.Struct, frozen=True, kw_only=True):
    """An order, when it was given, and what came of it."""

    order: Order
    topic_id: str | None
    outcome: Literal["ok", "fail", "info"]
    error: str | None
    invoke_ns: int
    complete_ns: int | None


class Asked:
    """An order under way; `left_in_doubt`: an attempt before the one that was answered may be carried out yet."""

    def __init__(self) -> None:
        self.left_in_doubt = False


class Orders:
    """Takes note of orders until somebody asks for them.

    topic_ids:  of the topics that there are now: a name may stand for another topic later.
    """

    def __init__(self, now_ns: Callable[[], int], topic_ids: Callable[[], Mapping[str, str]]) -> None:
        self._now_ns = now_ns
        self._topic_ids = topic_ids
        self._seen: list[OrderSeen] = []

    @asynccontextmanager
    async def given(self, *orders: Order) -> AsyncGenerator[Asked]:
        """Note how an order ends that is given inside: it is unknown where the asking does not come to an end.

        One that was answered is `ok`, and once more `info` where it was left in doubt.
        """
        asked = Asked()
        invoke_ns, ids = self._now_ns(), self._topic_ids()
        outcome: Literal["ok", "fail", "info"] = "info"
        error: str | None = "not answered"
        complete_ns: int | None = None
        try:
            yield asked
            outcome, error, complete_ns = "ok", None, self._now_ns()
        except ClusterError as problem:
            # Of several things one may have been refused and another one done.
            outcome = "fail" if isinstance(problem, Refused) and len(orders) == 1 else "info"
            error, complete_ns = str(problem), self._now_ns()
            raise
        finally:
            seen = [
                OrderSeen(
                    order=order,
                    topic_id=None if order.topic is None else ids.get(order.topic),
                    outcome=outcome,
                    error=error,
                    invoke_ns=invoke_ns,
                    complete_ns=complete_ns,
                )
                for order in orders
            ]
            self._seen += seen
            if outcome == "ok" and asked.left_in_doubt:
                self._seen += [
                    msgspec.structs.replace(one, outcome="info", error=AGAIN, complete_ns=None) for one in seen
                ]

    def drain(self) -> list[OrderSeen]:
        """Return what was ordered since the last call."""
        seen, self._seen = self._seen, []
        return seen


def elections(partitions: Iterable[TopicPartition], kind: str) -> list[Order]:
    """Return the order of an election of each partition's leader, `UNCLEAN` or `PREFERRED`."""
    return [
        Order(api=AdminApi.ELECT_LEADERS, topic=topic, partition=number, value=kind) for topic, number in partitions
    ]


def named(seen: OrderSeen, names: TopicNames) -> OrderSeen:
    """Return an order with the recorded name of its topic."""
    if seen.order.topic is None:
        return seen
    topic = names.of(seen.order.topic, seen.topic_id)
    return msgspec.structs.replace(seen, order=msgspec.structs.replace(seen.order, topic=topic))


def admin_row(seen: OrderSeen) -> dict[str, str | int | None]:
    """Return an order as a row of `admin`."""
    order: dict[str, str | int | None] = msgspec.to_builtins(seen.order)
    columns: dict[str, str | int | None] = msgspec.to_builtins(seen)
    return {name: value for name, value in columns.items() if name != "order"} | order
