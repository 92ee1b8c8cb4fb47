#include "tests/runtime/support/kernels.h"

#include <fmt/format.h>

namespace flashcore::test {
namespace {

using Kind = ParameterField::Kind;

Extent named(const char* name) { return Extent(std::string(name)); }

}  // namespace

KernelSource scale_kernel() {
  KernelSource source;
  source.name = source.entry = "scale";
  source.prelude = "using i64 = long long;\n";
  source.body = R"(
struct Parameters { const float* x; float* y; i64 x_stride_0; i64 y_stride_0; int rows; float factor; };
extern "C" __global__ void __launch_bounds__(64) scale(const __grid_constant__ Parameters p) {
  const int row = blockIdx.x, column = threadIdx.x;
  if (row < p.rows) p.y[row * p.y_stride_0 + column] = p.factor * p.x[row * p.x_stride_0 + column];
}
)";
  source.tensors = {{.name = "x",
                     .dtype = DType::f32,
                     .output = false,
                     .dims = {named("rows"), 64},
                     .alignment = 4},
                    {.name = "y",
                     .dtype = DType::f32,
                     .output = true,
                     .dims = {named("rows"), 64},
                     .alignment = 4}};
  source.scalars = {{.name = "factor", .dtype = DType::f32}};
  source.extents = {"rows"};
  source.parameters = {{Kind::pointer, 0, 0, 0}, {Kind::pointer, 1, 0, 8},
                       {Kind::stride, 0, 0, 16}, {Kind::stride, 1, 0, 24},
                       {Kind::extent, 0, 0, 32}, {Kind::scalar, 0, 0, 36}};
  source.parameter_bytes = 40;
  source.grid = {{.name = "rows", .extent = named("rows"), .tile = 1}};
  source.threads = 64;
  return source;
}

KernelSource drawing_kernel() {
  KernelSource source = scale_kernel();
  source.name = source.entry = "drawing";
  source.persistent = true;
  source.parameters.push_back({Kind::tile_counter, 0, 0, 40});
  source.parameter_bytes = 48;
  return source;
}

KernelSource attention_like_kernel() {
  KernelSource source;
  source.name = source.entry = "attention_like";
  source.prelude = "using i64 = long long;\nstruct bf16 { unsigned short bits; };\n";
  source.body = R"(
struct Parameters {
  const bf16* q; const bf16* k; bf16* o; float* lse;
  i64 q_strides[3], k_strides[3], o_strides[3], lse_strides[2];
  int B, H, Sq, Sk; float scale;
};
extern "C" __global__ void __launch_bounds__(128) attention_like(const __grid_constant__ Parameters p) {
  extern __shared__ float shared[];
  shared[threadIdx.x] = p.scale;
  __syncthreads();
  if (blockIdx.x == 0) p.lse[threadIdx.x] = shared[127 - threadIdx.x];
}
)";
  const auto tensor = [&](const char* name, DType type, bool output, const char* length,
                          int alignment) {
    std::vector<Extent> dims{named("B"), named("H"), named(length)};
    if (type != DType::f32) dims.emplace_back(64);
    source.tensors.push_back(
        {.name = name, .dtype = type, .output = output, .dims = dims, .alignment = alignment});
  };
  tensor("q", DType::bf16, false, "Sq", 16);
  tensor("k", DType::bf16, false, "Sk", 16);
  tensor("o", DType::bf16, true, "Sq", 16);
  tensor("lse", DType::f32, true, "Sq", 4);
  source.scalars = {{.name = "scale", .dtype = DType::f32, .positive = true}};
  source.extents = {"B", "H", "Sq", "Sk"};
  int offset = 0;
  for (int t = 0; t < 4; ++t, offset += 8)
    source.parameters.push_back({Kind::pointer, t, 0, offset});
  for (int t = 0; t < 4; ++t) {
    for (int d = 0; d < (t == 3 ? 2 : 3); ++d, offset += 8) {
      source.parameters.push_back({Kind::stride, t, d, offset});
    }
  }
  for (int e = 0; e < 4; ++e, offset += 4)
    source.parameters.push_back({Kind::extent, e, 0, offset});
  source.parameters.push_back({Kind::scalar, 0, 0, offset});
  source.parameter_bytes = offset + 4 + 4;  // the struct is aligned to 8
  source.grid = {{.name = "rows", .extent = named("Sq"), .tile = 64},
                 {.name = "head", .extent = named("H"), .tile = 1},
                 {.name = "batch", .extent = named("B"), .tile = 1}};
  source.threads = 128;
  source.shared_bytes = 65536;
  return source;
}

