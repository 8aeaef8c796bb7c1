"""SQL texts are taken apart into steps, and a step that is named more than once is computed once."""

from collections.abc import Iterator
from typing import Any

import pytest

from tribunal.checkers.api import properties
from tribunal.checkers.spark.session import session
from tribunal.checkers.spark.sql import defined
from tribunal.checkers.spark.sql_steps import Steps, named, text_of


@pytest.fixture(scope="module")
def spark() -> Iterator[Any]:
    with session("local[2]") as spark:
        yield spark


def test_a_text_is_its_steps_and_a_query() -> None:
    text = text_of("""
WITH few AS (
  SELECT * FROM sends WHERE topic <> ')' -- not the end )
), fewer AS (SELECT COUNT(*) AS n FROM (SELECT 1 FROM few) f)
SELECT n FROM fewer, few
""")

    assert list(text.steps) == ["few", "fewer"]
    assert text.steps["fewer"] == "SELECT COUNT(*) AS n FROM (SELECT 1 FROM few) f"
    assert text.query == "SELECT n FROM fewer, few\n"


@pytest.mark.parametrize("sql", [
    pytest.param("SELECT 1 AS n FROM sends", id="no step"),
    pytest.param("WITH a(n) AS (SELECT 1) SELECT n FROM a", id="named columns"),
    pytest.param("WITH RECURSIVE a AS (SELECT 1 AS n) SELECT n FROM a", id="recursive"),
    pytest.param("WITH a AS (SELECT 1 AS n", id="no end"),
    pytest.param("WITH a AS (SELECT 1 AS n), a AS (SELECT 2 AS n) SELECT n FROM a", id="a name twice"),
])  # fmt: skip
def test_a_text_of_another_form_stays_whole(sql: str) -> None:
    assert text_of(sql) == ({}, sql)


def test_names_stand_behind_from_and_join() -> None:
    sql = "SELECT a.x, 'FROM b' FROM a JOIN (SELECT * FROM c) d ON a.x = d.x -- FROM e"

    assert list(named(sql)) == ["a", "c"]


def test_every_definition_is_taken_apart() -> None:
    for name in defined():
        sql = properties()[name].sql or ""
        assert bool(text_of(sql).steps) == sql.lstrip().startswith("WITH"), name


def test_a_step_is_one_in_several_texts_only_where_all_that_it_names_is_the_same() -> None:
    steps = "WITH a AS (SELECT {0} AS n), b AS (SELECT n FROM a) SELECT n FROM b"

    assert len(Steps([steps.format(1), steps.format(1) + " WHERE n > 0"]).often()) == 1
    assert not Steps([steps.format(1), steps.format(2)]).often()


@pytest.mark.spark
def test_a_step_may_have_the_name_of_a_view_which_other_texts_still_see(spark: Any) -> None:
    views = {"members": spark.range(0, 3)}
    kept: list[Any] = []

    def keep(frame: Any) -> Any:
        kept.append(frame)
        return frame.localCheckpoint(eager=False)

    hidden, seen = Steps([
        "WITH members AS (SELECT id + 10 AS id FROM members) SELECT a.id FROM members a JOIN members b ON a.id = b.id",
        "SELECT id FROM members",
    ]).frames(spark, views, keep)  # fmt: skip

    assert sorted(row.id for row in hidden.collect()) == [10, 11, 12]
    assert sorted(row.id for row in seen.collect()) == [0, 1, 2]
    assert len(kept) == 1
    assert spark.catalog.listTables() == []
