"""The public functions, right arguments for each, and what their results have to be.

A target draws right arguments, of which the runner spoils some, and says what is wrong with the
result of a call that was not refused: None if nothing is.
"""

from __future__ import annotations

import dataclasses
import json
import math
import os
from collections.abc import Callable
from typing import Any

import numpy as np
import oracle
from oracle import Meaningless, number, whole
from values import BF16

import flashcore as fc

B, H, Q, K, D = 2, 2, 5, 7, 16
Rng = np.random.Generator
Arguments = dict[str, Any]


@dataclasses.dataclass
class Target:
    name: str
    draw: Callable[[Rng], Arguments]
    """Right arguments; those that start with _ are not spoiled and not passed."""
    call: Callable[..., Any]
    check: Callable[[Arguments, Any], str | None]
    """May raise Meaningless: then these arguments had to be refused."""
    weight: int = 1


def _floats(rng: Rng, *shape: int, dtype: Any = np.float16) -> np.ndarray:
    return rng.standard_normal(shape).astype(dtype)


_IDS = np.array([0, 0, 0, 1, 1, 1, 1], np.int32)
_SLOPES = np.array([0.5, 0.25], np.float32)
_BIAS = np.linspace(-1, 1, Q * K, dtype=np.float32).reshape(Q, K)
_VISIBLE = (np.arange(Q * K).reshape(Q, K) % 3 > 0) | (np.arange(K) == 0)
_LOGITS = np.array([0.5, -1.0], np.float32)


def _documents(b: Any, h: Any, q_idx: Any, kv_idx: Any) -> Any:
    return _IDS[q_idx] == _IDS[kv_idx]


def _distance(score: Any, b: Any, h: Any, q_idx: Any, kv_idx: Any) -> Any:
    return score - 0.25 * abs(q_idx - kv_idx)


def _shift(i: Any, j: Any) -> int:
    return j.shape[-1] - i.shape[-2]


# Masks, scores and sinks of FlashCore, and what they mean.
_MASKS: list[tuple[Any, Callable[..., Any]]] = [
    (fc.full(), lambda *_: np.True_),
    (fc.causal(), lambda b, h, i, j: j <= i + _shift(i, j)),
    (fc.causal("top_left"), lambda b, h, i, j: j <= i),
]
_SCORES: list[tuple[Any, Callable[..., Any]]] = [
    (fc.softcap(2.0), lambda s, *_: 2 * np.tanh(s / 2)),
    (fc.alibi(_SLOPES), lambda s, b, h, i, j: s - _SLOPES[h] * (i + _shift(i, j) - j)),
]
_SINKS = [(fc.sinks(_LOGITS), lambda b, h, i: _LOGITS[h] + 0 * i)]
_ONLY_BATCHES = [
    (fc.dense_mask(_VISIBLE), lambda b, h, i, j: _VISIBLE),
    (fc.bias(_BIAS), lambda s, *_: s + _BIAS),
]
KNOWN: oracle.Known = {
    id(made): meant for made, meant in [*_MASKS, *_SCORES, *_SINKS, *_ONLY_BATCHES]
}


def _pick(rng: Rng, values: list[Any]) -> Any:
    return values[rng.integers(len(values))]


def _expressions(rng: Rng, batches: bool) -> Arguments:
    given: Arguments = {}
    masks: list[Any] = [made for made, _ in _MASKS]
    masks += [_documents, _ONLY_BATCHES[0][0]] if batches else []
    scores: list[Any] = [made for made, _ in _SCORES] + [_distance]
    scores += [_ONLY_BATCHES[1][0]] if batches else []
    kind = rng.integers(4)
    if kind in (1, 3):
        given["mask"] = _pick(rng, masks)
    if kind in (2, 3):
        given["score"] = _pick(rng, scores)
    if kind == 3 and rng.integers(2):
        given["sink"] = _SINKS[0][0]
    return given


