"""Each invariant beside its nearest innocent neighbour."""

from contextlib import nullcontext
from functools import partial
from random import Random

import pytest

from replog.log import batch
from replog.types import TopicPartition
from tribunal.clusters.api import BrokerState, PartitionState
from tribunal.clusters.simulated.committed import CommittedMetadata, IsrState
from tribunal.clusters.simulated.disk import SimulatedDisk
from tribunal.clusters.simulated.replica_logs import BatchMark, ReplicaLog, ReplicaLogs
from tribunal.clusters.simulated.sequences import Expiration, Sequences
from tribunal.clusters.simulated.stable_offsets import StableOffset, StableOffsets
from tribunal.clusters.simulated.violation import Violated
from tribunal.clusters.simulated.watch import Batches, CommittedPrefix, Watch, left_open_before
from tribunal.clusters.simulated.world import Simulation

P = TopicPartition("t", 0)


def mark(base, last, epoch, crc=0, producer=-1, producer_epoch=0, sequence=-1, control=False, transactional=False):
    return BatchMark(base, last, epoch, crc, producer, producer_epoch, sequence, control, transactional)


def log(*marks):
    one = ReplicaLog()
    for number, each in enumerate(marks):
        one.batches.append(each)
        one.ends.append(("/data/t-0/0.log", 100 * (number + 1)))
    return one


def records(*values, offset, epoch, producer=(-1, -1, -1)):
    entries = [batch.NewRecord(None, value) for value in values]
    return batch.build(entries, timestamp_ms=0, base_offset=offset, leader_epoch=epoch, producer=producer)


def violates(invariant):
    return pytest.raises(Violated, match=f"^{invariant}:")


# I14


def test_an_offset_of_an_epoch_is_one_batch_on_all_replicas():
    seen = Batches(P)
    seen.see(1, mark(0, 4, 1, crc=7))
    seen.see(2, mark(0, 4, 1, crc=7))
    seen.see(2, mark(0, 4, 2, crc=8))

    with violates("I14"):
        seen.see(3, mark(0, 4, 1, crc=8))


# I4


def test_what_was_exposed_is_in_the_next_leaders_log():
    prefix = CommittedPrefix(P)
    first = log(mark(0, 4, 1), mark(5, 9, 1))
    prefix.exposed(1, first, 1, 10)
    prefix.exposed(2, log(mark(0, 4, 1), mark(5, 9, 1), mark(10, 10, 2)), 2, 10)

    with violates("I4"):
        prefix.exposed(3, log(mark(0, 4, 1)), 3, 5)


def test_uncommitted_batches_may_be_replaced():
    prefix = CommittedPrefix(P)
    prefix.exposed(1, log(mark(0, 4, 1), mark(5, 9, 1)), 1, 5)
    prefix.exposed(2, log(mark(0, 4, 1), mark(5, 7, 2)), 2, 8)

    with violates("I4"):
        prefix.exposed(3, log(mark(0, 4, 1), mark(5, 7, 3, crc=1)), 3, 8)


@pytest.mark.parametrize(
    ("left", "is_compacted", "breaks"),
    [
        pytest.param([mark(0, 4, 1), mark(10, 10, 1)], True, False, id="a batch is gone"),
        pytest.param([mark(0, 4, 1), mark(5, 9, 1, crc=3), mark(10, 10, 1)], True, False, id="some of its records are"),
        pytest.param([mark(0, 4, 1), mark(10, 10, 1)], False, True, id="gone, and nothing was compacted"),
        pytest.param([mark(0, 4, 1), mark(5, 9, 2), mark(10, 10, 2)], True, True, id="of another epoch"),
        pytest.param([mark(0, 4, 1)], True, True, id="the end is gone"),
    ],
)
def test_compaction_takes_what_was_committed_but_puts_nothing_else_there(left, is_compacted, breaks):
    """Clocks that jump roll segments, and what is rolled is compacted (wide-swarm with exactly-once, seed 3)."""
    prefix = CommittedPrefix(P)
    prefix.exposed(1, log(mark(0, 4, 1), mark(5, 9, 1), mark(10, 10, 1)), 1, 11)
    other = log(*left)
    other.is_compacted = is_compacted

    with violates("I4") if breaks else nullcontext():
        prefix.compare(2, other)


@pytest.mark.parametrize(
    ("node", "log_end", "is_lost"),
    [
        pytest.param(2, 0, True, id="its disk lost something, and its log is empty"),
        pytest.param(2, 3, False, id="its log has its beginning: it is the same log, and may be elected"),
        pytest.param(2, 5, False, id="it has fetched it again"),
        pytest.param(3, 0, False, id="its disk lost nothing"),
    ],
)
def test_what_is_committed_is_lost_by_who_lost_data_and_holds_nothing(node, log_end, is_lost):
    prefix = CommittedPrefix(P)
    prefix.exposed(1, log(mark(0, 4, 1)), 1, 5)
    prefix.lossy[2] = None

    assert prefix.is_lost_by(node, log_end) is is_lost


