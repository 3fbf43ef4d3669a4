"""CPython in a domain: the standard library, processes, threads, asyncio, sqlite3, signals, terminals."""
import sys

import pytest

MODULES = """abc argparse array ast asyncio base64 bisect bz2 calendar cmath codecs collections colorsys concurrent.futures
configparser contextlib contextvars copy copyreg csv ctypes curses dataclasses datetime dbm decimal difflib dis doctest email
enum errno faulthandler fcntl filecmp fileinput fnmatch fractions ftplib functools gc getpass gettext glob graphlib grp gzip
hashlib heapq hmac html http.client http.server imaplib importlib inspect io ipaddress itertools json keyword linecache locale
logging lzma mailbox marshal math mimetypes mmap multiprocessing netrc numbers operator optparse os pathlib pdb pickle pickletools
pkgutil platform plistlib poplib posix pprint profile pstats pty pwd py_compile queue quopri random re readline resource rlcompleter
runpy sched secrets select selectors shelve shlex shutil signal smtplib socket socketserver sqlite3 ssl stat statistics string
struct subprocess symtable sysconfig syslog tarfile tempfile termios textwrap threading time timeit token tokenize trace traceback
tracemalloc tty types typing unicodedata unittest urllib.request uuid venv warnings wave weakref webbrowser wsgiref xml.dom
xml.etree.ElementTree xml.sax xmlrpc.client zipapp zipfile zipimport zlib zoneinfo""".split()  # noqa: E501


def python(place, code, **kw):
    return place.run(sys.executable if place.name == "native" else "python3", "-", stdin=code, **kw)


def test_import_standard_library(place):
    code = (
        f"import importlib\nbad = []\nfor m in {MODULES!r}:\n    try: importlib.import_module(m)\n    except "
        f"ImportError as e: bad.append((m, str(e)))\nprint(len({MODULES!r}) - len(bad), bad)"
    )
    out = python(place, code).ok()
    assert int(out.split()[0]) >= 145, out


def test_subprocess(place):
    code = r"""
import subprocess, sys, os, signal
assert subprocess.check_output(["echo", "hi"]) == b"hi\n"
p = subprocess.run("exit 3", shell=True); assert p.returncode == 3
p = subprocess.Popen(["cat"], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
out, _ = p.communicate(b"x" * 300000); assert len(out) == 300000
p = subprocess.Popen(["sleep", "60"]); p.send_signal(signal.SIGTERM); assert p.wait() == -15
try: subprocess.run(["sleep", "60"], timeout=0.2); assert False
except subprocess.TimeoutExpired: pass
try: subprocess.run(["/nonexistent"]); assert False
except FileNotFoundError: pass
a = subprocess.Popen(["seq", "100000"], stdout=subprocess.PIPE)
b = subprocess.run(["wc", "-l"], stdin=a.stdout, stdout=subprocess.PIPE); assert int(b.stdout) == 100000
ps = [subprocess.Popen([sys.executable, "-c", f"import sys; sys.exit({i})"]) for i in range(8)]
assert [p.wait() for p in ps] == list(range(8))
p = subprocess.run(["sh", "-c", "pwd; echo $K"], cwd="/", env={"K": "v"}, stdout=subprocess.PIPE, start_new_session=True, preexec_fn=os.getpid)
assert p.stdout == b"/\nv\n"
print("ok")
"""  # noqa: E501
    assert python(place, code).ok() == "ok\n"


def test_threading(place):
    code = r"""
import threading, queue, time, concurrent.futures as cf
q, done = queue.Queue(), []
def work():
    while (x := q.get()) is not None: done.append(x * x)
ts = [threading.Thread(target=work) for _ in range(8)]
[t.start() for t in ts]; [q.put(i) for i in range(5000)]; [q.put(None) for _ in ts]; [t.join() for t in ts]
assert sorted(done) == [i * i for i in range(5000)]
with cf.ThreadPoolExecutor(16) as ex: assert sum(ex.map(lambda i: i + 1, range(1000))) == 500500
e = threading.Event(); threading.Timer(0.1, e.set).start(); assert e.wait(5)
assert not threading.Event().wait(0.05)
b = threading.Barrier(10); r = []
ts = [threading.Thread(target=lambda: (b.wait(), r.append(1))) for _ in range(10)]; [t.start() for t in ts]; [t.join() for t in ts]
assert len(r) == 10
l = threading.local(); s = threading.Semaphore(3)
with s: pass
print("ok")
"""  # noqa: E501
    assert python(place, code).ok() == "ok\n"


@pytest.mark.parametrize("method", ["fork", "spawn", "forkserver"])
def test_multiprocessing(place, method):
    code = r"""
import multiprocessing as mp, os, sys
def square(x): return x * x
def child(q, e, v, l):
    with l: v.value += 1
    q.put(os.getpid()); e.wait(10)
if __name__ == "__main__":
    ctx = mp.get_context("METHOD")
    with ctx.Pool(4) as p: assert p.map(square, range(200)) == [x * x for x in range(200)]
    q, e, v, l = ctx.Queue(), ctx.Event(), ctx.Value("i", 0), ctx.Lock()
    ps = [ctx.Process(target=child, args=(q, e, v, l)) for _ in range(3)]
    [p.start() for p in ps]; pids = {q.get(timeout=20) for _ in ps}; e.set(); [p.join(20) for p in ps]
    assert pids == {p.pid for p in ps} and v.value == 3 and all(p.exitcode == 0 for p in ps)
    from multiprocessing import shared_memory
    s = shared_memory.SharedMemory(create=True, size=100); s.buf[0] = 7
    t = shared_memory.SharedMemory(s.name); assert t.buf[0] == 7; t.close(); s.close(); s.unlink()
    a, b = ctx.Pipe(); a.send([1, {"x": 2}]); assert b.recv() == [1, {"x": 2}]
    print("ok")
""".replace("METHOD", method)
    py = sys.executable if place.name == "native" else "python3"
    out = place.run("sh", "-c", f"cat > mp_{method}.py && {py} mp_{method}.py", stdin=code, timeout=120).ok()
    assert out == "ok\n"


