"""The worked rows of docs/verdicts.md once more, as small recordings that the whole judge sees: metadata, faults, watermarks, a final read."""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.cases.cases import load
from tests.checkers.recorded import MS, Run
from tests.checkers.test_lost_writes import found

OF_RECORD = {"lost", "lost_after_read"}
OF_END = {"shown_end_lost"}  # all that can be said of a record that nobody acknowledged or read
STEP = 1000  # beyond the lag of observation


class Replayed(Run):
    """A run made of a row's events, a second each."""

    def __init__(self, run_dir: Path, given: dict[str, Any]) -> None:
        super().__init__(
            run_dir,
            **{
                "min.insync.replicas": given["min_isr"],
                "eligible.leader.replicas.enable": given["elr"],
                "unclean.leader.election.enable": given["unclean"],
                "unclean.recovery.manager.enabled": given["recovery"] != "off",
                "unclean.recovery.strategy": given["recovery"].replace("off", "none"),
            },
        )
        self.at = 0
        self.isr: list[int] = [1, 2, 3]
        self.value = 0
        self.epoch = 0
        self.log_start = 0
        self.index = 0
        for node in (1, 2, 3):
            self.node(node, "start", 0)
        if given.get("rf") == 2:
            self.change(0, replicas=[1, 2], isr=[1, 2])

    def set_isr(self, isr: list[int], **more: Any) -> None:
        self.isr = isr
        self.change(self.at, isr=isr, **more)

    def add(self, event: dict[str, Any]) -> None:
        self.at += STEP
        match event:
            case {"ack": acks, "isr": isr, "leader": leader}:
                self.set_isr(isr, leader=leader)
                self.epoch += 1
                self.at += STEP
                self.value = self.send(0, self.at, acks={"all": -1}.get(acks, acks))
            case {"leader": leader, "how": how, "empty": empty}:
                self.elect(leader, how, empty=empty)
            case {"hwm": isr}:
                self.set_isr(isr)
                self.at += STEP
                self.watermark(1, self.at, epoch=self.epoch, observer="node-1")
            case {"read": True}:
                self.read({0: self.value}, self.at, epoch=self.epoch)
            case {"unclean": node}:
                self.node(node, "killed", self.at)
                self.registered(node, self.at + 100, previous=-1)
            case {"lost": node}:
                self.node(node, "killed", self.at)
                self.lose(node)
                self.registered(node, self.at + 100, previous=-1)
            case {"cut_live": node}:
                self.lose(node)
            case {"whole": node}:
                self.set_isr([other for other in self.isr if other != node])
                self.set_isr([*self.isr, node])
            case {"joins": node}:
                self.set_isr([*self.isr, node])
            case {"added_anew": node}:
                self.remove_and_add(node)
            case {"log_start": True}:
                self.log_start = 1
                order = {"api": "delete_records", "topic": "t", "partition": 0, "log_offset": 1, "outcome": "ok"}
                self.recorder.row("admin", **order, invoke_ns=self.at * MS, complete_ns=self.at * MS + 1)
            case _:
                assert set(event) == {"clean"}  # a clean stop loses nothing and spends nothing

    def remove_and_add(self, node: int) -> None:
        """Let a node be no replica for a second, and say meanwhile that it has carried that out."""
        said = json.dumps({"metadata_offset": self.metadata_offset})
        self.set_isr([other for other in self.isr if other != node], replicas=[n for n in (1, 2, 3) if n != node])
        heartbeat = {"from": node, "to": 101, "api_key": 63, "direction": "request", "fate": "delivered"}
        self.recorder.row("requests", **heartbeat, summary=said, at_ns=(self.at + 1) * MS)
        self.at += STEP
        self.change(self.at, replicas=[1, 2, 3])

    def lose(self, node: int) -> None:
        self.index += 1
        self.fault("cut", self.at + 10, node=node, lost_from=0, index=self.index)

    def elect(self, leader: int, how: str, *, empty: bool) -> None:
        if how == "clean":
            self.set_isr(self.isr, leader=leader)
            self.epoch += 1
            return
        if empty:
            known = self.isr if how == "recovery" else [leader]
            self.set_isr([], leader=-1, eligible_leader_replicas=[], last_known_elr=known)
            self.at += 10
        self.set_isr([leader], leader=leader, leader_recovery_state=1, eligible_leader_replicas=[])
        self.epoch += 1

    def end(self) -> None:
        """Read to the end: the record is nowhere."""
        self.at += STEP
        end = self.log_start
        self.poll(99, "final", end, 0, self.at, high_watermark=end, log_start_offset=self.log_start)


@pytest.mark.parametrize("case", load("guarantees", more_keys=frozenset({"events", "rule", "violation"})))
def test_a_recording_of_the_row_is_judged_as_the_row(case: dict[str, Any], tmp_path: Path) -> None:
    story = Replayed(tmp_path / "run", case["given"])
    for event in case["events"]:
        story.add(event)
    story.end()

    rows = found(story.finish(mode=case["given"].get("mode", "kraft")))

    kinds = OF_RECORD if OF_RECORD & {kind for kind, *_ in rows} else OF_END
    judged = {(severity, rule) for kind, severity, rule, _ in rows if kind in kinds}
    permitted = {("permitted", case.get("rule"))}
    assert judged in (({("violation", "")},) if case["then"] == "must_survive" else (permitted, set()))
    assert "violation" not in case or case["violation"] in {kind for kind, *_ in rows}
