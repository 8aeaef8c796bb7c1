"""What reads of a list lack is found by counting what holds it: the same as by looking at each read for each element."""

import time
from random import Random

import pytest

from tribunal.checkers.graphs.columns import ListSteps
from tribunal.checkers.graphs.operations import Operation
from tribunal.checkers.guarantees import Promise
from tribunal.checkers.judge.lost_orders import _is_passed_over, _lacked, _lost_ns, _reads
from tribunal.checkers.judge.timeline import OBSERVATION_LAG_NS, Judgement

MOST_S = 1.5  # of CPU; when each read was looked at through all of its elements again it took 3 s, and four times as much for twice as many


def history(count: int, seed: int, *, reads: float, gone: float, lists: int = 2) -> list[Operation]:
    """Return transactions that append to lists or read them; some elements are never seen, some reads lack others."""
    random, seen = Random(seed), {key: [] for key in range(lists)}
    operations, at = [], 0
    for number in range(count):
        at += random.randint(1, 3)
        key = random.randrange(lists)
        steps = (("append", f"t-{key}", number),)
        if random.random() < reads:
            held = [one for one in seen[key] if random.random() >= gone / 4]
            steps = (("r", f"t-{key}", held), *steps[: random.randint(0, 1)])
        elif random.random() >= gone:
            seen[key].append(number)
        outcome = random.choice(["ok", "ok", "info", "fail"])
        times = {"invoked": at, "completed": at + random.randint(1, 9)}
        operations.append(
            Operation(index=number, process=number % 5, outcome=outcome, function="txn", steps=steps, **times)
        )
    return operations


def judged(at_ns: int | None) -> Judgement:
    return Judgement(Promise(rule="R4", violations=()), None, 0, at_ns, ())


def plainly(operations: list[Operation]) -> dict[tuple[str, int], tuple[set[int], set[int]]]:
    """Return which transactions' reads lack an element, and which of these wrongly, each looked at by itself."""
    found = {}
    for writer in operations:
        for function, key, element in writer.steps:
            if function != "append" or writer.outcome == "fail":
                continue
            others = [one for one in operations if one.outcome == "ok" and one.completed > writer.invoked]
            held = {
                one.index: [element in (value or ()) for word, of, value in one.steps if (word, of) == ("r", key)]
                for one in others
            }
            lacking = {index for index, seen in held.items() if index != writer.index and seen and not all(seen)}
            ends = [writer.completed, *(one.completed for one in others if any(held[one.index]))]
            if lacking:
                late = {one.index for one in others if one.index in lacking and one.invoked > min(ends)}
                found[key, element] = (lacking, late)
    return found


@pytest.mark.parametrize("seed", range(20))
def test_what_reads_lack_is_what_each_of_them_lacks(seed: int) -> None:
    operations = history(60, seed, reads=0.3, gone=0.2)
    lists = ListSteps.of(operations)

    found = list(_lacked(lists, _reads(lists)))

    expected = plainly(operations)
    assert {(lists.names[one.key], one.element) for one in found} == expected.keys()
    for one in found:
        lacking, late = expected[lists.names[one.key], one.element]
        assert {int(lists.txn[row]) for row in one.wrongly} == late
        assert one.last_ns == max(operations[index].completed for index in lacking)
        assert one.wrongly_ns == min((operations[index].completed for index in late), default=None)


@pytest.mark.parametrize(("lost_ns", "expected"), [(0, True), (OBSERVATION_LAG_NS + 1, False)])
def test_a_read_passes_over_what_was_appended_behind_a_loss_that_it_holds(lost_ns: int, *, expected: bool) -> None:
    times = {"process": 0, "outcome": "ok", "function": "txn"}
    lists = ListSteps.of([
        Operation(index=0, invoked=-9, completed=-8, steps=(("append", "t-0", 1),), **times),
        Operation(index=1, invoked=0, completed=1, steps=(("append", "t-0", 2),), **times),
        Operation(index=2, invoked=2, completed=3, steps=(("r", "t-0", [1]),), **times),
    ])  # fmt: skip
    reads = _reads(lists)
    (lacked,) = _lacked(lists, reads)

    assert _is_passed_over(lacked, _lost_ns(reads, {(0, 1): judged(lost_ns)})) is expected
    assert not _is_passed_over(lacked, _lost_ns(reads, {}))


def test_very_many_that_are_lacked_are_explained_fast() -> None:
    lists = ListSteps.of(history(5000, 1, reads=0.1, gone=0.3))
    began = time.process_time()

    reads = _reads(lists)
    lacked = list(_lacked(lists, reads))
    lost_ns = _lost_ns(reads, {(one.key, one.element): judged(0) for one in lacked[::2]})
    passed = [one for one in lacked if _is_passed_over(one, lost_ns)]

    assert time.process_time() - began < MOST_S
    assert len(lacked) > 1000
    assert passed
