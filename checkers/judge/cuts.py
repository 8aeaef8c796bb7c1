"""The harness's own cuts, beside the faults of the plan.

After the last fault a simulation cuts off all but a core, and asks the core for progress (`harness/liveness.py`). That is no fault of the
plan, so it has no row in `faults`; it is a phase that names whom it cut off, and hinders them as `isolate` would.
"""

from typing import Final

import msgspec
import pyarrow as pa

from tribunal.results.rows import CUT_OFF, Fault, Phase, typed

NO_INDEX: Final = -1  # of no fault of the plan


def with_cuts(faults: pa.Table, phases: pa.Table) -> pa.Table:
    """Return the rows of `faults`, and behind them one for each time in which the harness itself had cut nodes off: those nodes, and no others."""
    cuts = [msgspec.to_builtins(_fault(one)) for one in typed(phases, Phase) if one.cut_off]
    return pa.concat_tables([faults, pa.Table.from_pylist(cuts, schema=faults.schema)]) if cuts else faults


def _fault(phase: Phase) -> Fault:
    return Fault(
        index=NO_INDEX,
        kind=CUT_OFF,
        resolved_target=f"nodes {', '.join(map(str, phase.cut_off))}",
        planned_ns=phase.start_ns,
        injected_ns=phase.start_ns,
        healed_ns=phase.end_ns,
        took_effect=True,
        healed=phase.end_ns is not None,
        losses=(),
    )
