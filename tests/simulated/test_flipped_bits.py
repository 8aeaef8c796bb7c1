"""A flipped bit's proof says which batches may stay damaged: those whose leader epoch, which no checksum covers, was hit."""

import pytest

from replog.log.batch import CorruptBatch, batches, has_valid_crc
from tests.scenarios.three_brokers import produce, run
from tribunal.clusters.capabilities import Damage


@pytest.mark.parametrize(
    "seeds",
    [pytest.param(range(3, 8), id="few"), pytest.param(range(1, 41), id="many", marks=pytest.mark.nightly)],
)
def test_only_a_flip_in_a_leader_epoch_is_one_that_no_checksum_sees(seeds):
    """One flip a seed: the logs before and behind it are read as recovery reads them."""
    seen, unseen = [], []

    async def scenario(cluster):
        await produce(cluster, -1, 4)
        await cluster.kill(1)
        before = sound(cluster)
        proof = await cluster.damage(1, Damage.BIT_FLIP)
        assert proof.holds
        (unseen if proof.facts["unseen_end_offsets"] else seen).append((before, sound(cluster), proof.facts))

    for seed in seeds:
        run(seed, scenario)

    assert seen
    assert unseen
    for before, after, facts in unseen:
        ((_, end),) = set(after) - set(before)
        assert facts["unseen_end_offsets"] == {"t-0": end}
        assert len(after) == len(before)
    assert all({epoch for epoch, _ in after} <= {epoch for epoch, _ in before} for before, after, _ in seen)


def sound(cluster):
    """Return leader epoch and end of each batch of the killed broker's log, up to the first that its checksum refuses."""
    disk, found = cluster.machine(1).disk, []
    for path in sorted(one for one in disk.files_below() if one.endswith(".log") and "t-0" in one):
        content = disk.content(path)
        try:
            for header in batches(bytes(content)):
                if not has_valid_crc(content, header):
                    break
                found.append((header.leader_epoch, header.next_offset))
        except CorruptBatch:
            pass
    return found
