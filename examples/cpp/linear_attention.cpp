// Causal linear attention, chunk by chunk, for Python: every position of the output is
//
//   o[t] = sum over s <= t of (q[t] . k[s]) v[s]
//
//   q, k [B, H, L, head_dim]     v, o [B, H, L, value_dim]     f16 or bf16, any L
//
// A block walks the chunks of one head in order. It carries the state, the sum of k[s] v[s]^T over
// the chunks before, in f32; a product takes it rounded. Inside a chunk, t and s are two names of
// one axis.
//
//   attend = fc.jit(fc.load("linear_attention.cpp").linear_attention(head_dim=128))
//   o = attend(q=q, k=k, v=v)
//
// Few heads fill a GPU if each is cut into G segments of segment_length positions, G segment_length
// >= L. linear_attention_sums has the sum of k v^T over each, f32 [B, H, G, head_dim, value_dim].
// Sums of these from the first on are the states that linear_attention(segments=True) begins with:
//
//   sum_up(k=k, v=v, sums=sums, segment_length=n)
//   o = attend(q=q, k=k, v=v, states=sums.cumsum(2), segment_length=n)
#include <algorithm>

#include "dsl/export.h"

namespace fc = flashcore;

namespace {

/// What both programs are made of.
struct Setting {
  explicit Setting(const fc::Arguments& arguments)
      : dtype(arguments.dtype("dtype", fc::DType::bf16)),
        dim(arguments.integer("head_dim", 64)),
        value_dim(arguments.integer("value_dim", dim)) {}

  fc::Tensor sequence(fc::ProgramBuilder& b, const char* name, int width) const {
    return b.input(name, dtype, {batches, heads, length, width});
  }
  /// Cuts an axis into as many segments as the tensor has.
  fc::Axis cut(fc::ProgramBuilder& b, fc::Axis axis) const {
    const fc::Axis segment = b.parallel("segment", segments);
    const fc::Tile positions = b.scalar("segment_length", fc::DType::i32, /*positive=*/true);
    b.segment(axis, index(segment) * positions, (index(segment) + 1) * positions);
    return segment;
  }
  fc::Schedule schedule(const fc::Target& target) const {
    const int warps = dim % 64 == 0 ? 4 : dim % 32 == 0 ? 2 : 1;
    const int columns = std::min(64, (value_dim + 15) / 16 * 16);
    if (target.mma_m16n8k16)  // another block works while one waits at a barrier
      return {.tiles = {{"t", 64}, {"dv", columns}},
              .warps_m = warps,
              .blocks_per_processor = dim <= 64 ? 3 : 2};
    return {.tiles = {{"t", 32}, {"dv", std::min(32, columns)}},
            .warps_m = std::min(warps, 2),
            .instruction = fc::Instruction::wmma,
            .copy = fc::CopyInstruction::vector,
            .softmax = fc::Softmax::shared};
  }

  fc::DType dtype;
  int dim, value_dim;
  fc::Extent batches{"B"}, heads{"H"}, length{"L"}, segments{"G"};
};

}  // namespace

fc::Exported linear_attention(const fc::Arguments& arguments) {
  const Setting its(arguments);
  fc::ProgramBuilder b("linear_attention");
  const fc::Tensor q = its.sequence(b, "q", its.dim), k = its.sequence(b, "k", its.dim);
  const fc::Tensor v = its.sequence(b, "v", its.value_dim);
  const fc::Tensor o =
      b.output("o", its.dtype, {its.batches, its.heads, its.length, its.value_dim});
  const fc::Axis batch = b.parallel("batch", its.batches), head = b.parallel("head", its.heads);
  const fc::Axis t = b.tiles("t", its.length), s = b.alias("s", t), d = b.whole("d", its.dim);
  const fc::Axis dv = b.parallel_tiles("dv", its.value_dim);

  fc::Tile first;
  if (arguments.flag("segments", false)) {
    const fc::Tensor states = b.input(
        "states", fc::DType::f32, {its.batches, its.heads, its.segments, its.dim, its.value_dim});
    const fc::Tile at = index(its.cut(b, t));
    first = where(at > 0, load(states(batch, head, maximum(at - 1, 0), d, dv)), 0);
  } else {
    first = b.fill({d, dv}, 0);
  }
  b.loop(t, first, [&](const fc::Tile& state) {
    const fc::Tile query = load(q(batch, head, t, d)), key = load(k(batch, head, s, d));
    const fc::Tile value = load(v(batch, head, s, dv));
    const fc::Tile scores = where(index(t) >= index(s), dot(query, transpose(key)), 0);
    const fc::Tile before = dot(query, cast(state, its.dtype));
    store(o(batch, head, t, dv), cast(before + dot(cast(scores, its.dtype), value), its.dtype));
    return state + dot(transpose(key), value);
  });
  return {b.finish(), [its](const fc::Target& target) { return its.schedule(target); }};
}

fc::Exported linear_attention_sums(const fc::Arguments& arguments) {
  const Setting its(arguments);
  fc::ProgramBuilder b("linear_attention_sums");
  const fc::Tensor k = its.sequence(b, "k", its.dim), v = its.sequence(b, "v", its.value_dim);
  const fc::Tensor sums = b.output("sums", fc::DType::f32,
                                   {its.batches, its.heads, its.segments, its.dim, its.value_dim});
  const fc::Axis batch = b.parallel("batch", its.batches), head = b.parallel("head", its.heads);
  const fc::Axis t = b.tiles("t", its.length), d = b.whole("d", its.dim);
  const fc::Axis dv = b.parallel_tiles("dv", its.value_dim), segment = its.cut(b, t);

  const fc::Tile sum = b.loop(t, b.fill({d, dv}, 0), [&](const fc::Tile& so_far) {
    return so_far + dot(transpose(load(k(batch, head, t, d))), load(v(batch, head, t, dv)));
  });
  store(sums(batch, head, segment, d, dv), sum);
  return {b.finish(), [its](const fc::Target& target) { return its.schedule(target); }};
}

FLASHCORE_EXPORT_PROGRAM(linear_attention)
FLASHCORE_EXPORT_PROGRAM(linear_attention_sums)
