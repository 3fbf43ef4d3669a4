"""Servers in domains that are loaded from outside, and clients in domains of servers outside."""
import asyncio
import base64
import hashlib
import http.client
import http.server
import os
import resource
import socket
import subprocess
import threading
import time
import zipfile

import pytest
from conftest import free_port, have_image


@pytest.fixture
def serve(domain):
    """Starts a server in a domain: gives the host's port that leads to its own. Whoever calls there waits until it
    listens."""
    running = []

    def start(port, *argv, image="debian", opts=()):
        if not have_image(image):
            pytest.skip(f"no image {image}: make test-images")
        at = free_port()
        opts = ("--network", "nat", "-p", f"127.0.0.1:{at}:{port}", *opts)
        p = domain.start(*argv, image=image, opts=opts, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        running.append(p)
        deadline = time.monotonic() + 60
        while True:
            try:
                socket.create_connection(("127.0.0.1", at), timeout=60).close()
                return at
            except ConnectionRefusedError:
                assert p.poll() is None and time.monotonic() < deadline, "the port is not published"
                time.sleep(0.01)

    yield start
    for p in running:
        p.kill()
        p.wait()


@pytest.fixture
def site(tmp_path):
    """A web server of the host over a directory: the directory, and the port."""

    class Handler(http.server.SimpleHTTPRequestHandler):
        def __init__(self, *args):
            super().__init__(*args, directory=tmp_path)

        def log_message(self, *_):
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as s:
        threading.Thread(target=s.serve_forever, daemon=True).start()
        yield tmp_path, s.server_address[1]
        s.shutdown()


def in_threads(n, work):
    """Runs `work` in n threads at once and raises what one of them has raised."""
    failed = []

    def run(i):
        try:
            work(i)
        except BaseException as e:
            failed.append(e)

    threads = [threading.Thread(target=run, args=(i,)) for i in range(n)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    if failed:
        raise failed[0]


def test_nginx_loaded_from_outside(serve, tmp_path):
    script = """
cd /var/www/html && echo small > small && head -c 1000000 /dev/zero | tr '\\0' x > large
exec nginx -g 'daemon off;'
"""
    port = serve(80, "sh", "-c", script, image="servers")

    def load(_):
        c = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
        for k in range(150):
            name, body = ("large", b"x" * 1_000_000) if k % 50 == 49 else ("small", b"small\n")
            c.request("GET", f"/{name}")
            answer = c.getresponse()
            assert (answer.status, answer.read()) == (200, body)
        c.close()

    in_threads(8, load)
    url = f"http://127.0.0.1:{port}/large"
    subprocess.run(["curl", "-sfo", tmp_path / "large", "--max-time", "60", url], check=True)
    assert (tmp_path / "large").read_bytes() == b"x" * 1_000_000


def test_redis_loaded_from_outside_and_from_another_domain(serve, domain):
    port = serve(6379, "redis-server", "--save", "", "--protected-mode", "no", image="servers")

    def load(i):
        with socket.create_connection(("127.0.0.1", port), timeout=60) as s:
            lines = s.makefile("rb")
            for batch in range(20):
                keys = [f"k{i}-{batch}-{k}" for k in range(100)]
                s.sendall("".join(f"SET {k} {k * 4}\r\n" for k in keys).encode())
                assert all(lines.readline() == b"+OK\r\n" for _ in keys)
                s.sendall("".join(f"GET {k}\r\n" for k in keys).encode())
                for k in keys:
                    assert lines.readline() == f"${len(k) * 4}\r\n".encode()
                    assert lines.readline() == f"{k * 4}\r\n".encode()

    in_threads(8, load)
    script = (
        f"redis-cli -h 10.88.0.1 -p {port} dbsize; redis-benchmark -h 10.88.0.1 -p {port} -n 20000 -P 16 -q -t set,get"
    )
    opts = ("--network", "nat", "--allow", f"10.88.0.1:{port}")
    out = domain.run("sh", "-c", script, image="servers", opts=opts, timeout=120).ok()
    assert out.splitlines()[0] == "16000" and out.count("requests per second") == 2, out


ASYNCIO = """
import asyncio
async def echo(reader, writer):
    while line := await reader.readline():
        writer.write(line.upper())
        await writer.drain()
    writer.close()
async def main():
    server = await asyncio.start_server(echo, "", 7000, backlog=2000)
    await server.serve_forever()
asyncio.run(main())
"""


# At once; `make soak` has ten thousand.
CONNECTIONS = int(os.environ.get("DOPPEL_CONNECTIONS", "1000"))


@pytest.fixture
def descriptors():
    """Room for the sockets in this process and what it starts."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = CONNECTIONS + 3000
    if hard != resource.RLIM_INFINITY and hard < wanted:
        pytest.skip(f"this host allows {hard} descriptors")
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, wanted), hard))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_asyncio_with_many_connections_at_once(serve, descriptors):
    port = serve(7000, "python3", "-c", ASYNCIO)

    async def client(i, here):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        for k in range(3):
            writer.write(b"hello %d %d\n" % (i, k))
            assert await reader.readline() == b"HELLO %d %d\n" % (i, k)
            # Nobody goes on before all are connected.
            await here.wait()
        writer.close()
        await writer.wait_closed()

    async def all_of_them():
        here = asyncio.Barrier(CONNECTIONS)
        await asyncio.gather(*(client(i, here) for i in range(CONNECTIONS)))

    asyncio.run(asyncio.wait_for(all_of_them(), 60 + CONNECTIONS / 50))


def names_what_is_asked(port, who):
    """Asks a server for many pages on four connections at once; it answers with its name and the page's."""

    def load(i):
        c = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
        for k in range(50):
            c.request("GET", f"/{i}/{k}")
            assert c.getresponse().read() == f"{who} /{i}/{k}".encode()
        c.close()

    in_threads(4, load)


def test_node(serve):
    code = "require('http').createServer((q, r) => r.end('node ' + q.url)).listen(3000)"
    port = serve(3000, "node", "-e", code, image="runtimes")

    names_what_is_asked(port, "node")


JAVA = """
import com.sun.net.httpserver.*;
public class Served {
    public static void main(String[] args) throws Exception {
        HttpServer server = HttpServer.create(new java.net.InetSocketAddress(3000), 0);
        server.setExecutor(java.util.concurrent.Executors.newFixedThreadPool(4));
        server.createContext("/", exchange -> {
            byte[] answer = ("java " + exchange.getRequestURI()).getBytes();
            exchange.sendResponseHeaders(200, answer.length);
            try (var body = exchange.getResponseBody()) { body.write(answer); }
        });
        server.start();
    }
}
"""


def test_java(serve):
    script = f"cat >/tmp/Served.java <<'J'\n{JAVA}J\nexec java -Xmx64m -XX:TieredStopAtLevel=1 /tmp/Served.java"
    port = serve(3000, "sh", "-c", script, image="runtimes")

    names_what_is_asked(port, "java")


def wheel(directory, name, body):
    """A wheel of one module, as a local index has it."""
    info = f"{name}-1.0.dist-info"
    files = {
        f"{name}.py": body,
        f"{info}/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n",
        f"{info}/WHEEL": "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    digest = lambda text: base64.urlsafe_b64encode(hashlib.sha256(text.encode()).digest()).rstrip(b"=").decode()
    record = "".join(f"{n},sha256={digest(t)},{len(t)}\n" for n, t in files.items()) + f"{info}/RECORD,,\n"
    (directory / "simple" / name).mkdir(parents=True)
    with zipfile.ZipFile(directory / "simple" / name / f"{name}-1.0-py3-none-any.whl", "w") as z:
        for n, text in {**files, f"{info}/RECORD": record}.items():
            z.writestr(n, text)


def test_pip_installs_from_a_local_index_and_requests_asks_it(domain, site):
    if not have_image("runtimes"):
        pytest.skip("no image runtimes: make test-images")
    directory, port = site
    wheel(directory, "doppeltest", "answer = 42\n")
    url = f"http://10.88.0.1:{port}/simple"
    script = f"""
export PIP_ROOT_USER_ACTION=ignore PIP_DISABLE_PIP_VERSION_CHECK=1
pip install -q --break-system-packages --target /tmp/got --trusted-host 10.88.0.1 --index-url {url} doppeltest
cd /tmp/got && python3 -c '
import doppeltest, requests
with requests.Session() as s:
    for _ in range(20):
        answer = s.get("{url}/doppeltest/")
        assert answer.status_code == 200 and "doppeltest-1.0" in answer.text, answer
print(doppeltest.answer)'
"""
    opts = ("--network", "nat", "--allow", f"10.88.0.1:{port}")
    assert domain.run("sh", "-c", script, image="runtimes", opts=opts, timeout=120).ok() == "42\n"


def test_git_clones_over_http(domain, site):
    directory, port = site
    work, bare = directory / "work", directory / "repository.git"
    git = ["git", "-c", "user.name=t", "-c", "user.email=t@example.org", "-c", "init.defaultBranch=main"]
    subprocess.run([*git, "init", "-q", work], check=True)
    (work / "data").write_bytes(os.urandom(300_000))
    for i in range(20):
        (work / f"file{i}").write_text(f"content {i}\n")
        subprocess.run([*git, "-C", work, "add", "."], check=True)
        subprocess.run([*git, "-C", work, "commit", "-q", "-m", f"commit {i}"], check=True)
    subprocess.run([*git, "clone", "-q", "--bare", work, bare], check=True)
    subprocess.run([*git, "-C", bare, "update-server-info"], check=True)
    head = subprocess.run([*git, "-C", work, "rev-parse", "HEAD"], check=True, capture_output=True, text=True).stdout
    script = (
        f"git clone -q http://10.88.0.1:{port}/repository.git r && cd r && git fsck --full && git rev-parse HEAD "
        "&& ls | wc -l"
    )
    opts = ("--network", "nat", "--allow", f"10.88.0.1:{port}")
    out = domain.run("sh", "-c", script, opts=opts, timeout=120).ok()
    assert out == f"{head}21\n"


def test_curl_by_name(domain, site):
    """A name that the command is told; names by name servers are test_names.py's."""
    directory, port = site
    (directory / "page").write_bytes(os.urandom(2_000_000))
    script = f"curl -sf --max-time 60 --resolve site.test:{port}:10.88.0.1 http://site.test:{port}/page | sha256sum"
    out = domain.run("sh", "-c", script, opts=("--network", "nat", "--allow", "10.88.0.1"), timeout=90).ok()
    there = subprocess.run(["sha256sum"], stdin=open(directory / "page", "rb"), capture_output=True, text=True).stdout
    assert out == there
