"""The graphs' edges: what the columns find is what the SQL definitions say, on random transactions; and each kind by hand."""

from typing import Any

import duckdb
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tribunal.checkers.graphs import list_append, send_poll
from tribunal.checkers.graphs.columns import ListSteps
from tribunal.checkers.graphs.cycles import NAMES, Graph
from tribunal.checkers.graphs.findings import Findings
from tribunal.checkers.graphs.send_poll import LogHistory, Order
from tribunal.checkers.graphs.sql_edges import LISTS, MESSAGES
from tribunal.checkers.spark.sql_views import txn_steps
from tribunal.results.recording import TABLES

Edges = set[tuple[int, int, str]]
Step = tuple[str, int, int | None, int | None]  # kind, partition, offset, value


def txns(*transactions: tuple[str, list[Step]]) -> pa.Table:
    rows = [
        {
            "run_id": "r",
            "process": number,
            "txn_id": f"x{number}",
            "begin_ns": number,
            "end_ns": number + 1,
            "outcome": outcome,
            "operations": [
                {"kind": kind, "topic": "t", "partition": partition, "log_offset": offset, "value": value}
                for kind, partition, offset, value in steps
            ],
        }
        for number, (outcome, steps) in enumerate(transactions)
    ]
    return pa.Table.from_pylist(rows, schema=TABLES["txns"].arrow)


def by_sql(sql: str, table: pa.Table) -> Edges:
    connection = duckdb.connect(config={"threads": 1})
    steps = txn_steps(table)
    connection.register("txn_steps", steps.append_column("run_id", pa.array(["r"] * steps.num_rows)))
    rows = connection.sql(sql).fetchall()
    return {(source, target, kind) for _, source, target, kind in rows}


def edges_of(graph: Graph, rows: Any) -> Edges:
    """Vertices are counted among the transactions that take part; SQL names them by row."""
    sources, targets, kinds = graph.arrays()
    known = {int(kind): name for kind, name in NAMES.items()}
    pairs = zip(rows[sources].tolist(), rows[targets].tolist(), kinds.tolist(), strict=True)
    return {(source, target, known[kind]) for source, target, kind in pairs}


def of_lists(table: pa.Table, at_once: int = list_append.AT_ONCE) -> Edges:
    steps = ListSteps.recorded(table)
    graph, _ = list_append.dependencies(steps, Findings(), at_once)
    return edges_of(graph, steps.transactions.index)


def of_messages(table: pa.Table) -> Edges:
    history = LogHistory.recorded(table)
    _, committed = send_poll._proven(history)
    order = Order(history, committed, Findings())
    return edges_of(send_poll.dependencies(history, order, ww=True, rw=True), history.transactions.index)


@pytest.mark.parametrize(
    ("second", "edges"),
    [
        pytest.param(
            [("append", 0, None, 2)], {(0, 2, "wr"), (2, 1, "rw"), (0, 1, "ww")}, id="an append that nobody read"
        ),
        pytest.param([("read", 0, None, None)], {(0, 2, "wr"), (1, 0, "rw")}, id="a read of nothing"),
        pytest.param([("read", 0, None, 1)], {(0, 2, "wr"), (0, 1, "wr")}, id="a read of all"),
    ],
)
def test_edges_of_lists_by_hand(second: list[Step], edges: Edges) -> None:
    table = txns(
        ("committed", [("append", 0, None, 1)]), ("committed", second), ("committed", [("read", 0, None, 1)])
    )  # fmt: skip

    assert by_sql(LISTS, table) == of_lists(table) == edges


@pytest.mark.parametrize(
    ("poll", "edges"),
    [
        pytest.param(0, {(0, 1, "ww"), (0, 2, "wr"), (2, 1, "rw")}, id="up to the first"),
        pytest.param(1, {(0, 1, "ww"), (1, 2, "wr")}, id="up to the second"),
    ],
)
def test_edges_of_messages_by_hand(poll: int, edges: Edges) -> None:
    table = txns(
        ("committed", [("send", 0, 0, 10)]),
        ("committed", [("send", 0, 1, 11)]),
        ("committed", [("poll", 0, poll, 10 + poll)]),
    )

    assert by_sql(MESSAGES, table) == of_messages(table) == edges