def _qkv(rng: Rng, layout: str = "bhsd", kv_heads: int = H) -> Arguments:
    dtype = np.dtype(np.float16) if rng.integers(3) else BF16
    shapes = {"q": (B, H, Q, D), "k": (B, kv_heads, K, D), "v": (B, kv_heads, K, D)}
    made = {name: _floats(rng, *shape, dtype=dtype) for name, shape in shapes.items()}
    if layout == "bshd":
        made = {name: np.ascontiguousarray(x.swapaxes(1, 2)) for name, x in made.items()}
    return made


def _usual(rng: Rng) -> Arguments:
    """The optional arguments of a call that most calls leave out; all of them can be spoiled."""
    names = ["scale", "return_lse", "stream", "mask", "score", "sink", "out", "max_q_len"]
    names += ["cu_seqlens_q", "cu_seqlens_k", "q_lens", "kv_lens"]
    return dict.fromkeys(names)


def _draw_attention(rng: Rng) -> Arguments:
    layout = _pick(rng, ["bhsd", "bhsd", "bshd", "thd"])
    args = _usual(rng) | {"return_lse": bool(rng.integers(2)), "layout": layout}
    if layout == "thd":
        dtype = np.float16
        rows, keys = np.array([0, 2, 2, 5], np.int32), np.array([0, 3, 4, 9], np.int32)
        args |= {"q": _floats(rng, 5, H, D, dtype=dtype), "cu_seqlens_q": rows,
                 "cu_seqlens_k": keys, "max_q_len": _pick(rng, [None, 3, 5]),
                 "k": _floats(rng, 9, H, D), "v": _floats(rng, 9, H, D)}  # fmt: skip
        return args | _expressions(rng, batches=False)
    args |= _qkv(rng, layout)
    if rng.integers(3) == 0:
        if rng.integers(2):
            args["q_lens"] = np.array([Q, 2], np.int32)
        args["kv_lens"] = np.array([3, K], np.int32)
        return args | _expressions(rng, batches=False)
    args |= _expressions(rng, batches=True)
    args["scale"] = _pick(rng, [None, 0.3])
    if rng.integers(3) == 0:
        args["out"] = np.full_like(args["q"], np.nan)
    return args


def _check_result(expected: dict[str, Any], result: Any, out: Any, args: Arguments) -> str | None:
    lse = None
    if expected["lse"] is not None:
        if not isinstance(result, tuple) or len(result) != 2:
            return "no pair of out and lse"
        result, lse = result
    if out is not None:
        if not isinstance(out, np.ndarray):
            raise Meaningless("out is no array")
        if result is not out:
            return "another array than out"
        if out.dtype.newbyteorder("=") != expected["dtype"]:
            raise Meaningless("out is of another dtype")
        inputs = (args.get(name) for name in "qkv")
        if any(isinstance(x, np.ndarray) and np.shares_memory(x, out) for x in inputs):
            raise Meaningless("out overlaps an input")
    exact = expected["out"]
    if np.isnan(exact).any() and isinstance(result, np.ndarray):  # rows of no sequence
        exact = np.where(np.isnan(exact), np.nan_to_num(result.astype(np.float64)), exact)
        result = np.where(np.isnan(result), np.zeros((), result.dtype), result)
    dtype = expected["dtype"] if out is None else out.dtype
    wrong = oracle.close(result, exact, dtype, expected["largest"])
    if wrong is None and lse is not None:
        exact = expected["lse"]
        exact = np.where(np.isnan(exact), lse, exact) if lse.shape == exact.shape else exact
        largest = np.abs(exact[np.isfinite(exact)]).max(initial=10.0)
        wrong = oracle.close(lse, exact, np.dtype(np.float32), float(largest))
        wrong = wrong and f"lse: {wrong}"
    return wrong


def _check_attention(args: Arguments, result: Any) -> str | None:
    return _check_result(oracle.attention_call(args, KNOWN), result, args.get("out"), args)


