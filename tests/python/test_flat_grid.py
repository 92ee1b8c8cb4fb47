"""A grid of one row: the same results, whatever asks for the numbers of batches and heads."""

import numpy as np
import pytest

import flashcore as fc

pytestmark = pytest.mark.usefixtures("emulated_only")

BATCH, HEADS = 3, 4
rng = np.random.default_rng(7)
SLOPES = rng.uniform(0.1, 1, (BATCH, HEADS)).astype(np.float32)
DOCUMENTS = np.sort(rng.integers(0, 3, (BATCH, 40)), axis=1).astype(np.int32)


def of_batch_and_head(score, b, h, q_idx, kv_idx):
    return score + SLOPES[b, h] * (kv_idx - q_idx)


def within_documents(b, h, q_idx, kv_idx):
    return DOCUMENTS[b, q_idx] == DOCUMENTS[b, kv_idx]


def array(length, heads=HEADS):
    return rng.standard_normal((BATCH, heads, length, 16)).astype(np.float16)


WARPGROUPS = {"instruction": "wgmma", "copy": "tma", "tiles": {"rows": 64, "cols": 32}}


@pytest.mark.parametrize(
    ("spec", "target", "schedule"),
    [
        ({"mask": fc.causal()}, "sm_80", {"last_tiles_first": True}),
        ({"score": of_batch_and_head, "mask": within_documents}, "sm_80", {}),
        ({"score": of_batch_and_head, "kv_heads": 2}, "sm_80", {"grid_order": "tiles_last"}),
        ({"mask": within_documents}, "sm_90a", WARPGROUPS | {"positions_per_block": 3}),
        ({"score": of_batch_and_head}, "sm_90a", WARPGROUPS | {"cluster_splits": 2}),
    ],
)
def test_gives_the_same_bits(spec, target, schedule):
    spec = fc.AttentionSpec(head_dim=16, heads=HEADS, dtype="f16", q_lens=True, lse=True, **spec)
    base = fc.Schedule(**{"tiles": {"rows": 16, "cols": 16}, "warps_m": 1, **schedule})
    if target == "sm_90a":
        base = fc.Schedule(**{**schedule, "warps_m": 4})
    kv = array(40, spec.kv_heads or HEADS)
    given = {"q_lens": np.array([40, 0, 17], np.int32), "return_lse": True}
    q = array(40)
    out, lse = fc.jit(spec, target, base)(q, kv, kv, **given)
    flat = fc.jit(spec, target, {**vars(base), "flat_grid": True})
    assert "fc::block_y()" not in flat.source
    flat_out, flat_lse = flat(q, kv, kv, **given)
    np.testing.assert_array_equal(flat_out, out)
    np.testing.assert_array_equal(flat_lse, lse)


def test_packed_sequences():
    spec = fc.AttentionSpec(head_dim=16, layout="thd", dtype="f16", mask=fc.causal())
    q = rng.standard_normal((50, HEADS, 16)).astype(np.float16)
    ends = np.array([0, 20, 20, 50], np.int32)
    schedule = {"tiles": {"rows": 16, "cols": 16}, "warps_m": 1}
    one, other = (
        fc.jit(spec, "sm_80", schedule | {"flat_grid": flat})(q, q, q, cu_seqlens_q=ends)
        for flat in (False, True)
    )
    np.testing.assert_array_equal(one, other)
