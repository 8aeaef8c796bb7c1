"""A proposal waits in the queue while the time to repeat an older one comes (found by a sweep, rotating-swarm, seed 220200).

Controllers that could not be reached left every leader with a proposal to repeat. Elected again, they gave it up and
proposed anew; the old one's timer put it in the new one's place, where nobody wanted it, and the new one was never sent:
its replica stayed out of the ISR until the next election.
"""

from pathlib import Path

from harness.findings import all_findings, rerun

FINDINGS = Path(__file__).parents[1] / "findings"
NAME = "given-up-proposal-repeated"


def test_a_proposal_that_was_given_up_does_not_take_the_next_ones_place(tmp_path):
    (finding,) = [one for one in all_findings(FINDINGS) if one.name == NAME]

    (result,) = rerun([finding], jobs=1, scratch=tmp_path)

    assert (result.outcome, result.others) == ("stays fixed", [])
