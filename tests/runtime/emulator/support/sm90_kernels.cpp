#include "tests/runtime/emulator/support/sm90_kernels.h"

#include <bit>
#include <cmath>

namespace flashcore::testing {
namespace {

constexpr std::string_view attention_body = R"(struct Parameters {
  fc::tensor_map q, k, v, o;
  int tiles;
  float scale_log2;
};

extern "C" __global__ void __launch_bounds__(384, 1)
    attention(const __grid_constant__ Parameters p) {
  const fc::u32 queries = fc::shared_base(), keys = queries + 16384, values = keys + 16384;
  const fc::u32 q_full = values + 16384, k_full = q_full + 8, k_empty = k_full + 16;
  const fc::u32 v_full = k_empty + 16, v_empty = v_full + 16;
  const int thread = fc::thread_index(), group = thread / 128, rank = thread % 128;
  const int rows_begin = fc::block_x() * 128, head = fc::block_y();
  if (thread == 0) {
    fc::init_mbarrier(q_full, 1);
    for (int stage = 0; stage < 2; ++stage) {
      fc::init_mbarrier(k_full + 8 * stage, 1);
      fc::init_mbarrier(v_full + 8 * stage, 1);
      fc::init_mbarrier(k_empty + 8 * stage, 2);
      fc::init_mbarrier(v_empty + 8 * stage, 2);
    }
    fc::publish_mbarriers();
  }
  fc::barrier();
  if (group == 0) {
    fc::shrink_registers<24>();
    if (rank == 0) {
      fc::prefetch_map(p.q);
      fc::arrive_expect_tx(q_full, 16384);
      fc::load_box(queries, p.q, q_full, 0, rows_begin, head);
      for (int tile = 0; tile < p.tiles; ++tile) {
        const int stage = tile % 2, round = tile / 2;
        if (tile >= 2) fc::wait_phase(k_empty + 8 * stage, (round - 1) % 2);
        fc::arrive_expect_tx(k_full + 8 * stage, 8192);
        fc::load_box(keys + stage * 8192, p.k, k_full + 8 * stage, 0, tile * 64, head);
        if (tile >= 2) fc::wait_phase(v_empty + 8 * stage, (round - 1) % 2);
        fc::arrive_expect_tx(v_full + 8 * stage, 8192);
        fc::load_box(values + stage * 8192, p.v, v_full + 8 * stage, 0, tile * 64, head);
      }
    }
    return;
  }
  fc::grow_registers<240>();
  const int half = group - 1, lane = rank % 32, row = rank / 32 * 16 + lane / 4;
  float scores[1][8][4], out[1][8][4] = {}, row_max[2], row_sum[2] = {}, decay[2] = {};
  fc::u32 weights[4][4];
  row_max[0] = row_max[1] = fc::lowest();
  const fc::u64 a = fc::matrix(queries + half * 8192, 64, 0);
  if (half == 1) fc::signal(1, 256);
  fc::wait_phase(q_full, 0);
  for (int tile = 0; tile <= p.tiles; ++tile) {
    const int stage = tile % 2, round = tile / 2, last = (tile + 1) % 2, last_round = (tile - 1) / 2;
    if (tile < p.tiles) {
      fc::wait_phase(k_full + 8 * stage, round % 2);
      fc::meet(1 + half, 256);
      const fc::u64 b = fc::matrix(keys + stage * 8192, 64, 0);
      fc::pin(scores);
      fc::fence_products();  // scores
      fc::multiply_warpgroup<64, fc::bf16, 4, fc::along<64, 8192>, fc::along<64, 8192>>(scores[0], a, b, false);
      fc::commit_products();  // scores
    }
    if (tile > 0) {
      fc::wait_phase(v_full + 8 * last, last_round % 2);
      const fc::u64 b = fc::matrix(values + last * 8192, 64, 0);
      fc::pin(out);
      fc::fence_products();  // sums
      fc::multiply_warpgroup<64, fc::bf16, 4, fc::across<64>>(out[0], weights, b, true);
      fc::commit_products();  // sums
    }
    if (tile == p.tiles) break;
    fc::signal(2 - half, 256);
    if (tile > 0) fc::wait_products<1>(); else fc::wait_products<0>();
    fc::pin(scores);
    if (rank == 0) fc::arrive(k_empty + 8 * stage);
    #pragma unroll
    for (int r = 0; r < 2; ++r) {
      float largest = row_max[r];
      for (int j = 0; j < 8; ++j)
        for (int c = 0; c < 2; ++c) largest = fc::max(largest, scores[0][j][r * 2 + c]);
      largest = fc::max(largest, fc::shuffle_xor(largest, 1));
      largest = fc::max(largest, fc::shuffle_xor(largest, 2));
      decay[r] = fc::exp2((row_max[r] - largest) * p.scale_log2);
      row_max[r] = largest;
      float sum = 0.f;
      for (int j = 0; j < 8; ++j)
        for (int c = 0; c < 2; ++c) {
          float& score = scores[0][j][r * 2 + c];
          score = fc::exp2((score - largest) * p.scale_log2);
          sum += score;
        }
      row_sum[r] = fc::fma(row_sum[r], decay[r], sum);
    }
    fc::wait_products<0>();  // sums
    fc::pin(out);
    if (tile > 0 && rank == 0) fc::arrive(v_empty + 8 * last);
    #pragma unroll
    for (int k = 0; k < 4; ++k)
      for (int i = 0; i < 4; ++i) {
        const float* pair = scores[0][k * 2 + i / 2] + i % 2 * 2;
        weights[k][i] = fc::pack<fc::bf16>(pair[0], pair[1]);
      }
    #pragma unroll
    for (int j = 0; j < 8; ++j)
      for (int i = 0; i < 4; ++i) out[0][j][i] *= decay[i / 2];
  }
  fc::wait_products<0>();  // the end
  fc::pin(out);
  // The queries of this warpgroup have been read: the result takes their place.
  const fc::u32 staging = queries + half * 8192;
  #pragma unroll
  for (int r = 0; r < 2; ++r) {
    float sum = row_sum[r];
    sum += fc::shuffle_xor(sum, 1);
    sum += fc::shuffle_xor(sum, 2);
    const float weight = fc::reciprocal(sum);
    for (int j = 0; j < 8; ++j)
      fc::store_shared(staging + fc::chunk_offset<64, 64>(row + r * 8, j * 8) + lane % 4 * 4,
                       fc::pack<fc::bf16>(out[0][j][r * 2] * weight, out[0][j][r * 2 + 1] * weight));
  }
  fc::fence_async();
  fc::meet(3 + half, 128);
  if (rank == 0) {
    fc::store_box(p.o, staging, 0, rows_begin + half * 64, head);
    fc::commit_stores();
    fc::wait_stores_read<0>();
  }
}
)";

