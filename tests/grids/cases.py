"""What a suite is: families of cases, each a grid of parameters and a problem made of them."""

from __future__ import annotations

import itertools
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from backend import Arrays
from judge import Problem

Grid = Mapping[str, Sequence[Any]]


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
