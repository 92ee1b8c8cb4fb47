"""The surface of kernels: calls, outputs, inspection, refusals."""

import numpy as np
import pytest

import flashcore as fc
from reference import assert_close, random


@pytest.fixture(scope="module")
def kernel():
    return fc.jit(fc.AttentionSpec(head_dim=64))


@pytest.fixture
def qkv(rng):
    return [random(rng, (1, 2, 40, 64), "bf16") for _ in range(3)]


def test_out_is_written_and_returned(kernel, qkv):
    out = np.zeros_like(qkv[0])
    assert kernel(*qkv, out=out) is out
    assert_close(out, None, *qkv)


def test_only_the_output_comes_back(kernel, qkv):
    assert isinstance(kernel(*qkv), np.ndarray)
    out, lse = kernel(*qkv, return_lse=True)
    assert lse.shape == (1, 2, 40)
    assert_close(out, lse, *qkv)


def test_one_call(qkv):
    assert_close(fc.attention(*qkv, mask=fc.causal()), None, *qkv, mask="causal(bottom_right)")


def test_inspection(kernel):
    assert 'extern "C" __global__' in kernel.source
    assert "#include" not in kernel.source
    assert kernel.ir().startswith("program attention_forward\n")
    assert kernel.ir("after:simplify") != kernel.ir("built")
    assert kernel.target in fc.targets()
    assert fc.Schedule.from_json(kernel.schedule.to_json()) == kernel.schedule


def test_an_unknown_pass_names_the_known_ones(kernel):
    with pytest.raises(fc.SpecError, match='ir after "layuots"') as caught:
        kernel.ir("after:layuots")
    assert "simplify" in caught.value.fix


def test_compiles_without_a_gpu():
    kernel = fc.jit(fc.AttentionSpec(head_dim=64), target="sm_90")
    assert kernel.cubin[:4] == b"\x7fELF"
    assert ".target sm_90" in kernel.ptx
    assert kernel.resources["registers"] > 32
    assert kernel.resources["spill_store_bytes"] == 0
    again = fc.jit(fc.AttentionSpec(head_dim=64), target="sm_90")
    assert again.from_cache
    assert again.compile_ms == 0


def test_a_schedule_may_be_changed_in_part():
    shipped = fc.jit(fc.AttentionSpec(head_dim=64)).schedule
    changed = fc.jit(fc.AttentionSpec(head_dim=64), schedule={"tiles": {"cols": 32}, "stages": 1})
    assert changed.schedule.tiles == {**shipped.tiles, "cols": 32}
    assert changed.schedule.stages == 1
    assert changed.schedule.warps_m == shipped.warps_m


def test_an_unknown_field_of_a_schedule_is_refused():
    with pytest.raises(fc.ScheduleError, match='the field "stage" of a schedule'):
        fc.jit(fc.AttentionSpec(head_dim=64), schedule={"stage": 1})


def test_a_schedule_that_does_not_fit_says_what_would():
    with pytest.raises(fc.ScheduleError, match="shared memory") as caught:
        fc.jit(fc.AttentionSpec(head_dim=256), target="sm_89", schedule={"stages": 8})
    assert "101,376" in str(caught.value) or "101376" in str(caught.value)


def test_a_spec_from_a_file(tmp_path, qkv):
    path = tmp_path / "spec.json"
    path.write_text(fc.AttentionSpec(head_dim=64, mask=fc.causal()).to_json())
    assert_close(fc.jit(path)(*qkv), None, *qkv, mask="causal(bottom_right)")
    with pytest.raises(fc.SpecError, match="the spec .*missing.json"):
        fc.jit(str(tmp_path / "missing.json"))


def test_unsupported_specs_are_refused_with_every_reason():
    with pytest.raises(fc.SpecError) as caught:
        fc.jit(fc.AttentionSpec(head_dim=600, dtype="f32"))
    assert "head_dim = 600" in str(caught.value)
    assert "dtype = f32" in str(caught.value)


class TestRefusedArrays:
    def test_wrong_dtype(self, kernel, qkv):
        q, k, v = qkv
        with pytest.raises(fc.SpecError, match="q"):
            kernel(q.astype(np.float16), k, v)
        with pytest.raises(fc.SpecError, match="its dtype is complex64"):
            kernel(q.astype(np.complex64), k, v)

    def test_wrong_shape(self, kernel, qkv):
        q, k, v = qkv
        with pytest.raises(fc.SpecError, match="v"):
            kernel(q, k, v[:, :, :5])

    def test_too_many_dimensions(self, kernel, qkv):
        q, k, v = qkv
        with pytest.raises(fc.DeviceError, match="it has 7 dimensions"):
            kernel(q[None, None, None], k, v)

    def test_read_only_output(self, kernel, qkv):
        out = np.zeros_like(qkv[0])
        out.flags.writeable = False
        with pytest.raises(fc.DeviceError, match="array o\n  why: it is read-only"):
            kernel(*qkv, out=out)

    def test_no_array(self, kernel, qkv):
        with pytest.raises(fc.SpecError, match="a list of .*\n.*it has neither __dlpack__ nor"):
            kernel(qkv[0], qkv[1], [1.0], out=qkv[0])


def test_stores_nothing_for_an_empty_batch(kernel, qkv):
    assert kernel(*(x[:0] for x in qkv)).shape == (0, 2, 40, 64)
