"""The loop: order, time, whose a callback is, and what the dead may do."""

import asyncio
import gc
import warnings

import pytest

from tribunal.clusters.simulated.guard import sealed
from tribunal.clusters.simulated.loop import Deadlock, Livelock, Refused
from tribunal.clusters.simulated.process import NS_PER_MS, NS_PER_S, MonotonicClock
from tribunal.clusters.simulated.world import Simulation


async def forever():
    await asyncio.get_running_loop().create_future()


def test_ten_minutes_pass_in_no_time(simulation):
    async def main():
        await asyncio.sleep(600)
        return "woken"

    answer = simulation.run(main())

    assert answer == "woken"
    assert 600 * NS_PER_S <= simulation.loop.now_ns < 600 * NS_PER_S + NS_PER_MS


@pytest.mark.parametrize("drift_ppb", [0, 50_000_000, -50_000_000, 7])
def test_a_timer_never_fires_before_its_owners_clock_says_so(simulation, server, drift_ppb):
    server.clock.set_drift(drift_ppb, 0)
    early = []

    async def main(world):
        loop = asyncio.get_running_loop()
        for delay_ms in (1, 3, 7, 1000, 33333):
            start_ns, when = world.clock.now_ns(), loop.time() + delay_ms / 1000
            await asyncio.sleep(delay_ms / 1000)
            early.append(world.clock.now_ns() < start_ns + delay_ms * NS_PER_MS)
            done = loop.create_future()
            loop.call_at(when + 1, done.set_result, None)
            await done
            early.append(loop.time() < when + 1)

    server.start(main)
    simulation.loop.run_for(120 * NS_PER_S)

    assert early == [False] * 10