def _draw_sdpa(rng: Rng) -> Arguments:
    args = _qkv(rng, kv_heads=int(rng.integers(1, 3)))
    mask = _pick(rng, [None, None, _VISIBLE.copy(), _floats(rng, Q, K),
                       _floats(rng, B, 1, Q, K, dtype=np.float32)])  # fmt: skip
    return {
        "query": args["q"], "key": args["k"], "value": args["v"], "attn_mask": mask,
        "dropout_p": 0.0, "is_causal": bool(rng.integers(2)) and mask is None,
        "scale": _pick(rng, [None, 0.5]), "enable_gqa": args["k"].shape[1] != H,
    }  # fmt: skip


def _check_sdpa(args: Arguments, result: Any) -> str | None:
    if number(args["dropout_p"], "dropout_p") != 0:
        raise Meaningless("dropout")
    for name in ("is_causal", "enable_gqa"):
        if not isinstance(args[name], bool | np.bool_):
            raise Meaningless(f"{name} is neither")
    names = ("query", "key", "value")
    q, k, v = (args[name] for name in names)
    floats, back = oracle.four([oracle.floats16(args[name], name) for name in names])
    if len({x.dtype.newbyteorder("=") for x in (q, k, v)}) != 1:
        raise Meaningless("dtypes differ")
    if not args["enable_gqa"] and len({x.shape[1] for x in floats} - {1}) > 1:
        raise Meaningless("heads differ")
    mask: Any = (lambda b, h, i, j: j <= i) if args["is_causal"] else lambda *_: np.True_
    score = lambda s, *_: s  # noqa: E731
    given = args["attn_mask"]
    if given is not None:
        if not isinstance(given, np.ndarray):
            raise Meaningless("attn_mask is no array")
        lead = oracle.together("batches", *(x.shape[:-3] for x in (q, k, v)))
        heads = max(x.shape[1] for x in floats)
        try:
            whole = np.broadcast_to(given, (*lead, heads, q.shape[-2], k.shape[-2]))
        except ValueError:
            raise Meaningless("attn_mask does not broadcast") from None
        whole = whole.reshape(math.prod(whole.shape[:-3]), *whole.shape[-3:])
        if given.dtype == bool:
            causal = mask
            mask = lambda *at: whole & causal(*at)  # noqa: E731
        elif given.dtype.kind == "f" or given.dtype == BF16:
            score = lambda s, *_: s + whole.astype(np.float64)  # noqa: E731
        else:
            raise Meaningless(f"attn_mask is of {given.dtype}")
    scale = args["scale"]
    scale = 1 / math.sqrt(q.shape[-1]) if scale is None else number(scale, "scale")
    out, _ = oracle.attention(*floats, scale, mask, score)
    largest = float(np.abs(floats[2]).max(initial=0.0))
    dtype = q.dtype.newbyteorder("=")
    expected = {"out": back(out), "lse": None, "dtype": dtype, "largest": largest}
    return _check_result(expected, result, None, args)


_kernels: dict[str, Any] = {}


def _kernel(kind: str) -> Any:
    if kind not in _kernels:
        more: Arguments = {"causal": {"mask": fc.causal()}, "packed": {"layout": "thd"},
                           "padded": {"q_lens": True, "kv_lens": True},
                           "captured": {"score": fc.alibi(_SLOPES)}}[kind]  # fmt: skip
        _kernels[kind] = fc.jit(fc.AttentionSpec(head_dim=D, dtype="f16", **more))
    return _kernels[kind]


def _draw_kernel(rng: Rng) -> Arguments:
    kind = _pick(rng, ["causal", "packed", "padded", "captured"])
    args: Arguments = {name: _floats(rng, *shape) for name, shape in
                       {"q": (B, H, Q, D), "k": (B, H, K, D), "v": (B, H, K, D)}.items()}  # fmt: skip  # noqa: E501
    args |= {"_kind": kind, "scale": None, "out": None, "return_lse": bool(rng.integers(2)),
             "stream": None, "captured": None, "cu_seqlens_q": None, "cu_seqlens_k": None,
             "max_q_len": None, "q_lens": None, "kv_lens": None}  # fmt: skip
    if kind == "packed":
        args |= {"q": _floats(rng, 5, H, D), "k": _floats(rng, 5, H, D), "v": _floats(rng, 5, H, D),
                 "cu_seqlens_q": np.array([0, 2, 5], np.int32)}  # fmt: skip
    elif kind == "padded":
        lengths = np.array([4, 1], np.int32)
        args |= {"q_lens": lengths, "kv_lens": lengths + 2}
    elif kind == "captured":
        args["captured"] = {"slopes": _SLOPES * 2}
    if rng.integers(3) == 0:
        args["out"] = np.zeros_like(args["q"])
    return args


