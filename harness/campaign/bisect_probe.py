"""One commit's answer for `tribunal bisect`: whether the code that the interpreter sees shows a signature under a plan.

Exit codes as `git bisect run` reads them: 0 it does not, 1 it does, 125 this commit cannot be asked. The file itself is this
version's, whatever commit is asked, and so is the reading of signatures, which were sentences once; what runs the plan is the
commit's own, under the name that it has there.
"""

import importlib
import sys
import tempfile
import traceback
from collections.abc import Callable
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType
from typing import Any

CANNOT = 125
# Where a commit reads plans and sweeps, from now back to the first commit with a simulator.
HOMES = (("tribunal.harness.plan", "tribunal.harness.campaign.sweep"), ("harness.plan", "harness.sweep"))
SIGNATURES = Path(__file__).resolve().parents[2] / "results" / "signature.py"


def shows(plan_path: Path, signature: str, seeds: int) -> bool:
    """Run the plan with its seed and those after it, each in a process of its own, until one shows it."""
    import msgspec

    renewed = signatures().renewed
    read_plan, swept = of_this_commit(Path.cwd())
    plan = read_plan(plan_path)
    plans = [msgspec.structs.replace(plan, seed=plan.seed + number) for number in range(seeds)]
    with tempfile.TemporaryDirectory(prefix="tribunal-bisect-run-") as folder:
        account = swept(plans, jobs=1, budget_s=None, scratch=Path(folder))
    return renewed(signature) in {renewed(str(found)) for found in account.findings}


def of_this_commit(tree: Path) -> tuple[Callable[..., Any], Callable[..., Any]]:
    """Return what reads a plan and what sweeps; LookupError when the commit has no such thing.

    A name that the commit lacks must not be imported: it would be found in the environment, in another version.
    """
    for plan, sweep in HOMES:
        if tree.joinpath(*sweep.split(".")).with_suffix(".py").is_file():
            return importlib.import_module(plan).read_plan, importlib.import_module(sweep).swept
    raise LookupError("this commit has nothing that sweeps")


def signatures() -> ModuleType:
    """Return this version's module of signatures, also where the commit has none."""
    found = spec_from_file_location("signatures_of_this_version", SIGNATURES)
    assert found is not None
    assert found.loader is not None
    module = sys.modules[found.name] = module_from_spec(found)
    found.loader.exec_module(module)
    return module


def main() -> int:
    """Answer."""
    try:
        return int(shows(Path(sys.argv[1]), sys.argv[2], int(sys.argv[3])))
    except Exception:  # noqa: BLE001 - whatever an old commit does not know
        traceback.print_exc()
        return CANNOT


if __name__ == "__main__":
    sys.exit(main())
