"""Every command of every page is run as it stands, or a table says why it cannot be run here.

Each page is walked in a folder of its own, line by line in a shell, and each line has to end as its page promises. Files that the page
shows with a title are there from that point on. Only sizes are made smaller (`SMALLER`): fewer seeds, shorter budgets. A page's placeholders
mean a run with a violation, made once.
"""

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGES = sorted([ROOT / "README.md", ROOT / "CONTRIBUTING.md", ROOT / "SECURITY.md", *(ROOT / "docs").rglob("*.md")])
BLOCK = re.compile(r"^ *```(\w*)(?: title=\"([^\"]+)\")?[^\n]*\n(.*?)^ *```", re.MULTILINE | re.DOTALL)
PROGRAMS = ("tribunal", "make", "pip", "python", "pytest", "cd", "git", "source")
WHOLE = (".py", ".yaml")  # what a page shows of these is the file; of others it is a part

ENVIRONMENT = "makes an environment; tests/tidy/test_wheel.py installs the wheel"
KAFKA = "needs Apache Kafka and its Java; tests/e2e/test_apache_kafka.py"
ELSEWHERE = {
    r"make\b": "the gate itself, or its environment",
    r"pip (install|wheel) ": ENVIRONMENT,
    r"git config ": "changes a checkout",
    r"tribunal serve\b": "serves until Ctrl-C; tests/report/test_index_in_browser.py",
    r"tribunal up\b": "stands until Ctrl-C; tests/harness/test_up.py",
    r"python -m replog ": "a node's own file is needed; tests/controller/test_command_line.py",
    r"python tools/generate_sensitivity.py ": "COMMIT and the runs are the reader's; tests/checkers/test_calibration.py",
    r"python tools/get_zookeeper.py": "needs the network",
    r"tribunal run .*--cluster apache-kafka": KAFKA,
    r"tribunal run .*--cluster mixed": "needs Apache Kafka and its Java; tests/e2e/test_mixed.py",
    r"tribunal publish published ": f"publishes runs of it: {KAFKA}",
    r"tribunal museum ": "needs released versions of Apache Kafka; tests/harness/test_museum.py",
    r"tribunal run zookeeper-ensemble ": "needs a ZooKeeper, which is fetched; tests/e2e/test_zookeeper_mode.py",
    r"tribunal .*(spark|sc)://": "needs a Spark cluster; tests/harness/test_doors_to_spark.py",
    r"tribunal .*s3://BUCKET": "needs a bucket of the reader's; tests/harness/test_stored.py",
    r"tribunal verify docs/published/": "lies in a checkout; tests/harness/test_publish.py",
    r"tribunal run scenario.yaml ": "in the folder that explore has written; tests/harness/test_explore_partition.py",
    r"tribunal bisect ": "needs a repository in which the bug was made; tests/harness/test_bisect_probe.py",
    r"tribunal (bundle|verify) .*--sign": "needs a key of the reader's; tests/harness/test_evidence.py",
    r"tribunal (run SCENARIO|calibrate runs/figures/)": "SCENARIO and <run> are the reader's; tests/checkers/test_calibration.py",
    r"tribunal trends ": "needs the extra `nights`; tests/results/test_night_store.py",
    r"tribunal run --plan runs/<id>/plan.json": "the plan of a run of unknown kind; tests/seeds/test_replay_and_shrink.py",
}
SMALLER = {
    r"--seeds 0:\d+": "--seeds 0:2",
    r"^(tribunal (?:nightly|search) .*)--budget \d+m": r"\1--budget 15s",
    r"--runs 200": "--runs 4",
    r"--states 2000000 --steps 30 --time 20m": "--states 20000 --steps 30 --time 20s",
    r"^(tribunal shrink \S+)$": r"\1 --budget 20s",
    r"--steps 12": "--steps 7",
    r"--corpus /tmp/corpus": "--corpus corpus",
    r"--moments 12 --each 10": "--moments 2 --each 1",
    r"^(tribunal findings add .*)$": r"\1 --state known",  # the walked runs have a known bug switched on
}
PROMISED = {  # what the page says of the line, where that is not 0
    r"tribunal explore .*(elr=false|--mutant)": {1},  # an invariant is broken
    r"tribunal run .*(--mutant|lossy\.toml|plan\.min\.json)": {1},
    r"tribunal diff ": {1},  # two runs of other seeds are not the same
    r"tribunal (merge|nightly)\b": {0, 2},  # nothing was found, but so small a night has not earned its green
}
FILES = {
    "nightly.yaml": "nightly: walked\nsweeps: {last-replica-standing: 1}\nbound: 97\n",
    "campaign.yaml": "campaign: A walk\nsystem: replog\nversion: '0'\nnot_covered: [clocks]\n",
}


class Shown(NamedTuple):
    """A file that a page shows."""

    name: str
    text: str


def steps(path: Path) -> Iterator[str | Shown]:
    """The commands of a page's blocks, without what is said of them behind `#`, and its files, in the page's order."""
    for kind, title, text in BLOCK.findall(path.read_text()):
        if title.endswith(WHOLE):
            yield Shown(title, text)
        if kind not in ("", "sh"):
            continue
        found = (re.sub(r"\s+#.*$", "", line).strip() for line in text.splitlines())
        yield from (line for line in found if line.split(" ")[0] in PROGRAMS)


def lines(path: Path) -> Iterator[str]:
    return (step for step in steps(path) if isinstance(step, str))


