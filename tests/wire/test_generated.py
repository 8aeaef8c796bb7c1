"""The committed message types are what the generator makes of the installed kio."""

import importlib.util
from pathlib import Path

from replog.wire.apis import KNOWN_APIS

ROOT = Path(__file__).parents[2]
MESSAGES = ROOT / "replog" / "wire" / "messages"


def test_generating_again_changes_nothing(tmp_path: Path):
    spec = importlib.util.spec_from_file_location("generate_messages", ROOT / "tools" / "generate_messages.py")
    assert spec is not None
    assert spec.loader is not None
    generator = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(generator)

    for path in generator.generate(tmp_path):
        assert path.read_text() == (MESSAGES / path.name).read_text(), path.name


def test_every_module_is_of_an_api_that_a_listener_offers():
    modules = {path.stem for path in MESSAGES.glob("*.py")} - {"__init__"}

    assert modules == {api.name.lower() for api in KNOWN_APIS}