def test_a_fast_clock_makes_timers_come_sooner(simulation, server, client):
    server.clock.set_drift(100_000_000, 0)
    woken = []

    async def main(world):
        await asyncio.sleep(1)
        woken.append((simulation.loop.now_ns + 500_000) // NS_PER_MS)

    server.start(main)
    client.start(main)
    simulation.loop.run_for(2 * NS_PER_S)

    assert woken == [909, 1000]


def test_a_drift_change_does_not_make_the_clock_jump():
    clock = MonotonicClock(5)
    clock.set_drift(300_000, 10 * NS_PER_S)
    before = clock.local_ns(20 * NS_PER_S)
    clock.set_drift(-300_000, 20 * NS_PER_S)

    assert clock.local_ns(20 * NS_PER_S) == before
    for local_ns in range(before, before + 50):
        assert clock.local_ns(clock.virtual_ns(local_ns)) >= local_ns
        assert clock.local_ns(clock.virtual_ns(local_ns) - 1) < local_ns


def test_nothing_of_a_killed_process_runs_again(simulation, server):
    effects = []

    class Thing:
        def __del__(self):
            effects.append("finaliser")

    async def child():
        try:
            await forever()
        finally:
            effects.append("child")

    async def main(world):
        thing = Thing()
        task = asyncio.create_task(child())
        asyncio.get_running_loop().call_later(1, effects.append, "timer")
        try:
            async with asyncio.timeout(50):
                await task
        finally:
            effects.append(thing)

    server.start(main)
    simulation.loop.run_for(500 * NS_PER_MS)
    server.kill()
    gc.collect()
    simulation.loop.run_for(100 * NS_PER_S)
    gc.collect()

    assert effects == []


def test_a_process_that_is_killed_before_its_first_step_is_let_go_without_a_complaint(simulation, server):
    server.start(lambda world: forever())
    process = server.process
    server.kill()
    simulation.loop.run_for(NS_PER_MS)

    with warnings.catch_warnings(record=True) as complaints:
        warnings.simplefilter("always")
        process.release()
        gc.collect()

    assert not complaints


def test_a_killed_process_never_ends_by_itself_and_a_new_one_starts(simulation, server):
    first = server.start(lambda world: forever())
    simulation.loop.run_for(NS_PER_MS)
    server.kill()
    second = server.start(lambda world: asyncio.sleep(1))
    simulation.loop.run_for(2 * NS_PER_S)

    assert not first.done()
    assert second.result() is None
    assert server.incarnations == 2


def test_an_exception_ends_a_process_and_is_reported(simulation, server):
    async def main(world):
        raise ValueError("broken")

    ended = server.start(main)
    simulation.loop.run_for(NS_PER_MS)

    assert repr(ended.result()) == "ValueError('broken')"
    assert not server.running


def test_a_paused_process_runs_what_came_due_when_it_is_resumed(simulation, server):
    ticks = []

    async def main(world):
        while True:
            await asyncio.sleep(0.01)
            ticks.append(simulation.loop.now_ns // NS_PER_MS)

    server.start(main)
    simulation.loop.run_for(25 * NS_PER_MS)
    server.pause()
    simulation.loop.run_for(1000 * NS_PER_MS)
    server.resume()
    simulation.loop.run_for(15 * NS_PER_MS)

    assert ticks == [10, 20, 1025, 1035]


def test_a_blocking_sync_stops_the_process_and_moves_its_clock(simulation, server, client):
    seen = {}

    async def main(world):
        file = world.disk.open("f", create=True)
        asyncio.get_running_loop().call_soon(lambda: seen.update(next=simulation.loop.now_ns))
        before_ns = world.clock.now_ns()
        file.sync()
        seen["inside"] = world.clock.now_ns() - before_ns
        await forever()

    server.disk.faults.sync_ns_min = 5 * NS_PER_MS
    server.disk.faults.sync_ns_max = 5 * NS_PER_MS + 1
    server.start(main)
    simulation.loop.run_for(NS_PER_S)

    assert seen["inside"] == 5 * NS_PER_MS
    assert seen["next"] >= 5 * NS_PER_MS


def test_a_spinning_program_is_ended(simulation, server):
    async def main(world):
        while True:  # noqa: ASYNC110
            await asyncio.sleep(0)

    server.start(main)

    with pytest.raises(Livelock, match="server#1"):
        simulation.loop.run_for(60 * NS_PER_S)


def test_waiting_for_nothing_is_a_deadlock(simulation):
    with pytest.raises(Deadlock):
        simulation.run(forever())


def test_sets_of_tasks_iterate_in_order_of_creation(simulation):
    async def main():
        tasks = [asyncio.create_task(asyncio.sleep(0.01, number)) for number in range(40)]
        done, _ = await asyncio.wait(tasks)
        return [task.result() for task in done]

    order = simulation.run(main())

    assert order == simulation_order()


def simulation_order():
    """The same program in a simulation of its own gives the same order, whatever the addresses are."""
    other = Simulation(1)

    async def main():
        ballast = [object() for _ in range(1001)]
        tasks = [asyncio.create_task(asyncio.sleep(0.01, number)) for number in range(40)]
        done, _ = await asyncio.wait(tasks)
        del ballast
        return [task.result() for task in done]

    order = other.run(main())
    other.loop.close()
    return order


def test_failures_nobody_caught_are_kept(simulation, server):
    async def main(world):
        asyncio.get_running_loop().call_soon(lambda: 1 // 0)
        await forever()

    server.start(main)
    simulation.loop.run_for(NS_PER_MS)

    assert [repr(failure.exception) for failure in simulation.loop.failures] == [
        "ZeroDivisionError('integer division or modulo by zero')"
    ]


def open_a_file():
    open("/dev/null").close()  # noqa: PTH123


def open_a_socket():
    import socket

    socket.socket()


def start_a_thread():
    import threading

    threading.Thread(target=print).start()


def sleep_really():
    import time

    time.sleep(1)  # noqa: TID251


def use_an_executor():
    asyncio.get_running_loop().run_in_executor(None, print)


@pytest.mark.parametrize("real", [open_a_file, open_a_socket, start_a_thread, sleep_really, use_an_executor])
def test_the_real_world_is_refused_with_the_place(simulation, server, real):
    async def main(world):
        try:
            real()
        except RuntimeError:
            await forever()

    server.start(main)

    with pytest.raises(Refused, match=r"test_simulated_loop\.py:\d+ in " + real.__name__):
        simulation.loop.run_for(NS_PER_MS)


def draw_from_the_library():
    import os
    import random
    import time
    import uuid

    drawn = []

    async def main(world):
        await asyncio.sleep(1)
        drawn.extend([random.random(), os.urandom(2), uuid.uuid4(), time.time()])  # noqa: TID251

    with sealed(Simulation(7)) as simulation:
        simulation.add_machine("server", "10.0.0.1", 1).start(main)
        simulation.loop.run_for(2 * NS_PER_S)
    return drawn


def test_the_standard_librarys_chance_and_time_come_from_the_seed():
    assert draw_from_the_library() == draw_from_the_library()
