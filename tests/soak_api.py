#!/usr/bin/env python3
"""Asks a supervisor of its own for whatever its OpenAPI document allows, and does not: `make soak`.

    tests/soak_api.py [--minutes N] [schemathesis options...]

schemathesis (from PyPI, in target/soak-venv) makes requests of the document, valid and not, alone and in sequences.
There must be no answer above status 499 but those listed below, none that the document does not describe, and the
supervisor must answer and hold no domains, processes or files too many afterwards.
"""
import argparse
import os
import pathlib
import subprocess
import sys
import threading
import time

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent
VENV = ROOT / "target/soak-venv"
sys.path.insert(0, str(HERE / "supervisor"))
import store  # noqa: E402, F401
from conftest import DOPPELD, Doppeld  # noqa: E402

CHECKS = "not_a_server_error,status_code_conformance,content_type_conformance,response_schema_conformance"
# Streams without an end, and what waits for the end of something: nothing is found by waiting.
ENDLESS = [
    "/v1/events",
    "/v1/domains/{domain}/attach",
    "/v1/domains/{domain}/files/watch",
    "/v1/domains/{domain}/wait",
    "/v1/execs/{exec}/output",
]


def tool():
    if not (VENV / "bin/schemathesis").exists():
        subprocess.run([sys.executable, "-m", "venv", VENV], check=True)
        subprocess.run(
            [VENV / "bin/pip", "install", "--quiet", "--disable-pip-version-check", "schemathesis>=4"], check=True
        )
    return VENV / "bin/schemathesis"


def bystander(server, done):
    """Makes sure that there is something of the names that requests ask for."""
    while not done.wait(1):
        server.post("/v1/domains?start=true", {"image": "busybox", "name": "a", "command": ["sleep", "1000"]})


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--minutes", type=float, default=5)
    args, more = parser.parse_known_args()
    port = 7300 + int(time.time()) % 600
    server = Doppeld(config=f"[tcp]\nlisten = '127.0.0.1:{port}'\ntokens = '/nonexistent'\n")
    tokens = server.dir / "tokens"
    server.config.write_text(server.config.read_text().replace("/nonexistent", str(tokens)))
    add = subprocess.run(
        [DOPPELD, "token", "add", "soak"],
        env={**os.environ, "DOPPELD_CONFIG": str(server.config)},
        capture_output=True,
        text=True,
        check=True,
    )
    token = add.stdout.strip()
    done = threading.Event()
    try:
        server.start()
        before = server.get("/v1/openapi.json").ok()
        threading.Thread(target=bystander, args=(server, done), daemon=True).start()
        code = subprocess.run([
            tool(), "--config-file", HERE / "schemathesis.toml", "run",
            f"http://127.0.0.1:{port}/v1/openapi.json", "--header", f"Authorization: Bearer {token}",
            "--checks", CHECKS,
            "--max-time", str(int(args.minutes * 60)), "--request-timeout", "20", "--workers", "2",
            "--continue-on-failure",
            *(w for path in ENDLESS for w in ("--exclude-path", path)), *more,
        ], cwd=server.dir).returncode  # fmt: skip
        done.set()
        for domain in server.get("/v1/domains?all=true").ok():
            server.delete(f"/v1/domains/{domain['id']}?force=true", timeout=120)
        assert server.get("/v1/domains?all=true").ok() == []
        assert server.get("/v1/openapi.json").ok() == before
        assert list((server.store / "domains").iterdir()) == []
    finally:
        done.set()
        server.close()
    return code


if __name__ == "__main__":
    sys.exit(main())
