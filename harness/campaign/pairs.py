"""Tables whose pairs of values all come about: rows are chosen so that each has as many pairs as can be that did not (pairwise covering).

A factor's values may be named several times: one that is named twice comes twice as often where nothing else decides.
"""

from collections.abc import Iterator, Mapping, Sequence
from itertools import combinations
from random import Random
from typing import Final

Row = Mapping[str, str]  # one value of each factor
Value = tuple[str, str]  # a factor and a value of it
CANDIDATES: Final = 24  # among which the next row is chosen
TRIES: Final = 3  # of a pair that did not come about


class Pairs:
    """The factors of a table, which of their values go together, and which pairs came about.

    tries:       how often each pair of values was tried, by its words; crossed: those that came about.
    candidates:  among how many drawn rows the next one is chosen.
    """

    def __init__(
        self,
        factors: Mapping[str, Sequence[str]],
        tries: dict[str, int],
        crossed: dict[str, None],
        *,
        candidates: int = CANDIDATES,
    ) -> None:
        self.tries, self.crossed = tries, crossed
        self._candidates = candidates
        self._factors = factors
        self._of_pair = dict(self._all_pairs())
        self.pairs = list(self._of_pair)

    def is_left(self) -> bool:
        """Return whether a pair is worth another try."""
        return any(one not in self.crossed and self.tries.get(one, 0) < TRIES for one in self.pairs)

    def row(self, random: Random, given: Row) -> Row:
        """Choose the best of some drawn rows, each with a pair that is left: with the most such pairs, those tried before counting less."""
        left = [pair for pair in self.pairs if pair not in self.crossed and self.tries.get(pair, 0) < TRIES]
        drawn = [
            row
            for pair in random.choices(left or self.pairs, k=self._candidates)
            if self._fits(row := self._drawn(random, {**self._of_pair[pair], **given}))
        ]
        while not drawn:  # none of these pairs goes with what is given
            row = self._drawn(random, given)
            drawn = [row] if self._fits(row) else []
        best = max(drawn, key=self._worth)
        for one in pairs_of(best):
            self.tries[one] = self.tries.get(one, 0) + 1
        return best

    def took(self, row: Row) -> None:
        """Take note that a row came about."""
        self.crossed.update(dict.fromkeys(pairs_of(row)))

    def is_apart(self, one: Value, other: Value) -> bool:
        """Return whether two values cannot go together."""
        return False

    def _fits(self, row: Row) -> bool:
        return not any(self.is_apart(*one) for one in combinations(row.items(), 2))

    def _drawn(self, random: Random, given: Row) -> Row:
        return {name: given.get(name) or random.choice(values) for name, values in self._factors.items()}

    def _worth(self, row: Row) -> float:
        return sum(1 / (1 + self.tries.get(pair, 0)) ** 2 for pair in pairs_of(row) if pair not in self.crossed)

    def _all_pairs(self) -> Iterator[tuple[str, Row]]:
        for (one, values), (other, others) in combinations(self._factors.items(), 2):
            for value in dict.fromkeys(values):
                for second in dict.fromkeys(others):
                    if not self.is_apart((one, value), (other, second)):
                        yield _pair((one, value), (other, second)), {one: value, other: second}


def pairs_of(row: Row) -> list[str]:
    """Return the words of all pairs of a row."""
    return [_pair(one, other) for one, other in combinations(row.items(), 2)]


def _pair(one: Value, other: Value) -> str:
    return f"{one[0]}={one[1]} | {other[0]}={other[1]}"
