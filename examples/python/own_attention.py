"""Attention of one's own: functions for the mask and the score, and what becomes of them."""

import ml_dtypes
import numpy as np

import flashcore as fc

rng = np.random.default_rng(0)
batch, heads, length = 2, 4, 160
q, k, v = rng.standard_normal((3, batch, heads, length, 64)).astype(ml_dtypes.bfloat16)
document = np.sort(rng.integers(0, 3, (batch, length)), axis=1)
slopes = 0.5 ** np.arange(1, heads + 1)


def within_documents(b, h, q_idx, kv_idx):
    return (q_idx >= kv_idx) & (document[b, q_idx] == document[b, kv_idx])


def softcapped(score, b, h, q_idx, kv_idx):
    return 20 * np.tanh((score + slopes[h] * (kv_idx - q_idx)) / 20)


spec = fc.AttentionSpec(head_dim=64, mask=within_documents, score=softcapped)
print("the functions, as they are compiled into the kernel:")
print(" ", spec.mask)
print(" ", spec.score)

kernel = fc.jit(spec)
print("\nwhat the mask does for the loop over keys:")
print(kernel.explain())

out = kernel(q, k, v)
document[:] = np.arange(length) // 40  # arrays are read at every call
again = kernel(q, k, v)
print("\nother documents, the same kernel:", bool((out != again).any()))

with_sink = fc.attention(
    q, k, v, mask=within_documents, score=softcapped, sink=lambda b, h, q_idx: 1.0
)
shrunk = np.abs(with_sink.astype(float)).sum() < np.abs(again.astype(float)).sum()
print("a sink takes its share of every row:", bool(shrunk))
