"""Language runtimes from Debian packages at real work, natively and in a domain on the same files (image
`runtimes`)."""

import pytest
from conftest import HERE
from images import Chroot, need_image

SOURCES = HERE / "runtimes"
IMAGE = "runtimes"


@pytest.fixture(params=["native", "domain"])
def same(request, doppel):
    """Runs a command on the files of the image `runtimes`."""
    need_image(IMAGE)
    place = Chroot() if request.param == "native" else doppel
    return lambda *argv, **kw: place.run(*argv, **{"image": IMAGE, "timeout": 120, **kw})


def source(same, name, command, **kw):
    """Runs `command` where the file `name` is."""
    return same("sh", "-c", f"cat > /tmp/{name} && cd /tmp && {command}", stdin=(SOURCES / name).read_text(), **kw).ok()


def test_node(same):
    out = source(same, "node.js", "exec node node.js")
    names = ("http", "worker_threads", "child_process", "fs.watch", "timers", "crypto", "fs", "misc")
    assert out.splitlines() == [f"ok {n}" for n in names]


def test_node_cluster(same):
    """Worker processes that share a listening socket."""
    assert source(same, "cluster.js", "exec node cluster.js", timeout=60) == "workers 3\n"


def test_openjdk(same):
    out = source(same, "Http.java", "javac Http.java && exec java -Xmx32m Http")
    assert out.splitlines() == ["http 200", "gc 200", "npe", "child"]


def test_openjdk_collectors(same):
    """A heap far smaller than what is allocated, with each collector."""
    kinds = ("Serial", "Parallel", "G1", "Shenandoah", "Z")
    run = "; ".join(
        f"echo {k}; java -XX:+Use{k}GC -Xms64m -Xmx160m -XX:TieredStopAtLevel=1 Memory || exit" for k in kinds
    )
    out = source(same, "Memory.java", f"javac Memory.java && {{ {run}; }}", timeout=180)
    assert out.splitlines() == [
        line for k in kinds for line in (k, "gc true true", "map true", "threads 0", "overflow")
    ]


def test_ruby(same):
    out = source(same, "web.rb", "exec ruby web.rb")
    assert out.splitlines() == [
        "http 200",
        "exit 3",
        "sort 5000 1 true",
        "signal",
        "timeout",
        "file 100000 0",
        "queue 49995000",
    ]


def test_php(same):
    out = source(same, "web.php", "exec php web.php")
    assert out.splitlines() == [
        "http 200",
        "big 1000000",
        "stopped yes",
        "sort 5000 1 0",
        "fork 7",
        "alarm 1",
        "fiber 42 8",
        "file 10000 same",
    ]


def test_numpy(same):
    code = """import os, tempfile, threading, multiprocessing as mp, numpy as np
a = np.random.rand(300, 300)
assert round(float(np.trace(a @ np.linalg.inv(a))), 3) == 300
f = np.memmap("/tmp/m", np.float64, "w+", shape=(1000, 100)); f[:] = np.arange(100000).reshape(1000, 100); f.flush()
assert np.memmap("/tmp/m", np.float64, "r", shape=(1000, 100))[999, 99] == 99999
x = np.random.rand(1 << 16); assert np.allclose(np.fft.ifft(np.fft.fft(x)).real, x)
def svd(seed): return np.linalg.svd(np.random.default_rng(seed).random((80, 80)))[1][0]
ts = []; out = {}
for i in range(8): ts.append(threading.Thread(target=lambda i=i: out.__setitem__(i, svd(i)))); ts[-1].start()
for t in ts: t.join()
with mp.Pool(3) as p: assert np.allclose(p.map(svd, range(8)), [out[i] for i in range(8)])
np.savez("/tmp/z", x=x, a=a); assert np.array_equal(np.load("/tmp/z.npz")["x"], x)
print("ok")"""
    assert same("python3", "-c", code).ok() == "ok\n"


def test_numpy_floating_point(same):
    """Factorisations hold, and floating-point exceptions are found in the flags."""
    code = """import numpy as np, numpy.testing as t
for n in (1, 7, 64, 129):
    a = np.random.default_rng(n).random((n, n)) + np.eye(n)
    q, r = np.linalg.qr(a); t.assert_allclose(q @ r, a, atol=1e-9)
    t.assert_allclose(np.linalg.solve(a, a @ np.ones(n)), np.ones(n), atol=1e-6)
    t.assert_array_equal(np.sort(a, axis=None), np.sort(a.ravel(), kind="stable"))
with np.errstate(all="raise"):
    for bad in (lambda: np.float64(1) / np.float64(0), lambda: np.exp(np.float64(1e4))):
        try: bad(); raise SystemExit("no exception")
        except FloatingPointError: pass
print("ok")"""
    assert same("python3", "-c", code).ok() == "ok\n"


def test_perl_and_tcl(same):
    """Two more interpreters with their own input and output layers."""
    perl = (
        'use threads; use IO::Socket; $|=1; my $s=IO::Socket::INET->new(Listen=>5,LocalAddr=>"127.0.0.1") or die;'
        'if(!fork){for(1..50){my $c=IO::Socket::INET->new(PeerAddr=>"127.0.0.1",PeerPort=>$s->sockport) or die; print '
        '$c "$_\\n"; my $l=<$c>; $l==$_*2 or die} exit 5}'
        'for(1..50){my $c=$s->accept; my $l=<$c>; print $c $l*2,"\\n"; close $c} wait; print $?>>8," '
        '",join(",",map{$_->join}map{my $i=$_;threads->create(sub{$i*$i})}1..4),"\\n"'
    )
    assert same("perl", "-e", perl).ok() == "5 1,4,9,16\n"
    tcl = """proc serve {c a p} { fconfigure $c -blocking 0 -buffering line; fileevent $c readable [list answer $c] }
proc answer {c} { if {[gets $c l] >= 0} { puts $c [string reverse $l] } elseif {[eof $c]} { close $c } }
set s [socket -server serve -myaddr 127.0.0.1 0]; set port [lindex [fconfigure $s -sockname] 2]; set n 0
for {set i 0} {$i < 20} {incr i} { set c [socket 127.0.0.1 $port]; fconfigure $c -buffering line -blocking 0
  puts $c "abc$i"; fileevent $c readable [list got $c $i] }
proc got {c i} { global n; if {[gets $c l] >= 0} { if {$l ne [string reverse abc$i]} { exit 1 }; close $c; incr n } }
while {$n < 20} { vwait n }
puts "$n [exec echo hi | tr a-z A-Z]" """
    assert same("tclsh", stdin=tcl).ok() == "20 HI\n"
