"""Family registration: BrokerRegistration at the controller."""

from typing import Any

import pytest

from replog.controller.policy import ELR_FEATURE
from replog.controller.registration import METADATA_VERSION, register
from replog.metadata import records as r
from replog.metadata.state import FeatureRange
from replog.types import NodeId
from tests.cases.cases import load, only
from tests.cases.controllers import CLUSTER, Box, incarnation, registration
from tests.cases.partitions import partition

GIVEN = {"existing", "next_epoch", "clean_detection", "cluster", "elr"}
EXISTING = {"epoch", "incarnation", "session_valid", "fenced", "shutting_down"}
WHEN = {"broker", "incarnation", "previous_epoch", "cluster", "features", "finalized", "version"}
THEN = {"error", "epoch", "shutdown", "fenced", "amended", "shutting_down", "record_order"}
FEATURES = {"metadata_version": METADATA_VERSION, "eligible_leader_replicas_version": ELR_FEATURE}
KINDS = {"partition changes": r.PartitionChangeRecord, "register broker": r.RegisterBrokerRecord}


def features(when: dict[str, Any]) -> dict[str, FeatureRange] | None:
    if "features" not in when:
        return None
    return {FEATURES[name]: FeatureRange(*levels) for name, levels in when["features"].items()}


@pytest.mark.parametrize("case", load("registration"))
def test_registration(case: dict[str, Any]) -> None:
    given = only(case["given"], GIVEN, "given")
    when = only(case["when"], WHEN, "when")
    then = only(case["then"], THEN, "then")
    existing = only(given["existing"], EXISTING, "existing")
    assert given["cluster"] == CLUSTER
    box = Box(min_insync_replicas=2)
    box.features(elr=given["elr"], metadata_version=25 if given["clean_detection"] else 21)
    for name, level in only(when.get("finalized"), set(FEATURES), "finalized").items():
        box.replay(r.FeatureLevelRecord(name=FEATURES[name], feature_level=level))
    if existing:
        box.broker(
            when["broker"],
            epoch=existing["epoch"],
            incarnation_id=incarnation(existing["incarnation"]),
            fenced=existing["fenced"],
            in_controlled_shutdown=existing["shutting_down"],
        )
    clean_up = 0
    if "record_order" in then:  # something to clean up: one partition
        box.broker(2).topic(partition({"replicas": [when["broker"], 2], "isr": [when["broker"], 2]}))
        clean_up = 1

    request = registration(
        when["broker"],
        incarnation_id=incarnation(when["incarnation"]),
        previous_epoch=when.get("previous_epoch", -1),
        cluster=when["cluster"],
        features=features(when),
    )
    outcome = register(
        box.controller.policy,
        request,
        session_valid=existing.get("session_valid", False),
        next_offset=given["next_epoch"] - clean_up,
    )

    assert outcome.error.name == then.get("error", "NONE")
    if "error" in then:
        assert not outcome.records
        return
    box.offset = given["next_epoch"] - clean_up
    box.replay(*outcome.records)
    registered = box.image.brokers[NodeId(when["broker"])]
    actual = {
        "epoch": registered.epoch,
        "shutdown": outcome.shutdown.value if outcome.shutdown else None,
        "fenced": registered.fenced,
        "amended": outcome.shutdown is None,
        "shutting_down": registered.in_controlled_shutdown,
    }
    assert {key: actual[key] for key in then if key in actual} == {key: then[key] for key in then if key in actual}
    if "record_order" in then:
        assert [type(record) for record in outcome.records] == [KINDS[kind] for kind in then["record_order"]]
