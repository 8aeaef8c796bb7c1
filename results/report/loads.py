"""What was completed in each phase, and whether that was enough to be a test."""

from collections.abc import Mapping

import msgspec

from tribunal.results.report.promises import OUTCOMES
from tribunal.results.verdict import Conditions, PhaseLoad


class PhaseRow(msgspec.Struct, frozen=True, kw_only=True):
    """One acks level in a phase; `least`: how much of it had to be completed, None: nothing was asked of this phase."""

    load: PhaseLoad
    least: int | None

    @property
    def is_enough(self) -> bool:
        """Whether as much was completed as had to be."""
        return self.least is None or self.load.completed >= self.least


def phase_rows(test: Conditions) -> list[PhaseRow]:
    """Return the phases in which something was completed, or had to be."""
    rows = [PhaseRow(load=load, least=test.least_load.get(load.phase)) for load in test.load]
    return [row for row in rows if row.least is not None or any(_counts(row.load).values())]


def outcomes(test: Conditions) -> list[str]:
    """Return the outcomes that there were."""
    return [word for word in OUTCOMES if any(_counts(load)[word] for load in test.load)]


def _counts(load: PhaseLoad) -> Mapping[str, int]:
    return {"ok": load.ok, "sent": load.sent, "fail": load.fail, "info": load.info}
