"""Our one-pass checkers against the verdicts of Jepsen's, on the samples of elle-cli."""

import sys
from pathlib import Path

import pytest

from tribunal.checkers.graphs.operations import paired
from tribunal.checkers.registers.folds import FOLDS

sys.path.insert(0, str(Path(__file__).parent))
import corpus

pytestmark = pytest.mark.skipif(not corpus.folders(), reason="no corpus beside the project and none in TRIBUNAL_CORPUS")


@pytest.mark.parametrize(
    "case", [pytest.param(case, id=case["id"]) for case in corpus.elle_cases() if case["model"] in FOLDS]
)
def test_corpus_folds_agree_with_jepsen(case):
    found = FOLDS[case["model"]](paired(case["history"]))

    assert (not found.anomalies) == case["verdict"]["valid"]
