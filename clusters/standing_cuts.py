"""How many cuts, or shapes, stand on each link: faults overlap, and a link is as it was when the last of those who hindered it has healed."""

from collections.abc import Iterable

from tribunal.clusters.api import Link


class StandingCuts:
    """The cuts of one cluster's links. Between cuts of different modes the newest one is in effect until the last is undone."""

    def __init__(self) -> None:
        self._counts: dict[Link, int] = {}

    def add(self, links: Iterable[Link]) -> None:
        """One cut more stands on each of these links."""
        for link in dict.fromkeys(links):
            self._counts[link] = self._counts.get(link, 0) + 1

    def undo(self, links: Iterable[Link]) -> list[Link]:
        """One cut less stands on each of these links; return those on which none is left."""
        free: list[Link] = []
        for link in dict.fromkeys(links):
            left = self._counts.pop(link, 1) - 1
            if left:
                self._counts[link] = left
            else:
                free.append(link)
        return free

    def stands(self, link: Link) -> bool:
        """Return whether somebody cuts this link."""
        return link in self._counts

    def clear(self) -> None:
        """Forget all cuts."""
        self._counts.clear()
