"""Family hwm: the pure rule of SPEC 3.5."""

from typing import Any

import pytest

from replog.broker.watermark import effective_min_isr, high_watermark
from tests.cases.cases import load, only

GIVEN = {"leader", "replicas", "isr", "pending_add", "caught_up_eligible", "min_isr", "hwm"}


@pytest.mark.parametrize("case", load("hwm"))
def test_high_watermark(case: dict[str, Any]) -> None:
    given = only(case["given"], GIVEN, "given")
    log_end_offsets = dict(only(case["when"], {"leo"}, "when")["leo"])
    then = only(case["then"], {"hwm"}, "then")

    found = high_watermark(
        current=given["hwm"],
        leader_log_end_offset=log_end_offsets.pop(given["leader"]),
        follower_log_end_offsets=log_end_offsets,
        isr=given["isr"],
        maximal_isr=[*given["isr"], *given["pending_add"]],
        waiters=given["caught_up_eligible"],
        min_isr=effective_min_isr(given["min_isr"], len(given["replicas"])),
    )

    assert found == then["hwm"]
