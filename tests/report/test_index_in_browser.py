"""The page over many runs in a real browser, served and as a file: filters, hostile strings, accessibility."""

import http.client
import shutil
import socket
import sys
import threading
from pathlib import Path

import msgspec
import pytest

from tribunal.harness.cli.main import exit_code
from tribunal.harness.cli.pages import server
from tribunal.results.night import Canary, FoundTonight, Night, Swept
from tribunal.results.night_files import save as save_night
from tribunal.results.report.index import index, render, write
from tribunal.results.sensitivity import Figure, Sensitivity
from tribunal.results.verdict import Finding, RunVerdict, Verdict, save

sys.path.insert(0, str(Path(__file__).parent))
from axe import complaints, script
from browser import CHROMIUM, Browser

HOSTILE = "<img src=x onerror=\"document.title='owned'\"></script><script>document.title='owned'</script>"
in_browser = pytest.mark.skipif(
    CHROMIUM is None, reason="no Chromium on this machine (Debian: apt-get install chromium)"
)
pytestmark = pytest.mark.e2e


def made(folder, number, verdict, scenario="produce-consume", claim="fine", cluster="simulated", mutants=()):
    run_id = f"20261121T0{number // 60 % 10}{number % 60:02d}00Z-{scenario}-{cluster}-{number}"
    run = folder / run_id
    run.mkdir(parents=True)
    findings = []
    if verdict is Verdict.VIOLATION:
        findings = [
            Finding(property_name="lost_writes", kind="lost", severity="violation", explanation=HOSTILE, topic=HOSTILE, partition=0)
        ]  # fmt: skip
    save(RunVerdict(run_id=run_id, verdict=verdict, claim=claim, findings=findings), run / "verdict.json")
    manifest = {"scenario": scenario, "cluster": cluster, "seed": number, "mutants": list(mutants)}
    (run / "manifest.json").write_bytes(msgspec.json.encode(manifest))
    (run / "simulation.json").write_bytes(msgspec.json.encode({"probes": {"elr_nonempty": number}}))
    return run


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    runs = tmp_path_factory.mktemp("many") / "runs"
    for number in range(60):
        made(runs, number, Verdict.PASS if number % 3 else Verdict.PERMITTED)
    made(runs, 60, Verdict.VIOLATION, claim=HOSTILE, scenario="rotating-swarm")
    made(runs, 61, Verdict.VIOLATION, cluster="processes")
    made(runs, 62, Verdict.VIOLATION, mutants=["m44_acks_local"])
    made(runs, 63, Verdict.INCONCLUSIVE, cluster="containers")
    (runs / "broken").mkdir()
    (runs / "broken" / "verdict.json").write_text("{")
    night = Night(
        name="n", began="2026-11-21T02:00:00Z", commit="c" * 40, lock_sha256="l", shard="1/1", budget_s=60.0, first_seed=1,
        swept=[Swept(scenario="rotating-swarm", runs=3, seconds=9.0, verdicts={"PASS": 3})],
        canaries=[
            Canary(mutant="m01_no_elr", scenario="last-replica-standing", found=True, seen_by=["control_plane/x"], seeds=2, seconds=9.0, note=""),
            Canary(mutant="m44_acks_local", scenario="produce-consume", found=False, seen_by=[], seeds=80, seconds=60.0, note=""),
        ],
        found=[FoundTonight(signature="I4: #", state="known", known_as="old", count=4, scenarios=["swizzle"], seeds=[1], claim="c", run_dirs=[], again="tribunal run x")],
        sensitivity=Sensitivity(runs=["swizzle, seed 1"], figures={"hole": Figure(injected=3, seen=2), "torn": Figure(injected=0, seen=0)}),
        probes={"prevote_refused": 3}, cold=["unclean_recovery_started"],
    )  # fmt: skip
    save_night(night, runs / "night")
    return runs


@pytest.fixture(scope="module")
def browser(tmp_path_factory):
    opened = Browser(tmp_path_factory.mktemp("browser"))
    yield opened
    opened.close()


