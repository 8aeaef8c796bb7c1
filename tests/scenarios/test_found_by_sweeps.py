"""What sweeps found, in the product and in the harness itself, run again: nothing of it may be said of these runs any more.

given-up-proposal-repeated     controllers that could not be reached left every leader with a proposal to repeat; elected again,
                               they gave it up and proposed anew, and the old one's timer put it in the new one's place,
                               where nobody wanted it: the new one was never sent, and its replica stayed out of the ISR
                               until the next election (rotating-swarm, seed 220200)
unclean-election-not-written   controllers of a protocol before 3.2 do not write RECOVERING, and I4 knew unclean elections by that
                               only (rotating-swarm in ZooKeeper mode, seed 240019)
final-read-before-isr-shrank   acks=1 records stood above the high watermark until a silent member left the ISR, and the
                               final read did not wait for them (rotating-swarm in ZooKeeper mode, seed 240319)
stopped-and-started-at-once    a process that had been asked to stop ended at the nanosecond its successor began, which
                               had not been asked (zookeeper-upgrade, seed 440003)
raised-min-isr                 min.insync.replicas was raised while the leader's metadata lagged; it committed alone by the smaller
                               value, beside an ELR that lacked these records (decision 0010; I8 said so)
"""

from pathlib import Path

import pytest

from tribunal.harness.campaign.findings import RealRuns, all_findings, rerun
from tribunal.harness.cli.repeated import conducted

FINDINGS = Path(__file__).parents[1] / "findings"


@pytest.mark.parametrize(
    "name",
    [
        "given-up-proposal-repeated",
        "unclean-election-not-written",
        "final-read-before-isr-shrank",
        "stopped-and-started-at-once",
        "raised-min-isr",
    ],
)
def test_it_stays_fixed(tmp_path, name):
    (finding,) = [one for one in all_findings(FINDINGS) if one.name == name]

    (result,) = rerun([finding], jobs=1, scratch=tmp_path, real=RealRuns(conducted, tmp_path))

    assert (result.outcome, result.others) == ("stays fixed", [])
