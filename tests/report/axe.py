"""axe-core, the accessibility checker, from npm: fetched once into the user's cache, never into the repository."""

import io
import shutil
import subprocess
import tarfile
from pathlib import Path

VERSION = "4.14.1"
CACHE = Path.home() / ".cache" / "tribunal" / f"axe-core-{VERSION}.min.js"
GRAVE = ("serious", "critical")


def script() -> str | None:
    """Return axe's text; None where it is neither cached nor to be had."""
    if not CACHE.is_file():
        npm = shutil.which("npm")
        if npm is None:
            return None
        CACHE.parent.mkdir(parents=True, exist_ok=True)
        pack = [npm, "pack", "--silent", "--pack-destination", str(CACHE.parent), f"axe-core@{VERSION}"]
        try:
            done = subprocess.run(pack, capture_output=True, text=True, timeout=90, check=False)
        except subprocess.TimeoutExpired:
            return None
        if done.returncode != 0:
            return None
        archive = CACHE.parent / f"axe-core-{VERSION}.tgz"
        with tarfile.open(fileobj=io.BytesIO(archive.read_bytes())) as packed:
            file = packed.extractfile("package/axe.min.js")
            assert file is not None
            CACHE.write_bytes(file.read())
        archive.unlink()
    return CACHE.read_text(encoding="utf-8")


def complaints(browser, text: str) -> list[str]:
    """Run axe in the page that a browser shows; return what is grave: rule, and where."""
    browser.send("Runtime.evaluate", expression=text)
    found = browser.ask("axe.run(document, {resultTypes: ['violations']}).then(r => r.violations.map(v => "
                        "({impact: v.impact, id: v.id, where: v.nodes.map(n => n.target.join(' ')).slice(0, 5)})))")  # fmt: skip
    return [f"{one['impact']} {one['id']}: {one['where']}" for one in found if one["impact"] in GRAVE]
