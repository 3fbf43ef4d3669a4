"""Language runtimes at real work in a domain: Node.js, OpenJDK, Ruby, numpy, the standard library's tests of Go.

A runtime runs from this host's files where it has them (Node.js, Go), else from the image `runtimes`:
`doppel image build runtimes busybox bash coreutils python3-numpy gcc g++ libc6-dev make cmake perl ruby
openjdk-17-jdk-headless`. What is missing is skipped.
"""
import os
import re
import shutil
import subprocess

import pytest

from conftest import BUILD, DOPPEL, HERE, have_image

SOURCES = HERE / "runtimes"
IMAGE = "runtimes"


def make_image(name, files, extra=()):
    """An image of host files with their libraries and a small system around them."""
    root = BUILD / name
    shutil.rmtree(root, ignore_errors=True)
    for d in ("bin", "usr/bin", "tmp", "proc", "sys", "dev", "etc"):
        (root / d).mkdir(parents=True)
    (root / "tmp").chmod(0o1777)
    (root / "etc/passwd").write_text("root:x:0:0:root:/:/bin/sh\n")
    (root / "etc/group").write_text("root:x:0:\n")
    (root / "etc/hosts").write_text("127.0.0.1 localhost\n")
    shutil.copy("/bin/busybox", root / "bin/busybox")
    for applet in ("sh", "true", "false", "echo", "cat", "ls", "sleep", "kill", "pwd", "env", "date", "hostname"):
        (root / "bin" / applet).symlink_to("busybox")
    for f in files:
        libs = re.findall(r"(/\S+) \(0x", subprocess.run(["ldd", f], capture_output=True, text=True).stdout)
        for path in {str(f), *libs}:
            to = root / path[1:]
            to.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(path, to)
    for path, to in extra:
        (shutil.copytree if os.path.isdir(path) else shutil.copy)(path, root / to)
    subprocess.run([DOPPEL, "image", "rm", name], capture_output=True)
    subprocess.run([DOPPEL, "image", "import", root, name], check=True, capture_output=True)
    return name


@pytest.fixture
def packages(domain):
    if not have_image(IMAGE):
        pytest.skip(f"no image {IMAGE}: see the head of this file")
    return domain


def test_node(domain):
    node = shutil.which("node")
    if not node:
        pytest.skip("node is not installed")
    image = make_image("domain-node", [os.path.realpath(node)])
    script = f"cat > /tmp/all.js && exec {os.path.realpath(node)} /tmp/all.js"
    out = domain.run("sh", "-c", script, stdin=(SOURCES / "node.js").read_text(), image=image, timeout=120).ok()
    names = ("http", "worker_threads", "child_process", "fs.watch", "timers", "crypto", "fs", "misc")
    assert out.splitlines() == [f"ok {n}" for n in names]


def test_openjdk(packages):
    script = "cat > Http.java && javac Http.java && exec java -Xmx32m Http"
    out = packages.run("sh", "-c", script, stdin=(SOURCES / "Http.java").read_text(), image=IMAGE, timeout=120).ok()
    assert out.splitlines() == ["http 200", "gc 200", "npe", "child"]


@pytest.mark.parametrize("package", ["os", "os/exec"])
def test_go_standard_library(domain, package):
    go = shutil.which("go") or "/usr/local/go/bin/go"
    if not os.path.exists(go):
        pytest.skip("go is not installed")
    root = subprocess.run([go, "env", "GOROOT"], capture_output=True, text=True, check=True).stdout.strip()
    name = package.replace("/", "-")
    program = BUILD / f"{name}.test"
    BUILD.mkdir(parents=True, exist_ok=True)
    subprocess.run([go, "test", "-c", "-o", program, package], env={**os.environ, "CGO_ENABLED": "0"}, check=True)
    image = make_image(f"domain-go-{name}", [], [(program, "bin/gotest"), (f"{root}/src/{package}", "src")])
    # The working directory is the package's: its tests read files there.
    r = domain.run("sh", "-c", "cd /src && exec gotest -test.short -test.timeout 60s", image=image, timeout=90)
    assert r.ok().endswith("PASS\n")


def test_ruby(packages):
    code = """require "socket"; s = TCPServer.new("127.0.0.1", 0)
t = Thread.new { 100.times { c = s.accept; c.write c.gets; c.close } }
puts (1..100).sum { |i| c = TCPSocket.new("127.0.0.1", s.addr[1]); c.puts i; c.read.to_i }
t.join; puts `echo sub`; puts Process.wait2(fork { exit 3 })[1].exitstatus"""
    assert packages.run("ruby", "-e", code, image=IMAGE).ok() == "5050\nsub\n3\n"


def test_numpy(packages):
    code = """import numpy as np
a = np.random.rand(300, 300)
print(round(float(np.trace(a @ np.linalg.inv(a))), 3))"""
    assert packages.run("python3", "-c", code, image=IMAGE).ok() == "300.0\n"


def test_cmake_project(packages):
    script = r"""set -e
for i in $(seq 30); do echo "int f$i(int x) { return x + $i; }" > f$i.c; done
(for i in $(seq 30); do echo "int f$i(int);"; done; echo '#include <stdio.h>'; echo 'int main(void) { int x = 0;'
for i in $(seq 30); do echo "x = f$i(x);"; done; echo 'printf("%d\n", x); return 0; }') > main.c
printf 'cmake_minimum_required(VERSION 3.10)\nproject(p C)\nfile(GLOB S f*.c)\nadd_library(f SHARED ${S})\nadd_executable(p main.c)\ntarget_link_libraries(p f)\n' > CMakeLists.txt
cmake -B build . > log 2>&1 || { cat log; exit 1; }
make -j4 -C build >> log 2>&1 || { cat log; exit 1; }
build/p"""
    assert packages.run("bash", "-c", script, image=IMAGE, timeout=120).ok() == "465\n"
