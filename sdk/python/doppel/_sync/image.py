# Made by generate.py of doppel/_async/image.py: change that.
"""Root images, and the registries they come from."""

from __future__ import annotations

import builtins
import io
import os
from typing import Any

from .._wire import present, segment
from ..errors import Cancelled, from_problem
from ..models import ImageInfo, Operation, OperationState, Progress, PruneReport, decode
from .client import Client, connection
from .tasks import Callback, call, in_thread, sleep


class Image:
    """What can be done with root images."""

    @staticmethod
    def list(*, client: Client | None = None) -> builtins.list[ImageInfo]:
        """All root images."""
        with connection(client) as http:
            return decode(list[ImageInfo], http.request("GET", "/v1/images"))

    @staticmethod
    def get(name: str, *, client: Client | None = None) -> ImageInfo:
        """A root image by its name."""
        with connection(client) as http:
            return decode(ImageInfo, http.request("GET", f"/v1/images/{segment(name)}"))

    @staticmethod
    def remove(name: str, *, client: Client | None = None) -> None:
        """Removes a root image; refused (`InUse`) while a sandbox uses it."""
        with connection(client) as http:
            http.request("DELETE", f"/v1/images/{segment(name)}")

    @staticmethod
    def pull(
        reference: str,
        *,
        name: str | None = None,
        platform: str | None = None,
        plain_http: bool = False,
        username: str | None = None,
        password: str | None = None,
        on_progress: Callback[Progress] | None = None,
        client: Client | None = None,
    ) -> ImageInfo:
        """Fetches an image from a registry and keeps it as `name`, or as the reference.

        It is cancelled if the caller is interrupted.
        """
        body = present(
            reference=reference,
            name=name,
            platform=platform,
            plain_http=plain_http,
            username=username,
            password=password,
        )
        with connection(client) as http:
            _operation(http, "/v1/images/pull", body, on_progress)
            return decode(ImageInfo, http.request("GET", f"/v1/images/{segment(name or reference)}"))

    @staticmethod
    def push(
        name: str,
        reference: str,
        *,
        plain_http: bool = False,
        username: str | None = None,
        password: str | None = None,
        on_progress: Callback[Progress] | None = None,
        client: Client | None = None,
    ) -> None:
        """Sends an image to a registry."""
        body = present(
            name=name, reference=reference, plain_http=plain_http, username=username, password=password
        )
        with connection(client) as http:
            _operation(http, "/v1/images/push", body, on_progress)

    @staticmethod
    def load(
        archive: str | os.PathLike[str], name: str, *, client: Client | None = None
    ) -> ImageInfo:
        """Makes an image of a tar of files, an OCI layout, or what `docker save` writes."""
        file = in_thread(io.FileIO, os.fspath(archive))
        with file:
            with connection(client) as http:
                answer = http.request(
                    "POST", "/v1/images/import", params={"name": name}, body=file, unlimited=True
                )
        return decode(ImageInfo, answer)

    @staticmethod
    def prune(*, client: Client | None = None) -> PruneReport:
        """Removes layers that nobody uses."""
        with connection(client) as http:
            return decode(PruneReport, http.request("POST", "/v1/images/prune", unlimited=True))


def _operation(
    http: Client, path: str, body: dict[str, Any], on_progress: Callback[Progress] | None
) -> Operation:
    """Starts an operation and waits for its end; cancels it if that is interrupted."""
    operation = decode(Operation, http.request("POST", path, json=body))
    where = f"/v1/operations/{segment(operation.id)}"
    try:
        while operation.state == OperationState.RUNNING:
            if on_progress is None:
                answer = http.request("GET", where, params={"wait": True}, unlimited=True)
            else:
                call(on_progress, operation.progress)
                sleep(0.2)
                answer = http.request("GET", where)
            operation = decode(Operation, answer)
    except BaseException:
        http.request("DELETE", where)
        raise
    if operation.state == OperationState.CANCELLED:
        raise Cancelled(f"{operation.kind} was cancelled", code="cancelled", status=409)
    if operation.state != OperationState.SUCCEEDED:
        raise from_problem(operation.problem, text=f"{operation.kind} failed")
    call(on_progress, operation.progress)
    return operation
