"""Specs, schedules, and kernels made of them."""

from __future__ import annotations

import dataclasses
import json
from typing import Any

import numpy as np
import oracle
from oracle import Meaningless, number
from target import KNOWN, MASKS, Arguments, D, Rng, Target, pick

import flashcore as fc


def _draw_spec(rng: Rng) -> Arguments:
    return {"head_dim": D, "head_dim_v": None, "heads": pick(rng, [None, 4]), "kv_heads": None,
            "dtype": "f16", "mask": fc.causal(), "score": None, "sink": None, "layout": "bhsd",
            "lse": False, "q_lens": False, "kv_lens": False, "batch": None, "q_len": None,
            "kv_len": None}  # fmt: skip


def _call_spec(**args: Any) -> Any:
    """A spec is judged where it is used."""
    spec = fc.AttentionSpec(**args)
    reasons = spec.why_not("sm_80")
    if not isinstance(reasons, list) or not all(isinstance(reason, str) for reason in reasons):
        return f"why_not gives {reasons!r}"
    again = fc.AttentionSpec.from_json(spec.to_json())
    return spec, fc.jit(spec), again


def _check_spec(args: Arguments, result: Any) -> str | None:
    if isinstance(result, str):
        return result
    spec, _, again = result
    for name in ("head_dim", "head_dim_v", "heads", "kv_heads", "batch", "q_len", "kv_len"):
        given = args[name]
        if given is None:
            continue
        value = number(given, name)
        if value != int(value) or not 0 <= value < 2**31 or isinstance(given, bool | np.bool_):
            raise Meaningless(f"{name} = {given!r}")
        if (getattr(again, name) or 0) != value:
            return f"{name} = {given!r} came back as {getattr(again, name)!r}"
    for name in ("lse", "q_lens", "kv_lens"):
        if not isinstance(args[name], bool | np.bool_ | int):
            raise Meaningless(f"{name} = {args[name]!r}")
    if args["layout"] not in oracle.LAYOUTS:
        raise Meaningless("layout")
    oracle.mask_of(args["mask"], KNOWN | {id(args["mask"]): MASKS[1][1]}
                   if isinstance(args["mask"], fc.Mask) else KNOWN)  # fmt: skip
    if args["dtype"] is None or spec.dtype not in ("f16", "bf16", "f32"):
        raise Meaningless("dtype")
    return None


def _draw_schedule(rng: Rng) -> Arguments:
    fields = dataclasses.asdict(fc.Schedule(tiles={"rows": 64, "cols": 64}))
    chosen = rng.choice(list(fields), 3, replace=False)
    return {"tiles": fields["tiles"]} | {name: fields[name] for name in chosen}


def _call_schedule(**args: Any) -> Any:
    schedule = fc.Schedule(**args)
    return fc.jit(fc.AttentionSpec(head_dim=D, dtype="f16"), schedule=schedule), schedule


def _check_schedule(args: Arguments, result: Any) -> str | None:
    kernel, schedule = result
    made = json.loads(kernel.schedule.to_json())
    for name, value in args.items():
        if name == "tiles":
            if not isinstance(value, dict):
                raise Meaningless("tiles")
            continue
        default = dataclasses.asdict(fc.Schedule())[name]
        if isinstance(default, bool):
            if value not in (True, False):
                raise Meaningless(f"{name} = {value!r}")
        elif isinstance(default, int) and (
            isinstance(value, bool | np.bool_) or number(value, name) != int(value)
        ):
            raise Meaningless(f"{name} = {value!r}")
        if made[name] != value:
            return f"{name} = {value!r} became {made[name]!r}"
    return None


def _draw_jit(rng: Rng) -> Arguments:
    return {"what": fc.AttentionSpec(head_dim=D, dtype="f16"), "target": None,
            "schedule": pick(rng, [None, {"tiles": {"rows": 64}}]), "probe": ()}  # fmt: skip


def _check_jit(args: Arguments, kernel: Any) -> str | None:
    if not isinstance(kernel, fc.Kernel):
        return f"a {type(kernel).__name__}"
    if not isinstance(args["what"], fc.AttentionSpec | fc.Program):
        raise Meaningless("what")
    if args["target"] is not None and args["target"] != kernel.target:
        raise Meaningless("target")
    if args["schedule"] is not None and not isinstance(args["schedule"], dict | fc.Schedule):
        raise Meaningless("schedule")
    if not isinstance(args["probe"], str | tuple | list | set):
        raise Meaningless("probe")
    return None


TARGETS = [
    Target("AttentionSpec", _draw_spec, _call_spec, _check_spec, weight=6),
    Target("Schedule", _draw_schedule, _call_schedule, _check_schedule, weight=4),
    Target("jit", _draw_jit, fc.jit, _check_jit, weight=3),
]
