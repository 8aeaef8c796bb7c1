"""Which ranges of a hot partition are suspect, and which of them have to be judged together."""

from collections.abc import Iterable, Sequence


class Suspicions:
    """Which ranges are suspect, and which of them have to be judged together."""

    def __init__(self, suspect: Iterable[bool]) -> None:
        self.suspect = list(suspect)
        self._before = list(range(len(self.suspect)))

    def join(self, places: Sequence[int]) -> None:
        """These ranges are suspect, and judged together."""
        names = [self._named(place) for place in places]
        for place, name in zip(places, names, strict=True):
            self.suspect[place] = True
            self._before[name] = min(names)

    def components(self) -> list[list[int]]:
        """Return the places of each component, ascending."""
        found: dict[int, list[int]] = {}
        for place, is_suspect in enumerate(self.suspect):
            if is_suspect:
                found.setdefault(self._named(place), []).append(place)
        return list(found.values())

    def _named(self, place: int) -> int:
        while self._before[place] != place:
            self._before[place] = self._before[self._before[place]]
            place = self._before[place]
        return place