@pytest.mark.parametrize(
    ("stable", "elected", "offset"),
    [
        pytest.param(5, 2, 5, id="it had begun before the election"),
        pytest.param(10, 2, None, id="it began behind the election: its coordinator ends it"),
        pytest.param(11, 2, None, id="all have ended"),
        pytest.param(5, 1, None, id="the leader that wrote it was elected so"),
    ],
)
def test_a_transaction_is_left_open_by_an_election_that_found_it(stable, elected, offset):
    """Its leader aborts nothing, by a protocol before KIP-704, and the end was lost (finding abort-lost-before-kip-704)."""
    prefix = CommittedPrefix(P)
    prefix.exposed(2, log(mark(0, 4, 1), mark(5, 9, 1, transactional=True), mark(10, 10, 2, transactional=True)), 2, 11)

    assert prefix.left_open(StableOffset(2, 11, stable), elected) == offset
    assert prefix.left_open(None, elected) is None


@pytest.mark.parametrize(
    ("last", "is_of_transactions"),
    [
        pytest.param(mark(5, 9, 1, transactional=True), True, id="a transaction"),
        pytest.param(mark(5, 5, 1, control=True), True, id="its end"),
        pytest.param(mark(5, 9, 1), False, id="other records"),
    ],
)
def test_who_writes_in_transactions_is_known_by_the_last_batch(last, is_of_transactions):
    prefix = CommittedPrefix(P)
    prefix.exposed(1, log(mark(0, 4, 1), last), 1, last.last_offset + 1)

    assert prefix.ends_in_transaction is is_of_transactions


@pytest.mark.parametrize(
    ("producer", "waits"),
    [
        pytest.param(7, True, id="it commits positions there"),
        pytest.param(8, False, id="it only writes in transactions"),
    ],
)
def test_only_who_commits_positions_waits_for_a_transaction_that_is_open_there(producer, waits):
    """What a producer without a group writes is to go on, whatever holds up a group."""
    prefix, positions = CommittedPrefix(P), CommittedPrefix(TopicPartition("__consumer_offsets", 3))
    prefix.exposed(1, log(mark(0, 4, 1, producer=producer, transactional=True)), 1, 5)
    positions.exposed(1, log(mark(0, 0, 1, producer=7, transactional=True)), 1, 1)
    positions.begin_anew(log())

    assert prefix.may_wait_for(positions) is waits


def test_a_deposed_leader_is_not_believed():
    prefix = CommittedPrefix(P)
    prefix.exposed(2, log(mark(0, 4, 2)), 2, 5)
    prefix.exposed(1, log(mark(0, 2, 1)), 1, 3)

    with violates("I4"):
        prefix.exposed(3, log(mark(0, 4, 2)), 3, 9)


def test_after_an_unclean_election_the_prefix_begins_anew():
    prefix = CommittedPrefix(P)
    prefix.exposed(1, log(mark(0, 4, 1), mark(5, 9, 1)), 1, 10)
    shorter = log(mark(0, 4, 1), mark(5, 6, 2))
    prefix.begin_anew(shorter)
    prefix.exposed(3, shorter, 2, 7)

    assert [one.base_offset for one in prefix.batches] == [0, 5]
    with violates("I4"):
        prefix.exposed(3, log(mark(0, 4, 1)), 3, 5)


@pytest.mark.parametrize(
    ("found", "breaks"),
    [
        pytest.param(mark(5, 9, 16, crc=7), False, id="its epoch, which no CRC covers"),
        pytest.param(mark(5, 9, 16, crc=8), True, id="its content"),
        pytest.param(mark(5, 8, 16, crc=7), True, id="its end"),
    ],
)
def test_a_batch_whose_leader_epoch_was_altered_on_a_disk_is_the_same_with_any_epoch(found, breaks):
    """Whoever has the altered one may lead, be copied, and be followed by one that has it as it was written."""
    prefix = CommittedPrefix(P)
    prefix.without_epoch[5] = None
    prefix.exposed(1, log(mark(0, 4, 1), mark(5, 9, 1, crc=7)), 1, 10)

    with violates("I4") if breaks else nullcontext():
        prefix.exposed(2, log(mark(0, 4, 1), found), 2, 10)


def test_the_batch_before_the_one_whose_leader_epoch_was_altered_is_compared_whole():
    prefix = CommittedPrefix(P)
    prefix.without_epoch[5] = None
    prefix.exposed(1, log(mark(0, 4, 1), mark(5, 9, 1)), 1, 10)

    with violates("I4"):
        prefix.exposed(2, log(mark(0, 4, 16), mark(5, 9, 16)), 2, 10)


def test_a_change_below_what_was_compared_is_compared_again():
    prefix = CommittedPrefix(P)
    same = log(mark(0, 4, 1), mark(5, 9, 1))
    prefix.exposed(1, same, 1, 10)
    prefix.compare(2, same)
    other = log(mark(0, 4, 1), mark(5, 9, 2))
    prefix.changed_from(2, 5)

    with violates("I4"):
        prefix.compare(2, other)


# I18


def test_a_last_stable_offset_grows_within_a_leader_epoch():
    stable = StableOffsets(P)
    stable.show(StableOffset(1, 10, 8), may_have_lost=False)

    with violates("I18"):
        stable.show(StableOffset(1, 12, 7), may_have_lost=False)


