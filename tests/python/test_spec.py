import dataclasses
import json
import re
import typing

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import flashcore as fc
from flashcore import _core

specs = st.builds(
    fc.AttentionSpec,
    head_dim=st.integers(-8, 512),
    head_dim_v=st.none() | st.integers(1, 512),
    heads=st.none() | st.integers(1, 64),
    kv_heads=st.none() | st.integers(1, 64),
    dtype=st.sampled_from(["f16", "bf16", "f32"]),
    mask=st.sampled_from([fc.full(), fc.causal(), fc.causal(align="top_left")]),
    layout=st.sampled_from(["bhsd", "bshd"]),
    lse=st.booleans(),
    batch=st.none() | st.integers(-1, 8),
    q_len=st.none() | st.integers(-1, 8192),
    kv_len=st.none() | st.integers(-1, 8192),
)

schedules = st.builds(
    fc.Schedule,
    tiles=st.dictionaries(st.sampled_from(["rows", "cols"]), st.integers(1, 256)),
    warps_m=st.integers(1, 8),
    stages=st.integers(1, 4),
    keep_operands=st.booleans(),
    grid_order=st.sampled_from(["tiles_first", "tiles_last"]),
    blocks_per_processor=st.integers(1, 16),
)


def a_little_of(kind):
    """Values of a field: those that it may have, and some that no schedule can."""
    if typing.get_origin(kind) is typing.Literal:
        return st.sampled_from(typing.get_args(kind))
    if kind is bool:
        return st.booleans()
    return st.sampled_from([-(2**31), -8, -1, 0, 1, 2, 3, 4, 8, 12, 24, 100, 160, 240, 2**31 - 1])


FIELDS = {
    name: kind for name, kind in typing.get_type_hints(fc.Schedule).items() if name != "tiles"
}

FAMILIES = [
    {},
    {"instruction": "mma_m16n8k16", "copy": "cp_async", "softmax": "registers"},
    {"instruction": "wgmma", "copy": "tma", "softmax": "registers"},
]

any_schedules = st.builds(
    lambda rows, family, fields: fc.Schedule(
        **{"tiles": {"rows": rows, "cols": 64}, "warps_m": rows // 16} | family | fields
    ),
    st.sampled_from([16, 32, 64, 128]),
    st.sampled_from(FAMILIES),
    st.lists(st.sampled_from(sorted(FIELDS)), max_size=4, unique=True).flatmap(
        lambda names: st.fixed_dictionaries({name: a_little_of(FIELDS[name]) for name in names})
    ),
)


@given(specs)
def test_a_spec_survives_json(spec):
    assert fc.AttentionSpec.from_json(spec.to_json()) == spec
    assert hash(fc.AttentionSpec.from_json(spec.to_json())) == hash(spec)


@given(schedules)
def test_a_schedule_survives_json(schedule):
    assert fc.Schedule.from_json(schedule.to_json()) == schedule


def test_python_and_cpp_have_the_same_fields_and_defaults():
    assert json.loads(_core.normal_schedule("{}")) == json.loads(fc.Schedule().to_json())
    assert list(json.loads(_core.normal_spec("{}"))) == list(
        json.loads(fc.AttentionSpec(head_dim=8).to_json())
    )


@given(specs, st.sampled_from(fc.targets()))
def test_why_not_agrees_with_jit(spec, target):
    def can_make(schedule):
        try:
            return fc.AttentionKernel(spec, fc.Schedule.from_json(schedule), target).spec == spec
        except (fc.SpecError, fc.ScheduleError):
            return False

    in_turn = _core.attention_schedules(spec.to_json(), target)
    assert any(can_make(schedule) for schedule in in_turn) == (not spec.why_not(target))


@given(any_schedules, st.sampled_from(fc.targets()))
def test_any_schedule_is_a_kernel_or_an_error(schedule, target):
    spec = fc.AttentionSpec(head_dim=64, dtype="f16", mask=fc.causal())
    reasons = spec.why_not(target, schedule)  # also what would spill, which only a compiler refuses
    try:
        assert "__global__" in fc.AttentionKernel(spec, schedule, target).source
    except fc.ScheduleError:
        assert reasons


@pytest.mark.parametrize(
    ("dtype", "name"),
    [("bfloat16", "bf16"), (np.float16, "f16"), (np.dtype("float16"), "f16"), ("half", "f16")],
)
def test_dtypes_of_frameworks_name_themselves(dtype, name):
    spec = fc.AttentionSpec(head_dim=64, dtype=dtype)
    assert spec.dtype == name
    assert spec.why_not("sm_80") == []


def test_why_not_gives_every_reason_with_its_numbers():
    spec = fc.AttentionSpec(head_dim=600, head_dim_v=-1, heads=6, kv_heads=4, dtype="f32")
    assert spec.why_not("sm_80") == [
        "head_dim = 600: must be at most 576; there is no schedule for larger ones",
        "head_dim_v = -1: must be at least 1; the last dimension of the arrays",
        "products = full with dtype = f32 and head_dim = 600: every f32 is split in three parts, "
        "for which there is room up to 256; products = tf32",
        "heads = 6 is not a multiple of kv_heads = 4: every key head serves the same number of "
        "query heads; a number of key heads that divides 6",
    ]


def test_why_not_takes_schedules():
    spec = fc.AttentionSpec(head_dim=128, heads=3, kv_heads=2)
    reasons = spec.why_not("sm_89", {"tiles": {"rows": 80, "cols": 128}, "stages": 3})
    assert [re.sub("\n  at: .*", "", reason) for reason in reasons] == [
        "heads = 3 is not a multiple of kv_heads = 2: every key head serves the same number of "
        "query heads; a number of key heads that divides 3",
        "a tile of 80 along rows\n"
        "  why: the rows or columns of a warp in a product are a multiple of 16, so with "
        "warps_m = 4 the tile must be a multiple of 64\n"
        "  try: a tile of 128, or fewer warps",
        "attention_forward needs 229376 bytes of shared memory a block "
        "(taking a tile of 128 along rows)\n"
        "  why: sm_89 allows 101376\n"
        "  try: stages = 1, or a tile of 32 along cols",
    ]
    fine = fc.AttentionSpec(head_dim=64)
    assert fine.why_not("sm_90", fc.Schedule(tiles={"rows": 64, "cols": 64})) == []
    (reason,) = fine.why_not("sm_90", {"colour": "red"})
    assert reason.startswith(
        'the field "colour" of a schedule\n  why: there is no such field\n  try: the fields are'
    )


def test_why_not_knows_the_targets():
    (reason,) = fc.AttentionSpec(head_dim=64).why_not("sm_20")
    assert "sm_20" in reason
    assert "sm_80" in reason


def test_reading_names_every_wrong_field():
    with pytest.raises(fc.SpecError) as caught:
        fc.AttentionSpec.from_json('{"head_dim": "big", "haeds": 3}')
    assert caught.value.what == "cannot read the attention spec"
    assert caught.value.why == "head_dim: expected a whole number; haeds: no such field"
    assert "head_dim_v" in caught.value.fix


def test_specs_are_values():
    spec = fc.AttentionSpec(head_dim=64)
    assert dataclasses.replace(spec, head_dim=128).head_dim == 128
    with pytest.raises(dataclasses.FrozenInstanceError):
        spec.head_dim = 3


def test_no_mask_is_the_full_one():
    assert fc.AttentionSpec(head_dim=64, mask=None) == fc.AttentionSpec(head_dim=64)


def test_an_unknown_alignment_is_refused():
    with pytest.raises(fc.SpecError, match="align of a causal mask = 'middle'"):
        fc.causal(align="middle")
