#!/usr/bin/env python3
"""Checks what documents and comments refer to: links between pages lead somewhere, and every path that is named exists.

    scripts/check_docs.py

A path counts that begins with a folder of the repository, or that a tracked file ends with (a crate's own documents
name files as the crate sees them). Names that are ignored by git, as results of a run, may be missing.
"""
import pathlib
import re
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
LINK = re.compile(r"\]\(([^)#\s]+)(?:#[^)\s]*)?\)")
# Where a page is read that is made from another file.
HOMES = {f"bench/evaluation/{part}.md": ROOT / "docs" for part in ("template", "machines")}
ENDINGS = "rs|py|md|c|h|toml|json|svg|txt"


def git(*argv: str) -> list[str]:
    return subprocess.run(["git", *argv], cwd=ROOT, capture_output=True, text=True).stdout.splitlines()


def main() -> int:
    tracked = git("ls-files", "--cached", "--others", "--exclude-standard")
    folders = sorted({f.split("/")[0] for f in tracked if "/" in f})
    path = re.compile(rf"(?<![\w./-])((?:{'|'.join(map(re.escape, folders))})/[\w./-]*\w\.(?:{ENDINGS}))\b")
    wrong = []
    for name in tracked:
        file = ROOT / name
        if not name.endswith((".md", ".rs", ".py", ".c", ".toml", "Makefile")) or not file.is_file():
            continue
        for number, line in enumerate(file.read_text(errors="replace").splitlines(), 1):
            named = set(path.findall(line))
            missing = {p for p in named if not (ROOT / p).exists() and not any(t.endswith(f"/{p}") for t in tracked)}
            if name.endswith(".md"):
                links = {m for m in LINK.findall(line) if "://" not in m and not m.startswith("mailto:")}
                missing |= {m for m in links if not (HOMES.get(name, file.parent) / m).exists()}
            wrong += [f"{name}:{number}: no {p}" for p in missing if not git("check-ignore", p)]
    print("\n".join(wrong), end="\n" if wrong else "")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
