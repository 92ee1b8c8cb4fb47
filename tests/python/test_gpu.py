"""Kernels on a real GPU, beside torch. Skipped where there is none."""

import numpy as np
import pytest

import flashcore as fc
from flashcore.ahead_of_time import reach
from reference import assert_close

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU")


@pytest.fixture(autouse=True)
def no_kernel_for_other_lengths_serves():
    fc.set_compile_mode("eager")
    yield
    fc.set_compile_mode(None)


@pytest.fixture(scope="module")
def kernel():
    return fc.jit(fc.AttentionSpec(head_dim=64, mask=fc.causal()))


def qkv(heads=2, kv_heads=2, length=300, dim=64, dtype="bfloat16", layout="bhsd"):
    torch.manual_seed(0)

    def tensor(count):
        shape = (2, count, length, dim) if layout == "bhsd" else (2, length, count, dim)
        return torch.randn(shape, device="cuda", dtype=getattr(torch, dtype))

    return tensor(heads), tensor(kv_heads), tensor(kv_heads)


def host(tensor):
    import ml_dtypes

    tensor = tensor.detach().cpu()
    if tensor.dtype == torch.bfloat16:
        return tensor.view(torch.int16).numpy().view(ml_dtypes.bfloat16)
    return tensor.numpy()


@pytest.mark.parametrize("layout", ["bhsd", "bshd"])
@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
@pytest.mark.parametrize("dim", [64, 128])
def test_values(dim, dtype, layout):
    tensors = qkv(4, 2, dim=dim, dtype=dtype, layout=layout)
    out, lse = fc.attention(*tensors, mask=fc.causal(), layout=layout, return_lse=True)
    assert out.is_cuda
    assert out.dtype == tensors[0].dtype
    assert_close(
        host(out), host(lse), *map(host, tensors), mask="causal(bottom_right)", layout=layout
    )


def test_the_gpu_and_the_emulator_agree(kernel):
    tensors = qkv(length=70)
    on_gpu = kernel(*tensors).cpu().float()
    emulated = kernel(*(x.cpu() for x in tensors)).float()
    assert (on_gpu - emulated).abs().max() < 0.02


def test_work_is_queued_on_the_current_stream(kernel):
    q, k, v = qkv()
    expected = kernel(q, k, v)
    stream = torch.cuda.Stream()
    late = torch.zeros_like(q)
    with torch.cuda.stream(stream):
        torch.cuda._sleep(50_000_000)  # long enough that another stream would read zeros
        late.copy_(q)
        out = kernel(late, k, v)
    stream.synchronize()
    assert torch.equal(out, expected)


def test_a_graph_replays_the_launch(kernel):
    q, k, v = qkv()
    out = torch.zeros_like(q)
    kernel(q, k, v, out=out)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        kernel(q, k, v, out=out)
    q.copy_(torch.randn_like(q))
    graph.replay()
    torch.cuda.synchronize()
    assert torch.equal(out, kernel(q, k, v))


def test_loading_during_capture_is_refused():
    fresh = fc.jit(fc.AttentionSpec(head_dim=72))
    q, k, v = qkv(dim=72)
    out = torch.zeros_like(q)
    refused = None
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        q.add_(0)
        try:
            fresh(q, k, v, out=out)
        except fc.DeviceError as error:
            refused = error
    assert refused is not None
    assert "prepare(" in refused.fix
    fresh.prepare(lengths=300, lse=False)
    assert_close(host(fresh(q, k, v)), None, *map(host, (q, k, v)))


@pytest.mark.parametrize("mask", [None, fc.causal(), fc.sliding_window(100, 0)])
@pytest.mark.parametrize("dim", [64, 128, 256])
def test_what_is_prepared_is_captured_without_a_launch_before(dim, mask):
    spec = fc.AttentionSpec(head_dim=dim, mask=mask or fc.full())
    kernel = fc.jit(spec)
    kernel.prepare(lengths=(1, 5000), batch=(1, 16), heads=(1, 16))
    rng = np.random.default_rng(dim)
    launched = set()
    for _ in range(24):
        batch, heads, length = (int(2 ** rng.uniform(0, top)) for top in (4, 4, 12))
        q, k, v = torch.randn(3, batch, heads, length, dim, device="cuda", dtype=torch.bfloat16)
        out = torch.zeros_like(q)
        graph = torch.cuda.CUDAGraph()
        lse = bool(rng.integers(2))
        with torch.cuda.graph(graph):
            kernel(q, k, v, out=out, return_lse=lse)
        graph.replay()
        torch.cuda.synchronize()
        again = kernel(q, k, v, return_lse=lse)
        assert torch.equal(out, again[0] if lse else again)
        launched.add(kernel.variant(q, k, with_lse=lse))
    assert len(launched) > (2 if kernel.target == "sm_90a" else 1)