def test_the_next_leader_that_knows_as_much_has_as_many_ends_of_transactions():
    """M81: the end that readers passed was not replicated; the next leader has the transaction open again."""
    stable = StableOffsets(P)
    stable.show(StableOffset(1, 15, 15), may_have_lost=False)
    stable.show(StableOffset(2, 14, 10), may_have_lost=False)  # KIP-207: it does not know better yet

    with violates("I18"):
        stable.show(StableOffset(2, 15, 10), may_have_lost=False)


@pytest.mark.parametrize(
    ("assured", "now", "breaks"),
    [
        pytest.param(10, 10, False, id="it rested on an end that a former isr held"),
        pytest.param(10, 9, True, id="not so far"),
        pytest.param(None, 10, True, id="it rested on what its high watermark had passed"),
    ],
)
def test_the_next_leader_need_not_know_what_its_predecessor_knew_beyond_its_high_watermark(assured, now, breaks):
    """The predecessor had led before, and had committed the end then; both show the same high watermark (found by the search, seed 68817023)."""
    stable = StableOffsets(P)
    stable.show(StableOffset(5, 12, 12), may_have_lost=False, assured=assured)

    with violates("I18") if breaks else nullcontext():
        stable.show(StableOffset(6, 12, now), may_have_lost=False)


@pytest.mark.parametrize(
    ("held", "replicated_end", "high_watermark", "assured"),
    [
        pytest.param("OVER", 11, 10, 0, id="its end lies beyond the high watermark, and a former isr held it"),
        pytest.param("OVER", 10, 10, 10, id="nobody is known to hold more than the high watermark says"),
        pytest.param("OVER", 11, 11, 11, id="the high watermark has passed its end"),
        pytest.param("REST", 11, 10, 10, id="the log begins behind its first record"),
    ],
)
def test_how_far_a_last_stable_offset_goes_by_its_high_watermark(held, replicated_end, high_watermark, assured):
    marks = {"OVER": OVER, "REST": OVER[1:]}[held]
    prefix = CommittedPrefix(P)
    prefix.replicated_end = replicated_end

    assert prefix.stable_by(log(*marks), StableOffset(1, high_watermark, high_watermark)) == assured


def test_after_an_unclean_election_last_stable_offsets_begin_anew():
    stable = StableOffsets(P)
    stable.show(StableOffset(1, 15, 15), may_have_lost=False)
    stable.show(StableOffset(2, 16, 10), may_have_lost=True)
    stable.show(StableOffset(1, 15, 9), may_have_lost=False)  # deposed: not believed
    stable.show(StableOffset(3, 16, 10), may_have_lost=False)


BEGUN = (mark(0, 4, 1, producer=7, transactional=True), mark(5, 9, 1))
OVER = (*BEGUN, mark(10, 10, 1, producer=7, control=True, transactional=True))


@pytest.mark.parametrize(
    ("held", "high_watermark", "stable", "breaks"),
    [
        pytest.param(OVER, 11, 11, False, id="its end is committed"),
        pytest.param(OVER, 10, 10, True, id="its end is in the log, and not committed"),
        pytest.param(OVER, 10, 0, False, id="its end is not committed, and readers wait before it"),
        pytest.param(BEGUN, 10, 10, True, id="it has no end"),
        pytest.param(BEGUN[1:], 10, 10, False, id="the log begins behind it"),
    ],
)
def test_readers_pass_no_transaction_whose_end_is_not_committed(held, high_watermark, stable, breaks):
    """M81, before anybody takes over: what is shown is enough."""
    prefix, leader = CommittedPrefix(P), log(*held)
    prefix.exposed(1, log(*OVER), 1, high_watermark)

    with violates("I18") if breaks else nullcontext():
        prefix.hold_stable(1, leader, StableOffset(1, high_watermark, stable))


@pytest.mark.parametrize(
    ("replicated_end", "breaks"),
    [
        pytest.param(11, False, id="a former isr held its end"),
        pytest.param(10, True, id="a former isr held all but its end"),
    ],
)
def test_a_leader_may_know_an_end_to_be_committed_that_its_high_watermark_has_not_passed(replicated_end, breaks):
    """It had led before, and followed one with a lower high watermark since (found by a search)."""
    prefix, leader = CommittedPrefix(P), log(*OVER)
    prefix.exposed(1, leader, 1, 10)
    prefix.replicated_end = replicated_end

    with violates("I18") if breaks else nullcontext():
        prefix.hold_stable(1, leader, StableOffset(1, 10, 10))


@pytest.mark.parametrize(
    ("before", "now", "end"),
    [
        pytest.param((1, 2), (2,), 5, id="an isr of min isr"),
        pytest.param((1,), (1, 2), 0, id="one below min isr"),
        pytest.param((1, 2), (1, 2), 0, id="the same one"),
    ],
)
def test_up_to_where_a_former_isr_held_the_log(before, now, end):
    simulation = Simulation(1)
    machines = {node: simulation.add_machine(f"broker-{node}", f"10.0.0.{node}", node) for node in (1, 2)}
    committed = CommittedMetadata({}, now_ns=lambda: 0, wall_start_ms=0, min_insync_replicas=2)
    watch = Watch(simulation, machines, "/data", committed, dict, elr_enabled=True, producer_expiration_ms=86_400_000)
    watch.replicas[1].logs[P], watch.replicas[2].logs[P] = log(mark(0, 9, 1)), log(mark(0, 4, 1))
    watch._replicated_by(P, state(isr=before, elr=(), replicas=(1, 2)))
    watch._replicated_by(P, state(isr=now, elr=(), replicas=(1, 2)))

    assert watch._prefix(P).replicated_end == end


