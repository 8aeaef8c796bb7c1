"""Family epoch_cache_walk: the leader epoch cache under sequences of operations (SPEC 3.8)."""

from typing import Any

import pytest

from tests.cases.cases import load, only
from tests.cases.epochs import a_cache, perform


@pytest.mark.parametrize("case", load("epoch_cache_walk"))
def test_epoch_cache_walk(case: dict[str, Any]) -> None:
    cache = a_cache(case["given"])
    operations = only(case["when"], {"ops"}, "when")["ops"]
    expected = only(case["then"], {"after"}, "then")["after"]

    found = [perform(cache, operation) for operation in operations]

    assert len(found) == len(expected)
    for step, (after, then) in enumerate(zip(found, expected, strict=True)):
        only(then, {"entries", "result"}, f"after {step}")
        assert {key: after[key] for key in then} == then, f"step {step}: {operations[step]}"
