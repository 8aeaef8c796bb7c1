"""Family epoch_cache: the leader epoch cache, one operation (SPEC 3.8)."""

from typing import Any

import pytest

from tests.cases.cases import load, only
from tests.cases.epochs import a_cache, perform


@pytest.mark.parametrize("case", load("epoch_cache"))
def test_epoch_cache(case: dict[str, Any]) -> None:
    cache = a_cache(case["given"])
    then = only(case["then"], {"entries", "result"}, "then")

    after = perform(cache, case["when"])

    assert {key: after[key] for key in then} == then
