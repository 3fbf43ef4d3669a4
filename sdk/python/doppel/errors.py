"""What can go wrong, as exceptions.

Everything the SDK raises on purpose is a `DoppelError`. What the supervisor refuses is an `ApiError` with the
stable code of the problem; each code has a class of its own, so that callers catch what they mean. Where Python
has an exception of the same sense (`FileNotFoundError`, `TimeoutError`...), the class is one of those too.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Sequence

    from .models import CommandResult


class DoppelError(Exception):
    """Anything that this package raises."""


class SupervisorUnreachable(DoppelError, ConnectionError):
    """Nobody answers at the supervisor's address, or the connection broke and stayed broken."""


class DoppelTimeout(DoppelError, TimeoutError):
    """It took longer than allowed."""


class CommandTimeout(DoppelTimeout):
    """A command was killed because its time was over; `result` has what it printed until then."""

    def __init__(self, message: str, result: CommandResult) -> None:
        super().__init__(message)
        self.result = result


class CommandExit(DoppelError):
    """A command ended with a code other than 0."""

    def __init__(self, command: Sequence[str], result: CommandResult) -> None:
        last = result.stderr.strip().splitlines()[-1:] or result.stdout.strip().splitlines()[-1:]
        text = f"{command[-1] if command else 'the program'!r} ended with exit code {result.exit_code}"
        if result.reason:
            text += f" ({result.reason})"
        super().__init__(": ".join([text, *last]))
        self.command = list(command)
        self.result = result

    @property
    def exit_code(self) -> int:
        """The command's exit code, or 128 + n if signal n ended it."""
        return self.result.exit_code

    @property
    def stdout(self) -> str:
        """What it printed."""
        return self.result.stdout

    @property
    def stderr(self) -> str:
        """What it printed as errors."""
        return self.result.stderr


class ApiError(DoppelError):
    """The supervisor refused; `code` is stable, `detail` is for people."""

    def __init__(self, detail: str, *, code: str = "", status: int = 0, title: str = "") -> None:
        super().__init__(detail or title or code)
        self.code = code
        self.status = status
        self.title = title
        self.detail = detail


class InvalidRequest(ApiError, ValueError):
    """A value is out of its range."""


class Unauthorized(ApiError):
    """The token is missing or wrong (`DOPPEL_TOKEN`)."""


class Forbidden(ApiError, PermissionError):
    """The caller may not do this."""


class NotFound(ApiError):
    """What was named does not exist."""


class SandboxNotFound(NotFound):
    """No sandbox has this name or id."""


class ImageNotFound(NotFound):
    """No root image has this name."""


class TemplateNotFound(NotFound):
    """No frozen image has this name."""


class VolumeNotFound(NotFound):
    """No volume of this name."""


class DiskNotFound(NotFound):
    """No disk of this name."""


class NetworkNotFound(NotFound):
    """No network of this name."""


class CommandGone(NotFound):
    """The supervisor no longer knows this command."""


class OperationNotFound(NotFound):
    """The supervisor no longer knows this operation."""


class FileNotFound(NotFound, FileNotFoundError):
    """No such file in the sandbox."""


class PathNotFound(NotFound):
    """The supervisor does not have this call: it is older than this package, or not a supervisor."""


class Conflict(ApiError):
    """What is asked for does not go together with what is."""


class MethodNotAllowed(ApiError):
    """The supervisor has this path, but not this call of it: it is older than this package."""


class NameInUse(Conflict):
    """The name is taken."""


class InUse(Conflict):
    """A sandbox uses it."""


class PortInUse(Conflict):
    """A port to publish cannot be had, mostly because it is taken."""


class WrongState(Conflict):
    """The sandbox's state does not allow this."""


class CapacityExceeded(Conflict):
    """More is asked for than the host has left."""


class Cancelled(Conflict):
    """Somebody cancelled it."""


class CommandNotFound(ApiError, FileNotFoundError):
    """The sandbox has no such program."""

    exit_code = 127


class CommandNotExecutable(ApiError, PermissionError):
    """The file cannot be executed."""

    exit_code = 126


class IdempotencyMismatch(ApiError):
    """An idempotency key was used for two different requests."""


class RegistryError(ApiError):
    """The registry refused, or broke its word."""


class StorageFull(ApiError):
    """The supervisor's disk is full."""


class TooLarge(ApiError):
    """The request is larger than allowed."""


class RequestTimeout(ApiError, DoppelTimeout):
    """The supervisor gave up: it took longer than allowed."""


class Unsupported(ApiError):
    """This host or this supervisor cannot do it."""


class InternalError(ApiError):
    """A fault of the supervisor."""


class CloneError(DoppelError):
    """Some clones could not be made: `sandboxes` are those that run, `errors` says why the others do not."""

    def __init__(self, sandboxes: Sequence[Any], errors: Sequence[ApiError]) -> None:
        wanted = len(sandboxes) + len(errors)
        super().__init__(f"{len(errors)} of {wanted} clones could not be made: {errors[0]}")
        self.sandboxes = list(sandboxes)
        self.errors = list(errors)


#: Class for each stable code of the interface.
BY_CODE: dict[str, type[ApiError]] = {
    "invalid_request": InvalidRequest,
    "unauthorized": Unauthorized,
    "forbidden": Forbidden,
    "domain_not_found": SandboxNotFound,
    "image_not_found": ImageNotFound,
    "frozen_not_found": TemplateNotFound,
    "volume_not_found": VolumeNotFound,
    "disk_not_found": DiskNotFound,
    "network_not_found": NetworkNotFound,
    "exec_not_found": CommandGone,
    "operation_not_found": OperationNotFound,
    "file_not_found": FileNotFound,
    "path_not_found": PathNotFound,
    "method_not_allowed": MethodNotAllowed,
    "name_in_use": NameInUse,
    "in_use": InUse,
    "port_in_use": PortInUse,
    "wrong_state": WrongState,
    "idempotency_mismatch": IdempotencyMismatch,
    "capacity": CapacityExceeded,
    "command_not_found": CommandNotFound,
    "command_not_executable": CommandNotExecutable,
    "registry": RegistryError,
    "storage_full": StorageFull,
    "too_large": TooLarge,
    "cancelled": Cancelled,
    "timeout": RequestTimeout,
    "unsupported": Unsupported,
    "internal": InternalError,
}


def from_problem(problem: Any, status: int = 0, text: str = "") -> ApiError:
    """The exception for a problem+json body; `status` and `text` are what there is without one."""
    if not isinstance(problem, dict):
        detail = f"HTTP {status}: {text[:500]}" if text else f"HTTP {status}"
        return ApiError(detail, status=status)
    code = str(problem.get("code", ""))
    return BY_CODE.get(code, ApiError)(
        str(problem.get("detail", "")),
        code=code,
        status=int(problem.get("status", status)),
        title=str(problem.get("title", "")),
    )
