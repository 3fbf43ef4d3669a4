"""Sleeps end in time, however busy the other threads of their process are."""
import statistics


def test_sleeps_beside_busy_threads_end_in_time(domain, programs):
    """On the host's kernel, in a control group too, and in a domain in turn: whatever else runs on the machine makes
    both late, and the scheduler has groups wait for one another as it does not have tasks."""
    paene = ("--kind", "paene")
    rounds = [
        (int(domain.run("/t/sleeper", opts=paene).ok()), int(domain.run("/t/sleeper").ok())) for _ in range(5)
    ]
    natively, inside = zip(*rounds)
    assert min(inside) <= 1.5 * statistics.median(natively), rounds
