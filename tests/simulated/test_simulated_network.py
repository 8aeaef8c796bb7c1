"""Connections in the simulated world behave as TCP does on Linux."""

import pytest

from tribunal.clusters.api import CutMode
from tribunal.clusters.capabilities import Fate, FrameRule


def cut(pair, *directions, mode=CutMode.HOLD):
    pair.simulation.network.cut(hosts(pair, directions), mode)


def heal(pair, *directions):
    pair.simulation.network.heal(hosts(pair, directions))


def hosts(pair, directions):
    ends = {"->": (pair.client.host, pair.server.host), "<-": (pair.server.host, pair.client.host)}
    return [ends[direction] for direction in directions]


def test_bytes_arrive_in_order_after_a_latency(pair):
    for number in range(200):
        pair.say(b"%03d" % number)
    pair.run(0.1)
    early = pair.far.received
    pair.run(20)

    assert early == b""
    assert pair.far.received == b"".join(b"%03d" % number for number in range(200))


def test_both_ends_know_each_others_address(pair):
    near, far = pair.transport, pair.far.transport

    assert far.get_extra_info("peername") == near.get_extra_info("sockname")
    assert near.get_extra_info("peername") == ("10.0.0.1", 9092)
    assert far.get_extra_info("peername")[0] == "10.0.0.2"


def test_nobody_listening_refuses(pair):
    pair.server.kill()
    pair.dial()

    assert isinstance(pair.problem, ConnectionRefusedError)


def test_a_port_is_bound_once(pair):
    network = pair.simulation.network
    with pytest.raises(OSError, match="in use"):
        network.listen(pair.server.host, pair.server.process, "0.0.0.0", 9092, lambda: None)
    with pytest.raises(OSError, match="assign"):
        network.listen(pair.server.host, pair.server.process, "10.0.0.9", 9093, lambda: None)


def test_closing_delivers_what_was_written_and_then_the_end(pair):
    pair.say(b"last words")
    pair.call(pair.transport.close)
    pair.run(5)

    assert pair.far.received == b"last words"
    assert pair.far.ended == ["eof", None]
    assert pair.near.ended == [None]


def test_aborting_resets_the_peer(pair):
    pair.call(pair.transport.abort)
    pair.run(5)

    assert [type(problem) for problem in pair.far.ended] == [ConnectionResetError]


def test_a_killed_process_is_noticed_at_once(pair):
    pair.server.kill()
    pair.run(5)

    assert pair.near.ended == ["eof", None]


def test_what_a_killed_process_had_not_read_makes_the_end_a_reset(pair):
    pair.server.pause()
    pair.say(b"unread")
    pair.run(5)
    pair.server.kill()
    pair.run(5)

    assert [type(problem) for problem in pair.near.ended] == [ConnectionResetError]


def test_a_machine_without_power_says_nothing_until_it_is_up_again(pair):
    pair.server.power_fail()
    pair.run(60_000)
    silence = list(pair.near.ended)
    pair.say(b"hello?")
    pair.run(5000)
    still = list(pair.near.ended)
    pair.server.power_on()
    pair.run(20_000)

    assert silence == still == []
    assert [type(problem) for problem in pair.near.ended] == [ConnectionResetError]


def test_a_reader_of_a_dead_machine_never_learns_of_it(pair):
    pair.server.power_fail()
    pair.server.power_on()
    pair.serve()
    pair.run(600_000)

    assert pair.near.ended == []


def test_after_a_short_cut_what_was_written_arrives_late(pair):
    cut(pair, "->", "<-")
    pair.say(b"one")
    pair.run(1000)
    pair.say(b"two")
    heal(pair, "->", "<-")
    pair.run(100)
    right_after_the_heal = pair.far.received
    pair.run(1500)

    assert right_after_the_heal == b""
    assert pair.far.received == b"onetwo"


def test_after_a_long_cut_the_silence_is_longer(pair):
    cut(pair, "->")
    pair.say(b"one")
    pair.run(60_000)
    heal(pair, "->")
    pair.run(30_000)
    after_half_a_minute = pair.far.received
    pair.run(60_000)

    assert after_half_a_minute == b""
    assert pair.far.received == b"one"


