"""torch.compile, torch.export and fake tensors see a call as one operator, or stop at it."""

import os
import subprocess
import sys

import numpy as np
import pytest

import flashcore as fc
from flashcore import flash_attn

torch = pytest.importorskip("torch")

from torch._subclasses.fake_tensor import FakeTensorMode  # noqa: E402
from torch.fx.experimental.proxy_tensor import make_fx  # noqa: E402

OPERATOR = "flashcore.attention"
WINDOW = 8


@pytest.fixture(autouse=True)
def fresh():
    torch._dynamo.reset()


@pytest.fixture(scope="module")
def causal():
    return fc.jit(fc.AttentionSpec(head_dim=64, mask=fc.causal()))


def random(*shape):
    return torch.randn(shape, generator=torch.Generator().manual_seed(0)).bfloat16()


def causal_function(b, h, q_idx, kv_idx):
    return torch.logical_not(q_idx < kv_idx)


def window_function(b, h, q_idx, kv_idx):
    return q_idx - kv_idx < WINDOW


SLOPES = torch.tensor([0.5, 0.25])
MASK = torch.ones(1, 1, 1, 20)
ALIBI = fc.alibi(SLOPES)
DOCUMENTS = fc.documents(torch.zeros(20, dtype=torch.int64))
OF_NUMPY = fc.alibi(SLOPES.numpy())
KERNELS = {target: fc.jit(fc.AttentionSpec(head_dim=64), target) for target in ("sm_80", "sm_90a")}
PROBED = fc.jit(fc.AttentionSpec(head_dim=64), probe="row_sum")
IN_ONE_GRAPH = {
    "sdpa": lambda q: fc.sdpa(q * 2, q, q, is_causal=True) + 1,
    "sdpa with a mask": lambda q: fc.sdpa(q, q, q, attn_mask=MASK, scale=0.3) + 1,
    "attention": lambda q: fc.attention(q, q, q, return_lse=True)[1] + 1,
    "attention with arrays": lambda q: fc.attention(q, q, q, mask=DOCUMENTS, score=ALIBI),
    "attention with a function": lambda q: fc.attention(q, q, q, mask=causal_function) + 1,
    "attention with what is made in the graph": lambda q: fc.attention(
        q, q, q, mask=fc.sliding_window(4) & fc.causal() | fc.chunked(8), score=fc.softcap(30)
    ),
    "flash-attn's function": lambda q: flash_attn.flash_attn_func(
        q, q, q, causal=True, window_size=(3, 0), softcap=20.0
    ),
    "attention over lengths": lambda q: fc.attention(
        q, q, q, kv_lens=torch.full((1,), 7, dtype=torch.int32)
    ),
}


@pytest.mark.filterwarnings("ignore:Dynamo detected a call to a `functools.lru_cache`")
@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
@pytest.mark.parametrize("call", IN_ONE_GRAPH)
def test_one_graph(call, backend, dynamic):
    function, q = IN_ONE_GRAPH[call], random(1, 2, 20, 64)
    compiled = torch.compile(function, backend=backend, fullgraph=True, dynamic=dynamic)
    expected = function(q)
    result = compiled(q)
    assert torch.equal(result, expected)
    assert (result.dtype, result.stride()) == (expected.dtype, expected.stride())


@pytest.mark.parametrize("target", ["sm_80", "sm_90a"])
def test_one_graph_with_a_kernel_for_any_length(target):
    kernel = KERNELS[target]
    graphs = []

    def backend(graph, inputs):
        graphs.append(graph)
        return graph.forward

    compiled = torch.compile(
        lambda q, out: kernel(q + 1, q, q, out=out), backend=backend, fullgraph=True, dynamic=True
    )
    for length in (20, 33):
        q = random(1, 2, length, 64)
        out = torch.empty_like(q)
        assert compiled(q, out) is out
        assert torch.equal(out, kernel(q + 1, q, q))
    assert len(graphs) == 1
    assert OPERATOR in graphs[0].code


def test_a_layout_keeps_its_strides(causal):
    q = random(1, 20, 2, 64).transpose(1, 2)
    compiled = torch.compile(lambda q: fc.sdpa(q, q, q), backend="aot_eager", fullgraph=True)
    assert compiled(q).stride() == fc.sdpa(q, q, q).stride()


@pytest.mark.parametrize("dynamic", [False, True])
def test_a_causal_mask_of_torch_is_known_by_its_corner(dynamic):
    from torch.nn.attention.bias import causal_lower_right, causal_upper_left

    compiled = torch.compile(
        lambda q, k, mask: fc.sdpa(q * 2, k, k, attn_mask=mask) + 1,
        backend="eager", fullgraph=True, dynamic=dynamic,
    )  # fmt: skip
    for q_len, kv_len in ((5, 7), (7, 9)):
        q, k = random(1, 2, q_len, 64), random(1, 2, kv_len, 64)
        for make, align in ((causal_lower_right, "bottom_right"), (causal_upper_left, "top_left")):
            expected = fc.attention(q * 2, k, k, mask=fc.causal(align), large_scores=True) + 1
            assert torch.equal(compiled(q, k, make(q_len, kv_len)), expected)


