"""A rolled back disk is what a power failure that loses everything unsynced would have left: held against a model."""

import asyncio
import random
from pathlib import Path

import pytest

from replog.host.sabotage import undo_journal
from replog.host.sabotage.roll_back import roll_back
from replog.host.sabotage.undo_disk import UndoDisk


class Node:
    """A model's file: what it holds, and what it held when it was last synced."""

    def __init__(self):
        self.now = b""
        self.durable = b""


class Folder:
    """A model's directory: names now, and when it was last synced."""

    def __init__(self):
        self.now = {}
        self.durable = {}

    def image(self):
        return {
            name: child.image() if isinstance(child, Folder) else child.durable
            for name, child in sorted(self.durable.items())
        }


def tree(path):
    return {child.name: tree(child) if child.is_dir() else child.read_bytes() for child in sorted(path.iterdir())}


class Machine:
    """The same operations on a real disk and on the model."""

    def __init__(self, folder, seed):
        self.random = random.Random(seed)
        self.data = folder / "data"
        self.data.mkdir()
        self.undo = folder / "undo"
        self.disk = UndoDisk(str(self.undo))
        self.root = Folder()
        self.files = {}  # path -> open file

    def folder_paths(self):
        return [(self.data, self.root)] + [
            (self.data / name, child) for name, child in self.root.now.items() if isinstance(child, Folder)
        ]

    def some_file(self):
        found = [
            (path / name, folder, name)
            for path, folder in self.folder_paths()
            for name, child in folder.now.items()
            if isinstance(child, Node)
        ]
        return self.random.choice(found) if found else None

    def opened(self, path):
        if path not in self.files:
            self.files[path] = self.disk.open(str(path), create=True)
        return self.files[path]

    def shut(self, path):
        if path in self.files:
            self.files.pop(path).close()

    # --- operations

    def create(self):
        path, folder = self.random.choice(self.folder_paths())
        name = f"f{self.random.randrange(6)}"
        if name not in folder.now:
            self.opened(path / name)
            folder.now[name] = Node()

    def make_directory(self):
        name = f"d{self.random.randrange(3)}"
        if name not in self.root.now:
            self.disk.make_directory(str(self.data / name))
            self.root.now[name] = Folder()

    def append(self):
        if (found := self.some_file()) is not None:
            path, folder, name = found
            data = self.random.randbytes(self.random.randrange(1, 40))
            self.opened(path).append(data[:3], data[3:])
            folder.now[name].now += data

    def overwrite(self):
        if (found := self.some_file()) is not None:
            path, folder, name = found
            node = folder.now[name]
            position = self.random.randrange(len(node.now) + 1)
            data = self.random.randbytes(self.random.randrange(1, 30))
            self.opened(path).write_at(position, data)
            node.now = node.now[:position] + data + node.now[position + len(data) :]

    def truncate(self):
        if (found := self.some_file()) is not None:
            path, folder, name = found
            node = folder.now[name]
            size = self.random.randrange(len(node.now) + 1)
            self.opened(path).truncate(size)
            node.now = node.now[:size]

    def sync(self):
        if (found := self.some_file()) is not None:
            path, folder, name = found
            self.opened(path).sync()
            folder.now[name].durable = folder.now[name].now

    def sync_directory(self):
        path, folder = self.random.choice(self.folder_paths())
        self.disk.sync_directory(str(path))
        folder.durable = dict(folder.now)

    def rename(self):
        if (found := self.some_file()) is not None:
            path, folder, name = found
            new = f"f{self.random.randrange(6)}"
            if new != name:
                self.shut(path)
                self.shut(path.with_name(new))
                self.disk.rename(str(path), str(path.with_name(new)))
                folder.now[new] = folder.now.pop(name)

    def remove(self):
        if (found := self.some_file()) is not None:
            path, folder, name = found
            self.shut(path)
            self.disk.remove(str(path))
            del folder.now[name]

    def replace_file(self):
        path, folder = self.random.choice(self.folder_paths())
        content = self.random.randbytes(10)
        self.shut(path / "f0")
        self.disk.replace_file(str(path / "f0"), content)
        folder.now["f0"] = Node()
        folder.now["f0"].now = folder.now["f0"].durable = content
        folder.durable = dict(folder.now)

    def remove_tree(self):
        folders = [name for name, child in self.root.now.items() if isinstance(child, Folder)]
        if folders:
            name = self.random.choice(folders)
            for path in [path for path in self.files if path.parent == self.data / name]:
                self.shut(path)
            self.disk.remove_tree(str(self.data / name))
            del self.root.now[name]

    def rename_directory(self):
        folders = [name for name, child in self.root.now.items() if isinstance(child, Folder)]
        new = f"d{self.random.randrange(3)}"
        if folders and new not in self.root.now:
            name = self.random.choice(folders)
            for path in [path for path in self.files if path.parent == self.data / name]:
                self.shut(path)
            self.disk.rename(str(self.data / name), str(self.data / new))
            self.root.now[new] = self.root.now.pop(name)

    def killed_and_started(self):
        """Kill -9: files are as they are; the journal goes on from where it was."""
        for path in list(self.files):
            self.shut(path)
        self.disk.close()
        self.disk = UndoDisk(str(self.undo))

    def step(self):
        often = [self.append] * 6 + [self.create, self.overwrite, self.sync, self.sync_directory] * 3
        rare = [
            self.truncate, self.rename, self.remove, self.replace_file, self.make_directory, self.remove_tree,
            self.rename_directory, self.killed_and_started,
        ]  # fmt: skip
        self.random.choice(often + rare)()

    def lose_power(self):
        for path in list(self.files):
            self.shut(path)
        self.disk.close()
        return roll_back(self.undo, [self.data])


