"""Whether a plan shows a finding often enough, by runs of which each may show it or not: what is stated of the answer holds."""

import time
from collections.abc import Iterable
from pathlib import Path

import pytest

from tests.harness.test_confirm import MINIMAL, verdict
from tribunal.harness.campaign.repetition import CONFIDENCES, SHARES, Repeated, SequentialTest
from tribunal.harness.campaign.shrink import NotFound, Shrinker
from tribunal.harness.plan import Plan, read_plan
from tribunal.harness.scenario import BadScenario
from tribunal.results.signature import Signature
from tribunal.results.verdict import RunVerdict, Verdict

LOST = ("lost_writes", "lost")
SOUGHT = Signature(*LOST)


def accepted(test: SequentialTest, share: float) -> tuple[float, float]:
    """Return how probable the answer yes is where so many runs show the finding, and the mean number of runs: counted, not drawn."""
    undecided, yes, mean, runs = {0: 1.0}, 0.0, 0.0, 0
    while undecided:
        runs += 1
        mean += sum(undecided.values())
        following: dict[int, float] = {}
        for shown, weight in undecided.items():
            for count, chance in ((shown + 1, share), (shown, 1 - share)):
                answer = test.decided(count, runs)
                if answer is None:
                    following[count] = following.get(count, 0.0) + weight * chance
                elif answer:
                    yes += weight * chance
        undecided = following
    return yes, mean


@pytest.mark.parametrize("share", [SHARES[0], 0.2, 0.5, 0.8, SHARES[1]])
@pytest.mark.parametrize("confidence", [CONFIDENCES[0], 0.9, 0.99, CONFIDENCES[1]])
def test_either_answer_is_as_sure_as_it_says(share: float, confidence: float) -> None:
    test = SequentialTest.of(share, confidence)

    assert accepted(test, share)[0] >= confidence
    assert accepted(test, test.seldom)[0] <= 1 - confidence


def test_the_runs_that_the_documents_name_are_those_of_the_defaults() -> None:
    test = SequentialTest()

    assert (accepted(test, test.share)[1], accepted(test, test.seldom)[1]) == pytest.approx((4.9, 5.9), abs=0.1)
    assert accepted(test, 1.0) == (1.0, 2.0)
    assert accepted(test, 0.0) == (0.0, 4.0)


def test_what_never_comes_to_a_decision_is_no() -> None:
    """Between the two shares the ratio may stay where it is for ever."""
    test = SequentialTest()
    shown = round(test.runs_max * 0.27)

    assert test.decided(shown * (test.runs_max - 1) // test.runs_max, test.runs_max - 1) is None
    assert test.decided(shown, test.runs_max) is False


@pytest.mark.parametrize(
    ("share", "confidence", "words"),
    [
        pytest.param(1.0, 0.9, r"--share 1: from 0\.05 to 0\.95", id="always"),
        pytest.param(0.01, 0.9, "--share", id="hardly ever"),
        pytest.param(0.5, 1.0, r"--confidence 1: from 0\.8 to 0\.999", id="surely"),
        pytest.param(0.5, 0.5, "--confidence", id="a coin"),
    ],
)
def test_what_no_test_can_be_made_of_is_refused(share: float, confidence: float, words: str) -> None:
    with pytest.raises(BadScenario, match=words):
        SequentialTest.of(share, confidence)


class Outcomes:
    """Ends runs as they are given, in folders of their own."""

    def __init__(self, found: Iterable[RunVerdict]) -> None:
        self._found = iter(found)
        self.plans: list[Plan] = []

    def __call__(self, plan: Plan, out: Path) -> tuple[Path, RunVerdict] | None:
        self.plans.append(plan)
        folder = out / str(len(self.plans))
        folder.mkdir(parents=True)
        ended = next(self._found, None)
        return None if ended is None else (folder, ended)


YES, NO = verdict(LOST), verdict()
BROKEN = verdict(word=Verdict.ERROR)
ELSE = verdict(("consumers", "gap"))


@pytest.mark.parametrize(
    ("ended", "signatures"),
    [
        pytest.param([YES, YES], [SOUGHT], id="twice"),
        pytest.param([NO, YES, YES], [SOUGHT], id="after a miss"),
        pytest.param([NO, NO, NO, NO], [], id="never"),
        pytest.param([ELSE, ELSE, ELSE, ELSE], [], id="something else"),
        pytest.param([BROKEN, BROKEN, BROKEN, BROKEN], [], id="it breaks"),
    ],
)
def test_a_plan_is_run_until_it_is_decided(
    tmp_path: Path, ended: list[RunVerdict], signatures: list[Signature]
) -> None:
    outcomes, said = Outcomes(ended), []
    runner = Repeated(outcomes, SOUGHT, SequentialTest(), said.append)

    (result,) = runner.swept([read_plan(MINIMAL)], budget_s=None, scratch=tmp_path).results

    assert (result.signatures, runner.runs) == (signatures, len(ended))
    assert said == [f"{'yes' if signatures else 'no':<4} {ended.count(YES)} of {len(ended)} runs show lost_writes/lost"]
    kept = [folder for folder in tmp_path.iterdir() if folder.is_dir()]
    assert len(kept) == ended.count(YES)  # runs that show nothing leave nothing
    assert not signatures or Path(result.run_dir) in kept


def test_a_plan_that_time_is_over_for_has_no_result(tmp_path: Path) -> None:
    """Half a test says nothing: the candidate is not taken, and not refused either."""
    outcomes = Outcomes([YES])
    runner = Repeated(outcomes, SOUGHT, SequentialTest())

    sweep = runner.swept([read_plan(MINIMAL)], budget_s=None, scratch=tmp_path, cut_at=time.monotonic())

    assert (sweep.results, outcomes.plans) == ([], [])


def test_what_does_not_show_often_enough_is_not_shrunk(tmp_path: Path) -> None:
    """The words say how often it did."""
    runner = Repeated(Outcomes([NO] * 3 + [YES] + [NO] * 10), SOUGHT, SequentialTest())

    with pytest.raises(NotFound, match=r"shows nothing when it is run again \(1 of 8 runs show lost_writes/lost\)"):
        Shrinker(tmp_path, signature=SOUGHT, runner=runner).shrink(read_plan(MINIMAL))


def test_an_interrupt_ends_it(tmp_path: Path) -> None:
    runner = Repeated(Outcomes([]), SOUGHT, SequentialTest())

    with pytest.raises(KeyboardInterrupt):
        Shrinker(tmp_path, signature=SOUGHT, runner=runner).shrink(read_plan(MINIMAL))
