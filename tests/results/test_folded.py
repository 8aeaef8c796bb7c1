"""Rows with more bars than can be seen are folded, and nothing that can be seen is."""

from tribunal.results.report.folded import MOST_IN_FULL, NARROW, folded
from tribunal.results.report.layout import Bar


def bars(count, *, y=0.0, width=0.5, kind="b0", step=0.5):
    return [Bar(100 + number * step, y, width, kind, "1", f"change {number}", "1") for number in range(count)]


def test_a_row_that_can_be_seen_is_drawn_in_full_beside_one_that_cannot():
    few, many = bars(MOST_IN_FULL), bars(MOST_IN_FULL + 1, y=16)

    drawn = folded([*few, *many], [])

    assert [bar for bar in drawn if bar.y == 0] == few
    assert len([bar for bar in drawn if bar.y == 16]) == -(-len(many) // int(NARROW / 0.5))


def test_a_folded_bar_covers_what_it_stands_for_and_says_how_many():
    first, *_, last = folded(bars(600), [])

    assert (first.x, first.width, first.kind) == (100, NARROW, "many")
    assert first.title == "6 too narrow to be drawn one by one. The first: change 0. The last: change 5"
    assert last.x + last.width == 100 + 600 * 0.5


def test_what_is_wide_and_what_lies_around_the_finding_is_never_folded():
    wide = Bar(150.2, 0, 40, "noleader", "none", "nobody led", "none")

    drawn = folded([*bars(600), wide], [(200, 210)])

    assert wide in drawn
    assert [bar.title for bar in drawn if 200 <= bar.x <= 210] == [f"change {number}" for number in range(200, 221)]


def test_a_fault_without_effect_among_many_leaves_its_hatching():
    crowd = bars(600)
    crowd[3] = Bar(crowd[3].x, 0, 0.5, "fault noeffect", "", "kill: NO EFFECT", "")

    assert [bar.kind for bar in folded(crowd, [])].count("many hatched") == 1
