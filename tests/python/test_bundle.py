"""Bundles: made without a GPU, served where nothing can be compiled."""

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from fake_libraries import DRIVER

import flashcore as fc

SPEC = fc.AttentionSpec(head_dim=64, mask=fc.causal())
CODE = """
import sys
import numpy as np
import flashcore as fc
"""


def run(program, tmp_path, **environment):
    """In a process that can compile nothing: no cache, no NVRTC."""
    variables = os.environ | {
        "FLASHCORE_CACHE_DIR": str(tmp_path / "empty"),
        "FLASHCORE_COMPILE": "forbid",
        "FLASHCORE_NVRTC": "",
        "PYTHONPATH": os.pathsep.join(sys.path),
    }
    return subprocess.run(
        [sys.executable, "-c", CODE + program],
        env=variables | environment,
        capture_output=True,
        text=True,
    )


@pytest.fixture(scope="module")
def bundle(tmp_path_factory):
    path = tmp_path_factory.mktemp("bundle") / "kernels.fcb"
    return fc.build_bundle(SPEC, path, ["sm_80", "sm_90a"], lengths=(1, 512), batch=1, heads=8)


def test_has_all_that_calls_launch(bundle):
    planned = fc.plan_bundle(SPEC, ["sm_80", "sm_90a"], lengths=(1, 512), batch=1, heads=8)
    assert {kernel.target for kernel in bundle.kernels} == {"sm_80", "sm_90a"}
    assert len(bundle.kernels) == len(planned) >= 4
    assert bundle.verify() == len(bundle.kernels)
    (plan,) = bundle.plans
    assert fc.AttentionSpec.from_json(json.dumps(plan["spec"])).head_dim == 64
    assert plan["ranges"]["lengths"] == [1, 512]
    assert plan["kernels"] == [kernel.key for kernel in bundle.kernels]
    assert bundle.signer is None


class TestDecodingAndGradients:
    """Calls that launch several kernels find all of them."""

    ranges = {"lengths": (1, 2048), "batch": (1, 2), "heads": (1, 8)}
    spec = fc.AttentionSpec(head_dim=64, dtype="f16", mask=fc.causal())
    program = """
from fake_framework import OnHopper

class Space:
    @staticmethod
    def empty(shape, dtype, device):
        return Array(*shape, dtype=dtype)

class Array(OnHopper):
    device = "the third"
    def __array_namespace__(self):
        return Space
    def __dlpack_device__(self):
        return 2, 2
    @property
    def dtype(self):
        return self.array.dtype

loaded = []
fc.set_event_hook(lambda event: event.kind == "loaded" and loaded.append(event.kernel))

def told():
    names = sorted({name.split(" ")[0] for name in loaded})
    loaded.clear()
    print(*names)

def arrays(rows, keys, heads=8):
    return [Array(1, heads, n, 64) for n in (rows, keys, keys)]

kernel = fc.jit(fc.AttentionSpec(head_dim=64, dtype="f16", mask=fc.causal()), target="sm_90a")
q, k, v = arrays(1500, 1500)
out, lse = kernel(q, k, v, return_lse=True)
told()
kernel(*arrays(1, 2000))
told()
try:
    dq, dk, dv = kernel.backward(q, k, v, out, lse, Array(*q.shape))
    told()
except fc.CacheMissError as error:
    print(error.what)
"""

    def run(self, bundle, tmp_path):
        if not DRIVER.exists():
            pytest.skip("the C++ tests are not built")
        done = run(
            self.program,
            tmp_path,
            FLASHCORE_BUNDLES=str(bundle.path),
            FLASHCORE_LIBCUDA=str(DRIVER),
            PYTHONPATH=os.pathsep.join([str(Path(__file__).parent), *sys.path]),
        )
        assert done.returncode == 0, done.stderr
        return done.stdout.splitlines()

    def test_run_where_nothing_can_be_compiled(self, tmp_path):
        path = tmp_path / "all.fcb"
        bundle = fc.build_bundle(self.spec, path, "sm_90a", **self.ranges, gradients=True)
        planned = fc.plan_bundle(self.spec, "sm_90a", **self.ranges, gradients=True)
        assert len(planned) == len(bundle.kernels)
        programs = {kernel.kernel.split(" ")[0] for kernel in bundle.kernels}
        assert programs == {kernel.program for kernel in planned}
        forward, decoding, gradients = self.run(bundle, tmp_path)
        assert forward == "attention_forward"
        assert decoding == "attention_decode_combine attention_decode_split"
        backward = {name for name in programs if name.startswith("attention_backward")}
        assert gradients.split(" ") == sorted(backward) != []

    def test_of_short_sequences_it_has_no_kernels_of_long_ones(self):
        brief, every = (
            {
                (kernel.program, kernel.schedules[0].to_json())
                for kernel in fc.plan_bundle(
                    self.spec, "sm_90a", lengths=(1, longest), batch=1, gradients=True
                )
                if kernel.program.startswith("attention_backward")
            }
            for longest in (512, 16384)
        )
        assert brief < every

    def test_without_gradients_it_has_none(self, tmp_path):
        bundle = fc.build_bundle(self.spec, tmp_path / "few.fcb", "sm_90a", **self.ranges)
        forward, decoding, refused = self.run(bundle, tmp_path)
        assert (forward, len(decoding.split(" "))) == ("attention_forward", 2)
        assert "attention_backward" in refused
        assert "compiling is forbidden" in refused

    def test_a_kernel_that_is_saved_has_them_too(self, tmp_path):
        kernel = fc.jit(self.spec, target="sm_90a")
        bundle = kernel.save(tmp_path / "kernel.fcb", gradients=True, **self.ranges)
        assert len(self.run(bundle, tmp_path)[2].split(" ")) > 1


