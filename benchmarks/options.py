"""What the command lines of benchmarks share."""

from __future__ import annotations

SUSTAINED = (
    "each contender back to back for so long behind a pause, at the clock that the limit of power "
    "allows, 300 for example; 0: by turns, on a cold L2 cache"
)


def words(text: str) -> list[str]:
    return text.split(",")


def numbers(text: str) -> list[int]:
    return [int(part) for part in text.split(",")]
