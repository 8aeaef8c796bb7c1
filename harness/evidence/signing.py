"""Who vouches for an archive: a detached signature, made and checked by the user's own tool. No cryptography of ours.

`ssh-keygen -Y` with any key that ssh has, also one of an agent or of a token; or minisign. Which one, the key says. A signature that is good says
that the holder of a key signed these bytes; whose key it is says only a file of the reader's (`signers`).
"""

import re
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import msgspec

from tribunal.clusters.api import ClusterError
from tribunal.harness.scenario import BadScenario

NAMESPACE: Final = "tribunal-bundle"  # a signature made for anything else does not count
SSH, MINISIGN = ".sig", ".minisig"
UNTRUSTED: Final = b"untrusted comment:"
KEY: Final = re.compile(r"with (.+ key \S+)")
TIMEOUT_S: Final = 60


class Unsigned(ClusterError):
    """No signature can be made, or the one that is there is false or not by whom it should be."""


class Signed(msgspec.Struct, frozen=True, kw_only=True):
    """A good signature.

    signer:  who the reader's own file says that it is; None: nobody said whose key that is.
    """

    tool: str
    key: str
    signer: str | None


def sign(archive: Path, key: Path) -> Path:
    """Sign an archive; return the signature's file beside it. The tool asks for a passphrase by itself."""
    if not key.is_file():
        raise Unsigned(f"{key}: no such key")
    if _is_of_minisign(key):
        target = archive.with_name(f"{archive.name}{MINISIGN}")
        words = ["minisign", "-S", "-s", f"{key}", "-m", f"{archive}", "-x", f"{target}"]
    else:
        target = archive.with_name(f"{archive.name}{SSH}")
        words = ["ssh-keygen", "-Y", "sign", "-f", f"{key}", "-n", NAMESPACE, f"{archive}"]
    if target.exists():
        raise BadScenario(f"{target}: there already")
    program = _tool(words[0])
    # Its terminal is the user's: it asks for the passphrase, or for a touch of the token.
    ended = subprocess.run([program, *words[1:]], check=False)  # noqa: S603 - the user's own tool, no shell
    if ended.returncode or not target.is_file():
        raise Unsigned(f"{words[0]} did not sign {archive} (exit code {ended.returncode})")
    return target


def signed(archive: Path, signers: Path | None) -> Signed | None:
    """Check the signature beside an archive that is not `unchecked`; None: there is none. `Unsigned`: it is false, or not by one of `signers`."""
    ssh, minisign = (archive.with_name(f"{archive.name}{suffix}") for suffix in (SSH, MINISIGN))
    if ssh.is_file():
        return _by_ssh(archive, ssh, signers)
    if minisign.is_file() and signers is not None:
        return _by_minisign(archive, minisign, signers)
    if signers is not None:
        raise Unsigned(
            f"{archive}: nobody signed it: there is no {archive.name}{SSH} or {archive.name}{MINISIGN} beside it"
        )
    return None


def unchecked(archive: Path, signers: Path | None) -> str | None:
    """Return the name of a signature beside an archive that nobody can check so: minisign's says nothing without the public key."""
    ssh, minisign = (archive.with_name(f"{archive.name}{suffix}") for suffix in (SSH, MINISIGN))
    return minisign.name if signers is None and minisign.is_file() and not ssh.is_file() else None


def _by_ssh(archive: Path, signature: Path, signers: Path | None) -> Signed:
    good = _asked("check-novalidate", signature, archive)
    if good is None:
        raise Unsigned(f"{signature}: is not a signature of this archive")
    found = KEY.search(good)
    key = found[1] if found else "a key"
    if signers is None:
        return Signed(tool="ssh-keygen", key=key, signer=None)
    listed = _asked("find-principals", signature, None, "-f", f"{signers}")
    for signer in (listed or "").split("\n"):
        name = signer.strip()
        if name and _asked("verify", signature, archive, "-f", f"{signers}", "-I", name) is not None:
            return Signed(tool="ssh-keygen", key=key, signer=name)
    raise Unsigned(f"{signature}: signed with {key}, which {signers} does not name")


def _asked(order: str, signature: Path, archive: Path | None, *more: str) -> str | None:
    """Ask ssh-keygen about a signature; None: it says no."""
    words = ["-Y", order, "-n", NAMESPACE, "-s", f"{signature}", *more]
    return _said("ssh-keygen", words, archive)


def _by_minisign(archive: Path, signature: Path, signers: Path) -> Signed:
    words = ["-V", "-p", f"{signers}", "-m", f"{archive}", "-x", f"{signature}"]
    if _said("minisign", words, None) is None:
        raise Unsigned(f"{signature}: not a signature of this archive by the key {signers}")
    return Signed(tool="minisign", key=f"{signers}", signer=signers.stem)


def _said(tool: str, words: Sequence[str], stdin: Path | None) -> str | None:
    program = _tool(tool)
    try:
        with (stdin or Path("/dev/null")).open("rb") as file:
            ended = subprocess.run(  # noqa: S603 - the user's own tool, no shell
                [program, *words], stdin=file, capture_output=True, check=False, timeout=TIMEOUT_S
            )
    except subprocess.TimeoutExpired:
        raise Unsigned(f"{tool} did not answer within {TIMEOUT_S} s") from None
    return None if ended.returncode else (ended.stdout + ended.stderr).decode(errors="replace")


def _is_of_minisign(key: Path) -> bool:
    with key.open("rb") as file:
        return file.read(len(UNTRUSTED)) == UNTRUSTED


def _tool(name: str) -> str:
    program = shutil.which(name)
    if program is None:
        raise Unsigned(f"{name} is not installed here")
    return program
