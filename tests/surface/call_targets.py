"""Calls of attention, of sdpa and of kernels."""

from __future__ import annotations

import functools
import math
from typing import Any

import numpy as np
import oracle
from oracle import Meaningless, number
from target import (
    KNOWN,
    MASKS,
    ONLY_BATCHES,
    SCORES,
    SINKS,
    SLOPES,
    VISIBLE,
    Arguments,
    B,
    D,
    H,
    K,
    Q,
    Rng,
    Target,
    check_result,
    floats,
    pick,
    shift,
)
from values import BF16

import flashcore as fc

_IDS = np.array([0, 0, 0, 1, 1, 1, 1], np.int32)


def _documents(b: Any, h: Any, q_idx: Any, kv_idx: Any) -> Any:
    return _IDS[q_idx] == _IDS[kv_idx]


def _distance(score: Any, b: Any, h: Any, q_idx: Any, kv_idx: Any) -> Any:
    return score - 0.25 * abs(q_idx - kv_idx)


def _expressions(rng: Rng, batches: bool) -> Arguments:
    given: Arguments = {}
    masks: list[Any] = [made for made, _ in MASKS]
    masks += [_documents, ONLY_BATCHES[0][0]] if batches else []
    scores: list[Any] = [made for made, _ in SCORES] + [_distance]
    scores += [ONLY_BATCHES[1][0]] if batches else []
    kind = rng.integers(4)
    if kind in (1, 3):
        given["mask"] = pick(rng, masks)
    if kind in (2, 3):
        given["score"] = pick(rng, scores)
    if kind == 3 and rng.integers(2):
        given["sink"] = SINKS[0][0]
    return given


def _qkv(rng: Rng, layout: str = "bhsd", kv_heads: int = H) -> Arguments:
    dtype = np.dtype(np.float16) if rng.integers(3) else BF16
    shapes = {"q": (B, H, Q, D), "k": (B, kv_heads, K, D), "v": (B, kv_heads, K, D)}
    made = {name: floats(rng, *shape, dtype=dtype) for name, shape in shapes.items()}
    if layout == "bshd":
        made = {name: np.ascontiguousarray(x.swapaxes(1, 2)) for name, x in made.items()}
    return made


def _usual(rng: Rng) -> Arguments:
    """The optional arguments of a call that most calls leave out; all of them can be spoiled."""
    names = ["scale", "return_lse", "stream", "mask", "score", "sink", "out", "max_q_len"]
    names += ["cu_seqlens_q", "cu_seqlens_k", "q_lens", "kv_lens"]
    return dict.fromkeys(names)


def _draw_attention(rng: Rng) -> Arguments:
    layout = pick(rng, ["bhsd", "bhsd", "bshd", "thd"])
    args = _usual(rng) | {"return_lse": bool(rng.integers(2)), "layout": layout}
    if layout == "thd":
        dtype = np.float16
        rows, keys = np.array([0, 2, 2, 5], np.int32), np.array([0, 3, 4, 9], np.int32)
        args |= {"q": floats(rng, 5, H, D, dtype=dtype), "cu_seqlens_q": rows,
                 "cu_seqlens_k": keys, "max_q_len": pick(rng, [None, 3, 5]),
                 "k": floats(rng, 9, H, D), "v": floats(rng, 9, H, D)}  # fmt: skip
        return args | _expressions(rng, batches=False)
    args |= _qkv(rng, layout)
    if rng.integers(3) == 0:
        if rng.integers(2):
            args["q_lens"] = np.array([Q, 2], np.int32)
        args["kv_lens"] = np.array([3, K], np.int32)
        return args | _expressions(rng, batches=False)
    args |= _expressions(rng, batches=True)
    args["scale"] = pick(rng, [None, 0.3])
    if rng.integers(3) == 0:
        args["out"] = np.full_like(args["q"], np.nan)
    return args


def _check_attention(args: Arguments, result: Any) -> str | None:
    return check_result(oracle.attention_call(args, KNOWN), result, args.get("out"), args)


def _draw_sdpa(rng: Rng) -> Arguments:
    args = _qkv(rng, kv_heads=int(rng.integers(1, 3)))
    mask = pick(rng, [None, None, VISIBLE.copy(), floats(rng, Q, K),
                       floats(rng, B, 1, Q, K, dtype=np.float32)])  # fmt: skip
    return {
        "query": args["q"], "key": args["k"], "value": args["v"], "attn_mask": mask,
        "dropout_p": 0.0, "is_causal": bool(rng.integers(2)) and mask is None,
        "scale": pick(rng, [None, 0.5]), "enable_gqa": args["k"].shape[1] != H,
    }  # fmt: skip


