"""Our one-pass checkers against the verdicts of Jepsen's, on the samples of elle-cli."""

import sys
from pathlib import Path

import pytest

from tribunal.checkers.graphs.operations import paired
from tribunal.checkers.registers.folds import FOLDS

sys.path.insert(0, str(Path(__file__).parent))
import corpus


def cases():
    return corpus.parameters((case for case in corpus.elle_cli_cases() if case["model"] in FOLDS), "elle-cli")


@pytest.mark.parametrize("case", cases())
def test_corpus_folds_agree_with_jepsen(case):
    found = FOLDS[case["model"]](paired(case["history"]))

    assert (not found.anomalies) == case["verdict"]["valid"]
