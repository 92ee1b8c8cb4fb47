"""Programs that a C++ library declares, and programs as text."""

from pathlib import Path

import ml_dtypes
import numpy as np
import pytest
from sample_programs import ADD_ROWS

import flashcore as fc

# The build tree: <build>/python/flashcore/__init__.py beside <build>/examples/cpp.
LIBRARY = Path(fc.__file__).parents[2] / "examples" / "cpp" / "libmy_kernels.so"
pytestmark = pytest.mark.skipif(not LIBRARY.exists(), reason="the C++ examples are not built")


@pytest.fixture(scope="module")
def library():
    return fc.load(LIBRARY)


def squared_relu(q, k, v, scale):
    q, k, v = (x.astype(np.float64) for x in (q, k, v))
    scores = q @ k.swapaxes(-1, -2) * scale
    weights = np.maximum(np.where(np.tril(np.ones(scores.shape[-2:], bool)), scores, 0), 0) ** 2
    return weights @ v / k.shape[2]


def test_a_program_of_a_library_runs(library, rng):
    kernel = fc.jit(library.squared_relu_attention(head_dim=32))
    q, k, v = (rng.standard_normal((2, 1, 70, 32)).astype(ml_dtypes.bfloat16) for _ in range(3))
    out = kernel(q=q, k=k, v=v, scale=0.2)
    assert out.shape == q.shape
    assert out.dtype == q.dtype
    expected = squared_relu(q, k, v, 0.2)
    np.testing.assert_allclose(out.astype(np.float64), expected, atol=0.02 * np.abs(expected).max())


def test_arguments_are_checked_by_the_library(library):
    with pytest.raises(fc.SpecError, match="is not one that the program takes: dtype, head_dim"):
        library.squared_relu_attention(head_din=32)
    with pytest.raises(fc.SpecError, match='"wide" is not a whole number'):
        library.squared_relu_attention(head_dim="wide")


def test_errors_name_the_line_of_the_author(library):
    with pytest.raises(fc.SpecError) as caught:
        library.squared_relu_attention(head_dim=0)
    assert caught.value.file.endswith("my_kernels.cpp")
    assert caught.value.line > 0


def test_errors_after_the_export_name_the_line_of_the_author(library):
    program = library.squared_relu_attention(head_dim=32)
    tiles = {"rows": 64, "cols": 64}
    with pytest.raises(fc.ScheduleError) as caught:
        fc.jit(program, "sm_80", fc.Schedule(tiles=tiles, warps_m=8))
    assert caught.value.file.endswith("my_kernels.cpp")
    source = Path(__file__).parents[2] / "examples" / "cpp" / "my_kernels.cpp"
    assert "dot(" in source.read_text().splitlines()[caught.value.line - 1]


def test_unknown_programs_and_libraries(library, tmp_path):
    with pytest.raises(AttributeError, match="offers no program other"):
        library.other()
    with pytest.raises(fc.SpecError, match="there is no such file"):
        fc.load(tmp_path / "missing.so")


def test_calls_are_checked_by_name(library, rng):
    kernel = fc.jit(library.squared_relu_attention(head_dim=32))
    q = rng.standard_normal((1, 1, 8, 32)).astype(ml_dtypes.bfloat16)
    with pytest.raises(fc.DeviceError, match="it needs v") as caught:
        kernel(q=q, k=q, scale=1.0)
    assert "q: bf16[B, H, Sq, 32]" in caught.value.fix
    with pytest.raises(fc.DeviceError, match="it takes no w"):
        kernel(q=q, k=q, v=q, w=q, scale=1.0)


def test_text_needs_a_schedule(library):
    text = library.squared_relu_attention(head_dim=32).text
    with pytest.raises(fc.ScheduleError, match="squared_relu_attention has no schedule") as caught:
        fc.jit(fc.Program(text))
    assert caught.value.fix.endswith("an entry for each of rows, cols")
    kernel = fc.jit(fc.Program(text), schedule=fc.Schedule(tiles={"rows": 64, "cols": 64}))
    assert kernel.name == "squared_relu_attention"


TANH_OF_HIDDEN = """
program tanh_of_hidden
axis rows: parallel_tiles R
axis cols: whole 32
input x: f32 [R, 32]
output y: f32 [R, 32]
{
  %x = load x[rows, cols] : f32[rows, cols]
  %col = index cols : i32[cols]
  %last = constant 20 : i32
  %seen = lt %col, %last : i1[cols]
  %hidden = constant -inf : f32
  %kept = where %seen, %x, %hidden : f32[rows, cols]
  %y = tanh %kept : f32[rows, cols]
  store y[rows, cols], %y
}
"""


def test_the_tanh_of_what_is_hidden_is_minus_one():
    x = np.random.default_rng(3).uniform(-0.2, 0.2, (40, 32)).astype(np.float32)
    kernel = fc.jit(fc.Program(TANH_OF_HIDDEN), schedule=fc.Schedule(tiles={"rows": 32}))
    y = kernel(x=x)
    np.testing.assert_allclose(y[:, :20], np.tanh(x[:, :20]), rtol=0, atol=3e-7)
    assert (y[:, 20:] == -1).all()


NAN_OF_NEGATIVE = """
program nan_of_negative
axis rows: parallel_tiles R
axis cols: whole 32
input x: f32 [R, 32]
output y: f32 [R, 32]
{
  %x = load x[rows, cols] : f32[rows, cols]
  %zero = constant 0 : f32
  %negative = lt %x, %zero : i1[rows, cols]
  %nan = constant nan : f32
  %y = where %negative, %nan, %x : f32[rows, cols]
  store y[rows, cols], %y
}
"""


@pytest.mark.parametrize("target", ["sm_80", "sm_90a"])
def test_a_program_may_write_nan(target):
    x = np.random.default_rng(3).uniform(-1, 1, (40, 32)).astype(np.float32)
    kernel = fc.jit(fc.Program(NAN_OF_NEGATIVE), target, fc.Schedule(tiles={"rows": 32}))
    np.testing.assert_array_equal(kernel(x=x), np.where(x < 0, np.nan, x))
    assert len(kernel.cubin) > 1000


def test_what_a_program_adds_to_starts_as_zeros() -> None:
    schedule = fc.Schedule(tiles={"rows": 16, "cols": 32}, warps_m=1)
    kernel = fc.jit(fc.Program(ADD_ROWS), "sm_80", schedule)
    x = np.random.default_rng(0).standard_normal((50, 40)).astype(np.float32)
    sums, turns = kernel(x=x)
    np.testing.assert_allclose(sums, x.sum(axis=0), atol=1e-5)
    assert turns.max() == 64  # two tiles of columns
    kernel(x=x, sums=sums, turns=np.zeros(50, np.int32))
    np.testing.assert_allclose(sums, 2 * x.sum(axis=0), atol=1e-5)
