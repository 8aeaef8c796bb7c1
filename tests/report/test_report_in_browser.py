"""The report of a violation in a real browser: two widths, two colour schemes, with and without JavaScript."""

import json
import os
import re
import subprocess
import sys
import threading
from pathlib import Path
from xml.etree import ElementTree

import pytest

sys.path.insert(0, str(Path(__file__).parent))
from axe import complaints, script
from browser import CHROMIUM, Browser

from tribunal.harness.cli.pages import server

ROOT = Path(__file__).resolve().parents[2]
TRIBUNAL = [sys.executable, "-m", "tribunal.harness.cli.main"]

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


RANGE = "document.querySelector('#range').textContent"


def seconds(browser) -> tuple[float, float]:
    """The time that the drawing shows."""
    first, last = re.findall(r"[\d.]+(?= s)", browser.ask(RANGE))
    return float(first), float(last)


def click(browser, element: str) -> None:
    """Click on an element as a hand does: where it stands."""
    browser.ask(f"{element}.scrollIntoView({{block: 'center', behavior: 'instant'}})")
    box = browser.ask(f"(b => [b.x + b.width / 2, b.y + b.height / 2])({element}.getBoundingClientRect())")
    browser.mouse("mousePressed", *box)
    browser.mouse("mouseReleased", *box)


def button(name: str) -> str:
    return f"[...document.querySelectorAll('button')].find(b => b.textContent.trim() === '{name}')"


@pytest.fixture
def opened(browser, report):
    browser.complaints.clear()
    browser.look(1280)
    browser.open(report.as_uri())
    yield browser
    assert browser.complaints == []


def test_zooming_moves_the_axis_and_back(opened):
    whole, ticks = seconds(opened), opened.ask("document.querySelector('#ticks').textContent")

    click(opened, button("Zoom in"))
    zoomed = seconds(opened)
    assert zoomed[1] - zoomed[0] == pytest.approx((whole[1] - whole[0]) / 2, abs=0.01)
    assert opened.ask("document.querySelector('#ticks').textContent") != ticks
    click(opened, button("later ▶"))
    assert seconds(opened)[0] > zoomed[0]
    click(opened, button("Whole run"))
    assert seconds(opened) == whole
    assert opened.ask("document.querySelector('#ticks').textContent") == ticks


def test_a_stretch_is_chosen_with_the_mouse_and_left_by_keys(opened):
    whole = seconds(opened)
    opened.ask("document.querySelector('#drawing').scrollIntoView({block: 'start', behavior: 'instant'})")
    box = opened.ask("(b => [b.x, b.y, b.width])(document.querySelector('#drawing').getBoundingClientRect())")

    opened.mouse("mousePressed", box[0] + 0.5 * box[2], box[1] + 60)
    opened.mouse("mouseMoved", box[0] + 0.6 * box[2], box[1] + 60)
    opened.mouse("mouseReleased", box[0] + 0.6 * box[2], box[1] + 60)
    first, last = seconds(opened)
    assert last - first < 0.2 * (whole[1] - whole[0])
    opened.ask("document.querySelector('#drawing').parentElement.focus()")
    opened.key("-")
    assert seconds(opened)[1] - seconds(opened)[0] == pytest.approx(2 * (last - first), abs=0.01)
    opened.key("0")
    assert seconds(opened) == whole


def test_a_step_of_the_story_leads_to_its_moment_in_the_timeline(opened):
    step = "[...document.querySelectorAll('.steps a.when')].at(-1)"
    moment = opened.ask(f"+{step}.dataset.at")

    click(opened, step)

    first, last = seconds(opened)
    assert first <= moment <= last + 0.001  # what is shown is rounded
    start, end = map(float, opened.ask("location.hash").removeprefix("#t=").split(","))
    assert (start, end) == (pytest.approx(first, abs=0.002), pytest.approx(last, abs=0.002))
    top = opened.ask("document.querySelector('#timeline').getBoundingClientRect().top")
    assert -5 <= top <= opened.ask("window.innerHeight") / 2


