"""A property that brings an excuse along: one file, and the page that says so (docs/contributing/a-new-property.md)."""

import re
from pathlib import Path

import pytest

from tests.checkers.recorded import Run
from tribunal.checkers.api import properties
from tribunal.checkers.guarantees import OF_MEMORY, OF_SYSTEMS, RULES
from tribunal.checkers.judge.verdict import check
from tribunal.harness.new import made
from tribunal.results.verdict import Finding

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "contributing" / "a-new-property.md").read_text()
RULE = '"new-leader"'


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working directory outside of this repository, with a property that has a rule of its own."""
    path, _ = made("checker", "beyond-the-end", "Consumers that ask beyond the end", tmp_path)
    (rule,) = re.findall(r"^def _new_leader.*?\n(?=```)", PAGE, re.MULTILINE | re.DOTALL)
    text = path.read_text()
    imports = (
        "import UNKNOWN, Anomaly, Context, Found, Grounds, Kind, Meaning, PartitionRows, Property, Rule, anomalies\n"
    )
    imports += "from tribunal.checkers.guarantees import Elected\nfrom tribunal.checkers.judge.timeline import Entry\n"
    text = re.sub(r"import UNKNOWN.*\n", imports, text)
    text = text.replace("KINDS: Final", f"{rule}\n\nKINDS: Final", 1)
    text = text.replace("Meaning.NOTE", "Meaning.VIOLATION")
    excuse = f'excused_by=(Rule(name={RULE}, words="a new leader may show an earlier end", excusing=_new_leader),)'
    path.write_text(text.replace('that it was shown"),', f'that it was shown", {excuse}),'))
    monkeypatch.chdir(tmp_path)
    return tmp_path


def judged(folder: Path, *, elected_at: int) -> Finding:
    """Judge a run with an election, and a consumer that asks at 200 ms for what lies beyond the end."""
    run = Run(folder / "run")
    value = run.send(0, 10)
    run.change(elected_at, leader=2, isr=[2, 3])
    run.poll(90, "tail", 5, 0, 200, high_watermark=1)
    run.final_read({0: value})

    (verdict,) = check([run.finish()], "inline")
    (found,) = [one for one in verdict.findings if one.kind == "beyond_the_end"]
    return found


def test_its_rule_excuses_what_came_after_the_event(folder: Path) -> None:
    found = judged(folder, elected_at=100)

    assert (found.severity, found.rule) == ("permitted", "new-leader")
    assert found.detail.promise == "a new leader may show an earlier end"
    assert found.detail.election is not None
    assert (found.detail.election.leader, found.detail.election.leader_epoch) == (2, 1)


def test_its_rule_excuses_nothing_from_before_the_event(folder: Path) -> None:
    found = judged(folder, elected_at=300)

    assert (found.severity, found.rule) == ("violation", "")


def test_the_walk_names_the_files_that_are_written_and_the_rules_page(tmp_path: Path) -> None:
    (tmp_path / "tribunal" / "checkers").mkdir(parents=True)
    (tmp_path / "checkers" / "properties").mkdir(parents=True)
    listed = [re.sub(r"[<>]", "", path) for path in re.findall(r"^\| `([\w/.<>-]+)` \|", PAGE, re.MULTILINE)]

    written = [str(path.relative_to(tmp_path)) for path in made("checker", "beyond-the-end", "", tmp_path)]

    assert listed == [*written, "docs/verdicts.md"]


def test_every_rule_that_a_property_accepts_is_in_the_verdicts() -> None:
    rows = set(re.findall(r"^\| (R\d+|gone_by_order) \|", (ROOT / "docs" / "verdicts.md").read_text(), re.MULTILINE))
    own = {rule.name for one in properties().values() for rule in one.rules}

    assert set(RULES) | set(OF_SYSTEMS) | {str(rule) for rule in OF_MEMORY} | own == rows
