"""Files that somebody else wrote: whatever is in them, the harness takes them or says in one line what is wrong, and soon.

The gate draws the same changes every time; the night goes on with other seeds. By hand: `python -m tests.fuzz.test_given_files --minutes 30 --seed x`.
"""

import contextlib
import io
import json
import re
import shutil
import time
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any, Final

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml

from tests.fuzz.mutations import as_json, as_yaml, changed_bytes, changed_rows, changed_text, changed_tree
from tests.fuzz.targets import NIGHT_MINUTES, by_hand, repeated_for
from tribunal.clusters.existing.description import BadCluster, read_cluster
from tribunal.clusters.systems.description import BadSystem, read_system
from tribunal.harness.campaign.findings import read as read_finding
from tribunal.harness.campaign.night_file import read_config, read_known
from tribunal.harness.catalog import Unknown
from tribunal.harness.cli.main import exit_code
from tribunal.harness.plan import made, must_be_possible, read_plan
from tribunal.harness.scenario import BadScenario, load
from tribunal.results import history

ROOT: Final = Path(__file__).parents[2]
CPU_S_MAX: Final = 1.0  # to read one file
CHANGES: Final = 40  # of each kind, in the gate
RUNS: Final = 6  # of each command, in the gate
REFUSALS: Final = (BadScenario, Unknown, BadSystem, BadCluster, history.DamagedRecording)
SMALL: Final = """scenario: small
about: a short run to look at
workload: {name: produce-consume, rate: 60, partitions: 1}
time: 1s
warm_up: 300ms
steps:
  - {kill: leader(p0), for: 500ms}
"""
SIGNATURE: Final = "lost_writes/unread"
KNOWN: Final = {"issues": [{"signature": SIGNATURE, "owner": "ann", "expires": "2026-12-01"}], "quarantine": []}
EDN: Final = (
    '{:index 0, :type :invoke, :f :txn, :process 0, :value [[:append "x" 1] [:r 2 nil]], :time 5}\n'
    '{:index 1, :type :ok, :f :txn, :process 0, :value [[:append "x" 1] [:r 2 [1 2]]], :time 15}\n'
)
JSON: Final = '{"index":0,"type":"invoke","process":0,"value":[["append","x",1],["r",2,null]],"time":3}\n'


def scenario(path: Path) -> None:
    made(load(path, {}), seed=1, cluster="simulated", time_ms=None, mutants=())


def plan(path: Path) -> None:
    found = read_plan(path)
    must_be_possible((fault.kind for fault in found.faults), found.spec, found.cluster)


def scenarios() -> list[Any]:
    return [yaml.safe_load(path.read_bytes()) for path in sorted((ROOT / "scenarios").glob("*.yaml"))]


def plans() -> list[Any]:
    names = ("produce-consume", "rotating-swarm", "operator", "zookeeper-ensemble", "bank")
    drawn = [load(ROOT / "scenarios" / f"{name}.yaml", {}) for name in names]
    made_ = [made(one, seed=1, cluster="simulated", time_ms=None, mutants=()) for one in drawn]
    return [json.loads(msgspec.json.encode(one)) for one in made_]


def findings() -> list[Any]:
    return [json.loads(path.read_bytes()) for path in sorted((ROOT / "tests" / "findings").glob("*.json"))[:10]]


def cluster_files() -> list[Any]:
    """Return those of the handbook."""
    return re.findall(r"^```toml\n(.*?)^```", (ROOT / "docs" / "your-cluster.md").read_text(), re.MULTILINE | re.DOTALL)


def name_of(original: Any) -> str:
    """Return what its file is called: a finding says so itself."""
    return original["name"] if isinstance(original, dict) and "finding_version" in original else "changed"


class Kind(msgspec.Struct, frozen=True):
    """A kind of file: its suffix, who reads it, what it looks like, and how a tree is written; None: text."""

    suffix: str
    read: Callable[[Path], object]
    originals: Callable[[], list[Any]]
    written: Callable[[Any], bytes] | None = None


KINDS: Final = {
    "scenario": Kind("yaml", scenario, scenarios, as_yaml),
    "plan": Kind("json", plan, plans, as_json),
    "system.toml": Kind(
        "toml",
        read_system,
        lambda: [p.read_text() for p in sorted((ROOT / "systems").rglob("*.toml")) if p.name != "page.toml"],
    ),
    "cluster.toml": Kind("toml", read_cluster, cluster_files),
    "nightly.yaml": Kind("yaml", read_config, lambda: [yaml.safe_load((ROOT / "nightly.yaml").read_bytes())], as_yaml),
    "known issues": Kind("yaml", read_known, lambda: [KNOWN], as_yaml),
    "finding": Kind("json", read_finding, findings, as_json),
    "history in EDN": Kind("edn", lambda path: history.read(path, "jepsen-edn"), lambda: [EDN]),
    "history in JSON": Kind("json", lambda path: history.read(path, "jepsen-json"), lambda: [JSON]),
}


def changed(kind: Kind, original: Any, random: Random) -> bytes:
    """Return the file with something else in it."""
    if kind.written is None:
        text = str(original)
    elif random.random() < 0.7:
        return kind.written(changed_tree(original, random))
    else:
        text = kind.written(original).decode()
    if random.random() < 0.7:
        return changed_text(text, random).encode(errors="replace")
    return changed_bytes(text.encode(), random)


