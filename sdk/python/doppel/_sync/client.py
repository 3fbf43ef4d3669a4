# Made by generate.py of doppel/_async/client.py: change that.
"""The connection to a supervisor: requests, streams, repetition, errors.

One HTTP client over a Unix socket or TCP. A request that changes something carries an idempotency key, so that it
may be sent again when the connection broke before the answer came: the supervisor does it once.
"""

from __future__ import annotations

import json
import os
import ssl
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from ipaddress import ip_address
from types import TracebackType
from typing import IO, Any

import h11
import httpx

from .._wire import address
from ..errors import DoppelTimeout, SupervisorUnreachable, from_problem
from .tasks import Limit, in_thread, sleep

#: Bytes of a body in flight.
CHUNK = 256 * 1024
#: Pauses before a request is sent again, in seconds.
PAUSES = (0.1, 0.2, 0.4, 0.8)
#: What a broken connection raises. h11's own error is that of a connection that an interrupt (Ctrl-C) met between two
#: requests: httpcore counts it as idle, h11 does not, and nothing of the request was sent.
BROKEN = (httpx.TransportError, h11.LocalProtocolError)


class Client:
    """A connection to a supervisor, which any number of sandboxes may share.

    `host` is `unix:///path`, a path, or `https://host:port`; without it `DOPPEL_HOST`, and without that the local
    supervisor's socket. `token` (`DOPPEL_TOKEN`) is for servers on TCP, `ca` (`DOPPEL_CA`) a file with the certificate
    that signed theirs. `timeout` is for requests that the supervisor answers at once.
    """

    def __init__(
        self,
        host: str | None = None,
        *,
        token: str | None = None,
        ca: str | None = None,
        timeout: float = 60.0,
    ) -> None:
        socket, self.base_url = address(host)
        self.host = f"unix://{socket}" if socket else self.base_url
        token = token or os.environ.get("DOPPEL_TOKEN")
        if token and self.base_url.startswith("http://") and not socket and not _loopback(self.base_url):
            raise ValueError(f"a token is not sent in clear to {self.base_url}: use https")
        self._timeout = httpx.Timeout(timeout, connect=10.0, pool=None)
        self._unlimited = httpx.Timeout(None, connect=10.0)
        limits = httpx.Limits(max_connections=None, max_keepalive_connections=20)
        # Nothing to verify on a Unix socket, and reading the certificates takes longer than a request.
        verify = False if socket else ssl.create_default_context(cafile=ca or os.environ.get("DOPPEL_CA") or None)
        self._http = httpx.Client(
            base_url=self.base_url,
            headers={"authorization": f"Bearer {token}"} if token and not socket else None,
            timeout=self._timeout,
            transport=httpx.HTTPTransport(uds=socket, verify=verify, limits=limits),
            trust_env=False,
        )
        self._users = 1

    def share(self) -> Client:
        """One more user: the connection is closed when the last one has closed it."""
        self._users += 1
        return self

    def close(self) -> None:
        """Ends it for this user."""
        self._users -= 1
        if self._users == 0:
            self._http.close()

    def __enter__(self) -> Client:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def request(
        self,
        method: str,
        path: str,
        *,
        json: Any = None,
        params: dict[str, Any] | None = None,
        body: bytes | IO[bytes] | None = None,
        unlimited: bool = False,
        timeout: float | None = None,
        key: str | None = None,
    ) -> Any:
        """Sends a request and returns the JSON of the answer; `unlimited` for what takes as long as it takes.

        After `timeout` seconds in all `DoppelTimeout` is raised, whatever the supervisor does; it cancels the request
        then. With the `key` of an earlier request nothing is done again: the answer is what became of that one.
        """
        headers = {"idempotency-key": key or uuid.uuid4().hex} if method in ("POST", "PUT") else {}
        start = 0
        if body is not None:
            headers["content-type"] = "application/octet-stream"
        again = True
        if body is not None and not isinstance(body, bytes):
            again = body.seekable()
            start = body.tell() if again else 0
        attempt = 0
        end = None if timeout is None else time.monotonic() + timeout
        while True:
            if attempt and body is not None and not isinstance(body, bytes):
                body.seek(start)
            try:
                response = self._http.request(
                    method,
                    path,
                    json=json,
                    params=params,
                    content=body if body is None or isinstance(body, bytes) else _pieces(body, end),
                    headers=headers,
                    timeout=self._times(unlimited, end),
                )
            except (httpx.TimeoutException, TimeoutError) as error:
                raise DoppelTimeout(f"no answer from {self.host} to {method} {path}") from error
            except BROKEN as error:
                if not again or attempt == len(PAUSES) or _over(end):
                    raise self._unreachable(error) from error
            else:
                if method == "DELETE" and attempt and response.status_code == 404:
                    return None  # an earlier attempt did it, and its answer was lost
                return _answer(response)
            sleep(PAUSES[attempt])
            attempt += 1

    def _times(self, unlimited: bool, end: float | None) -> httpx.Timeout:
        usual = self._unlimited if unlimited else self._timeout
        if end is None:
            return usual
        left = max(0.001, end - time.monotonic())
        return httpx.Timeout(left, connect=min(left, 10.0), pool=None)

    @contextmanager
    def stream(
        self, method: str, path: str, params: dict[str, Any] | None = None, timeout: float | None = None
    ) -> Iterator[Iterator[bytes]]:
        """Opens a stream of bytes; it is open when this is entered, and may be for `timeout` seconds."""
        limit = Limit(timeout)
        try:
            with limit, self._stream(method, path, params, limit, timeout) as pieces:
                yield pieces
        except (TimeoutError, httpx.TimeoutException) as error:
            if not limit.over and not isinstance(error, httpx.TimeoutException):
                raise  # the caller's own
            raise DoppelTimeout(f"no end of the answer from {self.host} to {method} {path}") from error

    @contextmanager
    def _stream(
        self,
        method: str,
        path: str,
        params: dict[str, Any] | None,
        limit: Limit,
        timeout: float | None,
    ) -> Iterator[Iterator[bytes]]:
        end = None if timeout is None else time.monotonic() + timeout
        attempt = 0
        opened = False
        while True:
            try:
                with self._http.stream(
                    method, path, params=params, timeout=self._times(True, end)
                ) as response:
                    limit.guard(response)
                    if not response.is_success:
                        response.read()
                        _answer(response)
                    opened = True
                    yield response.iter_bytes()
                    return
            except httpx.TimeoutException:
                raise
            except BROKEN as error:
                if opened or attempt == len(PAUSES) or _over(end):
                    raise self._unreachable(error) from error
            sleep(PAUSES[attempt])
            attempt += 1

    @contextmanager
    def lines(
        self, path: str, params: dict[str, Any] | None = None, timeout: float | None = None
    ) -> Iterator[Iterator[Any]]:
        """Opens a stream of lines of JSON."""
        with self.stream("GET", path, params, timeout) as pieces:
            yield _lines(pieces)

    def _unreachable(self, error: Exception) -> SupervisorUnreachable:
        return SupervisorUnreachable(
            f"no supervisor at {self.host}: {error or type(error).__name__}; "
            "start doppeld, or name another one in DOPPEL_HOST"
        )


def connection(client: Client | None) -> Client:
    """A client for one more user: the given one, or a new one."""
    return client.share() if client is not None else Client()


def _loopback(url: str) -> bool:
    host = httpx.URL(url).host
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _answer(response: httpx.Response) -> Any:
    kind = response.headers.get("content-type", "").split(";")[0]
    is_json = kind == "application/json" or kind.endswith("+json")
    try:
        value = json.loads(response.content) if is_json and response.content else None
    except ValueError:
        value = None
    if not response.is_success:
        raise from_problem(value, response.status_code, response.text)
    return value if is_json else response.content


def _over(end: float | None) -> bool:
    return end is not None and time.monotonic() >= end


def _pieces(file: IO[bytes], end: float | None) -> Iterator[bytes]:
    while piece := in_thread(file.read, CHUNK):
        if _over(end):
            raise TimeoutError
        yield piece


def _lines(pieces: Iterator[bytes]) -> Iterator[Any]:
    # Not httpx's own lines: those end at every separator of Unicode, which may stand in a file name.
    rest = b""
    for piece in pieces:
        *whole, rest = (rest + piece).split(b"\n")
        for line in whole:
            if line.strip():
                yield json.loads(line)
    if rest.strip():
        yield json.loads(rest)
