"""Voters added and removed by `python -m replog admin`, on real processes with real disks (KIP-853)."""

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tribunal.clusters.kafka.side_by_side import Ours, Place, SideBySide

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(180)]
QUICK = {
    "controller.quorum.election.timeout.ms": 300,
    "controller.quorum.fetch.timeout.ms": 600,
    "broker.heartbeat.interval.ms": 300,
    "broker.session.timeout.ms": 3000,
}
NEWCOMER = 104


class Quorum(SideBySide):
    """Three controllers and a broker to ask; a fourth controller that no configuration names."""

    def __init__(self, folder: Path) -> None:
        super().__init__(Ours(), folder, brokers=1, controllers=3, settings=QUICK)
        known = self.places[101]
        port = self.places[1].endpoint[1]
        self.newcomer = Place(NEWCOMER, "controller", folder / str(NEWCOMER), known.voters, port)

    def admin(self, *arguments: str, fails: int = 0) -> str:
        command = [sys.executable, "-m", "replog", "admin", "--bootstrap", self.bootstrap, *arguments]
        done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
        assert done.returncode == fails, done.stdout + done.stderr
        return done.stdout + done.stderr

    def described(self) -> dict[str, dict[int, str]]:
        """Voters and observers with their directory ids, and who leads."""
        said = self.admin("describe-quorum")
        found: dict[str, dict[int, str]] = {"voter": {}, "observer": {}, "leader": {}}
        for kind, node, directory in re.findall(r"^(voter|observer) (\d+) directory=(\S+)", said, re.MULTILINE):
            found[kind][int(node)] = directory
        found["leader"][int(re.search(r"leader=(\d+)", said)[1])] = ""  # type: ignore[index]
        return found

    @property
    def leader(self) -> int:
        return next(iter(self.described()["leader"]))

    def voters_are(self, *nodes: int) -> bool:
        described = self.described()
        return sorted(described["voter"]) == sorted(nodes)

    def prepare(self, place: Place, settings: dict[str, object]) -> None:
        place.folder.mkdir(exist_ok=True)
        self.places[place.node] = place
        self._configs[place.node] = self.software.write_config(place, self.settings | settings)
        formatting = self.software.format(place, self._configs[place.node])
        subprocess.run(formatting, capture_output=True, timeout=60, check=True)


@pytest.fixture
def quorum(tmp_path: Path) -> "Quorum":
    with Quorum(tmp_path) as quorum:
        quorum.up()
        quorum.wait_until(
            lambda: all(set(found) - set("0-") for found in quorum.described()["voter"].values()), "directories", 20
        )
        yield quorum  # type: ignore[misc]


@pytest.mark.nightly
def test_a_controller_that_no_configuration_names_is_added_and_comes_to_lead(quorum: Quorum) -> None:
    quorum.prepare(quorum.newcomer, {"tribunal.controller.joins": True})
    quorum.start(NEWCOMER)
    quorum.wait_until(lambda: NEWCOMER in quorum.described()["observer"], "the newcomer observes", 20)
    listener = "{}:{}".format(*quorum.newcomer.controller_endpoint)

    said = quorum.admin("add-voter", "--node", str(NEWCOMER), "--listener", listener)
    again = quorum.admin("add-voter", "--node", "101", "--listener", listener, fails=5)

    assert f"controller {NEWCOMER} with directory" in said
    assert "is not an observing controller" in again
    assert quorum.voters_are(101, 102, 103, NEWCOMER)
    # The others go one by one, by name, until it leads; the last two are not in each other's way.
    for node in (101, 102, 103):
        quorum.wait_until(lambda node=node: node in quorum.described()["voter"], "settled", 20)
        quorum.admin("remove-voter", "--node", str(node))
    quorum.wait_until(lambda: quorum.voters_are(NEWCOMER) and quorum.leader == NEWCOMER, "the newcomer leads", 20)
    # All restart: who leads, and where, is in the log alone.
    for node in (NEWCOMER, 1):
        quorum.kill(node)
        quorum.start(node)
    quorum.wait_serving([1])
    assert quorum.leader == NEWCOMER


@pytest.mark.nightly
def test_a_wiped_voter_is_refused_until_it_is_removed_and_added(quorum: Quorum) -> None:
    before = quorum.described()["voter"]
    wiped = next(node for node in before if node != quorum.leader)
    quorum.kill(wiped)
    shutil.rmtree(quorum.places[wiped].data)
    quorum.prepare(quorum.places[wiped], {})
    quorum.start(wiped)

    quorum.wait_until(lambda: wiped in quorum.described()["observer"], "it observes: another directory", 20)
    assert quorum.described()["voter"][wiped] == before[wiped]
    listener = "{}:{}".format(*quorum.places[wiped].controller_endpoint)
    early = quorum.admin("add-voter", "--node", str(wiped), "--listener", listener, fails=5)
    removed = quorum.admin("remove-voter", "--node", str(wiped), "--directory-id", before[wiped])
    added = quorum.admin("add-voter", "--node", str(wiped), "--listener", listener)

    assert "DUPLICATE_VOTER" in early
    assert before[wiped] in removed
    assert quorum.described()["voter"][wiped] in added
    assert quorum.described()["voter"][wiped] != before[wiped]


@pytest.mark.nightly
def test_what_cannot_be_is_said_in_one_line(quorum: Quorum) -> None:
    unknown = "6f4e1e0e-0000-4000-8000-000000000001"
    nobody = "00000000-0000-0000-0000-000000000000"

    assert "is not a voter" in quorum.admin("remove-voter", "--node", "109", fails=5)
    assert "VOTER_NOT_FOUND" in quorum.admin("remove-voter", "--node", "101", "--directory-id", unknown, fails=5)
    assert "'x' is not a UUID" in quorum.admin("remove-voter", "--node", "101", "--directory-id", "x", fails=2)
    adding = ("add-voter", "--node", "104", "--listener")
    assert "is not host:port" in quorum.admin(*adding, "nowhere", fails=2)
    assert "needs a directory id" in quorum.admin(*adding, "h:1", "--directory-id", nobody, fails=5)