def test_the_line_to_repeat_the_run_is_copied(opened):
    opened.send("Browser.grantPermissions", permissions=["clipboardReadWrite", "clipboardSanitizedWrite"])
    line = opened.ask("document.querySelector('#again').textContent")
    assert line.startswith("tribunal run")

    click(opened, "document.querySelector('#copy')")

    copied_text = "new Promise(done => { const look = () => copied.textContent ? done(copied.textContent) : setTimeout(look, 20); look(); })"
    assert opened.ask(copied_text) == "copied"
    assert opened.ask("navigator.clipboard.readText()") == line


def test_it_prints(browser, report):
    browser.look(1280, media="print")
    browser.open(report.as_uri())

    assert browser.pdf().startswith(b"%PDF")


def test_paper_has_the_whole_run_and_the_screen_is_then_as_it_was(browser, report):
    """Whoever had zoomed in and printed found the whole run on the screen again."""
    shown = "[document.querySelector('#from-range').value, document.querySelector('#to-range').value].map(Number)"
    browser.look(1280)
    browser.open("about:blank")  # from the page itself another stretch would be no new page
    browser.open(f"{report.as_uri()}#t=4,6")
    before = browser.ask(shown)
    browser.ask(f"addEventListener('beforeprint', () => {{ window.printed = {shown}; }})")

    browser.pdf()

    assert browser.ask("window.printed") == [0, 1000]
    assert browser.ask(shown) == before != [0, 1000]


@pytest.mark.parametrize("width", [390, 420, 1280])
def test_the_first_screens_picture_is_whole_and_readable_at_every_width(browser, report, width):
    browser.look(width)
    browser.open(report.as_uri())

    shown = "[...document.querySelectorAll('#verdict svg.overview')].filter(one => one.getClientRects().length)"
    (left, right), *others = browser.ask(
        f"{shown}.map(one => one.getBoundingClientRect()).map(box => [box.left, box.right])"
    )
    least = browser.ask(
        f"Math.min(...[...{shown}[0].querySelectorAll('text')].map(one => one.getBoundingClientRect().height))"
    )

    assert others == []
    assert 0 <= left < right <= width
    assert least > 9  # pixels from the top of a letter to its foot


@pytest.mark.parametrize("dark", [pytest.param(False, id="light"), pytest.param(True, id="dark")])
@pytest.mark.parametrize("width", [390, 1280])
def test_it_has_no_grave_accessibility_problem(browser, report, width, dark):
    text = script()
    if text is None:
        pytest.skip("axe-core is neither cached nor to be had by npm")
    browser.look(width, dark=dark)
    browser.open(report.as_uri())

    assert complaints(browser, text) == []


def press(browser, *keys):
    browser.ask("document.querySelector('#drawing').parentElement.focus()")
    for key in keys:
        browser.key(key)


def test_events_are_stepped_through_by_keys_and_said(opened):
    press(opened, "n", "n", "p")

    said = opened.ask("document.querySelector('#spoken').textContent")
    assert re.search(r"\(1 of \d+\)$", said)
    first, last = seconds(opened)
    assert first <= float(said.partition(" ")[0]) <= last


def test_the_line_at_a_moment_moves_with_the_drawing(opened):
    """It stayed where it was, and the read-out beside it was of another moment than it stood at."""
    press(opened, "n", "ArrowRight")

    moment = float(opened.ask("document.querySelector('#readout').textContent").partition(" ")[0])
    first, last = seconds(opened)
    left, plot = opened.ask("(d => [+d.left, +d.plot])(document.querySelector('#drawing').dataset)")
    x = float(opened.ask("document.querySelector('#crosshair').getAttribute('transform')").split("(")[1].split()[0])
    assert x == pytest.approx(left + plot * (moment - first) / (last - first), abs=1)


def test_who_pressed_a_button_goes_on_with_keys(opened):
    """The keys worked in the drawing alone, and whoever had pressed "Next event" pressed n in vain."""
    click(opened, button("Next event"))
    opened.key("n")

    assert re.search(r"\(2 of \d+\)$", opened.ask("document.querySelector('#spoken').textContent"))


def test_the_read_out_stays_in_view_where_the_pointer_is_far_below(opened):
    press(opened, "n")
    opened.ask(
        "[...document.querySelectorAll('#drawing g.chart')].at(-1).scrollIntoView({block: 'end', behavior: 'instant'})"
    )

    top, bottom = opened.ask("(b => [b.top, b.bottom])(document.querySelector('#readout').getBoundingClientRect())")
    assert 0 <= top < bottom <= opened.ask("window.innerHeight")


