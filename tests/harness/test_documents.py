"""The documents say what is: their commands exist, their files are what is written, their list of anomalies is whole."""

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from tribunal.checkers.api import properties
from tribunal.harness.cli.main import app

ROOT = Path(__file__).resolve().parents[2]
DOCUMENTS = sorted([*ROOT.glob("*.md"), ROOT / "tests" / "corpus" / "README.md", *(ROOT / "docs").glob("*.md")])
BLOCK = re.compile(r"^```(\w*)(?: title=\"([^\"]+)\")?\n(.*?)^```", re.MULTILINE | re.DOTALL)


def blocks(path):
    return [(kind, title, text) for kind, title, text in BLOCK.findall(path.read_text())]


def commands(path):
    for kind, _, text in blocks(path):
        if kind in ("", "sh"):
            yield from (line.partition("#")[0].strip() for line in text.splitlines() if line.startswith("tribunal "))


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: path.name)
def test_commands_and_their_options_exist(path):
    for line in commands(path):
        words = shlex.split(line)[1:]
        names = words[:2] if words[0] == "findings" else words[:1]
        offered = CliRunner().invoke(app, [*names, "--help"], env={"COLUMNS": "250", "NO_COLOR": "1"})
        assert offered.exit_code == 0, line
        for option in (word for word in words if word.startswith("--")):
            assert option in offered.output, line


@pytest.mark.parametrize(
    ("letter", "page", "definition"),
    [
        ("R", "verdicts.md", r"^\| R(\d+) \|"),
        ("I", "invariants.md", r"^### I(\d+)$"),
        ("Z", "invariants.md", r"^### Z(\d+)$"),
    ],
)
def test_who_names_all_rules_names_the_last_one(letter, page, definition):
    last = max(map(int, re.findall(definition, (ROOT / "docs" / page).read_text(), re.MULTILINE)))
    ranges = re.compile(rf"\b{letter}1`? to `?{letter}(\d+)")

    named = {
        (path.name, int(end)) for path in DOCUMENTS if path.name != page for end in ranges.findall(path.read_text())
    }

    assert named
    assert {(name, end) for name, end in named if end != last} == set()


def test_the_index_leads_to_every_page():
    text = (ROOT / "docs" / "index.md").read_text()

    assert [
        path.name for path in (ROOT / "docs").glob("*.md") if path.name != "index.md" and f"]({path.name}" not in text
    ] == []


def test_nobody_is_asked_to_install_what_is_not_ours():
    """`tribunal` on the package index is somebody else's program; our distribution is `replog`."""
    folders = (
        "docs",
        ".github",
        "clusters",
        "checkers",
        "harness",
        "results",
        "replog",
        "nemesis",
        "workloads",
        "tools",
    )
    files = [
        path
        for folder in folders
        for path in (ROOT / folder).rglob("*")
        if path.suffix in {".md", ".yml", ".py", ".sh"}
    ]
    wrong = re.compile(r"install (?:-\S+ )*['\"]?tribunal\b|tribunal\[")

    found = [path.name for path in [*files, *ROOT.glob("*.md")] if wrong.search(path.read_text())]

    assert len(files) > 500
    assert not found


def test_every_anomaly_has_a_line_and_an_example():
    text = (ROOT / "docs" / "anomalies.md").read_text()
    missing = []
    for name, one in properties().items():
        for kind in one.kinds:
            base = kind.removesuffix("-process").removesuffix("-realtime")
            if f"`{kind}`" not in text and f"`{base}`" not in text:
                missing.append(f"{name}/{kind}")

    assert not missing


def test_links_between_documents_lead_somewhere():
    for path in DOCUMENTS:
        for target in re.findall(r"\]\(([^)#]+)(?:#[^)]*)?\)", path.read_text()):
            if "://" not in target:
                assert (path.parent / target).exists(), f"{path.name}: {target}"


def test_the_tutorial_shows_what_is_written(tmp_path):
    tutorial = ROOT / "docs" / "tutorial.md"
    for line in commands(tutorial):
        if line.startswith("tribunal new"):
            done = subprocess.run(
                [sys.executable, "-m", "tribunal.harness.cli.main", *shlex.split(line)[1:]], cwd=tmp_path, capture_output=True, text=True, check=False,
                env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
            )  # fmt: skip
            assert done.returncode == 0, done.stderr

    shown = [(title, text) for _, title, text in blocks(tutorial) if title.startswith("tribunal_plugins/")]
    shown = [(title, text) for title, text in shown if "/clusters/" not in title]
    assert len(shown) == 4
    for title, text in shown:
        assert (tmp_path / title).read_text() == text, title
        assert len(text.splitlines()) <= 60


@pytest.mark.nightly
@pytest.mark.timeout(900)
def test_what_the_tutorial_runs_in_the_simulator_ends_well(tmp_path):
    wanted = ("tribunal new", "tribunal run")
    lines = [line for line in commands(ROOT / "docs" / "tutorial.md") if line.startswith(wanted)]
    lines = [line for line in lines if line.startswith("tribunal new") or "--cluster simulated" in line]
    assert len(lines) >= 6
    for line in lines:
        done = subprocess.run(
            [sys.executable, "-m", "tribunal.harness.cli.main", *shlex.split(line)[1:]], cwd=tmp_path, capture_output=True, text=True, check=False,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        )  # fmt: skip
        assert done.returncode == 0, (line, done.stdout, done.stderr)


def plugin(tmp_path, name):
    """Write one of the tutorial's files where the harness finds it, and return its text."""
    shown = blocks(ROOT / "docs" / "tutorial.md")
    ((title, text),) = ((title, text) for _, title, text in shown if title.endswith(name))
    path = tmp_path / title
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return text


@pytest.mark.e2e
@pytest.mark.nightly
@pytest.mark.timeout(200)
def test_the_tutorials_own_kind_of_cluster_runs(tmp_path):
    plugin(tmp_path, "my-first.yaml")
    text = plugin(tmp_path, "starved.py")

    words = ["run", "my-first", "--cluster", "starved", "--time", "10s", "--seed", "5", "--engine", "inline", "-q"]
    done = subprocess.run(
        [sys.executable, "-m", "tribunal.harness.cli.main", *words], cwd=tmp_path, capture_output=True, text=True, check=False,
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), *sys.path])},
    )  # fmt: skip

    assert done.returncode == 0, done.stdout + done.stderr
    assert "nodes live in processes of a low priority" in done.stderr
    assert len(text.splitlines()) <= 80


@pytest.mark.e2e
def test_the_tutorials_own_test_passes(tmp_path):
    tutorial = ROOT / "docs" / "tutorial.md"
    (text,) = (text for _, title, text in blocks(tutorial) if title == "test_my_log.py")
    plugin(tmp_path, "my-first.yaml")
    (tmp_path / "test_my_log.py").write_text(text)

    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "test_my_log.py"],
        cwd=tmp_path, capture_output=True, text=True, check=False,
    )  # fmt: skip

    assert done.returncode == 0, done.stdout
    assert len(text.splitlines()) <= 10


def test_the_site_builds_without_a_warning(tmp_path):
    pytest.importorskip("mkdocs")
    build = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(tmp_path / "site")]
    done = subprocess.run(build, cwd=ROOT, capture_output=True, text=True, check=False)

    assert done.returncode == 0, done.stderr
    assert (tmp_path / "site" / "tutorial" / "index.html").is_file()
