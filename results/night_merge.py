"""Several accounts of one night made into one: its shards, or its part before it was killed and its part after."""

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Final

from msgspec.structs import replace

from tribunal.results.night import GRAVITY, WHOLE, FoundTonight, Guided, Night, NightState, Swept, bound_of, least_runs
from tribunal.results.sensitivity import Sensitivity, added

EARLIEST: Final = (NightState.FAILED, NightState.INTERRUPTED, NightState.RUNNING, NightState.ENDED)
MOST_SEEDS: Final = 5


def continued(before: Night, after: Night) -> Night:
    """Return a night that was killed and went on: what it is now is what its second part is."""
    whole = _added([before, after])
    whole.began, whole.shard, whole.budget_s = before.began, before.shard, before.budget_s
    whole.state, whole.under_way = after.state, after.under_way
    whole.done = [*before.done, *after.done]
    whole.seconds = round(before.seconds + after.seconds, 1)
    whole.errors = list(dict.fromkeys([*before.errors, *after.errors]))
    return whole


def of_shards(shards: Sequence[Night]) -> Night:
    """Return the night that shards are parts of; one that is missing or did not end is said and keeps it from being green.

    ValueError when they are not of one night: another name, commit or first seed, or one shard twice.
    """
    first = shards[0]
    for other in shards[1:]:
        if (other.name, other.commit, other.first_seed) != (first.name, first.commit, first.first_seed):
            again = (other.name, other.commit) == (first.name, first.commit)
            hint = "; shards may begin on both sides of midnight (UTC): give all the same --first-seed" if again else ""
            raise ValueError(
                f"not of one night: {first.name} of {first.commit[:12]}, seeds from {first.first_seed}, and {other.name} of "
                f"{other.commit[:12]}, seeds from {other.first_seed}{hint}"
            )
    count = int(first.shard.partition("/")[2])
    numbers = [int(one.shard.partition("/")[0]) for one in shards]
    if len(set(numbers)) < len(numbers) or any(not one.shard.endswith(f"/{count}") for one in shards):
        raise ValueError(f"not the shards of one night: {', '.join(one.shard for one in shards)}")
    whole = _added(shards)
    whole.shard = WHOLE
    whole.state = min((one.state for one in shards), key=EARLIEST.index)
    whole.under_way = ", ".join(one.under_way for one in shards if one.under_way)
    whole.done = [part for part in first.done if all(part in one.done for one in shards)]
    whole.seconds = max(one.seconds for one in shards)
    whole.least_runs = 0 if not first.least_runs else least_runs(first.bound)
    whole.errors = [f"shard {one.shard}: {line}" for one in shards for line in one.errors]
    whole.errors += [
        f"shard {one.shard} did not end: {one.state.value} at {one.under_way}" for one in shards if not one.has_ended
    ]
    whole.errors += [f"shard {number}/{count} is missing" for number in range(1, count + 1) if number not in numbers]
    return whole


def _added(parts: Sequence[Night]) -> Night:
    first = parts[0]
    probes: Counter[str] = Counter()
    for part in parts:
        probes.update(part.probes)
    cold = [one.guards_cold for one in parts if one.guards_known]
    return replace(
        first,
        part_seconds=_longest(parts),
        past=[one for part in parts for one in part.past],
        canaries=[one for part in parts for one in part.canaries],
        once=[one for part in parts for one in part.once],
        swept=_swept(one for part in parts for one in part.swept),
        guided=_guided(one for part in parts for one in part.guided),
        found=merged_findings(one for part in parts for one in part.found),
        confirmations=[one for part in parts for one in part.confirmations],
        probes=dict(sorted(probes.items())),
        cold=[name for name in dict.fromkeys(one for part in parts for one in part.cold) if not probes[name]],
        sensitivity=Sensitivity(
            runs=[one for part in parts for one in part.sensitivity.runs],
            figures=added(part.sensitivity.figures for part in parts),
            misses=[one for part in parts for one in part.sensitivity.misses],
        ),
        guards_known=max(part.guards_known for part in parts),
        guards_cold=[name for name in cold[0] if all(name in other for other in cold)] if cold else [],
        left_out=list(
            dict.fromkeys(one for part in parts for one in part.left_out)
        ),  # each says that a quarantine is over
        fallen=[],
        trend={},
        before=max((part.before for part in parts), key=len),
    )


def _longest(parts: Sequence[Night]) -> dict[str, float]:
    """Return how long each part took: shards run beside each other, and a part that a killed night began is done anew."""
    names = dict.fromkeys(name for part in parts for name in part.part_seconds)
    return {name: max(part.part_seconds.get(name, 0.0) for part in parts) for name in names}


def _swept(parts: Iterable[Swept]) -> list[Swept]:
    found: dict[str, Swept] = {}
    for one in parts:
        whole = found.setdefault(one.scenario, Swept(scenario=one.scenario))
        whole.runs += one.runs
        whole.begun += one.begun
        whole.seconds = round(whole.seconds + one.seconds, 1)
        whole.simulated_ms += one.simulated_ms
        whole.verdicts = dict(Counter(whole.verdicts) + Counter(one.verdicts))
        whole.reasons = dict(Counter(whole.reasons) + Counter(one.reasons))
        whole.bound_95 = bound_of(whole.verdicts)
    return list(found.values())


def _guided(parts: Iterable[Guided]) -> list[Guided]:
    found: dict[str, Guided] = {}
    for one in parts:
        had = found.get(one.mode, Guided(mode=one.mode, scenarios=[]))
        verdicts = dict(Counter(had.verdicts) + Counter(one.verdicts))
        found[one.mode] = Guided(
            mode=one.mode,
            scenarios=list(dict.fromkeys([*had.scenarios, *one.scenarios])),
            runs=had.runs + one.runs,
            new=had.new + one.new,
            states=max(had.states, one.states),
            seconds=round(had.seconds + one.seconds, 1),
            cpu_s=round(had.cpu_s + one.cpu_s, 1),
            verdicts=verdicts,
            bound_95=bound_of(verdicts),
        )
    return list(found.values())


def merged_findings(parts: Iterable[FoundTonight]) -> list[FoundTonight]:
    """Return findings with one row a signature, the most frequent first."""
    found: dict[str, FoundTonight] = {}
    for one in parts:
        had = found.get(one.signature)
        found[one.signature] = one if had is None else _both(had, one)
    return sorted(found.values(), key=lambda one: -one.count)


def _both(one: FoundTonight, other: FoundTonight) -> FoundTonight:
    worst = min(one, other, key=lambda found: GRAVITY.index(found.state))
    # Where one shard saw what somebody has in hand and another what nobody knows of, it is said where the latter was.
    telling = [found for found in (one, other) if found.state == worst.state]
    return replace(
        worst,
        count=one.count + other.count,
        scenarios=sorted({name for found in telling for name in found.scenarios}),
        seeds=sorted({seed for found in telling for seed in found.seeds})[:MOST_SEEDS],
        run_dirs=[*one.run_dirs, *other.run_dirs],
        since=min(one.since, other.since),
    )
