"""A sweep on Spark finds what the same sweep finds on this machine, also when a worker is killed and another one comes."""

import json
import os
import signal
import subprocess
import sys
import threading
import zipfile
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import pytest

from tests.checkers.spark_clusters import connect_server, open_ports, standalone
from tests.checkers.spark_containers import in_containers
from tests.clusters.docker_images import no_engine
from tribunal.harness.campaign.seed_task import CannotRun, SeedServer
from tribunal.harness.campaign.shipped import archive
from tribunal.harness.campaign.sweep_on_spark import failures_last, reason_of
from tribunal.harness.run import commit

ROOT = Path(__file__).resolve().parents[2]
SEEDS = ["produce-consume", "--mutant", "M44", "--time", "2s"]
# A worker's Python: it imports the task out of the archive, as Spark's does, and says what it got.
TASK = """
import sys, pyarrow as pa
from tribunal.harness.campaign import seed_task
rows = pa.record_batch([[open(sys.argv[1], 'rb').read()] * 2, [''] * 2, [False, True]], names=['plan', 'python', 'notes_states'])
for batch in seed_task.run_tasks(iter([rows])):
    print(batch.column(0)[0].as_py().decode(), batch.column(1)[0].is_valid, batch.column(2)[0].is_valid, flush=True)
print(seed_task.unpacked())
"""


def sweep(out: Path, *options: str, code: int = 0) -> dict[str, Any]:
    """Return the JSON that a sweep prints."""
    command = [sys.executable, "-W", "ignore", "-m", "tribunal", "sweep", *options, "--out", str(out), "--json"]
    completed = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, timeout=800, check=False)
    assert completed.returncode == code, completed.stderr[-2000:]
    said = json.loads(completed.stdout)
    findings = {name: sorted(seeds) for name, seeds in said["findings"].items()}  # in the order in which they ended
    return {name: said[name] for name in ("seeds", "verdicts", "probes", "upper_bound_95", "recordings")} | {
        "findings": findings,
        "cold": said["guards"]["cold"],
    }


def a_plan(folder: Path) -> Path:
    code = (
        "import sys; from tribunal.harness.plan import encoded, made; from tribunal.harness.scenario import load; "
        "from tribunal.harness.catalog import SIMULATED, scenario_file; "
        "plan = made(load(scenario_file('produce-consume'), {}), seed=3, cluster=SIMULATED, time_ms=3000, mutants=()); "
        "open(sys.argv[1], 'wb').write(encoded(plan))"
    )
    path = folder / "plan.json"
    subprocess.run([sys.executable, "-c", code, str(path)], check=True, cwd=ROOT, timeout=100)
    return path


def test_code_is_unpacked_where_other_processes_find_it_whatever_way_spark_has_named_it(tmp_path: Path) -> None:
    """The process that runs seeds runs in that folder: a way from elsewhere led nowhere, and on machines without this repository no seed ran."""
    archive(tmp_path, with_packages=False)
    said = "import sys; sys.path.insert(0, './tribunal_seeds.zip'); from tribunal.results.shipped_code import unpacked; print(unpacked())"

    completed = subprocess.run(
        [sys.executable, "-I", "-S", "-c", said], cwd=tmp_path, capture_output=True, text=True, timeout=60, check=True
    )

    assert completed.stdout.strip() == str(tmp_path / "tribunal_seeds.unpacked")


def test_why_a_task_failed_is_the_line_that_says_it_not_the_one_that_raised_it() -> None:
    trace = """
  An exception was thrown from the Python worker. Please see the stack trace below.
Traceback (most recent call last):
  File "./tribunal_seeds.zip/tribunal/harness/campaign/seed_task.py", line 129, in _ended
    raise CannotRun(f"{os.uname().nodename}: seeds do not run: {words[-1][:SHOWN]}")
tribunal.harness.campaign.seed_task.CannotRun: worker-1: seeds do not run: No module named 'numpy'
"""

    assert reason_of(RuntimeError(trace)) == "worker-1: seeds do not run: No module named 'numpy'"
    assert reason_of(RuntimeError("\n  [SPARK] it broke\n")) == "[SPARK] it broke"
    assert reason_of(KeyError()) == "KeyError"


@pytest.mark.nightly
def test_a_worker_unpacks_the_archive_once_and_runs_seeds_in_a_process_that_stays(tmp_path: Path) -> None:
    code = archive(tmp_path, with_packages=False)

    completed = subprocess.run(
        [sys.executable, "-c", TASK, str(a_plan(tmp_path))], env=os.environ | {"PYTHONPATH": str(code)}, cwd=tmp_path,
        capture_output=True, text=True, timeout=200, check=True,
    )  # fmt: skip

    one, two, unpacked = completed.stdout.splitlines()
    (first, *with_first), (second, *with_second) = (line.rsplit(" ", 2) for line in (one, two))
    first, second = json.loads(first), json.loads(second)
    assert first["verdict"] in {"PASS", "PERMITTED"}
    assert [with_first, with_second] == [["False", "False"], ["False", "True"]]  # the second was asked for its states
    assert first.pop("cpu_ms") > 0
    assert second.pop("cpu_ms") > 0
    assert {**first, "wall_ms": 0} == {**second, "wall_ms": 0}
    assert Path(unpacked).parent == tmp_path
    assert (Path(unpacked) / "SHIPPED_COMMIT").read_text() == commit()


def test_the_archive_holds_what_code_reads_of_its_own_files(tmp_path: Path) -> None:
    with zipfile.ZipFile(archive(tmp_path, with_packages=False)) as file:
        names = set(file.namelist())

    assert {"tribunal/scenarios/produce-consume.yaml", "replog/mutants/__init__.py", "requirements.lock"} <= names
    assert not [name for name in names if name.endswith(".pyc")]