def test_with_shift_the_drawing_is_moved(opened):
    press(opened, "v")
    first, last = seconds(opened)
    opened.ask("document.querySelector('#drawing').scrollIntoView({block: 'start', behavior: 'instant'})")
    x, y, width = opened.ask("(b => [b.x, b.y, b.width])(document.querySelector('#drawing').getBoundingClientRect())")

    for event, share in (("mousePressed", 0.5), ("mouseMoved", 0.4), ("mouseReleased", 0.4)):
        opened.mouse(event, x + share * width, y + 60, shift=True)

    assert seconds(opened)[0] == pytest.approx(first + 0.1 * 1240 / 1014 * (last - first), rel=0.05)
    assert seconds(opened)[1] - seconds(opened)[0] == pytest.approx(last - first, abs=0.01)


def test_the_moments_of_the_finding_are_named_below_the_drawing(opened):
    moment = "document.querySelector('.moments a.when')"
    at = opened.ask(f"+{moment}.dataset.at")

    click(opened, moment)

    first, last = seconds(opened)
    assert first <= at <= last
    assert len(opened.ask(f"{moment}.parentElement.innerText").split()) > 2


def test_the_read_out_has_the_recorded_values_at_that_moment(opened):
    press(opened, "p")
    moment = float(opened.ask("document.querySelector('#readout').textContent").partition(" ")[0])
    name, values = opened.ask(
        "(p => [p.dataset.name, p.dataset.values])([...document.querySelectorAll('path[data-values]')].find(p => p.dataset.name.startsWith('node-') && !p.dataset.name.includes('log end')))"
    )
    before = [pair.split(":") for pair in values.split() if int(pair.split(":")[0]) / 1000 <= moment]

    assert f"{name} {int(before[-1][1]):,}" in opened.ask("document.querySelector('#readout').textContent")


def test_a_chosen_stretch_fits_its_charts_scales(opened):
    scale = "[...document.querySelector('g.chart').querySelectorAll('.scale-label')].map(l => +l.textContent.replace(/,/g, ''))"
    whole = opened.ask(scale)

    press(opened, "v", "+", "+")

    chosen = opened.ask(scale)
    assert chosen == sorted(chosen)
    assert chosen[-1] - chosen[0] < whole[-1] - whole[0]
    press(opened, "0")
    assert opened.ask(scale) == whole


def test_the_overview_is_a_brush_with_handles_for_keys(opened):
    whole = seconds(opened)
    opened.ask("document.querySelector('#brush').scrollIntoView({block: 'center', behavior: 'instant'})")
    box = opened.ask("(b => [b.x, b.y, b.width])(document.querySelector('#brush').getBoundingClientRect())")

    opened.mouse("mousePressed", box[0] + 0.3 * box[2], box[1] + 30)
    opened.mouse("mouseMoved", box[0] + 0.4 * box[2], box[1] + 30)
    opened.mouse("mouseReleased", box[0] + 0.4 * box[2], box[1] + 30)
    first, last = seconds(opened)
    assert last - first == pytest.approx(0.1 * 1240 / 1014 * (whole[1] - whole[0]), rel=0.2)
    opened.ask("document.querySelector('#to-range').focus()")
    opened.key("ArrowRight")
    assert seconds(opened)[1] > last
    assert seconds(opened)[0] == first


def test_the_first_screen_has_what_happened_and_the_first_wrong_read(opened):
    said = opened.ask("document.querySelector('#verdict').innerText")

    assert "records that had to survive are lost" in said
    assert "3 brokers, 3 controllers" in said
    assert "platform" not in said
    assert "The first wrong read" in opened.ask("document.querySelector('#operations').innerText")
    assert "{'" not in opened.ask("document.body.innerText")


def figures(report, **environment):
    """Call `tribunal report --figures`; return the files that it names."""
    done = subprocess.run(
        [*TRIBUNAL, "report", report.parent, "--figures"], cwd=ROOT, capture_output=True, text=True, check=True,
        env={**os.environ, **environment},
    )  # fmt: skip
    return [Path(line) for line in done.stdout.splitlines()[1:]]


