"""Which rare states there are is read out of the nodes' code, so that a report can name those that a run did not reach."""

import re
from pathlib import Path

import pytest

import replog
from tribunal.clusters.simulated.rare_states import countable, known_rare_states
from tribunal.harness.campaign.night_file import read_config

ROOT = Path(__file__).parents[2]
EITHER = {"kraft": "prevote_refused", "zookeeper": "zookeeper_session_expired"}


@pytest.mark.parametrize("mode", list(EITHER))
def test_each_mode_has_its_own_rare_states_and_those_of_both(mode: str) -> None:
    known = known_rare_states(mode)

    assert {EITHER[mode], "isr_changed", "duplicate_registration_refused"} <= set(known)
    assert not {name for other, name in EITHER.items() if other != mode} & set(known)
    assert list(known) == sorted(known)


def test_no_name_that_the_code_counts_is_missed() -> None:
    """A name that is written down at a call, in one form or the other, is known; also those of a choice and of a list."""
    known = {name for mode in EITHER for name in known_rare_states(mode)}
    code = "\n".join(path.read_text() for path in Path(replog.__file__).parent.rglob("*.py"))

    written = set(re.findall(r'\b[pP]robe\((?:name=)?"(\w+)"', code))

    assert len(written) > 30
    assert written <= known
    assert {"prevote_granted", "elr_nonempty", "leaderless"} <= known


def test_the_states_that_a_night_demands_are_among_them() -> None:
    demanded = set(read_config(ROOT / "nightly.yaml").probes)

    assert demanded
    assert demanded <= set(known_rare_states("kraft"))


def test_what_is_named_while_a_node_runs_can_be_counted_too() -> None:
    """Names that are put together: a night may demand them as well."""
    assert {"point segment is rolled early", "quorum_voter_add", "elr_nonempty"} <= countable("kraft")
    assert "quorum_voter_add" not in countable("zookeeper")
    assert set(known_rare_states("zookeeper")) < countable("zookeeper")
