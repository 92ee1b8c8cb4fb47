"""One kernel whose blocks draw their tiles from a counter, on many streams at once and in graphs
that run at once, and in graphs that come and go: each launch computes every tile, to the same bits.

    python tests/gpu/streams.py
"""

from __future__ import annotations

import sys

import torch

import flashcore as fc

ROUNDS = 12
SCHEDULE = {
    "instruction": "wgmma",
    "copy": "tma",
    "tiles": {"rows": 128, "cols": 64},
    "warps_m": 8,
    "persistent": True,
    "outer_stages": 2,
    "tile_scheduler": "dynamic",
    "blocks_per_processor": 1,
}


CAPTURES = 600


def captured(*launches) -> torch.cuda.CUDAGraph:
    """Of a stream for each; they run at once."""
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        first = torch.cuda.current_stream()
        streams = [torch.cuda.Stream() for _ in launches]
        for stream, launch in zip(streams, launches, strict=True):
            stream.wait_stream(first)
            with torch.cuda.stream(stream):
                launch()
                launch()
            first.wait_stream(stream)
    return graph


def main() -> int:
    spec = fc.AttentionSpec(head_dim=64, mask=fc.causal())
    kernel = fc.jit(spec, schedule=SCHEDULE)
    q, k, v = (torch.randn(8, 32, 1024, 64, device="cuda", dtype=torch.bfloat16) for _ in range(3))
    expected, part = kernel(q, k, v), kernel(q[:1], k[:1], v[:1])
    wrong = []

    def check(what: str, outputs: list[torch.Tensor]) -> None:
        torch.cuda.synchronize()
        right = all(torch.equal(o, expected[: len(o)]) for o in outputs)
        print(f"{what}: {'right' if right else 'WRONG'}")
        if not right:
            wrong.append(what)

    check("again", [part, kernel(q, k, v)])
    for count in (1, 3, 32):
        streams = [torch.cuda.Stream() for _ in range(count)]
        outputs = [torch.zeros_like(q) for _ in range(ROUNDS)]
        torch.cuda.synchronize()
        for i in range(max(ROUNDS, count)):
            with torch.cuda.stream(streams[i % count]):
                kernel(q, k, v, out=outputs[i % ROUNDS])
                kernel(q[:1], k[:1], v[:1])
        check(f"{count} streams", outputs)
    outputs = [torch.zeros_like(q) for _ in range(4)]
    graphs = [captured(lambda o=o: kernel(q, k, v, out=o)) for o in outputs]
    streams = [torch.cuda.Stream() for _ in graphs]
    torch.cuda.synchronize()
    for _ in range(ROUNDS):
        for graph, stream in zip(graphs, streams, strict=True):
            with torch.cuda.stream(stream):
                graph.replay()
                kernel(q[:1], k[:1], v[:1])
    check("graphs", outputs)
    del graphs

    graph = captured(*(lambda o=o: kernel(q, k, v, out=o) for o in outputs))
    for output in outputs:
        output.zero_()
    for stream in streams:
        with torch.cuda.stream(stream):
            graph.replay()
    check("streams of one graph", outputs)

    for kept in (1, 40):  # at once
        output, graphs = torch.zeros_like(expected[:1]), []
        for _ in range(CAPTURES):
            graphs.append(captured(lambda o=output: kernel(q[:1], k[:1], v[:1], out=o)))
            del graphs[:-kept]
            graphs[0].replay()
        check(f"{CAPTURES} graphs, {kept} at once", [output])
    return len(wrong)


if __name__ == "__main__":
    sys.exit(main())
