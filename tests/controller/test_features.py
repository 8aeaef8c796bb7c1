"""Levels of features: what a release contains, what may be lowered, and what needs what (SPEC 2.13)."""

import pytest

from replog.errors import Error
from replog.metadata.features import SAFE_DOWNGRADE, SUPPORTED, UNSAFE_DOWNGRADE, UPGRADE
from replog.metadata.record_versions import as_read_back, record_version
from replog.metadata.records import RegisterBrokerRecord
from replog.metadata.state import FeatureRange
from replog.types import NodeId
from replog.wire.messages import update_features as uf
from tests.cases.controllers import Box
from tests.cases.partitions import partition

ELR, GROUP, KRAFT = "eligible.leader.replicas.version", "group.version", "kraft.version"
METADATA, TRANSACTION = "metadata.version", "transaction.version"
RELEASE_4_0 = {METADATA: 25, GROUP: 1, KRAFT: 1, TRANSACTION: 2}
RELEASE_3_9 = {METADATA: 21, GROUP: 0, KRAFT: 1, TRANSACTION: 0, ELR: 0, "share.version": 0, "streams.version": 0}


def fresh() -> Box:
    return Box(min_insync_replicas=2).activate()


def update(box: Box, levels: dict[str, int], kind: int, *, validate_only: bool = False) -> uf.UpdateFeaturesResponse:
    updates = [
        uf.FeatureUpdateKey(feature=name, max_version_level=level, upgrade_type=kind) for name, level in levels.items()
    ]
    answer = box.send(uf.UpdateFeaturesRequest(feature_updates=updates, validate_only=validate_only))
    assert isinstance(answer, uf.UpdateFeaturesResponse)
    return answer


def test_a_release_is_finalized_whole() -> None:
    """What `kafka-features upgrade --release-version 4.0` asks for."""
    box = fresh()

    answer = update(box, RELEASE_4_0, UPGRADE)

    assert answer.error_code is Error.NONE
    assert box.image.features == RELEASE_4_0 | {ELR: 1}


@pytest.mark.parametrize("level", [26, 27, 28, 29])
def test_the_levels_of_releases_4_1_and_4_2_are_finalized_and_lost_without_loss(level: int) -> None:
    """No record changed with them: what stands in the log stays readable in both directions, so neither way is unsafe."""
    box = fresh()
    elr, record = box.image.features[ELR], RegisterBrokerRecord()

    up = update(box, {METADATA: level}, UPGRADE)

    assert (up.error_code, box.image.metadata_version) == (Error.NONE, level)
    assert box.image.features[ELR] == elr  # 4.1 turns it on in new clusters only
    assert record_version(record, level) == record_version(record, 25)
    assert as_read_back(record, level) == record

    safe = update(box, {METADATA: 23}, SAFE_DOWNGRADE)

    assert (safe.error_code, box.image.metadata_version) == (Error.NONE, 23)


@pytest.mark.parametrize(("level", "lost"), [(22, 23), (19, 20), (16, 17), (14, 15), (13, 14), (7, 8)])
def test_what_an_older_level_loses_is_named_from_the_newest_level_too(level: int, lost: int) -> None:
    box = fresh()
    update(box, {METADATA: 29}, UPGRADE)

    refused = update(box, {METADATA: level, ELR: 0}, SAFE_DOWNGRADE)

    assert refused.error_code is Error.INVALID_UPDATE_VERSION
    assert f"loses what level {lost} brought" in (refused.error_message or "")
    assert box.image.metadata_version == 29
    assert update(box, {METADATA: level, ELR: 0}, UNSAFE_DOWNGRADE).error_code is Error.NONE
    assert box.image.metadata_version == level


def test_a_new_cluster_begins_where_software_of_release_4_0_can_join() -> None:
    assert fresh().image.metadata_version == 25
    assert SUPPORTED[METADATA] == FeatureRange(7, 30)


