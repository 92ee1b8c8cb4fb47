"""Modules: programs that run one after another in one call."""

import numpy as np
import pytest
from sample_programs import ADD_ROWS

import flashcore as fc

SUM_OF_SPLIT = """program sum_of_split
axis split: parallel splits
axis rows: parallel_tiles R
axis cols: tiles N ragged
parameter each: i32 positive
input x: f32 [R, N]
output partial: f32 [splits, R]
{
  %each = parameter each : i32
  %split = index split : i32
  %begin = mul %split, %each : i32
  %end = add %begin, %each : i32
  segment %begin, %end along cols
  %zero = constant 0 : f32[rows]
  %sum = loop cols {
    tile %tile : i32
    carry %before = %zero : f32[rows]
    %x = load x[rows, cols] : f32[rows, cols]
    %own = reduce_sum %x along cols : f32[rows]
    %after = add %before, %own : f32[rows]
    yield %after
  }
  %0 = index split : i32
  store partial[%0, rows], %sum
}
"""
SUM_OF_SUMS = """program sum_of_sums
axis rows: parallel_tiles R
axis split: tiles splits
input partial: f32 [splits, R]
output y: f32 [R]
{
  %zero = constant 0 : f32[rows]
  %sum = loop split {
    tile %tile : i32
    carry %before = %zero : f32[rows]
    %x = load partial[split, rows] : f32[split, rows]
    %own = reduce_sum %x along split : f32[rows]
    %after = add %before, %own : f32[rows]
    yield %after
  }
  store y[rows], %sum
}
"""
NUMBERS = {
    "splits": "max(1, min((N + 63) // 64, 2 * multiprocessors // max(1, (R + 15) // 16)))",
    "each": "((N + splits - 1) // splits + 15) // 16 * 16",
}
SCHEDULES = [
    fc.Schedule(tiles={"rows": 16, "cols": 32}),
    fc.Schedule(tiles={"rows": 16, "split": 16}),
]


def module(numbers=NUMBERS, workspaces=("partial",)):
    programs = [
        fc.Program(text, lambda target, schedule=schedule: schedule)
        for text, schedule in zip((SUM_OF_SPLIT, SUM_OF_SUMS), SCHEDULES, strict=True)
    ]
    return fc.Module("sum_rows", programs, workspaces, numbers)


@pytest.fixture(scope="module")
def kernel():
    return fc.jit(module())


@pytest.mark.parametrize("shape", [(5, 1), (5, 64), (1, 100), (40, 1000)])
def test_one_call_runs_all_kernels(kernel, shape):
    x = np.random.default_rng(0).standard_normal(shape).astype(np.float32)
    np.testing.assert_allclose(kernel(x=x), x.sum(1), atol=1e-4)
    y = np.full(shape[0], np.nan, np.float32)
    assert kernel(x=x, y=y) is None
    np.testing.assert_allclose(y, x.sum(1), atol=1e-4)


def test_nothing_to_do(kernel):
    assert kernel(x=np.zeros((0, 7), np.float32)).shape == (0,)


def test_numbers_are_those_of_a_call(kernel):
    assert kernel.numbers(x=np.zeros((5, 1000), np.float32)) == {"splits": 8, "each": 128}


def test_a_kernel_shows_its_parts(kernel):
    assert kernel.name == "sum_rows"
    assert [part.name for part in kernel.kernels] == ["sum_of_split", "sum_of_sums"]
    assert kernel.kernels[0].schedule == SCHEDULES[0]
    assert "sum_of_sums" in kernel.explain()
    assert repr(kernel) == f"<flashcore.ModuleKernel sum_rows for {kernel.target}>"
    assert repr(kernel.module) == "<flashcore.Module sum_rows: sum_of_split, sum_of_sums>"


def test_text_reads_back():
    made = module()
    read = fc.Module.parse(made.text, lambda target: SCHEDULES)
    assert read.text == made.text
    assert read.workspaces == ("partial",)
    assert read.numbers == NUMBERS
    x = np.ones((3, 200), np.float32)
    np.testing.assert_allclose(fc.jit(read)(x=x), x.sum(1))


def test_schedules_by_the_names_of_programs():
    kernel = fc.jit(module(), schedule={"sum_of_split": {"tiles": {"rows": 32, "cols": 16}}})
    assert kernel.kernels[0].schedule.tiles == {"rows": 32, "cols": 16}
    assert kernel.kernels[1].schedule == SCHEDULES[1]
    with pytest.raises(fc.SpecError, match="by the names of programs: sum_of_split, sum_of_sums"):
        fc.jit(module(), schedule={"sum": {}})