def test_the_same_kernels_are_the_same_bytes(bundle, tmp_path):
    again = fc.build_bundle(
        SPEC, tmp_path / "again.fcb", ["sm_80", "sm_90a"], lengths=(1, 512), batch=1, heads=8
    )
    assert again.path.read_bytes() == bundle.path.read_bytes()


def test_serves_where_nothing_can_be_compiled(bundle, tmp_path):
    program = """
for target in ("sm_80", "sm_90a"):
    kernel = fc.jit(fc.AttentionSpec(head_dim=64, mask=fc.causal()), target=target)
    print(kernel.from_cache, kernel.compile_ms, len(kernel.cubin) > 1000)
"""
    by_name = run(program, tmp_path, FLASHCORE_BUNDLES=str(bundle.path))
    by_call = run(f"fc.use_bundle({str(bundle.path)!r})" + program, tmp_path)
    assert by_name.stdout == by_call.stdout == "True 0.0 True\n" * 2, by_name.stderr
    without = run(program, tmp_path)
    assert "compiling is forbidden" in without.stderr


def test_serves_without_generating_code(bundle, tmp_path):
    program = """
spec = fc.AttentionSpec(head_dim=64, mask=fc.causal())
kernel = fc.jit(spec, target="sm_80")
print(kernel._core.generate_ms, kernel.source == open("source").read())
q = np.ones((1, 1, 20, 64), np.float16)
import ml_dtypes
print(kernel(*[q.astype(ml_dtypes.bfloat16)] * 3).shape, "wgmma" in kernel.ir())
"""
    source = fc.jit(SPEC, target="sm_80").source
    (tmp_path / "source").write_text(source)
    program = program.replace('"source"', repr(str(tmp_path / "source")))
    served = run(program, tmp_path, FLASHCORE_BUNDLES=str(bundle.path))
    assert served.stdout == "0.0 True\n(1, 1, 20, 64) False\n", served.stderr

    # One that says nothing of requests, or was made by another code generation, serves as well.
    silent = tmp_path / "silent.fcb"
    silent.write_bytes(fc._core.write_bundle(bundle.entries(), "[]", None, {}))
    served = run(program.replace("generate_ms", "generate_ms > 0"), tmp_path,
                 FLASHCORE_BUNDLES=str(silent))  # fmt: skip
    assert served.stdout == "True True\n(1, 1, 20, 64) False\n", served.stderr


def test_a_damaged_one_is_refused_and_not_used(bundle, tmp_path):
    damaged = tmp_path / "damaged.fcb"
    data = bytearray(bundle.path.read_bytes())
    data[40] ^= 1
    damaged.write_bytes(data)
    with pytest.raises(fc.CacheError, match="is no bundle that can be used"):
        fc.Bundle(damaged)
    with pytest.raises(fc.CacheError, match="cannot be opened"):
        fc.use_bundle(tmp_path / "none.fcb")
    result = run("print(1)\nfc.jit(fc.AttentionSpec(head_dim=64), target='sm_80')", tmp_path,
                 FLASHCORE_BUNDLES=str(damaged))  # fmt: skip
    assert result.stdout == "1\n"
    assert "damaged.fcb is no bundle that can be used" in result.stderr