@pytest.mark.parametrize(
    ("in_zookeeper", "left", "breaks"),
    [
        pytest.param(True, False, False, id="its controller has not taken it out yet"),
        pytest.param(True, True, True, id="it was taken out, and joined again"),
        pytest.param(False, False, True, id="a controller that registers it has taken it out"),
    ],
)
def test_who_lost_data_and_has_registered_with_zookeeper_is_in_the_isr_until_its_controller_knows(
    in_zookeeper, left, breaks
):
    """It was accused for the time in between (found by a search in ZooKeeper mode, seed 894225276)."""
    simulation = Simulation(1)
    machines = {node: simulation.add_machine(f"broker-{node}", f"10.0.0.{node}", node) for node in (1, 2)}
    committed = CommittedMetadata({}, now_ns=lambda: 0, wall_start_ms=0)
    watch = Watch(simulation, machines, "/data", committed, dict, elr_enabled=False, producer_expiration_ms=86_400_000)
    watch.keeps_hosted = in_zookeeper
    watch._prefix(P).exposed(1, log(mark(0, 4, 1), mark(5, 9, 1)), 1, 10)
    watch.replicas[1].logs[P] = watch.replicas[2].logs[P] = log(mark(0, 4, 1), mark(5, 9, 1))

    def commit(*isr: int) -> None:
        committed.state.partitions[P] = state(isr=isr, elr=(), replicas=(1, 2))
        committed.changed[P] = None
        watch._changed_by_commits()

    commit(1, 2)
    watch.lost_data(2)
    watch.replicas[2].logs[P] = log(mark(0, 4, 1))
    watch._registered(2)
    if left:
        commit(1)
    with violates("I9") if breaks else nullcontext():
        commit(1, 2)
        watch._members_hold(P, committed.state.partitions[P].leader_epoch, watch._prefix(P))


@pytest.mark.parametrize(("stable", "breaks"), [(3, False), (4, True)])
def test_readers_begin_where_the_log_starts_also_in_the_midst_of_an_open_transaction(stable, breaks):
    """Deleting records moved the start into its first batch: a search accused a leader that showed that start, as Apache Kafka's do."""
    prefix, leader = CommittedPrefix(P), log(*BEGUN)
    prefix.exposed(1, leader, 1, 10)

    with violates("I18") if breaks else nullcontext():
        prefix.hold_stable(1, leader, StableOffset(1, 10, stable, log_start_offset=3))


def test_what_a_deposed_leader_shows_readers_is_not_held_to_what_it_cannot_know():
    prefix = CommittedPrefix(P)
    prefix.exposed(2, log(*BEGUN), 2, 10)

    prefix.hold_stable(1, log(*BEGUN), StableOffset(1, 10, 10))


def test_a_transaction_whose_beginning_an_unclean_election_lost_is_waited_for_by_nobody():
    prefix = CommittedPrefix(P)
    prefix.exposed(1, log(*BEGUN), 1, 10)
    other = log(mark(0, 4, 2))
    prefix.begin_anew(other)
    prefix.exposed(2, other, 2, 5)

    prefix.hold_stable(2, other, StableOffset(2, 5, 5))


# I12


@pytest.mark.parametrize(
    ("held", "left"),
    [
        pytest.param(BEGUN, {7: 0}, id="it began in a former leader epoch, and has no end"),
        pytest.param(OVER, {}, id="it has one"),
        pytest.param(
            (*BEGUN, mark(10, 10, 2, producer=7, control=True, transactional=True)),
            {},
            id="its end is the new leader's",
        ),
        pytest.param(
            (*OVER, mark(11, 11, 2, producer=7, transactional=True)),
            {},
            id="the next one began in the new leader epoch",
        ),
        pytest.param(
            (*OVER, mark(11, 11, 1, producer=8, transactional=True)), {8: 11}, id="another producer's has none"
        ),
    ],
)
def test_what_former_leaders_left_open_is_what_began_under_them_and_has_no_end(held, left):
    assert left_open_before(log(*held).batches, 2) == left


@pytest.mark.parametrize("lost", [True, False])
def test_who_loses_its_power_with_the_ends_that_it_wrote_is_not_said_to_have_written_none(lost):
    """A machine may fail while the controller commits what its leader has proposed: what it had not synced is gone."""
    simulation = Simulation(1)
    machines = {1: simulation.add_machine("broker-1", "10.0.0.1", 1)}
    committed = CommittedMetadata({}, now_ns=lambda: 0, wall_start_ms=0)
    watch = Watch(simulation, machines, "/data", committed, dict, elr_enabled=True, producer_expiration_ms=1_000)
    watch._prefix(P)
    watch._recovered_by_right(P, state(isr=(1,), recovering=True))
    watch.replicas[1].logs[P] = log(*BEGUN)
    if lost:
        watch.lost_data(1)

    with nullcontext() if lost else violates("I12"):
        watch._recovered_by_right(P, state(isr=(1,)))


