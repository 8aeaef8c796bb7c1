"""The commands that keep a machine clean: doctor, heal, clean."""

import shutil
from pathlib import Path
from typing import Annotated, Final

import msgspec
import typer

from tribunal.harness.catalog import all_clusters, known_name
from tribunal.harness.cli.stored import storage_at
from tribunal.harness.cli.usage import must_be_there
from tribunal.harness.doctor import FaultHealth, Health, examined
from tribunal.harness.fault_journal import heal as heal_runs
from tribunal.harness.fault_journal import refuse_unless_healed, running
from tribunal.harness.run import RUN_NAME, is_run
from tribunal.harness.terminal import as_json, echo
from tribunal.results.scratch import Scratch, remove_abandoned
from tribunal.results.storage import NoStorage, StoredFile, is_url
from tribunal.results.unreadable import UNREADABLE
from tribunal.results.verdict import EXIT_ERROR, Verdict

Out = Annotated[Path, typer.Option(help="Folder of the runs.")]
Json = Annotated[bool, typer.Option("--json", help="Print the result as JSON on stdout.")]
KEPT: Final = 10
DEPENDS: Final = "○"
VERDICT: Final = "verdict.json"


def doctor(
    fault: Annotated[str | None, typer.Option(help="Only this fault.")] = None,
    cluster: Annotated[str | None, typer.Option(help="Exit with 3 unless this kind of cluster works here.")] = None,
    json: Json = False,
) -> None:
    """Say which clusters and which faults work on this machine, and what helps where one does not."""
    if cluster is not None:
        cluster = known_name("cluster", cluster, all_clusters())
    health = examined(fault)
    if json:
        echo(as_json(health))
    else:
        echo("\n".join(_lines(health)))
    if cluster is not None and not any(kind.works for kind in health.clusters if kind.kind == cluster):
        raise typer.Exit(EXIT_ERROR)
    if fault is not None and not (health.faults[0].works_on or health.faults[0].depends_on):
        raise typer.Exit(EXIT_ERROR)


def _lines(health: Health) -> list[str]:
    lines = []
    width = max(len(kind.kind) for kind in health.clusters)
    for kind in health.clusters:
        lines.append(f"{'✓' if kind.works else '✗'} {kind.kind:<{width}}  {kind.place}".rstrip())
        lines += [f"    {obstacle.reason}  → {obstacle.remedy}" for obstacle in kind.obstacles]
    kinds = [kind.kind for kind in health.clusters]
    width = max(len(fault.fault) for fault in health.faults)
    lines.append(f"\n{'fault':<{width}}  {'  '.join(kinds)}")
    for fault in health.faults:
        marks = "  ".join(f"{_mark(fault, kind):<{len(kind)}}" for kind in kinds)
        lines.append(f"{fault.fault:<{width}}  {marks}".rstrip())
    if len(health.faults) == 1:
        lines += _refusals(health.faults[0])
    if any(fault.depends_on for fault in health.faults):
        lines.append(
            f"\n{DEPENDS} where the file that describes it gives what the fault needs: system.toml (docs/your-system.md), cluster.toml (docs/your-cluster.md)"
        )
    return lines


def _mark(fault: FaultHealth, kind: str) -> str:
    """Say in a letter whether a fault works on a kind."""
    return "✓" if kind in fault.works_on else DEPENDS if kind in fault.depends_on else "–"


def _refusals(fault: FaultHealth) -> list[str]:
    return [f"    {kind}: {reason}" for kind, reason in fault.refused.items()]


def heal(
    out: Out = Path("runs"),
    cluster_file: Annotated[
        list[Path] | None,
        typer.Option(help="A cluster.toml whose commands may be run, for runs of --cluster existing. Repeatable."),
    ] = None,
    json: Json = False,
) -> None:
    """Undo what runs left behind whose harness was killed; prove that nothing remains."""
    must_be_there("--out", out)
    done = heal_runs(out, cluster_file or ())
    done += [f"{folder}: removed; the process that used it was killed" for folder in remove_abandoned()]
    echo(as_json(done) if json else "\n".join(done or ["nothing to heal"]))


