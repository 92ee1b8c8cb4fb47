"""What kernels with split keys cost: measured, by what a block of theirs computes."""

from __future__ import annotations

import math
import os
import random
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor

from .. import _core
from ..cache.tuning_table import Problem
from ..errors import Error
from ..kernels.decode_kernels import Blocks, DecodeKernels, Ordered
from ..kernels.module_kernel import ModuleKernel
from ..specs.module import Module
from ..specs.spec import AttentionSpec
from ..specs.variants import causal
from .measurements import Contest, Launch, Measurements, Say, is_feasible

GROUPED_HEADS = ((32, 8), (18, 3), (60, 12))  # with their heads of keys
WAVES = (0.5, 1, 2, 3)  # of blocks, of which the number of splits follows
MOST_TILES = 4  # of 128 query rows for each multiprocessor: nothing is idle then
KEYS_OF_SPLITS = 128  # a split has a multiple of so many
MOST_TILED_SPLITS = 4  # that a tile of the second program combines


def split_specs() -> list[AttentionSpec]:
    """Attention with and without groups, of every head_dim that has a coefficient of its own."""
    specs = []
    for dim in _core.cost_dims():
        specs.append(AttentionSpec(head_dim=dim, mask=causal()))
        for heads, kv_heads in GROUPED_HEADS:
            specs.append(AttentionSpec(head_dim=dim, mask=causal(), heads=heads, kv_heads=kv_heads))
    return specs


def group_of(spec: AttentionSpec) -> int:
    return (spec.heads or 1) // (spec.kv_heads or spec.heads or 1)


def may_split(spec: AttentionSpec, found: Measurements, problem: Problem) -> bool:
    """Whether multiprocessors would idle without."""
    batch, heads, q_len, kv_len = problem
    tiles = batch * heads * (q_len // 128)
    if tiles > MOST_TILES * found.multiprocessors or not _core.decodes(
        spec.to_json(), found.target
    ):
        return False
    least: int = _core.DecodeChooser(spec.to_json(), found.target).least_keys
    return kv_len >= least


def chosen_blocks(spec: AttentionSpec, target: str, problem: Problem) -> Blocks | None:
    """Those of a call; None where its keys are left whole."""
    return _core.DecodeChooser(spec.to_json(), target).choose(*problem)


def draw_split_problem(rng: random.Random, spec: AttentionSpec, found: Measurements) -> Problem:
    """Query rows that may leave multiprocessors idle: one alone, so many that a packed tile holds
    those of the group's heads, or any number."""
    packed: int = _core.most_decode_rows() // group_of(spec)
    while True:
        batch, heads = (round(2 ** rng.uniform(0, 6)) for _ in range(2))
        heads = spec.heads or heads
        q_len = rng.choice((1, rng.randint(1, packed), round(2 ** rng.uniform(0, 11))))
        problem = batch, heads, q_len, round(2 ** rng.uniform(9, 17))
        if may_split(spec, found, problem) and is_feasible(spec, problem):
            return problem


def blocks_for(spec: AttentionSpec, target: str, q_len: int) -> list[Blocks]:
    """All that a call of so many query rows could have."""
    return _core.DecodeChooser(spec.to_json(), target).reachable(q_len, q_len)


def draw_splits(
    rng: random.Random, spec: AttentionSpec, blocks: Blocks, problem: Problem, multiprocessors: int
) -> int:
    """A number of splits near one that fills the multiprocessors."""
    rows, row_tile, combines_tiles, *_ = blocks
    batch, heads, q_len, kv_len = problem
    packs = rows != "of_head"
    own_heads = (spec.kv_heads or heads) if packs else heads
    tiles = math.ceil(q_len * (group_of(spec) if packs else 1) / row_tile)
    most = math.ceil(kv_len / KEYS_OF_SPLITS)
    if combines_tiles:
        most = min(most, MOST_TILED_SPLITS)
    wanted = rng.choice(WAVES) * multiprocessors / (batch * own_heads * tiles)
    return max(1, min(int(wanted), most))


def build_splits(
    wanted: Iterable[tuple[AttentionSpec, Blocks]], target: str, say: Say
) -> dict[tuple[AttentionSpec, Blocks], Ordered]:
    """The modules, compiled at once; what does not compile is left out."""
    pairs = list(dict.fromkeys(wanted))

    def build(spec: AttentionSpec, blocks: Blocks) -> Ordered | None:
        try:
            return DecodeKernels(spec, target, ()).built(blocks, False, compiled=True)
        except Error:
            return None

    with ThreadPoolExecutor(os.cpu_count()) as pool:
        built = list(pool.map(build, *zip(*pairs, strict=True)))
    say(f"{sum(found is not None for found in built)} of {len(pairs)} modules with split keys")
    return {pair: found for pair, found in zip(pairs, built, strict=True) if found is not None}


def launch_of_splits(built: Ordered, spec: AttentionSpec, splits: int | None = None) -> Launch:
    """Into so many splits; None: as many as the module chooses."""
    kernels, order = built
    if splits is not None:
        own = kernels.module
        module = Module(
            own.name,
            own.programs,
            own.workspaces,
            own.numbers | {"splits": str(splits)},
            own.several_writers,
        )
        kernels = ModuleKernel(module, kernels.kernels, kernels.target)
    scalars = (1 / math.sqrt(spec.head_dim),)

    def launch(arrays: Sequence[object]) -> None:
        kernels.launch(tuple(arrays[at] for at in order), scalars, None)

    return launch


def measure_splits(
    found: Measurements,
    contest: Contest,
    wanted: Sequence[tuple[AttentionSpec, Problem]],
    rng: random.Random,
    say: Say,
) -> None:
    """Adds times of these problems, under all blocks that they could have."""
    reachable = [blocks_for(spec, found.target, problem[2]) for spec, problem in wanted]
    built = build_splits(
        [(spec, b) for (spec, _), own in zip(wanted, reachable, strict=True) for b in own],
        found.target, say,
    )  # fmt: skip
    for (spec, problem), own in zip(wanted, reachable, strict=True):
        contenders = [
            (blocks, draw_splits(rng, spec, blocks, problem, found.multiprocessors))
            for blocks in own
            if (spec, blocks) in built
            for _ in range(2)
        ]
        contenders = list(dict.fromkeys(contenders))
        launches = [launch_of_splits(built[spec, b], spec, splits) for b, splits in contenders]
        for (blocks, splits), us in zip(
            contenders, contest.times(launches, spec, problem), strict=True
        ):
            if math.isfinite(us):
                found.split.append((spec.to_json(), problem, blocks, splits, us))


__all__ = [
    "blocks_for",
    "build_splits",
    "chosen_blocks",
    "draw_split_problem",
    "launch_of_splits",
    "may_split",
    "measure_splits",
    "split_specs",
]
