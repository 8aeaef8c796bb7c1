"""What `replog.ports.Disk` and `File` promise, on every disk."""

import asyncio

import pytest

from replog.ports import NewFolder, World


def test_a_file_holds_what_was_written(place):
    async def scenario(world: World) -> None:
        file = world.disk.open(f"{place.directory}/log", create=True)

        first = file.append(b"abc", memoryview(b"de"), bytearray(b"f"))
        second = file.append(b"ghi")

        assert (first, second, file.size()) == (0, 6, 9)
        assert file.read_at(0, 100) == b"abcdefghi"
        assert file.read_at(4, 2) == b"ef"
        assert file.read_at(9, 5) == b""
        assert file.path == f"{place.directory}/log"
        file.close()
        file.close()

    place.run(scenario)


def test_many_parts_are_appended_in_order(place):
    async def scenario(world: World) -> None:
        file = world.disk.open(f"{place.directory}/log", create=True)
        file.append(b"x")

        assert file.append(*[bytes([n % 256]) for n in range(3000)]) == 1
        assert file.read_at(1, 3000) == bytes(n % 256 for n in range(3000))
        file.append()
        assert file.size() == 3001
        file.close()

    place.run(scenario)


def test_a_file_is_overwritten_extended_and_cut(place):
    async def scenario(world: World) -> None:
        file = world.disk.open(f"{place.directory}/log", create=True)
        file.append(b"abcdef")

        file.write_at(1, b"XY")
        file.write_at(5, b"fgh")
        assert file.read_at(0, 10) == b"aXYdefgh"
        file.truncate(3)
        assert (file.read_at(0, 10), file.size()) == (b"aXY", 3)
        assert file.append(b"!") == 3
        file.write_at(6, b"z")
        assert file.read_at(0, 10) == b"aXY!\0\0z"
        file.sync()
        file.close()

    place.run(scenario)


def test_two_openings_of_a_path_see_one_file(place):
    async def scenario(world: World) -> None:
        one = world.disk.open(f"{place.directory}/log", create=True)
        one.append(b"abc")
        one.close()

        other = world.disk.open(f"{place.directory}/log")

        assert (other.size(), other.read_at(0, 3)) == (3, b"abc")
        other.close()

    place.run(scenario)


def test_what_is_not_there_is_said_so(place):
    async def scenario(world: World) -> None:
        missing = f"{place.directory}/missing"
        assert not world.disk.exists(missing)
        with pytest.raises(FileNotFoundError):
            world.disk.open(missing)
        with pytest.raises(FileNotFoundError):
            world.disk.read_file(missing)
        with pytest.raises(FileNotFoundError):
            world.disk.remove(missing)
        with pytest.raises(FileNotFoundError):
            world.disk.list_directory(missing)
        with pytest.raises(FileNotFoundError):
            world.disk.rename(missing, f"{place.directory}/other")
        world.disk.remove_tree(missing)

    place.run(scenario)


def test_directories_are_made_listed_sorted_and_removed(place):
    async def scenario(world: World) -> None:
        disk = world.disk
        disk.make_directory(f"{place.directory}/a/b")
        disk.make_directory(f"{place.directory}/a/b")
        for name in ("z", "m", "k-10", "k-9"):
            disk.open(f"{place.directory}/a/{name}", create=True).close()
        disk.sync_directory(f"{place.directory}/a")

        assert disk.list_directory(f"{place.directory}/a") == ["b", "k-10", "k-9", "m", "z"]
        assert disk.exists(f"{place.directory}/a/b")
        disk.remove(f"{place.directory}/a/m")
        disk.remove_tree(f"{place.directory}/a/b")
        assert disk.list_directory(f"{place.directory}/a") == ["k-10", "k-9", "z"]
        disk.remove_tree(f"{place.directory}/a")
        assert not disk.exists(f"{place.directory}/a")

    place.run(scenario)


def test_rename_replaces_files_and_moves_directories(place):
    async def scenario(world: World) -> None:
        disk = world.disk
        disk.replace_file(f"{place.directory}/old", b"old")
        disk.replace_file(f"{place.directory}/new", b"new")

        disk.rename(f"{place.directory}/new", f"{place.directory}/old")
        assert disk.read_file(f"{place.directory}/old") == b"new"
        assert not disk.exists(f"{place.directory}/new")

        disk.make_directory(f"{place.directory}/t-0")
        disk.replace_file(f"{place.directory}/t-0/log", b"records")
        disk.rename(f"{place.directory}/t-0", f"{place.directory}/t-0.delete")
        assert disk.read_file(f"{place.directory}/t-0.delete/log") == b"records"

    place.run(scenario)