def test_merge_and_diff(bundle, tmp_path):
    other = fc.build_bundle(
        fc.AttentionSpec(head_dim=32), tmp_path / "other.fcb", "sm_80", lengths=64, batch=1, heads=1
    )
    both = fc.merge_bundles([bundle, other.path, bundle], tmp_path / "both.fcb")
    assert len(both.kernels) == len(bundle.kernels) + len(other.kernels)
    assert len(both.plans) == 2
    difference = fc.diff_bundles(bundle, both)
    assert [k.key for k in difference.only_second] == [k.key for k in other.kernels]
    assert not difference.only_first
    assert not difference.changed
    assert not fc.diff_bundles(both, fc.merge_bundles([other, bundle], tmp_path / "again.fcb"))


def test_signatures(bundle, tmp_path, monkeypatch):
    public = fc.make_signing_key(tmp_path / "key")
    assert (tmp_path / "key").stat().st_mode & 0o777 == 0o600
    copy = tmp_path / "copy.fcb"
    copy.write_bytes(bundle.path.read_bytes())
    assert fc.sign_bundle(copy, tmp_path / "key").signer == public
    assert not fc.diff_bundles(bundle, copy)
    monkeypatch.setenv("FLASHCORE_BUNDLE_SIGNERS", public)
    assert fc.Bundle(copy).verify() == len(bundle.kernels)
    with pytest.raises(fc.CacheError):
        fc.Bundle(bundle.path)
    other = fc.make_signing_key(tmp_path / "other")
    monkeypatch.setenv("FLASHCORE_BUNDLE_SIGNERS", other)
    with pytest.raises(fc.CacheError):
        fc.Bundle(copy)


@pytest.mark.parametrize("target", ["sm_80", "sm_90a"])
def test_a_saved_kernel_comes_back(target, tmp_path, rng):
    path = tmp_path / "kernel.fcb"
    q, k, v = (rng.standard_normal((1, 2, 40, 64)).astype(np.float16) for _ in range(3))
    spec = fc.AttentionSpec(head_dim=64, dtype="f16", mask=fc.causal())
    kernel = fc.jit(spec, target=target)
    kernel.save(path, lengths=(1, 128), batch=1, heads=2)
    loaded = fc.load_kernel(path, target)
    assert loaded.target == target
    out, lse = loaded(q, k, v, return_lse=True)
    expected, expected_lse = kernel(q, k, v, return_lse=True)
    np.testing.assert_array_equal(out, expected)
    np.testing.assert_array_equal(lse, expected_lse)
    result = run(
        f"kernel = fc.load_kernel({str(path)!r}, {target!r})\n"
        "kernel.compile(); print(kernel.from_cache, len(kernel.cubin))",
        tmp_path,
    )
    assert result.stdout == f"True {len(kernel.cubin)}\n", result.stderr


def test_a_kernel_of_a_schedule_or_a_program_comes_back(tmp_path, rng):
    schedule = {"tiles": {"rows": 64, "cols": 32}, "warps_m": 4}
    kernel = fc.jit(fc.AttentionSpec(head_dim=32, dtype="f16"), target="sm_80", schedule=schedule)
    kernel.save(tmp_path / "kernel.fcb")
    loaded = fc.load_kernel(tmp_path / "kernel.fcb", "sm_80")
    assert loaded.schedule == kernel.schedule
    q, k, v = (rng.standard_normal((1, 1, 33, 32)).astype(np.float16) for _ in range(3))
    np.testing.assert_array_equal(loaded(q, k, v), kernel(q, k, v))

    text = """
program twice
axis rows: parallel_tiles R
axis cols: whole 32
input x: f32 [R, 32]
output y: f32 [R, 32]
{
  %x = load x[rows, cols] : f32[rows, cols]
  %y = add %x, %x : f32[rows, cols]
  store y[rows, cols], %y
}
"""
    program = fc.jit(fc.Program(text), "sm_80", fc.Schedule(tiles={"rows": 32}))
    program.save(tmp_path / "program.fcb")
    x = rng.standard_normal((40, 32)).astype(np.float32)
    np.testing.assert_array_equal(fc.load_kernel(tmp_path / "program.fcb", "sm_80")(x=x), 2 * x)


def test_of_what_is_not_there(bundle, tmp_path):
    with pytest.raises(fc.CacheError, match="made for sm_80, sm_90a, and not for sm_120"):
        fc.load_kernel(bundle.path, "sm_120")
    both = fc.merge_bundles([bundle], tmp_path / "both.fcb")
    assert fc.load_kernel(both.path).target == (fc._core.gpu_target() or "sm_80")
    with pytest.raises(fc.SpecError, match="there are none"):
        fc.build_bundle([], tmp_path / "none.fcb")
    with pytest.raises(fc.CacheError, match="cannot be written"):
        fc.merge_bundles([bundle], tmp_path / "no folder" / "x.fcb")
