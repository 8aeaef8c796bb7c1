"""What a power cut leaves is the cut's doing: machines that lose their power at one moment lose about as much each."""

from tribunal.clusters.simulated.disk import PAGE_BYTES
from tribunal.clusters.simulated.process import NS_PER_S
from tribunal.clusters.simulated.world import Simulation

PAGES = 64


def shares_kept(seed, *, apart_ns):
    """Write the same number of pages on three machines, sync none, and take their power; return which share each still has."""
    simulation = Simulation(seed)
    machines = [simulation.add_machine(f"m{rank}", f"10.0.0.{rank}", rank) for rank in (1, 2, 3)]
    for machine in machines:
        file = machine.disk.open("/file", create=True)
        machine.disk.make_everything_durable()
        file.append(b"x" * PAGES * PAGE_BYTES)

    async def cut():
        for machine in machines:
            machine.power_fail()
            await simulation.loop.sleep_ns(apart_ns)

    simulation.run(cut())
    for machine in machines:
        machine.power_on()
    return [machine.disk.read_file("/file").count(b"x") / (PAGES * PAGE_BYTES) for machine in machines]


def test_machines_that_lose_power_at_one_moment_lose_alike():
    shares = [shares_kept(f"cut {seed}", apart_ns=0) for seed in range(20)]

    assert max(max(kept) - min(kept) for kept in shares) < 0.4
    assert any(kept == [0, 0, 0] for kept in shares)
    assert any(kept == [1, 1, 1] for kept in shares)


def test_each_cut_is_drawn_by_itself():
    shares = [shares_kept(f"cut {seed}", apart_ns=NS_PER_S) for seed in range(20)]

    assert any(max(kept) - min(kept) > 0.8 for kept in shares)
