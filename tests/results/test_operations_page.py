"""The rows of a recording as `tribunal serve` pages through them: filtered, in order of time, each with its raw row."""

import http.client
import json
import re
import threading

import pytest

from tribunal.harness.cli.pages import server
from tribunal.results.manifest import Made
from tribunal.results.report.operations_page import ROWS, operations_page, wanted
from tribunal.results.store import Recorder, Recording
from tribunal.results.values import value_of

S = 1_000_000_000
SENDS = 2 * ROWS + 50


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """Sends of two processes, written in an order that is not that of time; every hundredth failed."""
    folder = tmp_path_factory.mktemp("runs")
    (folder / "run").mkdir()
    recorder = Recorder(folder / "run", "run")
    for number in reversed(range(SENDS)):
        failed = number % 100 == 99
        recorder.row(
            "sends", process=number % 2, worker_class="plain", topic="<t>", partition=0, value=value_of(number % 2, number),
            acks=-1 if number % 3 else 1, invoke_ns=number * S, complete_ns=number * S + 1, outcome="fail" if failed else "ok",
            error="NOT_ENOUGH_REPLICAS" if failed else None, log_offset=None if failed else number,
        )  # fmt: skip
    recorder.finish(Made())
    return folder


def values(runs, query):
    page = operations_page(Recording.open(runs / "run"), wanted(query))
    return page, [float(row.cells[0]) for row in page.rows]


def test_without_a_question_the_first_rows_in_order_of_time_are_shown(runs):
    page, times = values(runs, "")

    assert (page.count, page.of, page.pages) == (SENDS, SENDS, 3)
    assert times == [float(second) for second in range(ROWS)]


def test_the_last_page_has_the_rest(runs):
    assert values(runs, "page=3")[1] == [float(second) for second in range(2 * ROWS, SENDS)]


@pytest.mark.parametrize(
    ("query", "found"),
    [
        pytest.param("process=1&until=4", [1, 3], id="process and time"),
        pytest.param("since=447.5", [448, 449], id="a time between two"),
        pytest.param("acks=1&until=6", [0, 3, 6], id="acks"),
        pytest.param("outcome=fail", [99, 199, 299, 399], id="outcome"),
        pytest.param("text=not_enough&since=200", [299, 399], id="text in whatever case"),
        pytest.param("offset=98", [98], id="offset"),
        pytest.param(f"value={value_of(1, 7)}", [7], id="value"),
        pytest.param("record=7", [7], id="record by its number"),
        pytest.param("record=7&process=0", [], id="another process's record of this number"),
        pytest.param("offset=99", [], id="an offset that nobody got"),
        pytest.param("process=7", [], id="nobody"),
    ],
)
def test_a_filter_keeps_what_matches(runs, query, found):
    page, times = values(runs, query)

    assert times == found
    assert page.count == len(found)


@pytest.fixture
def get(runs):
    with server(runs, 0) as running:
        thread = threading.Thread(target=running.serve_forever, daemon=True)
        thread.start()
        port = running.server_address[1]

        def asked(path):
            connection = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
            connection.request("GET", path)
            answer = connection.getresponse()
            content = answer.read().decode()
            connection.close()
            return answer, content

        yield asked
        running.shutdown()
        thread.join()


def test_a_row_leads_to_itself_as_it_is_stored(get):
    _, page = get("/run/operations.html?offset=7")
    (link,) = re.findall(r'href="(row\.json[^"]+)"', page)

    answer, row = get(f"/run/{link.replace('&amp;', '&')}")

    assert answer.status == 200
    assert json.loads(row) | {"process": 1, "log_offset": 7, "acks": -1, "topic": "<t>"} == json.loads(row)


def test_a_record_is_named_by_its_process_and_its_number(get):
    """A column of numbers such as 1099511627783 said nothing to anybody."""
    _, page = get("/run/operations.html?record=7")

    assert '<th scope="col">record</th>' in page
    assert "<td>record 7 of process 1</td>" in page
    assert str(value_of(1, 7)) not in page


def test_what_was_asked_for_is_shown_as_text(get):
    answer, page = get("/run/operations.html?text=%3Cscript%3E")

    assert answer.status == 200
    assert "form-action 'self'" in answer.getheader("Content-Security-Policy")
    assert "<script" not in page
    assert "&lt;script&gt;" in page


@pytest.mark.parametrize(
    ("path", "status"),
    [
        pytest.param("/run/operations.html?page=0", 400, id="no such page"),
        pytest.param("/run/operations.html?process=x", 400, id="no number"),
        pytest.param("/run/operations.html?table=nodes", 400, id="a table that is not shown"),
        pytest.param("/run/operations.html?since=nan", 400, id="no time"),
        pytest.param("/run/operations.html?process=99999999999999999999", 400, id="a number that no column holds"),
        pytest.param("/run/operations.html?unknown=1", 400, id="unknown"),
        pytest.param("/run/row.json?table=sends&partition=%3Ct%3E-0&row=450", 404, id="behind the last row"),
        pytest.param("/run/row.json?table=sends&partition=t-9&row=0", 404, id="no such partition"),
        pytest.param("/operations.html", 404, id="no run"),
    ],
)
def test_a_wrong_question_is_refused(get, path, status):
    assert get(path)[0].status == status