def test_a_broker_of_release_4_0_holds_up_the_levels_of_newer_ones() -> None:
    box = Box().features().broker(1).broker(2, features=SUPPORTED | {METADATA: FeatureRange(7, 25)}).activate()

    answer = update(box, {METADATA: 26}, UPGRADE)

    assert answer.error_code is Error.INVALID_UPDATE_VERSION
    assert "Broker 2 does not support level 26 of metadata.version" in (answer.error_message or "")
    assert box.image.metadata_version == 25


def test_levels_of_one_request_are_measured_against_each_other() -> None:
    """Lowering metadata.version needs ELR off; the same request may turn it off, in whatever order it says so."""
    box = fresh()
    assert update(box, {METADATA: 21}, UNSAFE_DOWNGRADE).error_code is Error.INVALID_UPDATE_VERSION

    down = update(box, RELEASE_3_9, UNSAFE_DOWNGRADE)
    up = update(box, RELEASE_4_0 | {ELR: 1}, UPGRADE)

    assert (down.error_code, up.error_code) == (Error.NONE, Error.NONE)
    assert box.image.features == RELEASE_4_0 | {ELR: 1}


@pytest.mark.parametrize(
    ("levels", "kind", "words"),
    [
        pytest.param({METADATA: 31}, UPGRADE, "not supported by the controllers", id="beyond what is supported"),
        pytest.param({METADATA: 0}, UNSAFE_DOWNGRADE, "not supported", id="no metadata version"),
        pytest.param({"share.version": 1}, UPGRADE, "not supported by the controllers", id="unknown feature"),
        pytest.param({METADATA: 22}, SAFE_DOWNGRADE, "loses what level 23 brought", id="safe, but loses metadata"),
        pytest.param({METADATA: 24}, UPGRADE, "with an upgrade request", id="down by an upgrade"),
        pytest.param({KRAFT: 0}, UNSAFE_DOWNGRADE, "cannot go back", id="the voters are in the log"),
        pytest.param({TRANSACTION: 1}, 7, "Upgrade type 7 is unknown", id="unknown kind"),
        pytest.param({TRANSACTION: 1, METADATA: 31}, SAFE_DOWNGRADE, "not supported", id="all or nothing"),
    ],
)
def test_what_is_refused_changes_nothing(levels: dict[str, int], kind: int, words: str) -> None:
    box = fresh()
    before = dict(box.image.features)

    answer = update(box, levels, kind)

    assert answer.error_code is Error.INVALID_UPDATE_VERSION
    assert words in (answer.error_message or "")
    assert box.image.features == before
    assert box.records == []


def test_a_downgrade_that_loses_nothing_is_safe() -> None:
    box = fresh()

    assert update(box, {METADATA: 23}, SAFE_DOWNGRADE).error_code is Error.NONE
    assert box.image.metadata_version == 23


def test_raising_is_no_downgrade() -> None:
    box = fresh()
    update(box, {TRANSACTION: 1}, SAFE_DOWNGRADE)

    assert update(box, {TRANSACTION: 2}, SAFE_DOWNGRADE).error_code is Error.INVALID_UPDATE_VERSION


def test_a_feature_named_twice_is_refused() -> None:
    box = fresh()
    twice = [uf.FeatureUpdateKey(feature=TRANSACTION, max_version_level=level, upgrade_type=2) for level in (0, 1)]

    assert box.send(uf.UpdateFeaturesRequest(feature_updates=twice)).error_code is Error.INVALID_REQUEST


def test_a_trial_run_says_what_would_be_and_changes_nothing() -> None:
    box = fresh()

    answer = update(box, {TRANSACTION: 0}, SAFE_DOWNGRADE, validate_only=True)

    assert (answer.error_code, box.records) == (Error.NONE, [])
    assert box.image.features[TRANSACTION] == 2


def test_every_broker_has_to_support_a_level_fenced_ones_too() -> None:
    box = Box().features().broker(1).broker(2, fenced=True, features=SUPPORTED | {GROUP: FeatureRange(0, 0)})
    box.topic(partition({"replicas": [1, 2]})).activate()

    answer = update(box, {GROUP: 1}, UPGRADE)

    assert "Broker 2 does not support level 1 of group.version" in (answer.error_message or "")
    assert box.image.brokers[NodeId(2)].fenced