def _call_kernel(_kind: str, **args: Any) -> Any:
    return _kernel(_kind)(**args)


def _check_kernel(args: Arguments, result: Any) -> str | None:
    given = {name: value for name, value in args.items() if name not in ("captured", "_kind")}
    for name in "qkv":
        if isinstance(args[name], np.ndarray) and args[name].dtype.newbyteorder("=") != np.float16:
            raise Meaningless("another dtype than the kernel's")
    if args["_kind"] == "causal":
        given["mask"] = _MASKS[1][0]
    elif args["_kind"] == "packed":
        given["layout"] = "thd"
    if args["_kind"] != "captured" and args["captured"]:
        raise Meaningless("captured arrays of a kernel that has none")
    if args["_kind"] != "packed" and not all(np.ndim(args[name]) == 4 for name in "qkv"):
        raise Meaningless("a kernel takes four dimensions")
    known = dict(KNOWN)
    if args["_kind"] == "captured":
        captured = args["captured"]
        slopes = _SLOPES
        if captured is not None:
            if not isinstance(captured, dict) or set(captured) - {"slopes"}:
                raise Meaningless("captured is no dictionary of what it captures")
            slopes = captured.get("slopes", _SLOPES)
        given["score"] = _SCORES[1][0]
        known[id(given["score"])] = lambda s, b, h, i, j: s - slopes[h] * (i + _shift(i, j) - j)
    return _check_result(oracle.attention_call(given, known), result, args.get("out"), args)


def _draw_captured(rng: Rng) -> Arguments:
    return {"slopes": _SLOPES * 2, "_qkv": [_floats(rng, *s) for s in
            ((B, H, Q, D), (B, H, K, D), (B, H, K, D))]}  # fmt: skip


def _call_captured(_qkv: Any, slopes: Any) -> Any:
    return _kernel("captured")(*_qkv, captured={"slopes": slopes})


def _check_captured(args: Arguments, result: Any) -> str | None:
    slopes = args["slopes"]
    if slopes is None:
        slopes = _SLOPES
    if not isinstance(slopes, np.ndarray) or slopes.shape != (H,) or slopes.dtype.kind not in "f":
        raise Meaningless("no slopes for its heads")
    q, k, v = args["_qkv"]
    score = lambda s, b, h, i, j: s - slopes[h].astype(np.float64) * (i + _shift(i, j) - j)  # noqa: E731  # noqa: E501
    expected = oracle.attention_call({"q": q, "k": k, "v": v, "score": score}, KNOWN)
    return _check_result(expected, result, None, args)


# Ready-made masks, scores and sinks, built and then run.


def _run(part: str, made: Any) -> Any:
    rng = np.random.default_rng(7)
    q, k, v = (_floats(rng, *s) for s in ((B, H, Q, D), (B, H, K, D), (B, H, K, D)))
    return fc.attention(q, k, v, **{part: made})


def _check_run(part: str, meant: Any, result: Any) -> str | None:
    rng = np.random.default_rng(7)
    q, k, v = (_floats(rng, *s) for s in ((B, H, Q, D), (B, H, K, D), (B, H, K, D)))
    marker = object()
    expected = oracle.attention_call(
        {"q": q, "k": k, "v": v, part: marker}, KNOWN | {id(marker): meant}
    )
    return _check_result(expected, result, None, {})


def _corner(align: Any) -> Callable[[Any, Any], int]:
    if not isinstance(align, str) or align not in ("bottom_right", "top_left"):
        raise Meaningless("no corner")
    return _shift if align == "bottom_right" else lambda i, j: 0


