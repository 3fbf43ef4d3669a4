"""Mappings larger than a domain's memory: what is touched costs, and the rest does not."""

PROGRAM = r"""
import mmap, os, sys
fd = os.open("/tmp/sparse", os.O_RDWR | os.O_CREAT)
os.ftruncate(fd, 1 << 40)
m = mmap.mmap(fd, 1 << 40)
for i in range(100):
    m[i << 32] = i
assert [m[i << 32] for i in range(100)] == list(range(100))
r = mmap.mmap(fd, 1 << 40, prot=mmap.PROT_READ)
assert r[99 << 32] == 99 and r[(99 << 32) + 8192] == 0
assert os.stat("/tmp/sparse").st_blocks * 512 < 32 << 20
print("touched")
sys.stdout.flush()
for at in range(0, 1 << 30, 4096):
    m[at] = 1
print("never")
"""


def test_a_sparse_file_costs_what_is_touched(domain):
    r = domain.run("python3", "-c", PROGRAM, opts=("-m", "96m"))
    # More than there is: a bus error in the program, not the end of the domain by the host.
    assert r.out == "touched\n" and r.code == 128 + 7, (r.code, r.out, r.err)
