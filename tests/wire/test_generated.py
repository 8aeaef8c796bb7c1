"""The committed message types are what the generator makes of the installed kio."""

import importlib.util
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_generating_again_changes_nothing(tmp_path: Path):
    spec = importlib.util.spec_from_file_location("generate_messages", ROOT / "tools" / "generate_messages.py")
    assert spec is not None
    assert spec.loader is not None
    generator = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(generator)

    for path in generator.generate(tmp_path):
        committed = ROOT / "replog" / "wire" / "messages" / path.name
        assert path.read_text() == committed.read_text(), path.name
