"""What a program prints, put together from the lines of its output stream."""

from __future__ import annotations

import base64
import codecs
from typing import Any, Literal

from .models import CommandResult

Stream = Literal["stdout", "stderr"]


class Output:
    """Collects the stream of one program; knows nothing of connections.

    `keep` tells whether the bytes are kept for the result. What `feed` returns is text, of whole characters, or
    with `raw` the bytes as they came.
    """

    def __init__(self, *, keep: bool = True, raw: bool = False) -> None:
        self._keep = keep
        self._raw = raw
        self._bytes: dict[Stream, bytearray] = {"stdout": bytearray(), "stderr": bytearray()}
        decoder = codecs.getincrementaldecoder("utf-8")
        self._decoders = {"stdout": decoder("replace"), "stderr": decoder("replace")}
        self._lost = 0
        self._exit: tuple[int, str | None] | None = None

    @property
    def ended(self) -> bool:
        """Whether the program's last line was seen."""
        return self._exit is not None

    def result(self) -> CommandResult:
        """What is known so far; the exit code is -1 until it is."""
        code, reason = self._exit or (-1, None)
        return CommandResult(
            code, bytes(self._bytes["stdout"]), bytes(self._bytes["stderr"]), reason, self._lost
        )

    def feed(self, line: dict[str, Any]) -> list[tuple[Stream, Any]]:
        """Takes one line; returns what the callbacks should get."""
        kind = line["type"]
        if kind in ("stdout", "stderr"):
            data = base64.b64decode(line["data"])
            if self._keep:
                self._bytes[kind] += data
            piece = data if self._raw else self._decoders[kind].decode(data)
            return [(kind, piece)] if piece else []
        if kind == "lost":
            self._lost += line["bytes"]
        elif kind == "exit":
            self._exit = line["exit_code"], line.get("reason")
            if not self._raw:
                rest: list[tuple[Stream, str]] = [
                    ("stdout", self._decoders["stdout"].decode(b"", True)),
                    ("stderr", self._decoders["stderr"].decode(b"", True)),
                ]
                return [(stream, text) for stream, text in rest if text]
        return []