def test_the_drawings_are_files_that_stand_alone(report):
    drawn = figures(report, PATH="")  # no browser: no pictures in pixels

    assert {path.name for path in drawn} == {
        f"{name}.svg" for name in ("overview", "story", "timeline", "matrix", "operations")
    }
    for path in drawn:
        assert ElementTree.parse(path).getroot().tag == "{http://www.w3.org/2000/svg}svg"
        assert "var(--" not in path.read_text()


@pytest.mark.nightly
def test_a_browser_makes_pixels_of_the_drawings(report):
    drawn = [path for path in figures(report) if path.suffix == ".png"]

    assert len(drawn) == 5
    assert all(path.read_bytes().startswith(b"\x89PNG") for path in drawn)


@pytest.mark.parametrize("dark", [pytest.param(False, id="light"), pytest.param(True, id="dark")])
@pytest.mark.parametrize("width", [390, 1280])
def test_the_report_leads_to_its_rows_where_it_is_served_and_only_there(browser, report, width, dark):
    browser.look(width, dark=dark)
    browser.open(report.as_uri())
    assert browser.ask("[...document.querySelectorAll('a.served')].every(a => a.hidden)")
    with server(report.parent.parent, 0) as running:
        thread = threading.Thread(target=running.serve_forever, daemon=True)
        thread.start()
        address = f"http://127.0.0.1:{running.server_address[1]}/{report.parent.name}"

        browser.open(f"{address}/report.html")
        link = browser.ask("[...document.querySelectorAll('#findings a.served')].find(a => !a.hidden).href")
        browser.complaints.clear()
        browser.open(link)
        rows = browser.ask("document.querySelectorAll('tbody th a').length")
        fits = browser.ask("document.documentElement.scrollWidth <= window.innerWidth")
        axe = script()
        grave = [] if axe is None else complaints(browser, axe)
        running.shutdown()
        thread.join()

    assert "value=" in link
    assert rows == 1
    assert fits
    assert grave == []
    assert browser.complaints == []