def test_a_causal_mask_of_torch_may_be_made_in_the_function():
    from torch.nn.attention.bias import causal_lower_right

    q, k = random(1, 2, 5, 64), random(1, 2, 7, 64)
    compiled = torch.compile(
        lambda q, k: fc.sdpa(q, k, k, attn_mask=causal_lower_right(5, 7)) + 1, backend="eager"
    )
    assert torch.equal(
        compiled(q, k), fc.attention(q, k, k, mask=fc.causal(), large_scores=True) + 1
    )


def test_what_a_causal_mask_of_torch_does_not_go_with_is_refused_in_a_compiled_call():
    from torch.nn.attention.bias import causal_lower_right

    q, mask = random(1, 2, 5, 64), causal_lower_right(5, 7)
    compiled = torch.compile(lambda q, **how: fc.sdpa(q, q, q, mask, **how), backend="eager")
    with pytest.raises(fc.SpecError, match="lengths of"):
        compiled(q)
    with pytest.raises(fc.SpecError, match="it is a causal mask itself"):
        compiled(q, is_causal=True)


BREAKS = {
    "a function that reads": lambda q: fc.attention(q, q, q, mask=window_function),
    "an array of NumPy": lambda q: fc.attention(q, q, q, score=OF_NUMPY),
    "a stream": lambda q: KERNELS["sm_80"](q, q, q, stream=0),
    "a stream on sm_90a": lambda q: KERNELS["sm_90a"](q, q, q, stream=0),
    "probes": lambda q: PROBED(q, q, q)[0],
}


@pytest.mark.parametrize("call", BREAKS)
def test_the_graph_ends_and_the_call_runs(call):
    q = random(1, 2, 20, 64)

    def function(q):
        return BREAKS[call](q * 2) + 1

    compiled = torch.compile(function, backend="eager")
    assert torch.equal(compiled(q), function(q))
    torch._dynamo.reset()
    with pytest.raises(torch._dynamo.exc.Unsupported, match="flashcore runs this call"):
        torch.compile(function, backend="eager", fullgraph=True)(q)


def test_a_number_that_a_function_reads_may_change():
    global WINDOW
    q = random(1, 2, 20, 64)
    compiled = torch.compile(lambda q: fc.attention(q, q, q, mask=window_function), backend="eager")
    try:
        for WINDOW in (3, 8):  # noqa: PLW0603
            expected = fc.attention(q, q, q, mask=fc.sliding_window(WINDOW - 1, None))
            assert torch.equal(compiled(q), expected)
    finally:
        WINDOW = 8


def test_programs_end_the_graph():
    twice = fc.jit(
        fc.Program("""
program twice
axis rows: parallel_tiles R
axis cols: whole 8
input x: f32 [R, 8]
output y: f32 [R, 8]
{
  %x = load x[rows, cols] : f32[rows, cols]
  %y = add %x, %x : f32[rows, cols]
  store y[rows, cols], %y
}
"""),
        schedule=fc.Schedule(tiles={"rows": 16}),
    )
    x = torch.ones(4, 8)
    assert torch.equal(torch.compile(lambda x: twice(x=x + 1), backend="eager")(x), 4 * x)
    with FakeTensorMode() as mode, pytest.raises(fc.DeviceError, match="torch only watches"):
        twice(x=mode.from_tensor(x))


def gradient(call, q):
    return torch.autograd.grad(call(q), q, torch.ones_like(q))[0]


def test_a_compiled_call_has_gradients():
    q = random(1, 2, 20, 64).requires_grad_()
    torch._dynamo.reset()
    compiled = torch.compile(lambda q: fc.sdpa(2 * q, q, q), backend="eager")
    assert torch.equal(gradient(compiled, q), gradient(lambda q: fc.sdpa(2 * q, q, q), q))
    with torch.no_grad():
        assert torch.equal(compiled(q), fc.sdpa(2 * q, q, q))


def test_a_gradient_is_refused_by_the_operator(causal):
    q = random(1, 2, 20, 64)
    graph = make_fx(lambda q: causal(q, q, q))(q)
    with pytest.raises(fc.DeviceError, match="it requires a gradient"):
        graph(q.requires_grad_())


def test_the_operator_is_one_as_torch_wants_it(causal):
    q = random(1, 2, 20, 64)
    what = f"kernel@{causal._description}"
    no_lengths = [None] * 4
    for lse in (False, True):
        torch.library.opcheck(
            torch.ops.flashcore.attention.default,
            (q, q, q, what, "bhsd", [], *no_lengths, None, None, lse),
        )