def test_a_worker_whose_python_lacks_what_is_needed_says_what_and_where(tmp_path: Path) -> None:
    bare = tmp_path / "code" / "tribunal"
    bare.mkdir(parents=True)
    (bare / "__init__.py").touch()

    with pytest.raises(
        CannotRun, match=rf"{os.uname().nodename}: seeds do not run: .*No module named 'tribunal.harness'"
    ):
        SeedServer(sys.executable, bare.parent)


def test_a_server_that_was_killed_fails_its_task_and_the_next_one_gets_a_new_server(tmp_path: Path) -> None:
    plan = a_plan(tmp_path).read_bytes()
    server = SeedServer(sys.executable, ROOT)

    os.kill(server.pid, signal.SIGKILL)  # as by a machine that has no memory left

    with pytest.raises(CannotRun, match="seeds do not run: it ended with status -9"):
        server.run(plan, notes_states=False)
    assert server.has_ended


def test_a_worker_without_the_python_that_was_named_says_so(tmp_path: Path) -> None:
    with pytest.raises(CannotRun, match="/no/python does not start: No such file"):
        SeedServer("/no/python", tmp_path)


def test_what_ended_together_with_a_failure_is_received_before_it() -> None:
    failed: Future[str] = Future()
    failed.set_exception(CannotRun("no numpy"))
    found: Future[str] = Future()
    found.set_result("a finding")

    assert failures_last([failed, found]) == [found, failed]
    assert failures_last([found, failed]) == [found, failed]


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--master", "yarn"], "begins with local or spark://"),
        (["--python", "/usr/bin/python3"], "go with --master or --remote"),
        (["--with-packages"], "go with --master or --remote"),
    ],
)
def test_options_of_a_cluster_need_one(options: list[str], words: str, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "tribunal", "sweep", "produce-consume", *options, "--out", str(tmp_path)]
    completed = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, timeout=100, check=False)

    assert completed.returncode == 64
    assert words in completed.stderr


@pytest.mark.nightly  # (`test_campaigns_on_spark.py` is the gate's)
@pytest.mark.spark
def test_a_sweep_on_spark_finds_what_it_finds_here(tmp_path: Path) -> None:
    options = [*SEEDS, "--seeds", "0:2"]

    here = sweep(tmp_path / "here", *options, code=1)

    assert here["findings"]
    assert sweep(tmp_path / "there", *options, "--master", "local[2]", code=1) == here
    assert kept(tmp_path / "there") == kept(tmp_path / "here")


def kept(folder: Path) -> dict[str, str]:
    """Return the hash of each recording that a sweep has kept."""
    runs = sorted(folder.glob("*/manifest.json"))
    return {run.parent.name: json.loads(run.read_bytes())["recording_hash"] for run in runs}


@pytest.mark.nightly
@pytest.mark.spark
@pytest.mark.timeout(1800)
def test_a_cluster_finds_the_same_when_a_worker_is_killed_and_another_one_comes(tmp_path: Path) -> None:
    options = [*SEEDS, "--seeds", "0:8"]
    here = sweep(tmp_path / "here", *options, code=1)
    spark = tmp_path / "spark"
    spark.mkdir()

    with standalone(spark, workers=3) as cluster:
        found: list[dict[str, Any]] = []
        sweeping = threading.Thread(
            target=lambda: found.append(sweep(tmp_path / "there", *options, "--master", cluster.url, code=1))
        )
        sweeping.start()
        while sweeping.is_alive() and not list((tmp_path / "there").glob("*/manifest.json")):
            threading.Event().wait(0.05)
        was_sweeping = sweeping.is_alive()
        reachable = open_ports()
        cluster.kill(0)
        cluster.add()
        sweeping.join()

    assert was_sweeping
    assert reachable == set()
    assert found == [here]


@pytest.mark.nightly
@pytest.mark.spark
@pytest.mark.containers
@pytest.mark.skipif(bool(no_engine()), reason=no_engine() or "there is one")
@pytest.mark.timeout(1800)
def test_a_cluster_in_containers_finds_the_same_when_a_worker_is_killed_and_another_one_comes(tmp_path: Path) -> None:
    """Workers have other addresses, and nothing of this repository: code and findings travel."""
    options = [*SEEDS, "--seeds", "0:8"]
    here = sweep(tmp_path / "here", *options, code=1)

    with in_containers(3) as cluster:
        assert not cluster.sees(ROOT / "pyproject.toml")
        found: list[dict[str, Any]] = []
        there = [*options, "--master", cluster.url, "--python", sys.executable]
        sweeping = threading.Thread(target=lambda: found.append(sweep(tmp_path / "there", *there, code=1)))
        sweeping.start()
        while sweeping.is_alive() and not list((tmp_path / "there").glob("*/manifest.json")):
            threading.Event().wait(0.05)
        was_sweeping = sweeping.is_alive()
        cluster.kill(0)
        cluster.add()
        sweeping.join()

    assert was_sweeping
    assert found == [here]


@pytest.mark.nightly
@pytest.mark.spark
@pytest.mark.timeout(900)
def test_spark_connect_finds_the_same(tmp_path: Path) -> None:
    options = [*SEEDS, "--seeds", "0:4"]
    here = sweep(tmp_path / "here", *options, code=1)

    with connect_server(tmp_path) as remote:
        assert sweep(tmp_path / "there", *options, "--remote", remote, code=1) == here
