"""A supervisor on another host (reached over TCP): images are its own; TLS that does not work, in words."""
import os
import socket
import subprocess

import pytest
from conftest import DOPPEL, DOPPELD, Doppeld


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def token_of(server):
    add = [DOPPELD, "--config", str(server.config), "token", "add", "test"]
    return subprocess.run(add, check=True, capture_output=True, text=True).stdout.strip()


def cli(env, *args, stdin=None):
    keep = {k: v for k, v in os.environ.items() if not k.startswith("DOPPEL_")}
    return subprocess.run([DOPPEL, *args], capture_output=True, env={**keep, **env}, timeout=120, input=stdin)


def test_images_are_the_other_hosts(tmp_path, busybox):
    port = free_port()
    server = Doppeld(config=f"[tcp]\nlisten = '127.0.0.1:{port}'\ntokens = '{tmp_path}/tokens'\n")
    check = [DOPPELD, "--config", str(server.config), "--check"]
    refused = subprocess.run(check, capture_output=True, text=True)
    assert refused.returncode != 0 and "needs a token" in refused.stderr, "nobody could use its TCP"
    env = {
        "DOPPEL_HOST": f"http://127.0.0.1:{port}",
        "DOPPEL_TOKEN": token_of(server),
        "DOPPEL_STORE": str(tmp_path / "here"),
    }
    assert subprocess.run(check, capture_output=True).returncode == 0
    server.start()
    try:
        listed = cli(env, "images", "-q")
        assert b"busybox" in listed.stdout.split(), listed
        assert cli(env, "images", "-q", "--local").stdout == b""
        assert cli(env, "image", "inspect", "busybox").returncode == 0
        with_file = subprocess.run(
            ["tar", "-C", str(tmp_path), "-cf", "-", "tokens"], check=True, capture_output=True
        ).stdout
        made = cli(env, "image", "import", "-", "made-there", stdin=with_file)
        assert made.returncode == 0, made.stderr
        assert b"made-there" in cli(env, "images", "-q").stdout.split()
        assert cli(env, "rmi", "made-there").stdout == b"removed: made-there\n"
        assert cli(env, "rmi", "-f", "made-there").returncode == 0
        assert b"made-there" not in cli(env, "images", "-q").stdout.split()
        assert cli(env, "frozen", "ls", "-q").returncode == 0
        assert b"this host only" in cli(env, "image", "tag", "busybox", "b").stderr
        # TLS to what speaks none, and none to what does, is below.
        tls = cli({**env, "DOPPEL_HOST": f"https://127.0.0.1:{port}"}, "ps")
        assert tls.returncode == 1 and b"does not speak TLS" in tls.stderr, tls.stderr
    finally:
        server.close()


@pytest.fixture
def secured(tmp_path, busybox):
    key, cert = tmp_path / "key.pem", tmp_path / "cert.pem"
    make = [
        "openssl",
        "req",
        "-x509",
        "-newkey",
        "ec",
        "-pkeyopt",
        "ec_paramgen_curve:prime256v1",
        "-nodes",
        "-days",
        "1",
    ]
    make += ["-subj", "/CN=other", "-addext", "subjectAltName=DNS:other", "-keyout", str(key), "-out", str(cert)]
    subprocess.run(make, check=True, capture_output=True)
    port = free_port()
    tcp = f"[tcp]\nlisten = '127.0.0.1:{port}'\ntokens = '{tmp_path}/tokens'\ncertificate = '{cert}'\nkey = '{key}'\n"
    server = Doppeld(config=tcp)
    token = token_of(server)
    yield server.start(), port, {"DOPPEL_TOKEN": token}, cert
    server.close()


def test_tls_errors_in_words(secured):
    _, port, env, cert = secured
    untrusted = cli({**env, "DOPPEL_HOST": f"https://127.0.0.1:{port}"}, "ps")
    assert untrusted.returncode == 1 and b"certificate" in untrusted.stderr and b"DOPPEL_CA" in untrusted.stderr, (
        untrusted.stderr
    )
    named = cli({**env, "DOPPEL_HOST": f"https://127.0.0.1:{port}", "DOPPEL_CA": str(cert)}, "ps")
    assert named.returncode == 1 and b"certificate" in named.stderr, named.stderr
    plain = cli({**env, "DOPPEL_HOST": f"http://127.0.0.1:{port}"}, "ps")
    assert plain.returncode == 1 and b"it speaks TLS" in plain.stderr, plain.stderr
