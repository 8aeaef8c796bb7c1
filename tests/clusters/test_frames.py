"""Messages in a stream: cut at any byte, known by their heads, decided by rules."""

import itertools
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tribunal.clusters.capabilities import Fate, FrameRule
from tribunal.clusters.frame_rules import Questions, Rules
from tribunal.clusters.links.frames import REQUEST_HEAD_BYTES, RESPONSE_HEAD_BYTES, Conversation, Cutter
from tribunal.clusters.links.send_queue import SendQueue

FETCH, PRODUCE = 1, 0


def request(api, correlation_id, body=b"body"):
    return struct.pack(">ihhi", 8 + len(body), api, 1, correlation_id) + body


def response(correlation_id, body=b"answer"):
    return struct.pack(">ii", 4 + len(body), correlation_id) + body


def fed(cutter, data, cuts=()):
    bounds = [0, *sorted({min(cut, len(data)) for cut in cuts}), len(data)]
    return [piece for start, end in itertools.pairwise(bounds) for piece in cutter.feed(data[start:end])]


@given(
    st.lists(st.tuples(st.integers(0, 80), st.binary(max_size=40)), max_size=8),
    st.lists(st.integers(0, 400), max_size=12),
)
def test_every_byte_passes_in_order_however_it_is_cut(messages, cuts):
    stream = b"".join(request(api, number, body) for number, (api, body) in enumerate(messages))
    cutter = Cutter(Conversation(1, 2).request, REQUEST_HEAD_BYTES)

    pieces = fed(cutter, stream, cuts)

    assert b"".join(piece.data for piece in pieces) == stream
    heads = [piece.head for piece in pieces if piece.is_first]
    assert [(head.api, head.correlation_id) for head in heads] == [(api, n) for n, (api, _) in enumerate(messages)]
    assert sum(piece.is_last for piece in pieces) == len(messages)
    assert cutter.at_boundary


def test_an_answer_is_known_by_its_question():
    talk = Conversation(1, 2)
    fed(Cutter(talk.request, REQUEST_HEAD_BYTES), request(FETCH, 7) + request(PRODUCE, 8))

    pieces = fed(Cutter(talk.response, RESPONSE_HEAD_BYTES), response(7) + response(8) + response(9))

    assert [piece.head.api for piece in pieces] == [FETCH, PRODUCE, -1]
    assert (pieces[0].head.source, pieces[0].head.target) == (2, 1)


def test_what_is_no_frame_passes_unseen():
    cutter = Cutter(Conversation(0, 1).request, REQUEST_HEAD_BYTES)

    pieces = fed(cutter, b"\xff" * 30) + fed(cutter, request(FETCH, 1))

    assert b"".join(piece.data for piece in pieces) == b"\xff" * 30 + request(FETCH, 1)
    assert {piece.head.api for piece in pieces} == {-1}


@pytest.mark.parametrize(
    ("rule", "hits"),
    [
        pytest.param({}, 2, id="any request"),
        pytest.param({"api": FETCH}, 1, id="by api"),
        pytest.param({"source": 1}, 2, id="by caller"),
        pytest.param({"source": 3}, 0, id="of another caller"),
        pytest.param({"target": 2}, 2, id="by target"),
        pytest.param({"direction": "response"}, 0, id="answers only"),
        pytest.param({"limit": 1}, 1, id="the first only"),
    ],
)
def test_a_rule_takes(rule, hits):
    rules = Rules()
    found = rules.add(FrameRule(fate=Fate.DROPPED, **rule))

    for piece in fed(Cutter(Conversation(1, 2).request, REQUEST_HEAD_BYTES), request(FETCH, 1) + request(PRODUCE, 2)):
        piece.head.decide(rules, nothing_moves)

    assert found.hit_count == hits


def under(rule):
    rules = Rules()
    rules.add(rule)
    return rules


def nothing_moves():
    """Leave it to the test to look who may leave."""


def queued(rules, *messages, delay_s=0.0):
    """Put messages into a send queue under these rules; return the queue."""
    queue = SendQueue(lambda head, size: delay_s)
    cutter = Cutter(Conversation(1, 2).request, REQUEST_HEAD_BYTES)
    for message in messages:
        for piece in cutter.feed(message):
            if piece.is_first:
                piece.head.decide(rules, nothing_moves)
            queue.put(piece)
    return queue


def test_a_dropped_message_is_missing_and_its_neighbours_are_not():
    rules = under(FrameRule(fate=Fate.DROPPED, api=FETCH))

    queue = queued(rules, request(PRODUCE, 1), request(FETCH, 2), request(PRODUCE, 3))

    assert b"".join(queue.leaving(0.0)) == request(PRODUCE, 1) + request(PRODUCE, 3)


def test_a_doubled_message_comes_twice():
    rules = under(FrameRule(fate=Fate.DUPLICATED, api=FETCH))

    queue = queued(rules, request(FETCH, 2), request(PRODUCE, 3))

    assert b"".join(queue.leaving(0.0)) == request(FETCH, 2) * 2 + request(PRODUCE, 3)


def test_what_is_behind_a_held_message_waits_with_it():
    rules = Rules()
    rule = rules.add(FrameRule(fate=Fate.HELD, api=FETCH))
    queue = queued(rules, request(PRODUCE, 1), request(FETCH, 2), request(PRODUCE, 3))

    assert queue.leaving(0.0) == [request(PRODUCE, 1)]
    assert rule.open_gates() == 1
    assert queue.leaving(0.0) == [request(FETCH, 2), request(PRODUCE, 3)]
    assert queue.is_empty


def test_what_may_be_overtaken_is():
    rules = Rules()
    rule = rules.add(FrameRule(fate=Fate.HELD, api=FETCH, overtaking=True))
    queue = queued(rules, request(FETCH, 2), request(PRODUCE, 3))

    assert queue.leaving(0.0) == [request(PRODUCE, 3)]
    assert not queue.is_empty
    rule.open_gates()
    assert queue.leaving(0.0) == [request(FETCH, 2)]


def test_nothing_leaves_before_its_time():
    queue = queued(under(FrameRule(fate=Fate.DROPPED, api=99)), request(FETCH, 1), delay_s=5.0)

    assert queue.leaving(4.9) == []
    assert queue.next_due_s() == 5.0
    assert queue.leaving(5.0) == [request(FETCH, 1)]


def test_a_send_queue_can_be_lost():
    queue = queued(under(FrameRule(fate=Fate.HELD)), request(FETCH, 1))

    assert queue.clear() == len(request(FETCH, 1))
    assert queue.is_empty


@pytest.mark.parametrize(("its_time_came", "released"), [(False, 1), (True, 0)])
def test_what_has_gone_on_is_not_let_go_again(its_time_came, released):
    rules, moves = Rules(), []
    rule = rules.add(FrameRule(fate=Fate.DELAYED))
    gate = rule.gate(lambda: moves.append("on"))
    if its_time_came:
        gate.open()

    assert rules.remove(rule) == released
    assert (moves, rule.held_count) == (["on"], 0)


@pytest.mark.parametrize(("doubled", "swallowed"), [(False, [False, False]), (True, [True, False])])
def test_one_answer_is_swallowed_for_each_doubled_request(doubled, swallowed):
    questions = Questions()
    questions.ask(7, (FETCH, 1))
    if doubled:
        questions.double(7)

    assert questions.answer(7) == (FETCH, 1)
    assert [questions.swallows(7), questions.swallows(7)] == swallowed