@pytest.mark.parametrize("block", range(10))
def test_what_is_rolled_back_is_what_was_synced(tmp_path, block, monkeypatch):
    monkeypatch.setattr(undo_journal, "COMPACT_BYTES", 600)
    for seed in range(block * 20, block * 20 + 20):
        machine = Machine(Path(tmp_path, str(seed)).mkdir() or Path(tmp_path, str(seed)), seed)
        for _ in range(machine.random.randrange(1, 120)):
            machine.step()
        now = tree(machine.data)
        assert now == {
            name: {inner: file.now for inner, file in child.now.items()} if isinstance(child, Folder) else child.now
            for name, child in machine.root.now.items()
        }, seed

        machine.lose_power()

        assert tree(machine.data) == machine.root.image(), seed
        assert not machine.undo.exists()


def test_what_is_written_while_a_sync_goes_on_is_not_durable(tmp_path):
    data = tmp_path / "data"
    data.mkdir()
    disk = UndoDisk(str(tmp_path / "undo"))
    file = disk.open(str(data / "log"), create=True)
    disk.sync_directory(str(data))
    file.append(b"first")

    async def written_meanwhile():
        syncing = asyncio.ensure_future(disk.sync_in_background([file]))
        await syncing
        file.append(b"second")

    asyncio.run(written_meanwhile())
    file.close()
    disk.close()
    rolled = roll_back(tmp_path / "undo", [data])

    assert (data / "log").read_bytes() == b"first"
    assert (rolled.file_count, rolled.byte_count) == (1, 6)


def test_an_entry_half_written_changed_nothing_yet(tmp_path):
    journal = undo_journal.UndoJournal(str(tmp_path / "undo"))
    journal.will_write(-1, 77, 10, 10, 5)
    journal.close()
    with (tmp_path / "undo" / "journal").open("ab") as file:
        file.write(b"\x30\x00\x00\x00half")

    assert undo_journal.load(tmp_path / "undo").sizes == {77: 10}


def test_nothing_to_undo(tmp_path):
    rolled = roll_back(tmp_path / "never", [tmp_path])

    assert (rolled.file_count, rolled.name_count) == (0, 0)
    assert list(tmp_path.iterdir()) == []
