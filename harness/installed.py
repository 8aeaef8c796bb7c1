"""What code is installed here, where no clone says its commit: the wheel's version, and a hash of what is in it."""

import hashlib
from importlib.metadata import PackagePath, distributions
from pathlib import Path
from typing import Final

DISTRIBUTION: Final = "replog"
PACKAGES: Final = ("replog", "tribunal")


def installed_code(root: Path) -> str | None:
    """Return the version and the hash of the code that was installed into a folder, `0.1.0-8d4e...`; None where none was.

    The hash is of names and hashes as the installer has written them into RECORD, so two wheels of one version that differ are told apart.
    """
    for found in distributions(name=DISTRIBUTION, path=[str(root)]):
        recorded = sorted(map(_line, filter(_is_code, found.files or ())))
        if recorded:
            return f"{found.version}-{hashlib.sha256(''.join(recorded).encode()).hexdigest()}"
    return None


def _is_code(file: PackagePath) -> bool:
    """Return whether a file came with the wheel: what an installer compiles or makes for this machine differs."""
    return file.hash is not None and file.parts[0] in PACKAGES and file.suffix != ".pyc"


def _line(file: PackagePath) -> str:
    assert file.hash is not None
    return f"{file.as_posix()} {file.hash.mode}={file.hash.value}\n"