def _check_sdpa(args: Arguments, result: Any) -> str | None:
    if number(args["dropout_p"], "dropout_p") != 0:
        raise Meaningless("dropout")
    for name in ("is_causal", "enable_gqa"):
        if not isinstance(args[name], bool | np.bool_):
            raise Meaningless(f"{name} is neither")
    names = ("query", "key", "value")
    q, k, v = (args[name] for name in names)
    floats, back = oracle.four([oracle.floats(args[name], name) for name in names])
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
    return check_result(expected, result, None, args)


@functools.cache
def kernel(kind: str) -> Any:
    more: Arguments = {
        "causal": {"mask": fc.causal()},
        "packed": {"layout": "thd"},
        "padded": {"q_lens": True, "kv_lens": True},
        "captured": {"score": fc.alibi(SLOPES)},
    }[kind]
    return fc.jit(fc.AttentionSpec(head_dim=D, dtype="f16", **more))


def _draw_kernel(rng: Rng) -> Arguments:
    kind = pick(rng, ["causal", "packed", "padded", "captured"])
    args: Arguments = {name: floats(rng, *shape) for name, shape in
                       {"q": (B, H, Q, D), "k": (B, H, K, D), "v": (B, H, K, D)}.items()}  # fmt: skip  # noqa: E501
    args |= {"_kind": kind, "scale": None, "out": None, "return_lse": bool(rng.integers(2)),
             "stream": None, "captured": None, "cu_seqlens_q": None, "cu_seqlens_k": None,
             "max_q_len": None, "q_lens": None, "kv_lens": None}  # fmt: skip
    if kind == "packed":
        args |= {"q": floats(rng, 5, H, D), "k": floats(rng, 5, H, D), "v": floats(rng, 5, H, D),
                 "cu_seqlens_q": np.array([0, 2, 5], np.int32)}  # fmt: skip
    elif kind == "padded":
        lengths = np.array([4, 1], np.int32)
        args |= {"q_lens": lengths, "kv_lens": lengths + 2}
    elif kind == "captured":
        args["captured"] = {"slopes": SLOPES * 2}
    if rng.integers(3) == 0:
        args["out"] = np.zeros_like(args["q"])
    return args


def _call_kernel(_kind: str, **args: Any) -> Any:
    return kernel(_kind)(**args)


def _check_kernel(args: Arguments, result: Any) -> str | None:
    given = {name: value for name, value in args.items() if name not in ("captured", "_kind")}
    for name in "qkv":
        if isinstance(args[name], np.ndarray) and args[name].dtype.newbyteorder("=") != np.float16:
            raise Meaningless("another dtype than the kernel's")
    if args["_kind"] == "causal":
        given["mask"] = MASKS[1][0]
    elif args["_kind"] == "packed":
        given["layout"] = "thd"
    if args["_kind"] != "captured" and args["captured"]:
        raise Meaningless("captured arrays of a kernel that has none")
    if args["_kind"] != "packed" and not all(np.ndim(args[name]) == 4 for name in "qkv"):
        raise Meaningless("a kernel takes four dimensions")
    known = dict(KNOWN)
    if args["_kind"] == "captured":
        captured = args["captured"]
        slopes = SLOPES
        if captured is not None:
            if not isinstance(captured, dict) or set(captured) - {"slopes"}:
                raise Meaningless("captured is no dictionary of what it captures")
            slopes = captured.get("slopes", SLOPES)
        given["score"] = SCORES[1][0]
        known[id(given["score"])] = lambda s, b, h, i, j: s - slopes[h] * (i + shift(i, j) - j)
    return check_result(oracle.attention_call(given, known), result, args.get("out"), args)


def _draw_captured(rng: Rng) -> Arguments:
    return {"slopes": SLOPES * 2, "_qkv": [floats(rng, *s) for s in
            ((B, H, Q, D), (B, H, K, D), (B, H, K, D))]}  # fmt: skip


def _call_captured(_qkv: Any, slopes: Any) -> Any:
    return kernel("captured")(*_qkv, captured={"slopes": slopes})


def _check_captured(args: Arguments, result: Any) -> str | None:
    slopes = args["slopes"]
    if slopes is None:
        slopes = SLOPES
    if not isinstance(slopes, np.ndarray) or slopes.shape != (H,) or slopes.dtype.kind not in "f":
        raise Meaningless("no slopes for its heads")
    q, k, v = args["_qkv"]
    score = lambda s, b, h, i, j: s - slopes[h].astype(np.float64) * (i + shift(i, j) - j)  # noqa: E731  # noqa: E501
    expected = oracle.attention_call({"q": q, "k": k, "v": v, "score": score}, KNOWN)
    return check_result(expected, result, None, args)


TARGETS = [
    Target("attention", _draw_attention, fc.attention, _check_attention, weight=12),
    Target("sdpa", _draw_sdpa, fc.sdpa, _check_sdpa, weight=10),
    Target("a kernel's call", _draw_kernel, _call_kernel, _check_kernel, weight=8),
    Target("captured", _draw_captured, _call_captured, _check_captured, weight=2),
]
