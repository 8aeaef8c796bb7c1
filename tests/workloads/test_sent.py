"""The whole record is compared: key, headers, timestamp and its type, not only the value."""

import pytest

from tribunal.clusters.api import LogEntry, ReceivedRecord
from tribunal.results.values import value_of
from tribunal.workloads.sent import SentRecords

VALUE = value_of(7, 1)


def a_record(key=b"key", headers=(), timestamp_ms=1_000, *, log_append_time=False):
    return ReceivedRecord(5, key, VALUE.to_bytes(8), 0, headers, timestamp_ms, log_append_time)


def sent(*, log_append_time=False, timestamp_ms=1_000):
    records = SentRecords(log_append_time=log_append_time)
    records.note(value_of(7, 0), b"another key", 999)
    records.note(VALUE, b"key", timestamp_ms)
    return records


def test_what_comes_back_as_it_was_sent_is_not_written_down():
    assert sent().difference(VALUE, a_record()) is None
    assert sent().difference(VALUE, a_record(timestamp_ms=None, log_append_time=None)) is None  # nobody says
    assert sent(timestamp_ms=None).difference(VALUE, a_record()) is None  # nobody knows


@pytest.mark.parametrize(("record", "words"), [
    pytest.param(a_record(key=b"another key"), "key b'another key'", id="another record's key"),
    pytest.param(a_record(key=None), "key None", id="no key"),
    pytest.param(a_record(headers=[("h", b"1")]), "headers [('h', b'1')]", id="a header"),
    pytest.param(a_record(timestamp_ms=1_001), "timestamp 1001 instead of 1000", id="another timestamp"),
    pytest.param(a_record(log_append_time=True), "timestamp type LogAppendTime", id="stamped by a broker"),
    pytest.param(a_record(key=b"", timestamp_ms=0), "key b'', timestamp 0 instead of 1000", id="both"),
])  # fmt: skip
def test_what_differs_is_said_in_words_behind_a_digest(record, words):
    digest, _, reported = sent().difference(VALUE, record).partition(" ")

    assert reported == words
    assert len(digest) == 16


def test_equal_texts_are_equal_records():
    one, same, other = (
        sent().difference(VALUE, a_record(headers=[("h", text)], timestamp_ms=stamp))
        for text, stamp in ((b"1", 5), (b"1", 5), (b"2", 5))
    )

    assert one == same != other


def test_values_that_are_none_of_ours_are_compared_too():
    read, same, other = (
        sent().difference(None, received)
        for received in (
            ReceivedRecord(5, b"key", b"damaged", 0, (), 1_000, False),
            LogEntry(1, "t", 0, 5, 0, None, 5, False, b"key", (), 1_000, False, None, b"damaged"),
            LogEntry(2, "t", 0, 5, 0, None, 5, False, b"key", (), 1_000, False, None, b"Damaged"),
        )
    )

    assert read == same != other


def test_a_topic_of_log_append_time_has_the_brokers_timestamps():
    records = sent(log_append_time=True)

    assert records.difference(VALUE, a_record(timestamp_ms=4_711, log_append_time=True)) is None
    assert records.difference(VALUE, a_record()).endswith("timestamp type CreateTime")


@pytest.mark.parametrize(("value", "words"), [
    pytest.param(value_of(7, 2), "never sent", id="a sequence too far"),
    pytest.param(value_of(8, 0), "never sent", id="a process that there is not"),
    pytest.param(None, "none of our values", id="not a value"),
])  # fmt: skip
def test_what_nobody_sent_is_described(value, words):
    assert sent().difference(value, a_record()).endswith(words)