@pytest.fixture(scope="module")
def page(folder):
    return write(folder)


def test_known_bugs_switched_on_are_power_and_no_findings(folder):
    found = {one.signature: one for one in index(folder).signatures}

    assert found["lost_writes/lost"].count == 2
    assert found["lost_writes/lost"].state == "new"
    assert found["I4: #"].state == "known"


def test_what_the_judge_would_have_seen_is_beside_the_power(folder):
    (folder / "measured").mkdir()
    (folder / "measured" / "sensitivity.json").write_text(
        '{"figures": {"hole": {"injected": 1, "seen": 1}}, "runs": []}'
    )

    found = index(folder)

    assert found.sensitivity == {"hole": Figure(injected=4, seen=3)}
    assert "permits them: 3 of 4 were seen" in render(found)
    shutil.rmtree(folder / "measured")


def test_places_that_no_night_of_a_commit_reached_are_listed_by_part(folder):
    """Only a file beside the night named them, and the page how many there are."""
    newest, older, other = (
        ["replog.broker.isr.join: answers A", "replog.log.batch.read: raises B", "x.y: catches C"],
        ["replog.log.batch.read: raises B"],
        [],
    )
    for number, (commit, cold) in enumerate([("c", newest), ("c", older), ("d", other)]):
        night = Night(
            name="n", began=f"2026-11-2{3 - number}T02:00:00Z", commit=commit * 40, lock_sha256="l", shard="1/1", budget_s=60.0,
            first_seed=1, guards_known=9, guards_cold=cold,
        )  # fmt: skip
        save_night(night, folder / "guards" / str(number))

    found = index(folder / "guards")

    assert found.guards is not None
    assert (found.guards.nights, found.guards.count, found.guards.by_part) == (2, 1, {"replog.log": older})
    assert "No run reached these 1 of 9 places" in render(found)
    assert index(folder).guards == found.guards  # a night without guards says nothing of them
    shutil.rmtree(folder / "guards")
    assert index(folder).guards is None


def test_what_is_kept_says_what_is_new(folder, tmp_path):
    (tmp_path / "x.json").write_text('{"name": "x", "signature": "lost_writes/lost", "state": "fixed"}')
    (tmp_path / "y.json").write_text('{"name": "y", "signature": "gone/away", "state": "fixed"}')

    found = {one.signature: one.state for one in index(folder, tmp_path).signatures}

    assert found == {"lost_writes/lost": "regressed", "I4: #": "known", "gone/away": "fixed"}


def test_what_cannot_be_read_is_named(folder):
    assert [line.partition(":")[0] for line in index(folder).unreadable] == ["broken/verdict.json"]


@pytest.mark.parametrize(
    ("mutants", "words"),
    [
        pytest.param(["m44_acks_local"], "Nothing was found in runs without a known bug.", id="a known bug"),
        pytest.param([], "lost_writes/lost", id="a bug"),
    ],
)
def test_a_run_with_a_known_bug_is_no_finding_and_the_page_says_why_there_is_none(tmp_path, mutants, words):
    """Beside a red VIOLATION it said: nothing was found."""
    made(tmp_path, 1, Verdict.VIOLATION, mutants=mutants)

    text = write(tmp_path).read_text()

    assert words in text
    assert f"<h1>1 run in {tmp_path.name}</h1>" in text


def test_an_empty_folder_says_what_to_do(tmp_path):
    assert "tribunal run produce-consume" in render(index(tmp_path))


