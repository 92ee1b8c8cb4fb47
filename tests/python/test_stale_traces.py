"""What a trace read is watched, and a number that keeps changing becomes an argument."""

import functools
import gc
import importlib
import sys
import timeit
import types
import weakref

import ml_dtypes
import numpy as np
import pytest

import flashcore
from flashcore.interfaces import functional
from flashcore.specs.expression import as_mask, as_score
from flashcore.tracing import trace as tracing

rng = np.random.default_rng(0)
q, k, v = rng.standard_normal((3, 1, 2, 40, 16)).astype(ml_dtypes.bfloat16)

WINDOW = 3
TABLE = {"window": 3, "others": [1, 2]}


class Config:
    window = 3
    slopes = np.array([1.0, 2.0])


def text(function):
    return as_mask(function).text


def test_attributes_of_objects():
    class Layer:
        def __init__(self):
            self.window = 3
            self.config = types.SimpleNamespace(window=4)

        @property
        def reach(self):
            return self.window + self.config.window

        def mask(self, b, h, q, k):
            return q - k <= self.reach

    layer = Layer()
    assert text(layer.mask) == "q_idx - kv_idx <= 7"
    assert as_mask(layer.mask) is as_mask(layer.mask)
    layer.window = 5
    assert text(layer.mask) == "q_idx - kv_idx <= 9"
    layer.config.window = 1
    assert text(layer.mask) == "q_idx - kv_idx <= 6"
    layer.config = types.SimpleNamespace(window=4)
    assert text(layer.mask) == "q_idx - kv_idx <= 9"

    def outside(b, h, q, k):
        return k < layer.window

    assert text(outside) == "kv_idx < 5"
    layer.window = 6
    assert text(outside) == "kv_idx < 6"


def test_what_is_not_read_is_not_watched():
    layer = types.SimpleNamespace(window=3, step=0, table=list(range(5)))

    def mask(b, h, q, k):
        return q - k <= layer.window + layer.table[2]

    made = as_mask(mask)
    layer.step = 1
    layer.table[0] = 9
    assert as_mask(mask) is made
    layer.table[2] = 0
    assert text(mask) == "q_idx - kv_idx <= 3"


def test_entries_of_containers(monkeypatch):
    entries = [1, [2, 3], {"a": 4}]

    def mask(b, h, q, k):
        return k < entries[0] + sum(entries[1]) + entries[2]["a"] + TABLE["window"]

    assert text(mask) == "kv_idx < 13"
    entries[1].append(10)
    assert text(mask) == "kv_idx < 23"
    entries[2]["a"] = 5
    assert text(mask) == "kv_idx < 24"
    monkeypatch.setitem(TABLE, "window", 0)
    assert text(mask) == "kv_idx < 21"

    def asked(b, h, q, k):
        return k < (2 if TABLE.get("more") is None else 7) + len(TABLE["others"])

    assert text(asked) == "kv_idx < 4"
    monkeypatch.setitem(TABLE, "more", 1)
    assert text(asked) == "kv_idx < 9"


def test_classes_and_modules(monkeypatch, tmp_path):
    def mask(b, h, q, k):
        return q - k <= Config.window

    def score(s, b, h, q, k):
        return s + Config.slopes[h]

    assert text(mask) == "q_idx - kv_idx <= 3"
    monkeypatch.setattr(Config, "window", 8)
    assert text(mask) == "q_idx - kv_idx <= 8"
    assert as_score(score).text == "score + slopes[h]"

    (tmp_path / "my_settings.py").write_text("import numpy as np\nwindow = 2\nbias = np.ones(3)\n")
    monkeypatch.syspath_prepend(tmp_path)
    settings = importlib.import_module("my_settings")

    def theirs(s, b, h, q, k):
        return s + settings.bias[h] * settings.window

    assert as_score(theirs).text == "score + bias[h] * 2"
    settings.window = 4
    assert as_score(theirs).text == "score + bias[h] * 4"
    settings.bias = np.ones(3, np.float32)
    assert as_score(theirs).tensors[0].dtype == "f32"
    del sys.modules["my_settings"]


def test_arrays_without_dimensions_and_elements(monkeypatch):
    lone, table = np.array(3), np.array([5, 6])

    def mask(b, h, q, k):
        return k < lone + table[1]

    assert text(mask) == "kv_idx < 9"
    lone[...] = 4
    assert text(mask) == "kv_idx < 10"
    table[1] = 0
    assert text(mask) == "kv_idx < 4"


