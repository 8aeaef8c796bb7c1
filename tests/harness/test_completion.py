"""Shell completion as a shell asks for it: the command run anew with what was typed in its environment."""

import os
import subprocess
import sys

import pytest

from tribunal.harness.catalog import KINDS
from tribunal.harness.cli.commands import COMMANDS, loaded

COMMAND = [
    sys.executable,
    "-c",
    "import sys; sys.argv = ['tribunal']; from tribunal.harness.cli.main import main; main()",
]


def offered(typed: str) -> list[str]:
    environment = os.environ | {
        "_TRIBUNAL_COMPLETE": "complete_bash",
        "COMP_WORDS": f"tribunal {typed}",
        "COMP_CWORD": str(len(f"tribunal {typed}.".split()) - 1),
    }
    return subprocess.run(COMMAND, env=environment, capture_output=True, text=True, check=True).stdout.split()


@pytest.mark.parametrize(
    ("typed", "some"),
    [
        ("ver", {"verify"}),
        ("run last-rep", {"last-replica-standing"}),
        ("run --cluster sim", {"simulated"}),
        ("sweep part", {"part-kill"}),
        ("power --mutant m0", {"m01_no_elr"}),
        ("list ", set(KINDS)),
        ("findings ", {"add", "run", "list"}),
    ],
)
def test_a_tab_offers_what_there_is(typed, some):
    assert some <= set(offered(typed))


def test_a_tab_offers_nothing_that_was_not_begun():
    assert "part-kill" not in offered("run last-rep")


def test_every_command_prints_json():
    commands = [
        command for name in COMMANDS for command in getattr(loaded(name), "commands", {name: loaded(name)}).values()
    ]

    assert len(commands) > 30
    assert [one.name for one in commands if "json" not in {param.name for param in one.params}] == []
