"""The lock file has the hashes of all files, and all that set-up needs on each platform: with hashes pip installs nothing else."""

import re
from importlib.metadata import distribution
from itertools import product

import pytest
from packaging.requirements import Requirement
from packaging.utils import NormalizedName, canonicalize_name

from tools.audit_lock import ROOT, locked

ENTRY = re.compile(
    r"^([A-Za-z0-9._-]+)==(\S+)((?: ; [^\\\n]+)?)((?: \\\n    --hash=sha256:[0-9a-f]{64})+)$", re.MULTILINE
)
PYTHONS = ("3.11", "3.12", "3.13", "3.14")
SYSTEMS = (("linux", "Linux", "x86_64"), ("linux", "Linux", "aarch64"), ("darwin", "Darwin", "arm64"))


def text() -> str:
    return (ROOT / "requirements.lock").read_text()


def wanted() -> list[Requirement]:
    """Return what requirements.in asks for."""
    lines = (ROOT / "requirements.in").read_text().splitlines()
    return [Requirement(line) for line in lines if line and not line.startswith("#")]


def environments() -> list[dict[str, str]]:
    """Return where set-up has to work."""
    return [
        {
            "python_version": python,
            "python_full_version": f"{python}.0",
            "sys_platform": platform,
            "platform_system": system,
            "platform_machine": machine,
            "os_name": "posix",
        }
        for python, (platform, system, machine) in product(PYTHONS, SYSTEMS)
    ]


def missing(pinned: set[NormalizedName]) -> set[str]:
    """Return what some package needs somewhere, and is not pinned."""
    extras = {canonicalize_name(one.name): one.extras for one in wanted()}
    return {
        f"{name} needs {line}"
        for name in pinned
        for line in distribution(name).requires or ()
        if canonicalize_name((needed := Requirement(line)).name) not in pinned
        for environment, extra in product(environments(), ("", *extras.get(name, ())))
        if needed.marker is None or needed.marker.evaluate({**environment, "extra": extra})
    }


def names() -> set[NormalizedName]:
    return {canonicalize_name(package.name) for package in locked(text())}


def test_every_package_is_pinned_by_version_and_hashes() -> None:
    entries = {(name, version) for name, version, _, _ in ENTRY.findall(text())}

    assert entries == {(package.name, package.version) for package in locked(text())}
    assert {canonicalize_name(one.name) for one in wanted()} <= names()
    assert "WARNING" not in text()


def test_it_names_no_index() -> None:
    assert not re.search(r"https?:|^-", text(), re.MULTILINE)


def test_what_any_platform_needs_is_pinned() -> None:
    assert missing(names()) == set()


@pytest.mark.parametrize("left_out", ["numpy", "boto3", "setuptools"])
def test_a_package_that_is_left_out_is_noticed(left_out: str) -> None:
    assert missing(names() - {left_out})


def test_set_up_installs_by_hashes() -> None:
    makefile = (ROOT / "Makefile").read_text()

    assert "--require-hashes -r requirements.lock" in makefile
    assert "--generate-hashes" in makefile
