"""What a kind of cluster cannot do is refused when the plan is made, with the reason."""

import pytest

from clusters import containers, processes
from clusters import simulated as simulated_kind
from harness.catalog import faults
from harness.plan import refusal


def test_a_fault_that_a_kind_cannot_do_at_all_is_refused():
    assert refusal(faults()["mount-full"], simulated_kind) == "mount_disk"


def test_a_fault_that_this_machine_cannot_do_is_refused_with_the_reason(monkeypatch):
    monkeypatch.setattr(processes, "way_in", lambda: "no network namespaces: forbidden")
    monkeypatch.setattr(containers.os, "geteuid", lambda: 1000)

    assert refusal(faults()["mount-full"], processes) == "mount_disk (no network namespaces: forbidden)"
    assert refusal(faults()["mount-full"], containers) == "mount_disk (mounting into containers takes root)"
    assert refusal(faults()["kill"], processes) == ""


@pytest.mark.parametrize("kind", [processes, containers], ids=["processes", "containers"])
def test_a_fault_that_works_is_not_refused(kind):
    assert refusal(faults()["isolate"], kind) == ""
