"""Ask a database of known weaknesses about every package of the lock file.

python tools/audit_lock.py             # a line for each weakness that is known
python tools/audit_lock.py --database https://another.example

Exit code 0: all packages were looked up, and none has a weakness; 1: some have; 3: not audited, because the database cannot be reached or answers as
none does. `make audit` says that, and goes on: who has no network has the lock of yesterday's night. The database is asked as OSV's API is
(`/v1/querybatch`): names and versions go out, nothing else.
"""

import argparse
import json
import re
import sys
import urllib.request
from collections.abc import Sequence
from http import HTTPStatus
from pathlib import Path
from typing import NamedTuple, TextIO

ROOT = Path(__file__).resolve().parent.parent
DATABASE = "https://api.osv.dev"
PINNED = re.compile(r"^([A-Za-z0-9._-]+)(?:\[[^\]]*\])?==([^\s;\\]+)", re.MULTILINE)
AT_ONCE = 100
TIMEOUT_S = 30
NOT_AUDITED = 3


class Package(NamedTuple):
    """A package of the lock file."""

    name: str
    version: str


def locked(text: str) -> list[Package]:
    """Return what a lock file pins."""
    return [Package(*found) for found in PINNED.findall(text)]


def weaknesses(packages: Sequence[Package], database: str) -> list[tuple[Package, str]]:
    """Return each package with a weakness of it by the database's id. `OSError` or `ValueError` where nobody answers as a database does."""
    found = []
    for first in range(0, len(packages), AT_ONCE):
        some = packages[first : first + AT_ONCE]
        queries = [{"package": {"name": one.name, "ecosystem": "PyPI"}, "version": one.version} for one in some]
        for package, answer in zip(some, _asked(database, {"queries": queries}), strict=True):
            found += [(package, str(one["id"])) for one in (answer or {}).get("vulns", [])]
    return found


def _asked(database: str, question: object) -> list[dict[str, list[dict[str, object]]]]:
    request = urllib.request.Request(
        f"{database}/v1/querybatch", json.dumps(question).encode(), {"Content-Type": "application/json"}
    )
    with urllib.request.urlopen(request, timeout=TIMEOUT_S) as answer:
        if answer.status != HTTPStatus.OK:
            raise ValueError(f"status {answer.status}")
        results = json.load(answer)["results"]
    if not isinstance(results, list):
        raise ValueError("no list of results")
    return results


def audit(lock: Path, database: str, out: TextIO) -> int:
    """Say what is known; return the exit code."""
    packages = locked(lock.read_text())
    try:
        found = weaknesses(packages, database)
    except (OSError, ValueError, KeyError) as problem:
        out.write(
            f"not audited: none of {len(packages)} packages of {lock.name} was looked up, {database} cannot be asked ({problem})\n"
        )
        return NOT_AUDITED
    out.writelines(f"{package.name} {package.version}: {weakness}\n" for package, weakness in found)
    out.write(f"{len(packages)} packages of {lock.name} audited, {len(found)} weaknesses known\n")
    return 1 if found else 0


def main() -> int:
    """Audit the lock file of this repository."""
    arguments = argparse.ArgumentParser(description="Ask a database of known weaknesses about the lock file.")
    arguments.add_argument("--database", default=DATABASE)
    arguments.add_argument("--lock", type=Path, default=ROOT / "requirements.lock")
    given = arguments.parse_args()
    return audit(given.lock, given.database, sys.stdout)


if __name__ == "__main__":
    sys.exit(main())
