"""What the shell offers behind a Tab: names of scenarios, faults, mutants and so on, each with its line of help."""

from collections.abc import Callable, Iterator
from contextlib import suppress

Offer = Callable[[str], Iterator[tuple[str, str]]]


def named(kind: str) -> Offer:
    """Return what offers the names of one kind (a plural of `tribunal list`) that begin with what was typed."""

    def offer(incomplete: str) -> Iterator[tuple[str, str]]:
        from tribunal.harness.catalog import listing
        from tribunal.results.plugins import BadPlugin

        typed = incomplete.lower()
        with suppress(BadPlugin):  # the command itself reports it
            yield from ((name, about) for name, about in listing(kind).items() if name.lower().startswith(typed))

    return offer


def kinds(incomplete: str) -> Iterator[str]:
    """Offer what `tribunal list` can list."""
    from tribunal.harness.catalog import KINDS

    yield from (kind for kind in KINDS if kind.startswith(incomplete.lower()))
