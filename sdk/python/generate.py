#!/usr/bin/env python3
"""Makes the code for threads of the code for asyncio, and the models of the interface's schemas.

`doppel/_sync` is made of `doppel/_async`, the tests likewise: there is one implementation, and it is written with
`async`. `doppel/models.py` is made of `interface.json`, the schemas of the supervisor's OpenAPI document, which
`doppeld openapi` prints. `generate.py` writes what is made, `generate.py --check` tells (exit code 1) whether it is
there and up to date. `doppeld openapi | generate.py --interface` takes the schemas of a document first.
"""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path

from made_models import classes

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


def models(text: str) -> str:
    """The module of the models with those between the marks made anew."""
    begin, end = (re.search(rf"^# -- {mark}.*\n", text, re.M) for mark in ("made by", "end of what"))
    assert begin and end
    schemas = json.loads((HERE / "interface.json").read_text())
    return text[: begin.end()] + "\n\n" + classes(schemas) + "\n\n\n" + text[end.start() :]


def wanted() -> list[tuple[Path, str]]:
    module = HERE / "doppel/models.py"
    halves = [(t, NOTE.format(s.relative_to(HERE)) + sync(s.read_text())) for s, t in pairs()]
    return [*halves, (module, models(module.read_text()))]


def main() -> int:
    if "--interface" in sys.argv:
        schemas = json.load(sys.stdin)["components"]["schemas"]
        text = json.dumps(schemas, indent=1, sort_keys=True, ensure_ascii=False)
        (HERE / "interface.json").write_text(text + "\n")
    stale = []
    for target, text in wanted():
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
