"""Our linearizability search against the verdicts of Porcupine and Knossos."""

import sys
from pathlib import Path

import pytest

from tribunal.checkers.graphs.operations import paired
from tribunal.checkers.registers.linearizability import Answer, check
from tribunal.checkers.registers.models import MODELS

sys.path.insert(0, str(Path(__file__).parent))
import corpus

pytestmark = pytest.mark.skipif(not corpus.folders(), reason="no corpus beside the project and none in TRIBUNAL_CORPUS")


@pytest.mark.parametrize("case", [pytest.param(case, id=case["id"]) for case in corpus.register_cases()])
def test_corpus_registers_agree_with_porcupine(case):
    result = check(paired(case["load"]()), MODELS[case["model"]])

    assert result.answer is (Answer.LINEARIZABLE if case["valid"] else Answer.ILLEGAL)
    assert (result.culprit is None) == case["valid"]