KernelSource mapped_kernel() {
  KernelSource source;
  source.name = source.entry = "mapped";
  const auto tensor = [&](const char* name, bool output, const char* length) {
    source.tensors.push_back({.name = name,
                              .dtype = DType::bf16,
                              .output = output,
                              .dims = {named("B"), named("H"), named(length), 128},
                              .alignment = 16});
  };
  tensor("q", false, "Sq");
  tensor("k", false, "Sk");
  tensor("o", true, "Sq");
  source.tensor_maps = {{.tensor = 0, .row_dim = 2, .rows = 128},
                        {.tensor = 1, .row_dim = 2, .rows = 96},
                        {.tensor = 2, .row_dim = 2, .rows = 64}};
  source.extents = {"B", "H", "Sq", "Sk"};
  for (int map = 0; map < 3; ++map)
    source.parameters.push_back({Kind::tensor_map, map, 0, 128 * map});
  for (int e = 0; e < 4; ++e) source.parameters.push_back({Kind::extent, e, 0, 384 + 4 * e});
  source.parameter_bytes = 448;  // the struct is aligned to 64
  source.grid = {{.name = "rows", .extent = named("Sq"), .tile = 128},
                 {.name = "head", .extent = named("H"), .tile = 1},
                 {.name = "batch", .extent = named("B"), .tile = 1}};
  source.threads = 384;
  return source;
}

KernelSource copy_boxes_kernel() {
  KernelSource source;
  source.name = source.entry = "copy_boxes";
  source.prelude = "using u32 = unsigned; using u64 = unsigned long long;\n";
  source.body = R"(
struct alignas(64) Map { u64 words[16]; };
struct Parameters { Map x, y; };
extern "C" __global__ void __launch_bounds__(32) copy_boxes(const __grid_constant__ Parameters p) {
  extern __shared__ __align__(1024) unsigned char bytes[];
  __shared__ u64 mbarrier;
  const u32 box = __cvta_generic_to_shared(bytes), arrived = __cvta_generic_to_shared(&mbarrier);
  const int row = 64 * blockIdx.x, head = blockIdx.y, batch = blockIdx.z;
  if (threadIdx.x != 0) return;
  asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" :: "r"(arrived) : "memory");
  asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], 8192;" :: "r"(arrived) : "memory");
  asm volatile("cp.async.bulk.tensor.4d.shared::cluster.global.mbarrier::complete_tx::bytes "
               "[%0], [%1, {%3, %4, %5, %6}], [%2];"
               :: "r"(box), "l"(&p.x), "r"(arrived), "r"(0), "r"(row), "r"(head), "r"(batch) : "memory");
  asm volatile("{ .reg .pred over; again: mbarrier.try_wait.parity.shared::cta.b64 over, [%0], 0; "
               "@!over bra again; }" :: "r"(arrived) : "memory");
  asm volatile("cp.async.bulk.tensor.4d.global.shared::cta.bulk_group [%0, {%2, %3, %4, %5}], [%1];"
               :: "l"(&p.y), "r"(box), "r"(0), "r"(row), "r"(head), "r"(batch) : "memory");
  asm volatile("cp.async.bulk.commit_group;" ::: "memory");
  asm volatile("cp.async.bulk.wait_group 0;" ::: "memory");
}
)";
  for (const bool output : {false, true}) {
    source.tensors.push_back({.name = output ? "y" : "x",
                              .dtype = DType::bf16,
                              .output = output,
                              .dims = {named("B"), named("H"), named(output ? "S" : "X"), 64},
                              .alignment = 16});
    source.tensor_maps.push_back({.tensor = output, .row_dim = 2, .rows = 64});
    source.parameters.push_back({Kind::tensor_map, output, 0, output ? 128 : 0});
  }
  source.extents = {"B", "H", "X", "S"};
  source.parameter_bytes = 256;
  source.grid = {{.name = "rows", .extent = named("S"), .tile = 64},
                 {.name = "head", .extent = named("H"), .tile = 1},
                 {.name = "batch", .extent = named("B"), .tile = 1}};
  source.threads = 32;
  source.shared_bytes = 64 * 128;
  return source;
}