def _reach(value: Any, name: str) -> float:
    if value is None:
        return math.inf
    value = whole(value, name)
    if value < -1:
        raise Meaningless(f"{name} is {value}")
    return math.inf if value == -1 else value


def _array_of(value: Any, shapes: tuple[tuple[int, ...], ...], kinds: str, name: str) -> np.ndarray:
    if not isinstance(value, np.ndarray) or value.shape not in shapes:
        raise Meaningless(f"{name} has no shape that fits")
    if value.dtype.kind not in kinds and not (value.dtype == BF16 and "f" in kinds):
        raise Meaningless(f"{name} is of {value.dtype}")
    return value.astype(np.float64)


def _broadcasts(value: Any, kinds: str) -> np.ndarray:
    if not isinstance(value, np.ndarray):
        raise Meaningless("no array")
    try:
        np.broadcast_to(value, (B, H, Q, K))
    except ValueError:
        raise Meaningless("does not broadcast") from None
    if value.dtype.kind not in kinds and value.dtype != BF16:
        raise Meaningless(f"of {value.dtype}")
    return value if value.dtype == bool else value.astype(np.float64)


def _window(args: Arguments) -> Any:
    left, right = _reach(args["left"], "left"), _reach(args["right"], "right")
    shift = _corner(args["align"])
    return lambda b, h, i, j: (j >= i + shift(i, j) - left) & (j <= i + shift(i, j) + right)


def _prefix(args: Arguments) -> Any:
    length = args["length"]
    if isinstance(length, np.ndarray) and length.ndim:
        lengths = _array_of(length, ((B,),), "iu", "length")
        return lambda b, h, i, j: (j < lengths[b]) & (i == i)  # noqa: PLR0124
    length = whole(length, "length")
    return lambda b, h, i, j: (j < length) & (i == i)  # noqa: PLR0124


def _ids(args: Arguments) -> Any:
    # Of rows and of keys apart: 5 and 7 positions.
    ids, kv_ids = args["ids"], args["kv_ids"]
    rows = _array_of(ids, ((Q,), (1, Q), (B, Q)), "iufb", "ids")
    keys = _array_of(kv_ids, ((K,), (1, K), (B, K)), "iufb", "kv_ids")
    rows, keys = (np.broadcast_to(x, (B, x.shape[-1])) for x in (rows, keys))
    return lambda b, h, i, j: rows[b, i] == keys[b, j]


def _step(name: str) -> Any:
    def meant(args: Arguments) -> Any:
        n = whole(args[name], name)
        if n < 1:
            raise Meaningless(f"{name} is {n}")
        if name == "size":
            return lambda b, h, i, j: i // n == j // n
        return lambda b, h, i, j: (i - j) % n == 0

    return meant


def _alibi(args: Arguments) -> Any:
    slopes, shift = args["slopes"], _corner(args["align"])
    slopes = _array_of(slopes, ((H,), (B, H)), "fiu", "slopes")
    slopes = np.broadcast_to(slopes, (B, H))
    return lambda s, b, h, i, j: s - slopes[b, h] * (i + shift(i, j) - j)


def _cap(args: Arguments) -> Any:
    cap = number(args["cap"], "cap")
    if cap <= 0 or cap > np.finfo(np.float32).max:
        raise Meaningless(f"cap is {cap}")
    return lambda s, *_: cap * np.tanh(s / cap)


def _table(args: Arguments) -> Any:
    table = args["table"]
    if not isinstance(table, np.ndarray) or table.ndim != 2 or table.shape[0] != H:
        raise Meaningless("table is no array [heads, 2 n + 1]")
    if table.dtype.kind not in "fiu" and table.dtype != BF16:
        raise Meaningless(f"table is of {table.dtype}")
    if table.shape[1] % 2 == 0:
        raise Meaningless("an even number of distances")
    n = (table.shape[1] - 1) // 2
    values = table.astype(np.float64)

    def score(s: Any, b: Any, h: Any, i: Any, j: Any) -> Any:
        at = j - i + n
        inside = (at >= 0) & (at < table.shape[1])
        return s + np.where(inside, values[h, np.clip(at, 0, table.shape[1] - 1)], 0)

    return score


