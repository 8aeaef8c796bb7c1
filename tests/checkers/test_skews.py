"""Whose clock a fault set, and by how much, as recordings say it."""

import pytest

from tribunal.checkers.judge.incarnations import NEVER
from tribunal.checkers.judge.skews import skews
from tribunal.results.rows import Fault

S = 1_000_000_000


@pytest.mark.parametrize(("kind", "target", "proof", "node", "least_s", "most_s"), [
    pytest.param("clock-jump", "broker 2", '{"offset_ms": 60000}', 2, 60, 60, id="of a broker"),
    pytest.param("clock-jump", "2", '{"offset_ms": -60000}', 2, -60, -60, id="named by its number alone"),
    pytest.param("clock-strobe", "broker 2", '{"offset_ms": 30000}', 2, -30, 30, id="to and fro"),
    pytest.param("clock-drift", "broker 2", '{"drift_ppm": 50000}', 2, 0, 5, id="as if it had drifted since the run began"),
    pytest.param("clock-jump", "broker 2", "{}", 2, None, None, id="nobody knows how far"),
    pytest.param("clock-jump", "broker 2", "it was set", 2, None, None, id="in words that nobody can read"),
    pytest.param("clock-jump", "brokers 1, 2", '{"offset_ms": 60000}', None, None, None, id="of two, or one of them"),
    pytest.param("storm", "broker 2", '{"hurt": "clock-jump"}', None, None, None, id="beside other things"),
])  # fmt: skip
def test_whose_clock_was_wrong_by_how_much(
    kind: str, target: str, proof: str, node: int | None, least_s: int | None, most_s: int | None
) -> None:
    times = {"planned_ns": 90 * S, "injected_ns": 92 * S, "healed_ns": 100 * S}
    (found,) = skews([Fault(index=0, kind=kind, resolved_target=target, proof=proof, healed=True, **times)])

    assert found.node == node
    assert (found.least_ns, found.most_ns) == (
        -NEVER if least_s is None else least_s * S,
        NEVER if most_s is None else most_s * S,
    )


@pytest.mark.parametrize(("at_s", "ahead_s"), [
    pytest.param(89, (0, 0), id="before it was begun"),
    pytest.param(91, (-60, 0), id="while it is set, and not proven yet"),
    pytest.param(93, (-60, -60), id="once it is proven"),
    pytest.param(100, (0, 0), id="when it is right again"),
])  # fmt: skip
def test_a_clock_may_be_wrong_before_it_is_proven_to_be(at_s: int, ahead_s: tuple[int, int]) -> None:
    times = {"planned_ns": 90 * S, "injected_ns": 92 * S, "healed_ns": 100 * S}
    fault = Fault(
        index=0, kind="clock-jump", resolved_target="broker 2", proof='{"offset_ms": -60000}', healed=True, **times
    )

    (found,) = skews([fault])

    assert found.shown(at_s * S) == (ahead_s[0] * S, ahead_s[1] * S)


@pytest.mark.parametrize(("kind", "heal_proof", "at_s", "ahead_s"), [
    pytest.param("clock-jump", '{"service": {"holds": true, "took_ms": 4000}}', 95, 60, id="not right yet"),
    pytest.param("clock-jump", '{"service": {"holds": true, "took_ms": 4000}}', 97, 0, id="right, and service is not back yet"),
    pytest.param("clock-jump", '{"service": {"holds": false, "waited_ms": 4000}}', 97, 0, id="right, and service does not come back"),
    pytest.param("clock-jump", '{"service": {"holds": true, "took_ms": 400000}}', 92.5, 0, id="no longer than it was set"),
    pytest.param("clock-jump", '{"service": {"holds": true}}', 97, 60, id="nobody knows how long service took"),
    pytest.param("clock-jump", "it was healed", 97, 60, id="in words that nobody can read"),
    pytest.param("storm", '{"service": {"holds": true, "took_ms": 4000}}', 97, None, id="beside other things"),
])  # fmt: skip
def test_a_clock_is_right_before_service_is_back(kind: str, heal_proof: str, at_s: float, ahead_s: int | None) -> None:
    times = {"planned_ns": 90 * S, "injected_ns": 92 * S, "healed_ns": 100 * S}
    proof = '{"offset_ms": 60000, "fault": "clock-jump 2"}'
    fault = Fault(
        index=0,
        kind=kind,
        resolved_target="broker 2",
        proof=proof,
        healed=False,
        undone=True,
        heal_proof=heal_proof,
        **times,
    )

    (found,) = skews([fault])

    most_ns = NEVER if ahead_s is None else ahead_s * S
    assert found.shown(int(at_s * S))[1] == most_ns
