"""Sandboxes on Doppel: run programs in domains, freeze them, clone them.

```python
from doppel import Sandbox

with Sandbox.create("busybox") as sandbox:
    print(sandbox.commands.run("echo hello").stdout)
```

Every class that talks to the supervisor is there twice: `Sandbox` for threads, `AsyncSandbox` for asyncio.
"""

from ._archive import ArchiveError
from ._async.client import AsyncClient
from ._async.commands import AsyncCommandHandle, AsyncCommands
from ._async.files import AsyncFiles
from ._async.image import AsyncImage
from ._async.pty import AsyncPty, AsyncPtyHandle
from ._async.sandbox import AsyncSandbox
from ._async.supervisor import AsyncSupervisor
from ._async.template import AsyncTemplate
from ._sync.client import Client
from ._sync.commands import CommandHandle, Commands
from ._sync.files import Files
from ._sync.image import Image
from ._sync.pty import Pty, PtyHandle
from ._sync.sandbox import Sandbox
from ._sync.supervisor import Supervisor
from ._sync.template import Template
from ._wire import Command
from .errors import (
    ApiError,
    Cancelled,
    CapacityExceeded,
    CloneError,
    CommandExit,
    CommandGone,
    CommandNotExecutable,
    CommandNotFound,
    CommandTimeout,
    Conflict,
    DoppelError,
    DoppelTimeout,
    FileNotFound,
    Forbidden,
    IdempotencyMismatch,
    ImageNotFound,
    InternalError,
    InUse,
    InvalidRequest,
    MethodNotAllowed,
    NameInUse,
    NotFound,
    OperationNotFound,
    PathNotFound,
    RegistryError,
    RequestTimeout,
    SandboxNotFound,
    StorageFull,
    SupervisorUnreachable,
    TemplateNotFound,
    TooLarge,
    Unauthorized,
    Unsupported,
    WrongState,
)
from .models import (
    CommandResult,
    CreateDomain,
    Domain,
    DomainState,
    DomainStats,
    Event,
    EventKind,
    ExitInfo,
    FileChange,
    FileChangeKind,
    FileInfo,
    FileKind,
    FreezeReport,
    FrozenImage,
    HealthCheck,
    HealthState,
    ImageConfig,
    ImageInfo,
    Info,
    IoDevice,
    Kind,
    LogTarget,
    MemoryStats,
    Operation,
    OperationState,
    ProcessInfo,
    Progress,
    PruneReport,
    PtySize,
    Resources,
    Version,
)

__all__ = [
    "ApiError",
    "ArchiveError",
    "AsyncClient",
    "AsyncCommandHandle",
    "AsyncCommands",
    "AsyncFiles",
    "AsyncImage",
    "AsyncPty",
    "AsyncPtyHandle",
    "AsyncSandbox",
    "AsyncSupervisor",
    "AsyncTemplate",
    "Cancelled",
    "CapacityExceeded",
    "Client",
    "CloneError",
    "Command",
    "CommandExit",
    "CommandGone",
    "CommandHandle",
    "CommandNotExecutable",
    "CommandNotFound",
    "CommandResult",
    "CommandTimeout",
    "Commands",
    "Conflict",
    "CreateDomain",
    "Domain",
    "DomainState",
    "DomainStats",
    "DoppelError",
    "DoppelTimeout",
    "Event",
    "EventKind",
    "ExitInfo",
    "FileChange",
    "FileChangeKind",
    "FileInfo",
    "FileKind",
    "FileNotFound",
    "Files",
    "Forbidden",
    "FreezeReport",
    "FrozenImage",
    "HealthCheck",
    "HealthState",
    "IdempotencyMismatch",
    "Image",
    "ImageConfig",
    "ImageInfo",
    "ImageNotFound",
    "InUse",
    "Info",
    "IoDevice",
    "InternalError",
    "InvalidRequest",
    "Kind",
    "LogTarget",
    "MemoryStats",
    "MethodNotAllowed",
    "NameInUse",
    "NotFound",
    "Operation",
    "OperationNotFound",
    "OperationState",
    "PathNotFound",
    "ProcessInfo",
    "Progress",
    "PruneReport",
    "Pty",
    "PtyHandle",
    "PtySize",
    "RegistryError",
    "RequestTimeout",
    "Resources",
    "Sandbox",
    "SandboxNotFound",
    "StorageFull",
    "Supervisor",
    "SupervisorUnreachable",
    "Template",
    "TemplateNotFound",
    "TooLarge",
    "Unauthorized",
    "Unsupported",
    "Version",
    "WrongState",
]
