"""Where threads wait: /proc/PID/wchan and /proc/PID/stack."""

from typing import Any

WAITERS = """
mkfifo /tmp/fifo
sleep 100 & sleeper=$!
cat /tmp/fifo & opener=$!
exec 3<>/tmp/fifo2 2>/dev/null
sleep 100 | cat >/dev/null & reader=$!
usleep 300000
for pid in $sleeper $opener $reader $$; do
    echo "$pid $(cat /proc/$pid/wchan)"
    cat /proc/$pid/stack
    echo --
done
kill $sleeper
"""


def test_stacks_name_the_wait(doppel: Any) -> None:
    """They are the guest kernel's own functions, so that Linux has no like."""
    parts = doppel.run("sh", "-c", WAITERS).ok().split("--\n")
    for part, channel, calls in zip(
        parts,
        ["sleep_until", "fifo::open", "Pipe::read"],
        [["sleep_until", "clock_nanosleep"], ["fifo::open", "openat"], ["Pipe::read", "rw::read"]],
        strict=False,
    ):
        head, *stack = part.splitlines()
        assert head.split()[1].endswith(channel), part
        names = [line.split()[1].split("+")[0] for line in stack]
        at = [next(i for i, name in enumerate(names) if name.endswith(call)) for call in calls]
        assert at == sorted(at), part
        # All the way from where the program came in.
        assert names[-1].startswith("doppel_machine::"), part


def test_who_runs_waits_nowhere(doppel: Any) -> None:
    assert doppel.run("sh", "-c", "cat /proc/self/wchan /proc/self/stack").ok() == "0"
