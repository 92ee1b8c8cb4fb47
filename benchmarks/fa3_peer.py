"""FlashAttention-3, which does not come with torch: measured beside the others where it is there.

Its Python package, flash_attn_interface, is used if it can be imported. FLASHCORE_FA3 may name a
folder instead, with a library built from its sources, libfa3.so, and fa3.py, which calls it:

    load(path)                                      the library
    Forward(torch, library, q, k, v, out, causal)   the problem; calling it fills out
    Backward(torch, library, q, k, v, out, lse, dout, causal, deterministic)    calling it returns
                                                    dq, dk, dv
    Packed(torch, library, q, k, v, begins, longest, causal, dout)    packed sequences, where the
                                                    library has them: forward() returns out,
                                                    backward() dq, dk, dv of the last forward()

Tensors are [batch, heads, rows, head_dim], and lse is [batch, heads, rows] in natural logarithms;
those of packed sequences [tokens, heads, head_dim].
"""

from __future__ import annotations

import importlib.util
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

FOLDER = "FLASHCORE_FA3"


class Library:
    """A build without torch, driven through ctypes. It has bf16 alone."""

    def __init__(self, torch: Any, folder: Path):
        spec = importlib.util.spec_from_file_location("fa3", folder / "fa3.py")
        if spec is None or spec.loader is None or not (folder / "fa3.py").is_file():
            sys.exit(
                f"{FOLDER}={folder}: that folder has no fa3.py; "
                "benchmarks/fa3_peer.py says what it holds"
            )
        self._driver = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(self._driver)
        self._torch, self._library = torch, self._driver.load(str(folder / "libfa3.so"))

    def takes(self, dtype: str, head_dim: int) -> bool:
        return dtype == "bf16" and head_dim in (64, 96, 128, 256)

    def forward(self, q: Any, k: Any, v: Any, causal: bool) -> Callable[[], Any]:
        out = self._torch.empty_like(q)
        queue = self._driver.Forward(self._torch, self._library, q, k, v, out, causal)

        def run() -> Any:
            queue()
            return out

        return run

    def backward(self, arrays: list[Any], causal: bool, deterministic: bool) -> Callable[[], Any]:
        """Of q, k, v, out, lse, dout."""
        build: Callable[[], Any] = self._driver.Backward(
            self._torch, self._library, *arrays, causal, deterministic
        )
        return build

    @property
    def packs(self) -> bool:
        return hasattr(self._driver, "Packed")

    def packed(
        self, arrays: list[Any], begins: Any, longest: int, causal: bool, dout: Any
    ) -> tuple[Callable[[], Any], Callable[[], Any]]:
        """The passes of q, k and v; the backward one is of the last forward one."""
        arrays = [x.detach() for x in arrays]
        problem = self._driver.Packed(
            self._torch, self._library, *arrays, begins, longest, causal, dout
        )
        return problem.forward, problem.backward


class Package:
    """flash_attn_interface, of the sources of FlashAttention-3; rows come before heads."""

    def __init__(self, module: Any):
        self._module = module

    def takes(self, dtype: str, head_dim: int) -> bool:
        return head_dim in (64, 96, 128, 192, 256)

    def forward(self, q: Any, k: Any, v: Any, causal: bool) -> Callable[[], Any]:
        q, k, v = (x.transpose(1, 2) for x in (q, k, v))

        def run() -> Any:
            found = self._module.flash_attn_func(q, k, v, causal=causal)
            out = found[0] if isinstance(found, tuple) else found
            return out.transpose(1, 2)

        return run

    def backward(self, arrays: list[Any], causal: bool, deterministic: bool) -> Callable[[], Any]:
        q, k, v = (x.detach().transpose(1, 2).requires_grad_() for x in arrays[:3])
        dout = arrays[5].transpose(1, 2)
        found = self._module.flash_attn_func(q, k, v, causal=causal, deterministic=deterministic)
        out = found[0] if isinstance(found, tuple) else found

        def run() -> Any:
            import torch

            return torch.autograd.grad(out, (q, k, v), dout, retain_graph=True)

        return run

    packs = True

    def packed(
        self, arrays: list[Any], begins: Any, longest: int, causal: bool, dout: Any
    ) -> tuple[Callable[[], Any], Callable[[], Any]]:
        import torch

        bounds = (begins, begins, longest, longest)

        def forward() -> Any:
            found = self._module.flash_attn_varlen_func(*arrays, *bounds, causal=causal)
            return found[0] if isinstance(found, tuple) else found

        out = forward()
        return forward, lambda: torch.autograd.grad(out, arrays, dout, retain_graph=True)


def find_fa3(torch: Any) -> Library | Package | None:
    """None where it is not installed; a folder without it ends the program with a plain message."""
    if folder := os.environ.get(FOLDER):
        return Library(torch, Path(folder))
    if importlib.util.find_spec("flash_attn_interface"):
        return Package(importlib.import_module("flash_attn_interface"))
    return None
