"""The walks of docs/contributing through replog: the files that they list are those in which an example is named."""

import re
from pathlib import Path

import pytest

from replog.config.areas import DEFINITIONS
from replog.config.setting import Definition

ROOT = Path(__file__).resolve().parents[2]
SOURCES = {path.relative_to(ROOT): path.read_text() for path in sorted((ROOT / "replog").rglob("*.py"))}


def listed(page: str, section: str = "") -> list[str]:
    """The files of a page's table, or of the one under a heading, with the names in <> taken for real."""
    text = (ROOT / "docs" / "contributing" / page).read_text()
    rows = text[text.index(section) :].partition("\n\n## ")[0] if section else text
    return [re.sub(r"[<>]", "", path) for path in re.findall(r"^\| `([\w/.<>-]+)` \|", rows, re.MULTILINE)]


def naming(pattern: str) -> list[str]:
    return [str(path) for path, source in SOURCES.items() if re.search(pattern, source)]


def api(name: str) -> str:
    """A pattern for a file that names an API by its key or by its messages."""
    module = name.lower()
    messages = rf"replog\.wire\.messages(\.{module}\b| import ([^()\n]*|\([^)]*)\b{module}\b)"
    return rf"\bApi\.{name}\b|{messages}"


@pytest.mark.parametrize(
    ("section", "name"),
    [
        pytest.param("## One that brokers answer", "DELETE_RECORDS", id="brokers"),
        pytest.param("## One that the active controller decides", "UPDATE_FEATURES", id="controllers"),
    ],
)
def test_a_new_api(section: str, name: str) -> None:
    files = listed("a-new-api.md", section)

    assert sorted(files) == naming(api(name))
    assert len(files) == 3


def test_a_new_setting() -> None:
    """Its field is named where it is declared and where it is read, its name in files where it is declared and described."""
    name, field = "group.initial.rebalance.delay.ms", "initial_rebalance_delay_ms"
    page = "docs/configuration.md"

    assert sorted(listed("a-new-setting.md")) == sorted([*naming(rf"\b{field}\b"), page])
    assert naming(re.escape(f'"{name}"')) == ["replog/config/groups.py"]
    assert f"`{name}`" in (ROOT / page).read_text()


def test_a_new_metadata_record() -> None:
    files = listed("a-new-metadata-record.md")

    assert sorted(files) == naming(r"\bRegisterControllerRecord\b")
    assert len(files) == 3


def test_a_new_metric() -> None:
    assert sorted(listed("a-new-metric.md")) == naming(r"\bglobal_under_min_isr_partition_count\b")


@pytest.mark.parametrize("definition", DEFINITIONS.values(), ids=lambda definition: definition.name)
def test_a_setting_is_read_unless_it_is_marked_as_without_effect(definition: Definition) -> None:
    declared = [str(path.relative_to(ROOT)) for path in (ROOT / "replog" / "config").glob("*.py")]
    own_reader = {  # parsed out by `NodeConfig` itself, and by `Listeners` for it
        *("process.roles", "listeners", "advertised.listeners", "controller.listeners", "controller.listener.names"),
        *("inter.broker.listener.name", "listener.security.protocol.map", "sasl.jaas.config"),
        *("sasl.mechanism.inter.broker.protocol", "sasl.mechanism.controller.protocol"),
        "tribunal.sasl.plain.without.tls",
    }
    read = [path for path in naming(rf"\.{definition.field}\b") if path not in declared]

    assert bool(read or definition.name in own_reader) == definition.setting.has_effect
