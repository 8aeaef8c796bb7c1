"""Released Java programs as plain jars, fetched by the machine's Maven into folders outside the repository.

A folder is complete when it has a `VERSION` file: it is written last, into a folder renamed last, so that an interrupted
or a concurrent fetch leaves nothing half done behind.
"""

import hashlib
import re
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import msgspec

from tribunal.clusters.pinned_jars import PINNED, PROGRAMS

COPY: Final = "org.apache.maven.plugins:maven-dependency-plugin:3.6.1:copy-dependencies"
FETCH_TIMEOUT_S: Final = 600
COLOUR: Final = re.compile(r"\x1b\[[0-9;]*m")
STRICT_CHECKSUMS: Final = "-C"  # Maven only warns of a wrong one otherwise


class NoJars(Exception):
    """A Java program cannot be had here; the message says why in one line."""


class Artifact(msgspec.Struct, frozen=True):
    """What is asked of Maven. `without`: group and name of what it would bring along, and nobody needs. `classifier`: of a part such as "test"."""

    group: str
    name: str
    version: str
    without: tuple[tuple[str, str], ...] = ()
    classifier: str = ""


class Program(msgspec.Struct, frozen=True, kw_only=True):
    """A program: its name for messages, its version, what it consists of, a file for its logging, the remedy for no Maven."""

    name: str
    version: str
    artifacts: Sequence[Artifact]
    logging: tuple[str, str]
    remedy: str


def is_complete(folder: Path) -> bool:
    """Whether a fetch into this folder has come to its end."""
    return (folder / "VERSION").exists()


def fetch(folder: Path, program: Program) -> None:
    """Have Maven put a program's jars into this folder; `NoJars` when that is impossible."""
    maven = shutil.which("mvn")
    if maven is None:
        raise NoJars(program.remedy)
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder.parent, prefix="fetching-") as scratch:
        project, jars = Path(scratch, "pom.xml"), Path(scratch, "jars")
        project.write_text(_project(program.artifacts))
        options = ["-DincludeScope=runtime", f"-DoutputDirectory={jars}"]
        _run([maven, "-q", "-B", STRICT_CHECKSUMS, "-f", str(project), COPY, *options], program.name)
        _must_be_pinned(jars, program)
        name, text = program.logging
        (jars / name).write_text(text)
        (jars / "VERSION").write_text(program.version + "\n")
        put_in_place(jars, folder, folder / "VERSION")


def put_in_place(fetched: Path, folder: Path, last: Path) -> None:
    """Make what was fetched whole the folder of this name; another run may put its own there at any moment, and either will do.

    last:    what a whole folder has.
    errors:  NoJars: something that is not whole has the name.
    """
    try:
        fetched.rename(folder)
    except OSError as problem:
        if not last.exists():
            raise NoJars(f"{folder} is there and not whole ({problem.strerror}): remove it") from None


def _must_be_pinned(jars: Path, program: Program) -> None:
    """Raise `NoJars` for a jar that is not the one that was tested; of releases that were tested every jar is known."""
    is_tested = (program.name, program.version) in PROGRAMS
    for path in sorted(jars.glob("*.jar")):
        if path.name not in PINNED and not is_tested:
            continue
        with path.open("rb") as file:
            found = hashlib.file_digest(file, "sha256").hexdigest()
        if found != PINNED.get(path.name):
            raise NoJars(f"Maven gave another {path.name} than the pinned one: sha256 {found}")


def _run(command: list[str], name: str) -> None:
    try:
        done = subprocess.run(  # noqa: S603 - our own command, no shell
            command, capture_output=True, text=True, timeout=FETCH_TIMEOUT_S, check=False
        )
    except subprocess.TimeoutExpired:
        raise NoJars(f"Maven did not fetch {name} within {FETCH_TIMEOUT_S} s") from None
    if done.returncode != 0:
        lines = COLOUR.sub("", done.stdout + done.stderr).splitlines()
        said = [line for line in lines if line.strip()]
        raise NoJars(f"Maven cannot fetch {name}: {said[0] if said else f'exit code {done.returncode}'}")


def _project(artifacts: Sequence[Artifact]) -> str:
    return (
        '<project xmlns="http://maven.apache.org/POM/4.0.0"><modelVersion>4.0.0</modelVersion>'
        "<groupId>tribunal</groupId><artifactId>jars</artifactId><version>1</version><packaging>pom</packaging>"
        f"<dependencies>{''.join(map(_dependency, artifacts))}</dependencies></project>"
    )


def _dependency(artifact: Artifact) -> str:
    exclusions = "".join(
        f"<exclusion><groupId>{group}</groupId><artifactId>{name}</artifactId></exclusion>"
        for group, name in artifact.without
    )
    return (
        f"<dependency><groupId>{artifact.group}</groupId><artifactId>{artifact.name}</artifactId>"
        f"<version>{artifact.version}</version>"
        + (f"<classifier>{artifact.classifier}</classifier>" if artifact.classifier else "")
        + f"<exclusions>{exclusions}</exclusions></dependency>"
    )
