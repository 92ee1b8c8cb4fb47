"""The parameters of FlashAttention's tests, as its users would write them for `fc.attention`, and
at the functions of `flashcore.flash_attn`, which have the package's names.

Layout [batch, length, heads, dim], causal aligned to the bottom right, windows with -1 for no end,
slopes [heads] or [batch, heads]. Left out are gradients, dropout and rotary embeddings.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

from backend import Arrays
from cases import Family, Sizes
from judge import Problem

import flashcore as fc
from flashcore import flash_attn

LOW = ["f16", "bf16"]
DIMS = [32, 40, 59, 64, 80, 96, 111, 128, 160, 192, 224, 256]
KV_HEADS = {"mha": 6, "mqa": 1, "gqa": 2}
PAIRS = [
    (113, 203), (128, 217), (113, 211), (108, 256), (256, 512), (512, 256), (1024, 1024),
    (1023, 1024), (1024, 1023), (2048, 2048),
]  # fmt: skip
CAUSAL_PAIRS = [
    (1, 239), (3, 799), (127, 512), (127, 513), (113, 203), (128, 217), (113, 211), (108, 256),
    (256, 512), (1023, 1024),
]  # fmt: skip


def _heads(sizes: Sizes, kind: str, softcap: float = 0.0) -> tuple[int, int]:
    heads = 4 if sizes.small or softcap else 6
    return heads, min(heads, KV_HEADS[kind]) if kind != "mha" else heads


def _made(given: dict[str, Callable[[], Any]]) -> dict[str, Any]:
    """At the call, since masks and scores may be refused, too."""
    return {name: make() for name, make in given.items()}


def _how(
    arrays: Arrays, *, q_len: int, kv_len: int, causal: bool, window: tuple[int, int] | None,
    softcap: float, alibi: bool, heads: int, batch: int,
) -> tuple[dict[str, Any], Any, Any, Any]:  # fmt: skip
    """What a call passes, the mask and the score that it means, and the slopes."""
    given: dict[str, Callable[[], Any]] = {}
    mask = None
    if window is not None:
        left, right = window
        given["mask"] = lambda: fc.sliding_window(left, 0 if causal else right)
    elif causal:
        given["mask"] = fc.causal
    if causal or window is not None:
        left, right = (-1, -1) if window is None else window
        right = 0 if causal else right
        shift = kv_len - q_len

        def mask(b: Any, h: Any, i: Any, j: Any) -> Any:
            seen = (j >= i + shift - left) if left >= 0 else (j == j)  # noqa: PLR0124
            return seen & (j <= i + shift + right) if right >= 0 else seen

    scores: list[Callable[..., Any]] = []
    slopes = None
    if softcap:
        scores.append(lambda s, *_: softcap * arrays.xp.tanh(s / softcap))
    if alibi:
        slopes = arrays.uniform((heads,) if causal else (batch, heads), "f32") * 0.3
        at = (lambda b, h: slopes[h]) if causal else (lambda b, h: slopes[b, h])

        def biased(score: Any, b: Any, h: Any, q_idx: Any, kv_idx: Any) -> Any:
            return score - at(b, h) * abs(q_idx + kv_len - q_len - kv_idx)

        scores.append(biased)

        def ready() -> Any:
            return fc.alibi(slopes) if causal else biased

        both = lambda: [fc.softcap(softcap), ready()]  # noqa: E731
        given["score"] = both if softcap else ready
    elif softcap:
        given["score"] = lambda: fc.softcap(softcap)

    def score(s: Any, *positions: Any) -> Any:
        for one in scores:
            s = one(s, *positions)
        return s

    return given, mask, score if scores else None, slopes


def _part(kv_len: int, of: int) -> int:
    """About so many keys, of few values: a window of another size is another kernel."""
    return max(n for n in (1, 8, 21, 67, 341) if n <= max(1, kv_len // of))


def _window(local: bool, kv_len: int, ends: str) -> tuple[int, int] | None:
    if not local:
        return None
    left, right = _part(kv_len, 3), _part(kv_len, 5)
    return {"both": (left, right), "left": (left, -1), "right": (-1, right)}[ends]


def _output(
    arrays: Arrays, sizes: Sizes, *, dtype: str, kind: str, alibi: bool, local: bool, causal: bool,
    d: int, lengths: tuple[int, int], softcap: float, packed: str = "none", swapped: bool = False,
    batch: int = 4, ends: str = "both", package: bool = False,
) -> Problem:  # fmt: skip
    n, m = (sizes.length(x) for x in (lengths[::-1] if swapped else lengths))
    b = sizes.batch(batch)
    heads, kv_heads = _heads(sizes, kind, softcap)
    size = softcap or 1.0  # large enough for the cap to be felt
    if packed == "qkv":
        qkv = arrays.normal((b, n, 3, heads, d), dtype, 1.0)
        q, k, v = (qkv[:, :, i] for i in range(3))
        kv_heads, m = heads, n
    else:
        q = arrays.normal((b, n, heads, d), dtype, size)
        if packed == "kv":
            kv = arrays.normal((b, m, 2, kv_heads, d), dtype)
            k, v = kv[:, :, 0], kv[:, :, 1]
        else:
            k, v = (arrays.normal((b, m, kv_heads, d), dtype) for _ in range(2))
    given, mask, score, slopes = _how(
        arrays, q_len=n, kv_len=m, causal=causal, window=_window(local, m, ends),
        softcap=softcap, alibi=alibi, heads=heads, batch=b,
    )  # fmt: skip
    first = lambda x: arrays.permute(x, (0, 2, 1, 3))  # noqa: E731

    def call() -> Any:
        if not package:
            return fc.attention(q, k, v, layout="bshd", return_lse=True, **_made(given))
        options = {
            "causal": causal, "softcap": softcap, "alibi_slopes": slopes, "return_attn_probs": True,
            "window_size": _window(local, m, ends) or (-1, -1),
        }  # fmt: skip
        if packed == "qkv":
            made = flash_attn.flash_attn_qkvpacked_func(qkv, **options)
        elif packed == "kv":
            made = flash_attn.flash_attn_kvpacked_func(q, kv, **options)
        else:
            made = flash_attn.flash_attn_func(q, k, v, **options)
        return made[:2]

    return Problem(
        call=call,
        dtype=dtype, q=first(q), k=first(k), v=first(v), mask=mask, score=score,
        heads_first=first, with_lse=True, shape=(b, n, heads, d),
    )  # fmt: skip


def _table(keys: list[int], page: int) -> list[list[int]]:
    """The pages of each sequence, the last one of all first."""
    counts = [-(-n // page) for n in keys]
    last = sum(counts) - 1
    table = []
    for b, count in enumerate(counts):
        own = [last - sum(counts[:b]) - i for i in range(count)]
        table.append(own + [0] * (max(counts) - count))
    return table


def _paged(arrays: Arrays, packed: Any, starts: list[int], page: int, dtype: str) -> Any:
    """Rows that are packed, in such pages."""
    keys = [end - begin for begin, end in itertools.pairwise(starts)]
    table = _table(keys, page)
    count = sum(-(-n // page) for n in keys)
    pages = arrays.full((count, page, *packed.shape[1:]), 0, dtype)
    for own, begin, n in zip(table, starts, keys, strict=False):
        for at in range(0, n, page):
            rows = packed[begin + at : begin + min(at + page, n)]
            pages[own[at // page], : rows.shape[0]] = rows
    return pages


def _varlen(
    arrays: Arrays, sizes: Sizes, *, dtype: str, kind: str, local: bool, causal: bool, d: int,
    lengths: tuple[int, int], alibi: bool = False, softcap: float = 0.0, says_longest: bool = True,
    empty: bool = False, package: bool = False, page: int = 0,
) -> Problem:  # fmt: skip
    """Packed sequences whose lengths differ, some of them empty; keys in pages of so many rows."""
    n, m = (sizes.length(x) for x in lengths)
    heads, kv_heads = _heads(sizes, kind, softcap)
    batch = 3
    rows = [n, max(1, n // 2), max(0, n - 7)]
    keys = [max(1, m - 5), m, max(1, m // 3)]
    if empty:
        rows[1] = keys[2] = 0
    starts = [[sum(own[:i]) for i in range(batch + 1)] for own in (rows, keys)]
    q = arrays.normal((sum(rows), heads, d), dtype, softcap or 1.0)
    k, v = (arrays.normal((sum(keys), kv_heads, d), dtype) for _ in range(2))
    given: dict[str, Callable[[], Any]] = {}
    left = _part(m, 3)
    if local:
        given["mask"] = lambda: fc.sliding_window(left, 0)
    elif causal:
        given["mask"] = fc.causal
    scores: list[Callable[..., Any]] = []
    if softcap:
        scores.append(lambda s, *_: softcap * arrays.xp.tanh(s / softcap))
        given["score"] = lambda: fc.softcap(softcap)
    slopes = arrays.uniform((heads,), "f32") * 0.3 if alibi else None
    if alibi:
        given["score"] = lambda: fc.alibi(slopes)
    if says_longest:
        given["max_q_len"] = lambda: max(rows)
    cu_q, cu_k = (arrays.array(own, "i32") for own in starts)
    # Shifts differ from sequence to sequence, so the mask and the bias are those of a spec below.
    parts = []
    for i in range(batch):
        inputs = tuple(
            arrays.permute(x[own[i] : own[i + 1]], (1, 0, 2))[None]
            for x, own in ((q, starts[0]), (k, starts[1]), (v, starts[1]))
        )
        at = slice(starts[0][i], starts[0][i + 1])
        parts.append((inputs, lambda out, at=at: arrays.permute(out[at], (1, 0, 2))[None]))

    def mask(b: Any, h: Any, i: Any, j: Any) -> Any:
        shift = j.shape[-1] - i.shape[-2]
        seen = j <= i + shift
        return seen & (j >= i + shift - left) if local else seen

    def score(s: Any, b: Any, h: Any, i: Any, j: Any) -> Any:
        for one in scores:
            s = one(s)
        shift = j.shape[-1] - i.shape[-2]
        return s + slopes[h] * (j - i - shift) if alibi else s

    def call() -> Any:
        if not package:
            return fc.attention(
                q, k, v, layout="thd", cu_seqlens_q=cu_q, cu_seqlens_k=cu_k, **_made(given)
            )
        held = (
            (k, v) if not page else tuple(_paged(arrays, x, starts[1], page, dtype) for x in (k, v))
        )
        table = arrays.array(_table(keys, page), "i32") if page else None
        return flash_attn.flash_attn_varlen_func(
            q, *held, cu_q, cu_k, max(rows), max(keys), causal=causal, softcap=softcap,
            window_size=(left, 0) if local else (-1, -1), alibi_slopes=slopes, block_table=table,
        )  # fmt: skip

    return Problem(
        call=call,
        dtype=dtype, mask=mask if local or causal else None, score=score, parts=tuple(parts),
        shape=(sum(rows), heads, d),
    )  # fmt: skip


def _cache(
    arrays: Arrays, sizes: Sizes, *, dtype: str, kind: str, causal: bool, local: bool, d: int,
    lengths: tuple[int, int], package: bool = False,
) -> Problem:  # fmt: skip
    """A cache of keys that is not full: how full, a sequence each."""
    n, m = sizes.length(lengths[0]), max(sizes.length(lengths[1]), sizes.length(lengths[0]))
    heads, kv_heads = _heads(sizes, kind)
    full = [m, max(1, m - 3), max(1, m // 2)]
    b = len(full)
    q = arrays.normal((b, n, heads, d), dtype)
    k, v = (arrays.normal((b, m, kv_heads, d), dtype) for _ in range(2))
    left = _part(m, 3)
    given: dict[str, Callable[[], Any]] = {}
    if local:
        given["mask"] = lambda: fc.sliding_window(left, 0)
    elif causal:
        given["mask"] = fc.causal
    parts = []
    for i, filled in enumerate(full):
        inputs = tuple(
            arrays.permute(x[i : i + 1, :size], (0, 2, 1, 3))
            for x, size in ((q, n), (k, filled), (v, filled))
        )
        parts.append((inputs, lambda out, i=i: arrays.permute(out[i : i + 1], (0, 2, 1, 3))))

    def mask(b: Any, h: Any, i: Any, j: Any) -> Any:
        shift = j.shape[-1] - i.shape[-2]
        seen = j <= i + shift
        return seen & (j >= i + shift - left) if local else seen

    lens = arrays.array(full, "i32")

    def call() -> Any:
        if not package:
            return fc.attention(q, k, v, layout="bshd", kv_lens=lens, **_made(given))
        return flash_attn.flash_attn_with_kvcache(
            q, k, v, cache_seqlens=lens, causal=causal, window_size=(left, 0) if local else (-1, -1)
        )

    return Problem(
        call=call,
        dtype=dtype, mask=mask if local or causal else None, parts=tuple(parts),
        shape=(b, n, heads, d),
    )  # fmt: skip


def _missing(arrays: Arrays, sizes: Sizes, *, what: str) -> Problem:
    """What the package has, and FlashCore says that it has not."""
    q, k, v = (arrays.normal((2, 16, 2, 32), "f16") for _ in range(3))
    wave = arrays.uniform((16, 16), "f16")
    starts = arrays.array([0, 16], "i32")
    cache = flash_attn.flash_attn_with_kvcache
    calls: dict[str, Callable[[], Any]] = {
        "dropout": lambda: flash_attn.flash_attn_func(q, k, v, dropout_p=0.17),
        "rotary": lambda: cache(q, k, v, rotary_cos=wave, rotary_sin=wave, cache_seqlens=16),
        "cache_batch_idx": lambda: cache(q, k, v, cache_batch_idx=starts, cache_seqlens=16),
    }
    return Problem(call=calls[what], dtype="f16", q=q, k=k, v=v)


FAMILIES = [
    Family(
        "missing",
        {"what": ["dropout", "rotary", "cache_batch_idx"]},
        _missing,
    ),
    Family(
        "dense_of_the_package",
        {
            "dtype": LOW, "kind": ["mha", "gqa"], "alibi": [False, True], "local": [False, True],
            "causal": [False, True], "d": [32, 59, 64, 128, 256], "lengths": PAIRS[:5],
            "softcap": [0.0, 50.0], "packed": ["kv", "none", "qkv"], "package": [True],
        },
        _output,
        takes=lambda kind, packed, **_: packed != "qkv" or kind == "mha",
    ),
    Family(
        "varlen_of_the_package",
        {
            "dtype": LOW, "kind": ["mha", "gqa"], "alibi": [False, True], "local": [False, True],
            "causal": [True], "d": [32, 59, 64, 128, 256], "lengths": [(1, 147), *PAIRS[:5]],
            "package": [True],
        },
        _varlen,
    ),
    Family(
        "pages_of_the_package",
        {
            "dtype": ["f16"], "kind": ["mha", "gqa"], "local": [False, True], "causal": [True],
            "d": [59, 64, 128], "lengths": [(1, 147), (113, 203), (256, 512)], "package": [True],
            "page": [16, 256],
        },
        _varlen,
    ),
    Family(
        "cache_of_the_package",
        {
            "dtype": ["f16"], "kind": ["mha", "gqa"], "causal": [False, True],
            "local": [False, True], "d": [59, 64, 128],
            "lengths": [(1, 128), (1, 339), (3, 1024), (64, 800)], "package": [True],
        },
        _cache,
    ),
    Family(
        "qkv_in_one",
        {
            "dtype": LOW, "kind": ["mha"], "alibi": [False, True], "local": [False, True],
            "causal": [False, True], "d": DIMS,
            "lengths": [(n, n) for n in (97, 128, 200, 384, 768, 1024, 1025, 2048)],
            "softcap": [0.0], "packed": ["qkv"],
        },
        _output,
    ),
    Family(
        "output",
        {
            "dtype": LOW, "kind": list(KV_HEADS), "alibi": [False, True], "local": [False, True],
            "causal": [False, True], "d": [32, 40, 59, 64, 96, 111, 128, 160, 192, 224, 256],
            "lengths": PAIRS, "softcap": [0.0, 50.0], "packed": ["kv", "none"],
        },
        _output,
    ),
    Family(
        "one_ended_windows",
        {
            "dtype": ["bf16"], "kind": ["mha"], "alibi": [False], "local": [True],
            "causal": [False, True], "d": [64], "lengths": CAUSAL_PAIRS, "softcap": [0.0],
            "ends": ["left", "right"],
        },
        _output,
    ),
    Family(
        "causal",
        {
            "dtype": LOW, "kind": ["mha"], "alibi": [False], "local": [False, True],
            "causal": [True], "d": DIMS, "lengths": CAUSAL_PAIRS, "softcap": [0.0],
            "swapped": [False, True], "batch": [8],
        },
        _output,
    ),
    Family(
        "few_rows",
        {
            "dtype": LOW, "kind": ["mha"], "alibi": [False, True], "local": [False, True],
            "causal": [False, True], "d": DIMS,
            "lengths": [
                (3, 1024), (1, 339), (64, 800), (3, 799), (64, 2048), (16, 20000), (128, 128),
                (256, 256),
            ],
            "softcap": [0.0], "swapped": [False, True], "batch": [1],
        },
        _output,
    ),
    Family(
        "lengths_alike",
        {
            "dtype": ["f16"], "kind": ["mha"], "alibi": [False], "local": [False],
            "causal": [False, True], "d": DIMS,
            "lengths": [
                (1, 239), (239, 1), (3, 799), (799, 3), (1024, 128), (97, 97), (200, 200),
                (257, 257), (384, 384), (768, 768),
            ],
            "softcap": [0.0], "batch": [60],
        },
        _output,
    ),
    Family(
        "very_short",
        {
            "dtype": ["f16"], "kind": ["mha"], "alibi": [False], "local": [False],
            "causal": [False, True], "d": [16, 32, 64],
            "lengths": [(n, n) for n in (1, 2, 5, 17, 128)], "softcap": [0.0],
        },
        _output,
    ),
    Family(
        "packed_sequences",
        {
            "dtype": LOW, "kind": list(KV_HEADS), "alibi": [False, True], "local": [False, True],
            "causal": [True], "d": [32, 59, 64, 80, 96, 111, 128, 160, 192, 224, 256],
            "lengths": [(1, 147), *PAIRS],
        },
        _varlen,
    ),
    Family(
        "packed_sequences_capped",
        {
            "dtype": LOW, "kind": list(KV_HEADS), "local": [False, True], "causal": [False, True],
            "d": [32, 59, 64, 111, 128, 256], "lengths": [(1, 147), *PAIRS[:5]],
            "softcap": [0.0, 50.0], "says_longest": [True, False], "empty": [False, True],
        },
        _varlen,
    ),
    Family(
        "cache",
        {
            "dtype": ["f16"], "kind": list(KV_HEADS), "causal": [False, True],
            "local": [False, True], "d": [32, 59, 64, 80, 128, 256],
            "lengths": [
                (1, 128), (1, 339), (3, 1024), (64, 800), (64, 256), (3, 799), (64, 2048),
                (128, 128),
            ],
        },
        _cache,
    ),
]  # fmt: skip
