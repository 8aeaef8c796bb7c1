"""Registers whose writes have offsets: the sort says what the search says, and limits are obeyed."""

from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tribunal.checkers.graphs.operations import paired
from tribunal.checkers.registers import offset_order
from tribunal.checkers.registers.linearizability import Answer, Limits, check
from tribunal.checkers.registers.models import REGISTER


def history(random: Random, operations: int, *, wrong: float) -> list[dict[str, Any]]:
    """Clients write and read one register whose effects are drawn between their ends; some reads are stale."""
    events: list[dict[str, Any]] = []
    waiting: dict[int, dict[str, Any]] = {}
    log: list[int | None] = [None]
    for number in range(operations * 2):
        process = random.randrange(4)
        opened = waiting.pop(process, None)
        if opened is None:
            function = random.choice(["read", "write"])
            opened = {"process": process, "f": function, "key": "x", "value": number if function == "write" else None}
            events.append(opened | {"type": "invoke"})
            waiting[process] = opened
            continue
        if opened["f"] == "write":
            log.append(opened["value"])
            events.append(opened | {"type": "ok", "offset": len(log) - 2})
        else:
            old = random.random() < wrong
            events.append(opened | {"type": "ok", "value": random.choice(log) if old else log[-1]})
    return events


@given(st.randoms(use_true_random=False), st.sampled_from([0.0, 0.1, 0.5]))
def test_the_order_of_the_log_says_what_the_search_says(random: Random, wrong: float) -> None:
    operations = paired(history(random, 8, wrong=wrong))
    found = offset_order.check(operations).answer

    # The search may find another order of the writes; one that agrees with the log is an order too.
    assert found is Answer.ILLEGAL or check(operations, REGISTER).answer is Answer.LINEARIZABLE
    if wrong == 0:
        assert found is Answer.LINEARIZABLE


@pytest.mark.parametrize(("value", "answer"), [(5, Answer.LINEARIZABLE), (4, Answer.ILLEGAL), (9, Answer.ILLEGAL)])
def test_a_read_shows_the_newest_write(value: int, answer: Answer) -> None:
    events = [
        {"process": 0, "type": "invoke", "f": "write", "value": 4},
        {"process": 0, "type": "ok", "f": "write", "value": 4, "offset": 0},
        {"process": 0, "type": "invoke", "f": "write", "value": 5},
        {"process": 0, "type": "info", "f": "write", "value": 5, "offset": 1},
        {"process": 1, "type": "invoke", "f": "read"},
        {"process": 1, "type": "ok", "f": "read", "value": 5},
        {"process": 1, "type": "invoke", "f": "read"},
        {"process": 1, "type": "ok", "f": "read", "value": value},
    ]

    assert offset_order.is_ordered_by_offsets(paired(events))
    assert offset_order.check(paired(events)).answer is answer


def test_a_clock_that_ran_out_stops_the_search_between_completions() -> None:
    events = [{"process": p, "type": kind, "f": "write", "value": p} for kind in ("invoke", "ok") for p in range(12)]

    result = check(paired(events), REGISTER, Limits(1_000_000, lambda: True))

    assert result.answer is Answer.UNKNOWN
    assert result.culprit is not None


def sequential(*rows: tuple[str, Any, Any]) -> list[dict[str, Any]]:
    events: list[dict[str, Any]] = []
    for function, value, offset in rows:
        asked = {"process": 0, "f": function, "value": value if function == "write" else None}
        told = {"value": value} | ({"offset": offset} if function == "write" else {})
        events += [asked | {"type": "invoke"}, asked | told | {"type": "ok"}]
    return events


@pytest.mark.parametrize(
    ("rows", "answer"),
    [
        pytest.param([("write", 4, None), ("read", None, None)], Answer.ILLEGAL, id="answered and not in the log"),
        pytest.param([("write", 4, 0), ("read", 4, None)], Answer.LINEARIZABLE, id="answered and there"),
        pytest.param(
            [("write", 4, 0), ("read", 4, None), ("write", 5, 1), ("write", 4, 2), ("read", 4, None)],
            Answer.LINEARIZABLE, id="a value written twice",
        ),
        pytest.param([("write", 4, 0), ("write", None, 1), ("read", None, None)], Answer.LINEARIZABLE, id="nothing"),
        pytest.param([("write", [4], 0), ("read", [4], None)], Answer.LINEARIZABLE, id="a list"),
    ],
)  # fmt: skip
def test_what_offsets_do_not_settle_is_searched(rows: list[tuple[str, Any, Any]], answer: Answer) -> None:
    operations = paired(sequential(*rows))

    result = (
        offset_order.check(operations)
        if offset_order.is_ordered_by_offsets(operations)
        else check(operations, REGISTER)
    )

    assert result.answer is answer
