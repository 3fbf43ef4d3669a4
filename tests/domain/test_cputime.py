"""CPU time in a domain that does not get the whole CPU: what its programs are told is what the host's accounts say."""
# Computes for a second of CPU time as bash is told it, and prints that, wall time, and the kernel's account.
BUSY = (
    "t0=${EPOCHREALTIME/./}; c() { local l; read -r -a l < /proc/self/stat; ((c = l[13] + l[14])); }; "
    "c; c0=$c; while c; ((c - c0 < 100)); do for ((i = 0; i < 2000; i++)); do :; done; done; "
    "t1=${EPOCHREALTIME/./}; read -r -a l < /proc/stat; echo $((c - c0)) $(((t1 - t0) / 10000)) ${l[1]} ${l[3]} ${l[8]}"
)


def test_what_a_cap_takes_is_no_cpu_time(domain):
    """With a quarter of a CPU a second of CPU time takes four, and the rest shows as steal (Xen §3.3.2)."""
    text = domain.run("bash", "-c", BUSY, opts=["--cpus", "0.25"], timeout=60).ok()
    used, wall, user, system, steal = map(int, text.split())
    assert used >= 100
    assert wall >= 3 * used, text
    # The second or so of the shell; not the four that passed.
    assert used <= user + system <= 2 * used, text
    assert steal >= wall // 2, text