def _added(args: Arguments) -> Any:
    bias = _broadcasts(args["array"], "fiu")
    return lambda s, *_: s + bias


def _dense(args: Arguments) -> Any:
    seen = _broadcasts(args["array"], "b")
    return lambda *_: seen


def _logits(args: Arguments) -> Any:
    logits = _array_of(args["logits"], ((H,),), "fiu", "logits")
    return lambda b, h, i: logits[h]


def _variant(name: str, part: str, draw: Callable[[Rng], Arguments], meant: Any) -> Target:
    def check(args: Arguments, result: Any) -> str | None:
        return _check_run(part, meant(args), result)

    return Target(name, draw, lambda **args: _run(part, getattr(fc, name)(**args)), check)


VARIANTS = [
    _variant("causal", "mask", lambda r: {"align": "top_left"},
             lambda a: (lambda shift: lambda b, h, i, j: j <= i + shift(i, j))(_corner(a["align"]))),  # noqa: E501
    _variant("sliding_window", "mask", lambda r: {"left": 2, "right": _pick(r, [0, None, 1]),
                                                  "align": "bottom_right"}, _window),
    _variant("prefix", "mask", lambda r: {"length": np.array([2, 5], np.int32)}, _prefix),
    _variant("documents", "mask", lambda r: {
        "ids": np.array([0, 0, 1, 1, 2], np.int32),
        "kv_ids": np.array([[0, 0, 1, 1, 2, 2, 2]] * B, np.int32)}, _ids),
    _variant("chunked", "mask", lambda r: {"size": 3}, _step("size")),
    _variant("dilated", "mask", lambda r: {"step": 2}, _step("step")),
    _variant("dense_mask", "mask", lambda r: {"array": _VISIBLE.copy()}, _dense),
    _variant("alibi", "score", lambda r: {"slopes": _SLOPES.copy(), "align": "bottom_right"}, _alibi),  # noqa: E501
    _variant("softcap", "score", lambda r: {"cap": 2.0}, _cap),
    _variant("relative_bias", "score", lambda r: {"table": _floats(r, H, 7)}, _table),
    _variant("bias", "score", lambda r: {"array": _BIAS.copy()}, _added),
    _variant("sinks", "sink", lambda r: {"logits": _LOGITS.copy()}, _logits),
]  # fmt: skip


# Specs, schedules, programs.


def _draw_spec(rng: Rng) -> Arguments:
    return {"head_dim": D, "head_dim_v": None, "heads": _pick(rng, [None, 4]), "kv_heads": None,
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
    oracle.mask_of(args["mask"], KNOWN | {id(args["mask"]): _MASKS[1][1]}
                   if isinstance(args["mask"], fc.Mask) else KNOWN)  # fmt: skip
    if args["dtype"] is None or spec.dtype not in ("f16", "bf16"):
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
            "schedule": _pick(rng, [None, {"tiles": {"rows": 64}}]), "probe": ()}  # fmt: skip


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


_PROGRAM = """program twice
axis rows: parallel_tiles R
axis cols: whole 8
input x: f32 [R, 8]
output y: f32 [R, 8]
{
  %x = load x[rows, cols] : f32[rows, cols]
  %y = add %x, %x : f32[rows, cols]
  store y[rows, cols], %y
}
"""


