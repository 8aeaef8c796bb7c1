"""Thin adapter: the worked rows of docs/verdicts.md against `tribunal.checkers.guarantees`."""

from collections.abc import Iterator
from typing import Any

import pytest

from tests.cases.cases import load, only
from tribunal.checkers.guarantees import (
    Acknowledged,
    BeganAnew,
    CutLive,
    Elected,
    Exposed,
    Fact,
    How,
    JoinedIsr,
    LogStartMoved,
    ProvenLoss,
    Settings,
    ShutDownUncleanly,
    WasRead,
    promise,
)

GIVEN = {"min_isr", "elr", "unclean", "recovery", "rf", "mode"}
EVENTS = {
    frozenset({"ack", "isr", "leader"}),
    frozenset({"leader", "how", "empty"}),
    *(
        frozenset({word})
        for word in ("hwm", "read", "unclean", "lost", "cut_live", "whole", "joins", "added_anew", "clean", "log_start")
    ),
}


def settings(given: dict[str, Any]) -> Settings:
    only(given, GIVEN, "given")
    return Settings(
        min_isr=given["min_isr"],
        replication_factor=given.get("rf", 3),
        elr=given["elr"],
        unclean=given["unclean"],
        recovery=given["recovery"],
        high_watermark_needs_min_isr=given.get("mode", "kraft") != "zookeeper",
    )


def facts(event: dict[str, Any]) -> Iterator[Fact]:
    assert frozenset(event) in EVENTS, f"unknown event {event}"
    match event:
        case {"ack": acks, "isr": isr, "leader": leader}:
            yield Acknowledged(acks={"all": -1}.get(acks, acks), isr=tuple(isr), leader=leader)
        case {"leader": leader, "how": how, "empty": empty}:
            yield Elected(leader=leader, how=How(how), empty=empty)
        case {"hwm": isr}:
            yield Exposed(tuple(isr))
        case {"read": True}:
            yield WasRead()
        case {"unclean": node}:
            yield ShutDownUncleanly(node)
        case {"lost": node}:
            yield ProvenLoss(node)
            yield ShutDownUncleanly(node)
        case {"cut_live": node}:
            yield CutLive(node)
        case {"whole": node} | {"joins": node}:
            yield JoinedIsr(node)
        case {"added_anew": node}:
            yield BeganAnew(node)
        case {"clean": _}:
            pass  # a clean stop loses nothing and spends nothing
        case {"log_start": True}:
            yield LogStartMoved()
        case _:
            raise AssertionError(event)


@pytest.mark.parametrize("case", load("guarantees", more_keys=frozenset({"events", "rule", "violation"})))
def test_guarantee(case: dict[str, Any]) -> None:
    answer = promise(settings(case["given"]), [fact for event in case["events"] for fact in facts(event)])

    assert ("must_survive" if answer.must_survive else "may_be_lost") == case["then"]
    assert answer.rule == case.get("rule")
    assert list(answer.violations) == ([case["violation"]] if "violation" in case else [])
