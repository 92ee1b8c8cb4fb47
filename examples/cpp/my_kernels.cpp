// An attention of one's own, offered to Python. Instead of a softmax it squares what is positive:
//
//   out = 1/kv_len * relu(scale q k^T)^2 v,  each row over the keys up to its own position
//
//   lib = flashcore.load("libmy_kernels.so")
//   kernel = flashcore.jit(lib.squared_relu_attention(head_dim=64))
//   out = kernel(q=q, k=k, v=v, scale=0.125)
#include "dsl/export.h"

namespace fc = flashcore;

fc::Exported squared_relu_attention(const fc::Arguments& arguments) {
  const int head_dim = arguments.integer("head_dim", 64);
  const fc::DType dtype = arguments.dtype("dtype", fc::DType::bf16);

  fc::ProgramBuilder b("squared_relu_attention");
  const fc::Extent batches("B"), heads("H"), q_len("Sq"), kv_len("Sk");
  const fc::Tensor q = b.input("q", dtype, {batches, heads, q_len, head_dim});
  const fc::Tensor k = b.input("k", dtype, {batches, heads, kv_len, head_dim});
  const fc::Tensor v = b.input("v", dtype, {batches, heads, kv_len, head_dim});
  const fc::Tensor o = b.output("o", dtype, {batches, heads, q_len, head_dim});
  const fc::Tile scale = b.scalar("scale", fc::DType::f32);

  const fc::Axis batch = b.parallel("batch", batches), head = b.parallel("head", heads);
  const fc::Axis rows = b.parallel_tiles("rows", q_len), cols = b.tiles("cols", kv_len);
  const fc::Axis d = b.whole("d", head_dim), dv = b.whole("dv", head_dim);

  const fc::Tile query = load(q(batch, head, rows, d)).named("query");
  const fc::Tile out = b.loop(cols, b.fill({rows, dv}, 0), [&](const fc::Tile& sum) {
    const fc::Tile key = load(k(batch, head, cols, d)).named("key");
    const fc::Tile scores = dot(query, transpose(key)) * scale;
    const fc::Tile visible = fc::index(rows) >= fc::index(cols);
    const fc::Tile positive = fc::where(visible, fc::maximum(scores, 0.0), 0.0);
    const fc::Tile weights = fc::cast(positive * positive, dtype).named("weights");
    return sum + dot(weights, load(v(batch, head, cols, dv)));
  });
  store(o(batch, head, rows, dv),
        fc::cast(out / fc::cast(fc::length(cols), fc::DType::f32), dtype));

  return {b.finish(), [](const fc::Target&) {
            return fc::Schedule{.tiles = {{"rows", 64}, {"cols", 64}}, .warps_m = 4, .stages = 2};
          }};
}

FLASHCORE_EXPORT_PROGRAM(squared_relu_attention)
