"""Version orders of registers by time: the nearest predecessors of each operation, found by one sort, are those that every pair of operations gives."""

from random import Random

import pytest

from tribunal.checkers.graphs.operations import Operation
from tribunal.checkers.graphs.rw_register import INITIAL, RegisterHistory, Version, _timed, _version

nx = pytest.importorskip("networkx")


def by_pairs(history: RegisterHistory, *, in_real_time: bool) -> set[tuple[Version, Version]]:
    """Return the edges of the definition: each operation looks at all before it, the last to end first."""
    read, wrote = dict(history.reads["x"]), dict(history.writes["x"])
    touched = []
    for number in sorted({*read, *wrote}):
        first = _version(read.get(number, wrote.get(number)))
        touched.append((history.operations[number], first, _version(wrote.get(number, read.get(number)))))
    touched.sort(key=lambda entry: entry[0].invoked)
    edges = set()
    for place, (late, first, _) in enumerate(touched):
        latest_start = -1
        for early, _, last in sorted(touched[:place], key=lambda entry: -entry[0].completed):
            if early.completed < latest_start:
                break
            if early.completed < late.invoked and (in_real_time or early.process == late.process):
                edges |= {(last, first)} if last != first else set()
                latest_start = max(latest_start, early.invoked)
    return edges


@pytest.mark.parametrize("in_real_time", [True, False])
@pytest.mark.parametrize("seed", range(20))
def test_who_comes_right_before_whom(seed: int, in_real_time: bool) -> None:
    random, free = Random(f"{seed}/nearest"), {0: 0, 1: 0, 2: 0, 3: 0}
    operations = []
    for number in range(60):
        process = random.choice(sorted(free))
        invoked = free[process] + random.randrange(1, 5)
        free[process] = completed = invoked + random.randrange(1, 40)
        step = ("w", "x", number) if random.random() < 0.5 else ("r", "x", random.choice([None, *range(number)]))
        operations.append(
            Operation(
                index=number, process=process, outcome="ok", function="txn", invoked=invoked, completed=completed, steps=(step,)
            )
        )  # fmt: skip
    history = RegisterHistory(operations)
    versions: nx.DiGraph[Version] = nx.DiGraph()
    versions.add_node(INITIAL)

    _timed(versions, history, "x", in_real_time=in_real_time)

    assert set(versions.edges) == by_pairs(history, in_real_time=in_real_time)