OUTCOMES = st.sampled_from(["committed", "committed", "committed", "info", "aborted"])


@st.composite
def lists(draw: st.DrawFn) -> pa.Table:
    """Appends in some order, and reads of any prefix of what was not aborted."""
    count = draw(st.integers(1, 7))
    outcomes = [draw(OUTCOMES) for _ in range(count)]
    order: dict[int, list[int]] = {0: [], 1: []}
    plans: list[list[tuple[str, int, int]]] = []
    for number in range(count):
        plan = []
        for place in range(draw(st.integers(0, 3))):
            key, value = draw(st.integers(0, 1)), 10 * number + place
            is_append = draw(st.booleans())
            plan.append(("append" if is_append else "read", key, value))
            if is_append and outcomes[number] != "aborted" and draw(st.integers(0, 4)):
                order[key].append(value)
        plans.append(plan)
    for key in order:
        order[key] = draw(st.permutations(order[key]))
    transactions = []
    for outcome, plan in zip(outcomes, plans, strict=True):
        steps: list[Step] = []
        for place, (kind, key, value) in enumerate(plan):
            if kind == "read" and place and plan[place - 1][:2] == (kind, key):
                continue  # two neighbouring reads of one list would be written as one
            seen = order[key][: draw(st.integers(0, len(order[key])))] if kind == "read" else [value]
            steps += [(kind, key, None, element) for element in seen or [None]]
        transactions.append((outcome, steps))
    return txns(*transactions)


@st.composite
def messages(draw: st.DrawFn) -> pa.Table:
    """Sends whose offsets are known or not, some twice in the log, and polls of anything, also of what nobody sent."""
    count = draw(st.integers(1, 7))
    transactions: list[tuple[str, list[Step]]] = []
    log: list[tuple[int, int, int]] = [(draw(st.integers(0, 1)), draw(st.integers(0, 9)), 990)]
    for number in range(count):
        steps: list[Step] = []
        for place in range(draw(st.integers(0, 3))):
            if draw(st.booleans()):
                key, offset, value = draw(st.integers(0, 1)), draw(st.integers(0, 9)), 10 * number + place
                steps.append(("send", key, draw(st.sampled_from([offset, offset, None])), value))
                log.append((key, draw(st.sampled_from([offset, offset, offset, 9 - offset])), value))
            else:
                key, offset, value = draw(st.sampled_from(log))
                steps.append(("poll", key, offset, value))
        transactions.append((draw(OUTCOMES), steps))
    return txns(*transactions)


QUICK = {"deadline": None, "suppress_health_check": list(HealthCheck)}


@settings(max_examples=40, **QUICK)
@given(lists())
def test_sql_and_columns_agree_on_edges_of_lists(table: pa.Table) -> None:
    assert by_sql(LISTS, table) == of_lists(table)


@settings(max_examples=40, **QUICK)
@given(lists())
def test_keys_that_are_looked_at_one_after_the_other_say_the_same(table: pa.Table) -> None:
    steps = ListSteps.recorded(table)
    together, apart = Findings(), Findings()

    _, doubtful = list_append.dependencies(steps, together)
    _, one_by_one = list_append.dependencies(steps, apart, at_once=1)

    assert of_lists(table, at_once=1) == of_lists(table)
    assert one_by_one.tolist() == doubtful.tolist()
    assert apart.counts == together.counts


@settings(max_examples=40, **QUICK)
@given(messages())
def test_sql_and_columns_agree_on_edges_of_messages(table: pa.Table) -> None:
    assert by_sql(MESSAGES, table) == of_messages(table)


@pytest.mark.nightly
@pytest.mark.timeout(900)
@settings(max_examples=1000, **QUICK)
@given(lists(), messages())
def test_sql_and_columns_agree_on_edges_a_thousand_times(some: pa.Table, others: pa.Table) -> None:
    assert by_sql(LISTS, some) == of_lists(some)
    assert by_sql(MESSAGES, others) == of_messages(others)