constexpr std::string_view box_head = R"(struct Parameters {
  fc::tensor_map in, out;
  const fc::bf16* x;
  float* y;
  fc::bf16* z;
};

extern "C" __global__ void small(const __grid_constant__ Parameters p) {
  const fc::u32 shared = fc::shared_base(), tile = shared, full = shared + 16384;
  const int thread = fc::thread_index(), lane = thread % 32, warp = thread / 32;
)";

}  // namespace

std::uint16_t to_bfloat(float x) {
  const auto bits = std::bit_cast<std::uint32_t>(x);
  return static_cast<std::uint16_t>((bits + 0x7fffu + (bits >> 16 & 1u)) >> 16);
}

float from_bfloat(std::uint16_t x) { return std::bit_cast<float>(std::uint32_t{x} << 16); }

std::vector<std::uint16_t> elements_of(const std::vector<float>& values, DType dtype) {
  std::vector<std::uint16_t> bits;
  for (const float value : values)
    bits.push_back(dtype == DType::bf16 ? to_bfloat(value) : to_half(value));
  return bits;
}

EmulatedTensorMap map_of(const void* data, int outer, int rows, int columns, int box_rows,
                         int width) {
  EmulatedTensorMap map;
  map.address = data;
  map.rank = 3;
  map.element_bytes = 2;
  map.swizzled_bytes = width * 2;
  const std::int32_t extents[] = {columns, rows, outer}, box[] = {width, box_rows, 1};
  std::int64_t stride = 2;
  for (int d = 0; d < 3; ++d) {
    map.extents[d] = extents[d];
    map.box[d] = box[d];
    map.strides[d] = stride;
    stride *= extents[d];
  }
  return map;
}

