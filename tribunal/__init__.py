"""Tribunal, the harness: one import name for `harness`, `nemesis`, `workloads`, `checkers`, `clusters` and `results`.

In a checkout these folders lie beside this one and are linked here; installed they lie inside. Either way everything is imported
by this name alone (docs/decisions/0009-two-import-names.md).
"""

from pathlib import Path
from typing import Final

PACKAGE: Final = Path(__file__).resolve().parent
# What has to be on a child's path for it to import `replog` and `tribunal`; in a checkout also where git and the lock file are.
ROOT: Final = PACKAGE.parent