def test_what_the_function_writes_itself_is_not_watched():
    class Counter:
        calls = 0

    counter = Counter()

    def mask(b, h, q, k):
        counter.calls += 1
        return q >= k

    assert as_mask(mask) is as_mask(mask)
    assert counter.calls == 1


def test_traces_for_values_that_go_back_and_forth_are_kept():
    layer = types.SimpleNamespace(window=3)

    def mask(b, h, q, k):
        return q - k <= layer.window

    first = as_mask(mask)
    layer.window = 5
    second = as_mask(mask)
    layer.window = 3
    assert as_mask(mask) is first
    layer.window = 5
    assert as_mask(mask) is second


class TestArguments:
    def test_a_closure_number_that_changes_becomes_an_argument(self):
        functional.clear()
        offset = 0

        def mask(b, h, q, k):
            return q + offset >= k

        for offset in range(0, 12):
            out = flashcore.attention(q, k, v, mask=mask).astype(float)
            exact = flashcore.attention(
                q, k, v, mask=flashcore.dense_mask(np.tri(40, k=offset, dtype=bool))
            )
            np.testing.assert_array_equal(out, exact.astype(float))
        assert text(mask) == "q_idx + offset >= kv_idx"
        assert [(t.dtype, t.rank) for t in as_mask(mask).tensors] == [("i32", 0)]
        assert as_mask(mask).arrays == (11,)
        assert len(functional._kernels) == 2 + 1 + 1  # constants, the argument, the dense mask

    def test_also_where_the_function_is_made_anew(self):
        def after(offset, gain):
            return (
                lambda b, h, q, k: q + offset >= k,
                functools.partial(lambda gain, s, b, h, q, k: s * gain + h, gain),
            )

        texts = {tuple(f(x).text for f, x in zip((as_mask, as_score), after(i, i / 4), strict=True))
                 for i in range(6)}  # fmt: skip
        assert len(texts) == 3
        assert ("q_idx + offset >= kv_idx", "score * gain + h") in texts
        mask, score = after(9, 0.5)
        assert as_mask(mask).arrays == (9,)
        assert as_score(score).arrays == (0.5,)

    def test_bounds_of_loops_follow_from_it(self):
        layer = types.SimpleNamespace(left=0, right=0)

        def mask(b, h, q, k):
            return (q - k <= layer.left) & (k - q <= layer.right)

        for layer.left in range(4):
            as_mask(mask)
        for layer.right in range(4):
            as_mask(mask)
        kernel = flashcore.jit(flashcore.AttentionSpec(head_dim=64, mask=mask), target="sm_80")
        bounds = kernel.explain()
        assert "bounded: kv_idx >= q_idx - left" in bounds
        assert "scanned" not in bounds
        wide = rng.standard_normal((3, 1, 2, 300, 64)).astype(ml_dtypes.bfloat16)
        layer.left, layer.right = 20, 3
        out = flashcore.attention(*wide, mask=mask).astype(float)
        exact = flashcore.attention(*wide, mask=flashcore.sliding_window(20, 3, "top_left"))
        np.testing.assert_array_equal(out, exact.astype(float))

    def test_numbers_that_are_needed_while_tracing_stay_constants(self):
        layer = types.SimpleNamespace(count=1, offset=0)

        def mask(b, h, q, k):
            seen = q >= k + layer.offset
            for i in range(layer.count):
                seen = seen | (k == i)
            return seen

        for i in range(1, 6):
            layer.count = layer.offset = i
            found = text(mask)
        assert found.count("==") == 5
        assert "offset" in found

    def test_combined_saved_and_given_anew(self):
        offset = 0

        def mask(b, h, q, k):
            return k <= q + offset

        for offset in range(4):  # noqa: B007
            made = as_mask(mask)
        both = made & flashcore.sliding_window(9, None, "top_left")
        spec = flashcore.AttentionSpec(head_dim=16, mask=both)
        again = flashcore.AttentionSpec.from_json(spec.to_json())
        expected = flashcore.attention(q, k, v, mask=flashcore.sliding_window(9, 3, "top_left"))
        for kernel, captured in (
            (flashcore.jit(spec), None),
            (flashcore.jit(again), {"offset": 3}),
        ):
            out = kernel(q, k, v, captured=captured)
            assert (out == expected).all()
        with pytest.raises(flashcore.SpecError, match="it needs offset"):
            flashcore.jit(again)(q, k, v)
        for wrong in (2.5, np.zeros(3), "3", 2**31, True):
            with pytest.raises(flashcore.SpecError, match="the captured number offset = "):
                flashcore.jit(again)(q, k, v, captured={"offset": wrong})

    def test_a_number_that_does_not_fit_any_more_is_refused(self):
        offset = 0

        def mask(b, h, q, k):
            return k <= q + offset

        for offset in range(4):  # noqa: B007
            as_mask(mask)
        offset = 2**31
        with pytest.raises(flashcore.SpecError, match="32 bits"):
            as_mask(mask)
        offset = 0.5
        assert text(mask) == "kv_idx <= q_idx + 0.5" or as_mask(mask).tensors[0].dtype == "f32"


