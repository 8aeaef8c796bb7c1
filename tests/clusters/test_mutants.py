"""Mutants can be named, are installed only on demand, and really change the product."""

import pytest

from replog.broker.isr import LeaderState
from replog.errors import Error
from tribunal.harness.catalog import Unknown, mutant_named, mutants
from tribunal.harness.switches import switched_on


@pytest.mark.parametrize("name", ["M44", "m44", "m44_acks_local", "m44-acks-local"])
def test_a_mutant_has_several_names(name):
    assert mutant_named(name) == "m44_acks_local"


def test_an_unknown_mutant_names_near_ones():
    with pytest.raises(Unknown, match="m44_acks_local"):
        mutant_named("m44_ack_local")


def test_every_mutant_says_what_it_is():
    assert all(about.startswith("M") for about in mutants().values())


def test_m44_answers_before_anybody_replicated():
    with switched_on(("m44_acks_local",)):
        outcome = LeaderState.produce_outcome(LeaderState.__new__(LeaderState), 10)

    assert outcome is Error.NONE
