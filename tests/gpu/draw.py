"""Random kernels and random calls of them, which depend on a seed, a family and a number alone."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Any

from draw_expressions import draw

import flashcore as fc

FAMILIES = ["wgmma", "mma", "all"]
EDGES = [16, 17, 63, 64, 65, 127, 128, 129, 255, 256, 257, 512, 1000]
MEMORY = ["dense", "dense", "padded", "exchanged", "sliced", "packed", "misaligned"]
# What a schedule may do or leave: a new field is drawn without a change here.
CHOICES = [f.name for f in fields(fc.Schedule) if f.type == "bool"]


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
    q_len: int  # of the longest sequence, or of the array where they are padded
    kv_len: int
    memory: str
    size: float  # of the entries of q
    scale: float | None
    return_lse: bool
    own_output: bool
    sequences: tuple[tuple[int, int], ...] = ()  # rows and keys of each, if they have lengths
    around: tuple[int, int] = (0, 0)  # of packed sequences: rows before the first, after the last
    one_starts: bool = False  # cu_seqlens_q serves the keys as well
    says_longest: bool = False  # whether max_q_len is given


def draw_config(seed: int, index: int, family: str = "mma") -> Config:
    pick = random.Random(f"{seed} {family} kernel {index}")
    if family == "all":
        family = pick.choice(["wgmma", "mma"])
    common = pick.random() < 0.5
    head_dim = pick.choice([64, 128, 256]) if common else 8 * pick.randint(1, 32)
    kv_heads = pick.choice([None, None, 1, 2])
    masks = [fc.full(), fc.causal(), fc.causal(), fc.causal("top_left")]
    written = draw(pick) if pick.random() < 0.6 else {}
    layout = pick.choice(["bhsd", "bhsd", "bshd", "bshd", "thd"])
    padded = layout != "thd" and pick.random() < 0.25
    lens = pick.choice([(True, True), (True, False), (False, True)]) if padded else (False, False)
    spec = fc.AttentionSpec(
        head_dim=head_dim,
        head_dim_v=None if pick.random() < 0.7 else 8 * pick.randint(1, 32),
        heads=kv_heads * pick.choice([1, 2, 3, 4]) if kv_heads else None,
        kv_heads=kv_heads,
        dtype=pick.choice(["bf16", "f16"]),
        **({"mask": pick.choice(masks)} | written),
        layout=layout,
        lse=pick.random() < 0.3,
        q_lens=lens[0],
        kv_lens=lens[1],
    )
    if family == "wgmma":
        return Config(spec, draw_warpgroups(pick, spec) if pick.random() < 0.9 else {})
    return Config(spec, draw_schedule(pick) if pick.random() < 0.7 else {})


def draw_schedule(pick: random.Random) -> dict[str, Any]:
    """Some fields of a schedule; nothing keeps it within the limits of a GPU."""
    warps = pick.choice([1, 2, 4, 4, 8])
    changes = {
        "instruction": "mma_m16n8k16",
        "copy": "cp_async",
        "persistent": False,
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
        changes |= {"softmax": "shared"}
        changes["instruction"] = pick.choice(["mma_m16n8k16", "wmma"])
    if pick.random() < 0.2:
        changes["copy"] = "vector"
    return changes


def draw_warpgroups(pick: random.Random, spec: fc.AttentionSpec) -> dict[str, Any]:
    """Every field that such a schedule has; most of them within the limits of a GPU."""
    warps, stages = pick.choice([4, 8, 8, 12]), pick.choice([2, 2, 3, 4])
    changes = {name: pick.random() < 0.5 for name in CHOICES}
    changes["keep_operands"] = False
    if spec.layout == "thd" or spec.q_lens or spec.kv_lens:
        changes["persistent"] = pick.random() < 0.05  # it is refused
    if warps > 4 or changes["persistent"]:
        changes["producer"] = pick.random() < 0.95
    if warps == 4:
        changes["ping_pong"] = pick.random() < 0.05
    walks = changes["producer"] and not changes["persistent"] and pick.random() < 0.5
    several = changes["persistent"] or walks
    cols = 16 * pick.randint(1, 16)
    if pick.random() < 0.9:
        fitting = [n for n in range(16, 257, 16) if fits(spec, warps, n, stages)]
        cols = pick.choice(fitting or [16])
    # Warpgroups that divide the columns, in a drawing of its own, so that the others stay.
    others = random.Random(f"{warps} {cols} {stages} {pick.random()}")
    divided = warps == 4 and changes["producer"] and others.random() < 0.3
    shares = changes["persistent"] and others.random() < 0.5
    drawn = changes | {
        "instruction": "wgmma",
        "copy": "tma",
        "softmax": "registers",
        "warps_m": warps,
        "warps_n": others.choice([2, 2, 3]) if divided else 1,
        "product_split": "columns" if divided else "terms",
        "tiles": {"rows": 16 * warps, "cols": cols},
        "stages": stages,
        "grid_order": pick.choice(["tiles_first", "tiles_last"]),
        "flat_grid": pick.choice([False, False, True]),
        "reduction_chains": pick.choice([1, 2, 4]),
        "tile_scheduler": pick.choice(["serpentine", "dynamic"])
        if changes["persistent"]
        else "serpentine",
        "blocks_per_processor": pick.choice([1, 1, 2, 3]) if warps == 4 else 1,
        "positions_per_block": pick.choice([2, 3, 4]) if walks else 1,
        "outer_stages": pick.choice([1, 2]) if several else 1,
        "cluster_splits": 1 if several else pick.choice([1, 1, 2, 4]),
    }
    if changes["producer"] and not shares and others.random() < 0.4:
        drawn["producer_warps"] = 2
    if shares:  # what both blocks of a cluster load
        drawn["multicast_blocks"] = 2
    if shares or spec.layout == "thd" or spec.q_lens:
        drawn["end_aligned_tiles"] = others.random() < 0.05  # it is refused
    return drawn


def fits(spec: fc.AttentionSpec, warps: int, cols: int, stages: int) -> bool:
    """Roughly: shared memory for the tiles; registers for the output, scores and probabilities."""
    dim, dim_v = (-(-d // 16) * 16 for d in (spec.head_dim, spec.head_dim_v or spec.head_dim))
    elements = 16 * warps * dim + stages * cols * (dim + dim_v)
    registers = dim_v // 2 + cols // 2 + cols // 4 + 48
    return 2 * elements <= 220 * 1024 and registers <= (150 if warps == 12 else 230)


def draw_length(pick: random.Random, longest: int) -> int:
    kind = pick.random()
    if kind < 0.08:
        return pick.randint(0, 1)
    if kind < 0.5:
        return min(pick.choice(EDGES), longest)
    return pick.randint(2, longest)


def draw_case(seed: int, index: int, spec: fc.AttentionSpec, longest: int) -> Case:
    pick = random.Random(f"{seed} case {index}")
    # Often more output tiles than a GPU runs blocks at a time, so that blocks compute several;
    # some of these cases have so few keys that under a causal mask many output tiles see none.
    many = longest >= 1000 and pick.random() < 0.4
    heads = spec.heads or pick.randint(1, 24 if many else 4)
    longest = 1100 if many else longest
    q_len = draw_length(pick, longest)
    same = pick.random() < 0.4
    kv_len = q_len if same else draw_length(pick, longest)
    if many and not same and pick.random() < 0.5:
        q_len, kv_len = max(q_len, kv_len), min(q_len, kv_len) // pick.choice([1, 2, 5])
    batch = 0 if pick.random() < 0.02 else pick.randint(1, 8 if many else 3)
    sequences: tuple[tuple[int, int], ...] = ()
    if spec.layout == "thd":
        batch += pick.randint(0, 3) if batch else 0
        sequences = tuple(draw_sequence(pick, q_len, kv_len, same) for _ in range(batch))
        q_len, kv_len = (max((pair[i] for pair in sequences), default=0) for i in (0, 1))
    elif spec.q_lens or spec.kv_lens:
        drawn = [draw_sequence(pick, q_len, kv_len, False) for _ in range(batch)]
        sequences = tuple(
            (rows if spec.q_lens else q_len, keys if spec.kv_lens else kv_len)
            for rows, keys in drawn
        )
    return Case(
        index=index,
        batch=batch,
        heads=heads,
        kv_heads=spec.kv_heads or heads,
        q_len=q_len,
        kv_len=kv_len,
        memory=pick.choice(MEMORY),
        size=pick.choice([1.0, 1.0, 1.0, 10.0, 100.0, 0.01]),
        scale=None if pick.random() < 0.7 else pick.choice([0.05, 0.25, 1.0]),
        return_lse=pick.random() < 0.3,
        own_output=pick.random() < 0.8,
        sequences=sequences,
        around=(pick.choice([0, 0, 3]), pick.choice([0, 5, 70]))
        if spec.layout == "thd"
        else (0, 0),
        one_starts=spec.layout == "thd" and same,
        says_longest=pick.random() < 0.7,
    )


def draw_sequence(
    pick: random.Random, most_rows: int, most_keys: int, same: bool
) -> tuple[int, int]:
    """The rows and keys of one sequence among others: often none or one, or as many as can be."""

    def length(most: int) -> int:
        return min(
            most, pick.choice([0, 1, most, most, pick.randint(0, most), pick.randint(0, most)])
        )

    rows = length(most_rows)
    return rows, rows if same else length(most_keys)


def starts(lengths: Sequence[int], first: int) -> list[int]:
    """Where each of the packed sequences begins, and where the last one ends."""
    at = [first]
    for length in lengths:
        at.append(at[-1] + length)
    return at
