"""Kafka's own integration tests, unchanged, against processes of replog (docs/kafka-tests.md)."""

from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.kafka_own.expected import CLASSES, EXCEPTIONS
from tests.kafka_own.running import Ended, Outcome, jars_of_tests, run
from tribunal.clusters.maven_jars import NoJars

QUICK = (
    "clients.admin.AutoTopicCreationTest",
    "clients.admin.DescribeProducersWithBrokerIdTest#testDescribeProducersFromFollower",
    "clients.admin.RackAwareAutoTopicCreationTest",
)
LIMIT_S = 1800.0

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(LIMIT_S + 60)]


@pytest.fixture(scope="module")
def jars() -> Path:
    try:
        return jars_of_tests()
    except NoJars as problem:
        pytest.skip(str(problem))


def unexpected(found: Sequence[Ended]) -> list[Ended]:
    """Return the tests that did not pass, look inside no broker, and are no named exception."""
    ends_badly = (Outcome.FAILED, Outcome.NOT_RUN)
    return [one for one in found if one.outcome in ends_badly and (one.of, one.test) not in EXCEPTIONS]


def test_some_of_kafkas_own_tests_pass(jars: Path) -> None:
    found = run(QUICK, jars, LIMIT_S)

    assert [one for one in found if one.outcome is not Outcome.PASSED] == []
    assert {one.of for one in found} == {name.partition("#")[0] for name in QUICK}


@pytest.mark.nightly
@pytest.mark.parametrize("name", CLASSES)
def test_kafkas_own_tests_pass_but_for_named_exceptions(jars: Path, name: str) -> None:
    found = run([name], jars, LIMIT_S)

    assert unexpected(found) == []
    passed = {(one.of, one.test) for one in found if one.outcome is Outcome.PASSED}
    failed = {(one.of, one.test) for one in found if one.outcome is not Outcome.PASSED}
    assert [one for one in EXCEPTIONS if one in passed - failed] == [], "an exception that is none any more"