# I17


@pytest.fixture
def machine():
    return Simulation(1).add_machine("broker-1", "10.0.0.1", 1)


class OneReplica:
    """The sequences of one replica, whose node remembers producers for a second, and its log."""

    def __init__(self, machine, unknown=lambda _mark, _offset: False):
        self.machine = machine
        self.unknown = unknown
        self.forgotten = {}
        self.sequences = Sequences(P, 1, Expiration(machine, 1_000), self.forgotten)

    def see(self, one, first=0):
        self.sequences.see(one, first, self.unknown)

    def wait(self, ms):
        self.machine.simulation.run(self.machine.simulation.loop.sleep_ns(ms * 1_000_000))


@pytest.fixture
def replica(machine):
    return OneReplica(machine)


def test_sequences_are_gapless(machine):
    good = log(mark(0, 4, 1, producer=9, sequence=0), mark(5, 6, 1, producer=9, sequence=5))
    OneReplica(machine).see(good)

    with violates("I17"):
        OneReplica(machine).see(log(*good.batches, mark(7, 7, 1, producer=9, sequence=8)))
    with violates("I17"):
        OneReplica(machine).see(log(*good.batches, mark(7, 8, 1, producer=9, sequence=5)))


def test_sequences_wrap_and_begin_again_with_an_epoch(replica):
    top = 2**31 - 2
    replica.see(
        log(
            mark(0, 1, 1, producer=9, sequence=top),
            mark(2, 2, 1, producer=9, sequence=0),
            mark(3, 3, 1, producer=9, producer_epoch=1, sequence=0),
        )
    )


def test_a_leader_that_did_not_know_a_producers_last_batch_takes_any_sequence(machine):
    both = log(mark(0, 4, 1, producer=9, sequence=0), mark(5, 5, 2, producer=9, sequence=4))
    asked = []

    OneReplica(machine, lambda written, offset: asked.append((written, offset)) or True).see(both)

    assert asked == [(both.batches[1], 4)]
    with violates("I17"):  # who wrote it had the producer's batch
        OneReplica(machine).see(both)


def test_the_first_offset_that_a_replica_has_ever_held_stays_though_retention_takes_it(replica):
    replica.see(log(mark(3, 4, 1), mark(5, 6, 1)))
    replica.see(log(mark(5, 6, 1)))

    assert replica.sequences.lowest == 3


OPEN = mark(0, 0, 1, producer=9, sequence=0, transactional=True)
ENDED = mark(1, 1, 1, producer=9, control=True, transactional=True)
PLAIN = mark(0, 0, 1, producer=9, sequence=0)
REPEATED = mark(2, 2, 1, producer=9, sequence=0)


@pytest.mark.parametrize(
    ("before", "silent_ms", "may"),
    [
        pytest.param([PLAIN], 1_000, True, id="silent for as long"),
        pytest.param([PLAIN], 999, False, id="not for as long"),
        pytest.param([OPEN, ENDED], 1_000, True, id="its transaction has ended"),
        pytest.param([OPEN], 9_000, False, id="its transaction is open"),
        pytest.param(
            [mark(0, 0, 1, producer=9, transactional=True), mark(1, 1, 1, producer=9, sequence=0)],
            9_000,
            False,
            id="so is what it began without sequences",
        ),
    ],
)
def test_a_leader_may_forget_a_producer_that_is_silent_and_has_nothing_open(replica, before, silent_ms, may):
    replica.unknown = lambda written, _offset: written in replica.forgotten
    replica.see(log(*before))
    replica.wait(silent_ms)

    with nullcontext() if may else violates("I17"):
        replica.see(log(*before, REPEATED), len(before))
        replica.see(log(*before, REPEATED), 0)  # read again


def test_a_marker_breaks_a_producers_silence(replica):
    replica.see(log(OPEN))
    replica.wait(900)
    replica.see(log(OPEN, ENDED), 1)
    replica.wait(900)

    with violates("I17"):
        replica.see(log(OPEN, ENDED, REPEATED), 2)


def test_a_producer_that_has_written_again_is_known_again(replica):
    replica.unknown = lambda written, _offset: written in replica.forgotten
    replica.see(log(PLAIN))
    replica.wait(1_000)
    replica.see(log(PLAIN, REPEATED), 1)

    with violates("I17"):
        replica.see(log(PLAIN, REPEATED, mark(3, 3, 1, producer=9, sequence=0)), 2)


def test_a_log_that_is_read_again_makes_nobody_seen_lately(replica):
    replica.unknown = lambda written, _offset: written in replica.forgotten
    replica.see(log(PLAIN))
    replica.wait(600)
    replica.see(log(PLAIN), 0)
    replica.wait(600)
    replica.see(log(PLAIN, REPEATED), 1)

    assert list(replica.forgotten) == [REPEATED]


