"""The examples of the documents, run one after the other as a reader would."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

PYTHON = Path(__file__).resolve().parent.parent
DOCUMENTS = [PYTHON / "README.md", PYTHON.parent.parent / "docs/sdk.md"]


def examples():
    for document in DOCUMENTS:
        text = document.read_text()
        for found in re.finditer(r"^```python\n(.*?)^```$", text, re.M | re.S):
            line = text.count("\n", 0, found.start(1)) + 1
            # Lines before it, so that a traceback shows where it stands.
            code = compile("\n" * (line - 1) + found[1], str(document), "exec")
            yield pytest.param(code, id=f"{document.name}:{line}")


@pytest.mark.parametrize("code", list(examples()))
def test_example(code, server):
    exec(code, {"__name__": "example"})


def test_there_are_examples():
    assert len(list(examples())) >= 10
