"""Random masks, scores and sinks as text, and the tensors they read."""

from __future__ import annotations

import random
from typing import Any

import flashcore as fc
from flashcore.arrays import Captured

FLOATS, INTEGERS = ["f16", "bf16", "f32", "f64"], ["i8", "u8", "i16", "i32", "i64"]
# The extents of what is captured, by name: a word of a case, or a number.
SHAPES: dict[str, tuple[str | int, ...]] = {
    "ids": ("batch", "longest"),
    "order": ("longest",),
    "lengths": ("batch",),
    "visible": ("q_len", "kv_len"),
    "seen": ("batch", 1, 1, "kv_len"),
    "slopes": ("heads",),
    "bias": ("batch", "heads", "q_len", "kv_len"),
    "table": ("heads", 41),
    "logits": ("heads",),
}


class Writer:
    """Writes expressions and remembers what they capture."""

    def __init__(self, pick: random.Random):
        self.pick = pick
        self.tensors: dict[str, Captured] = {}

    def captured(self, name: str, dtypes: list[str]) -> str:
        dtype = self.pick.choice(dtypes)
        unit_stride = self.pick.random() < 0.5
        rank = len(SHAPES[name])
        # As flashcore.arrays.captured says it of an array.
        aligned_rows = unit_stride and rank > 1 and dtype in ("f16", "bf16", "i1")
        tensor = Captured(name, dtype, rank, unit_stride, aligned_rows=aligned_rows)
        self.tensors.setdefault(name, tensor)
        return name

    def number(self) -> int:
        return self.pick.choice([0, 1, 3, 16, 31, 64, 100, 128, 200, 500])

    def condition(self, depth: int) -> str:
        pick = self.pick
        if depth == 0 or pick.random() < 0.4:
            return self.comparison()
        if pick.random() < 0.15:
            return f"~({self.condition(depth - 1)})"
        op = pick.choice(["&", "&", "|"])
        return f"({self.condition(depth - 1)}) {op} ({self.condition(depth - 1)})"

    def comparison(self) -> str:
        pick, n = self.pick, self.number()
        sign = pick.choice(["<", "<=", ">", ">="])
        diagonal = pick.choice(["q_idx", "q_idx + (kv_len - q_len)"])
        kinds = [
            lambda: f"kv_idx <= {diagonal}",
            lambda: f"kv_idx {sign} {diagonal} + {n} - {self.number()}",
            lambda: f"{diagonal} - kv_idx {sign} {n}",
            lambda: f"abs({diagonal} - kv_idx) {sign} {n}",
            lambda: f"kv_idx {sign} {n}",
            lambda: f"q_idx {sign} {n}",
            lambda: f"{pick.choice([2, 3])} * q_idx {sign} kv_idx + {n}",
            lambda: f"q_idx // {n + 1} {pick.choice(['==', '!=', '>='])} kv_idx // {n + 1}",
            lambda: f"(q_idx - kv_idx) % {n % 7 + 1} == 0",
            lambda: f"q_idx - kv_idx <= (h + 1) * {n}",
            lambda: f"(b + h) % 2 == {n % 2}",
            lambda: f"max(q_idx, {n}) {sign} min(kv_idx, {self.number()})",
            self.of_data,
            self.of_data,
        ]
        return pick.choice(kinds)()

    def of_data(self) -> str:
        kind = self.pick.randrange(5)
        if kind == 0:
            ids = self.captured("ids", INTEGERS)
            return f"{ids}[b, q_idx] == {ids}[b, kv_idx]"
        if kind == 1:
            order = self.captured("order", ["i16", "i32", "i64"])
            return f"{order}[q_idx] >= {order}[kv_idx]"
        if kind == 2:
            return f"kv_idx < {self.captured('lengths', ['i16', 'i32', 'i64'])}[b]"
        if kind == 3:
            return f"{self.captured('visible', ['i1'])}[q_idx, kv_idx]"
        return f"{self.captured('seen', ['i1'])}[b, 0, 0, kv_idx]"

    def score(self) -> str:
        """Steps that change a score; none of them makes small differences large."""
        parts, value = [], "score"
        for step in range(self.pick.choice([1, 1, 2, 3])):
            parts.append(f"s{step} = {self.changed(value)};")
            value = f"s{step}"
        if self.pick.random() < 0.1:  # last, or another step would make infinity of it
            value = f"where({self.condition(0)}, -inf, {value})"
        return " ".join([*parts, value])

    def changed(self, x: str) -> str:
        pick = self.pick
        cap = pick.choice([8, 20.0])
        kinds = [
            lambda: f"{x} * {pick.choice([0.5, 0.9, -1.0])}",
            lambda: f"{cap} * tanh({x} / {cap})",
            lambda: f"min(max({x}, -4), {pick.choice([2.5, 6])})",
            lambda: f"abs({x})",
            lambda: f"{x} + {self.captured('slopes', FLOATS)}[h] * float(kv_idx - q_idx)",
            lambda: f"{x} + {self.captured('bias', FLOATS)}[b, h, q_idx, kv_idx]",
            lambda: f"{x} + {self.captured('table', FLOATS)}[h, kv_idx - q_idx + 20]",
            lambda: f"where({self.condition(1)}, {x}, {x} * 0.5)",
            lambda: f"{x} - log(1 + abs(q_idx - kv_idx))",
        ]
        return pick.choice(kinds)()

    def sink(self) -> str:
        return f"{self.captured('logits', FLOATS)}[h] * {self.pick.choice([1, 0.5])}"


def draw(pick: random.Random) -> dict[str, Any]:
    """Some of the mask, the score and the sink of a spec, without the arrays."""
    made: dict[str, Any] = {}
    for name, kind, chance in (
        ("mask", fc.Mask, 0.8),
        ("score", fc.Score, 0.6),
        ("sink", fc.Sink, 0.2),
    ):  # noqa: E501
        if pick.random() < chance:
            writer = Writer(pick)
            text = writer.condition(2) if name == "mask" else getattr(writer, name)()
            made[name] = kind(text, list(writer.tensors.values()))
    # One name, one tensor: the later expressions take the dtype of the first.
    dtypes: dict[str, Captured] = {}
    for name, part in made.items():
        tensors = [dtypes.setdefault(t.name, t) for t in part.tensors]
        made[name] = type(part)(part.text, tensors)
    return made