def read_changed(name: str, folder: Path, seed: str, count: int) -> int:
    """Have changed files read; return how many were refused, and fail for whatever is no refusal in a line."""
    kind, refused = KINDS[name], 0
    originals = kind.originals()
    for number in range(count):
        random = Random(f"{seed}/{name}/{number}")
        original = random.choice(originals)
        path = folder / f"{name_of(original)}.{kind.suffix}"
        path.write_bytes(changed(kind, original, random))
        began, lines = time.process_time(), ["it was taken"]
        try:
            kind.read(path)
        except REFUSALS as problem:
            refused += 1
            lines = str(problem).strip().splitlines()
        except Exception as problem:
            problem.add_note(f"{seed}/{name}/{number}: {path.read_bytes()[:2000]!r}")
            raise
        assert len(lines) == 1, f"{seed}/{name}/{number}: {lines}"
        assert time.process_time() - began < CPU_S_MAX, f"{seed}/{name}/{number}"
    return refused


@pytest.mark.parametrize("name", KINDS)
def test_a_changed_file_is_taken_or_refused_in_a_line(name: str, tmp_path: Path) -> None:
    kind = KINDS[name]
    for original in kind.originals()[:3]:
        path = tmp_path / f"{name_of(original)}.{kind.suffix}"
        path.write_bytes(str(original).encode() if kind.written is None else kind.written(original))
        kind.read(path)  # is taken

    assert read_changed(name, tmp_path, "gate", CHANGES) > 0


# --- runs, recordings and archives --------------------------------------------------------------


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return simulated(tmp_path_factory.mktemp("given"))


def simulated(folder: Path) -> Path:
    """Return a small run's folder."""
    (folder / "small.yaml").write_text(SMALL)
    order = ["run", str(folder / "small.yaml"), "--cluster", "simulated", "--seed", "3", "--engine", "inline", "-q"]
    assert exit_code([*order, "--out", str(folder / "runs")]) == 0
    (made_,) = (folder / "runs").iterdir()
    return made_


def change_a_file(run: Path, random: Random) -> Path:
    """Change one file of a run's folder; return which."""
    files = sorted(path for path in run.rglob("*") if path.is_file() and path.name != "report.html")
    tables = [path for path in files if path.suffix == ".parquet"]
    match random.randrange(10):
        case 0 | 1 | 2 | 3 | 4:
            path = random.choice(tables)
            with pq.ParquetFile(path) as file:
                rows = file.read()
            with contextlib.suppress(pa.ArrowException):
                pq.write_table(changed_rows(rows, random), path)
        case 5:
            path = random.choice(tables)
            path.write_bytes(changed_bytes(path.read_bytes(), random))
        case 6 | 7:
            path = random.choice([path for path in files if path.suffix == ".json"])
            path.write_bytes(as_json(changed_tree(json.loads(path.read_bytes()), random)))
        case 8:
            path = random.choice([path for path in files if path.suffix != ".parquet"])
            path.write_bytes(changed_bytes(path.read_bytes(), random))
        case _:
            path = random.choice(files)
            path.unlink()
    return path.relative_to(run)


COMMANDS: Final[dict[str, Callable[[Path, Path], list[str]]]] = {
    "check": lambda run, _: ["check", str(run), "--engine", "inline"],
    "report": lambda run, _: ["report", str(run)],
    "export": lambda run, _: ["export", str(run)],
    "bundle": lambda run, aside: ["bundle", str(run), "--out", str(aside / "run.zip")],
    "run": lambda run, aside: [
        "run",
        "--plan",
        str(run / "plan.json"),
        "--engine",
        "inline",
        "-q",
        "--out",
        str(aside),
    ],
}


def command_on_changed(name: str, run: Path, folder: Path, seed: str, count: int) -> None:
    """Give a command changed folders; fail where it ends in anything but a verdict or one clear line."""
    for number in range(count):
        random = Random(f"{seed}/{name}/{number}")
        copy, aside = folder / f"{name}-{number}", folder / f"{name}-{number}-aside"
        shutil.copytree(run, copy)
        aside.mkdir()
        if name == "run":
            path = copy / "plan.json"
            path.write_bytes(as_json(changed_tree(json.loads(path.read_bytes()), random)))
        else:
            path = change_a_file(copy, random)
        errors, lines = io.StringIO(), io.StringIO()
        with contextlib.redirect_stderr(errors), contextlib.redirect_stdout(lines):
            code = exit_code(COMMANDS[name](copy, aside))
            if (aside / "run.zip").exists():
                exit_code(["verify", str(aside / "run.zip"), "--engine", "inline"])
        said = f"{seed}/{name}/{number}, {path}: exit code {code}\n{errors.getvalue()}"
        assert "Traceback" not in errors.getvalue(), said
        assert code in {0, 1, 2, 3, 64}, said
        shutil.rmtree(copy)
        shutil.rmtree(aside)


@pytest.mark.parametrize("name", COMMANDS)
def test_a_changed_run_gets_a_verdict_or_a_line(name: str, run: Path, tmp_path: Path) -> None:
    command_on_changed(name, run, tmp_path, "gate", RUNS)


def repeated(folder: Path, run: Path, minutes: float, seed: str) -> int:
    """Go through all kinds and commands with one seed after the other."""

    def once(number: str) -> None:
        place = folder / number
        place.mkdir()
        for name in KINDS:
            read_changed(name, place, number, CHANGES)
        for name in COMMANDS:
            command_on_changed(name, run, place, number, RUNS)
        shutil.rmtree(place)

    return repeated_for(minutes, once, seed)


@pytest.mark.nightly
@pytest.mark.timeout(NIGHT_MINUTES * 60 + 300)
def test_changed_files_for_half_an_hour(run: Path, tmp_path: Path) -> None:
    assert repeated(tmp_path, run, NIGHT_MINUTES, "night")


if __name__ == "__main__":
    by_hand(__doc__, lambda folder, minutes, seed: repeated(folder, simulated(folder), minutes, seed))
