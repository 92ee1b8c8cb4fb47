"""What a suite is: families of cases, each a grid of parameters and a problem made of them."""

from __future__ import annotations

import importlib
import itertools
import random
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from backend import Arrays
from judge import Problem

SUITES = ("sdpa", "flex", "flash")
Grid = Mapping[str, Sequence[Any]]

# Parameters that say how much there is to do, or where it lies, and not what a kernel computes.
_OF_ARRAYS = {
    "batch", "contiguous", "empty", "kv_batch", "kv_len", "kv_lengths", "length", "lengths",
    "memory", "q_len", "rows", "says_longest", "scale", "strides", "swapped", "value", "whole",
}  # fmt: skip
_SHARE = 32


@dataclass(frozen=True)
class Sizes:
    """Lengths, heads and batches as the peer has them, or what is left of them in the emulator."""

    small: bool

    def length(self, n: int) -> int:
        """Keeps what is left over from a tile of 64."""
        return (n - 1) % 64 + 1 if self.small and n > 70 else n

    def batch(self, n: int) -> int:
        return min(n, 2) if self.small else n

    def heads(self, n: int) -> int:
        return n if not self.small or n <= 4 else 4 if n % 4 == 0 else 2 + n % 2


@dataclass(frozen=True)
class Family:
    name: str
    grid: Grid
    make: Callable[..., Problem]
    """make(arrays, sizes, **parameters)"""
    torch: bool = False
    """Its call sites exist with torch alone."""
    takes: Callable[..., bool] = lambda **_: True
    """Which points of the grid the peer runs."""


@dataclass(frozen=True)
class Case:
    suite: str
    index: int
    family: Family
    parameters: Mapping[str, Any]

    def problem(self, arrays: Arrays, sizes: Sizes) -> Problem:
        return self.family.make(arrays, sizes, **self.parameters)

    @property
    def seed(self) -> int:
        return zlib.crc32(f"{self.suite} {self.index}".encode())

    @property
    def kind(self) -> tuple[Any, ...]:
        """Alike for cases that one kernel serves, or few."""
        said = [(name, value) for name, value in self.parameters.items() if name not in _OF_ARRAYS]
        return (self.suite, self.family.name, *said)

    def __str__(self) -> str:
        given = ", ".join(f"{name}={value!r}" for name, value in self.parameters.items())
        return f"{self.suite} {self.index}: {self.family.name}({given})"


def cases(suite: str, families: Sequence[Family]) -> Iterator[Case]:
    index = 0
    for family in families:
        for values in itertools.product(*family.grid.values()):
            parameters = dict(zip(family.grid, values, strict=True))
            if family.takes(**parameters):
                yield Case(suite, index, family, parameters)
                index += 1


def suite(name: str, torch: bool) -> list[Case]:
    """All of its cases; without torch, those that need no torch. Indices stay."""
    families = importlib.import_module(name).FAMILIES
    return [case for case in cases(name, families) if torch or not case.family.torch]


def sample(drawn: list[Case], count: int, seed: int, kinds: int = 3) -> list[Case]:
    """`count` cases: from every family alike, and few of each so that kernels serve several."""
    rng = random.Random(seed)
    families: dict[str, list[Case]] = {}
    for case in drawn:
        families.setdefault(case.family.name, []).append(case)
    for members in families.values():
        rng.shuffle(members)
    chosen: list[Case] = []
    while len(chosen) < count and families:
        for name in list(families):
            chosen += families[name][:kinds]
            families[name] = families[name][kinds:]
            if not families[name]:
                del families[name]
    return sorted(chosen[:count], key=lambda case: case.index)


def shares(drawn: Iterable[Case]) -> list[list[Case]]:
    """The cases in parts for one process after another. Those of one kernel are together; the parts
    go round the families, so that what is cut off early has seen each of them."""
    families: dict[tuple[str, str], dict[tuple[Any, ...], list[Case]]] = {}
    for case in drawn:
        kinds = families.setdefault((case.suite, case.family.name), {})
        kinds.setdefault(case.kind, []).append(case)
    rounds = []
    for kinds in families.values():
        parts = [
            members[i : i + _SHARE]
            for members in kinds.values()
            for i in range(0, len(members), _SHARE)
        ]
        random.Random(len(parts)).shuffle(parts)
        rounds.append(parts)
    longest = max(map(len, rounds), default=0)
    return [parts[i] for i in range(longest) for parts in rounds if i < len(parts)]