def test_a_cut_of_a_quarter_of_an_hour_breaks_the_connection_of_who_wrote(pair):
    cut(pair, "->")
    pair.say(b"one")
    pair.run(2_000_000)

    assert [type(problem) for problem in pair.near.ended] == [TimeoutError]
    assert pair.far.ended == []


def test_missing_acknowledgements_stop_the_other_direction_too(pair):
    cut(pair, "<-")
    pair.say(b"one")
    pair.run(1000)
    pair.say(b"two")
    pair.run(1000)
    before = pair.far.received
    heal(pair, "<-")
    pair.run(1000)

    assert before == b"one"
    assert pair.far.received == b"onetwo"


@pytest.mark.parametrize("direction", ["->", "<-"])
def test_one_cut_direction_is_enough_to_prevent_connecting(pair, direction):
    cut(pair, direction)
    pair.dial()
    pair.run(100_000)
    waiting = pair.problem
    pair.run(100_000)

    assert waiting is None
    assert isinstance(pair.problem, TimeoutError)


def test_connecting_goes_on_after_a_heal(pair):
    cut(pair, "->")
    pair.dial()
    pair.run(5000)
    heal(pair, "->")
    pair.run(3000)

    assert pair.near is not None


def test_a_resetting_cut_breaks_at_once_and_refuses(pair):
    cut(pair, "->", mode=CutMode.RESET)
    pair.run(1)
    broken = [type(problem) for problem in pair.near.ended + pair.far.ended]
    pair.dial()

    assert broken == [ConnectionResetError, ConnectionResetError]
    assert isinstance(pair.problem, ConnectionRefusedError)


def test_a_dropping_cut_breaks_at_the_heal_who_lost_something(pair):
    cut(pair, "->", mode=CutMode.DROP)
    pair.run(1000)
    heal(pair, "->")
    pair.run(1000)
    nothing_lost = list(pair.near.ended)
    cut(pair, "->", mode=CutMode.DROP)
    pair.say(b"lost")
    pair.run(1000)
    heal(pair, "->")
    pair.run(1000)

    assert nothing_lost == []
    assert [type(problem) for problem in pair.near.ended] == [ConnectionResetError]
    assert pair.far.received == b""


def test_loss_shows_as_delay(pair):
    link = pair.simulation.network.link(pair.client.host, pair.server.host)
    link.loss_share = 0.3
    for number in range(100):
        pair.say(b"%02d" % number)
    pair.run(100)
    soon = len(pair.far.received)
    pair.run(60_000)

    assert soon < 200
    assert pair.far.received == b"".join(b"%02d" % number for number in range(100))


def test_a_reader_that_does_not_read_makes_the_writer_wait(pair):
    pair.call(pair.far.transport.pause_reading)
    for _ in range(40):
        pair.say(bytes(65_536))
    pair.run(100)
    waits = pair.near.paused
    pair.far.transport.resume_reading()
    pair.run(100)

    assert waits == 1
    assert pair.near.paused == 0
    assert len(pair.far.received) == 40 * 65_536


def test_what_a_busy_process_writes_leaves_when_it_is_done(pair):
    far = pair.far.transport
    pair.server.disk.faults.sync_ns_min, pair.server.disk.faults.sync_ns_max = 50_000_000, 50_000_001

    def sync_and_write():
        pair.server.disk.open("f", create=True).sync()
        far.write(b"durable now")

    pair.simulation.loop.run_soon(pair.server.process, far.context, sync_and_write)
    pair.run(40)
    meanwhile = pair.near.received
    pair.run(20)

    assert meanwhile == b""
    assert pair.near.received == b"durable now"


def test_a_process_killed_in_a_blocking_sync_never_sent_what_follows_it(pair):
    far = pair.far.transport
    pair.server.disk.faults.sync_ns_min, pair.server.disk.faults.sync_ns_max = 50_000_000, 50_000_001

    def sync_and_write():
        pair.server.disk.open("f", create=True).sync()
        far.write(b"durable now")

    pair.simulation.loop.run_soon(pair.server.process, far.context, sync_and_write)
    pair.run(40)
    pair.server.kill()
    pair.run(100)

    assert pair.near.received == b""


