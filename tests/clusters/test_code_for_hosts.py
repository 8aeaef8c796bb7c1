"""What is uploaded to hosts over ssh is whole: it imports where nothing else of the project is."""

import io
import subprocess
import sys
import tarfile
from pathlib import Path

from tribunal.clusters.kinds.ssh import _code

ALONE = """
import importlib, sys
sys.modules["pyarrow"] = None  # hosts have none
for name in ("tribunal.clusters.nodes.on_host", "replog.__main__"):
    assert importlib.import_module(name).__file__.startswith(sys.argv[1]), name
"""


def test_it_imports_by_itself(tmp_path: Path) -> None:
    with tarfile.open(fileobj=io.BytesIO(_code())) as archive:
        archive.extractall(tmp_path, filter="data")

    command = [sys.executable, "-c", ALONE, str(tmp_path)]
    done = subprocess.run(
        command, cwd=tmp_path, env={"PYTHONPATH": str(tmp_path)}, capture_output=True, text=True, check=False
    )

    assert (done.returncode, done.stderr) == (0, "")
