"""CPython's own test-suite (Debian's libpython3.11-testsuite), natively and in a domain on the same files.

`make test` runs the modules that are about the system; `make test-all` all of those which are quick natively. Tests
that need a network, a display or gigabytes skip themselves in both places, as `python3 -m test` does by default.
"""
import json

from conftest import HERE
from images import Chroot, both, columns, long, need_image

IMAGE = "runtimes"
# Modules about the system, first those which take longest.
SYSTEM = """test_asyncio test_multiprocessing_fork test_signal test_ssl test_subprocess test_socket test_threading test_selectors
test_poll test_eintr test_fork1 test_wait3 test_wait4 test_threadsignals test_thread test_select test_epoll test_mmap test_os
test_posix test_pathlib test_shutil test_tempfile test_fcntl test_pty test_openpty test_file test_fileio test_time test_resource
test_pwd test_glob test_popen test_pipes test_cmd_line test_threading_local test_httpservers test_urllib2_localnet""".split()  # noqa: E501
MORE = """test_concurrent_futures test_multiprocessing_spawn test_multiprocessing_forkserver test_io test_xmlrpc test_logging
test_faulthandler test_ftplib test_largefile test_lzma test_queue test_zipfile test_bz2 test_zlib test_tarfile test_statistics
test_gc test_exceptions test_httplib test_smtplib test_json test_traceback test_tracemalloc test_ctypes test_hashlib test_sys test_re
test_site test_shelve test_readline test_posixpath test_platform test_uuid test_dbm test_getpass test_stat""".split()  # noqa: E501
# The first waits for ever natively, for a host that is not there. UDP-Lite, of which the second are, is not provided.
# The last calls a port that was free a moment ago from one that the kernel chooses: one time in some 14,000, natively
# too, these are the same, and it reaches itself.
IGNORE = ["ThreadedVSOCKSocketStreamTest", "*UDPLITE*", "*test_create_connection_local_addr_skip_different_family"]
KNOWN = {
    "test_time.TimeTestCase.test_monotonic_settime": "a domain cannot set the clock; the test skips itself",
} | {
    f"test_socket.BasicVSOCKTest.{t}": "there are no AF_VSOCK sockets; the test skips itself"
    for t in ("testCreateSocket", "testCrucialConstants", "testSocketBufferSize", "testVSOCKConstants")
}
# They skip themselves where a minute gives them less CPU time than they wait for: that tells of the machine alone.
IN_TIME = [f"test_signal.ItimerTest.test_itimer_{t}" for t in ("virtual", "prof")]


def run(place, modules, jobs):
    """{test: outcome} of all modules."""
    r = place.run(
        "sh",
        "-c",
        f"cat > /tmp/regrtest.py && exec python3 /tmp/regrtest.py 300 {jobs} '{','.join(IGNORE)}' {' '.join(modules)}",
        stdin=(HERE / "runtimes/regrtest.py").read_text(),
        image=IMAGE,
        timeout=1500,
        env={"LANG": "C.UTF-8"},
    )
    return {t: o for tests in json.loads(r.ok()).values() for t, o in tests.items()}


def compare(doppel, capsys, what, modules):
    need_image(IMAGE)
    native, domain = both(lambda place: run(place, modules, 4), Chroot(), doppel)
    columns(
        capsys, what, {t: o for t, o in native.items() if t not in IN_TIME or domain.get(t) != "skip"}, domain, KNOWN
    )


def test_system_modules(doppel, capsys):
    compare(doppel, capsys, "CPython's tests about the system", SYSTEM)


def test_more_modules(doppel, capsys):
    long("eight minutes")
    compare(doppel, capsys, "more of CPython's tests", MORE)
