"""Consistency models, which one is stronger than which, and which anomaly rules out which.

Names are the common ones (serializable, snapshot-isolation, ...). A model forbids an anomaly if the anomaly rules
out the model itself or a weaker one. Sources: Adya, "Weak Consistency" (1999); Bailis et al., "Highly Available
Transactions" (2013); Cerone et al. (2015); Alvaro and Kingsbury, "Elle" (2020).
"""

from collections.abc import Iterable
from functools import cache
from typing import Final

from tribunal.checkers.graphs.findings import Findings

WEAKER: Final[dict[str, tuple[str, ...]]] = {
    "strong-serializable": (
        "serializable",
        "snapshot-isolation",
        "strong-session-serializable",
        "strong-snapshot-isolation",
    ),
    "strong-session-serializable": ("serializable", "strong-session-snapshot-isolation"),
    "strong-snapshot-isolation": ("strong-read-committed", "strong-session-snapshot-isolation"),
    "strong-session-snapshot-isolation": ("snapshot-isolation", "strong-session-read-committed"),
    "serializable": ("repeatable-read", "update-serializable", "snapshot-isolation"),
    "snapshot-isolation": (
        "forward-consistent-view",
        "monotonic-snapshot-read",
        "monotonic-atomic-view",
        "parallel-snapshot-isolation",
        "prefix",
    ),
    "repeatable-read": ("cursor-stability", "monotonic-atomic-view"),
    "update-serializable": ("forward-consistent-view",),
    "forward-consistent-view": ("consistent-view",),
    "consistent-view": ("monotonic-view", "cursor-stability"),
    "parallel-snapshot-isolation": ("causal-cerone", "update-atomic"),
    "prefix": ("causal-cerone",),
    "causal-cerone": ("read-atomic",),
    "update-atomic": ("read-atomic",),
    "read-atomic": ("monotonic-atomic-view",),
    "monotonic-atomic-view": ("read-committed",),
    "monotonic-snapshot-read": ("read-committed",),
    "monotonic-view": ("read-committed",),
    "cursor-stability": ("read-committed",),
    "strong-read-committed": ("strong-read-uncommitted", "strong-session-read-committed"),
    "strong-session-read-committed": ("read-committed", "strong-session-read-uncommitted"),
    "strong-read-uncommitted": ("strong-session-read-uncommitted",),
    "strong-session-read-uncommitted": ("read-uncommitted",),
    "read-committed": ("read-uncommitted",),
    "read-uncommitted": (),
}
ALIASES: Final = {"strict-serializable": "strong-serializable"}

RULES_OUT: Final[dict[str, tuple[str, ...]]] = {
    "G0": ("read-uncommitted",),
    "G0-process": ("strong-session-read-uncommitted",),
    "G0-realtime": ("strong-read-uncommitted",),
    "duplicate-elements": ("read-uncommitted",),
    "cyclic-versions": ("read-uncommitted",),
    "phantom": ("read-uncommitted",),
    "G1a": ("read-committed",),
    "G1b": ("read-committed",),
    "G1c": ("read-committed",),
    "G1c-process": ("strong-session-read-committed",),
    "G1c-realtime": ("strong-read-committed",),
    "incompatible-order": ("read-committed",),
    "dirty-update": ("read-committed",),
    "future-read": ("read-committed",),
    "internal": ("read-atomic",),
    "lost-update": ("cursor-stability", "update-atomic"),
    "G-single-item": ("consistent-view", "repeatable-read"),
    "G-single-item-process": ("strong-session-snapshot-isolation",),
    "G-single-item-realtime": ("strong-snapshot-isolation",),
    "G-nonadjacent-item": ("repeatable-read", "snapshot-isolation"),
    "G-nonadjacent-item-process": ("strong-session-snapshot-isolation",),
    "G-nonadjacent-item-realtime": ("strong-snapshot-isolation",),
    "G2-item": ("repeatable-read",),
    "G2-item-process": ("strong-session-serializable",),
    "G2-item-realtime": ("strong-serializable",),
}

FAMILIES: Final = (("G0", "G1c"), ("G-single-item", "G-nonadjacent-item", "G2-item"))
LEVELS: Final = ("", "-process", "-realtime")


@cache
def weaker(model: str) -> frozenset[str]:
    """Return the model and all that are weaker."""
    name = ALIASES.get(model, model)
    if name not in WEAKER:
        raise ValueError(f"unknown consistency model {model!r}; known: {', '.join(sorted({*WEAKER, *ALIASES}))}")
    return frozenset({name}).union(*(weaker(below) for below in WEAKER[name]))


@cache
def stronger(model: str) -> frozenset[str]:
    """Return the model and all that are stronger."""
    return frozenset(name for name in WEAKER if model in weaker(name))


def forbids(model: str, anomaly: str) -> bool:
    """Return whether a history that shows this anomaly cannot satisfy the model."""
    return any(name in weaker(model) for name in RULES_OUT.get(anomaly, ()))


def suffixes_of(model: str) -> tuple[str, ...]:
    """Return the kinds of cycle to look for: with process or realtime edges only if the model forbids them.

    Real time covers a process' own order, so that a model that forbids both is searched with real time alone.
    """
    for suffix in ("-realtime", "-process"):
        if any(forbids(model, name + suffix) for name in ("G0", "G1c", "G2-item")):
            return ("", suffix)
    return ("",)


def implied_by(anomaly: str, found: set[str]) -> bool:
    """Return whether one of the found anomalies of a component already says what this one would."""
    for family in FAMILIES:
        for place, base in enumerate(family):
            for level, suffix in enumerate(LEVELS):
                if base + suffix == anomaly:
                    return any(f + s in found for f in family[: place + 1] for s in LEVELS[: level + 1])
    return False


def forbidden(found: Findings, model: str) -> Findings:
    """Keep what the model forbids."""
    for anomaly in list(found.counts):
        if not forbids(model, anomaly):
            del found.counts[anomaly], found.witnesses[anomaly]
    return found


def ruled_out(anomalies: Iterable[str]) -> tuple[list[str], list[str]]:
    """Return the weakest models that the anomalies rule out, and all stronger ones beside them, sorted."""
    direct = {model for anomaly in anomalies for model in RULES_OUT.get(anomaly, ())}
    out = frozenset().union(*(stronger(model) for model in direct)) if direct else frozenset()
    weakest = {model for model in out if not (weaker(model) - {model}) & out}
    return sorted(weakest), sorted(out - weakest)
