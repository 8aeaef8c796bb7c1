"""A known bug that is switched on for one run is off again after it: what comes next in the process is the correct build."""

import pytest

from replog.broker import watermark
from replog.controller.policy import Policy
from tribunal.harness.catalog import mutants
from tribunal.harness.switches import _attributes, _differences, switched_on


@pytest.mark.parametrize("mutant", sorted(mutants()))
def test_every_mutant_is_switched_off_again(mutant):
    with switched_on((mutant,)):
        pass  # imports what it needs
    before = _attributes()

    with switched_on((mutant,)):
        changed = list(_differences(before, _attributes()))

    assert changed, "it replaces nothing that could be seen"
    assert list(_differences(before, _attributes())) == []


def test_it_is_known_whether_its_code_was_called():
    correct = watermark.high_watermark
    with switched_on(("m06_watermark_below_min_isr",)) as entered:
        assert not entered.at_all
        ends = {
            "current": 0,
            "leader_log_end_offset": 5,
            "follower_log_end_offsets": {},
            "isr": [1],
            "maximal_isr": [1],
        }
        watched = watermark.high_watermark
        assert watched(**ends, waiters=[], min_isr=2) == 5
        assert entered.at_all
        assert watermark.high_watermark not in (watched, correct)
        assert watched(**ends, waiters=[], min_isr=2) == 5  # whoever has kept it goes on with it
    assert watermark.high_watermark is correct


def test_what_cannot_be_watched_is_taken_as_called():
    with switched_on(("m01_no_elr",)) as entered:  # a property
        assert entered.at_all
    with switched_on(()) as entered:
        assert entered.at_all


def test_it_is_on_inside_and_off_after_a_failure():
    correct = Policy.elr_enabled

    def fails():
        with switched_on(("m01_no_elr",)):
            raise ZeroDivisionError(Policy.elr_enabled)

    with pytest.raises(ZeroDivisionError) as raised:
        fails()

    assert raised.value.args[0] is not correct
    assert Policy.elr_enabled is correct
