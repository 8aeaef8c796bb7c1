"""A real Spark cluster and Spark Connect judge like this process alone, also when a worker is killed in the middle."""

import socket
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import msgspec
import pytest

from tests.checkers.random_runs import random_run
from tests.checkers.spark_clusters import connect_server, standalone
from tests.checkers.spark_containers import in_containers
from tests.clusters.docker_images import no_engine
from tribunal.checkers.judge import engine
from tribunal.checkers.spark.session import NoSpark, complaint, session

pytestmark = pytest.mark.spark
ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    folder = tmp_path_factory.mktemp("runs")
    return [random_run(folder / f"run-{seed}", seed) for seed in range(6)]


def judged_elsewhere(runs: list[Path], master: str) -> object:
    """Judge in a process of its own: a session leaves its traces in the process that had it. Return what JSON says of the tables."""
    code = (
        "import sys, msgspec, pathlib; from tribunal.checkers.judge import engine; "
        "tables = engine.judge_runs([pathlib.Path(run) for run in sys.argv[2:]], 'spark', sys.argv[1]); "
        "print(msgspec.json.encode(tables).decode())"
    )
    command = [sys.executable, "-W", "ignore", "-c", code, master, *map(str, runs)]
    completed = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, timeout=240, check=False)
    assert completed.returncode == 0, completed.stderr[-2000:]
    return msgspec.json.decode(completed.stdout.splitlines()[-1])


def judged_here(runs: list[Path]) -> object:
    """Judge in this process. Tables hold figures of any property's type, so that they are compared in JSON."""
    return msgspec.json.decode(msgspec.json.encode(engine.judge_runs(runs, "inline")))


@pytest.mark.nightly
@pytest.mark.timeout(280)
def test_a_cluster_judges_like_this_process_also_when_a_worker_is_killed(tmp_path: Path, runs: list[Path]) -> None:
    expected = judged_here(runs)
    with standalone(tmp_path) as cluster:
        found: list[Any] = []
        judging = threading.Thread(target=lambda: found.append(judged_elsewhere(runs, cluster.url)))
        judging.start()
        # The application's folder appears in a worker's folder when its executor starts.
        while judging.is_alive() and not list(tmp_path.glob("app-*/*")):
            threading.Event().wait(0.05)
        threading.Event().wait(1)
        was_judging = judging.is_alive()
        cluster.kill(0)
        judging.join()

    assert was_judging
    assert found == [expected]
    assert list(tmp_path.glob("*/spark-*"))  # what the killed ones leave is in the test's folder, not in /tmp


@pytest.mark.nightly
@pytest.mark.containers
@pytest.mark.skipif(bool(no_engine()), reason=no_engine() or "there is one")
@pytest.mark.timeout(280)
def test_workers_in_containers_judge_like_this_process_with_nothing_of_this_repository(
    tmp_path: Path, runs: list[Path]
) -> None:
    with in_containers(2, runs[0].parent) as cluster:
        assert not cluster.sees(ROOT / "pyproject.toml")
        assert judged_elsewhere(runs, cluster.url) == judged_here(runs)


@pytest.mark.nightly
@pytest.mark.timeout(280)
def test_spark_connect_judges_like_this_process(tmp_path: Path, runs: list[Path]) -> None:
    with connect_server(tmp_path) as remote:
        assert judged_elsewhere(runs, remote) == judged_here(runs)


@pytest.mark.parametrize("scheme", ["spark", "sc"])
def test_a_master_that_is_silent_is_one_line(scheme: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        code = (
            "import sys, os\nfrom tribunal.checkers.spark.session import NoSpark, session\n"
            "try:\n    with session(sys.argv[1]): pass\n"
            "except NoSpark as problem:\n    print(problem, flush=True)\n    os._exit(0)\n"
        )
        command = [sys.executable, "-W", "ignore", "-c", code, f"{scheme}://127.0.0.1:{silent.getsockname()[1]}"]
        completed = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, timeout=100, check=True)

    assert "does not answer as Spark" in completed.stdout.splitlines()[-1]


def test_a_master_that_is_not_there_is_one_line() -> None:
    with pytest.raises(NoSpark, match="no Spark answers at spark:"), session("spark://127.0.0.1:9"):
        pass


@pytest.mark.parametrize(
    ("lines", "said"),
    [
        pytest.param(
            [
                "01:36:41 ERROR StandaloneSchedulerBackend: Application has been killed. Reason: Master removed our application: FAILED",
                "01:36:41 INFO StandaloneSchedulerBackend: Shutting down all executors",
            ],
            "Application has been killed. Reason: Master removed our application: FAILED",
            id="who shuts down behind it says so too",
        ),
        pytest.param(
            ["01:36:41 INFO X: one", "", "Exception in thread main", ""], "Exception in thread main", id="no such line"
        ),
        pytest.param([], "it broke", id="nothing"),
    ],
)
def test_why_spark_does_not_start_is_what_it_complained_of(tmp_path: Path, lines: list[str], said: str) -> None:
    """Executors that cannot start ended in "INFO StandaloneSchedulerBackend: Shutting down all executors"."""
    log = tmp_path / "spark.log"
    log.write_text("\n".join(lines))

    assert said in complaint(log, RuntimeError("it broke\nand more"))
