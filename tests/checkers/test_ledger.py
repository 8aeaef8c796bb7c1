"""One record's ledger: found by simulated seeds, one test each."""

from tribunal.checkers.guarantees import Acknowledged, Elected, How, Ledger, Settings, ShutDownUncleanly

LAST_KNOWN = Elected(leader=1, how=How.LAST_KNOWN, empty=True, ordered=False, last_known=(1,))


def promise(*facts):
    settings = Settings(
        replication_factor=3, min_isr=2, elr=True, unclean=False, recovery="off", high_watermark_needs_min_isr=True
    )
    ledger = Ledger(settings)
    for fact in facts:
        ledger.add(fact)
    return ledger.promise()


def test_an_election_while_a_record_was_in_flight_has_lost_nothing_of_it():
    """power-loss-all seed 20778000000: sent while the ISR was empty, acknowledged by the leader elected afterwards."""
    found = promise(Acknowledged(acks=-1, isr=(), leader=-1), LAST_KNOWN)

    assert not found.violations


def test_an_election_of_the_last_known_leader_after_one_unclean_holder_is_one_too_early():
    found = promise(Acknowledged(acks=-1, isr=(1, 2), leader=1), ShutDownUncleanly(node=2), LAST_KNOWN)

    assert found.violations == ("elr_lost_member",)
