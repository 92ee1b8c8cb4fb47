"""The code of a Markdown file, and what its fences ask for.

    ```python            run; the blocks of a file share their names
    ```python torch      run where PyTorch is installed
    ```python gpu        run where PyTorch has a GPU
    ```text output       what the block before it prints
    ```sh run            run by bash, with `flashcore` on PATH, in the folder of the Python blocks
    ```cpp name.cpp      must compile; lies there for the Python blocks after it, which load it

Other blocks are not looked at.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
FENCE = re.compile(r"^```(\S*)[ \t]*([^\n]*)\n(.*?)^```[ \t]*$", re.MULTILINE | re.DOTALL)


@dataclass(frozen=True)
class Block:
    language: str
    words: tuple[str, ...]  # the rest of the fence
    text: str
    line: int  # of its first line of text
    span: tuple[int, int]  # of its text, in the file


def files() -> list[Path]:
    return [ROOT / "README.md", ROOT / "CONTRIBUTING.md", ROOT / "CHANGELOG.md",
            *sorted((ROOT / "docs").rglob("*.md"))]  # fmt: skip


def blocks(text: str) -> list[Block]:
    return [
        Block(
            match[1],
            tuple(match[2].split()),
            match[3],
            text.count("\n", 0, match.start(3)) + 1,
            match.span(3),
        )
        for match in FENCE.finditer(text)
    ]


def prose(text: str) -> str:
    """The file without its code."""
    return FENCE.sub("", text)
