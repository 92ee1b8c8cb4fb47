"""Lookups at sums of positions: tiles that lie inside an array as a whole, that count from its end
as a whole, and others, all give what each element alone would."""

import ml_dtypes
import numpy as np
import pytest

import flashcore as fc
import reference

rng = np.random.default_rng(7)
B, H, Q, K, D = 1, 2, 150, 200, 32
SCHEDULES = {
    "sm_80": {"tiles": {"rows": 32, "cols": 32}, "warps_m": 2},
    "sm_90a": None,
}


def looked_up(table, h, index, wraps=True):
    """Zero outside; a negative index counts from the end, once."""
    length = table.shape[-1]
    index = np.where(wraps & (index < 0), index + length, index)
    inside = (index >= 0) & (index < length)
    return np.where(inside, table[h, np.clip(index, 0, length - 1)], 0)


def check(score, exact_score, target):
    q, k, v = (rng.standard_normal((B, H, n, D)).astype(ml_dtypes.bfloat16) for n in (Q, K, K))
    kernel = fc.jit(
        fc.AttentionSpec(head_dim=D, score=score), target=target, schedule=SCHEDULES[target]
    )
    exact, _ = reference.attention(q, k, v, score=exact_score)
    low, _ = reference.attention(q, k, v, score=exact_score, low_precision=True)
    bound = 2 * np.abs(low - exact).max() + 1e-3
    assert np.abs(kernel(q, k, v).astype(float) - exact).max() < bound
    return kernel


@pytest.mark.parametrize("target", SCHEDULES)
@pytest.mark.parametrize("length", [40, 150, 200, 512])
def test_distances_are_looked_up_inside_at_the_end_and_outside(target, length):
    table = (3 * rng.standard_normal((H, length))).astype(np.float32)
    kernel = check(
        lambda s, b, h, q_idx, kv_idx: s + table[h, q_idx - kv_idx],
        lambda s, b, h, q_idx, kv_idx: s + looked_up(table, h, q_idx - kv_idx),
        target,
    )
    assert "from_end" in kernel.source  # else nothing of this was tested


@pytest.mark.parametrize("target", SCHEDULES)
def test_sums_with_captured_numbers(target):
    table = (3 * rng.standard_normal((H, 349))).astype(np.float32)
    for shift in (0, 150, 199, 400, -400):
        number = np.array(shift)
        check(
            lambda s, b, h, q_idx, kv_idx, n=number: s + table[h, q_idx + n - kv_idx],
            lambda s, b, h, q_idx, kv_idx, n=shift: s + looked_up(table, h, q_idx + n - kv_idx),
            target,
        )


@pytest.mark.parametrize("target", SCHEDULES)
def test_a_sum_that_leaves_32_bits_within_a_tile_finds_nothing(target):
    table = np.full((H, 4000), 1e4, np.float32)
    far = np.array(2**31 - 100)
    check(
        lambda s, b, h, q_idx, kv_idx: s + table[h, kv_idx - q_idx + far] * (kv_idx - q_idx),
        lambda s, b, h, q_idx, kv_idx: s,
        target,
    )


@pytest.mark.parametrize("target", SCHEDULES)
def test_two_sums_of_one_lookup_and_two_lookups_of_one_tile(target):
    grid = rng.standard_normal((K, 256)).astype(np.float32)
    table = rng.standard_normal((H, 512)).astype(np.float32)

    def score(s, b, h, q_idx, kv_idx):
        return s + grid[q_idx - 3, kv_idx - q_idx] - table[h, kv_idx - q_idx]

    def exact(s, b, h, q_idx, kv_idx):
        apart = looked_up(grid, np.where(q_idx < 3, q_idx + K - 3, q_idx - 3), kv_idx - q_idx)
        return s + apart - looked_up(table, h, kv_idx - q_idx)

    check(score, exact, target)
