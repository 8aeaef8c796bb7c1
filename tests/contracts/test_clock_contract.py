"""What clocks, entropy and the journal promise, everywhere."""

import asyncio

from replog.ports import World


def test_monotonic_time_passes_in_both_units(place):
    async def scenario(world: World) -> None:
        began_ns, began_ms = world.clock.now_ns(), world.clock.now_ms()
        await asyncio.sleep(0.02)
        ended_ns, ended_ms = world.clock.now_ns(), world.clock.now_ms()

        assert began_ms - 1 <= began_ns // 1_000_000 <= began_ms
        assert ended_ns - began_ns >= 19_000_000
        assert ended_ms - began_ms >= 19

    place.run(scenario)


def test_wall_time_is_after_2020(place):
    async def scenario(world: World) -> None:
        assert world.clock.wall_ms() > 1_577_836_800_000

    place.run(scenario)


def test_each_purpose_has_one_stream_of_its_own(place):
    async def scenario(world: World) -> None:
        elections, retries = world.entropy.random("election"), world.entropy.random("retry")

        assert elections is world.entropy.random("election")
        assert elections is not retries
        assert [elections.random() for _ in range(4)] != [retries.random() for _ in range(4)]

    place.run(scenario)


def test_uuids_are_random_and_never_the_same(place):
    async def scenario(world: World) -> None:
        ids = [world.entropy.uuid() for _ in range(100)]

        assert len(set(ids)) == 100
        assert {one.version for one in ids} == {4}

    place.run(scenario)


def test_the_journal_takes_what_is_reported(place):
    async def scenario(world: World) -> None:
        for level in ("debug", "info", "warning", "error"):
            world.journal.log(level, "a line for people")
        world.journal.event("registered", node=1, broker_epoch=7, incarnation=None)
        for _ in range(5):
            world.journal.probe("elr_nonempty")

    place.run(scenario)
