"""I4: what a leader takes for committed that does not know of its successor is in the successor's log."""

from contextlib import nullcontext

import pytest

from tests.simulated.test_watch import P, log, mark, violates
from tribunal.clusters.simulated.committed import CommittedMetadata
from tribunal.clusters.simulated.watch import Watch
from tribunal.clusters.simulated.world import Simulation

DEPOSED, SUCCESSOR = 1, 2
BEFORE, MORE, OWN, ELSE = mark(0, 9, 1), mark(10, 14, 1), mark(10, 11, 2), mark(10, 14, 1, crc=7)


@pytest.fixture
def watch():
    simulation = Simulation(1)
    machines = {node: simulation.add_machine(f"broker-{node}", f"10.0.0.{node}", node) for node in (1, 2, 3)}
    committed = CommittedMetadata({}, now_ns=lambda: 0, wall_start_ms=0)
    watch = Watch(simulation, machines, "/data", committed, dict, elr_enabled=True, producer_expiration_ms=86_400_000)
    watch._leaders |= {(P, 1): DEPOSED, (P, 2): SUCCESSOR}
    watch._prefix(P).leader_epoch = 2
    return watch


@pytest.mark.parametrize(("own", "high_watermark", "latter", "breaks"), [
    pytest.param(log(BEFORE, MORE), 10, log(BEFORE, OWN), False, id="what both have"),
    pytest.param(log(BEFORE, MORE), 15, log(BEFORE, MORE), False, id="all that it has"),
    pytest.param(log(BEFORE, MORE), 15, log(BEFORE, OWN), True, id="its successor has written another batch there"),
    pytest.param(log(BEFORE, MORE), 15, log(BEFORE, ELSE), True, id="its successor has another batch of that leader epoch"),
    pytest.param(log(BEFORE, MORE), 15, log(BEFORE), True, id="its successor has nothing there"),
    pytest.param(log(BEFORE, MORE), 0, log(OWN), False, id="nothing at all"),
])  # fmt: skip
def test_what_a_deposed_leader_shows(watch, own, high_watermark, latter, breaks):
    watch.replicas[SUCCESSOR].logs[P] = latter

    with violates("I4") if breaks else nullcontext():
        watch._shown_by_deposed(DEPOSED, own, P, 1, high_watermark)


@pytest.mark.parametrize("why", [
    "an unclean election since", "a machine lost its power", "bytes were altered", "compacted", "not its log any more", "its log begins later",
])  # fmt: skip
def test_where_a_deposed_leader_may_have_shown_more(watch, why):
    own, latter = log(BEFORE, MORE), log(BEFORE, OWN)
    watch.replicas[SUCCESSOR].logs[P] = latter
    match why:
        case "an unclean election since":
            watch.committed.unclean[P] = 2
        case "a machine lost its power":
            watch.lost_data(3)
        case "bytes were altered":
            watch.damaged(3)
        case "compacted":
            latter.is_compacted = True
        case "not its log any more":
            del watch.replicas[SUCCESSOR].logs[P]
        case _:
            latter.start_offset = 15

    watch._shown_by_deposed(DEPOSED, own, P, 1, 15)


def test_an_unclean_election_before_it_led_excuses_nothing(watch):
    watch.replicas[SUCCESSOR].logs[P] = log(BEFORE, OWN)
    watch.committed.unclean[P] = 1

    with violates("I4"):
        watch._shown_by_deposed(DEPOSED, log(BEFORE, MORE), P, 1, 15)