def _mutated(rng: Rng, text: str) -> str:
    """A text with some characters, words or lines lost, doubled, exchanged or out of bounds."""
    for _ in range(int(rng.integers(1, 4))):
        at = int(rng.integers(len(text) + 1))
        kind = rng.integers(8)
        if kind == 0:
            text = text[:at] + text[at + 1 :]
        elif kind == 1:
            text = text[:at] + _pick(rng, list('0-9{}[]"%,: \n\t\\eé()')) + text[at:]
        elif kind == 2:
            lines = text.split("\n")
            line = int(rng.integers(len(lines)))
            text = "\n".join([*lines[:line], *lines[line + 1 :]])
        elif kind == 3:
            lines = text.split("\n")
            line = int(rng.integers(len(lines)))
            text = "\n".join([*lines[: line + 1], *lines[line:]])
        elif kind == 4:
            words = text.split(" ")
            first, second = rng.integers(len(words), size=2)
            words[first], words[second] = words[second], words[first]
            text = " ".join(words)
        elif kind == 5:
            text = text.replace(_pick(rng, ["8", "16", "1", "2"]), _pick(rng, [
                "0", "-1", "2147483648", "99999999999999999999", "1e9", "1.5", "null", "true"]), 1)  # fmt: skip  # noqa: E501
        elif kind == 6:
            text = text[:at]
        else:
            text = text.replace(_pick(rng, ["f32", "rows", "add", "mask", "text", "false"]),
                                _pick(rng, ["f16", "i1", "cols", "sub", "null", "x"]), 1)  # fmt: skip  # noqa: E501
    return text


def _draw_program(rng: Rng) -> Arguments:
    return {"text": _mutated(rng, _PROGRAM)}


def _call_program(text: Any) -> Any:
    program = fc.Program(text)
    return program, fc.Program(program.text)


def _check_program(args: Arguments, result: Any) -> str | None:
    program, again = result
    return None if program.text == again.text else "its text reads as another program"


def _draw_json(rng: Rng, of: str) -> Arguments:
    made = fc.AttentionSpec(head_dim=D, dtype="f16", score=fc.alibi(_SLOPES))
    text = made.to_json() if of == "spec" else fc.Schedule(tiles={"rows": 64, "cols": 64}).to_json()
    return {"text": _mutated(rng, text)}


def _check_json(args: Arguments, result: Any) -> str | None:
    kind = type(result)
    return None if kind.from_json(result.to_json()) == result else "its JSON reads as another"


def _draw_twice(rng: Rng) -> Arguments:
    return {"x": _floats(rng, 3, 8, dtype=np.float32), "y": None, "stream": None}


def _call_twice(**args: Any) -> Any:
    if "twice" not in _kernels:
        schedule = fc.Schedule(tiles={"rows": 16})
        _kernels["twice"] = fc.jit(fc.Program(_PROGRAM), schedule=schedule)
    return _kernels["twice"](**args)


def _check_twice(args: Arguments, result: Any) -> str | None:
    oracle.is_stream(args["stream"])
    x = args["x"]
    if not isinstance(x, np.ndarray) or x.dtype.newbyteorder("=") != np.float32:
        raise Meaningless("x is no array of f32")
    if args["y"] is not None:
        if not isinstance(args["y"], np.ndarray):
            raise Meaningless("y is no array")
        if result is not None:
            return "y was given, and something is returned"
        result = args["y"]
    exact = 2 * np.asarray(x, np.float64)
    return oracle.close(result, exact, np.dtype(np.float32), float(np.abs(exact).max(initial=0)))


def _draw_why_not(rng: Rng) -> Arguments:
    return {"target": "sm_90", "schedule": _pick(rng, [None, {"stages": 3}])}


def _check_why_not(args: Arguments, result: Any) -> str | None:
    if not isinstance(result, list):
        return "no list"
    if args["target"] not in fc.targets() and not result:
        return "nothing against such a target"
    if not isinstance(args["schedule"], dict | fc.Schedule | None) and not result:
        raise Meaningless("schedule")
    return None


def _method(name: str, right: Any, check: Callable[[Any, Any], str | None]) -> Target:
    def call(given: Any) -> Any:
        return getattr(_kernel("causal"), name)(given)

    return Target(f"kernel.{name}", lambda r: {"given": right}, call,
                  lambda args, result: check(args["given"], result))  # fmt: skip


def _refused(given: Any, result: Any) -> str | None:
    raise Meaningless("there is nothing that it could mean here")


