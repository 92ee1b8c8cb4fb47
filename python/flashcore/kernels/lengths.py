"""The lengths of sequences, which a call passes besides q, k and v if they differ."""

from __future__ import annotations

from typing import Any, NamedTuple

from ..arrays import memory_of
from ..errors import SpecError
from ..specs.spec import AttentionSpec
from .lengths_check import check_lengths, check_longest, check_starts


class Lengths(NamedTuple):
    """Arrays and scalars of a launch, in the program's order."""

    arrays: tuple[Any, ...] = ()
    scalars: tuple[int, ...] = ()
    longest_keys: int = 0  # of packed sequences, at most


_NONE = Lengths()


def lengths(
    spec: AttentionSpec,
    q: Any,
    k: Any,
    cu_seqlens_q: Any,
    cu_seqlens_k: Any,
    max_q_len: int | None,
    q_lens: Any,
    kv_lens: Any,
    max_kv_len: int | None = None,
) -> Lengths:
    """What the spec asks for; refuses what it does not, and what is missing."""
    packed = spec.layout == "thd"
    given = {
        "cu_seqlens_q": cu_seqlens_q,
        "cu_seqlens_k": cu_seqlens_k,
        "max_q_len": max_q_len,
        "max_kv_len": max_kv_len,
        "q_lens": q_lens,
        "kv_lens": kv_lens,
    }
    needed = [n for n, asked in (("q_lens", spec.q_lens), ("kv_lens", spec.kv_lens)) if asked]
    if packed:
        needed = ["cu_seqlens_q"]
    allowed = [*needed, "cu_seqlens_k", "max_q_len", "max_kv_len"] if packed else needed
    for name, value in given.items():
        if value is not None and name not in allowed:
            fix = f"a spec with {name} = True" if name.endswith("_lens") else 'layout = "thd"'
            _refuse(
                f'{name} was given, and the spec has layout = "{spec.layout}", '
                f"q_lens = {spec.q_lens}, kv_lens = {spec.kv_lens}",
                "leave it out: cu_seqlens_q and cu_seqlens_k say the lengths" if packed else fix,
            )
        if value is None and name in needed:
            _refuse(f"it needs {name}", f"{name}=, an int32 array on the device of q")
    if not needed:
        return _NONE
    if not packed:
        arrays = tuple(_int32(name, given[name]) for name in needed)
        at = -2 if spec.layout == "bhsd" else -3
        if spec.q_lens:
            check_lengths("q_lens", q_lens, q.shape[at], "the length of q")
        if spec.kv_lens:
            check_lengths("kv_lens", kv_lens, k.shape[at], "the length of k")
        return Lengths(arrays)
    starts = _int32("cu_seqlens_q", cu_seqlens_q)
    keys = starts if cu_seqlens_k is None else _int32("cu_seqlens_k", cu_seqlens_k)
    check_starts("cu_seqlens_q", starts, q.shape[0], "q")
    check_starts("cu_seqlens_q" if keys is starts else "cu_seqlens_k", keys, k.shape[0], "k")
    if max_q_len is not None:
        check_longest("max_q_len", starts, max_q_len)
    if max_kv_len is not None:
        check_longest("max_kv_len", keys, max_kv_len)
    # No sequence has more rows than all of them: blocks for more would have nothing to do.
    longest = q.shape[0] if max_q_len is None else min(max_q_len, q.shape[0])
    if max_kv_len is None:
        alike = keys is starts or memory_of(keys) == memory_of(starts)
        max_kv_len = longest if alike else k.shape[0]
    return Lengths((starts, keys), (longest,), min(max_kv_len, k.shape[0]))


def _int32(name: str, array: Any) -> Any:
    dtype = str(getattr(array, "dtype", type(array).__name__))
    if dtype.removeprefix("torch.") != "int32":
        _refuse(f"{name} is {dtype}, and kernels read lengths as int32", f"cast {name} to int32")
    return array


def _refuse(why: str, fix: str) -> None:
    raise SpecError("calling attention_forward", why, fix)
