"""Which groups lack a record, and what let each of them go on beyond it: it had read on there before (R12), or an order had set it beyond.

Who lacks what is said by the properties themselves. What groups did is sorted once, for one may lack very much.
"""

from collections.abc import Callable, Sequence
from functools import cached_property
from typing import Final

import numpy as np

from tribunal.checkers.api import TAIL, UNKNOWN, Anomaly, Array, Context, PartitionRows, distinct, is_among
from tribunal.checkers.judge.leasts import Leasts
from tribunal.checkers.judge.orders import Order
from tribunal.checkers.judge.remembered import by_order
from tribunal.checkers.judge.timeline import Judgement
from tribunal.checkers.properties import exactly_once, group_members
from tribunal.checkers.properties.group_offsets import answered, may_count

PASSED_OVER: Final = "passed_over"
HadReadOn = Callable[[int, Array], Judgement | None]


class Rewinds:
    """What one partition's groups lack."""

    def __init__(self, rows: PartitionRows, context: Context, orders: Sequence[Order], had_read_on: HadReadOn) -> None:
        """Take what groups did.

        orders:       those that set positions in this partition.
        had_read_on:  says what permitted the loss of what some readers, distinct and ascending, had read at or beyond an offset.
        """
        self._rows, self._context, self._orders, self._had_read_on = rows, context, orders, had_read_on
        self._overwriting: dict[tuple[str, int], Leasts] = {}

    def excuse(self, anomaly: Anomaly) -> Judgement | None:
        """Look whether each group that lacks a record had read on beyond it in an older leader epoch, or was set beyond it."""
        assert anomaly.log_offset is not None
        offset = anomaly.log_offset
        found = [
            self._had_read_on(offset, self._members[group]) or self._set_beyond(offset, group)
            for group in self._lacking(offset, anomaly)
        ]
        return None if not found or None in found else found[0]

    def _lacking(self, offset: int, anomaly: Anomaly) -> list[str]:
        if anomaly.kind == PASSED_OVER:
            return [group for group, own in self._inputs.items() if own.lacks(offset)]
        value = np.array([anomaly.value])
        return [
            group
            for group, own in self._consumed.items()
            if offset < own.end_offset and not is_among(value, self._received[group]).any()
        ]

    def _set_beyond(self, offset: int, group: str) -> Judgement | None:
        """Look for an order that set a group's position beyond an offset, before it committed beyond it at first."""
        first_ns = self._answered[group].beyond(offset)
        if first_ns is None:
            return None
        orders = (
            order
            for order in self._orders
            if order.group in (None, group) and (order.log_offset is None or order.log_offset > offset)
            if order.since_ns <= first_ns and not self._is_overwritten(order, offset, group, first_ns)
        )
        order = next(orders, None)
        return None if order is None else by_order(order)

    def _is_overwritten(self, order: Order, offset: int, group: str, first_ns: int) -> bool:
        """Whether a group committed a position before or at an offset, after an order had been carried out and before it committed beyond."""
        key = group, order.until_ns
        if key not in self._overwriting:
            commits = self._rows.columns("commits")
            own = self._answered_by(group) & (commits["committed_offset"] != UNKNOWN)
            own &= commits["invoke_ns"] > order.until_ns
            self._overwriting[key] = Leasts(commits["committed_offset"][own], commits["complete_ns"][own])
        done_ns = self._overwriting[key].up_to(offset)
        return done_ns is not None and done_ns < first_ns

    @cached_property
    def _inputs(self) -> dict[str, exactly_once.Input]:
        return exactly_once.inputs(self._rows, self._context)

    @cached_property
    def _consumed(self) -> dict[str, group_members.Consumed]:
        return group_members.consumed(self._rows, self._context)

    @cached_property
    def _received(self) -> dict[str, Array]:
        """The values that the members of each group received."""
        reads = self._rows.columns("reads")
        tail = reads["phase"] == TAIL
        return {
            group: distinct(reads["value"][tail & is_among(reads["process"], own.members)])
            for group, own in self._consumed.items()
        }

    @cached_property
    def _members(self) -> dict[str, Array]:
        """The processes that committed for each group, or may have: who was refused is no member."""
        commits = self._rows.columns("commits")
        own = may_count(commits)
        return {
            group: distinct(commits["process"][own & (commits["group"] == code)])
            for code, group in enumerate(self._rows.words("commits", "group"))
        }

    @cached_property
    def _answered(self) -> dict[str, Leasts]:
        """When each group committed its positions, of those that were answered."""
        commits = self._rows.columns("commits")
        groups = self._rows.words("commits", "group")
        own = {group: self._answered_by(group) for group in groups}
        return {
            group: Leasts(commits["committed_offset"][some], commits["invoke_ns"][some]) for group, some in own.items()
        }

    def _answered_by(self, group: str) -> Array:
        commits = self._rows.columns("commits")
        own = commits["group"] == self._rows.words("commits", "group").index(group)
        return np.asarray(own & answered(commits))
