"""Root images, and the registries they come from."""

from __future__ import annotations

import builtins
import io
import os
from typing import Any

from .._wire import present, segment
from ..errors import Cancelled, from_problem
from ..models import ImageInfo, Operation, OperationState, Progress, PruneReport, decode
from .client import AsyncClient, connection
from .tasks import Callback, call, in_thread, sleep


class AsyncImage:
    """What can be done with root images."""

    @staticmethod
    async def list(*, client: AsyncClient | None = None) -> builtins.list[ImageInfo]:
        """All root images."""
        async with connection(client) as http:
            return decode(list[ImageInfo], await http.request("GET", "/v1/images"))

    @staticmethod
    async def get(name: str, *, client: AsyncClient | None = None) -> ImageInfo:
        """A root image by its name."""
        async with connection(client) as http:
            return decode(ImageInfo, await http.request("GET", f"/v1/images/{segment(name)}"))

    @staticmethod
    async def remove(name: str, *, client: AsyncClient | None = None) -> None:
        """Removes a root image; refused (`InUse`) while a sandbox uses it."""
        async with connection(client) as http:
            await http.request("DELETE", f"/v1/images/{segment(name)}")

    @staticmethod
    async def pull(
        reference: str,
        *,
        name: str | None = None,
        platform: str | None = None,
        plain_http: bool = False,
        username: str | None = None,
        password: str | None = None,
        on_progress: Callback[Progress] | None = None,
        client: AsyncClient | None = None,
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
        async with connection(client) as http:
            await _operation(http, "/v1/images/pull", body, on_progress)
            return decode(ImageInfo, await http.request("GET", f"/v1/images/{segment(name or reference)}"))

    @staticmethod
    async def push(
        name: str,
        reference: str,
        *,
        plain_http: bool = False,
        username: str | None = None,
        password: str | None = None,
        on_progress: Callback[Progress] | None = None,
        client: AsyncClient | None = None,
    ) -> None:
        """Sends an image to a registry."""
        body = present(
            name=name, reference=reference, plain_http=plain_http, username=username, password=password
        )
        async with connection(client) as http:
            await _operation(http, "/v1/images/push", body, on_progress)

    @staticmethod
    async def load(
        archive: str | os.PathLike[str], name: str, *, client: AsyncClient | None = None
    ) -> ImageInfo:
        """Makes an image of a tar of files, an OCI layout, or what `docker save` writes."""
        file = await in_thread(io.FileIO, os.fspath(archive))
        with file:
            async with connection(client) as http:
                answer = await http.request(
                    "POST", "/v1/images/import", params={"name": name}, body=file, unlimited=True
                )
        return decode(ImageInfo, answer)

    @staticmethod
    async def prune(*, client: AsyncClient | None = None) -> PruneReport:
        """Removes layers that nobody uses."""
        async with connection(client) as http:
            return decode(PruneReport, await http.request("POST", "/v1/images/prune", unlimited=True))


async def _operation(
    http: AsyncClient, path: str, body: dict[str, Any], on_progress: Callback[Progress] | None
) -> Operation:
    """Starts an operation and waits for its end; cancels it if that is interrupted."""
    operation = decode(Operation, await http.request("POST", path, json=body))
    where = f"/v1/operations/{segment(operation.id)}"
    try:
        while operation.state == OperationState.RUNNING:
            if on_progress is None:
                answer = await http.request("GET", where, params={"wait": True}, unlimited=True)
            else:
                await call(on_progress, operation.progress)
                await sleep(0.2)
                answer = await http.request("GET", where)
            operation = decode(Operation, answer)
    except BaseException:
        await http.request("DELETE", where)
        raise
    if operation.state == OperationState.CANCELLED:
        raise Cancelled(f"{operation.kind} was cancelled", code="cancelled", status=409)
    if operation.state != OperationState.SUCCEEDED:
        raise from_problem(operation.problem, text=f"{operation.kind} failed")
    await call(on_progress, operation.progress)
    return operation
