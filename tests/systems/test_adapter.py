"""Clients as processes: what they say is recorded, and one that hangs or ends never holds anything up."""

import asyncio
from collections.abc import Callable
from pathlib import Path

import pytest
import uvloop

from tribunal.clusters.api import ClusterError
from tribunal.clusters.nodes.leftovers import own_processes
from tribunal.clusters.objects import ObjectAnswer, ObjectOperation
from tribunal.clusters.systems import adapter
from tribunal.clusters.systems.adapter import GONE, HUNG, TOO_LONG, Adapter
from tribunal.clusters.systems.description import Addresses, Client
from tribunal.results.object_transactions import Step, StepKind

BEGIN = """
import json, subprocess, sys, time
init = json.loads(sys.stdin.readline())
print('{"type": "init_ok"}', flush=True)
for line in sys.stdin:
    asked = json.loads(line)
"""
ANSWER = '    print(json.dumps({"id": asked["id"], "type": "ok", "value": init["nodes"][0]["port"]}), flush=True)\n'
ENDLESS = "    while True: sys.stdout.write('x' * 4096)\n"
CHILD = "    subprocess.Popen(['sleep', '600'])\n"

ECHO = '    print(json.dumps({"id": asked["id"], "type": "ok", "value": json.loads(VALUE)}), flush=True)\n'  # VALUE: as each test has it
LOOPS = [pytest.param(asyncio.new_event_loop, id="asyncio"), pytest.param(uvloop.new_event_loop, id="uvloop")]
STEPS = (Step(StepKind.APPEND, "l0", 5), Step(StepKind.READ, "l0", None))


def client(folder: Path, program: str) -> Adapter:
    """Return a client that is this program."""
    (folder / "client.py").write_text(program)
    addresses = Addresses(folder=folder, hosts={1: "127.0.1.1"}, ports={1: {"main": 4711}}, data={1: folder / "data"})
    chosen = Client(command=("{python}", "{folder}/client.py"), operations=(ObjectOperation.READ,), timeout_ms=100)
    return Adapter(chosen, "1", addresses, folder)


async def one_transaction(called: Adapter) -> ObjectAnswer:
    """Append and read, and close."""
    try:
        return await called.call(ObjectOperation.TXN_LISTS, "l0", STEPS)
    finally:
        await called.close()


async def two_reads(called: Adapter) -> list[ObjectAnswer]:
    """Read twice, and close."""
    try:
        return [await called.call(ObjectOperation.READ, "r0", None) for _ in range(2)]
    finally:
        await called.close()


@pytest.mark.parametrize(
    ("behaviour", "answers"),
    [
        pytest.param(ANSWER, [("ok", 4711, None), ("ok", 4711, None)], id="answers"),
        pytest.param("    time.sleep(600)\n", [("info", None, HUNG)] * 2, id="hangs"),
        pytest.param("    sys.exit(1)\n", [("info", None, GONE)] * 2, id="ends"),
        pytest.param("    break\ntime.sleep(600)\n", [("info", None, HUNG)] * 2, id="reads no more"),
        pytest.param("    print('x' * 400, flush=True)\n", [("info", None, f"client 1 {TOO_LONG}")] * 2, id="too long"),
        pytest.param(ENDLESS, [("info", None, f"client 1 {TOO_LONG}")] * 2, id="a line without an end"),
        pytest.param(CHILD + "    time.sleep(600)\n", [("info", None, HUNG)] * 2, id="a child holds its output"),
    ],
)
def test_every_call_comes_to_an_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, behaviour: str, answers: list[tuple[str, int | None, str | None]]
) -> None:
    """A client that hangs is ended, the next call begins it anew; nothing of it stays running."""
    monkeypatch.setattr(adapter, "CALL_GRACE_MS", 50)
    monkeypatch.setattr(adapter, "LINE_BYTES", 200)

    said = asyncio.run(two_reads(client(tmp_path, BEGIN + behaviour)))

    assert [(one.outcome, one.value, one.error) for one in said] == answers
    assert own_processes(tmp_path) == []


@pytest.mark.parametrize("loop", LOOPS)
def test_a_client_that_ends_between_two_calls_is_begun_anew(
    tmp_path: Path, loop: Callable[[], asyncio.AbstractEventLoop]
) -> None:
    """Nobody waits for it then; on uvloop writing to what has gone is no OSError, and ended the run."""
    called = client(tmp_path, BEGIN + ANSWER + "    sys.exit(0)\n")

    async def three_reads() -> list[ObjectAnswer]:
        answers = []
        try:
            for _ in range(3):
                answers.append(await called.call(ObjectOperation.READ, "r0", None))
                while own_processes(tmp_path):  # noqa: ASYNC110 - only the system knows
                    await asyncio.sleep(0.01)
                await asyncio.sleep(0.05)  # the loop has seen it
        finally:
            await called.close()
        return answers

    with asyncio.Runner(loop_factory=loop) as runner:
        said = runner.run(three_reads())

    assert [(one.outcome, one.error) for one in said] == [("ok", None), ("info", GONE), ("ok", None)]


