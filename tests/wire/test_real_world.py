"""What only the real world has: event files, writes that come up short, a node's end."""

import asyncio
import json
import os
from contextlib import suppress
from io import StringIO
from pathlib import Path

import pytest

from replog.config import NodeConfig
from replog.config.endpoints import ConfigError, endpoint
from replog.host.world import RealDisk, RealJournal, RealWorld, run
from replog.security.principals import rules_of


@pytest.fixture
def world(tmp_path: Path) -> RealWorld:
    return RealWorld(
        NodeConfig(
            {
                "process.roles": "broker",
                "node.id": 3,
                "cluster.id": "c",
                "listeners": "127.0.0.1:0",
                "log.dirs": str(tmp_path),
                "controller.quorum.voters": "101@127.0.0.1:1",
                "tribunal.events.file": str(tmp_path / "deep" / "events.jsonl"),
            }
        ),
        level="error",
    )


def test_events_are_whole_lines_and_probes_are_counted(tmp_path: Path):
    journal = RealJournal(7, str(tmp_path / "events.jsonl"))
    journal.event("registered", node=7, broker_epoch=5)
    for _ in range(3):
        journal.probe("elr_nonempty")
    journal.close()

    lines = [json.loads(line) for line in (tmp_path / "events.jsonl").read_text().splitlines()]
    assert [line.pop("node_ns") > 0 for line in lines] == [True] * 4
    assert lines[0] == {"event": "registered", "node": 7, "broker_epoch": 5}
    assert [line["count"] for line in lines[1:]] == [1, 2, 3]
    assert lines[1]["name"] == "elr_nonempty"


def test_people_see_what_is_important_enough():
    people = StringIO()
    journal = RealJournal(7, level="warning", people=people)
    journal.log("info", "quiet")
    journal.log("error", "loud")

    assert people.getvalue().endswith("ERROR   node 7: loud\n")
    assert "quiet" not in people.getvalue()


def test_what_strangers_call_themselves_makes_no_line_of_its_own():
    people = StringIO()
    journal = RealJournal(7, people=people)

    journal.log("info", "from x\n12:00:00.000 ERROR   node 7: all is lost\r\x1b[2J\u2028\x85 is the name")

    assert len(people.getvalue().splitlines()) == 2
    assert people.getvalue().splitlines()[1].startswith("    12:00:00")
    assert "\\u000d\\u001b[2J\\u2028\\u0085" in people.getvalue()


def test_a_log_that_cannot_be_written_ends_nobody():
    with Path("/dev/full").open("w") as full:
        journal = RealJournal(7, people=full)
        journal.log("error", "no room")
        with suppress(OSError):  # what is left in the file's buffer
            full.close()


def test_errors_of_one_type_and_several_causes_are_each_logged_once():
    people = StringIO()
    journal = RealJournal(7, people=people)

    for fails in (lambda: rules_of("x"), lambda: endpoint("x", "y")) * 3:
        with pytest.raises(ConfigError) as raised:
            fails()
        journal.unforeseen("a request", raised.value)

    assert journal.unforeseen_count == 6
    assert people.getvalue().count("only counted") == 2


def test_a_write_that_came_up_short_is_finished(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    disk = RealDisk()
    file = disk.open(str(tmp_path / "log"), create=True)
    whole = os.pwritev
    monkeypatch.setattr(os, "pwritev", lambda fd, parts, position: whole(fd, [b"".join(parts)[:3]], position))

    assert file.append(b"abc", b"defg") == 0

    assert (file.read_at(0, 10), file.size()) == (b"abcdefg", 7)
    file.close()
    disk.close()


def test_a_node_that_ends_well_exits_with_zero(world: RealWorld):
    async def main() -> None:
        await asyncio.sleep(0)

    assert run(main(), world) == 0


def test_what_nobody_foresaw_ends_the_node(world: RealWorld):
    """In a callback, where nobody waits for it."""

    async def main() -> None:
        asyncio.get_running_loop().call_soon(_fail)
        await asyncio.sleep(60)

    assert run(main(), world) == 1


def test_what_main_raises_is_raised(world: RealWorld):
    async def main() -> None:
        _fail()

    with pytest.raises(AssertionError, match="a bug"):
        run(main(), world)


def _fail() -> None:
    raise AssertionError("a bug")


def test_what_python_can_give_to_nobody_is_logged_once_and_counted(
    world: RealWorld, capsys: pytest.CaptureFixture[str]
):
    """Five lines each: whoever names a server in TLS that is no text caused them as often as he connected."""

    class Broken:
        def __del__(self) -> None:
            raise ValueError("nobody takes this")

    async def main() -> None:
        for _ in range(50):
            Broken()

    assert run(main(), world) == 0
    assert world.journal.unforeseen_count == 50
    assert capsys.readouterr().err.count("Exception ignored") == 0
