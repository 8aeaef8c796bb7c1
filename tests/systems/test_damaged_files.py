"""Files of a described system's dead node that are damaged by a pattern: what the program does to them, and the fault that asks it to."""

import asyncio
import json
import os
import tempfile
from collections.abc import Awaitable, Callable
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.systems.judged import judged_in, started
from tribunal.clusters.api import ClusterError, Proof
from tribunal.clusters.capabilities import FileDamage
from tribunal.clusters.kinds import system as kind
from tribunal.clusters.namespaces.spaces import way_in
from tribunal.clusters.spec import ClusterSpec
from tribunal.clusters.systems.cluster import SystemCluster
from tribunal.clusters.systems.damage import damaged
from tribunal.clusters.systems.damaged_files import held, main, place_of
from tribunal.clusters.systems.disks import lacking as no_disks
from tribunal.harness.new import made_system
from tribunal.harness.plan import made
from tribunal.harness.scenario import BadScenario, load
from tribunal.results.store import Recording

NO_DISKS = str(way_in()) if isinstance(way_in(), str) else no_disks()


def folder_of(tmp_path: Path) -> Path:
    """Make files of several kinds: written, made in advance, empty; and a link out of the folder."""
    folder = tmp_path / "data"
    (folder / "wal").mkdir(parents=True)
    (tmp_path / "outside").write_bytes(b"o" * 100)
    (folder / "wal" / "1.log").write_bytes(b"a" * 9000)
    (folder / "wal" / "2.log").write_bytes(b"b" * 900 + bytes(9100))
    (folder / "wal" / "empty.log").touch()
    (folder / "wal" / "made.log").write_bytes(bytes(5000))
    (folder / "wal" / "away.log").symlink_to(tmp_path / "outside")
    (folder / "state").write_bytes(b"s" * 50)
    return folder


