"""A report's drawings as files for papers and tickets: SVG that stands alone, and PNG where a Chromium is installed.

A drawing of the page takes its colours from the page's style; here they are written into it, those of the light scheme.
"""

import re
import shutil
import subprocess  # a browser of this machine
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from tribunal.results.report import drawings
from tribunal.results.report.model import page

FOLDER: Final = "figures"
BROWSERS: Final = ("chromium", "chromium-browser", "google-chrome")
PNG_S: Final = 60
SCALE: Final = 2
SVG: Final = re.compile(r"<svg.*?</svg>", re.DOTALL)
BOX: Final = re.compile(r'viewBox="0 0 ([\d.]+) ([\d.]+)"')
VARIABLE: Final = re.compile(r"--([a-z0-9]+):([^;}]+)")
FONT: Final = "font-family:system-ui,Arial,sans-serif"


def write_figures(run_dir: Path) -> Iterator[Path]:
    """Write each drawing of a run's report below its folder; yield the files as they are written: a browser takes seconds for each."""
    folder = Path(run_dir) / FOLDER
    folder.mkdir(exist_ok=True)
    html, style = drawings(page(Path(run_dir)))
    for name, text in html.items():
        found = SVG.search(text)
        if found is None:
            continue
        svg = folder / f"{name}.svg"
        svg.write_text(standalone(found[0], style), encoding="utf-8")
        yield svg
        yield from _as_png(svg)


def standalone(svg: str, style: str) -> str:
    """Return a drawing with its style in it, colours instead of variables, and a background."""
    light = style.partition("@media")[0]
    colours = dict(VARIABLE.findall(light))
    rules = re.sub(r"@media[^{]*\{(?:[^{}]*\{[^{}]*\})*[^{}]*\}", "", style)
    rules = re.sub(r"var\(--([a-z0-9]+)\)", lambda found: colours.get(found[1], "#000"), rules)
    box = BOX.search(svg)
    assert box is not None
    width, height = box[1], box[2]
    head = f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" '
    background = f'<rect width="{width}" height="{height}" fill="{colours.get("bg", "#fff")}"/>'
    opened, rest = svg.split(">", 1)
    return f"{opened.replace('<svg ', head, 1)}><style>svg{{{FONT}}}{rules.replace('&', '&amp;').replace('<', '&lt;')}</style>{background}{rest}\n"


def _as_png(svg: Path) -> list[Path]:
    browser = next((found for name in BROWSERS if (found := shutil.which(name))), None)
    box = BOX.search(svg.read_text(encoding="utf-8"))
    if browser is None or box is None:
        return []
    target = svg.with_suffix(".png")
    size = f"{int(float(box[1]))},{int(float(box[2])) + 1}"
    command = [
        browser, "--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", f"--force-device-scale-factor={SCALE}",
        f"--window-size={size}", f"--screenshot={target}", svg.resolve().as_uri(),
    ]  # fmt: skip
    try:
        subprocess.run(command, capture_output=True, timeout=PNG_S, check=False)  # noqa: S603
    except subprocess.TimeoutExpired:
        return []
    return [target] if target.is_file() else []