@pytest.mark.parametrize(
    ("offset_ms", "may"),
    [
        pytest.param(900, True, id="ahead for a while"),
        pytest.param(-900, False, id="behind for a while"),
    ],
)
def test_silence_is_counted_by_the_nodes_wall_clock(replica, machine, offset_ms, may):
    replica.unknown = lambda written, _offset: written in replica.forgotten
    replica.see(log(PLAIN))
    machine.set_clock(offset_ms=offset_ms, drift_ppb=0)
    replica.wait(100)
    machine.set_clock(offset_ms=0, drift_ppb=0)
    replica.wait(100)

    with nullcontext() if may else violates("I17"):
        replica.see(log(PLAIN, REPEATED), 1)


@pytest.mark.parametrize(
    ("leader", "innocent"),
    [
        pytest.param(2, True, id="the leader may have forgotten the producer"),
        pytest.param(1, False, id="a follower may have, and the leader not"),
    ],
)
def test_replicas_hold_what_their_leader_took_from_a_producer_that_it_may_have_forgotten(leader, innocent):
    """A follower that lags has the producer's batch later than its leader."""
    simulation = Simulation(1)
    machines = {node: simulation.add_machine(f"broker-{node}", f"10.0.0.{node}", node) for node in (1, 2)}
    committed = CommittedMetadata({}, now_ns=lambda: 0, wall_start_ms=0)
    watch = Watch(simulation, machines, "/data", committed, dict, elr_enabled=True, producer_expiration_ms=1_000)
    watch._leaders[P, 1] = leader
    place = watch._sequences_of(2, P), watch._sequences_of(1, P)
    unknown = partial(watch._did_not_know, P)
    place[0].see(log(PLAIN), 0, unknown)
    simulation.run(simulation.loop.sleep_ns(500_000_000))
    place[1].see(log(PLAIN), 0, unknown)
    simulation.run(simulation.loop.sleep_ns(500_000_000))

    with nullcontext() if innocent else violates("I17"):
        place[0].see(log(PLAIN, REPEATED), 1, unknown)
        watch.damaged(2)  # what was right once stays right
        place[1].see(log(PLAIN, REPEATED), 1, unknown)


def test_after_a_cut_sequences_are_counted_again(replica):
    one = log(mark(0, 4, 1, producer=9, sequence=0), mark(5, 6, 1, producer=9, sequence=5))
    replica.see(one)
    one.cut("/data/t-0/0.log", 100)
    one.batches.append(mark(5, 5, 2, producer=9, sequence=5))
    one.ends.append(("/data/t-0/0.log", 150))
    replica.see(one, one.lowest_change)

    assert one.lowest_change == 0


# committed metadata


def state(**changes):
    fields = {"leader": 1, "leader_epoch": 5, "partition_epoch": 7, "replicas": (1, 2, 3), "isr": (1, 2)} | changes
    return PartitionState(**fields)


@pytest.mark.parametrize(
    ("invariant", "now"),
    [
        pytest.param(None, state(leader_epoch=6, partition_epoch=8), id="a new leader"),
        pytest.param(None, state(leader=-1, isr=(), elr=(1,)), id="nobody leads"),
        pytest.param("I2", state(leader_epoch=4), id="leader epoch goes back"),
        pytest.param("I2", state(partition_epoch=6), id="partition epoch goes back"),
        pytest.param("I7", state(isr=(1, 4)), id="stranger in the ISR"),
        pytest.param("I7", state(elr=(2,)), id="in ISR and ELR"),
        pytest.param(None, state(isr=(1,), elr=(3,)), id="an ELR below min ISR"),
        pytest.param("I7", state(elr=(3,)), id="an ELR beside a full ISR"),
        pytest.param("I10", state(leader=3), id="leader outside of the ISR"),
        pytest.param("I12", state(recovering=True), id="recovering with company"),
    ],
)
def test_committed_partition_states(invariant, now):
    committed = CommittedMetadata({}, now_ns=lambda: 0, wall_start_ms=0)
    committed._hold_partition(P, None, state(), 2)

    if invariant is None:
        committed._hold_partition(P, state(), now, 2)
    else:
        with violates(invariant):
            committed._hold_partition(P, state(), now, 2)


@pytest.mark.parametrize(
    ("states", "since_offset", "may"),
    [
        pytest.param([(5, 1, 2), (9, 1, 1)], 9, False, id="knows that it is alone"),
        pytest.param([(5, 1, 2), (9, 1, 1)], 8, True, id="has not heard of the shrink"),
        pytest.param([(5, 1, 1), (9, 1, 2)], 5, True, id="may have heard of the growth by an answer"),
        pytest.param([(5, 1, 1), (9, 2, 2)], 5, False, id="what grew in another epoch"),
        pytest.param([(5, 1, 1)], 5, False, id="alone all along"),
        pytest.param([], 5, True, id="nothing is known"),
    ],
)
def test_the_high_watermark_needs_min_isr(states, since_offset, may):
    """I13."""
    committed = CommittedMetadata({}, now_ns=lambda: 0, wall_start_ms=0)
    for end_offset, epoch, size in states:
        committed._remember(P, IsrState(end_offset, epoch, size, 2))

    assert committed.high_watermark_may_move(P, 1, since_offset) is may


