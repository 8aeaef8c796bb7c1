"""How likely a finding was from each moment of a run on, as it is kept beside the run and drawn."""

from pathlib import Path
from typing import Final

import msgspec

from tribunal.results.intervals import interval
from tribunal.results.unreadable import UNREADABLE
from tribunal.results.whole_files import put_json

FILE: Final = "likelihood.json"


class Moment(msgspec.Struct, frozen=True, kw_only=True):
    """So many runs went on from this virtual time with other chance and came to an answer; so many showed the finding."""

    at_ns: int
    runs: int
    shown: int

    @property
    def share(self) -> float:
        """The share that showed it; of none: 0."""
        return self.shown / self.runs if self.runs else 0.0

    @property
    def interval(self) -> tuple[float, float]:
        """The exact 95 % interval of that share."""
        return interval(self.shown, self.runs)


class Likelihood(msgspec.Struct, frozen=True, kw_only=True):
    """Moments in order of time; `each`: how many runs went on from each; `end_ns`: the run's virtual time at its end."""

    signature: str
    end_ns: int
    each: int
    moments: list[Moment]

    @property
    def sealed_ns(self) -> int | None:
        """Return the first moment from which every run showed the finding, there and from all later moments; None: none."""
        sealed = None
        for moment in reversed(self.moments):
            if moment.runs == 0 or moment.shown < moment.runs:
                break
            sealed = moment.at_ns
        return sealed


def read(run_dir: Path) -> Likelihood | None:
    """Return what was measured of a run; None: nothing, or nothing that can be read."""
    try:
        return msgspec.json.decode((run_dir / FILE).read_bytes(), type=Likelihood)
    except (OSError, *UNREADABLE):
        return None


def save(found: Likelihood, run_dir: Path) -> Path:
    """Write it beside a run; return the file."""
    return put_json(run_dir / FILE, found)
