// The asynchronous products of a warpgroup, between issue and wait.
#pragma once

#include <array>
#include <cstdint>
#include <deque>
#include <memory>
#include <span>
#include <vector>

#include "runtime/emulator/accumulators.h"
#include "runtime/emulator/clocks.h"
#include "runtime/emulator/shared_memory.h"

namespace flashcore {

/// One product as its 128 threads ask for it: d[64, n] (+)= a[64, 16] b[16, n].
struct ProductRequest {
  static constexpr int threads = Clocks::warpgroup;
  struct Same {  ///< in all threads
    int n = 0;
    std::uint64_t a = 0, b = 0;  ///< matrices; a is 0 where it lies in registers
    bool a_transposed = false, transposed = false, adds = false, is_bf16 = false,
         a_in_registers = false;
    bool operator==(const Same&) const = default;
  };
  std::array<Same, threads> same;
  std::array<float*, threads> d;
  std::array<const std::uint32_t*, threads> a;  ///< four registers
};

/// Operands are read, and accumulators written, when the product is waited for: the latest moment
/// that the hardware may choose. Until then, and until they are pinned, the accumulators hold a NaN
/// that nothing may overwrite.
class WarpgroupProducts {
 public:
  /// The products of the warpgroup that begins with a thread.
  WarpgroupProducts(int first_thread, SharedMemory& shared, Clocks& clocks);
  void reset();

  void open();
  /// Of one of its threads, which says that it uses these accumulators here.
  void pin(int thread, std::span<float> d, int line) {
    accumulators_[static_cast<std::size_t>(thread - first_)].pin(d, line, thread);
  }
  void multiply(const ProductRequest& request, int line);
  void commit();
  void await(int pending, int line);
  /// Throws a Fault for products that nobody has waited for when a thread leaves.
  void check_left(int thread) const;

 private:
  /// Accumulators of pending products.
  struct Tile {
    int n = 0, line = 0;
    int pending = 0;  ///< products
    std::array<float*, ProductRequest::threads> d;
    std::vector<float> values;  ///< [64][n]
  };
  struct Product {
    ProductRequest::Same what;
    int line = 0;
    std::array<const std::uint32_t*, ProductRequest::threads> a;
    std::array<std::array<std::uint32_t, 4>, ProductRequest::threads> a_values;
    std::shared_ptr<Tile> tile;
  };
  struct Group {
    std::vector<Product> products;
    std::int32_t time = 0;
  };

  void check_request(const ProductRequest& request, int line) const;
  std::shared_ptr<Tile> tile_of(const ProductRequest& request, int line);
  void note_reads(const ProductRequest::Same& what, const Accessor& by);
  void finish(Product& product, int line);
  void complete(const Tile& tile, int line);

  int first_;
  SharedMemory& shared_;
  Clocks& clocks_;
  int agent_ = -1;         ///< that reads operands, once there was a product
  std::int32_t time_ = 0;  ///< of the open group
  bool open_ = false;
  Group group_;  ///< not committed
  std::deque<Group> groups_;
  std::vector<std::shared_ptr<Tile>> tiles_;
  std::array<Accumulators, ProductRequest::threads> accumulators_;
};

}  // namespace flashcore
