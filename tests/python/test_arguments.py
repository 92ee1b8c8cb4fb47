"""What is not an argument: every entry point says what, why, and what would work."""

import dataclasses
from pathlib import Path

import numpy as np
import pytest

import flashcore as fc
from flashcore.arguments import described

SPEC = fc.AttentionSpec(head_dim=64)
TEXT = """program scale
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
PROGRAM = fc.Program(TEXT)


class BlockMask:
    """Stands for what has a meaning elsewhere."""


def said(call, *arguments, **named):
    with pytest.raises(fc.Error) as caught:
        call(*arguments, **named)
    return type(caught.value).__name__, str(caught.value)


def spec(**fields):
    return lambda: fc.AttentionSpec(**({"head_dim": 64} | fields))


def changed(**fields):
    return lambda: fc.jit(SPEC, target="sm_80", schedule=fields)


CASES = {
    "a target that is a number": (
        lambda: fc.jit(SPEC, target=90),
        'ScheduleError: target = 90\n  why: a target is given by its name\n  try: target="sm_90"',
    ),
    "a target without its prefix": (
        lambda: fc.jit(SPEC, target="90"),
        'ScheduleError: target "90"\n'
        "  why: FlashCore does not generate for it\n"
        "  try: one of sm_75, sm_80, sm_86, sm_87, sm_89, sm_90, sm_90a, sm_100, sm_103, sm_110, "
        "sm_120, sm_121",
    ),
    "a target that is a list": (
        lambda: fc.jit(SPEC, target=["sm_80", "sm_90"]),
        "ScheduleError: target = a list of 2\n"
        "  why: a target is given by its name\n"
        '  try: target="sm_90"; flashcore.targets() has all',
    ),
    "nothing to compile": (
        lambda: fc.jit(None),
        "SpecError: what jit is given = None\n"
        "  why: it is no spec, no program and no module\n"
        "  try: flashcore.AttentionSpec(head_dim=64), a flashcore.Program, or the file of a spec",
    ),
    "a target first": (
        lambda: fc.jit("sm_90"),
        "SpecError: the spec 'sm_90'\n"
        "  why: No such file or directory: sm_90\n"
        '  try: jit(spec, target="sm_90"): what to compile comes first',
    ),
    "a schedule that is a text": (
        lambda: fc.jit(SPEC, schedule="fast"),
        "ScheduleError: schedule = 'fast'\n"
        "  why: it is no schedule and names no fields\n"
        '  try: the fields to change, as {"stages": 3}, or a flashcore.Schedule',
    ),
    "tiles that are a number": (
        changed(tiles=64),
        "ScheduleError: tiles of a schedule = 64\n"
        "  why: it has no sizes by axis\n"
        '  try: tiles={"rows": 128, "cols": 64}',
    ),
    "a tile that is no number": (
        changed(tiles={"rows": "64"}),
        "ScheduleError: the tile along rows = '64'\n"
        "  why: it is not a whole number\n"
        "  try: a number of elements, as 64",
    ),
    "stages beyond what fits": (
        changed(stages=2**32 + 2),
        "ScheduleError: stages of a schedule = 4294967298\n"
        "  why: it is beyond 2147483647, the largest number that kernels count with\n"
        "  try: a whole number; 2 unless given",
    ),
    "a copy instruction that is misspelt": (
        changed(copy="cp.async"),
        "ScheduleError: copy of a schedule = 'cp.async'\n"
        "  why: there is no such choice\n"
        '  try: "cp_async" is close; one of "cp_async", "vector", "tma"',
    ),
    "probes that are no names": (
        lambda: fc.jit(SPEC, probe=3),
        "SpecError: probe = 3\n"
        "  why: values of a program are called by name\n"
        '  try: a name as in probe="scores", or a list of names',
    ),
    "a head_dim that is a text": (
        spec(head_dim="64"),
        "SpecError: head_dim = '64'\n"
        "  why: it is not a whole number\n"
        "  try: a number of elements, as 64",
    ),
    "a layout that is misspelt": (
        spec(layout="bhds"),
        "SpecError: layout = 'bhds'\n"
        "  why: there is no such choice\n"
        '  try: "bshd" is close; one of "bhsd", "bshd", "thd"',
    ),
    "a dtype that is misspelt": (
        spec(dtype="float61"),
        "SpecError: dtype = 'float61'\n"
        "  why: it is no element type\n"
        '  try: "float16" is close; "bf16" or "f16", or such a dtype of NumPy, ml_dtypes, torch or '
        "JAX",
    ),
    "a field that is misspelt": (
        lambda: fc.AttentionSpec(headdim=64),
        'SpecError: the field "headdim" of an attention spec\n'
        "  why: there is no such field\n"
        '  try: "head_dim" is close; the fields are head_dim, head_dim_v, heads, kv_heads, dtype, '
        "products, mask, score, sink, layout, lse, q_lens, kv_lens, page_size, large_scores, "
        "deterministic, batch, q_len, kv_len",
    ),
    "no head_dim": (
        fc.AttentionSpec,
        "SpecError: an attention spec without head_dim\n"
        "  why: head_dim has no default\n"
        "  try: AttentionSpec(head_dim=...)",
    ),
    "lengths in a spec": (
        spec(kv_lens=np.array([3, 4])),
        "SpecError: kv_lens = an array of int64 [2]\n"
        "  why: a spec says only that a call gives lengths\n"
        "  try: kv_lens=True here, and kernel(..., kv_lens=array)",
    ),
    "something else as a mask": (
        spec(mask={}),
        "SpecError: mask = an empty dict\n"
        "  why: it is no Mask and no function\n"
        "  try: flashcore.causal(), or a function (b, h, q_idx, kv_idx)",
    ),
    "something else as a score": (
        spec(score=BlockMask()),
        "SpecError: score = a value of type BlockMask\n"
        "  why: it is no Score and no function\n"
        "  try: flashcore.softcap(30), or a function (score, b, h, q_idx, kv_idx)",
    ),
    "a window that is a text": (
        lambda: fc.sliding_window("3"),
        "SpecError: left of a sliding window = '3'\n"
        "  why: it is not a whole number\n"
        "  try: 0 or more; None or -1: any distance",
    ),
    "a cap that is not a number": (
        lambda: fc.softcap(float("nan")),
        "SpecError: the cap = nan\n"
        "  why: it is not a finite number\n"
        "  try: a number, as softcap(30)",
    ),
    "a program to tune": (
        lambda: fc.autotune(PROGRAM),
        "SpecError: what autotune is given = a value of type Program\n"
        "  why: a search is for the schedules of attention, that of an AttentionSpec\n"
        "  try: autotune(spec), or jit(program, schedule=...) for schedules of a program of your "
        "own",
    ),
    "a program that is no text": (
        lambda: fc.Program(Path("x.fc")),
        "SpecError: the program = a value of type PosixPath\n"
        "  why: it is no text\n"
        "  try: its text, or flashcore.load(library) for programs in C++",
    ),
    "a hook that cannot be called": (
        lambda: fc.set_log_hook("info"),
        "SpecError: the hook of the log = 'info'\n"
        "  why: it cannot be called\n"
        "  try: a function, as set_log_hook(lambda level, text: print(level, text)), or None",
    ),
    "a library that is a number": (
        lambda: fc.load(3),
        "SpecError: the library = 3\n"
        "  why: it is not the path of a file\n"
        "  try: programs in C++, as ./mine.cpp, or a shared library of them, as ./libmine.so",
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_words(case):
    call, expected = CASES[case]
    assert ": ".join(said(call)) == expected


def test_a_library_that_cannot_be_loaded_says_why(tmp_path):
    text, built = (tmp_path / name for name in ("notes.so", "libmine.so"))
    text.write_text("no library")
    built.write_bytes(b"\x7fELF")

    def why_and_fix(path):
        with pytest.raises(fc.SpecError) as caught:
            fc.load(path)
        assert caught.value.what == f"the library {path}"
        return caught.value.why, caught.value.fix

    assert why_and_fix(tmp_path) == ("it is a directory", "a file in it, as mine.cpp or libmine.so")
    why, fix = why_and_fix(text)
    assert why == "it is a file, but no shared library"
    why, fix = why_and_fix(tmp_path / "libmin.so")
    assert why == "there is no such file"
    assert fix == '"libmine.so" is close; the path of programs in C++, or of their library'
    why, fix = why_and_fix(built)
    assert "file too short" in why


ODD = [
    90, "90", b"x", None, [], {}, (), 3.5, float("nan"), 2**40, -1, True, np.zeros(3), object(),
    BlockMask(), int, len, lambda: 1, "naïve", SPEC, PROGRAM,
]  # fmt: skip
SPEC_FIELDS = [field.name for field in dataclasses.fields(fc.AttentionSpec)]
SCHEDULE_FIELDS = [field.name for field in dataclasses.fields(fc.Schedule)]


def entry_points(value):
    yield "jit", lambda: fc.jit(value)
    yield "target", lambda: fc.jit(SPEC, target=value)
    yield "schedule", lambda: fc.jit(SPEC, schedule=value)
    yield "the schedule of a program", lambda: fc.jit(PROGRAM, schedule=value)
    yield "probe", lambda: fc.jit(SPEC, probe=value)
    yield "load", lambda: fc.load(value)
    yield "Program", lambda: fc.Program(value)
    yield "with_probes", lambda: PROGRAM.with_probes(value)
    yield "schedule_for", lambda: PROGRAM.schedule_for(value)
    yield "from_json", lambda: fc.AttentionSpec.from_json(value)
    yield "Schedule.from_json", lambda: fc.Schedule.from_json(value)
    yield "why_not", lambda: SPEC.why_not(value)
    yield "why_not of a schedule", lambda: SPEC.why_not("sm_80", value)
    yield "autotune", lambda: fc.autotune(value)
    yield "the target of autotune", lambda: fc.autotune(SPEC, target=value, shapes=[])
    yield "the shapes of autotune", lambda: fc.autotune(SPEC, shapes=value)
    for name in SPEC_FIELDS:
        yield name, lambda name=name: spec(**{name: value})().why_not("sm_80")
    for name in SCHEDULE_FIELDS:
        yield f"{name} of a schedule", lambda name=name: SPEC.why_not("sm_80", {name: value})
    for name in ("alibi", "bias", "causal", "chunked", "dense_mask", "dilated", "documents"):
        yield name, lambda name=name: getattr(fc, name)(value)
    for name in ("prefix", "relative_bias", "sinks", "sliding_window", "softcap"):
        yield name, lambda name=name: getattr(fc, name)(value)


def refusal_of(call):
    """What an error says; None if there is none. Bugs, and errors of others, pass through."""
    try:
        call()
    except fc.InternalError:
        raise
    except fc.Error as error:
        return error.what, error.why, str(error)
    return None


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("value", ODD, ids=described)
def test_odd_values_are_taken_or_refused_in_words(value):
    for name, call in entry_points(value):
        words = refusal_of(call)
        if words is not None:
            what, why, text = words
            assert what, (name, text)
            assert why, (name, text)
            assert "incompatible function arguments" not in text, name
            assert "object at 0x" not in text, name
