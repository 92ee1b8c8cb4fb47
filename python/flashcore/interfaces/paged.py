"""What attention over pages needs of a call, said before a kernel is made for it."""

from __future__ import annotations

from typing import Any

from ..errors import SpecError


def check_paged(q: Any, k: Any, v: Any, page_table: Any, kv_lens: Any, layout: str) -> None:
    """Raises SpecError for what is missing, and for the first array that has not as many dimensions
    as it should."""
    if kv_lens is None:
        raise SpecError(
            "attention with page_table and without kv_lens",
            "a table of pages does not say where a sequence ends",
            "kv_lens=, an int32 array [batch] on the device of q",
        )
    rows = (3, "[total, heads, head_dim]") if layout == "thd" else (
        4, "[batch, heads, q_len, head_dim] in the order of the layout"
    )  # fmt: skip
    pages = 4, "[pages, page_size, kv_heads, head_dim]"
    table = 2, "[batch, pages of a sequence], int32"
    given = {"q": (q, rows), "k": (k, pages), "v": (v, pages), "page_table": (page_table, table)}
    for name, (array, (rank, shape)) in given.items():
        if len(array.shape) != rank:
            raise SpecError(
                "attention over pages",
                f"{name} has shape {tuple(array.shape)}, which is not {rank} dimensions",
                f"{name} {shape}",
            )


__all__ = ["check_paged"]