MASKS = {
    "full": fc.full(),
    "causal(bottom_right)": fc.causal(),
    "window": fc.sliding_window(100, 0),
}


def window(b, h, rows, cols):
    return (cols <= rows) & (rows - cols <= 100)


@pytest.mark.parametrize("name", MASKS)
@pytest.mark.parametrize("dim", [32, 64, 96, 128, 192, 256])
def test_every_shipped_schedule_is_captured_after_prepare_alone(dim, name):
    mask = MASKS[name]
    kernel = fc.jit(fc.AttentionSpec(head_dim=dim, mask=mask))
    kernel.prepare()
    fc.freeze()
    try:
        every = reach.build_kernels(kernel, reach.read_ranges(), None)
        q, k, v = qkv(length=333, dim=dim)
        captured = [torch.zeros_like(q) for _ in every]
        for made, out in zip(every, captured, strict=True):
            lse = (torch.zeros(q.shape[:3], device="cuda"),) if made.spec.lse else ()
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph):
                made._launch((q, k, v, out, *lse), (dim**-0.5,), None)
            graph.replay()
        how = {"mask": window if name == "window" else name}
        assert_close(host(captured[0]), None, *map(host, (q, k, v)), **how)
        for made, out in zip(every, captured, strict=True):
            assert (out.float() - captured[0].float()).abs().max() < 0.02, made.schedule
    finally:
        fc.freeze(False)
    assert {made.spec.lse for made in every} == {False, True}


@pytest.mark.parametrize("dim", [64, 128])
@pytest.mark.parametrize("mask", [fc.full(), fc.causal()])
def test_code_compiled_fast_computes_the_numbers_of_the_optimised(dim, mask):
    # A number of its own makes a kernel that no cache has. sm_90 has kernels that hand no
    # registers on, and so are compiled fast.
    cap = float(np.random.default_rng().uniform(20, 40))
    fc.set_compile_mode("tiered")
    try:
        kernel = fc.jit(
            fc.AttentionSpec(head_dim=dim, mask=mask, score=fc.softcap(cap)), target="sm_90"
        )
        assert not kernel.is_optimised
        code, text = kernel.cubin, kernel.source
        q, k, v = qkv(4, 4, length=777, dim=dim)
        kernel.prepare(lse=False)
        graph, captured = torch.cuda.CUDAGraph(), torch.zeros_like(q)
        with torch.cuda.graph(graph):
            kernel(q, k, v, out=captured)
        graph.replay()
        kernel.wait_until_optimised()
        assert kernel.cubin != code
        optimised = kernel(q, k, v)
        if kernel.source == text:
            assert torch.equal(captured, optimised)
        else:  # the optimised code spills: another schedule's takes its place
            assert dim == 128
            assert (captured.float() - optimised.float()).abs().max() < 0.02
        fast = captured.clone()
        captured.zero_()
        graph.replay()  # of the code that was in place when it was captured
        torch.cuda.synchronize()
        assert torch.equal(captured, fast)
    finally:
        fc.set_compile_mode(None)


@pytest.mark.skipif(fc._core.gpu_target() != "sm_90a", reason="one kernel serves all lengths")
def test_another_kernel_serves_until_the_best_is_compiled():
    fc.set_compile_mode("allow")
    cap = float(np.random.default_rng().uniform(20, 40))  # a kernel that no cache has
    kernel = fc.jit(fc.AttentionSpec(head_dim=64, mask=fc.causal(), score=fc.softcap(cap)))
    q, k, v = qkv(length=100)
    out, captured = kernel(q, k, v), torch.zeros_like(q)
    assert not kernel.is_optimised
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):  # what served the call before
        kernel(q, k, v, out=captured)
    kernel.wait_until_optimised()
    best = kernel(q, k, v)
    assert kernel.is_optimised
    assert (best.float() - out.float()).abs().max() < 0.02
    graph.replay()
    torch.cuda.synchronize()
    assert torch.equal(captured, out)


