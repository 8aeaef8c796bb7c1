"""The museum's page: every known fault with its four sides beside each other, offline and without script."""

from pathlib import Path

from tribunal.results.museum import Museum
from tribunal.results.report import environment
from tribunal.results.whole_files import put

WORDS = {True: "as expected", False: "not as expected", None: "not known"}
MARKS = {True: "PASS", False: "VIOLATION", None: "INCONCLUSIVE"}  # colours of the tags


def write(museum: Museum, folder: Path) -> Path:
    """Write index.html into the museum's folder; return its path."""
    folder.mkdir(parents=True, exist_ok=True)
    return put(folder / "index.html", render(museum).encode())


def render(museum: Museum) -> str:
    """Return the page's HTML."""
    return environment().get_template("museum.html.j2").render(museum=museum, words=WORDS, marks=MARKS)