@in_browser
@pytest.mark.parametrize("dark", [pytest.param(False, id="light"), pytest.param(True, id="dark")])
@pytest.mark.parametrize("width", [390, 1280])
def test_it_fits_complains_of_nothing_and_is_accessible(browser, page, tmp_path, width, dark):
    browser.complaints.clear()
    browser.requests.clear()
    browser.look(width, dark=dark)
    browser.open(page.as_uri())

    assert browser.ask("document.documentElement.scrollWidth <= window.innerWidth")
    assert browser.ask("document.title") == "Tribunal · runs"
    assert browser.complaints == []
    assert browser.requests == [page.as_uri()]
    assert len(browser.picture(tmp_path / "page.png", whole=True)) > 10_000
    text = script()
    if text is None:
        pytest.skip("axe-core is neither cached nor to be had by npm")
    assert complaints(browser, text) == []


@in_browser
def test_filters_narrow_and_can_be_shared(browser, page):
    browser.look(1280)
    browser.open(page.as_uri())
    shown = "[...document.querySelectorAll('#rows tr')].filter(r => !r.hidden).length"
    everything = browser.ask(shown)

    browser.ask(
        "(s => { s.value = 'VIOLATION'; s.dispatchEvent(new Event('input')); })(document.querySelector('#verdict'))"
    )
    violations = browser.ask(shown)
    address = browser.ask("location.href")
    browser.ask("document.querySelector('#reset').click()")
    again = browser.ask(shown)
    browser.open("about:blank")
    browser.open(address)

    assert (everything, violations, again) == (64, 3, 64)
    assert browser.ask(shown) == 3
    assert browser.ask("document.querySelector('#shown').textContent") == "3 of 64 runs"
    assert browser.complaints == []


@in_browser
def test_without_javascript_everything_is_said(browser, page):
    browser.look(1280, script=False)
    browser.open(page.as_uri())
    browser.look(1280, script=True)
    text = browser.ask("document.body.innerText")

    assert all(
        word in text for word in ("lost_writes/lost", "m44_acks_local", "unclean_recovery_started", "rotating-swarm")
    )


@pytest.fixture
def serving(folder):
    (folder / "secret.txt").write_text("no kind of file that is shown")
    (folder.parent / "outside.json").write_text("{}")
    with server(folder, 0) as running:
        thread = threading.Thread(target=running.serve_forever, daemon=True)
        thread.start()
        yield running.server_address[1]
        running.shutdown()
        thread.join()


def asked(port, path, host=None):
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
    connection.request("GET", path, headers={"Host": host or f"127.0.0.1:{port}"})
    answer = connection.getresponse()
    content = answer.read()
    connection.close()
    return answer.status, content


def test_it_serves_the_index_and_files_below(serving):
    status, content = asked(serving, "/")

    assert status == 200
    assert b"rotating-swarm" in content
    assert asked(serving, "/night/nightly.json")[0] == 200


def test_a_page_of_anybody_may_do_nothing(serving):
    """A run's report may come from elsewhere: its own policy, if it has one, is no policy of ours."""
    connection = http.client.HTTPConnection("127.0.0.1", serving, timeout=10)
    for path in ("/", "/night/nightly.json"):
        connection.request("GET", path, headers={"Host": f"127.0.0.1:{serving}"})
        answer = connection.getresponse()
        answer.read()
        policy = answer.getheader("Content-Security-Policy")
        assert policy.startswith("default-src 'none'; ")
        assert "script-src 'sha256-" in policy
        assert "frame-ancestors 'none'" in policy
        assert "unsafe" not in policy.replace("style-src 'unsafe-inline'", "")
    connection.close()


@pytest.mark.parametrize(
    "path",
    [
        "/../outside.json",
        "/%2e%2e/outside.json",
        "/secret.txt",
        "/night/",
        "/nothing.json",
        "/%00.json",
        "//etc/passwd",
    ],
)
def test_it_serves_nothing_else(serving, path):
    assert asked(serving, path)[0] == 404


def test_a_page_of_somebody_else_cannot_reach_in(serving):
    assert asked(serving, "/", host="evil.example:80")[0] == 421


def test_a_port_in_use_is_one_line_and_3(folder, capsys):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]

        assert exit_code(["serve", str(folder), "--port", str(port)]) == 3
    assert f"port {port}" in capsys.readouterr().err
