"""The geometry of partitions: whatever the cluster's shape, a bridge leaves two halves and one that sees both."""

import pytest

from tribunal.clusters.spec import ClusterSpec
from tribunal.nemesis.link_groups import bridge


@pytest.mark.parametrize(
    ("brokers", "controllers"),
    [
        pytest.param(3, 3, id="3+3"),
        pytest.param(3, 1, id="3+1"),
        pytest.param(2, 1, id="2+1"),
        pytest.param(5, 5, id="5+5"),
    ],
)
def test_a_bridge_leaves_two_halves_that_see_each_other_only_through_it(brokers, controllers):
    spec = ClusterSpec(brokers=brokers, controllers=controllers)

    for target in spec.node_ids:
        links = bridge(spec, target)
        cut = {(link.source, link.target) for link in links}
        others = [node for node in spec.node_ids if node != target]
        half = {node for node in others if (others[0], node) not in cut}

        assert cut
        assert target not in {node for pair in cut for node in pair}
        assert cut == {(a, b) for a in others for b in others if (a in half) != (b in half)}
