"""A bad way to the supervisor: passes requests on to a real `doppeld`, loses answers or delays them if told to."""

from __future__ import annotations

import contextlib
import http.client
import socket
import socketserver
import threading
import time
from http.server import BaseHTTPRequestHandler
from typing import Any

#: Fields that belong to a connection, not to what it carries.
HOP = {"connection", "content-length", "transfer-encoding"}


class Upstream(http.client.HTTPConnection):
    """A connection to the supervisor's socket."""

    def __init__(self, path: str) -> None:
        super().__init__("doppel")
        self.path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.connect(self.path)


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    way: Faulty

    def address_string(self) -> str:
        return "local"

    def log_message(self, *args: Any) -> None:
        pass

    def serve(self) -> None:
        path = self.path.partition("?")[0]
        self.way.requests.append((self.command, path))
        headers = {k: v for k, v in self.headers.items() if k.lower() not in HOP}
        upstream = Upstream(self.way.target)
        try:
            # A key that is known is answered before the body has been read.
            with contextlib.suppress(BrokenPipeError):
                upstream.request(self.command, self.path, self.body(), headers)
            answer = upstream.getresponse()
            if self.way.drop.get(self.command, 0) > 0:
                # It was carried out; nobody learns of it.
                self.way.drop[self.command] -= 1
                answer.read()
                self.close_connection = True
                return
            time.sleep(self.way.delays.get(path, 0))
            self.pass_on(answer)
        except OSError:
            self.close_connection = True
        finally:
            upstream.close()

    do_GET = do_POST = do_PUT = do_DELETE = do_PATCH = serve

    def body(self) -> bytes:
        if self.headers.get("transfer-encoding", "").lower() == "chunked":
            data = bytearray()
            while size := int(self.rfile.readline(), 16):
                data += self.rfile.read(size)
                self.rfile.readline()
            self.rfile.readline()
            return bytes(data)
        return self.rfile.read(int(self.headers.get("content-length", 0)))

    def pass_on(self, answer: http.client.HTTPResponse) -> None:
        self.send_response(answer.status)
        for name, value in answer.getheaders():
            if name.lower() not in {*HOP, "date", "server"}:
                self.send_header(name, value)
        if answer.status == 204:
            self.end_headers()
            return
        self.send_header("transfer-encoding", "chunked")
        self.end_headers()
        while piece := answer.read1(65536):
            # In halves, as networks do.
            for part in filter(None, (piece[: len(piece) // 2], piece[len(piece) // 2 :])):
                self.wfile.write(b"%x\r\n%s\r\n" % (len(part), part))
                self.wfile.flush()
        self.wfile.write(b"0\r\n\r\n")


class Server(socketserver.ThreadingMixIn, socketserver.UnixStreamServer):
    daemon_threads = True
    request_queue_size = 128


class Faulty:
    """The way from the Unix socket `socket` to the one of a supervisor, `target`.

    `drop` says of how many requests of a method the answer is lost, `delays` how many seconds the answer of a path
    takes; `requests` has what was asked.
    """

    def __init__(self, socket: str, target: str) -> None:
        self.target, self.host = target, f"unix://{socket}"
        self.drop: dict[str, int] = {}
        self.delays: dict[str, float] = {}
        self.requests: list[tuple[str, str]] = []
        self.server = Server(socket, type("BoundHandler", (Handler,), {"way": self}))
        serve = threading.Thread(target=self.server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
        serve.start()

    def close(self) -> None:
        self.server.shutdown()
        self.server.server_close()
