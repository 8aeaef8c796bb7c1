"""The page of a described system: what `tools/try_system.py` writes into it is what it reads, and every page in the repository is as it writes it."""

from pathlib import Path

import msgspec
import pytest

from tools.try_system import PAGE, Page, Row, is_right, read_page, written
from tribunal.harness.scenario import BadScenario

PAGES = sorted((Path(__file__).resolve().parents[2] / "systems").glob(f"*/{PAGE}"))


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.parent.name)
def test_a_page_is_written_as_it_is_read(page: Path) -> None:
    """A change of what was found changes nothing else in the file."""
    text = page.read_text()

    assert written(text, msgspec.toml.decode(text, type=Page).row) == text


def test_what_is_wrong_with_a_page_is_one_line(tmp_path: Path) -> None:
    """It was a traceback."""
    (tmp_path / PAGE).write_text('row = [{scenario = "a.yaml", system = "b.toml", rigt = ["PASS"]}]\n')

    with pytest.raises(
        BadScenario, match=r"page.toml: row\[0\]: .*unknown field `rigt`; did you mean right\?|`right` is missing"
    ):
        read_page(tmp_path / PAGE)


def test_what_was_found_is_read_again() -> None:
    """The rows are as they were, and so are the lines above them."""
    row = Row("a.yaml", "b.toml", ("PASS", "INCONCLUSIVE"), seeds=2, found={"PASS": 19, "INCONCLUSIVE": 1})

    text = written("# A page.\nrow = [\n]\n", [row])

    assert msgspec.toml.decode(text, type=Page).row == (row,)
    assert text.startswith("# A page.\n")


@pytest.mark.parametrize(
    ("found", "right"),
    [
        pytest.param({"PASS": 3}, True, id="as it has to be"),
        pytest.param({"PASS": 3, "INCONCLUSIVE": 1}, True, id="one that may be beside it"),
        pytest.param({"INCONCLUSIVE": 4}, False, id="never as it has to be"),
        pytest.param({"PASS": 3, "VIOLATION": 1}, False, id="one accusation"),
        pytest.param({}, True, id="not run"),
    ],
)
def test_a_row_is_right_when_each_run_may_be_so(found: dict[str, int], *, right: bool) -> None:
    """One run with another verdict is enough to be wrong, and so is none with the first."""
    assert is_right(Row("a.yaml", "b.toml", ("PASS", "INCONCLUSIVE")), found) is right
