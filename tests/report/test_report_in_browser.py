"""The report of a violation in a real browser: two widths, two colour schemes, with and without JavaScript."""

import subprocess
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))
from axe import complaints, script
from browser import CHROMIUM, Browser

ROOT = Path(__file__).resolve().parents[2]
TRIBUNAL = [sys.executable, "-m", "harness.cli.main"]

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.skipif(CHROMIUM is None, reason="no Chromium on this machine (Debian: apt-get install chromium)"),
]


@pytest.fixture(scope="module")
def report(tmp_path_factory):
    """The report of a run in which acks=all was answered too early."""
    out = tmp_path_factory.mktemp("runs")
    options = ["--cluster", "simulated", "--seed", "3", "--time", "12s", "--mutant", "M44", "--engine", "inline"]
    run = subprocess.run(
        [*TRIBUNAL, "run", "produce-consume", *options, "--out", out],
        cwd=ROOT, capture_output=True, text=True, timeout=240, check=False,
    )  # fmt: skip
    assert run.returncode == 1, run.stdout + run.stderr
    (page,) = out.glob("*/report.html")
    return page


@pytest.fixture(scope="module")
def browser(tmp_path_factory):
    opened = Browser(tmp_path_factory.mktemp("browser"))
    yield opened
    opened.close()


@pytest.mark.parametrize("dark", [pytest.param(False, id="light"), pytest.param(True, id="dark")])
@pytest.mark.parametrize("width", [390, 1280])
def test_the_report_fits_and_complains_of_nothing(browser, report, tmp_path, width, dark):
    browser.complaints.clear()
    browser.requests.clear()
    browser.look(width, dark=dark)

    browser.open(report.as_uri())

    assert browser.ask("document.querySelector('h1').textContent").strip()
    assert browser.ask("document.documentElement.scrollWidth <= window.innerWidth")
    assert browser.complaints == []
    assert browser.requests == [report.as_uri()]  # it asks nobody for anything
    assert len(browser.picture(tmp_path / "page.png")) > 10_000


def test_the_schemes_differ(browser, report, tmp_path):
    pictures = []
    for dark in (False, True):
        browser.look(800, dark=dark)
        browser.open(report.as_uri())
        pictures.append(browser.ask("getComputedStyle(document.body).backgroundColor"))

    assert pictures[0] != pictures[1]


def test_without_javascript_the_page_still_says_everything(browser, report):
    browser.look(1280, script=False)
    browser.open(report.as_uri())
    browser.look(1280, script=True)

    text = browser.ask("document.body.innerText")

    assert "VIOLATION" in text
    assert "Story of the first violation" in text
    assert "acks" in text


def test_zooming_moves_the_axis_and_back(browser, report):
    browser.look(1280)
    browser.open(report.as_uri())
    before = browser.ask("document.querySelector('#ticks').textContent")

    browser.ask("[...document.querySelectorAll('button')].find(b => b.textContent.trim() === 'Zoom in').click()")
    zoomed = browser.ask("document.querySelector('#ticks').textContent")
    browser.ask("[...document.querySelectorAll('button')].find(b => b.textContent.trim() === 'Whole run').click()")

    assert zoomed != before
    assert browser.complaints == []


def test_it_prints(browser, report):
    browser.look(1280, media="print")
    browser.open(report.as_uri())

    assert browser.pdf().startswith(b"%PDF")


@pytest.mark.parametrize("dark", [pytest.param(False, id="light"), pytest.param(True, id="dark")])
@pytest.mark.parametrize("width", [390, 1280])
def test_it_has_no_grave_accessibility_problem(browser, report, width, dark):
    text = script()
    if text is None:
        pytest.skip("axe-core is neither cached nor to be had by npm")
    browser.look(width, dark=dark)
    browser.open(report.as_uri())

    assert complaints(browser, text) == []
