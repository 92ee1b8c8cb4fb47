// A batched matrix product with an epilogue, for Python:
//
//   y = gelu(row_scale * (x w) + bias) + residual
//
//   x [B, M, K], or [B, K, M] with x_transposed     row_scale f32 [M]
//   w [B, K, N], or [B, N, K] with w_transposed     bias      [N]
//   y [B, M, N]                                     residual  [B, M, N]
//
// Each part of the epilogue is there if an argument asks for it. gelu is the exact one, by erf. The
// rows of every tensor begin at multiples of 16 bytes; the lengths may be any.
//
//   matmul = fc.load("matmul.cpp").matmul(bias=True, gelu=True)
//   y = fc.jit(matmul)(x=x, w=w, bias=bias)
#include "dsl/export.h"

namespace fc = flashcore;

namespace {

// For at most 16 rows time is what it takes to read w: small tiles, many copies in flight.
fc::Schedule schedule_for_few_rows() {
  return {.tiles = {{"rows", 16}, {"cols", 32}, {"inner", 256}},
          .warps_m = 1,
          .warps_n = 2,
          .stages = 4};
}

fc::Schedule schedule_for(const fc::Target& target, bool reads_residual) {
  if (target.wgmma)
    return {.tiles = {{"rows", 128}, {"cols", 256}, {"inner", 64}},
            .warps_m = 8,
            .instruction = fc::Instruction::wgmma,
            .copy = fc::CopyInstruction::tma,
            .staged_stores = false,
            .stages = 4};
  if (target.mma_m16n8k16)  // a residual takes the registers that staging would need
    return {.tiles = {{"rows", 128}, {"cols", 128}, {"inner", 32}},
            .warps_m = 4,
            .warps_n = 2,
            .staged_stores = !reads_residual,
            .stages = 3};
  return {.tiles = {{"rows", 64}, {"cols", 64}, {"inner", 32}},
          .warps_m = 4,
          .instruction = fc::Instruction::wmma,
          .copy = fc::CopyInstruction::vector,
          .softmax = fc::Softmax::shared};
}

}  // namespace

fc::Exported matmul(const fc::Arguments& arguments) {
  const fc::DType dtype = arguments.dtype("dtype", fc::DType::bf16);
  const bool x_transposed = arguments.flag("x_transposed", false);
  const bool w_transposed = arguments.flag("w_transposed", false);
  const bool has_scale = arguments.flag("row_scale", false);
  const bool has_bias = arguments.flag("bias", false), has_gelu = arguments.flag("gelu", false);
  const bool has_residual = arguments.flag("residual", false);
  const bool few_rows = arguments.flag("few_rows", false);

  fc::ProgramBuilder b("matmul");
  const fc::Extent batches("B"), m("M"), n("N"), k("K");
  using Shape = std::vector<fc::Extent>;
  const fc::Tensor x =
      b.input("x", dtype, x_transposed ? Shape{batches, k, m} : Shape{batches, m, k});
  const fc::Tensor w =
      b.input("w", dtype, w_transposed ? Shape{batches, n, k} : Shape{batches, k, n});
  const auto optional = [&](bool there, const char* name, fc::DType type, const Shape& shape) {
    return there ? b.gathered_input(name, type, shape, /*unit_stride=*/true) : fc::Tensor();
  };
  const fc::Tensor row_scale = optional(has_scale, "row_scale", fc::DType::f32, {m});
  const fc::Tensor bias = optional(has_bias, "bias", dtype, {n});
  const fc::Tensor residual = optional(has_residual, "residual", dtype, {batches, m, n});
  const fc::Tensor y = b.output("y", dtype, {batches, m, n});

  const fc::Axis batch = b.parallel("batch", batches), rows = b.parallel_tiles("rows", m);
  const fc::Axis cols = b.parallel_tiles("cols", n), inner = b.tiles("inner", k);

  const fc::Tile product = b.loop(inner, b.fill({rows, cols}, 0), [&](const fc::Tile& sum) {
    const fc::Tile left =
        x_transposed ? transpose(load(x(batch, inner, rows))) : load(x(batch, rows, inner));
    const fc::Tile right =
        w_transposed ? transpose(load(w(batch, cols, inner))) : load(w(batch, inner, cols));
    return sum + dot(left, right);
  });

  fc::Tile out = product.named("product");
  if (has_scale) out = out * gather(row_scale, {index(rows)});
  if (has_bias) out = out + gather(bias, {index(cols)});
  if (has_gelu) out = out * 0.5 * (1.0 + erf(out * 0.7071067811865476));
  if (has_residual) out = out + gather(residual, {index(batch), index(rows), index(cols)});
  store(y(batch, rows, cols), cast(out, dtype));
  return {b.finish(), [few_rows, has_residual](const fc::Target& target) {
            return few_rows && target.async_copy ? schedule_for_few_rows()
                                                 : schedule_for(target, has_residual);
          }};
}

FLASHCORE_EXPORT_PROGRAM(matmul)
