"""A known bug that is switched on for one run is off again after it: what comes next in the process is the correct build."""

import pytest

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


def test_it_is_on_inside_and_off_after_a_failure():
    correct = Policy.elr_enabled

    def fails():
        with switched_on(("m01_no_elr",)):
            raise ZeroDivisionError(Policy.elr_enabled)

    with pytest.raises(ZeroDivisionError) as raised:
        fails()

    assert raised.value.args[0] is not correct
    assert Policy.elr_enabled is correct
