"""Every rule has a line in docs/guarantees.md, and its pair of examples says what the line says."""

import re
from pathlib import Path

import pytest
import yaml

from tribunal.checkers.guarantees import RULES, VIOLATIONS

ROOT = Path(__file__).resolve().parents[2]
CASES = {
    case["id"]: case
    for case in yaml.safe_load((ROOT / "tests" / "cases" / "data" / "guarantees.yaml").read_text())["cases"]
}
LINES = {
    match[1]: re.findall(r"GU-\d+", match[0])
    for match in re.finditer(r"^\| (\w+) \|.*$", (ROOT / "docs" / "guarantees.md").read_text(), re.MULTILINE)
}


@pytest.mark.parametrize("rule", RULES)
def test_a_rule_has_a_pair(rule: str) -> None:
    permitted, neighbour = (CASES[name] for name in LINES[rule])

    assert (permitted["then"], permitted["rule"]) == ("may_be_lost", rule)
    assert neighbour["then"] == "must_survive"


@pytest.mark.parametrize("kind", VIOLATIONS)
def test_a_violation_by_itself_has_a_pair(kind: str) -> None:
    shown, fine = (CASES[name] for name in LINES[kind])

    assert shown["violation"] == kind
    assert fine.get("violation") != kind
