"""What the command lines of benchmarks share."""

from __future__ import annotations


def words(text: str) -> list[str]:
    return text.split(",")


def numbers(text: str) -> list[int]:
    return [int(part) for part in text.split(",")]
