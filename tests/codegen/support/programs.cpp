#include "tests/codegen/support/programs.h"

#include <string>

namespace flashcore {
namespace {

Extent named(const char* name) { return Extent(std::string(name)); }

}  // namespace

Program elementwise(int columns) {
  ProgramBuilder b("elementwise");
  const Axis rows = b.parallel_tiles("rows", named("N")), d = b.whole("d", columns);
  const Tensor x = b.input("x", DType::f16, {named("N"), columns});
  const Tensor bias = b.input("bias", DType::f32, {columns});
  const Tensor y = b.output("y", DType::f16, {named("N"), columns});
  const Tile scale = b.scalar("scale", DType::f32);
  store(y(rows, d),
        cast(tanh(cast(load(x(rows, d)), DType::f32) * scale) + load(bias(d)), DType::f16));
  return b.finish();
}

Program matrix_product(DType dtype, DType output) {
  ProgramBuilder b("matrix_product");
  const Axis m = b.parallel_tiles("m", named("M")), n = b.parallel_tiles("n", named("N"));
  const Axis k = b.tiles("k", named("K"));
  const Tensor a = b.input("a", dtype, {named("M"), named("K")});
  const Tensor bt = b.input("b", dtype, {named("N"), named("K")});
  const Tensor c = b.output("c", output, {named("M"), named("N")});
  const Tile sum = b.loop(k, b.fill({m, n}, 0).named("sum"), [&](const Tile& s) {
    return s + dot(load(a(m, k)), transpose(load(bt(n, k))));
  });
  store(c(m, n), output == DType::f32 ? sum : cast(sum, output));
  return b.finish();
}

Program transposed_product(bool transposed) {
  ProgramBuilder b("transposed_product");
  const Axis m = b.parallel_tiles("m", named("M")), n = b.parallel_tiles("n", named("N"));
  const Axis k = b.tiles("k", named("K"));
  const Tensor at = b.input("a", DType::f16, {named("K"), named("M")});
  const Extent rows = named(transposed ? "N" : "K"), columns = named(transposed ? "K" : "N");
  const Tensor bk = b.input("b", DType::f16, {rows, columns});
  const Tensor c = b.output("c", DType::f32, {named("M"), named("N")});
  store(c(m, n), b.loop(k, b.fill({m, n}, 0), [&](const Tile& s) {
    const Tile right = transposed ? transpose(load(bk(n, k))) : load(bk(k, n));
    return s + dot(transpose(load(at(k, m))), right);
  }));
  return b.finish();
}

Program grouped_product() {
  ProgramBuilder b("grouped_product");
  const Axis group = b.parallel("group", named("G"));
  const Axis m = b.parallel_tiles("m", named("M")), n = b.parallel_tiles("n", named("N"));
  const Axis k = b.tiles("k", named("K"));
  const Tensor a = b.input("a", DType::bf16, {named("K"), named("M")});
  const Tensor other = b.input("b", DType::bf16, {named("K"), named("N")});
  const Tensor begins = b.input("begins", DType::i32, {named("G")});
  const Tensor ends = b.input("ends", DType::i32, {named("G")});
  const Tensor c = b.output("c", DType::f32, {named("G"), named("M"), named("N")});
  const Tile at = index(group);
  b.segment(k, load(begins(at)), load(ends(at)));
  store(c(at, m, n), b.loop(k, b.fill({m, n}, 0), [&](const Tile& s) {
    return s + dot(transpose(load(a(k, m))), load(other(k, n)));
  }));
  return b.finish();
}

Program chained_product(bool transposed) {
  ProgramBuilder b("chained_product");
  const Axis m = b.parallel_tiles("m", named("M")), n = b.tiles("n", named("N"));
  const Axis k = b.whole("k", 32), p = b.whole("p", 64);
  const Tensor left = b.input("a", DType::bf16, {named("M"), named("N")});
  const Tensor middle = b.input("b", DType::bf16, {named("N"), 32});
  const Tensor right = b.input("c", DType::bf16, {32, 64});
  const Tensor y = b.output("y", DType::f32, {named("M"), 64});
  store(y(m, p), b.loop(n, b.fill({m, p}, 0), [&](const Tile& sum) {
    const Tile rows = load(middle(n, k)), columns = load(right(k, p));
    const Tile inner = transposed ? dot(transpose(columns), transpose(rows)) : dot(rows, columns);
    const Tile rounded = cast(inner * 0.125, DType::bf16).named("inner");
    return sum + dot(load(left(m, n)), transposed ? transpose(rounded) : rounded);
  }));
  return b.finish();
}

Program linear_attention(int dim, int value_dim, int part, int parts) {
  ProgramBuilder b("linear_attention");
  const Extent heads = named("H"), length = named("L");
  const Tensor q = b.input("q", DType::bf16, {heads, length, dim});
  const Tensor k = b.input("k", DType::bf16, {heads, length, dim});
  const Tensor v = b.input("v", DType::bf16, {heads, length, value_dim});
  const Tensor o = b.output("o", DType::bf16, {heads, length, value_dim});
  const Axis head = b.parallel("head", heads), t = b.tiles("t", length), s = b.alias("s", t);
  const Axis d = b.whole("d", dim), dv = b.parallel_tiles("dv", value_dim);
  if (part > 0) {
    const Tile begin = index(b.parallel("part", parts)) * part;
    b.segment(s, begin, begin + part);
  }
  b.loop(t, b.fill({d, dv}, 0), [&](const Tile& state) {
    const Tile query = load(q(head, t, d)), key = load(k(head, s, d)), value = load(v(head, s, dv));
    const Tile scores = where(index(t) >= index(s), dot(query, transpose(key)), 0);
    const Tile inside = dot(cast(scores, DType::bf16), value);
    const Tile before = dot(query, cast(state, DType::bf16));
    store(o(head, t, dv), cast(inside + before, DType::bf16));
    return state + dot(transpose(key), value);
  });
  return b.finish();
}

Program row_softmax() {
  struct State {
    Tile max, sum;
  };
  ProgramBuilder b("row_softmax");
  const Axis rows = b.parallel_tiles("rows", named("M")), cols = b.tiles("cols", named("N"));
  const Tensor x = b.input("x", DType::f32, {named("M"), named("N")});
  const Tensor y = b.output("y", DType::f32, {named("M"), named("N")});
  const State start{b.fill({rows}, lowest).named("max"), b.fill({rows}, 0).named("sum")};
  const State all = b.loop(cols, start, [&](const State& s) {
    const Tile scores = load(x(rows, cols)).named("scores");
    const Tile max = maximum(s.max, reduce_max(scores, cols));
    return State{max, s.sum * exp(s.max - max) + reduce_sum(exp(scores - max), cols)};
  });
  b.loop(cols, [&] { store(y(rows, cols), exp(load(x(rows, cols)) - all.max) / all.sum); });
  return b.finish();
}

Program column_reductions() {
  struct State {
    Tile sum, max;
  };
  ProgramBuilder b("column_reductions");
  const Axis cols = b.parallel_tiles("cols", named("N")), rows = b.tiles("rows", named("M"));
  const Tensor x = b.input("x", DType::f32, {named("M"), named("N")});
  const Tensor sums = b.output("sums", DType::f32, {named("N")});
  const Tensor largest = b.output("largest", DType::f32, {named("N")});
  const State start{b.fill({cols}, 0), b.fill({cols}, -infinity)};
  const State all = b.loop(rows, start, [&](const State& s) {
    const Tile tile = load(x(rows, cols));
    return State{s.sum + reduce_sum(tile, rows), maximum(s.max, reduce_max(tile, rows))};
  });
  store(sums(cols), all.sum);
  store(largest(cols), all.max);
  return b.finish();
}

Program layer_norm() {
  ProgramBuilder b("layer_norm");
  const Axis rows = b.parallel_tiles("rows", named("N")), d = b.whole("d", 96);
  const Tensor x = b.input("x", DType::bf16, {named("N"), 96});
  const Tensor y = b.output("y", DType::bf16, {named("N"), 96});
  const Tile wide = cast(load(x(rows, d)), DType::f32);
  const Tile centred = wide - reduce_sum(wide, d) * (1.0 / 96);
  const Tile variance = reduce_sum(centred * centred, d) * (1.0 / 96);
  store(y(rows, d), cast(centred / sqrt(variance + 1e-5), DType::bf16));
  return b.finish();
}

Program exchanging() {
  struct State {
    Tile a, b, c, d;
  };
  ProgramBuilder b("exchanging");
  const Axis rows = b.parallel_tiles("rows", named("M")), cols = b.tiles("cols", named("N"));
  const Tensor x = b.input("x", DType::f32, {named("M"), named("N")});
  const Tensor y = b.output("y", DType::f32, {named("M")});
  const State start{b.fill({rows}, 1), b.fill({rows}, 2), b.fill({rows}, 3), b.fill({rows}, 4)};
  const State last = b.loop(cols, start, [&](const State& s) {
    const Tile most = reduce_max(load(x(rows, cols)), cols);
    return State{s.b, s.a, s.d, maximum(s.c, most)};
  });
  store(y(rows), last.a + last.b * 8 + last.c * 64 + last.d * 512);
  return b.finish();
}

Program deviations() {
  struct Moments {
    Tile count, mean, squares;
  };
  ProgramBuilder b("deviations");
  const Axis rows = b.parallel_tiles("rows", named("M")), cols = b.tiles("cols", named("N"));
  const Tensor x = b.input("x", DType::f32, {named("M"), named("N")});
  const Tensor y = b.output("y", DType::f32, {named("M")});
  const Moments none{b.fill({rows}, 0), b.fill({rows}, 0), b.fill({rows}, 0)};
  const auto put_together = [&](const Moments& s) {
    const Tile values = load(x(rows, cols));
    const Tile count = reduce_sum(b.fill({rows, cols}, 1), cols);
    const Tile mean = reduce_sum(values, cols) / count, off = values - mean;
    const Tile all = s.count + count, apart = mean - s.mean;
    return Moments{all, s.mean + apart * count / all,
                   s.squares + reduce_sum(off * off, cols) + apart * apart * s.count * count / all};
  };
  const Moments whole = b.loop(cols, none, put_together, LoopOrder::unordered);
  store(y(rows), whole.squares / whole.count);
  return b.finish();
}

Program last_segment(LoopOrder order) {
  ProgramBuilder b("last_segment");
  const Axis rows = b.parallel_tiles("rows", named("M")), cols = b.tiles("cols", named("N"));
  const Tensor x = b.input("x", DType::f32, {named("M"), named("N")});
  const Tensor y = b.output("y", DType::f32, {named("M")});
  const auto largest = [&](const Tile&) { return reduce_max(load(x(rows, cols)), cols); };
  store(y(rows), b.loop(cols, b.fill({rows}, 0), largest, order));
  return b.finish();
}

Program integers() {
  ProgramBuilder b("integers");
  const Axis rows = b.parallel_tiles("rows", named("N")), d = b.whole("d", 48);
  const Tensor x = b.input("x", DType::i32, {named("N"), 48});
  const Tensor y = b.output("y", DType::i32, {named("N"), 48});
  const Tile step = b.scalar("step", DType::i32, /*positive=*/true);
  const Tile distance = index(rows) - index(d) * step;
  store(y(rows, d),
        where(distance % 3 == 0, distance / 5, minimum(load(x(rows, d)), abs(distance))));
  return b.finish();
}

Program totals() {
  ProgramBuilder b("totals");
  const Axis h = b.parallel("h", named("H"));
  const Axis k = b.whole("k", 40), whole = b.whole("whole", 64);
  const Tensor x = b.input("x", DType::f32, {named("H"), 40});
  const Tensor sum = b.output("sum", DType::f32, {named("H")});
  const Tensor apart = b.output("apart", DType::f32, {named("H")});
  const Tensor last = b.output("last", DType::i32, {named("H")});
  const Tile values = load(x(h, k));
  store(sum(h), reduce_sum(values, k));
  store(apart(h), reduce_max(values, k) - reduce_min(values, k));
  store(last(h), reduce_max(index(k), k) * 100 + reduce_max(index(whole), whole) - index(h));
  return b.finish();
}

Program gather() {
  ProgramBuilder b("gather");
  const Axis batch = b.parallel("batch", named("B"));
  const Axis rows = b.parallel_tiles("rows", named("N")), d = b.whole("d", 32);
  const Tensor table = b.input("table", DType::i32, {named("B")});
  const Tensor x = b.input("x", DType::f32, {named("P"), named("N"), 32});
  const Tensor y = b.output("y", DType::f32, {named("B"), named("N"), 32});
  store(y(batch, rows, d), load(x(load(table(batch)), rows, d)) + 1);
  return b.finish();
}

Program rows_of_groups() {
  ProgramBuilder b("rows_of_groups");
  const Axis row = b.parallel("row", named("R")), d = b.whole("d", 32);
  const Tensor x = b.input("x", DType::f32, {named("R"), 32});
  const Tensor starts = b.input("starts", DType::i32, {named("G") + 1});
  const Tensor scales = b.input("scales", DType::f32, {named("G")});
  const Tensor y = b.output("y", DType::f32, {named("R"), 32});
  b.segment(row, 0, load(starts(length(starts, 0) - 1)));
  const Tile group = searchsorted(starts, index(row)) - 1;
  store(y(row, d), load(x(row, d)) * load(scales(group)));
  return b.finish();
}

Program products_of_listed_heads() {
  ProgramBuilder b("products_of_listed_heads");
  const Axis batch = b.parallel("batch", named("B")), head = b.parallel("head", named("H"));
  const Axis rows = b.parallel_tiles("rows", named("M")), d = b.whole("d", 64);
  const Axis cols = b.tiles("cols", named("N"));
  const Tensor q = b.input("q", DType::bf16, {named("B"), named("H"), named("M"), 64});
  const Tensor k = b.input("k", DType::bf16, {named("B"), named("H"), named("N"), 64});
  const Tensor counts = b.input("counts", DType::i32, {named("B")});
  const Tensor y = b.output("y", DType::f32, {named("B"), named("H"), named("M")});
  b.segment(head, 0, load(counts(batch)));
  const Tile left = load(q(batch, head, rows, d));
  const Tile sum = b.loop(cols, b.fill({rows}, 0), [&](const Tile& so_far) {
    return so_far + reduce_sum(dot(left, transpose(load(k(batch, head, cols, d)))), cols);
  });
  store(y(batch, head, rows), sum);
  return b.finish();
}

Program paged_products(int page_size, int dim, bool left_in_registers, int heads) {
  ProgramBuilder b("paged_products");
  const Axis batch = b.parallel("batch", named("B"));
  const Axis rows = b.parallel_tiles("rows", named("M") * heads), d = b.whole("d", dim);
  const Axis cols = b.tiles("cols", named("N") * page_size);
  const Tensor q = b.input("q", DType::bf16, {named("B"), heads, named("M"), dim});
  const Tensor k = b.input("k", DType::bf16, {named("P"), page_size, dim});
  const Tensor pages = b.gathered_input("pages", DType::i32, {named("B"), named("N")});
  const Tensor s = b.output("s", DType::f32, {named("B"), heads, named("M")});
  const Tile head = index(rows) % heads, at = index(rows) / heads;
  Tile left = load(q(batch, head, at, d));
  if (left_in_registers) left = cast(cast(left, DType::f32), DType::bf16);
  const Tile sum = b.loop(cols, b.fill({rows}, 0), [&](const Tile& so_far) {
    const Tile page = gather(pages, {index(batch), index(cols) / page_size});
    const Tile right = load(k(page, index(cols) % page_size, d));
    const Tile seen = index(cols) <= at + (length(cols) - length(q, 2));
    return so_far + reduce_sum(where(seen, dot(left, transpose(right)), 0), cols);
  });
  store(s(batch, head, at), sum);
  return b.finish();
}

Program chained_products() {
  ProgramBuilder b("chained_products");
  const Axis m = b.parallel_tiles("m", named("M")), k = b.whole("k", 48), d = b.whole("d", 40);
  const Axis n = b.tiles("n", named("N"));
  const Tensor a = b.input("a", DType::bf16, {named("M"), 48});
  const Tensor bt = b.input("b", DType::bf16, {named("N"), 48});
  const Tensor c = b.input("c", DType::bf16, {named("N"), 40});
  const Tensor o = b.output("o", DType::bf16, {named("M"), 40});
  const Tile left = load(a(m, k));
  const Tile sum = b.loop(n, b.fill({m, d}, 0), [&](const Tile& s) {
    const Tile product = dot(left, transpose(load(bt(n, k))));
    return s + dot(cast(maximum(product, 0), DType::bf16), load(c(n, d)));
  });
  store(o(m, d), cast(sum, DType::bf16));
  return b.finish();
}

Program computed_left_operands() {
  ProgramBuilder b("computed_left_operands");
  const Axis batch = b.parallel("batch", named("B")), n = b.tiles("n", named("N"));
  const Axis m = b.whole("m", 32), k = b.whole("k", 48), d = b.whole("d", 40);
  const Tensor a = b.input("a", DType::bf16, {named("B"), 32, 48});
  const Tensor bt = b.input("b", DType::bf16, {named("B"), named("N"), 48});
  const Tensor c = b.input("c", DType::bf16, {named("B"), named("N"), 40});
  const Tensor w = b.output("w", DType::bf16, {named("B"), 32, named("N")});
  const Tensor z = b.output("z", DType::f32, {named("B"), named("N"), 48});
  const Tensor o = b.output("o", DType::bf16, {named("B"), 32, 40});
  const Tile half = cast(cast(load(a(batch, m, k)), DType::f32) * 0.5, DType::bf16).named("half");
  const Tile sum = b.loop(n, b.fill({m, d}, 0), [&](const Tile& s) {
    const Tile product = dot(half, transpose(load(bt(batch, n, k))));
    const Tile weights = cast(maximum(product, 0), DType::bf16).named("weights");
    store(w(batch, m, n), weights);
    store(z(batch, n, k), dot(transpose(weights), half));
    return s + dot(weights, load(c(batch, n, d)));
  });
  store(o(batch, m, d), cast(sum, DType::bf16));
  return b.finish();
}

Program two_passes() {
  struct State {
    Tile sum, out;
  };
  ProgramBuilder b("two_passes");
  const Axis rows = b.parallel_tiles("rows", named("M")), cols = b.tiles("cols", named("N"));
  const Axis d = b.whole("d", 32), dv = b.whole("dv", 24);
  const Tensor q = b.input("q", DType::f16, {named("M"), 32});
  const Tensor k = b.input("k", DType::f16, {named("N"), 32});
  const Tensor v = b.input("v", DType::f16, {named("N"), 24});
  const Tensor o = b.output("o", DType::f16, {named("M"), 24});
  const Tile query = load(q(rows, d));
  const Tile max = b.loop(cols, b.fill({rows}, lowest), [&](const Tile& s) {
    return maximum(s, reduce_max(dot(query, transpose(load(k(cols, d)))), cols));
  });
  const State start{b.fill({rows}, 0), b.fill({rows, dv}, 0)};
  const State all = b.loop(cols, start, [&](const State& s) {
    const Tile probs = exp(dot(query, transpose(load(k(cols, d)))) - max);
    return State{s.sum + reduce_sum(probs, cols),
                 s.out + dot(cast(probs, DType::f16), load(v(cols, dv)))};
  });
  store(o(rows, dv), cast(where(all.sum == 0, 0, all.out / all.sum), DType::f16));
  return b.finish();
}

Program mixed_use() {
  struct State {
    Tile product, sum;
  };
  ProgramBuilder b("mixed_use");
  const Axis rows = b.parallel_tiles("rows", named("M")), cols = b.tiles("cols", named("N"));
  const Axis d = b.whole("d", 32);
  const Tensor a = b.input("a", DType::f16, {named("M"), named("N")});
  const Tensor x = b.input("x", DType::f16, {named("N"), 32});
  const Tensor product = b.output("product", DType::f32, {named("M"), 32});
  const Tensor sums = b.output("sums", DType::f32, {named("M")});
  const State start{b.fill({rows, d}, 0), b.fill({rows}, 0)};
  const State all = b.loop(cols, start, [&](const State& s) {
    const Tile tile = load(a(rows, cols));
    return State{s.product + dot(tile, load(x(cols, d))),
                 s.sum + reduce_sum(cast(tile, DType::f32), cols)};
  });
  store(product(rows, d), all.product);
  store(sums(rows), all.sum);
  return b.finish();
}

}  // namespace flashcore
