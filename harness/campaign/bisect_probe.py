"""One commit's answer for `tribunal bisect`: whether the code that the interpreter sees shows a signature under a plan.

Exit codes as `git bisect run` reads them: 0 it does not, 1 it does, 125 this commit cannot be asked. Kept to names that
have been there from the first commit with a simulator on; the file itself is this version's, whatever commit is asked.
"""

import sys
import tempfile
import traceback
from pathlib import Path

CANNOT = 125


def shows(plan_path: Path, signature: str, seeds: int) -> bool:
    """Run the plan with its seed and those after it, each in a process of its own, until one shows it."""
    import msgspec

    from tribunal.harness.campaign.sweep import swept
    from tribunal.harness.plan import read_plan

    plan = read_plan(plan_path)
    plans = [msgspec.structs.replace(plan, seed=plan.seed + number) for number in range(seeds)]
    with tempfile.TemporaryDirectory(prefix="tribunal-bisect-run-") as folder:
        account = swept(plans, jobs=1, budget_s=None, scratch=Path(folder))
    return signature in {str(found) for found in account.findings}


def main() -> int:
    """Answer."""
    try:
        return int(shows(Path(sys.argv[1]), sys.argv[2], int(sys.argv[3])))
    except Exception:  # noqa: BLE001 - whatever an old commit does not know
        traceback.print_exc()
        return CANNOT


if __name__ == "__main__":
    sys.exit(main())