class TestTorch:
    @pytest.fixture
    def torch(self):
        return pytest.importorskip("torch")

    def test_buffers_and_parameters_that_are_replaced(self, torch):
        class Layer(torch.nn.Module):
            def __init__(self):
                super().__init__()
                self.window = 3
                self.register_buffer("slopes", torch.ones(2))
                self.inner = torch.nn.Linear(2, 2, dtype=torch.bfloat16)

            def score(self, s, b, h, q, k):
                return s + self.slopes[h] * self.inner.weight[h, 0] * self.window

        layer = Layer()
        made = as_score(layer.score)
        assert made.text == "score + slopes[h] * weight[h, 0] * 3"
        assert as_score(layer.score) is made
        other = {name: value.clone() for name, value in layer.state_dict().items()}
        layer.load_state_dict(other, assign=True)
        again = as_score(layer.score)
        assert again is not made
        assert [a.data_ptr() for a in again.arrays] == [
            layer.slopes.data_ptr(), layer.inner.weight.data_ptr()
        ]  # fmt: skip
        layer.window = 5
        assert as_score(layer.score).text == "score + slopes[h] * weight[h, 0] * 5"

    def test_numbers_and_what_is_computed_of_tensors(self, torch):
        offset, table = torch.tensor(1), torch.ones(4)

        def mask(b, h, q, k):
            return q + offset >= k

        def score(s, b, h, q, k):
            return s + table.sum() + table.double()[h] + table[0]

        assert text(mask) == "q_idx + 1 >= kv_idx"
        offset.add_(1)
        assert text(mask) == "q_idx + 2 >= kv_idx"
        offset.add_(1)
        assert text(mask) == "q_idx + offset >= kv_idx"
        made = as_mask(mask)
        offset.add_(1)
        assert as_mask(mask).key == made.key
        assert as_mask(mask).arrays == (4,)
        first = as_score(score)
        assert first.text.startswith("score + 4.0")
        assert as_score(score) is first
        table.mul_(2)
        second = as_score(score)
        assert second.text.startswith("score + 8.0")
        assert second.arrays[0].tolist() == [2.0] * 4


def test_functions_are_not_kept_alive():
    class Layer:
        def __init__(self):
            self.window = 3
            self.mask = lambda b, h, q, k: q - k <= self.window

    layer = Layer()
    as_mask(layer.mask)
    gone = weakref.ref(layer.mask)
    del layer.mask
    gc.collect()
    assert gone() is None


def test_kernels_and_traces_that_are_kept_are_bounded(monkeypatch):
    functional.clear()
    monkeypatch.setattr(functional, "_MOST_KERNELS", 3)
    functions = [flashcore.sliding_window(i) for i in range(5)]
    for mask in [*functions[:3], functions[0], *functions[3:]]:
        flashcore.attention(q, k, v, mask=mask)
    kept = [kernel.spec.mask.text for kernel in functional._kernels.values()]
    assert kept == [functions[i].text for i in (0, 3, 4)]
    functional.clear()
    monkeypatch.setattr(tracing, "_MOST", 4)
    made = [eval(f"lambda b, h, q, k: q >= k + {i}") for i in range(20)]
    for function in made:
        as_mask(function)
    assert len(tracing._traces) <= 4


def test_watching_costs_little():
    layer = types.SimpleNamespace(window=3, config=types.SimpleNamespace(more=2))
    ids = np.zeros(40, np.int32)

    def mask(b, h, q, k):
        return (q - k <= layer.window + layer.config.more) & (ids[q] == ids[k]) & (k < WINDOW)

    as_mask(mask)
    [known] = tracing._traces[mask]["mask", None]
    once = min(timeit.repeat(known.watch.holds, number=1000, repeat=20)) / 1000
    assert once < 5e-6  # 0.5 us where nothing else runs
