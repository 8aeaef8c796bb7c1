"""The register search against every order there is, and at its limits."""

from itertools import permutations
from time import process_time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tribunal.checkers.graphs.operations import OPEN_END, Operation
from tribunal.checkers.registers.linearizability import Answer, Limits, check
from tribunal.checkers.registers.models import CAS_REGISTER, IMPOSSIBLE, MODELS, UNKNOWN


def operation(index, function, argument, result, *, invoked, completed, outcome="ok"):
    return Operation(
        index=index,
        process=index,
        outcome=outcome,
        function=function,
        invoked=invoked,
        completed=OPEN_END if outcome == "info" else completed,
        steps=((function, None, argument, result),),
    )


def register(*rows):
    return [operation(n, f, a, r, invoked=i, completed=c, outcome=o) for n, (f, a, r, i, c, o) in enumerate(rows)]


@pytest.mark.parametrize(
    ("operations", "answer"),
    [
        pytest.param(
            register(("write", 1, None, 0, 1, "ok"), ("read", None, 1, 2, 3, "ok")), "linearizable", id="fresh"
        ),
        pytest.param(register(("write", 1, None, 0, 1, "ok"), ("read", None, None, 2, 3, "ok")), "illegal", id="stale"),
        pytest.param(
            register(("write", 1, None, 0, 3, "ok"), ("read", None, None, 1, 2, "ok")), "linearizable", id="beside"
        ),
        pytest.param(
            register(("write", 1, None, 0, 1, "info"), ("read", None, None, 2, 3, "ok"), ("read", None, 1, 4, 5, "ok")),
            "linearizable",
            id="an unknown write takes effect late",
        ),
        pytest.param(
            register(("write", 1, None, 0, 1, "info"), ("read", None, 1, 2, 3, "ok"), ("read", None, None, 4, 5, "ok")),
            "illegal",
            id="an unknown write is not undone",
        ),
        pytest.param(
            register(("write", 1, None, 0, 1, "fail"), ("read", None, 1, 2, 3, "ok")), "illegal", id="a failed write"
        ),
        pytest.param(
            register(("write", 1, None, 0, 1, "ok"), ("cas", [1, 2], None, 2, 3, "ok"), ("read", None, 2, 4, 5, "ok")),
            "linearizable",
            id="compare and set",
        ),
        pytest.param(
            register(("write", 1, None, 0, 1, "ok"), ("cas", [3, 2], None, 2, 3, "ok")), "illegal", id="wrong compare"
        ),
    ],
)
def test_a_register_is_judged(operations, answer):
    assert check(operations, CAS_REGISTER).answer == answer


@pytest.mark.parametrize(
    ("second", "answer"), [pytest.param(4, "linearizable", id="after release"), pytest.param(2, "illegal", id="before")]
)
def test_a_mutex_is_held_by_one(second, answer):
    rows = [
        operation(0, "acquire", None, None, invoked=0, completed=1),
        operation(1, "acquire", None, None, invoked=second, completed=second + 0.5),
        operation(2, "release", None, None, invoked=3, completed=3.5),
    ]

    assert check(rows, MODELS["mutex"]).answer == answer


SPANS = st.tuples(st.integers(0, 9), st.integers(1, 6))
CALLS = st.one_of(
    st.tuples(st.just("read"), st.none(), st.sampled_from([None, 1, 2])),
    st.tuples(st.just("write"), st.sampled_from([1, 2]), st.none()),
    st.tuples(st.just("cas"), st.sampled_from([(1, 2), (2, 1)]), st.none()),
)
ROWS = st.lists(st.tuples(CALLS, SPANS, st.sampled_from(["ok", "ok", "ok", "info"])), max_size=6)


@given(ROWS)
def test_the_search_agrees_with_trying_every_order(rows):
    operations = [
        operation(n, f, a, r, invoked=start * 20 + n, completed=(start + length) * 20 + 10 + n, outcome=outcome)
        for n, ((f, a, r), (start, length), outcome) in enumerate(rows)
    ]

    expected = Answer.LINEARIZABLE if any_order(operations) else Answer.ILLEGAL
    assert check(operations, CAS_REGISTER).answer is expected


def any_order(operations):
    """Try all orders of the known operations and any of the unknown ones."""
    unknown = [o for o in operations if o.outcome == "info"]
    known = [o for o in operations if o.outcome == "ok"]
    for mask in range(1 << len(unknown)):
        chosen = known + [o for bit, o in enumerate(unknown) if mask >> bit & 1]
        if any(explains(order) for order in permutations(chosen)):
            return True
    return False


def explains(order):
    state = None
    for place, current in enumerate(order):
        if any(later.completed < current.invoked for later in order[place + 1 :]):
            return False
        function, _, argument, result = current.steps[0]
        state = CAS_REGISTER.step(state, function, argument, UNKNOWN if current.outcome == "info" else result)
        if state is IMPOSSIBLE:
            return False
    return True


def test_a_search_obeys_its_limit_and_says_how_far_it_came():
    writes = [operation(n, "write", n, None, invoked=10 + n, completed=1000 + n) for n in range(12)]
    first = [
        operation(100, "write", 99, None, invoked=0, completed=1),
        operation(101, "read", None, 99, invoked=2, completed=3),
    ]

    result = check([*first, *writes], CAS_REGISTER, Limits(configurations=200))

    assert result.answer is Answer.UNKNOWN
    assert (result.ordered_until, result.culprit) == (3, 0)


def a_ladder(steps):
    """Unknown exchanges by which a register may have come from 0 to its last value in two to the power of steps ways."""
    yield "write", 0
    for step in range(steps):
        for side in (1, 2):
            yield "cas", (3 * step, 3 * step + side)
            yield "cas", (3 * step + side, 3 * step + 3)


def test_many_ways_of_unknown_operations_to_one_state_are_not_compared_with_each_other_for_ever():
    """Each way is a set of its own, none a part of another: pairs of 2 ** 13 of them take a minute."""
    (_, first), *ladder = a_ladder(13)
    opened = [operation(n, f, a, None, invoked=10 + n, completed=0, outcome="info") for n, (f, a) in enumerate(ladder)]
    known = [
        operation(900, "write", first, None, invoked=0, completed=1),
        operation(901, "read", None, 39, invoked=2000, completed=2001),
        operation(902, "read", None, 38, invoked=2002, completed=2003),
    ]
    began = process_time()

    result = check([*known, *opened], CAS_REGISTER)

    assert result.answer is Answer.ILLEGAL
    assert process_time() - began < 30


@pytest.mark.parametrize(("last", "answer"), [(499, Answer.LINEARIZABLE), (900, Answer.ILLEGAL)])
def test_hundreds_of_unknown_writes_are_judged(last, answer):
    """Whatever was written last sufficed to show it: not one of the 2 ** 500 sets of them has to be kept."""
    writes = [operation(n, "write", n, None, invoked=10 + n, completed=0, outcome="info") for n in range(500)]
    reads = [
        operation(901, "read", None, 7, invoked=2000, completed=2001),
        operation(902, "read", None, 499, invoked=2002, completed=2003),
        operation(903, "read", None, last, invoked=2004, completed=2005),
    ]

    assert check([*writes, *reads], CAS_REGISTER).answer is answer