KernelSource spilling_kernel() {
  KernelSource source = scale_kernel();
  source.name = source.entry = "spilling";
  source.threads = 1024;
  source.min_blocks = 2;
  source.body = R"(
struct Parameters { const float* x; float* y; i64 x_stride_0; i64 y_stride_0; int rows; float factor; };
extern "C" __global__ void __launch_bounds__(1024, 2) spilling(const __grid_constant__ Parameters p) {
  float kept[200];
  #pragma unroll
  for (int i = 0; i < 200; ++i) kept[i] = p.x[i * 1024 + threadIdx.x];
  __syncthreads();
  for (int j = 0; j < p.rows; ++j) {
    #pragma unroll
    for (int i = 0; i < 200; ++i) kept[i] = kept[i] * kept[(i + 7) % 200] + p.factor;
  }
  #pragma unroll
  for (int i = 0; i < 200; ++i) p.y[i * 1024 + threadIdx.x] = kept[i];
}
)";
  return source;
}

KernelSource serialised_kernel() {
  KernelSource source = scale_kernel();
  source.name = source.entry = "serialised";
  source.threads = 128;
  source.body = R"(
extern "C" __global__ void __launch_bounds__(128) serialised(float* out, i64 a, i64 b, int steps) {
  float d[4] = {0, 0, 0, 0};
  asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
  for (int i = 0; i < steps; ++i) {
    asm volatile("wgmma.mma_async.sync.aligned.m64n8k16.f32.bf16.bf16 "
                 "{%0, %1, %2, %3}, %4, %5, 1, 1, 1, 0, 0;"
                 : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]) : "l"(a), "l"(b));
    asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
    d[0] += 1.f;
  }
  asm volatile("wgmma.wait_group.sync.aligned 0;" ::: "memory");
  for (int i = 0; i < 4; ++i) out[threadIdx.x * 4 + i] = d[i];
}
)";
  return source;
}

KernelSource crowded_kernel() {
  KernelSource source = scale_kernel();
  source.name = source.entry = "crowded";
  source.threads = 1024;
  std::string sums, operands;
  for (int i = 0; i < 64; ++i) {
    sums += fmt::format("{}%{}", i ? ", " : "", i);
    operands += fmt::format("{}\"+f\"(d[{}])", i ? ", " : "", i);
  }
  source.body = fmt::format(R"(
extern "C" __global__ void __launch_bounds__(1024) crowded(float* out, i64 a, i64 b) {{
  float d[64] = {{}};
  asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
  asm volatile("wgmma.mma_async.sync.aligned.m64n128k16.f32.bf16.bf16 "
               "{{{}}}, %64, %65, 1, 1, 1, 0, 0;"
               : {} : "l"(a), "l"(b));
  asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
  asm volatile("wgmma.wait_group.sync.aligned 0;" ::: "memory");
  for (int i = 0; i < 64; ++i) out[threadIdx.x * 64 + i] = d[i];
}}
)",
                            sums, operands);
  return source;
}

KernelSource unbounded_split_kernel() {
  KernelSource source = scale_kernel();
  source.name = source.entry = "unbounded";
  source.threads = 256;
  source.body = R"(
extern "C" __global__ void __launch_bounds__(256) unbounded(float* out) {
  if (threadIdx.x < 128) {
    asm volatile("setmaxnreg.dec.sync.aligned.u32 24;");
  } else {
    asm volatile("setmaxnreg.inc.sync.aligned.u32 240;");
    out[threadIdx.x] = 1;
  }
}
)";
  return source;
}

std::string empty_code(std::size_t bytes) {
  std::string elf =
      "\x7f"
      "ELF" +
      std::string(bytes, '\0');
  elf[18] = '\xbe';
  return elf;
}

const Nvrtc* installed_nvrtc() {
  static const Nvrtc* const instance = []() -> const Nvrtc* {
    try {
      return new Nvrtc(find_nvrtc(NvrtcSearch::from_environment()));
    } catch (const CompileError&) {
      return nullptr;
    }
  }();
  return instance;
}

}  // namespace flashcore::test
