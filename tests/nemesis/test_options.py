"""Options by which a fault would do nothing are refused: its proof has nothing to look for, and holds."""

import msgspec
import pytest

from tribunal.clusters.spec import ClusterSpec
from tribunal.harness.catalog import faults
from tribunal.harness.scenario import BadScenario, scenario

NOTHING = [
    ("clock-drift", {"drift_ppm": 0}),
    ("clock-jump", {"offset_ms": 0}),
    ("clock-strobe", {"offset_ms": 0}),
    ("clock-strobe", {"period_ms": 0}),
    ("delay-messages", {"delay_ms": 0}),
    ("flaky", {"loss": 0}),
    ("flaky", {"loss": 20}),  # percent, it was meant
    ("narrow", {"bytes_per_s": 0}),
    ("slow", {"delay_ms": 0, "jitter_ms": 0}),
    ("slow", {"delay_ms": -100}),
    ("slow-fsync", {"delay_ms": 0}),
    ("slow-zookeeper", {"delay_ms": 0}),
    ("fast-bounce", {"times": 0}),
    ("rotating-swarm", {"at_once": 0}),
    ("wide-swarm", {"at_once": 0}),
    ("hold-messages", {"limit": -1}),
    ("hold-over", {"limit": -1}),
    ("change-min-isr", {"to": 0}),
]
LITTLE = [
    ("clock-drift", {"drift_ppm": -1}),
    ("clock-jump", {"offset_ms": -60_000}),
    ("clock-strobe", {"period_ms": 1}),
    ("delay-messages", {"delay_ms": 1}),
    ("flaky", {"loss": 1}),
    ("narrow", {"bytes_per_s": 1}),
    ("slow", {"delay_ms": 0, "jitter_ms": 30}),
    ("slow", {"delay_ms": 30, "jitter_ms": 0}),
    ("slow-fsync", {"delay_ms": 1}),
    ("slow-zookeeper", {"delay_ms": 1}),
    ("fast-bounce", {"times": 1}),
    ("rotating-swarm", {"at_once": 1}),
    ("wide-swarm", {"at_once": 1}),
    ("hold-messages", {"limit": 0}),
    ("change-min-isr", {"to": 1}),
]


def shown(value):
    return value if isinstance(value, str) else ",".join(f"{name}={one}" for name, one in value.items())


@pytest.mark.parametrize(("fault", "options"), NOTHING, ids=shown)
def test_what_would_do_nothing_is_refused(fault, options):
    with pytest.raises(msgspec.ValidationError):
        msgspec.convert(options, faults()[fault].options)


@pytest.mark.parametrize(("fault", "options"), LITTLE, ids=shown)
def test_what_does_little_is_taken(fault, options):
    assert msgspec.convert(options, faults()[fault].options)


def test_a_scenario_with_it_is_refused_by_the_step():
    given = {"scenario": "x", "workload": "produce-consume", "steps": [{"flaky": "leader(p0)", "loss": 20}]}

    with pytest.raises((BadScenario, ValueError), match=r"step 1: .*loss: a number <= 1.0 is needed"):
        scenario(given)


@pytest.mark.parametrize(
    ("to", "refused"), [(0, False), (2, False), ("standby", False), (101, False), (7, True), (-1, True)]
)
def test_a_link_to_nobody_is_refused_before_anything_starts(to, refused):
    reason = faults()["single-link"].refused_by(ClusterSpec(), {"to": to})

    assert ("there is no node" in reason) is refused
    assert bool(reason) is refused


@pytest.mark.parametrize(
    ("mode", "step", "is_sent"),
    [
        ("zookeeper", {"kill": "leader(p0)", "when": "vote request"}, False),
        ("zookeeper", {"kill": "leader(p0)", "until": "|isr(p0)| < 3 and broker-heartbeat request x2"}, False),
        ("zookeeper", {"kill": "sender(vote answer)"}, False),
        ("zookeeper", {"kill": "receiver(alter-partition answer)", "when": "alter-partition request"}, True),
        ("kraft", {"kill": "leader(p0)", "when": "leader-and-isr request"}, False),
        ("kraft", {"kill": "sender(vote answer)", "when": "vote request"}, True),
    ],
)
def test_nobody_waits_for_a_message_that_the_mode_does_not_have(mode, step, is_sent):
    given = {"scenario": "x", "cluster": {"mode": mode}, "workload": "produce-consume", "steps": [step]}

    if is_sent:
        assert scenario(given)
    else:
        with pytest.raises(ValueError, match=f"step 1: nobody sends .* in {mode} mode"):
            scenario(given)
