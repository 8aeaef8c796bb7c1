"""The wheel: two import names, complete, and at home in an empty directory."""

import os
import re
import subprocess
import sys
import zipfile
from importlib.metadata import version
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
SCENARIO = """scenario: short
about: one kill
workload: {name: produce-consume, rate: 100, partitions: 2}
time: 4s
steps:
  - {kill: "broker 1", for: 1s}
"""


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    """Build the wheel of this checkout."""
    folder = tmp_path_factory.mktemp("wheel")
    words = [
        "-m",
        "pip",
        "wheel",
        "--quiet",
        "--no-deps",
        "--no-build-isolation",
        "--wheel-dir",
        str(folder),
        str(ROOT),
    ]
    subprocess.run([sys.executable, *words], check=True, capture_output=True)
    (built,) = folder.glob("*.whl")
    return built


@pytest.fixture(scope="module")
def installed(wheel, tmp_path_factory):
    """Unpack the wheel into a folder of its own; what it depends on is found in this environment."""
    folder = tmp_path_factory.mktemp("installed")
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(folder)
    return folder


def run(installed, cwd, *words):
    environment = os.environ | {"PYTHONPATH": str(installed), "PYTHONSAFEPATH": "1"}
    return subprocess.run(
        [sys.executable, *words], cwd=cwd, env=environment, capture_output=True, text=True, check=False
    )


def test_the_wheel_takes_two_import_names(wheel):
    names = {Path(name).parts[0] for name in zipfile.ZipFile(wheel).namelist()}

    assert {name for name in names if not name.endswith(".dist-info")} == {"replog", "tribunal"}


def test_the_wheel_has_what_a_run_needs_and_no_evidence_archive(wheel):
    names = zipfile.ZipFile(wheel).namelist()

    assert "tribunal/scenarios/produce-consume.yaml" in names
    assert "tribunal/results/report/templates/report.html.j2" in names
    assert not [name for name in names if name.endswith((".zip", ".parquet", ".pyc"))]


def test_installed_elsewhere_nothing_comes_from_the_checkout(installed, tmp_path):
    done = run(
        installed, tmp_path, "-c", "import replog, tribunal; print(replog.__file__, tribunal.PACKAGE, tribunal.ROOT)"
    )

    assert done.stdout.split() == [
        str(installed / "replog" / "__init__.py"), str(installed / "tribunal"), str(installed),
    ]  # fmt: skip


def commit_named_in(folder, cwd):
    done = run(folder, cwd, "-c", "from tribunal.harness.run import commit; print(commit())")
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_code_of_a_wheel_is_known_by_its_version_and_hash(wheel, installed, tmp_path):
    """In a project's own folder (`.venv`) it had that project's commit, and elsewhere `unknown`, whatever code it was."""
    project = tmp_path / "project"
    inside = project / "packages"
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(inside)
    git = ["git", "-C", str(project), "-c", "user.name=a", "-c", "user.email=a@b"]
    for words in (["init", "--quiet"], ["commit", "--quiet", "--allow-empty", "--message", "theirs"]):
        subprocess.run([*git, *words], check=True)

    named = commit_named_in(installed, tmp_path)

    assert re.fullmatch(rf"{re.escape(version('replog'))}-[0-9a-f]{{64}}", named)
    assert commit_named_in(inside, project) == named
    (record,) = inside.glob("*.dist-info/RECORD")
    record.write_text(record.read_text().replace("replog/__init__.py,sha256=", "replog/__init__.py,sha256=x", 1))
    assert commit_named_in(inside, project) not in (named, "unknown")


def test_a_run_from_an_empty_directory(installed, tmp_path):
    (tmp_path / "short.yaml").write_text(SCENARIO)
    words = ["short.yaml", "--cluster", "simulated", "--seed", "1", "--engine", "inline", "--quiet"]
    done = run(installed, tmp_path, "-m", "tribunal.harness.cli.main", "run", *words)

    assert done.returncode == 0, done.stderr
    (report,) = (tmp_path / "runs").glob("*/report.html")
    assert report.stat().st_size > 10_000


def test_the_pytest_plugin_beside_a_users_own_folder_of_the_same_name(installed, tmp_path):
    """A user's empty `results/__init__.py` beside a test ended the plugin once."""
    (tmp_path / "results").mkdir()
    (tmp_path / "results" / "__init__.py").write_text("")
    (tmp_path / "short.yaml").write_text(SCENARIO)
    (tmp_path / "test_mine.py").write_text(
        "import results\n\ndef test_it(tribunal_run):\n"
        "    judged = tribunal_run('short.yaml', cluster='simulated', seed=1, engine='inline')\n"
        "    assert judged.verdict.judged['acknowledged, acks=all'] > 50\n"
    )
    done = run(installed, tmp_path, "-m", "pytest", "-q", "test_mine.py")

    assert "1 passed" in done.stdout, done.stdout + done.stderr
