"""Family raft_vote_walk: one member, many Vote requests (SPEC 1.5)."""

from typing import Any

import pytest

from tests.cases.cases import load, only
from tests.cases.test_raft_vote import GIVEN, THEN, WHEN, after
from tests.cases.voters import a_member, outline, placed


@pytest.mark.parametrize("case", load("raft_vote_walk"))
def test_walk(case: dict[str, Any]) -> None:
    given = only(case["given"], GIVEN, "given")
    member = placed(a_member(given, outline(given)), given)

    requests = only(case["when"], {"requests"}, "when")["requests"]
    found = [after(member, only(request, WHEN, "request")) for request in requests]

    expected = [only(answer, THEN, "answer") for answer in only(case["then"], {"answers"}, "then")["answers"]]
    trimmed = [{key: one[key] for key in wanted} for one, wanted in zip(found, expected, strict=True)]
    assert trimmed == expected
