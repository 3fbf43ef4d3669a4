"""Published C projects, from Debian's source packages, built and tested by their own test-suites, natively and in a
domain.

The sources come from the Debian mirror with apt-get, once; the tools are those of the image `runtimes`.
"""

import re
import subprocess

import pytest
from conftest import BUILD
from images import Chroot, long, need_image

IMAGE = "runtimes"
SOURCES = BUILD / "sources"
LIST = "deb-src [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] http://deb.debian.org/debian bookworm main\n"


def tarball(package):
    """The bytes of a source package's upstream archive."""

    def there():
        return sorted(SOURCES.glob(f"{package}_*.orig.tar.*z*"))

    if not there():
        for d in ("lists/partial", "cache/archives/partial"):
            (SOURCES / d).mkdir(parents=True, exist_ok=True)
        (SOURCES / "sources.list").write_text(LIST)
        options = {
            "Dir::Etc::SourceList": SOURCES / "sources.list",
            "Dir::Etc::SourceParts": "/dev/null",
            "Dir::State::Lists": SOURCES / "lists",
            "Dir::Cache": SOURCES / "cache",
            "APT::Sandbox::User": "root",
        }
        apt = ["apt-get", "-qq", *(f"-o{k}={v}" for k, v in options.items())]
        if not any((SOURCES / "lists").glob("*Sources*")):
            subprocess.run([*apt, "update"], capture_output=True, timeout=120)
        r = subprocess.run(
            [*apt, "--download-only", "source", package], cwd=SOURCES, capture_output=True, text=True, timeout=120
        )
        if not there():
            pytest.skip(f"no source of {package} from the Debian mirror: {r.stderr.strip()[-200:]}")
    return there()[-1].read_bytes()


@pytest.fixture(params=["native", "domain"])
def build(request, doppel):
    """Unpacks a source package, enters it and runs a script; its output."""
    need_image(IMAGE)
    place = Chroot() if request.param == "native" else doppel

    def run(package, script, timeout=240):
        unpack = (
            "mkdir -p /tmp/b && cd /tmp/b && cat > s.tar && python3 -m tarfile -e s.tar >/dev/null && rm s.tar && "
            "cd *\n"
        )
        return place.run(
            "bash", "-ec", f"exec 2>&1\n{unpack}{script}", stdin=tarball(package), image=IMAGE, timeout=timeout
        ).ok()

    return run


def test_zlib(build):
    """configure, parallel make with shared and static library, make check."""
    out = build("zlib", "./configure && make -j2 && make check")
    assert (
        out.count("*** zlib test OK ***") == 1 and "*** zlib shared test OK ***" in out and "64-bit test OK" in out
    ), out[-3000:]


def test_cjson(build):
    """cmake, make, ctest: 19 programs."""
    out = build(
        "cjson",
        "cmake -B build -DENABLE_CJSON_UTILS=On . && make -j2 -C build && cd build && ctest -j2 --output-on-failure",
    )
    assert re.search(r"100% tests passed, 0 tests failed out of \d\d", out), out[-3000:]


def test_lua(build):
    """make; then the interpreter made runs a program with coroutines, files and processes."""
    out = build(
        "lua5.4",
        r"""make -s -j2 linux MYCFLAGS=-DLUA_COMPAT_5_3 && cat > t.lua <<'END'
local function gen(n) return coroutine.wrap(function() for i = 1, n do coroutine.yield(i) end end) end
local s = 0; for i in gen(100000) do s = s + i end
local f = assert(io.open("/tmp/x", "w")); for i = 1, 10000 do f:write(i, "\n") end; f:close()
local t = {}; for l in io.lines("/tmp/x") do t[#t + 1] = tonumber(l) end
table.sort(t, function(a, b) return a > b end)
local p = io.popen("echo out; exit 3"); local o = p:read("a"); local _, _, code = p:close()
print(s, t[1], o:gsub("\n", ""), code, select(2, pcall(error, {})) ~= nil, collectgarbage("count") > 0)
END
src/lua t.lua""",
    )
    assert out.splitlines()[-1].split() == ["5000050000", "10000", "out", "3", "true", "true"], out[-2000:]


def test_redis(build):
    """A build of 100 files, then the parts of redis' own test-suite that are about data types and expiry."""
    long("two minutes")
    tests = " ".join(
        f"--single unit/{t}" for t in ("type/string", "type/list", "type/hash", "expire", "multi", "pubsub")
    )
    out = build("redis", f"make -s -j2 MALLOC=libc && ./runtest --clients 2 --timeout 300 {tests}", timeout=900)
    assert "All tests passed without errors!" in out, out[-3000:]