def test_a_graph_means_the_same_where_the_kernel_is_gone():
    q = random(1, 2, 20, 64)

    def graph_and_result():
        kernel = fc.jit(fc.AttentionSpec(head_dim=64, mask=fc.sliding_window(5)))
        return make_fx(lambda q: kernel(q, q, q))(q), kernel(q, q, q)

    graph, expected = graph_and_result()
    assert OPERATOR in graph.code
    assert torch.equal(graph(q), expected)


def test_fake_tensors_give_shapes(causal):
    with FakeTensorMode() as mode:
        q = mode.from_tensor(random(2, 6, 20, 64))
        kv = mode.from_tensor(random(2, 6, 30, 64))
        for out in (causal(q, kv, kv), fc.sdpa(q, kv, kv), fc.attention(q, kv, kv[..., :32])):
            assert type(out) is type(q)
            assert out.shape[:-1] == q.shape[:-1]
            assert out.dtype == q.dtype
        out, lse = fc.attention(q, kv, kv, mask=causal_function, return_lse=True)
        assert (lse.shape, lse.dtype) == ((2, 6, 20), torch.float32)


def test_fake_tensors_beside_arrays_of_numpy():
    with FakeTensorMode(allow_non_fake_inputs=True) as mode:
        q = mode.from_tensor(random(1, 2, 20, 64))
        assert fc.sdpa(q, q, q, attn_mask=np.zeros((20, 20), np.float32)).shape == q.shape
        assert fc.attention(q, q, q, score=OF_NUMPY).shape == q.shape


def test_an_export_has_the_operator():
    class Model(torch.nn.Module):
        def forward(self, q):
            return fc.sdpa(q, q, q, is_causal=True)

    q = random(1, 2, 20, 64)
    length = torch.export.Dim("length", min=2, max=64)
    exported = torch.export.export(Model(), (q,), dynamic_shapes={"q": {2: length}})
    assert OPERATOR in exported.graph_module.code
    other = random(1, 2, 33, 64)
    assert torch.equal(exported.module()(other), fc.sdpa(other, other, other, is_causal=True))


def test_a_mode_that_watches_sees_the_operator(causal):
    seen = []

    class Watch(torch.utils._python_dispatch.TorchDispatchMode):
        def __torch_dispatch__(self, function, types, args=(), kwargs=None):
            seen.append(str(function))
            return function(*args, **kwargs or {})

    q = random(1, 2, 20, 64)
    with Watch():
        out = causal(q, q, q)
    assert f"{OPERATOR}.default" in seen
    assert torch.equal(out, causal(q, q, q))


def test_a_subclass_of_ones_own_is_kept(causal):
    class Named(torch.Tensor):
        pass

    q = random(1, 2, 20, 64)
    out = causal(q.as_subclass(Named), q, q)
    assert type(out) is Named
    assert torch.equal(out.as_subclass(torch.Tensor), causal(q, q, q))


def test_flashcore_may_come_before_torch():
    program = """
import flashcore as fc
import torch
q = torch.randn(1, 2, 20, 64).bfloat16()
compiled = torch.compile(lambda q: fc.sdpa(q, q, q) + 1, backend="eager", fullgraph=True)
print(torch.equal(compiled(q), fc.sdpa(q, q, q) + 1))
"""
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run(
        [sys.executable, "-c", program], env=environment, capture_output=True, text=True
    )
    assert (done.stdout, done.returncode) == ("True\n", 0), done.stderr


def test_numpy_needs_no_torch():
    program = """
import sys
import numpy as np
import flashcore as fc
fc.sdpa(*np.zeros((3, 1, 1, 4, 64), np.float16))
print("torch" in sys.modules)
"""
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run(
        [sys.executable, "-c", program], env=environment, capture_output=True, text=True
    )
    assert done.stdout == "False\n", done.stderr
    assert isinstance(fc.sdpa(*np.zeros((3, 1, 1, 4, 64), np.float16)), np.ndarray)


def test_a_call_is_told_in_one_line():
    # torch's compiler writes it into comments of the code that it makes.
    seen = []

    def backend(graph, inputs):
        seen.extend(a for node in graph.graph.nodes for a in node.args if isinstance(a, str))
        return graph.forward

    mask = fc.Mask("q_idx >=\n kv_idx")

    def calls(q):
        made = fc.sdpa(q, q, q, is_causal=True) + fc.attention(q, q, q, mask=mask)
        return made + KERNELS["sm_90a"](q, q, q)

    torch.compile(calls, backend=backend, fullgraph=True)(random(1, 2, 20, 64))
    assert len([text for text in seen if "@" in text]) == 3
    assert not any("\n" in text for text in seen)