@pytest.mark.parametrize(
    ("program", "words"),
    [
        pytest.param(BEGIN + "    print('hello', flush=True)\n", "said b'hello", id="no JSON"),
        pytest.param(BEGIN + ANSWER.replace('asked["id"]', "7"), "answered ok of id 7 to id 1", id="another call"),
        pytest.param("raise SystemExit('no driver here')", "did not say init_ok(.|\n)*no driver here", id="no init_ok"),
    ],
)
def test_a_client_that_says_what_nobody_asked_is_a_failure_of_the_run(tmp_path: Path, program: str, words: str) -> None:
    """Guessing what it meant could make a violation that is none."""
    with pytest.raises(ClusterError, match=words):
        asyncio.run(two_reads(client(tmp_path, program)))

    assert own_processes(tmp_path) == []


def test_a_transaction_is_answered_with_what_its_reads_saw(tmp_path: Path) -> None:
    """The client gets the steps as arrays and gives them back."""
    program = BEGIN + ECHO.replace("VALUE", """'[["append","l0",5],["r","l0",[4,5]]]'""")

    said = asyncio.run(one_transaction(client(tmp_path, program)))

    assert (said.outcome, said.value) == ("ok", (STEPS[0], Step(StepKind.READ, "l0", (4, 5))))


@pytest.mark.parametrize(
    ("value", "words"),
    [
        pytest.param("[4,5]", "answered txn-lists with", id="what the read saw alone"),
        pytest.param('[["append","l0",6],["r","l0",[6]]]', "step 1 is", id="another element"),
        pytest.param('[["append","l0",5],["r","l1",[5]]]', "step 2 is", id="another list"),
        pytest.param('[["append","l0",5],["r","l0",5]]', "cannot read", id="a number for a list"),
        pytest.param("null", "answered txn-lists with", id="nothing"),
    ],
)
def test_an_answer_of_another_shape_is_a_failure_of_the_run(tmp_path: Path, value: str, words: str) -> None:
    """A judge would take it for what the system did."""
    with pytest.raises(ClusterError, match=words):
        asyncio.run(one_transaction(client(tmp_path, BEGIN + ECHO.replace("VALUE", repr(value)))))

    assert own_processes(tmp_path) == []


@pytest.mark.parametrize(
    ("operation", "value"),
    [
        pytest.param(ObjectOperation.READ, "[5]", id="a list for a register's value"),
        pytest.param(ObjectOperation.READ_ALL, "5", id="a number for a set"),
        pytest.param(ObjectOperation.READ_ALL, "[5,null]", id="nothing in a set"),
        pytest.param(ObjectOperation.READ_COUNTER, "[5]", id="a list for a counter"),
        pytest.param(ObjectOperation.DEQUEUE, '"5"', id="a text for an element"),
        pytest.param(ObjectOperation.ACQUIRE, "[1]", id="a list for a token"),
        pytest.param(ObjectOperation.ACQUIRE, "9223372036854775808", id="a token of more than 64 bits"),
        pytest.param(ObjectOperation.READ_ALL, "[5,9223372036854775808]", id="an element of more than 64 bits"),
        pytest.param(ObjectOperation.READ_STREAM, "[[0,-9223372036854775809]]", id="one of a stream"),
    ],
)
def test_a_value_of_another_shape_is_the_clients_fault_and_not_its_systems(
    tmp_path: Path, operation: ObjectOperation, value: str
) -> None:
    """A register that was read as a list was a VIOLATION, a set that was read as a number a bug of the judge."""
    called = client(tmp_path, BEGIN + ECHO.replace("VALUE", repr(value)))

    async def once() -> ObjectAnswer:
        try:
            return await called.call(operation, "a", None)
        finally:
            await called.close()

    with pytest.raises(ClusterError, match=f"client 1 answered {operation} with"):
        asyncio.run(once())


@pytest.mark.parametrize(("node", "words"), [(1, ""), (7, "said that node 7 answered, which there is not")])
def test_a_client_may_say_which_node_answered(tmp_path: Path, node: int, words: str) -> None:
    """One that there is not would be named in a finding."""
    program = (
        BEGIN + f'    print(json.dumps({{"id": asked["id"], "type": "ok", "value": 5, "node": {node}}}), flush=True)\n'
    )

    if words:
        with pytest.raises(ClusterError, match=words):
            asyncio.run(two_reads(client(tmp_path, program)))
    else:
        answers = asyncio.run(two_reads(client(tmp_path, program)))
        assert answers == [ObjectAnswer(outcome="ok", value=5, node=1)] * 2
