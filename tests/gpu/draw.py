"""Random kernels and random calls of them. What is drawn depends on the seed and a number alone."""

from __future__ import annotations

import random
from dataclasses import dataclass, fields
from typing import Any

from draw_expressions import draw

import flashcore as fc

EDGES = [16, 17, 63, 64, 65, 127, 128, 129, 255, 256, 257, 512, 1000]
MEMORY = ["dense", "dense", "padded", "exchanged", "sliced", "packed", "misaligned"]


@dataclass(frozen=True)
class Config:
    """A kernel: what is compiled."""

    spec: fc.AttentionSpec
    changes: dict[str, Any]  # of the schedule

    def __str__(self) -> str:
        values = ((field.name, getattr(self.spec, field.name)) for field in fields(self.spec))
        spec = {name: value for name, value in values if value is not None}
        return f"spec={spec} schedule={self.changes}"


@dataclass(frozen=True)
class Case:
    """What one kernel is called with."""

    index: int
    batch: int
    heads: int
    kv_heads: int
    q_len: int
    kv_len: int
    memory: str
    size: float  # of the entries of q
    scale: float | None
    return_lse: bool
    own_output: bool


def draw_config(seed: int, index: int) -> Config:
    pick = random.Random(f"{seed} kernel {index}")
    common = pick.random() < 0.5
    head_dim = pick.choice([64, 128, 256]) if common else 8 * pick.randint(1, 32)
    kv_heads = pick.choice([None, None, 1, 2])
    masks = [fc.full(), fc.causal(), fc.causal(), fc.causal("top_left")]
    written = draw(pick) if pick.random() < 0.6 else {}
    spec = fc.AttentionSpec(
        head_dim=head_dim,
        head_dim_v=None if pick.random() < 0.7 else 8 * pick.randint(1, 32),
        heads=kv_heads * pick.choice([1, 2, 3, 4]) if kv_heads else None,
        kv_heads=kv_heads,
        dtype=pick.choice(["bf16", "f16"]),
        **({"mask": pick.choice(masks)} | written),
        layout=pick.choice(["bhsd", "bshd"]),
        lse=pick.random() < 0.3,
    )
    return Config(spec, draw_schedule(pick) if pick.random() < 0.7 else {})


def draw_schedule(pick: random.Random) -> dict[str, Any]:
    """Some fields of a schedule; nothing keeps it within the limits of a GPU."""
    warps = pick.choice([1, 2, 4, 4, 8])
    changes = {
        "warps_m": warps,
        "tiles": {
            "rows": 16 * warps * pick.choice([1, 1, 2]),
            "cols": pick.choice([16, 32, 48, 64, 64, 96, 128]),
        },
        "stages": pick.choice([1, 2, 2, 3, 4]),
        "keep_operands": pick.random() < 0.5,
        "staged_stores": pick.random() < 0.7,
        "descending": pick.random() < 0.5,
        "last_tiles_first": pick.random() < 0.5,
        "grid_order": pick.choice(["tiles_first", "tiles_last"]),
    }
    if pick.random() < 0.25:
        changes["warps_n"] = 2
    if pick.random() < 0.3:
        changes["softmax"] = "shared"
        changes["instruction"] = pick.choice(["mma_m16n8k16", "wmma"])
    if pick.random() < 0.2:
        changes["copy"] = "vector"
    return changes


def draw_length(pick: random.Random, longest: int) -> int:
    kind = pick.random()
    if kind < 0.08:
        return pick.randint(0, 1)
    if kind < 0.5:
        return min(pick.choice(EDGES), longest)
    return pick.randint(2, longest)


def draw_case(seed: int, index: int, spec: fc.AttentionSpec, longest: int) -> Case:
    pick = random.Random(f"{seed} case {index}")
    heads = spec.heads or pick.randint(1, 4)
    q_len = draw_length(pick, longest)
    same = pick.random() < 0.4
    return Case(
        index=index,
        batch=0 if pick.random() < 0.02 else pick.randint(1, 3),
        heads=heads,
        kv_heads=spec.kv_heads or heads,
        q_len=q_len,
        kv_len=q_len if same else draw_length(pick, longest),
        memory=pick.choice(MEMORY),
        size=pick.choice([1.0, 1.0, 1.0, 10.0, 100.0, 0.01]),
        scale=None if pick.random() < 0.7 else pick.choice([0.05, 0.25, 1.0]),
        return_lse=pick.random() < 0.3,
        own_output=pick.random() < 0.8,
    )
