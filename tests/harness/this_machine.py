"""What this machine lacks for a test: the test is skipped, and says for want of what."""

import pytest

from tribunal.harness.catalog import all_clusters, faults


def skip_unless_it_can(cluster, wanted):
    """Skip the test where this machine does not give a kind of cluster what these faults need; what it never has is the test's own matter."""
    lacking = all_clusters()[cluster].lacking()
    needed = {need for name in wanted for need in faults()[name].needs}
    if absent := sorted(needed & lacking.keys()):
        pytest.skip(f"cluster {cluster} cannot {', '.join(f'{need} ({lacking[need]})' for need in absent)}")
