"""Kernels on a real GPU, beside torch. Skipped where there is none."""

import pytest

import flashcore as fc
from reference import assert_close

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU")


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
    assert "prepare()" in refused.fix
    fresh.prepare()
    assert_close(host(fresh(q, k, v)), None, *map(host, (q, k, v)))