@pytest.mark.parametrize(
    ("acted_offset", "breaks"),
    [
        pytest.param(8, False, id="the shrink was not handed to the partition yet"),
        pytest.param(9, True, id="it was"),
    ],
)
def test_a_leader_knows_of_its_isr_what_its_broker_has_carried_out(acted_offset, breaks):
    """I13: one broker had read of an ISR of one, and was still busy with other partitions (`M29`, wide-swarm-exactly-once)."""
    simulation = Simulation(1)
    machine = simulation.add_machine("broker-2", "10.0.0.2", 2)
    acted = {(2, machine.incarnations): acted_offset}
    committed = CommittedMetadata({}, now_ns=lambda: 0, wall_start_ms=0, acted_offset=acted.get)
    watch = Watch(
        simulation, {2: machine}, "/data", committed, dict, elr_enabled=True, producer_expiration_ms=86_400_000
    )
    committed._remember(P, IsrState(5, 1, 2, 2))
    committed._remember(P, IsrState(9, 1, 1, 2))
    watch._moved_by_right(2, P, 1, 96)

    with violates("I13") if breaks else nullcontext():
        watch._moved_by_right(2, P, 1, 97)


def test_a_quorum_epoch_has_one_leader():
    committed = CommittedMetadata({}, now_ns=lambda: 0, wall_start_ms=0)
    committed.claimed(101, 3, 101)
    committed.claimed(101, 3, 102)
    committed.claimed(-1, 4, 102)
    committed.claimed(102, 4, 102)

    assert committed.state.quorum_leader == 102
    with violates("I1"):
        committed.claimed(103, 4, 103)


# logs as files say


@pytest.fixture
def followed():
    disk = SimulatedDisk(Random(1))
    disk.make_directory("/data/t-0")
    logs = ReplicaLogs(disk, "/data")
    disk.watcher = logs
    return disk, logs


def held(logs):
    logs.catch_up()
    return [(one.base_offset, one.last_offset, one.epoch) for one in logs.logs[P].batches]


def test_a_log_is_followed_through_appends_cuts_and_segments(followed):
    disk, logs = followed
    first = disk.open("/data/t-0/00000000000000000000.log", create=True)
    first.append(records(b"a", b"b", offset=0, epoch=1))
    length = first.size()
    one = held(logs)
    first.append(records(b"c", offset=2, epoch=1)[:30])
    torn = held(logs)
    first.truncate(length)
    first.append(records(b"d", offset=2, epoch=2))
    replaced = held(logs)
    second = disk.open("/data/t-0/00000000000000000003.log", create=True)
    second.append(records(b"e", offset=3, epoch=2))

    assert one == torn == [(0, 1, 1)]
    assert replaced == [(0, 1, 1), (2, 2, 2)]
    assert held(logs) == [(0, 1, 1), (2, 2, 2), (3, 3, 2)]
    assert logs.logs[P].end_offset == 4


def test_a_cut_and_an_append_between_two_looks_are_both_seen(followed):
    disk, logs = followed
    file = disk.open("/data/t-0/00000000000000000000.log", create=True)
    file.append(records(b"a", offset=0, epoch=1), records(b"b", offset=1, epoch=1))
    held(logs)
    logs.logs[P].lowest_change = 2
    file.truncate(len(records(b"a", offset=0, epoch=1)))
    file.append(records(b"x", offset=1, epoch=2), records(b"y", offset=2, epoch=2))

    assert held(logs) == [(0, 0, 1), (1, 1, 2), (2, 2, 2)]
    assert logs.logs[P].lowest_change == 1


def test_removed_renamed_and_lost_files_are_read_again(followed):
    disk, logs = followed
    disk.open("/data/t-0/00000000000000000000.log", create=True).append(records(b"a", offset=0, epoch=1))
    disk.replace_file("/data/checkpoint", b"x")
    assert held(logs) == [(0, 0, 1)]

    disk.rename("/data/t-0", "/data/t-0.0-stray")
    assert logs.catch_up() == [P]
    assert P not in logs.logs


def test_a_log_read_again_ends_before_a_batch_that_is_not_whole(followed):
    """A power failure may leave a header with zeros behind it: the producer's fields are then nobody's (found by a sweep)."""
    disk, logs = followed
    file = disk.open("/data/t-0/00000000000000000000.log", create=True)
    whole = records(b"a", offset=0, epoch=1)
    torn = records(b"b" * 50, offset=1, epoch=1, producer=(7, 3, 4))
    file.append(whole, torn[:40] + bytes(len(torn) - 40), records(b"c", offset=2, epoch=1))
    disk.rename("/data/t-0", "/data/x-0")
    disk.rename("/data/x-0", "/data/t-0")

    assert held(logs) == [(0, 0, 1)]


@pytest.mark.parametrize(
    ("first_holds", "is_compacted", "found"),
    [(b"a", False, [(0, 0, 1)]), (b"", False, []), (b"a", True, [(0, 0, 1), (5, 5, 1)])],
    ids=["its end is lost", "it is lost", "compaction took its end"],
)
def test_a_segment_that_does_not_follow_is_no_part_of_the_log(followed, first_holds, is_compacted, found):
    """A power failure takes the end of one segment and spares the next; recovery drops that one (found by a sweep)."""
    disk, logs = followed
    first = disk.open("/data/t-0/00000000000000000000.log", create=True)
    if first_holds:
        first.append(records(first_holds, offset=0, epoch=1))
    disk.open("/data/t-0/00000000000000000005.log", create=True).append(records(b"f", offset=5, epoch=1))
    if is_compacted:
        disk.replace_file("/data/t-0/cleaner-offset-checkpoint", b"")
    disk.rename("/data/t-0", "/data/x-0")
    disk.rename("/data/x-0", "/data/t-0")

    assert held(logs) == found