@pytest.mark.skipif(fc._core.gpu_target() != "sm_90a", reason="one kernel serves all lengths")
def test_compiling_during_capture_is_refused():
    # One kernel for many blocks, which jit compiles, and another for few.
    kernel = fc.jit(fc.AttentionSpec(head_dim=64, score=fc.softcap(29.5)), target="sm_90a")
    q, k, v = qkv(dim=64)
    out = torch.zeros_like(q)
    refused = None
    with torch.cuda.graph(torch.cuda.CUDAGraph()):
        q.add_(0)
        try:
            kernel(q, k, v, out=out)
        except fc.DeviceError as error:
            refused = error
    assert refused is not None
    assert "compiling during the capture" in refused.why
    assert "prepare(" in refused.fix


@pytest.mark.parametrize("layout", ["bhsd", "bshd"])
def test_a_split_call_finds_its_kernels_without_python(layout):
    kernel = fc.jit(fc.AttentionSpec(head_dim=64, heads=8, kv_heads=2, layout=layout))
    kernel.prepare(lengths=(1, 4096), q_lengths=(1, 4), batch=2, heads=8)
    _, k, v = qkv(8, 2, length=4000, layout=layout)
    for rows in (1, 3):
        q = qkv(8, 2, length=rows, layout=layout)[0]
        dispatch = kernel._dispatch(False).core
        multiprocessors = torch.cuda.get_device_properties(0).multi_processor_count
        wanted = dispatch.alternative((2, 8, rows, 4000), multiprocessors)
        assert wanted is not None
        assert dispatch.has_alternative(wanted)
        first = kernel(q, k, v)
        again = kernel._quick(q, k, v, *[None] * 10, False)
        out, lse = kernel(q, k, v, return_lse=True)
        quick, quick_lse = kernel._quick(q, k, v, *[None] * 10, True)
        assert torch.equal(quick, out)
        assert torch.equal(quick_lse, lse)
        assert torch.equal(first, again)
        assert_close(host(again), host(quick_lse), *map(host, (q, k, v)), layout=layout)


def by_python_twice(kernel, *arguments, **lengths):
    """The first call compiles, for so long that the next one looks for winners of tuning again,
    which no call past Python does."""
    call = type(kernel).__call__
    first = call(kernel, *arguments, **lengths)
    assert torch.equal(first, call(kernel, *arguments, **lengths))
    return first


@pytest.mark.parametrize("rows", [1, 70])
def test_lengths_of_sequences_go_past_python(rows):
    """Padded keys and packed sequences, split keys among them: the same bits as by Python."""
    fields = {"head_dim": 64, "heads": 8, "kv_heads": 2, "mask": fc.causal()}
    _, k, v = qkv(8, 2, length=4000)
    q = qkv(8, 2, length=rows)[0]
    lens = torch.tensor([4000, 1234], dtype=torch.int32, device="cuda")
    fc.set_compile_mode("eager")  # no call is served by another kernel
    try:
        padded = fc.jit(fc.AttentionSpec(**fields, kv_lens=True))
        by_python = by_python_twice(padded, q, k, v, kv_lens=lens)
        assert torch.equal(padded._quick(q, k, v, *[None] * 7, lens, None, None, False), by_python)
        for b, n in enumerate(lens.tolist()):
            one = (x[b : b + 1, :, :n] for x in (k, v))
            assert_close(host(by_python[b : b + 1]), None, host(q[b : b + 1]), *map(host, one),
                         mask="causal(bottom_right)")  # fmt: skip

        packed = fc.jit(fc.AttentionSpec(**fields, layout="thd"))
        q, k, v = (x[0].transpose(0, 1).contiguous() for x in (q, k, v))
        starts = torch.tensor([0, rows // 3, rows], dtype=torch.int32, device="cuda")
        keys = torch.tensor([0, 1000, 4000], dtype=torch.int32, device="cuda")
        own = {"cu_seqlens_q": starts, "cu_seqlens_k": keys}
        for longest in (None, rows, 10_000):
            by_python = by_python_twice(packed, q, k, v, **own, max_q_len=longest)
            quick = packed._quick(q, k, v, *[None] * 3, starts, keys, longest, *[None] * 4, False)
            assert torch.equal(quick, by_python)
        alone = by_python_twice(packed, k.repeat(1, 4, 1), k, v, cu_seqlens_q=keys)
        quick = packed._quick(k.repeat(1, 4, 1), k, v, *[None] * 3, keys, *[None] * 6, False)
        assert torch.equal(quick, alone)
    finally:
        fc.set_compile_mode(None)