def test_a_window_is_a_page_of_its_own_in_which_everything_moves_within_it(browser, report):
    said = subprocess.run(
        [*TRIBUNAL, "report", report.parent, "--window", "3:6.5"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert said.returncode == 0, said.stderr
    browser.complaints.clear()
    browser.look(1280)
    browser.open((report.parent / "report-3-6.5.html").as_uri())

    assert seconds(browser) == (3, 6.5)
    press(browser, "+")
    first, last = seconds(browser)
    assert 3 < first < last < 6.5
    press(browser, "Home")
    assert seconds(browser)[0] == 3
    press(browser, "End")
    assert seconds(browser)[1] == 6.5
    press(browser, "n")
    moment = float(browser.ask("document.querySelector('#spoken').textContent").partition(" ")[0])
    assert 3 <= moment <= 6.5
    press(browser, "0")
    assert seconds(browser) == (3, 6.5)
    assert browser.complaints == []


def test_a_time_outside_of_a_window_leads_to_the_whole_run(browser, report):
    """It led to a sliver at the window's edge, with nothing of that time in it."""
    command = [*TRIBUNAL, "report", report.parent, "--window", "10:11"]
    subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    browser.look(1280)
    browser.open((report.parent / "report-10-11.html").as_uri())
    outside = "[...document.querySelectorAll('#story a.when')].find(link => +link.dataset.at < 10)"
    moment = browser.ask(f"+{outside}.dataset.at")
    address = browser.ask(f"{outside}.href")

    browser.open(address)

    assert address.startswith(f"{report.as_uri()}#t=")
    assert seconds(browser)[0] <= moment <= seconds(browser)[1]


WIDTHS = pytest.mark.parametrize("width", [390, 1280])
IN_VIEW = "(b => b.bottom > 42 && b.top < innerHeight)"  # below the bar that stays at the top


def is_in_view(browser, element: str) -> bool:
    return bool(browser.ask(f"{IN_VIEW}({element}.getBoundingClientRect())"))


@WIDTHS
def test_a_step_of_the_story_leads_to_the_proof_of_its_fault(browser, report, width):
    browser.complaints.clear()
    browser.look(width)
    browser.open(report.as_uri())
    link = "document.querySelector('#story .steps a[href^=\"#fault-\"]')"

    click(browser, link)

    fault = browser.ask("location.hash")
    row = f"document.querySelector('{fault}')"
    assert fault == browser.ask(f"{link}.getAttribute('href')")
    assert is_in_view(browser, row)
    step_text = browser.ask(f"{link}.closest('li').textContent")
    assert browser.ask(f"{row}.querySelector('th').textContent") in step_text  # the same kind of fault
    browser.ask(f"{row}.querySelector('summary').focus()")
    browser.key("Enter")
    assert browser.ask(f"{row}.querySelector('details').open")
    assert '":' in browser.ask(f"{row}.querySelector('pre').textContent")
    assert browser.ask("document.documentElement.scrollWidth <= window.innerWidth")
    assert browser.complaints == []


@WIDTHS
@pytest.mark.parametrize("place", ["operations", "wrong-read", "matrix"])
def test_a_step_of_the_story_leads_to_where_the_page_shows_more_of_it(browser, report, width, place):
    browser.look(width)
    browser.open(report.as_uri())
    link = f"document.querySelector('#story .steps a[href=\"#{place}\"]')"

    browser.ask(f"{link}.focus()")
    browser.key("Enter")

    assert browser.ask("location.hash") == f"#{place}"
    assert is_in_view(browser, f"document.getElementById('{place}')")


@WIDTHS
def test_a_finding_leads_to_its_rows_and_each_row_to_all_that_is_recorded_by_keys_alone(browser, report, width):
    browser.look(width)
    with server(report.parent.parent, 0) as running:
        thread = threading.Thread(target=running.serve_forever, daemon=True)
        thread.start()
        browser.complaints.clear()
        browser.open(f"http://127.0.0.1:{running.server_address[1]}/{report.parent.name}/report.html")
        witness = "[...document.querySelectorAll('#findings a.served')].find(a => !a.hidden)"
        number, process = re.findall(r"\d+", browser.ask(f"{witness}.textContent"))

        follow(browser, witness)
        shown = browser.ask("document.querySelector('tbody').innerText")
        follow(browser, "document.querySelector('tbody th a')")
        raw = json.loads(browser.ask("document.body.innerText"))
        running.shutdown()
        thread.join()

    assert f"record {number} of process {process}" in shown
    assert (raw["process"], raw["value"] & (1 << 40) - 1) == (int(process), int(number))
    assert {"acks", "outcome", "log_offset", "invoke_ns", "complete_ns"} <= set(raw)
    assert browser.complaints == []


def follow(browser, link: str) -> None:
    """Go where a link leads, by the key Enter."""
    target = browser.ask(f"{link}.href")
    browser.ask(f"{link}.focus()")
    browser.loaded = False
    browser.key("Enter")
    browser.wait_until_loaded()
    assert browser.ask("location.href") == target


@WIDTHS
def test_everything_that_can_be_done_is_reached_by_the_tabulator(browser, report, width):
    browser.look(width)
    browser.open(report.as_uri())
    name = "(e => e.id ? '#' + e.id : e.dataset.do || e.getAttribute('href') || e.tagName)(document.activeElement)"
    wanted = browser.ask(
        "[...document.querySelectorAll('a[href], button, summary, input, [tabindex=\"0\"]')].filter(e => e.getClientRects().length && e.checkVisibility()).length"
    )

    reached, outlined = [], []
    while len(reached) <= wanted + 5:
        browser.key("Tab")
        if browser.ask("document.activeElement === document.body"):
            break
        reached.append(browser.ask(name))
        outlined.append(browser.ask("getComputedStyle(document.activeElement).outlineStyle"))

    assert reached[0] == "#main"  # over everything else that is before it
    assert len(reached) == wanted
    assert {"in", "next", "#copy", "#again", "SUMMARY"} <= set(reached)
    assert any(one.startswith("#fault-") for one in reached)
    assert set(outlined) <= {"solid", "auto"}
    assert reached.index("#verdict") < reached.index("#copy") < reached.index("in") < reached.index("SUMMARY")
