"""No call is made twice because of what a freeze or a clone's beginning does to shared memory (docs/freezer.md)."""
from conftest import HERE
from freezing import clean, clones, doppel_call, names  # noqa: F401


def test_calls_are_made_once(domain, names, clean):
    """What calls take from pipes, sockets and queues, and store in shared memory: frozen eight times, and in clones."""
    program = (HERE / "progs/once.py").read_text()
    p = domain.start("python3", "-c", program, image="debian", opts=["--name", "fzt-once", "-i"])
    assert p.stdout.readline() == b"ready\n", p.stderr.read()
    for i in range(8):
        frozen = names(str(i))
        doppel_call("freeze", "fzt-once", frozen).ok()
        if i % 4 == 3:
            for c in clones(frozen, "-n", "2"):
                assert c["stdout"] == "0 of 11\n", c
    out, err = p.communicate(timeout=30)
    assert out == b"0 of 11\n" and err == b"", (out, err)