def test_an_open_file_survives_its_name(place):
    """Segments are renamed and removed while a reader still has them open."""

    async def scenario(world: World) -> None:
        file = world.disk.open(f"{place.directory}/log", create=True)
        file.append(b"abc")
        world.disk.rename(f"{place.directory}/log", f"{place.directory}/log.deleted")
        assert file.read_at(0, 3) == b"abc"
        world.disk.remove(f"{place.directory}/log.deleted")
        assert file.read_at(0, 3) == b"abc"
        file.close()

    place.run(scenario)


def test_a_small_file_is_replaced_whole(place):
    async def scenario(world: World) -> None:
        path = f"{place.directory}/checkpoint"
        world.disk.replace_file(path, b"a long first content")
        world.disk.replace_file(path, b"short")

        assert world.disk.read_file(path) == b"short"
        assert [name for name in world.disk.list_directory(place.directory) if name.startswith("checkpoint")] == [
            "checkpoint"
        ]

    place.run(scenario)


def test_small_files_are_replaced_in_the_background_where_they_are_wanted_still(place):
    async def scenario(world: World) -> None:
        disk, folder = world.disk, place.directory
        disk.replace_file(f"{folder}/kept", b"kept")
        outcomes: list[OSError | None] = []
        is_done = asyncio.Event()

        def done(problem: OSError | None) -> None:
            outcomes.append(problem)
            is_done.set()

        def is_wanted(path: str) -> bool:
            return not path.endswith("/kept")

        files = {f"{folder}/kept": b"other", f"{folder}/new": b"new"}
        disk.replace_in_background(files, is_wanted=is_wanted, done=done)
        await is_done.wait()
        is_done.clear()
        disk.replace_in_background({f"{folder}/missing/f": b"x"}, is_wanted=is_wanted, done=done)
        await is_done.wait()

        assert (disk.read_file(f"{folder}/kept"), disk.read_file(f"{folder}/new")) == (b"kept", b"new")
        assert [type(outcome) for outcome in outcomes] == [type(None), FileNotFoundError]
        assert not [name for name in disk.list_directory(folder) if name.endswith("tmp")]

    place.run(scenario)


def test_folders_with_files_are_made_in_the_background(place):
    async def scenario(world: World) -> None:
        folders = [
            NewFolder(f"{place.directory}/{n}/folder", {"empty": b"", "full": b"content %d" % n}) for n in range(3)
        ]

        await world.disk.create_in_background(folders)
        await world.disk.create_in_background([NewFolder(folders[0].path, {"full": b"other"})])
        await world.disk.create_in_background([])

        assert [world.disk.list_directory(folder.path) for folder in folders] == [["empty", "full"]] * 3
        assert world.disk.read_file(f"{folders[0].path}/full") == b"other"
        assert world.disk.read_file(f"{folders[2].path}/full") == b"content 2"

    place.run(scenario)


def test_files_of_many_directories_are_written_together(place):
    async def scenario(world: World) -> None:
        disk, folders = world.disk, [f"{place.directory}/{n}" for n in range(20)]
        for folder in folders:
            disk.make_directory(folder)
        disk.open(f"{folders[0]}/full.tmp", create=True).append(b"left by a process that was killed")
        disk.replace_file(f"{folders[0]}/full", b"a long first content")

        disk.write_together([NewFolder(folder, {"full": b"content", "empty": b""}) for folder in folders])
        disk.write_together([NewFolder(folders[1], {})])
        disk.write_together([])

        assert [disk.list_directory(folder) for folder in folders] == [["empty", "full"]] * 20
        assert {disk.read_file(f"{folder}/full") for folder in folders} == {b"content"}
        assert {disk.read_file(f"{folder}/empty") for folder in folders} == {b""}
        with pytest.raises(FileNotFoundError):
            disk.write_together([NewFolder(f"{place.directory}/missing", {"full": b"content"})])

    place.run(scenario)


def test_files_are_made_durable_in_the_background(place):
    async def scenario(world: World) -> None:
        files = [world.disk.open(f"{place.directory}/{n}", create=True) for n in range(3)]
        for file in files:
            file.append(b"abc")

        await world.disk.sync_in_background(files)
        await world.disk.sync_in_background([])

        for file in files:
            assert file.read_at(0, 3) == b"abc"
            file.close()

    place.run(scenario)


def test_writing_again_changes_nothing_that_can_be_read(place):
    async def scenario(world: World) -> None:
        file = world.disk.open(f"{place.directory}/f", create=True)
        file.append(b"abc" * 3000)
        file.sync()

        for position in (0, 5000, 9000, 9001):
            file.write_again(position)

        assert file.size() == 9000
        assert file.read_at(0, 10_000) == b"abc" * 3000
        file.close()

    place.run(scenario)


def test_forgetting_the_cache_changes_nothing_that_can_be_read(place):
    async def scenario(world: World) -> None:
        file = world.disk.open(f"{place.directory}/f", create=True)
        file.append(b"abc" * 3000)
        file.sync()
        file.append(b"unsynced")

        file.forget_cached(0, 9008)

        assert file.read_at(8997, 100) == b"abcunsynced"
        file.close()

    place.run(scenario)