def write(shown: Shown, folder: Path) -> None:
    """Write a file that the page shows, unless a command has made it."""
    if not (folder / shown.name).exists():
        (folder / shown.name).parent.mkdir(parents=True, exist_ok=True)
        (folder / shown.name).write_text(shown.text)


def elsewhere(line: str) -> str | None:
    return next((why for pattern, why in ELSEWHERE.items() if re.match(pattern, line)), None)


def promised(line: str) -> set[int]:
    return next((codes for pattern, codes in PROMISED.items() if re.match(pattern, line)), {0})


def smaller(line: str) -> str:
    for pattern, words in SMALLER.items():
        line = re.sub(pattern, words, line)
    return line


def filled_in(line: str, folder: Path) -> str:
    """Put names in the place of <id> and <other>: the newest run (or archive) of the folder that is named, and another one."""

    def name(found: re.Match[str]) -> str:
        at, which, end = found.groups()
        there = sorted((folder / at).glob("*.zip" if end else "*/plan.json"), key=lambda path: path.stat().st_mtime)
        chosen = there[-1 if which == "id" else 0]
        return str((chosen if end else chosen.parent).relative_to(folder))

    return re.sub(r"([\w/]+)/<(id|other)>(\.zip)?", name, line)


def shell(line: str, folder: Path) -> int:
    environment = {"PYTHONPATH": os.pathsep.join([str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])])}
    environment["PATH"] = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    with (folder.parent / "said.txt").open("a") as said:
        print(f"$ {line}", file=said, flush=True)
        done = subprocess.run(
            ["bash", "--noprofile", "--norc", "-e", "-c", line], cwd=folder, check=False, timeout=900,
            stdout=said, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL, env={**os.environ, **environment},
        )  # fmt: skip
        print(f"= {done.returncode}", file=said, flush=True)
    return done.returncode


def walk(page: Path, folder: Path, *, only: str = "") -> list[str]:
    """Run a page's lines that can run here; return those that ended otherwise than the page promises."""
    wrong = []
    shown_here = {step.name for step in steps(page) if isinstance(step, Shown)}
    for name, text in FILES.items():
        if name not in shown_here:
            (folder / name).write_text(text)
    for line in steps(page):
        if isinstance(line, Shown):
            write(line, folder)
            continue
        if elsewhere(line) is not None or not re.match(only, line):
            continue
        if line.startswith("cd "):
            folder /= line.partition(" ")[2]
            continue
        if line.startswith("tribunal merge "):
            others_night(line, folder)
        code = shell(filled_in(smaller(line), folder), folder)
        if code not in promised(line):
            wrong.append(f"{line}: {code}")
    return wrong


def others_night(line: str, folder: Path) -> None:
    """Make the shards that are merged and that the page's other machines make."""
    shards = re.findall(r"shard-\d", line)
    for number, name in enumerate(shards, 1):
        if not (folder / name).exists():
            shell(f"tribunal nightly nightly.yaml --budget 5s --shard {number}/{len(shards)} --out {name}", folder)


CHEAP = r"(tribunal (list|new)|cd) "
WALKED = [page for page in PAGES if any(elsewhere(line) is None for line in lines(page))]


@pytest.fixture(scope="module")
def violations(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two runs with a violation: what <id> and <other> mean on pages that begin behind a run."""
    out = tmp_path_factory.mktemp("violations")
    for seed in (3, 4):
        shell(
            f"tribunal run last-replica-standing --cluster simulated --seed {seed} --mutant M01 --engine inline -q", out
        )
    assert len(list((out / "runs").iterdir())) == 2
    return out / "runs"


@pytest.mark.nightly
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("page", WALKED, ids=lambda page: page.stem)
def test_a_page_is_walked(page: Path, tmp_path: Path, violations: Path) -> None:
    folder = tmp_path / "walk"
    folder.mkdir()
    if "runs/<" in page.read_text():
        shutil.copytree(violations, folder / "runs")

    wrong = walk(page, folder)

    assert not wrong, (tmp_path / "said.txt").read_text()[-6000:]


def test_what_costs_little_is_walked_in_every_gate(tmp_path: Path) -> None:
    (tmp_path / "walk").mkdir()

    wrong = [
        line
        for page in ("README.md", "docs/your-system.md")
        for line in walk(ROOT / page, tmp_path / "walk", only=CHEAP)
    ]

    assert not wrong, (tmp_path / "said.txt").read_text()[-6000:]
    assert (tmp_path / "said.txt").read_text().count("\n= 0") == 2


def test_no_line_with_somebody_elses_machine_or_bucket_is_walked() -> None:
    """They were walked with `spark://HOST:PORT` as it stands, and could not end as the page promises."""
    walked = [line for page in PAGES for line in lines(page) if elsewhere(line) is None]

    assert [line for line in walked if re.search(r"HOST|BUCKET|PORT\b", line)] == []


def test_each_reason_not_to_walk_a_line_is_needed_and_names_a_test_that_exists() -> None:
    found = [line for page in PAGES for line in lines(page)]

    assert len(found) > 80
    for pattern, why in ELSEWHERE.items():
        assert any(re.match(pattern, line) for line in found), pattern
        for path in re.findall(r"tests/\S+\.py", why):
            assert (ROOT / path).is_file(), path
    for pattern in SMALLER:
        assert any(re.search(pattern, line) for line in found), pattern
    for pattern in PROMISED:
        assert any(re.match(pattern, line) for line in found), pattern
