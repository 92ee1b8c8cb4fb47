"""What torch asks of a call on a real GPU, beside its own function. Skipped where there is none."""

import pytest

import flashcore as fc

torch = pytest.importorskip("torch")
pytestmark = [
    pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU"),
    pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors"),
]

theirs = torch.nn.functional.scaled_dot_product_attention


@pytest.fixture(autouse=True)
def no_kernel_for_other_lengths_serves():
    fc.set_compile_mode("eager")
    yield
    fc.set_compile_mode(None)


def random(*shape, dtype=torch.bfloat16):
    torch.manual_seed(0)
    return torch.randn(shape, device="cuda", dtype=dtype)


@pytest.mark.parametrize("mode", [None, "reduce-overhead"])
def test_compiled(mode):
    q = random(2, 4, 200, 64)
    kernel = fc.jit(fc.AttentionSpec(head_dim=64, mask=fc.causal()))

    def block(q):
        return fc.sdpa(q * 2, q, q, is_causal=True) + kernel(q, q, q).transpose(1, 2).transpose(
            1, 2
        )

    torch._dynamo.reset()
    compiled = torch.compile(block, mode=mode, fullgraph=True)
    with torch.no_grad():
        for _ in range(4):  # warm up, capture, replay
            result = compiled(q).clone()
        assert (result - block(q)).abs().max() < 0.05


def test_autocast():
    q = random(1, 2, 100, 64, dtype=torch.float32)
    with torch.autocast("cuda", dtype=torch.float16):
        out = fc.sdpa(q, q, q)
        assert out.dtype == theirs(q, q, q).dtype == torch.float16
        assert (out - theirs(q, q, q)).abs().max() < 0.01


def test_nested():
    parts = [random(n, 4, 64) for n in (90, 1, 200)]
    q = torch.nested.nested_tensor(parts, layout=torch.jagged).transpose(1, 2)
    out = fc.sdpa(q, q, q, is_causal=True)
    assert out.shape == q.shape
    with torch.no_grad():
        expected = theirs(q, q, q, is_causal=True)
    assert (out.values() - expected.values()).abs().max() < 0.05


def test_the_cuda_array_interface():
    class OnlyTheInterface:
        def __init__(self, tensor, **more):
            self.tensor, self.more = tensor, more
            self.shape = tuple(tensor.shape)

        @property
        def __cuda_array_interface__(self):
            return self.tensor.__cuda_array_interface__ | self.more

    q, out = random(1, 2, 100, 64, dtype=torch.float16), torch.zeros(1, 2, 100, 64).half().cuda()
    kernel = fc.jit(fc.AttentionSpec(head_dim=64, dtype="f16"))
    stream = torch.cuda.Stream()
    late = torch.zeros_like(q)
    torch.cuda.synchronize()
    with torch.cuda.stream(stream):
        torch.cuda._sleep(50_000_000)  # long enough that another stream would read zeros
        late.copy_(q)
    wrapped = OnlyTheInterface(late, version=3, stream=stream.cuda_stream)
    kernel(wrapped, OnlyTheInterface(q), OnlyTheInterface(q), out=OnlyTheInterface(out))
    torch.cuda.synchronize()
    assert (out - theirs(q, q, q)).abs().max() < 0.01


def test_arrays_of_two_places_are_refused():
    q = random(1, 2, 100, 64)
    with pytest.raises(fc.DeviceError, match="k is in CPU memory"):
        fc.sdpa(q, q.cpu(), q)
    out = torch.empty(1, 2, 200, 64, device="cuda", dtype=torch.bfloat16)
    with pytest.raises(fc.DeviceError, match="o shares memory with q"):
        fc.attention(out[:, :, :100], q, q, out=out[:, :, 50:150])


