"""Family partition_change: the one function of SPEC 2.5 and 2.6."""

from typing import Any

import pytest

from replog.controller.election import Election, Rules, Wish, partition_change
from replog.controller.elr import LastKnownMode
from replog.metadata.image import merged
from replog.types import LeaderRecoveryState, NodeId
from tests.cases.cases import load, only
from tests.cases.partitions import KEY, matches, nodes, partition

GIVEN = {"partition", "min_insync_replicas", "elr_enabled", "last_known_mode", "acceptable_leaders"}
WHEN = {"target_isr", "target_replicas", "adding", "removing", "election", "unclean_shutdown", "recovery"}


def wish(when: dict[str, Any]) -> Wish:
    def maybe(name: str) -> tuple[NodeId, ...] | None:
        return nodes(when[name]) if when.get(name) is not None else None

    return Wish(
        target_isr=maybe("target_isr"),
        target_replicas=maybe("target_replicas"),
        adding_replicas=maybe("adding"),
        removing_replicas=maybe("removing"),
        leader_recovery_state=LeaderRecoveryState(when["recovery"]) if "recovery" in when else None,
        unclean_shutdown=nodes(when.get("unclean_shutdown", [])),
        election=Election(when.get("election", "online")),
    )


@pytest.mark.parametrize("case", load("partition_change"))
def test_partition_change(case: dict[str, Any]) -> None:
    given = only(case["given"], GIVEN, "given")
    when = only(case["when"], WHEN, "when")
    then = only(case["then"], {"partition", "no_change"}, "then")
    before = partition(given["partition"])
    rules = Rules(
        min_insync_replicas=given.get("min_insync_replicas", 1),
        elr_enabled=given.get("elr_enabled", True),
        last_known_mode=LastKnownMode(given.get("last_known_mode", "leader")),
    )
    acceptable = nodes(given.get("acceptable_leaders", []))

    change = partition_change(KEY, before, wish(when), rules, lambda node: node in acceptable)

    if then.get("no_change"):
        assert change is None
    else:
        assert change is not None
        matches(merged(before, change), then["partition"])
