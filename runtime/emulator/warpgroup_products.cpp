#include "runtime/emulator/warpgroup_products.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <utility>

#include "runtime/emulator/prelude/convert.h"
#include "runtime/emulator/shared_operand.h"

namespace flashcore {
namespace {

constexpr int m_size = 64, k_size = 16, most_columns = 256;

/// Where an element of d lies: in which thread, and which of its registers.
struct Place {
  std::size_t thread, slot;
};
Place place_of(int m, int n) {
  return {static_cast<std::size_t>(m / 16 * 32 + m % 8 * 4 + n % 8 / 2),
          static_cast<std::size_t>(n / 8 * 4 + m % 16 / 8 * 2 + n % 2)};
}

template <class T>
void convert(const std::uint16_t* in, float* out, std::size_t count) {
  for (std::size_t i = 0; i < count; ++i) out[i] = fc::to_float(T{in[i]});
}

/// [64][16], from the registers of the threads.
void gather_a(const std::array<std::array<std::uint32_t, 4>, ProductRequest::threads>& registers,
              std::uint16_t* out) {
  for (int m = 0; m < m_size; ++m)
    for (int k = 0; k < k_size; ++k) {
      const auto thread = static_cast<std::size_t>(m / 16 * 32 + m % 8 * 4 + k % 8 / 2),
                 slot = static_cast<std::size_t>(m % 16 / 8 + k / 8 * 2);
      out[m * k_size + k] = static_cast<std::uint16_t>(registers[thread][slot] >> (k % 2 * 16));
    }
}

}  // namespace

WarpgroupProducts::WarpgroupProducts(int first_thread, SharedMemory& shared, Clocks& clocks)
    : first_(first_thread), shared_(shared), clocks_(clocks) {}

void WarpgroupProducts::reset() {
  agent_ = -1;
  open_ = false;
  group_ = {};
  groups_.clear();
  tiles_.clear();
  for (Accumulators& each : accumulators_) each.reset();
}

void WarpgroupProducts::open() {
  open_ = true;
  for (Accumulators& each : accumulators_) each.open();
}

void WarpgroupProducts::check_request(const ProductRequest& request, int line) const {
  const auto refuse = [&](FaultKind kind, int thread, std::string why, std::string fix) {
    throw Fault{kind, line, std::move(why), std::move(fix), thread};
  };
  for (std::size_t t = 1; t < request.same.size(); ++t) {
    if (request.same[t] == request.same[0]) continue;
    refuse(FaultKind::bad_operand, first_ + static_cast<int>(t),
           fmt::format("thread {} gives other matrices (or another `adds`) than thread {}",
                       first_ + static_cast<int>(t), first_),
           "the same matrices in all threads of a warpgroup");
  }
  const int n = request.same[0].n;
  if (n < 8 || n > most_columns || n % 8 != 0) {
    refuse(FaultKind::bad_operand, first_, fmt::format("a product of {} columns", n),
           "a multiple of 8 from 8 to 256");
  }
  if (!open_) {
    refuse(FaultKind::misused_product, first_,
           "the first product since the warpgroup last waited for some comes without "
           "fence_products(): it "
           "may read registers before they are written",
           "fence_products() before the first product");
  }
}

std::shared_ptr<WarpgroupProducts::Tile> WarpgroupProducts::tile_of(const ProductRequest& request,
                                                                    int line) {
  const ProductRequest::Same& what = request.same[0];
  for (const std::shared_ptr<Tile>& tile : tiles_)
    if (tile->d == request.d && tile->n == what.n) return tile;
  const auto registers = static_cast<std::size_t>(what.n / 2);
  for (std::size_t t = 0; t < request.d.size(); ++t)
    accumulators_[t].begin({request.d[t], registers}, line, first_ + static_cast<int>(t));
  auto tile = std::make_shared<Tile>();
  tile->n = what.n;
  tile->line = line;
  tile->d = request.d;
  tile->values.resize(static_cast<std::size_t>(m_size * what.n));
  for (int m = 0; m < m_size; ++m)
    for (int n = 0; n < what.n; ++n) {
      const auto [thread, slot] = place_of(m, n);
      tile->values[static_cast<std::size_t>(m * what.n + n)] = request.d[thread][slot];
    }
  for (float* d : request.d) std::fill_n(d, registers, std::bit_cast<float>(poison_bits));
  tiles_.push_back(tile);
  return tile;
}

// Checked now, when the threads' knowledge is what it was at issue; the bytes are read at the wait.
void WarpgroupProducts::note_reads(const ProductRequest::Same& what, const Accessor& by) {
  const Clock& view = clocks_.common(first_ / Clocks::warpgroup);
  const auto note = [&](const SharedOperand& operand) {
    for (int i = 0; i < operand.chunks(); ++i)
      shared_.begin_agent_read(operand.chunk_at(i), view, agent_, time_, by);
  };
  if (!what.a_in_registers) note(SharedOperand(what.a, m_size, what.a_transposed, by));
  note(SharedOperand(what.b, what.n, what.transposed, by));
}

void WarpgroupProducts::multiply(const ProductRequest& request, int line) {
  shared_.start_clocks();
  check_request(request, line);
  if (agent_ < 0) {
    agent_ = clocks_.add_agent();
    time_ = clocks_.tick(agent_);
    shared_.name_agent(
        agent_, fmt::format("a product of warpgroup {}", first_ / Clocks::warpgroup),
        "wait_products<n>() for its group, then arrive() or a barrier, before the memory is "
        "written again");
  }
  Product product{
      .what = request.same[0], .line = line, .a = request.a, .a_values = {}, .tile = {}};
  note_reads(product.what, {first_, line});
  if (product.what.a_in_registers) {
    for (std::size_t t = 0; t < request.a.size(); ++t)
      std::copy_n(request.a[t], 4, product.a_values[t].begin());
  }
  product.tile = tile_of(request, line);
  ++product.tile->pending;
  group_.products.push_back(std::move(product));
}

void WarpgroupProducts::commit() {
  group_.time = time_;
  groups_.push_back(std::exchange(group_, {}));
  if (agent_ >= 0) time_ = clocks_.tick(agent_);
}

void WarpgroupProducts::await(int pending, int line) {
  open_ = false;
  for (; groups_.size() > static_cast<std::size_t>(pending); groups_.pop_front()) {
    Group& group = groups_.front();
    for (Product& product : group.products) finish(product, line);
    if (agent_ < 0) continue;
    for (int thread = first_; thread < first_ + Clocks::warpgroup; ++thread)
      clocks_.learn(thread, agent_, group.time);
  }
}

void WarpgroupProducts::finish(Product& product, int line) {
  const ProductRequest::Same& what = product.what;
  std::uint16_t a_bits[m_size * k_size], b_bits[k_size * most_columns];
  float a[m_size * k_size], b[k_size * most_columns];
  if (what.a_in_registers) {
    for (std::size_t t = 0; t < product.a.size(); ++t) {
      for (std::size_t i = 0; i < 4; ++i) {
        if (product.a[t][i] == product.a_values[t][i]) continue;
        throw Fault{
            FaultKind::misused_product, line,
            fmt::format("register {} of operand a of the product at line {} was overwritten while "
                        "the product was pending",
                        i, product.line),
            "wait_products<n>() for its group before the registers are used again",
            first_ + static_cast<int>(t)};
      }
    }
    gather_a(product.a_values, a_bits);
  } else {
    // Read as the other operand is, [16][64].
    std::uint16_t columns[k_size * m_size];
    SharedOperand(what.a, m_size, what.a_transposed, {first_, product.line}).read(shared_, columns);
    for (int m = 0; m < m_size; ++m)
      for (int k = 0; k < k_size; ++k) a_bits[m * k_size + k] = columns[k * m_size + m];
  }
  SharedOperand(what.b, what.n, what.transposed, {first_, product.line}).read(shared_, b_bits);
  const auto n = static_cast<std::size_t>(what.n);
  const auto to_float = what.is_bf16 ? convert<fc::bf16> : convert<fc::f16>;
  to_float(a_bits, a, m_size * k_size);
  to_float(b_bits, b, k_size * n);

  Tile& tile = *product.tile;
  for (std::size_t m = 0; m < m_size; ++m) {
    float sum[most_columns] = {};
    for (std::size_t k = 0; k < k_size; ++k) {
      const float factor = a[m * k_size + k];
      for (std::size_t c = 0; c < n; ++c) sum[c] += factor * b[k * n + c];
    }
    float* row = &tile.values[m * n];
    for (std::size_t c = 0; c < n; ++c) row[c] = what.adds ? row[c] + sum[c] : sum[c];
  }
  if (--tile.pending > 0) return;
  complete(tile, line);
  std::erase(tiles_, product.tile);
}

void WarpgroupProducts::complete(const Tile& tile, int line) {
  std::array<std::vector<float>, ProductRequest::threads> values;
  const auto registers = static_cast<std::size_t>(tile.n / 2);
  for (std::vector<float>& each : values) each.resize(registers);
  for (int m = 0; m < m_size; ++m) {
    for (int n = 0; n < tile.n; ++n) {
      const auto [thread, slot] = place_of(m, n);
      if (!is_poison(tile.d[thread][slot])) {
        throw Fault{
            FaultKind::misused_product, line,
            fmt::format("accumulator [{}][{}] of the product at line {} was touched while the "
                        "product was pending",
                        slot / 4, slot % 4, tile.line),
            "wait_products<n>() for its group before the accumulators are used",
            first_ + static_cast<int>(thread)};
      }
      values[thread][slot] = tile.values[static_cast<std::size_t>(m * tile.n + n)];
    }
  }
  for (std::size_t t = 0; t < values.size(); ++t)
    accumulators_[t].complete({tile.d[t], registers}, std::move(values[t]), tile.line);
}

void WarpgroupProducts::check_left(int thread) const {
  const bool committed = group_.products.empty();
  const Product* product = committed ? nullptr : &group_.products.front();
  for (const Group& group : groups_)
    if (product == nullptr && !group.products.empty()) product = &group.products.front();
  if (product == nullptr) {
    accumulators_[static_cast<std::size_t>(thread - first_)].check_left(thread);
    return;
  }
  throw Fault{
      FaultKind::misused_product, product->line,
      fmt::format("thread {} leaves the kernel while this product is {}", thread,
                  committed ? "pending; nobody waits for its group"
                            : "in no group; wait_products() waits for committed groups only"),
      committed ? "wait_products<0>() before the end" : "commit_products() behind the product",
      thread};
}

}  // namespace flashcore
