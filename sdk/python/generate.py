#!/usr/bin/env python3
"""Makes the code for threads of the code for asyncio: `doppel/_sync` of `doppel/_async`, the tests likewise.

There is one implementation, and it is written with `async`. `generate.py` writes what belongs beside it,
`generate.py --check` tells (exit code 1) whether it is there and up to date.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
NOTE = "# Made by generate.py of {}: change that.\n"
#: Written by hand on both sides.
APART = {"tasks.py"}
RULES = [
    (r"\basync (def|with|for)\b", r"\1"),
    (r"\bawait ", ""),
    (r"\b__a(enter|exit|iter|next)__\b", r"__\1__"),
    (r"\ba(read|iter_bytes)\b", r"\1"),
    (r"\baclose\b", "close"),
    (r"\basynccontextmanager\b", "contextmanager"),
    (r"\bAbstractAsync([A-Z])", r"Abstract\1"),
    (r"\bAsync([A-Z])", r"\1"),
    (r"\b_async\b", "_sync"),
    (r"\bStopAsyncIteration\b", "StopIteration"),
    (r"\btest_async\b", "test_sync"),
]


def sync(text: str) -> str:
    for pattern, replacement in RULES:
        text = re.sub(pattern, replacement, text)
    return text


def pairs() -> list[tuple[Path, Path]]:
    package = HERE / "doppel"
    modules = [p for p in sorted((package / "_async").glob("*.py")) if p.name not in APART]
    tests = sorted((HERE / "tests").glob("test_async*.py"))
    return [(p, package / "_sync" / p.name) for p in modules] + [
        (p, p.with_name(p.name.replace("async", "sync"))) for p in tests
    ]


def main() -> int:
    stale = []
    for source, target in pairs():
        text = NOTE.format(source.relative_to(HERE)) + sync(source.read_text())
        if not target.exists() or target.read_text() != text:
            stale.append(target)
            if "--check" not in sys.argv:
                target.write_text(text)
    if "--check" in sys.argv and stale:
        print("run sdk/python/generate.py; out of date:", *(p.relative_to(HERE) for p in stale))
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