def contents(folder: Path) -> dict[str, bytes]:
    """Return what each file has."""
    return {path.name: path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


@pytest.mark.parametrize("seed", range(5))
def test_one_bit_of_what_a_file_holds_turns(tmp_path: Path, seed: int) -> None:
    """Not of the zeros that were written to have room."""
    folder = folder_of(tmp_path)
    before = contents(folder)

    said = json.loads(json.dumps(main(folder, "wal/2.log", "bit-flip", 1, seed)))

    after = contents(folder)
    (one,) = said["damaged"]
    assert (one["path"], said["matching"], said["others"]) == ("wal/2.log", 1, [])
    assert one["at"] < 900
    assert (int(one["was"], 16) ^ int(one["is"], 16)).bit_count() == 1
    assert {name for name in before if before[name] != after[name]} == {"2.log"}
    different = [at for at, pair in enumerate(zip(before["2.log"], after["2.log"], strict=True)) if pair[0] != pair[1]]
    assert different == [one["at"]]


def test_a_page_of_what_a_file_holds_is_zeros(tmp_path: Path) -> None:
    """A whole one, as a disk loses it."""
    folder = folder_of(tmp_path)

    said = main(folder, "wal/1.log", "zeros", 1, 3)

    after = contents(folder)["1.log"]
    assert len(after) == 9000
    assert after.count(0) in (4096, 9000 - 2 * 4096)
    assert json.loads(json.dumps(said))["damaged"][0]["is"] == "00" * 8


def test_a_third_of_what_a_file_holds_is_cut_off(tmp_path: Path) -> None:
    """With the room behind it."""
    folder = folder_of(tmp_path)

    said = main(folder, "wal/2.log", "truncate", 1, 3)

    assert contents(folder)["2.log"] == b"b" * 600
    assert json.loads(json.dumps(said))["damaged"] == [
        {"path": "wal/2.log", "at": 600, "was": "10000", "is": "600"},
    ]


def test_as_many_files_as_were_asked_for_are_damaged_and_none_out_of_the_folder(tmp_path: Path) -> None:
    """Which ones is a seed's choice; those that hold nothing are none."""
    folder = folder_of(tmp_path)
    before = contents(folder)

    said = main(folder, "**/*", "bit-flip", 99, 3)

    after = contents(folder)
    assert said["matching"] == 3
    assert {name for name in before if before[name] != after[name]} == {"1.log", "2.log", "state"}
    assert (tmp_path / "outside").read_bytes() == b"o" * 100


def test_where_no_file_matches_others_are_named(tmp_path: Path) -> None:
    """So that one sees what the pattern should have been."""
    said = main(folder_of(tmp_path), "*.log", "bit-flip", 1, 3)

    assert (said["matching"], said["damaged"]) == (0, [])
    assert "wal/1.log" in str(said["others"])


@pytest.mark.parametrize(
    ("leads", "is_damaged"),
    [pytest.param("../outside-folder", False, id="out"), pytest.param("wal", True, id="within")],
)
def test_a_link_to_a_folder_leads_to_files_of_the_node_alone(tmp_path: Path, leads: str, is_damaged: bool) -> None:
    """What lies behind one that leads out of the data folder is somebody else's."""
    folder = folder_of(tmp_path)
    (tmp_path / "outside-folder").mkdir()
    (tmp_path / "outside-folder" / "1.log").write_bytes(b"o" * 100)
    (folder / "linked").symlink_to(leads)

    said = main(folder, "linked/1.log", "truncate", 1, 3)

    assert (said["matching"], (folder / "wal" / "1.log").stat().st_size) == ((1, 6000) if is_damaged else (0, 9000))
    assert (tmp_path / "outside-folder" / "1.log").read_bytes() == b"o" * 100


@given(st.binary(min_size=1, max_size=300).filter(any))
def test_each_byte_that_is_not_zero_has_a_place(content: bytes) -> None:
    """Counted from the first one on."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "file"
        path.write_bytes(content)
        count, end = held(path)
        places = [place_of(path, number) for number in range(count)]

    assert places == [at for at, byte in enumerate(content) if byte]
    assert end == places[-1] + 1


# --- the fault ---------------------------------------------------------------------------------


def launched(folder: Path, run: Path, tried: Callable[[SystemCluster], Awaitable[Proof]], *, isolation: str) -> Proof:
    """Do something with the system of a folder, running; return what was proven."""

    async def launch() -> Proof:
        spec = ClusterSpec(brokers=1, controllers=0, system=str(folder / "system.toml"), isolation=isolation)
        cluster = await started(spec, run)
        try:
            await cluster.clients.objects("one").call("write", "r0", 4711)
            return await tried(cluster)
        finally:
            await cluster.close()

    run.mkdir()
    return asyncio.run(launch())


async def cut_off(cluster: SystemCluster) -> Proof:
    """Kill node 1 and cut a third off its log."""
    with pytest.raises(ClusterError, match="node 1 runs: kill it before"):
        await cluster.damage_files(1, FileDamage(files="log", how="truncate", most=1, seed=1))
    await cluster.kill(1)
    return await cluster.damage_files(1, FileDamage(files="log", how="truncate", most=1, seed=1))


@pytest.mark.parametrize(
    ("isolation", "disk"),
    [
        pytest.param("proxies", "plain", id="plain"),
        pytest.param(
            "namespaces",
            "forgetful",
            id="forgetful",
            marks=pytest.mark.skipif(bool(NO_DISKS), reason=NO_DISKS or "none"),
        ),
    ],
)
def test_files_are_damaged_where_the_node_has_them(tmp_path: Path, isolation: str, disk: str) -> None:
    """Also on a disk that only its namespace sees; what is there no more is what the node finds."""
    made_system("keeper", tmp_path)
    file = tmp_path / "keeper" / "system.toml"
    file.write_text(file.read_text().replace("count = 1", f'count = 1\ndisk = "{disk}"'))

    proof = launched(tmp_path / "keeper", tmp_path / "run", cut_off, isolation=isolation)

    assert proof.holds
    assert proof.facts["matching"] == 1
    assert "'path': 'log'" in str(proof.facts["damaged"])


@pytest.mark.skipif(bool(NO_DISKS), reason=NO_DISKS or "none")
def test_damage_under_a_child_of_the_node_that_goes_on_is_not_proven(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It outlives the node's kill, and may write its file anew."""
    monkeypatch.setattr("tribunal.clusters.systems.cluster.CHILDREN_MS", 300)
    made_system("keeper", tmp_path)
    file = tmp_path / "keeper" / "system.toml"
    child = """start = ["sh", "-c", 'sleep 60 3<>{data}/held & exec "$0" "$@"', """
    text = file.read_text().replace("count = 1", 'count = 1\ndisk = "forgetful"')
    assert "start = [" in text
    file.write_text(text.replace("start = [", child))

    proof = launched(tmp_path / "keeper", tmp_path / "run", cut_off, isolation="namespaces")

    assert not proof.holds
    assert (proof.facts["matching"], proof.facts["all_closed"]) == (1, False)
    assert kind.leftovers(tmp_path / "run") == []


def test_a_pattern_that_nothing_matches_proves_nothing(tmp_path: Path) -> None:
    """And what there is instead is said."""
    made_system("keeper", tmp_path)

    async def tried(cluster: SystemCluster) -> Proof:
        await cluster.kill(1)
        return await cluster.damage_files(1, FileDamage(files="wal/*", how="bit-flip", most=1, seed=1))

    proof = launched(tmp_path / "keeper", tmp_path / "run", tried, isolation="proxies")

    assert not proof.holds
    assert proof.facts["missing"] == "a file that matches 'wal/*' and holds something; there is log"


def test_what_a_damaged_file_had_is_missed(tmp_path: Path) -> None:
    """The sample keeps everything in one file, of one node: what was acknowledged and lay behind the cut is gone."""
    made_system("keeper", tmp_path)
    steps = "[{damage-files: node 1, files: log, how: truncate, for: 100ms, after: 800ms}]"
    overrides = {"steps": steps, "time": "2s", "warm_up": "500ms", "workload": "{name: set, sets: 4, rate: 80}"}

    verdict = judged_in(tmp_path / "keeper", "scenario.yaml", overrides, tmp_path / "runs")

    assert {finding.kind for finding in verdict.violations} == {"element_lost"}
    (run_dir,) = (tmp_path / "runs").iterdir()
    (fault,) = Recording.open(run_dir).table("faults").to_pylist()
    assert (fault["kind"], fault["took_effect"], fault["healed"]) == ("damage-files", True, True)


def test_however_many_files_are_damaged_each_is_named(tmp_path: Path) -> None:
    """More than a line of a program usually has; one has a name that is no text."""
    data = tmp_path / "data"
    data.mkdir()
    for number in range(700):
        (data / f"{number:0100}").write_bytes(b"a")
    (data / os.fsdecode(b"\xff\xfe")).write_bytes(b"a")
    damage = FileDamage(files="*", how="bit-flip", most=1000, seed=1)

    proof = asyncio.run(damaged((), data, damage, tmp_path / "logs" / "damage.log", tmp_path))

    assert proof.holds
    assert len(msgspec.json.encode(proof.facts["damaged"])) > 1 << 16
    assert proof.facts["matching"] == 701


@pytest.mark.parametrize(
    ("options", "words"),
    [
        pytest.param("files: ../other/*", "a pattern of paths below the data folder", id="out of the folder"),
        pytest.param("files: /etc/*", "a pattern of paths below the data folder", id="absolute"),
        pytest.param("files: ''", "a pattern of paths below the data folder", id="nothing"),
        pytest.param("files: wal/**.log", "alone between slashes", id="two stars in a name"),
        pytest.param("how: burn", "how", id="how"),
        pytest.param("most: 0", "most", id="none"),
    ],
)
def test_a_pattern_that_leads_nowhere_is_refused(tmp_path: Path, options: str, words: str) -> None:
    """Before anything starts, by what it should be."""
    made_system("keeper", tmp_path)

    with pytest.raises(BadScenario, match=words):
        made(
            load(tmp_path / "keeper" / "scenario.yaml", {"steps": f"[{{damage-files: node 1, {options}}}]"}),
            seed=1, cluster="system", time_ms=None, mutants=(),
        )  # fmt: skip
