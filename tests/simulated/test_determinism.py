"""Same seed, same run: in fresh interpreters with other hash seeds; and a leak is found where it begins."""

import io

import pytest

from tribunal.clusters.simulated.determinism import difference, fingerprint, first_difference


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_a_seed_repeats_itself(seed):
    assert difference("tests.simulated.gossip_program:orderly", seed) is None


def test_other_seeds_are_other_runs():
    one, other = (fingerprint("tests.simulated.gossip_program:orderly", seed, 0, None) for seed in (1, 2))

    assert one.trace_hash != other.trace_hash
    assert one.event_count > 10_000


def test_the_order_of_a_set_that_reaches_the_network_is_found():
    found = difference("tests.simulated.gossip_program:leaking", 1)

    assert found is not None
    assert found.line_of_first != found.line_of_second
    assert " segment " in found.line_of_first
    assert len(found.before) == 4


def test_tracing_does_not_change_the_run(tmp_path):
    plain = fingerprint("tests.simulated.gossip_program:orderly", 4, 0, None)
    traced = fingerprint("tests.simulated.gossip_program:orderly", 4, 0, tmp_path / "trace")

    assert plain == traced
    assert len((tmp_path / "trace").read_text().splitlines()) > plain.event_count


def test_the_first_differing_line_is_shown_with_what_came_before():
    one, other = io.StringIO("a\nb\nc\nd\n"), io.StringIO("a\nb\nX\nd\n")
    shorter = io.StringIO("a\n")

    assert first_difference(one, other) == (["a", "b"], ("c", "X"))
    assert first_difference(io.StringIO("a\nb\n"), shorter) == (["a"], ("b", None))
