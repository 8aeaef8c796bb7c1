"""What several commands take alike, and how what cannot be taken is said."""

from pathlib import Path
from typing import Final, cast

import typer

# (typer brings its own click: its usage errors are reached through what it exports.)
UsageError = cast("type[typer.BadParameter]", typer.BadParameter.__mro__[1])

NO_CLUSTER: Final = "No such option: --cluster"
SIMULATES: Final = (
    "runs in the simulator, which has replog alone; on a cluster, or on a described system (--cluster system), "
    "plans are run by tribunal run, confirm and nightly"
)
GOES_BY_PLAN: Final = "goes by the plan of the run that it is given: a described system's is run on its own nodes"
WITHOUT_CLUSTER: Final[dict[str, str]] = {
    **dict.fromkeys(("sweep", "search", "power", "demo", "replay", "likelihood", "explore"), SIMULATES),
    **dict.fromkeys(("shrink", "bisect"), GOES_BY_PLAN),
    "nightly": "reads in its file where it runs what: confirm: {runs: [{scenario: FILE, cluster: system}]}",
}
LOOKS: Final = "looks at what was run, wherever that was"
ENGINES: Final = ("spark", "inline", "spark-sql")


def in_words(problem: typer.BadParameter) -> str:
    """Say what is wrong with the command that was typed; of a `--cluster` where there is none, why: an option that looks alike is no help."""
    message = problem.format_message() or "try tribunal --help"
    if not message.startswith(NO_CLUSTER) or problem.ctx is None:
        return message
    name = problem.ctx.info_name or "it"
    return f"{name} takes no --cluster: it {WITHOUT_CLUSTER.get(name, LOOKS)}"


def known_engine(engine: str) -> None:
    """Raise `UsageError` for an engine that there is not."""
    if engine not in ENGINES:
        raise UsageError(f"unknown engine {engine!r}; known: {', '.join(ENGINES)}")


def must_be_folder(run: Path) -> None:
    """Raise `UsageError` where a run is named and no folder is there."""
    if not run.is_dir():
        raise UsageError(f"no run in {str(run)!r}: {'a file' if run.exists() else 'no such folder'}")


def must_hold_run(run: Path) -> None:
    """Raise `UsageError` where a folder is none, or has nothing that a run leaves."""
    from tribunal.results.history import is_history

    must_be_folder(run)
    if not ((run / "recording").is_dir() or (run / "verdict.json").is_file() or is_history(run)):
        raise UsageError(f"no run in {str(run)!r}: neither a recording nor a verdict is there")


def must_not_be_file(option: str, folder: Path) -> None:
    """Raise `UsageError` where a folder is to be written to or read from, and a file has its name."""
    if folder.exists() and not folder.is_dir():
        raise UsageError(f"{option} {str(folder)!r}: a file, and a folder is needed")


def must_be_file_to_write(option: str, file: Path) -> None:
    """Raise `UsageError` where a file cannot be written: whoever names one must not find that out after minutes of work."""
    if file.is_dir():
        raise UsageError(f"{option} {str(file)!r}: a folder, and a file is needed")
    if not file.absolute().parent.is_dir():
        raise UsageError(f"{option} {str(file)!r}: there is no folder {str(file.parent)!r}")


def must_be_there(option: str, folder: Path) -> None:
    """Raise `UsageError` where what is to be looked through is not there: that nothing was found would be no news."""
    must_not_be_file(option, folder)
    if not folder.is_dir():
        raise UsageError(f"{option} {str(folder)!r}: there is no such folder")


def spark_at(master: str | None, remote: str | None) -> str | None:
    """Return the one Spark that was asked for; None: this machine. Raises `UsageError`."""
    for option, given, beginnings in (("master", master, ("local", "spark://")), ("remote", remote, ("sc://",))):
        if given is not None and not given.startswith(beginnings):
            raise UsageError(f"--{option} {given!r}: begins with {' or '.join(beginnings)}")
    if master is not None and remote is not None:
        raise UsageError("--master and --remote: one of them")
    return master or remote
