"""The lengths of sequences, which a call passes besides q, k and v if they differ."""

from __future__ import annotations

from typing import Any, NamedTuple

from .. import arguments
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
    page_table: Any = None,
) -> Lengths:
    """What the spec asks for; refuses what it does not, and what is missing."""
    packed, paged = spec.layout == "thd", spec.page_size is not None
    given = {
        "page_table": page_table,
        "cu_seqlens_q": cu_seqlens_q,
        "cu_seqlens_k": cu_seqlens_k,
        "max_q_len": max_q_len,
        "max_kv_len": max_kv_len,
        "q_lens": q_lens,
        "kv_lens": kv_lens,
    }
    asked = {
        "page_table": paged,
        "cu_seqlens_q": packed,
        "q_lens": spec.q_lens,
        "kv_lens": spec.kv_lens,
    }
    needed = [name for name, is_asked in asked.items() if is_asked]
    allowed = set(needed)
    if packed:
        allowed |= {"max_q_len"} if paged else {"max_q_len", "cu_seqlens_k"}
    if packed or paged:
        allowed.add("max_kv_len")
    for name, value in given.items():
        if value is not None and name not in allowed:
            _refuse(
                f'{name} was given, and the spec has layout = "{spec.layout}", '
                f"q_lens = {spec.q_lens}, kv_lens = {spec.kv_lens}, page_size = {spec.page_size}",
                _without(name, packed, paged),
            )
        if value is None and name in needed:
            _refuse(f"it needs {name}", f"{name}=, an int32 array on the device of q")
    if not needed:
        return _NONE
    room = 0
    if spec.page_size is not None:
        page_table = _int32("page_table", page_table)
        given["page_table"] = page_table = _seen_of(page_table, spec.page_size, max_kv_len)
        room = page_table.shape[1] * spec.page_size
        check_lengths("kv_lens", _int32("kv_lens", kv_lens), room, "what page_table has room for")
    elif spec.kv_lens:
        at = -2 if spec.layout == "bhsd" else -3
        check_lengths("kv_lens", _int32("kv_lens", kv_lens), k.shape[at], "the length of k")
    if not packed:
        arrays = tuple(_int32(name, given[name]) for name in needed)
        if spec.q_lens:
            at = -2 if spec.layout == "bhsd" else -3
            check_lengths("q_lens", q_lens, q.shape[at], "the length of q")
        return Lengths(arrays)
    starts = _int32("cu_seqlens_q", cu_seqlens_q)
    check_starts("cu_seqlens_q", starts, q.shape[0], "q")
    if max_q_len is not None:
        check_longest("max_q_len", starts, max_q_len)
    # No sequence has more rows than all of them: blocks for more would have nothing to do.
    longest = q.shape[0] if max_q_len is None else min(max_q_len, q.shape[0])
    if paged:
        return Lengths((page_table, starts, kv_lens), (longest,), room)
    keys = starts if cu_seqlens_k is None else _int32("cu_seqlens_k", cu_seqlens_k)
    check_starts("cu_seqlens_q" if keys is starts else "cu_seqlens_k", keys, k.shape[0], "k")
    if max_kv_len is not None:
        check_longest("max_kv_len", keys, max_kv_len)
    if max_kv_len is None:
        alike = keys is starts or memory_of(keys) == memory_of(starts)
        max_kv_len = longest if alike else k.shape[0]
    return Lengths((starts, keys), (longest,), min(max_kv_len, k.shape[0]))


def _seen_of(page_table: Any, page_size: int, max_kv_len: int | None) -> Any:
    """The columns of a table that sequences of so many keys have."""
    if len(page_table.shape) != 2:
        _refuse(
            f"page_table has shape {tuple(page_table.shape)}, which is not 2 dimensions",
            "page_table [batch, pages of a sequence], int32",
        )
    if max_kv_len is None:
        return page_table
    fix = "the number of keys of the longest sequence, or more"
    longest = arguments.whole("max_kv_len", max_kv_len, fix)
    return page_table[:, : -(-max(longest, 0) // page_size)]


def _without(name: str, packed: bool, paged: bool) -> str:
    """What to do about an argument that a spec does not take."""
    if name == "page_table":
        return "a spec with page_size = the rows of a page, and kv_lens = True"
    if packed:
        says = "cu_seqlens_q and kv_lens" if paged else "cu_seqlens_q and cu_seqlens_k"
        return f"leave it out: {says} say the lengths"
    return f"a spec with {name} = True" if name.endswith("_lens") else 'layout = "thd"'


def _int32(name: str, array: Any) -> Any:
    dtype = str(getattr(array, "dtype", type(array).__name__))
    if dtype.removeprefix("torch.") != "int32":
        _refuse(f"{name} is {dtype}, and kernels read lengths as int32", f"cast {name} to int32")
    return array


def _refuse(why: str, fix: str) -> None:
    raise SpecError("calling attention_forward", why, fix)