def test_asyncio_loopback(place):
    code = r"""
import asyncio
async def serve(r, w):
    while data := await r.readline(): w.write(data.upper()); await w.drain()
    w.close()
async def client(port, n):
    r, w = await asyncio.open_connection("127.0.0.1", port)
    for i in range(20):
        w.write(f"msg {n} {i}\n".encode()); assert await r.readline() == f"MSG {n} {i}\n".encode()
    w.close(); await w.wait_closed(); return n
async def main():
    s = await asyncio.start_server(serve, "127.0.0.1", 0); port = s.sockets[0].getsockname()[1]
    assert await asyncio.gather(*[client(port, n) for n in range(50)]) == list(range(50))
    p = await asyncio.create_subprocess_exec("cat", stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE)
    out, _ = await p.communicate(b"y" * 100000); assert len(out) == 100000
    await asyncio.wait_for(asyncio.sleep(0.01), 5)
    loop = asyncio.get_running_loop(); assert await loop.run_in_executor(None, sum, range(100)) == 4950
    s.close(); print("ok")
asyncio.run(main())
"""
    assert python(place, code).ok() == "ok\n"


def test_sqlite3_module(place):
    code = r"""
import sqlite3
c = sqlite3.connect("py.db"); c.execute("pragma journal_mode=wal")
c.execute("create table t(a integer primary key, b text)")
with c: c.executemany("insert into t(b) values (?)", ((str(i),) for i in range(50000)))
assert c.execute("select count(*), sum(cast(b as int)) from t").fetchone() == (50000, 1249975000)
d = sqlite3.connect("py.db"); assert d.execute("select b from t where a=500").fetchone() == ("499",)
try:
    with c: c.execute("delete from t"); raise KeyError
except KeyError: pass
assert d.execute("select count(*) from t").fetchone() == (50000,)
print("ok")
"""
    assert python(place, code).ok() == "ok\n"


def test_mmap_signal(place):
    code = r"""
import mmap, os, signal, time, select
with open("m", "w+b") as f:
    f.truncate(1 << 20); m = mmap.mmap(f.fileno(), 0); m[1000:1005] = b"hello"; m.flush()
    f.seek(1000); assert f.read(5) == b"hello"; assert m.find(b"hello") == 1000; m.resize(2 << 20)
a = mmap.mmap(-1, 4096)
if os.fork() == 0: a[0:5] = b"child"; os._exit(0)
os.wait(); assert a[0:5] == b"child"
got = []
signal.signal(signal.SIGUSR1, lambda s, f: got.append(s)); os.kill(os.getpid(), signal.SIGUSR1); assert got == [signal.SIGUSR1]
signal.signal(signal.SIGALRM, lambda s, f: got.append(s)); signal.setitimer(signal.ITIMER_REAL, 0.05)
t = time.monotonic(); time.sleep(0.2); assert time.monotonic() - t >= 0.19 and got[-1] == signal.SIGALRM
r, w = os.pipe(); os.set_blocking(w, False); signal.set_wakeup_fd(w); os.kill(os.getpid(), signal.SIGUSR1)
assert select.select([r], [], [], 1)[0]; signal.set_wakeup_fd(-1)
signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGUSR2]); os.kill(os.getpid(), signal.SIGUSR2)
assert signal.sigtimedwait([signal.SIGUSR2], 1).si_pid == os.getpid()
print("ok")
"""  # noqa: E501
    assert python(place, code).ok() == "ok\n"


def test_pty_module(place):
    code = r"""
import pty, os, time
pid, fd = pty.fork()
if pid == 0: os.execvp("sh", ["sh", "-c", "tty >/dev/null && stty size && read x && echo got:$x"])
import fcntl, termios, struct
time.sleep(0.2); os.write(fd, b"answer\n")
out = b""
try:
    while chunk := os.read(fd, 1000): out += chunk
except OSError: pass
assert os.waitpid(pid, 0)[1] == 0, out
assert b"got:answer" in out, out
print("ok")
"""
    assert python(place, code).ok() == "ok\n"


def test_exceptions_and_files(place):
    code = r"""
import os, tempfile, shutil, pathlib, glob, json, hashlib
d = pathlib.Path(tempfile.mkdtemp()); (d / "a/b").mkdir(parents=True); (d / "a/b/f").write_text("x" * 100000)
shutil.copytree(d / "a", d / "c"); assert (d / "c/b/f").stat().st_size == 100000
assert sorted(p.name for p in d.rglob("*")) == ["a", "b", "b", "c", "f", "f"]
os.rename(d / "c", d / "e"); shutil.make_archive(str(d / "z"), "zip", d / "e"); shutil.unpack_archive(d / "z.zip", d / "u")
assert hashlib.sha256((d / "u/b/f").read_bytes()).hexdigest() == hashlib.sha256(b"x" * 100000).hexdigest()
os.utime(d / "a/b/f", ns=(5, 10**18)); assert (d / "a/b/f").stat().st_mtime_ns == 10**18
shutil.rmtree(d); assert not d.exists()
for bad, exc in [(lambda: open("/nonexistent/x"), FileNotFoundError), (lambda: os.listdir("/etc/passwd"), NotADirectoryError), (lambda: os.mkdir("/etc"), FileExistsError)]:
    try: bad(); assert False
    except exc: pass
print("ok")
"""  # noqa: E501
    assert python(place, code).ok() == "ok\n"
