"""Programs and descriptions as text, of which a few characters, words or lines are changed, and a
program's call."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
import oracle
from oracle import Meaningless
from target import SLOPES, Arguments, D, Rng, Target, floats, pick

import flashcore as fc

_PROGRAM = """program twice
axis rows: parallel_tiles R
axis cols: whole 8
input x: f32 [R, 8]
output y: f32 [R, 8]
{
  %x = load x[rows, cols] : f32[rows, cols]
  %y = add %x, %x : f32[rows, cols]
  store y[rows, cols], %y
}
"""


def _mutated(rng: Rng, text: str) -> str:
    """A text with some characters, words or lines lost, doubled, exchanged or out of bounds."""
    for _ in range(int(rng.integers(1, 4))):
        at = int(rng.integers(len(text) + 1))
        kind = rng.integers(8)
        if kind == 0:
            text = text[:at] + text[at + 1 :]
        elif kind == 1:
            text = text[:at] + pick(rng, list('0-9{}[]"%,: \n\t\\eé()')) + text[at:]
        elif kind == 2:
            lines = text.split("\n")
            line = int(rng.integers(len(lines)))
            text = "\n".join([*lines[:line], *lines[line + 1 :]])
        elif kind == 3:
            lines = text.split("\n")
            line = int(rng.integers(len(lines)))
            text = "\n".join([*lines[: line + 1], *lines[line:]])
        elif kind == 4:
            words = text.split(" ")
            first, second = rng.integers(len(words), size=2)
            words[first], words[second] = words[second], words[first]
            text = " ".join(words)
        elif kind == 5:
            text = text.replace(pick(rng, ["8", "16", "1", "2"]), pick(rng, [
                "0", "-1", "2147483648", "99999999999999999999", "1e9", "1.5", "null", "true"]), 1)  # fmt: skip  # noqa: E501
        elif kind == 6:
            text = text[:at]
        else:
            text = text.replace(pick(rng, ["f32", "rows", "add", "mask", "text", "false"]),
                                pick(rng, ["f16", "i1", "cols", "sub", "null", "x"]), 1)  # fmt: skip  # noqa: E501
    return text


def _draw_program(rng: Rng) -> Arguments:
    return {"text": _mutated(rng, _PROGRAM)}


def _call_program(text: Any) -> Any:
    program = fc.Program(text)
    return program, fc.Program(program.text)


def _check_program(args: Arguments, result: Any) -> str | None:
    program, again = result
    return None if program.text == again.text else "its text reads as another program"


def _draw_json(rng: Rng, of: str) -> Arguments:
    made = fc.AttentionSpec(head_dim=D, dtype="f16", score=fc.alibi(SLOPES))
    text = made.to_json() if of == "spec" else fc.Schedule(tiles={"rows": 64, "cols": 64}).to_json()
    return {"text": _mutated(rng, text)}


def _check_json(args: Arguments, result: Any) -> str | None:
    kind = type(result)
    return None if kind.from_json(result.to_json()) == result else "its JSON reads as another"


def _draw_twice(rng: Rng) -> Arguments:
    return {"x": floats(rng, 3, 8, dtype=np.float32), "y": None, "stream": None}


@functools.cache
def _twice() -> fc.ProgramKernel:
    return fc.jit(fc.Program(_PROGRAM), schedule=fc.Schedule(tiles={"rows": 16}))


def _call_twice(**args: Any) -> Any:
    return _twice()(**args)


def _check_twice(args: Arguments, result: Any) -> str | None:
    oracle.is_stream(args["stream"])
    x = args["x"]
    if not isinstance(x, np.ndarray) or x.dtype.newbyteorder("=") != np.float32:
        raise Meaningless("x is no array of f32")
    if args["y"] is not None:
        if not isinstance(args["y"], np.ndarray):
            raise Meaningless("y is no array")
        if result is not None:
            return "y was given, and something is returned"
        result = args["y"]
    exact = 2 * np.asarray(x, np.float64)
    return oracle.close(result, exact, np.dtype(np.float32), float(np.abs(exact).max(initial=0)))


TARGETS = [
    Target("Program", _draw_program, _call_program, _check_program, weight=4),
    Target(
        "AttentionSpec.from_json",
        lambda r: _draw_json(r, "spec"),
        fc.AttentionSpec.from_json,
        _check_json,
        weight=3,
    ),
    Target(
        "Schedule.from_json",
        lambda r: _draw_json(r, "schedule"),
        fc.Schedule.from_json,
        _check_json,
        weight=3,
    ),
    Target("a program's call", _draw_twice, _call_twice, _check_twice, weight=2),
]