MapParameters& MapParameters::map(const EmulatedTensorMap& map) {
  const std::size_t first = bytes_.size();
  bytes_.resize(first + 128);
  std::memcpy(&bytes_[first], &map, sizeof map);
  return *this;
}

KernelSource warpgroup_attention() {
  KernelSource source;
  source.name = source.entry = "attention";
  source.body = attention_body;
  for (const char* name : {"q", "k", "v", "o"})
    source.tensors.push_back({name, DType::bf16, *name == 'o', {}, 16});
  source.parameter_bytes = 4 * 128 + 64;
  source.threads = 384;
  source.shared_bytes = 3 * 16384 + 9 * 8;
  return source;
}

EmulationReport WarpgroupAttentionRun::operator()(const KernelSource& source) {
  constexpr int dim = 64;
  const auto count = [&](int length) { return static_cast<std::size_t>(heads * length * dim); };
  const auto round = [](std::vector<float> values) {
    for (float& value : values) value = from_bfloat(to_bfloat(value));
    return values;
  };
  q = round(random_values(count(rows), 1));
  k = round(random_values(count(keys), 2));
  v = round(random_values(count(keys), 3));
  std::vector<std::uint16_t> q_bits = elements_of(q, DType::bf16),
                             k_bits = elements_of(k, DType::bf16),
                             v_bits = elements_of(v, DType::bf16), o_bits(count(rows));
  const std::vector<std::byte> parameters =
      MapParameters()
          .map(map_of(q_bits.data(), heads, rows, dim, 128, 64))
          .map(map_of(k_bits.data(), heads, keys, dim, 64, 64))
          .map(map_of(v_bits.data(), heads, keys, dim, 64, 64))
          .map(map_of(o_bits.data(), heads, rows, dim, 64, 64))
          .add((keys + 63) / 64)
          .add(1.4426950408889634f / 8)
          .bytes();
  const auto view = [&](std::vector<std::uint16_t>& bits, int length) {
    return view_of(bits.data(), DType::bf16, {heads, length, dim}, {length * dim, dim, 1});
  };
  const std::vector<TensorView> tensors = {view(q_bits, rows), view(k_bits, keys),
                                           view(v_bits, keys), view(o_bits, rows)};
  const GridSize grid(static_cast<std::uint32_t>((rows + 127) / 128),
                      static_cast<std::uint32_t>(heads));
  EmulationReport report = EmulatedKernel::build(source).run(parameters, grid, tensors);
  o.clear();
  for (const std::uint16_t bits : o_bits) o.push_back(from_bfloat(bits));
  return report;
}

KernelSource box_kernel(std::string_view statements, int threads) {
  KernelSource source;
  source.name = source.entry = "small";
  source.body = fmt::format("{}{}\n}}\n", box_head, statements);
  source.tensors = {{"x", DType::bf16, false, {}, 16},
                    {"y", DType::f32, true, {}, 4},
                    {"z", DType::bf16, true, {}, 16}};
  source.parameter_bytes = 2 * 128 + 64;
  source.threads = threads;
  source.shared_bytes = 32768;
  return source;
}

EmulationReport BoxRun::operator()(const KernelSource& source) {
  const auto count = static_cast<std::size_t>(rows * width);
  x.resize(count);
  for (std::size_t i = 0; i < count; ++i) x[i] = to_bfloat(static_cast<float>(i % 128));
  y.assign(count, 0.f);
  z.assign(count, 0);
  const std::vector<std::byte> parameters = MapParameters()
                                                .map(map_of(x.data(), 1, rows, width, 64, width))
                                                .map(map_of(z.data(), 1, rows, width, 64, width))
                                                .add(x.data())
                                                .add(y.data())
                                                .add(z.data())
                                                .bytes();
  const std::vector<TensorView> tensors = {
      view_of(x.data(), DType::bf16, {rows, width}, {width, 1}),
      view_of(y.data(), DType::f32, {rows, width}, {width, 1}),
      view_of(z.data(), DType::bf16, {rows, width}, {width, 1})};
  return EmulatedKernel::build(source).run(parameters, 1, tensors);
}

}  // namespace flashcore::testing