# frames


def request(api, correlation_id, body=b""):
    content = api.to_bytes(2, "big") + b"\x00\x00" + correlation_id.to_bytes(4, "big") + body
    return len(content).to_bytes(4, "big") + content


def echo(data):
    answer = data[8:12] + b"answer"
    return len(answer).to_bytes(4, "big") + answer


@pytest.fixture
def talk(simulation, pair):
    simulation.network.frames.on = True
    pair.answer = echo
    pair.dial()
    return pair


def arrived(recorder):
    """Return the correlation ids of the frames that came."""
    return [int.from_bytes(piece[8:12], "big") for piece in recorder.pieces]


def test_requests_are_dropped_by_api(talk):
    rule = talk.simulation.network.frames.add(FrameRule(fate=Fate.DROPPED, api=56))
    for correlation_id, api in enumerate([1, 56, 1]):
        talk.say(request(api, correlation_id))
    talk.run(10)

    assert arrived(talk.far) == [0, 2]
    assert rule.hit_count == 1


def test_answers_are_known_by_their_request(talk):
    frames = talk.simulation.network.frames
    seen = []
    frames.observers.append(
        lambda frame, fate: seen.append((frame.transport.host.name, frame.api, frame.is_request, str(fate)))
    )
    frames.add(FrameRule(fate=Fate.DROPPED, api=56, direction="response"))
    talk.say(request(56, 1) + request(1, 2))
    talk.run(10)

    assert seen == [
        ("client", 56, True, "delivered"),
        ("client", 1, True, "delivered"),
        ("server", 56, False, "dropped"),
        ("server", 1, False, "delivered"),
    ]
    assert talk.near.received[4:8] == (2).to_bytes(4, "big")


def test_frames_are_cut_wherever_the_writes_are(talk):
    talk.simulation.network.frames.add(FrameRule(fate=Fate.DROPPED, api=56))
    for byte in request(56, 1) + request(1, 2):
        talk.say(bytes([byte]))
    talk.run(10)

    assert arrived(talk.far) == [2]


def test_a_held_frame_keeps_back_what_follows_until_released(talk):
    rules = talk.simulation.network.frames.rules
    rule = rules.add(FrameRule(fate=Fate.HELD, api=56, limit=1))
    for correlation_id, api in enumerate([1, 56, 1, 56]):
        talk.say(request(api, correlation_id))
    talk.run(100)
    before = arrived(talk.far)
    released = rules.release(rule)
    talk.run(100)

    assert before == [0]
    assert released == 1
    assert arrived(talk.far) == [0, 1, 2, 3]


def test_others_may_overtake_a_held_frame(talk):
    rules = talk.simulation.network.frames.rules
    rule = rules.add(FrameRule(fate=Fate.HELD, api=56, overtaking=True))
    for correlation_id, api in enumerate([1, 56, 1]):
        talk.say(request(api, correlation_id))
    talk.run(100)
    rules.remove(rule)
    talk.run(100)

    assert arrived(talk.far) == [0, 2, 1]


def kill(talk):
    talk.client.kill()


def abort(talk):
    talk.call(talk.transport.abort)


@pytest.mark.parametrize("overtaking", [False, True])
@pytest.mark.parametrize("end", [kill, abort])
def test_a_held_request_arrives_after_its_senders_end(talk, end, overtaking):
    rules = talk.simulation.network.frames.rules
    rule = rules.add(FrameRule(fate=Fate.HELD, api=56, overtaking=overtaking))
    talk.say(request(56, 1))
    talk.run(10)
    end(talk)
    talk.run(1000)
    rules.release(rule)
    talk.run(10)

    assert arrived(talk.far) == [1]


def test_delayed_and_doubled_frames(talk):
    rules = talk.simulation.network.frames.rules
    rules.add(FrameRule(fate=Fate.DELAYED, api=56, delay_ms=500))
    rules.add(FrameRule(fate=Fate.DUPLICATED, api=57))
    talk.say(request(57, 1))
    talk.say(request(56, 2))
    talk.run(400)
    before = arrived(talk.far)
    talk.run(200)

    assert before == [1, 1]
    assert arrived(talk.far) == [1, 1, 2]
