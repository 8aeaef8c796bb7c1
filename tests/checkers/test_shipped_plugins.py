"""A user's own plugins are on the workers of a Spark cluster: what is judged there is what is judged here."""

import json
import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from tests.checkers.recorded import Run
from tribunal.checkers.spark import session
from tribunal.harness.campaign.shipped import _packages, archive

ROOT = Path(__file__).resolve().parents[2]
OWN = '"""Mine."""\nfrom tribunal_plugins.checkers._shared import *\n'
SHARED = "from tribunal.checkers.properties.watermarks import *\n"
# A worker's Python: it imports the judge out of the archive, and runs in a folder of Spark's.
TASK = """
import gc, json, sys
from pathlib import Path
from tribunal.checkers.api import properties
from tribunal.checkers.judge import engine
from tribunal.checkers.judge.items import work_items
tasks = engine.rows_of(engine.tasks_of(work_items(Path(sys.argv[1])))).to_batches()
rows = [row for found in engine.judge_batches(frozenset(), {}, tasks, wanted=sys.argv[2:]) for row in found.to_pylist()]
print(json.dumps([engine.__file__, sorted(properties()), len(rows), gc.get_freeze_count()]))
"""


@pytest.fixture
def own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A user's folder, with a property."""
    folder = tmp_path / "user" / "tribunal_plugins" / "checkers"
    folder.mkdir(parents=True)
    (folder / "mine.py").write_text(OWN)
    (folder / "_shared.py").write_text(SHARED)
    monkeypatch.chdir(tmp_path / "user")
    return folder


def on_a_worker(code: Path, tmp_path: Path, *wanted: str) -> subprocess.CompletedProcess[str]:
    """Judge a run as a worker does."""
    run = Run(tmp_path / "run")
    run.send(0, 100)
    folder = run.finish()
    (tmp_path / "spark").mkdir()
    return subprocess.run(
        [sys.executable, "-P", "-c", TASK, str(folder), *wanted], env=os.environ | {"PYTHONPATH": str(code)},
        cwd=tmp_path / "spark", capture_output=True, text=True, timeout=100, check=False,
    )  # fmt: skip


def test_a_property_of_a_users_own_is_judged_on_workers(tmp_path: Path, own: Path) -> None:
    code = session._code(tmp_path)

    judged = on_a_worker(code, tmp_path, "mine", "watermarks")

    assert judged.returncode == 0, judged.stderr
    module, known, rows, frozen = json.loads(judged.stdout)
    assert module.startswith(str(code))
    assert "mine" in known
    assert rows > 0
    assert frozen > 0  # Spark's worker looks for garbage after every task


def test_a_worker_that_lacks_a_property_does_not_judge_without_it(tmp_path: Path) -> None:
    judged = on_a_worker(session._code(tmp_path), tmp_path, "mine")

    assert judged.returncode == 1
    last = judged.stderr.splitlines()[-1]
    assert last == (
        f"tribunal.results.plugins.BadPlugin: {os.uname().nodename}: there is no property 'mine': "
        "install the package that brings it there"
    )


def test_plugins_travel_with_seeds(tmp_path: Path, own: Path) -> None:
    (own / "__pycache__").mkdir()
    (own / "__pycache__" / "mine.cpython-311.pyc").touch()

    with zipfile.ZipFile(archive(tmp_path, with_packages=False)) as file:
        names = [name for name in file.namelist() if name.startswith("tribunal_plugins/")]

    assert names == ["tribunal_plugins/checkers/_shared.py", "tribunal_plugins/checkers/mine.py"]


def test_with_packages_those_that_bring_plugins_travel_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    site = tmp_path / "site"
    files = {
        "my_chaos.py": OWN,
        "my_chaos-1.0.dist-info/METADATA": "Metadata-Version: 2.1\nName: my-chaos\nVersion: 1.0\n",
        "my_chaos-1.0.dist-info/entry_points.txt": "[tribunal.properties]\nmine = my_chaos\n",
        "my_chaos-1.0.dist-info/RECORD": "my_chaos.py,,\nmy_chaos-1.0.dist-info/entry_points.txt,,\n",
    }
    (site / "my_chaos-1.0.dist-info").mkdir(parents=True)
    for name, text in files.items():
        (site / name).write_text(text)
    monkeypatch.syspath_prepend(str(site))

    names = {name for _, name in _packages()}

    assert {"my_chaos.py", "my_chaos-1.0.dist-info/entry_points.txt"} <= names
    assert any(name.startswith("pyarrow/") for name in names)