def _text_only(given: Any, result: Any) -> str | None:
    if not isinstance(given, str):
        raise Meaningless("no text")
    return None if isinstance(result, str) else "no text"


_NUMPY_NAMES = ["exp", "exp2", "log", "log2", "sqrt", "tanh", "floor"]


def _function(name: str) -> Target:
    def check(args: Arguments, result: Any) -> str | None:
        x = args["x"]
        if isinstance(x, np.ndarray) and x.ndim or isinstance(x, complex):
            raise Meaningless("no number")
        with np.errstate(all="ignore"):
            try:
                right = getattr(np, name)(float(x))
            except Exception:
                raise Meaningless("no number") from None
        same = result == right or abs(result - right) <= 1e-6 * abs(right)
        if isinstance(x, np.generic | np.ndarray):  # in its own precision
            same = same or abs(result - right) <= 2e-3 * abs(right)
        return None if same or (result != result and right != right) else f"{result}, not {right}"

    return Target(name, lambda r: {"x": 0.5}, lambda x: getattr(fc, name)(x), check)


def _set_log_hook(hook: Any) -> Any:
    try:
        return fc.set_log_hook(hook)
    finally:
        fc.set_log_hook(None)


def _check_hook(args: Arguments, result: Any) -> str | None:
    if args["hook"] is not None and not callable(args["hook"]):
        raise Meaningless("no function")
    return None


def _draw_text_expression(rng: Rng) -> Arguments:
    return {"text": "kv_idx <= q_idx + 1", "tensors": (), "arrays": None}


def _check_expression(args: Arguments, result: Any) -> str | None:
    if not isinstance(args["text"], str):
        raise Meaningless("no text")
    return None


TARGETS = [
    Target("attention", _draw_attention, fc.attention, _check_attention, weight=12),
    Target("sdpa", _draw_sdpa, fc.sdpa, _check_sdpa, weight=10),
    Target("a kernel's call", _draw_kernel, _call_kernel, _check_kernel, weight=8),
    Target("captured", _draw_captured, _call_captured, _check_captured, weight=2),
    *VARIANTS,
    Target("AttentionSpec", _draw_spec, _call_spec, _check_spec, weight=6),
    Target("Schedule", _draw_schedule, _call_schedule, _check_schedule, weight=4),
    Target("jit", _draw_jit, fc.jit, _check_jit, weight=3),
    Target("Program", _draw_program, _call_program, _check_program, weight=4),
    Target("AttentionSpec.from_json", lambda r: _draw_json(r, "spec"), fc.AttentionSpec.from_json,
           _check_json, weight=3),
    Target("Schedule.from_json", lambda r: _draw_json(r, "schedule"), fc.Schedule.from_json,
           _check_json, weight=3),
    Target("a program's call", _draw_twice, _call_twice, _check_twice, weight=2),
    Target("why_not", _draw_why_not,
           lambda **a: fc.AttentionSpec(head_dim=D, dtype="f16").why_not(**a), _check_why_not),
    Target("load", lambda r: {"path": os.devnull}, fc.load, lambda a, r: _refused(a, r)),
    Target("autotune", lambda r: {"spec": fc.AttentionSpec(head_dim=D), "shapes": [(1, 64, 64)],
                                  "seconds": 1, "log": None, "write": False},
           fc.autotune, lambda a, r: _refused(a, r)),
    Target("set_log_hook", lambda r: {"hook": None}, _set_log_hook, _check_hook),
    _method("ir", "built", _text_only),
    _method("prepare", 0, _refused),
    *[_function(name) for name in _NUMPY_NAMES],
    Target("Mask", _draw_text_expression, lambda **a: _run("mask", fc.Mask(**a)), _check_expression),  # noqa: E501
    Target("mask & mask", lambda r: {"other": fc.causal()},
           lambda other: _run("mask", fc.full() & other),
           lambda a, result: _check_run(
               "mask", oracle.mask_of(a["other"], KNOWN | {id(a["other"]): _MASKS[1][1]}
                                      if isinstance(a["other"], fc.Mask) else KNOWN), result)),
]  # fmt: skip