def test_a_workspace_is_no_argument(kernel):
    with pytest.raises(fc.DeviceError, match="it takes no partial"):
        kernel(x=np.zeros((5, 10), np.float32), partial=np.zeros((1, 5), np.float32))


def test_arguments_are_checked_for_all_kernels_at_once(kernel):
    y = np.full(4, np.nan, np.float32)
    with pytest.raises(fc.SpecError, match="sum_rows"):
        kernel(x=np.zeros((5, 10), np.float32), y=y)
    assert np.isnan(y).all()
    with pytest.raises(fc.DeviceError, match="sum_rows, it needs x|needs x"):
        kernel()


def test_a_number_that_cannot_be_computed():
    kernel = fc.jit(module({"splits": "N // (R - R)", "each": "16"}))
    with pytest.raises(fc.SpecError, match="it divides by zero"):
        kernel(x=np.zeros((5, 10), np.float32))


def test_modules_that_do_not_fit():
    with pytest.raises(fc.SpecError, match="the extent splits, which no argument has"):
        module({"each": "16"})
    with pytest.raises(fc.SpecError, match="no kernel has the workspace w"):
        module(workspaces=("partial", "w"))
    with pytest.raises(fc.SpecError, match="it is none"):
        fc.Module("m", ["no program"])
    with pytest.raises(fc.SpecError, match="one kernel"):
        fc.jit(module(), probe="x")


DOUBLE = """program double
axis cols: parallel_tiles N
input sums: f32 [N]
output twice: f32 [N]
{
  %sums = load sums[cols] : f32[cols]
  %twice = add %sums, %sums : f32[cols]
  store twice[cols], %twice
}
"""


@pytest.mark.parametrize("target", ["sm_80", "sm_90a"])
def test_outputs_that_a_module_adds_to(target):
    schedules = {
        "add_rows": fc.Schedule(tiles={"rows": 16, "cols": 32}, warps_m=1),
        "double": fc.Schedule(tiles={"cols": 32}, warps_m=1),
    }
    module = fc.Module("add_and_double", [fc.Program(ADD_ROWS), fc.Program(DOUBLE)])
    kernel = fc.jit(module, target, schedule=schedules)
    x = np.random.default_rng(0).standard_normal((50, 40)).astype(np.float32)
    expected = x.sum(axis=0)
    sums, turns, twice = kernel(x=x)  # those that the call makes start as zeros
    np.testing.assert_allclose(sums, expected, atol=1e-5)
    np.testing.assert_allclose(twice, 2 * expected, atol=1e-5)
    twice = kernel(x=x, sums=sums, turns=np.zeros_like(turns))  # to what is given it adds
    np.testing.assert_allclose(sums, 2 * expected, atol=1e-5)
    np.testing.assert_allclose(twice, 4 * expected, atol=1e-5)


def test_libraries_offer_modules(tmp_path):
    source = tmp_path / "sums.cpp"
    source.write_text(
        '#include "dsl/export.h"\n'
        "namespace fc = flashcore;\n"
        "fc::ExportedModule twice(const fc::Arguments& arguments) {\n"
        '  fc::ModuleBuilder m("twice");\n'
        "  for (const bool second : {false, true}) {\n"
        '    fc::ProgramBuilder b(second ? "second" : "first");\n'
        '    const fc::Axis rows = b.parallel_tiles("rows", fc::Extent("n"));\n'
        '    const auto x = b.input(second ? "half" : "x", fc::DType::f32, {fc::Extent("n")});\n'
        '    const auto y = b.output(second ? "y" : "half", fc::DType::f32, {fc::Extent("n")});\n'
        '    store(y(rows), load(x(rows)) * float(arguments.integer("factor")));\n'
        "    m.kernel(b.finish());\n"
        "  }\n"
        '  m.workspace("half");\n'
        "  return {m.finish(), [](const fc::Target&) {\n"
        '    return std::vector<fc::Schedule>(2, {.tiles = {{"rows", 16}}}); }};\n'
        "}\n"
        "FLASHCORE_EXPORT_MODULE(twice)\n"
    )
    kernel = fc.jit(fc.load(source).twice(factor=3))
    np.testing.assert_array_equal(kernel(x=np.ones(5, np.float32)), np.full(5, 9, np.float32))
