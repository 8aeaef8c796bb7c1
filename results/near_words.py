"""Which word may have been meant by one that nothing has: how near is near enough, and how it is said, for everything but replog's own settings."""

import difflib
from collections.abc import Iterable
from typing import Final

NEAR: Final = 0.6  # of difflib's ratio: 1 is the same word
MOST_NEAR: Final = 3
MOST_NAMED: Final = 24  # in a line


def near(word: str, known: Iterable[str]) -> list[str]:
    """Return the words that may have been meant, the nearest first; capital letters and brackets around a word make no difference."""
    bare = {_bare(one): one for one in sorted(known, reverse=True)}  # of two alike the first one
    return [bare[one] for one in difflib.get_close_matches(_bare(word), bare, n=MOST_NEAR, cutoff=NEAR)]


def hint(word: str, known: Iterable[str], otherwise: str | None = None) -> str:
    """Ask whether one of the near words was meant; else say `otherwise`, or which words there are."""
    names = sorted(set(known))
    if found := near(word, names):
        return f"did you mean {' or '.join(found)}?"
    if otherwise is not None:
        return otherwise
    return f"known: {', '.join(names[:MOST_NAMED]) or 'none'}{', ...' if len(names) > MOST_NAMED else ''}"


def _bare(word: str) -> str:
    return word.strip("{}").casefold()