@pytest.mark.parametrize("noted", [True, False], ids=["its leader's log was compacted", "it lost what was between"])
def test_a_gap_that_a_follower_copies_is_its_leaders_where_it_noted_so_before(followed, noted):
    """What it copied before had no gap (wide-swarm-exactly-once in ZooKeeper mode, seed 171000)."""
    disk, logs = followed
    file = disk.open("/data/t-0/00000000000000000000.log", create=True)
    file.append(records(b"a", offset=0, epoch=1))
    before = held(logs)
    if noted:
        disk.replace_file("/data/t-0/cleaner-offset-checkpoint", b"")
    file.append(records(b"f", offset=5, epoch=1))

    assert (before, held(logs)) == ([(0, 0, 1)], [(0, 0, 1), (5, 5, 1)])
    assert logs.logs[P].is_compacted is noted


def test_a_metadata_log_that_begins_with_a_snapshot_is_compared_from_there():
    committed = CommittedMetadata({}, now_ns=lambda: 0, wall_start_ms=0)
    committed._marks = [mark(0, 4, 1), mark(5, 9, 1), mark(10, 12, 2)]

    committed._compare(1, log(mark(5, 9, 1), mark(10, 12, 2)), 0, 13)
    with violates("I1"):
        committed._compare(1, log(mark(5, 9, 1), mark(10, 11, 2)), 0, 13)


@pytest.mark.parametrize(
    ("isr", "removed", "breaks"),
    [
        pytest.param((1, 4), 3, False, id="enough are in sync"),
        pytest.param((4,), 3, True, id="the newcomer alone is in sync"),
        pytest.param((4,), None, False, id="it joins and nobody goes yet"),
    ],
)
def test_a_replica_goes_once_min_isr_others_are_in_sync(isr, removed, breaks):
    """I21."""
    committed = CommittedMetadata({}, now_ns=lambda: 0, wall_start_ms=0)
    for broker in (1, 4):
        committed.state.brokers[broker] = BrokerState(broker_epoch=7, incarnation="a", fenced=False)
    before = state(leader=3, isr=(3,), elr=(), replicas=(1, 2, 3, 4))
    replicas = tuple(node for node in before.replicas if node != removed)

    with violates("I21") if breaks else nullcontext():
        committed._hold_partition(P, before, state(leader=isr[0], isr=isr, replicas=replicas), 2)


@pytest.mark.parametrize(
    ("now", "breaks"),
    [
        pytest.param({"leader": 1}, False, id="its leader says so"),
        pytest.param({"leader": 1, "leader_epoch": 6}, False, id="its leader, in the next epoch"),
        pytest.param({"leader": -1, "isr": (), "elr": (1,)}, True, id="its leader is gone"),
        pytest.param({"leader": 2, "isr": (2,)}, True, id="another leads"),
    ],
)
def test_a_recovery_ends_by_the_word_of_the_leader_that_recovers(now, breaks):
    committed = CommittedMetadata({}, now_ns=lambda: 0, wall_start_ms=0)
    committed.state.brokers[2] = BrokerState(broker_epoch=7, incarnation="a", fenced=False)
    before = state(isr=(1,), recovering=True)

    with violates("I12") if breaks else nullcontext():
        committed._hold_partition(P, before, state(**{"isr": (1,), **now}), 2)


@pytest.mark.parametrize(
    ("acted_offset", "process", "breaks"),
    [
        pytest.param(8, 1, False, id="it has carried out its registration"),
        pytest.param(7, 1, True, id="it has not"),
        pytest.param(7, 2, False, id="that was another process"),
    ],
)
def test_a_broker_is_unfenced_once_it_knows_its_own_registration(acted_offset, process, breaks):
    """I22."""
    committed = CommittedMetadata(
        {}, now_ns=lambda: 0, wall_start_ms=0, acted_offset={(3, 1): 7, (3, process): acted_offset}.get
    )
    committed._last_members = {(3, 1): None}
    committed.state.brokers[3] = BrokerState(broker_epoch=7, incarnation="a", fenced=True)
    committed._hold_brokers()
    committed.state.brokers[3] = BrokerState(broker_epoch=7, incarnation="a", fenced=False)
    committed._last_members = {(3, process): None}

    with violates("I22") if breaks else nullcontext():
        committed._hold_brokers()


@pytest.mark.parametrize("fenced", [True, False], ids=["fenced", "unfenced"])
def test_who_enters_the_isr_is_not_fenced(fenced):
    committed = CommittedMetadata({}, now_ns=lambda: 0, wall_start_ms=0)
    committed.state.brokers[3] = BrokerState(broker_epoch=7, incarnation="a", fenced=fenced)

    with violates("I11") if fenced else nullcontext():
        committed._hold_partition(P, state(), state(isr=(1, 2, 3)), 2)
