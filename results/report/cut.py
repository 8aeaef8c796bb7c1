"""A page of which the timeline is drawn in a window: what lies outside is left out, what reaches in is kept."""

from collections.abc import Sequence

from msgspec.structs import replace

from tribunal.results.report.model import Page, Series
from tribunal.results.report.moments import Change
from tribunal.results.report.participants import Lanes
from tribunal.results.report.window import Window


def cut(page: Page) -> Page:
    """Return the page with what its window shows; as it is without one."""
    window = page.window
    if window is None:
        return page
    return replace(
        page,
        phases=[one for one in page.phases if one.start_ns is not None and _meets(window, one.start_ns, one.end_ns)],
        faults=[
            one for one in page.faults if one.injected_ns is not None and _meets(window, one.injected_ns, one.healed_ns)
        ],
        partitions={name: _changes(window, changes) for name, changes in page.partitions.items()},
        watermarks={
            name: [part for one in series if (part := _series(window, one)).at_ns]
            for name, series in page.watermarks.items()
        },
        participants=replace(
            page.participants,
            transactions=_lanes(window, page.participants.transactions),
            groups=_lanes(window, page.participants.groups),
            quorum=_lanes(window, page.participants.quorum),
            broker_epochs=_lanes(window, page.participants.broker_epochs),
        ),
    )


def _meets(window: Window, start_ns: int, end_ns: int | None) -> bool:
    return start_ns <= window.end_ns and (end_ns is None or end_ns >= window.start_ns)


def _first(window: Window, moments: Sequence[int]) -> int:
    """Return the place of the last that is not behind the window's begin: what it says holds there."""
    return max((place for place, at_ns in enumerate(moments) if at_ns <= window.start_ns), default=0)


def _changes(window: Window, changes: list[Change]) -> list[Change]:
    first = _first(window, [one.at_ns for one in changes])
    return [one for one in changes[first:] if one.at_ns <= window.end_ns]


def _series(window: Window, series: Series) -> Series:
    first = _first(window, series.at_ns)
    end = first + sum(1 for at_ns in series.at_ns[first:] if at_ns <= window.end_ns)
    # A step back at the first place was seen before the window began.
    back = [place - first for place in series.back if first < place < end]
    alone = [place - first for place in series.alone if first <= place < end]
    return replace(series, at_ns=series.at_ns[first:end], offsets=series.offsets[first:end], back=back, alone=alone)


def _lanes(window: Window, lanes: Lanes | None) -> Lanes | None:
    if lanes is None:
        return None
    found = [one for one in lanes.stretches if _meets(window, one.start_ns, one.end_ns)]
    return Lanes(found, lanes.left_out) if found else None
