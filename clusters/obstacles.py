"""Why a kind of cluster does not work on this machine, and what helps."""

from pathlib import Path
from typing import Final

import msgspec

from tribunal import ROOT

TOOLS: Final = ROOT / "tools"  # there in a checkout, not where the distribution is installed


class Obstacle(msgspec.Struct, frozen=True, kw_only=True):
    """One reason with its remedy; some only take a comfort away."""

    reason: str
    remedy: str
    blocks: bool = True


def with_tool(name: str, command: str, *, otherwise: str, tools: Path = TOOLS) -> str:
    """Return what helps: the command of a checkout's tool, or what to do where there is no checkout."""
    return command if (tools / name).is_file() else otherwise
