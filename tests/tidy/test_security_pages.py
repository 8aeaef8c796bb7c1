"""What the two pages on security say of settings and files is so; that something is off says its default."""

import re
from pathlib import Path
from typing import Final

import pytest

from replog.config import DEFINITIONS
from replog.config.setting import HIGHEST
from replog.metadata.client_quotas import CONSUMER_RATE, PRODUCER_RATE

ROOT: Final = Path(__file__).resolve().parents[2]
PAGES: Final = {name: (ROOT / name).read_text() for name in ("SECURITY.md", "docs/security.md")}
NAMED: Final = re.compile(r"`([a-z]+(?:\.[a-z_]+){1,6})`")
FILE: Final = re.compile(r"`((?:[\w-]+/)+[\w.-]+\.\w+)`")
SWITCHES: Final = re.compile(r"^\| [^|]+ \| ([^|]*`[^|]+) \| [^|]+ \|$", re.MULTILINE)
OFF: Final = (None, "", (), 0, "none", *HIGHEST.values())
NO_SETTINGS: Final = re.compile(
    r"\.(json|jsonl|md|toml|log|html|parquet|yaml)$|^(spec|faults)\.|^tribunal\.(mutants|points)$"
)


def settings(text: str) -> set[str]:
    return {name for name in NAMED.findall(text) if not NO_SETTINGS.search(name)}


@pytest.mark.parametrize("page", PAGES)
def test_settings_of_the_page_exist(page: str) -> None:
    named = settings(PAGES[page])

    assert named
    assert named <= {*DEFINITIONS, *(definition.setting.topic for definition in DEFINITIONS.values())}


@pytest.mark.parametrize("page", PAGES)
def test_files_of_the_page_exist(page: str) -> None:
    assert [name for name in FILE.findall(PAGES[page]) if not (ROOT / name).is_file() and "*" not in name] == []


def test_what_is_off_until_it_is_set_is_a_setting_that_is_off() -> None:
    text = PAGES["SECURITY.md"]
    table = text[text.index("## What is off") : text.index("Not there at all:")]
    rows = SWITCHES.findall(table)
    named = {name for row in rows for name in settings(row)}

    assert len(rows) == 6
    assert {name: DEFINITIONS[name].default for name in named if DEFINITIONS[name].default not in OFF} == {}
    assert set(re.findall(r"`(\w+_rate)`", table)) == {PRODUCER_RATE, CONSUMER_RATE}


def test_nothing_that_can_be_set_is_said_to_be_missing() -> None:
    """As it stood for weeks after they had come."""
    text = PAGES["SECURITY.md"]
    missing = text[text.index("Not there at all:") : text.index("So: ")]

    assert "ZooKeeper mode" in missing  # the only place without TLS, logging in and ACLs
    for words in ("No TLS", "No authentication", "No authorization", "No quotas"):
        assert words not in text