def test_a_training_step_in_a_graph():
    kernel = fc.jit(fc.AttentionSpec(head_dim=64, mask=fc.causal()))
    kernel.prepare(lengths=200, batch=2, heads=4, gradients=True)
    q = random(2, 4, 200, 64).requires_grad_()
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        for _ in range(2):  # autograd's own warm-up
            (expected,) = torch.autograd.grad(kernel(q, q, q).float().square().sum(), q)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, stream=stream):
        (found,) = torch.autograd.grad(kernel(q, q, q).float().square().sum(), q)
    found.fill_(float("nan"))
    graph.replay()
    torch.cuda.synchronize()
    assert torch.equal(found, expected)


@pytest.mark.parametrize("head_dim", [64, 128, 256])
def test_float32_in_full_accuracy(head_dim):
    """On Hopper by kernels that split q, k and v, in a graph as well."""
    q, k, v = random(3, 2, 4, 515, head_dim, dtype=torch.float32)
    exact = theirs(q.double(), k.double(), v.double(), is_causal=True)
    with torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.MATH):
        allowed = (theirs(q, k, v, is_causal=True) - exact).abs().max()
    out = fc.sdpa(q, k, v, is_causal=True)
    assert (out - exact).abs().max() <= 2 * allowed + 1e-7
    graph, again = torch.cuda.CUDAGraph(), torch.zeros_like(out)
    with torch.cuda.graph(graph):
        again.copy_(fc.sdpa(q, k, v, is_causal=True))
    graph.replay()
    assert torch.equal(again, out)


def test_a_batch_of_which_most_sequences_decode_in_a_graph():
    """Nothing compiles after `prepare`, and replays find other sequences to be the long ones."""
    spec = fc.AttentionSpec(
        head_dim=64, heads=32, kv_heads=8, layout="thd", mask=fc.causal(), kv_lens=True,
        page_size=16,
    )  # fmt: skip
    kernel = fc.jit(spec)
    kernel.prepare(batch=(1, 40), heads=32)
    fc.set_compile_mode("forbid")
    batch, longest, room = 40, 200, 1024
    reason = kernel.explain(batch=batch, heads=32, q_len=6, kv_len=room, max_q_len=longest)
    assert "of 40 sequences may have one query row" in reason
    assert "(chosen)" in reason
    k, v = random(2, batch * room // 16, 16, 8, 64)
    table = torch.randperm(len(k), device="cuda").int().view(batch, -1)
    q = random(longest + batch - 1, 32, 64)
    starts = torch.zeros(batch + 1, dtype=torch.int32, device="cuda")
    lens = torch.zeros(batch, dtype=torch.int32, device="cuda")
    out = torch.empty_like(q)

    def call():
        kernel(
            q, k, v, page_table=table, kv_lens=lens, cu_seqlens_q=starts, max_q_len=longest, out=out
        )

    def fill(rows):
        starts[1:] = torch.tensor(rows, device="cuda").cumsum(0)
        lens.copy_(torch.tensor([min(room, 250 + 20 * b) for b in range(batch)]))
        out.fill_(float("nan"))

    fill([longest] + [1] * (batch - 1))
    call()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        call()
    for rows in (
        [1] * (batch - 1) + [longest],
        [90, 4, 5, 0, 100] + [1] * (batch - 5),
        [1] * batch,
    ):
        fill(rows)
        graph.replay()
        first = out.clone()
        graph.replay()
        assert torch.equal(out[: sum(rows)], first[: sum(rows)])
        assert first[sum(rows) :].isnan().all()
        for b, n in enumerate(rows):
            at, keys = int(starts[b]), int(lens[b])
            pages = table[b, : -(-keys // 16)].long()
            own = [
                x[pages].flatten(0, 1)[:keys].transpose(0, 1).repeat_interleave(4, 0).double()
                for x in (k, v)
            ]
            query = q[at : at + n].transpose(0, 1).double()
            seen = torch.ones(n, keys, device="cuda", dtype=torch.bool).tril(keys - n)
            exact = theirs(query, *own, attn_mask=seen).transpose(0, 1)
            if n:
                assert (first[at : at + n] - exact).abs().max() < 2e-2, (b, n)
