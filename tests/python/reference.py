"""Attention in NumPy and fp64, written from the definition: what kernels are held against."""

from __future__ import annotations

import ml_dtypes
import numpy as np

DTYPES = {"f16": np.dtype(np.float16), "bf16": np.dtype(ml_dtypes.bfloat16)}


def visible(mask: str, q_len: int, kv_len: int) -> np.ndarray:
    rows, cols = np.arange(q_len)[:, None], np.arange(kv_len)[None, :]
    return {
        "full": np.ones((q_len, kv_len), bool),
        "causal(top_left)": cols <= rows,
        "causal(bottom_right)": cols <= rows + kv_len - q_len,
    }[mask]


def positions(batch: int, heads: int, q_len: int, kv_len: int) -> tuple[np.ndarray, ...]:
    """b, h, q_idx and kv_idx of every score, ready to broadcast."""
    lengths = (batch, heads, q_len, kv_len)
    return tuple(np.arange(n).reshape([-1 if i == at else 1 for i in range(4)])
                 for at, n in enumerate(lengths))  # fmt: skip


def attention(
    q, k, v, *, scale=None, mask="full", score=None, sink=None, layout="bhsd", low_precision=False
):
    """(out, lse) in fp64. With `low_precision`, probabilities are rounded to the inputs' dtype
    before they meet v and the output after, as any tensor-core kernel has to.

    `mask`, `score` and `sink` are NumPy functions of arrays of positions; a mask may be a name.
    """
    dtype = q.dtype
    q, k, v = (x.astype(np.float64) for x in (q, k, v))
    if layout == "bshd":
        q, k, v = (x.swapaxes(1, 2) for x in (q, k, v))
    group = q.shape[1] // k.shape[1]
    k, v = np.repeat(k, group, axis=1), np.repeat(v, group, axis=1)
    scores = q @ k.swapaxes(-1, -2) * (q.shape[-1] ** -0.5 if scale is None else scale)
    b, h, rows, cols = positions(*scores.shape)
    if score is not None:
        scores = score(scores, b, h, rows, cols)
    keep = visible(mask, *scores.shape[2:]) if isinstance(mask, str) else mask(b, h, rows, cols)
    scores = np.where(keep, scores, -np.inf)
    if sink is not None:
        more = np.broadcast_to(sink(b, h, rows), (*scores.shape[:-1], 1))
        scores = np.concatenate([scores, more], axis=-1)
        v = np.concatenate([v, np.zeros_like(v[:, :, :1])], axis=2)
    with np.errstate(divide="ignore", invalid="ignore"):
        top = scores.max(-1, keepdims=True, initial=-np.inf)
        probs = np.nan_to_num(np.exp(scores - np.where(np.isfinite(top), top, 0)))
        total = probs.sum(-1, keepdims=True)
        if low_precision:
            probs = probs.astype(dtype).astype(np.float64)
        out = np.nan_to_num((probs @ v) / total)
        lse = np.log(total[..., 0]) + top[..., 0]
    if low_precision:
        out = out.astype(dtype).astype(np.float64)
    return (out.swapaxes(1, 2) if layout == "bshd" else out), lse


def gradients(q, k, v, dout, *, scale=None, mask="full", score=None, slope=None, rounded=False):
    """(dq, dk, dv) in fp64, layout bhsd, by the formulas. With `rounded`, every matrix that a
    tensor core would take is rounded to the inputs' dtype, and so are the results.

    `score` is a NumPy function as in `attention`, and `slope` its derivative by the score.
    """
    dtype = q.dtype

    def as_stored(x):
        return x.astype(dtype).astype(np.float64) if rounded else x

    scale = q.shape[-1] ** -0.5 if scale is None else scale
    q, k, v, dout = (x.astype(np.float64) for x in (q, k, v, dout))
    group = q.shape[1] // k.shape[1]
    keys, values = np.repeat(k, group, axis=1), np.repeat(v, group, axis=1)
    scaled = q @ keys.swapaxes(-1, -2) * scale
    at = positions(*scaled.shape)
    scores = scaled if score is None else score(scaled, *at)
    keep = visible(mask, *scores.shape[2:]) if isinstance(mask, str) else mask(*at)
    scores = np.where(keep, scores, -np.inf)
    top = scores.max(-1, keepdims=True, initial=-np.inf)
    weights = np.exp(scores - np.where(np.isfinite(top), top, 0))
    total = weights.sum(-1, keepdims=True)
    probs = weights / np.where(total == 0, 1, total)
    out = as_stored(as_stored(probs) @ values)
    delta = (dout * out).sum(-1, keepdims=True)
    dscores = probs * (dout @ values.swapaxes(-1, -2) - delta)
    if slope is not None:
        dscores = np.where(keep, dscores * slope(scaled, *at), 0)
    dscores, probs = as_stored(dscores), as_stored(probs)
    dq = dscores @ keys * scale
    dk, dv = dscores.swapaxes(-1, -2) @ q * scale, probs.swapaxes(-1, -2) @ dout
    grouped = (k.shape[0], k.shape[1], group, *k.shape[2:3])
    dk, dv = (x.reshape(*grouped, x.shape[-1]).sum(2) for x in (dk, dv))
    return as_stored(dq), as_stored(dk), as_stored(dv)


def assert_gradients(found, q, k, v, dout, **how):
    """At most three times the error of a plain low-precision evaluation."""
    exact = gradients(q, k, v, dout, **how)
    plain = gradients(q, k, v, dout, **how, rounded=True)
    epsilon = float(ml_dtypes.finfo(q.dtype).eps)
    for name, mine, wanted, rough in zip(("dq", "dk", "dv"), found, exact, plain, strict=True):
        error = np.abs(np.asarray(mine, np.float64) - wanted).max(initial=0)
        size = max(1.0, np.abs(wanted).max(initial=0))
        bound = 3 * np.abs(rough - wanted).max(initial=0) + epsilon * 1e-2 * size
        assert error <= bound, f"{name}: error {error} over {bound}"


def random(rng, shape, dtype):
    return rng.standard_normal(shape).astype(DTYPES[dtype])


def assert_close(out, lse, q, k, v, **how):
    """At most twice the error of a plain low-precision evaluation, and never far off."""
    exact, exact_lse = attention(q, k, v, **how)
    plain, _ = attention(q, k, v, **how, low_precision=True)
    epsilon = float(ml_dtypes.finfo(q.dtype).eps)
    error = np.abs(np.asarray(out, np.float64) - exact)
    bound = 2 * np.abs(plain - exact).max(initial=0) + epsilon * 1e-2
    assert error.max(initial=0) <= bound, f"error {error.max()} over {bound}"
    assert error.max(initial=0) <= 4 * epsilon * max(1.0, np.abs(exact).max(initial=0))
    if lse is not None:
        lse = np.asarray(lse, np.float64)
        empty = np.isneginf(exact_lse)
        np.testing.assert_array_equal(np.isneginf(lse), empty)
        np.testing.assert_allclose(lse[~empty], exact_lse[~empty], atol=1e-4, rtol=1e-5)
