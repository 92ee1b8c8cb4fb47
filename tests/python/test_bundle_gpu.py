"""A bundle on a real GPU, in a process that can compile nothing. Skipped where there is none."""

import os
import subprocess
import sys

import pytest

import flashcore as fc

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU")

SPEC = fc.AttentionSpec(head_dim=64, heads=8, kv_heads=2, mask=fc.causal())

CALLS = """
import sys

import torch

import flashcore as fc

kernel = fc.jit(fc.AttentionSpec.from_json(sys.argv[1]))


def exact(q, k, v):
    q, k, v = q.double(), k.double(), v.double()
    k, v = (x.repeat_interleave(q.shape[1] // k.shape[1], 1) for x in (k, v))
    scores = q @ k.mT / 8
    hidden = torch.ones_like(scores, dtype=torch.bool).triu(1 + k.shape[2] - q.shape[2])
    return scores.masked_fill(hidden, -torch.inf).softmax(-1) @ v


def draw(*shape):
    return torch.randn(shape, device="cuda", dtype=torch.bfloat16).requires_grad_()


torch.manual_seed(0)
for rows, keys in ((1, 1), (1, 1500), (1, 4000), (60, 3001), (128, 128), (500, 500), (1111, 2048)):
    q, k, v, dout = (draw(1, *shape, 64) for shape in ((8, rows), (2, keys), (2, keys), (8, rows)))
    out, expected = kernel(q, k, v), exact(q, k, v)
    assert (out - expected).abs().max() < 0.03, (rows, keys)
    if rows == 1:
        continue
    found = torch.autograd.grad(out, (q, k, v), dout)
    # torch's thread must not be the last to hold a tensor of Python's when the process ends.
    exact_dout = dout.double()
    for one, other in zip(found, torch.autograd.grad(expected, (q, k, v), exact_dout)):
        assert (one - other).norm() < 0.02 * other.norm(), (rows, keys)
print(fc.cache_stats().compiled)
"""


def test_forward_decoding_and_gradients_compile_nothing(tmp_path):
    path = tmp_path / "kernels.fcb"
    ranges = {"lengths": (1, 4096), "batch": 1, "heads": 8}
    fc.build_bundle(SPEC, path, **ranges, gradients=True)
    environment = os.environ | {
        "FLASHCORE_BUNDLES": str(path),
        "FLASHCORE_CACHE_DIR": str(tmp_path / "empty"),
        "FLASHCORE_COMPILE": "forbid",
        "FLASHCORE_NVRTC": str(tmp_path / "no such library"),
        "PYTHONPATH": os.pathsep.join(sys.path),
    }
    command = [sys.executable, "-c", CALLS, SPEC.to_json()]
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == "0"