def clean(
    out: Annotated[str, typer.Option(help="Folder of the runs, or storage: s3://BUCKET/FOLDER.")] = "runs",
    keep: Annotated[
        int, typer.Option(min=0, help="How many of the newest runs stay, besides those with a violation.")
    ] = KEPT,
    json: Json = False,
) -> None:
    """Remove old runs, never one with a violation; refuses while a run that died is not healed, and leaves running ones alone."""
    runs = _StoredRuns(out) if is_url(out) else _Runs(Path(out))
    found = runs.names()
    findings = [name for name in found if runs.has_finding(name)]
    others = [name for name in found if name not in findings]
    removed = others[: max(0, len(others) - keep)]
    for name in removed:
        runs.remove(name)
        if not json:
            echo(f"removed {runs.place(name)}")
    kept = len(others) - len(removed)
    if json:
        content = {
            "removed": list(map(runs.place, removed)), "kept": kept, "with_violation": list(map(runs.place, findings))
        }  # fmt: skip
        echo(as_json(content))
        return
    echo(f"{kept} runs kept in {out}")
    if findings:
        echo(f"{len(findings)} more with a violation stay, the newest {runs.place(findings[-1])}; remove them by hand")


class _Runs:
    """The runs in a folder of this machine."""

    def __init__(self, out: Path) -> None:
        refuse_unless_healed(out)
        self._out = out

    def names(self) -> list[str]:
        """Return the runs that have ended, the oldest first: their names begin with the time."""
        busy = {Path(entry.run_dir).name for entry in running(self._out)}
        folders = self._out.iterdir() if self._out.is_dir() else ()
        return sorted(folder.name for folder in folders if is_run(folder) and folder.name not in busy)

    def has_finding(self, name: str) -> bool:
        """Return whether a run's verdict is a violation, or cannot be read: nobody knows what is lost with that."""
        return _has_finding(self._out / name)

    def remove(self, name: str) -> None:
        """Remove a run."""
        shutil.rmtree(self._out / name)

    def place(self, name: str) -> str:
        """Return where a run is."""
        return str(self._out / name)


class _StoredRuns(_Runs):
    """The runs in storage. What was not put there to the end is none: perhaps it is being put there."""

    def __init__(self, url: str) -> None:
        self._storage = storage_at("--out", url)
        self._files: dict[str, dict[str, StoredFile]] = {}  # of each run

    def names(self) -> list[str]:
        """Return the runs that stand there as wholes, the oldest first."""
        names = [name for name in self._storage.folders() if RUN_NAME.fullmatch(name.partition(".")[0])]
        listed = {name: self._storage.listed(name) for name in names}
        self._files = {name: files for name, files in listed.items() if "plan.json" in files}
        return [*self._files]

    def has_finding(self, name: str) -> bool:
        """Return whether a run's verdict is a violation, or is not as it was put there."""
        listed = self._files[name].get(VERDICT)
        if listed is None:
            return False
        with Scratch("clean") as folder:
            try:
                self._storage.fetch_file(VERDICT, folder / VERDICT, listed, name)
            except NoStorage:
                return True
            return _has_finding(folder)

    def remove(self, name: str) -> None:
        """Remove a run, its list first."""
        self._storage.remove(name)

    def place(self, name: str) -> str:
        """Return a run's URL."""
        return f"{self._storage.url}/{name}"


def _has_finding(run_dir: Path) -> bool:
    try:
        return msgspec.json.decode((run_dir / VERDICT).read_bytes(), type=_Verdict).verdict == Verdict.VIOLATION
    except FileNotFoundError:
        return False
    except (OSError, *UNREADABLE):
        return True


class _Verdict(msgspec.Struct, frozen=True):
    """What of a verdict says whether its run is a finding."""

    verdict: str
