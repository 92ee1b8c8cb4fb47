"""One build of FlashCore that times kernels on demand: the process behind compare_builds.py.

Commands are lines of JSON on standard input, answers lines of JSON on standard output. Which build
it is says PYTHONPATH: the first flashcore there. An argument names the target of forward kernels.
"""

from __future__ import annotations

import hashlib
import itertools
import json
import math
import os
import random
import sys
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from inspect import signature
from typing import Any

from flex_peer import variant
from gpu_timing import Timer, hear_warnings

SAMPLES = 4096  # elements of an output that the driver compares


@dataclass(frozen=True)
class Case:
    """One problem: a kind of mask or score (flex_peer.py), and its shape."""

    kind: str
    size: int
    dtype: str
    batch: int
    heads: int
    length: int
    head_dim: int
    backward: bool = False  # the gradients in place of the output
    packed: bool = False  # the sequences of the batch lie behind each other in one tensor
    padded: bool = False  # keys up to lengths of their own, a quarter of `length` or more

    @property
    def name(self) -> str:
        kind = f"{self.kind} {self.size}" if self.size else self.kind
        shape = f"B{self.batch} H{self.heads} S{self.length} D{self.head_dim}"
        traits = {"packed": self.packed, "padded": self.padded, "backward": self.backward}
        asked = "".join(f" {trait}" for trait, holds in traits.items() if holds)
        return f"{self.dtype} {shape} {kind}{asked}"

    @property
    def sequences(self) -> int:
        """How many lie in one tensor."""
        return self.batch if self.packed else 1


class Worker:
    def __init__(self, target: str | None) -> None:
        import torch

        import flashcore as fc

        self._torch, self._fc, self._timer = torch, fc, Timer(torch)
        self._target = target
        self._warnings = hear_warnings(fc)
        fc.set_compile_mode("eager")  # no other kernel serves meanwhile

    def _inputs(self, case: Case, sets: int) -> list[list[Any]]:
        dtype = self._torch.bfloat16 if case.dtype == "bf16" else self._torch.float16
        shape = (case.batch, case.heads, case.length, case.head_dim)
        if case.packed:
            shape = (case.batch * case.length, case.heads, case.head_dim)
        return [
            [self._torch.randn(shape, device="cuda", dtype=dtype) for _ in range(3)]
            for _ in range(sets)
        ]

    def _arguments(self, case: Case) -> dict[str, Any]:
        """Mask, score and layout, as those of a spec and of attention()."""
        fc, torch = self._fc, self._torch
        own = variant(fc, torch, case.kind, case.size, case.length, case.heads).arguments
        if case.padded:
            own["kv_lens"] = True
        return own | {"layout": "thd"} if case.packed else own

    def _lengths(self, case: Case) -> dict[str, Any]:
        """Where packed sequences begin, or how long padded ones are, as kernels take it."""
        if case.padded:
            draw = random.Random(case.length)
            own = [draw.randint(case.length // 4, case.length) for _ in range(case.batch)]
            return {"kv_lens": self._torch.tensor(own, dtype=self._torch.int32, device="cuda")}
        if not case.packed:
            return {}
        every = range(0, (case.batch + 1) * case.length, case.length)
        begins = self._torch.tensor(every, dtype=self._torch.int32, device="cuda")
        return {"cu_seqlens_q": begins, "cu_seqlens_k": begins, "max_q_len": case.length}

    def _spec(self, case: Case) -> Any:
        dtype = "f16" if case.dtype == "fp16" else case.dtype
        arguments = self._arguments(case)
        return self._fc.AttentionSpec(head_dim=case.head_dim, dtype=dtype, **arguments)

    def _kernel(self, case: Case) -> Any:
        return self._fc.jit(self._spec(case), target=self._target)

    def _gradients_code(self, case: Case) -> bytes:
        from flashcore.kernels.attention_backward import AttentionBackward

        spec = self._spec(case)
        backward = AttentionBackward(spec, self._fc.jit(spec).target)
        # In older builds the schedules depend on no length.
        own = {"length": case.length} if "length" in signature(backward.kernels).parameters else {}
        kernels = backward.kernels(compiled=True, **own)
        return b"".join(kernel.cubin for kernel in kernels.kernels)

    def compile(self, cases: list[Case]) -> dict[str, Any]:
        """Fills the cache of kernels, on all cores, with what the cases launch."""

        def build(case: Case) -> str | None:
            try:
                q, k, _ = self._inputs(case, 1)[0]
                self._kernel(case).variant(q, k, case.sequences)
                if case.backward:
                    self._gradients_code(case)
            except self._fc.Error as error:
                return str(error)
            return None

        with ThreadPoolExecutor(os.cpu_count()) as pool:
            built = zip(cases, pool.map(build, cases), strict=True)
            failed = [[case.name, why] for case, why in built if why]
        return {"failed": failed + [["a warning", why] for why in self._warnings]}

    def load(self, case: Case) -> dict[str, Any]:
        """Runs the case once; what its output holds, and the machine code that computed it."""
        self._torch.manual_seed(case.length + case.head_dim)
        elements = case.batch * case.heads * case.length * case.head_dim
        self._sets = self._timer.sets(4 * elements * 2)
        inputs = self._inputs(case, self._sets)
        if case.backward:
            code, made = self._load_backward(case, inputs)
        else:
            kernel, lengths = self._kernel(case), self._lengths(case)
            out = self._torch.full_like(inputs[0][0], math.nan)
            self._run = lambda index: kernel(*inputs[index], out=out, **lengths)
            self._run(0)
            code, made = kernel.variant(inputs[0][0], inputs[0][1], case.sequences).cubin, [out]
        step = max(1, elements // SAMPLES)
        seen = [x for each in made for x in each.flatten()[::step][:SAMPLES].float().tolist()]
        return {"code": hashlib.sha256(code).hexdigest(), "seen": seen}

    def _load_backward(self, case: Case, inputs: list[list[Any]]) -> tuple[bytes, Any]:
        """The machine code, and the gradients of the first inputs."""
        grad = self._torch.autograd.grad
        arguments = self._arguments(case) | self._lengths(case)
        for array in itertools.chain(*inputs):
            array.requires_grad_()
        outputs = [self._fc.attention(*each, **arguments) for each in inputs]
        dout = self._torch.randn_like(outputs[0])
        self._run = lambda index: grad(outputs[index], inputs[index], dout, retain_graph=True)
        return self._gradients_code(case), self._run(0)

    def time(self, budget_ms: float, sustained_ms: float) -> dict[str, Any]:
        """The case that was loaded last."""
        timer = Timer(self._torch, sustained_ms) if sustained_ms else self._timer
        return {"ms": timer.interleaved([self._run], budget_ms, self._sets)[0]}

    def answer(self, command: Mapping[str, Any]) -> dict[str, Any]:
        try:
            if command["do"] == "compile":
                return self.compile([Case(**case) for case in command["cases"]])
            if command["do"] == "load":
                return self.load(Case(**command["case"]))
            return self.time(command["budget_ms"], command["sustained_ms"])
        except Exception as error:  # the driver says in which case
            return {"error": f"{type(error).__name__}: {error}"}


def main() -> int:
    # What a library prints must not get among the answers.
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)
    worker = Worker(sys.argv[1] if len(sys.argv) > 1 else None)
    for line in sys.stdin:
        print(json.dumps(worker.answer(json.loads(line))), file=answers)
    return 0


if __name__ == "__main__":
    sys.exit(main())
