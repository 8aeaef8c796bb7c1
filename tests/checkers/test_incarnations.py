"""What the judge says of faults by their names must be of faults that there are."""

import pkgutil

import pytest

from tribunal.checkers.judge.incarnations import BEGUN_BEFORE, CARRIES_ALL, NEVER, OF_ALL_BROKERS, OF_MANY, Calm
from tribunal.nemesis import faults
from tribunal.results.rows import Fault

S = 1_000_000_000


def test_the_rules_of_what_a_fault_hinders_name_faults_that_exist() -> None:
    named = {one.replace("-", "_") for one in CARRIES_ALL | OF_MANY | OF_ALL_BROKERS | BEGUN_BEFORE}

    assert named <= {module.name for module in pkgutil.iter_modules(faults.__path__)}


@pytest.mark.parametrize(("heal", "calm_s"), [
    pytest.param({"healed_ns": 9 * S, "healed": True, "undone": True}, 19, id="proven by full service"),
    pytest.param({"healed_ns": 9 * S, "healed": False, "undone": True}, 19, id="undone, and full service did not follow"),
    pytest.param({"healed_ns": 9 * S, "healed": False, "undone": False}, None, id="not undone"),
    pytest.param({"healed_ns": 9 * S, "healed": False}, None, id="of a recording that says only that no proof came"),
    pytest.param({"healed": False, "undone": False}, None, id="broken off"),
])  # fmt: skip
def test_since_when_nothing_is_hurt_any_more(heal: dict[str, object], calm_s: int | None) -> None:
    """What was undone cannot excuse for ever, what was not must: neither waits for a full ISR."""
    calm = Calm([Fault(index=0, kind="isolate", resolved_target="broker 2", planned_ns=S, injected_ns=S, **heal)])

    calm_ns = calm.lasted_ns(1, 0, 10 * S)

    assert (calm_ns >= NEVER) if calm_s is None else (calm_ns == calm_s * S)
