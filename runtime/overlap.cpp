#include "runtime/overlap.h"

#include <algorithm>
#include <cstdint>

#include "codegen/kernel_source.h"
#include "runtime/launch_errors.h"

namespace flashcore {
namespace {

/// The bytes from an array's first element to its last; none if it is empty or nowhere.
struct Range {
  std::int64_t begin = 0, end = 0;
};

Range range_of(const TensorView& view) {
  const std::int64_t element = size_of(view.dtype);
  if (view.data == nullptr) return {};
  const auto address = reinterpret_cast<std::int64_t>(view.data);
  Range range{.begin = address, .end = address + element};
  for (int dim = 0; dim < view.rank; ++dim) {
    if (view.shape[dim] == 0) return {};
    const std::int64_t reach = view.strides[dim] * (view.shape[dim] - 1) * element;
    (reach < 0 ? range.begin : range.end) += reach;
  }
  return range;
}

bool meet(const Range& a, const Range& b) { return a.begin < b.end && b.begin < a.end; }

/// How far apart an element of one array and an element of the other may lie: a sum of terms
/// stride * n, each with its own range of whole n. The arrays share memory where the sum can be
/// within [low, high].
class Distances {
 public:
  void add(std::int64_t stride, std::int64_t least, std::int64_t most) {
    if (stride == 0 || least == most) return;
    for (int i = 0; i < count_; ++i) {
      if (terms_[i].stride != stride) continue;
      terms_[i].least += least;
      terms_[i].most += most;
      return;
    }
    terms_[count_++] = {.stride = stride, .least = least, .most = most};
  }

  bool reach(std::int64_t low, std::int64_t high) {
    std::sort(terms_.begin(), terms_.begin() + count_,
              [](const Term& a, const Term& b) { return a.stride > b.stride; });
    for (int i = count_ - 1; i >= 0; --i) {
      rest_least_[i] = rest_least_[i + 1] + terms_[i].stride * terms_[i].least;
      rest_most_[i] = rest_most_[i + 1] + terms_[i].stride * terms_[i].most;
    }
    return reach_from(0, low, high);
  }

 private:
  struct Term {
    std::int64_t stride = 0, least = 0, most = 0;
  };

  // The widest stride first: what the narrower ones can make up for leaves it a few values only.
  bool reach_from(int at, std::int64_t low, std::int64_t high) {
    if (low > rest_most_[at] || high < rest_least_[at]) return false;
    if (at == count_ || ++steps_ > most_steps) return true;
    const Term& term = terms_[at];
    const std::int64_t first =
        std::max(term.least, divide_up(low - rest_most_[at + 1], term.stride));
    const std::int64_t last =
        std::min(term.most, divide_down(high - rest_least_[at + 1], term.stride));
    for (std::int64_t n = first; n <= last; ++n) {
      if (reach_from(at + 1, low - n * term.stride, high - n * term.stride)) return true;
    }
    return false;
  }

  static std::int64_t divide_down(std::int64_t a, std::int64_t b) {
    return a / b - (a % b < 0 ? 1 : 0);
  }
  static std::int64_t divide_up(std::int64_t a, std::int64_t b) { return -divide_down(-a, b); }

  static constexpr int most_steps = 10000;
  static constexpr int most_terms = 2 * max_rank;
  std::array<Term, most_terms> terms_{};
  std::array<std::int64_t, most_terms + 1> rest_least_{}, rest_most_{};
  int count_ = 0;
  int steps_ = 0;
};

bool elements_meet(const TensorView& a, const TensorView& b) {
  const std::int64_t a_element = size_of(a.dtype), b_element = size_of(b.dtype);
  Distances distances;
  // Strides of either sign become positive ones from the lowest element.
  for (int dim = 0; dim < a.rank; ++dim) {
    distances.add(std::abs(a.strides[dim]) * a_element, 0, a.shape[dim] - 1);
  }
  for (int dim = 0; dim < b.rank; ++dim) {
    distances.add(std::abs(b.strides[dim]) * b_element, 1 - b.shape[dim], 0);
  }
  const std::int64_t apart = range_of(a).begin - range_of(b).begin;
  return distances.reach(1 - a_element - apart, b_element - 1 - apart);
}

}  // namespace

bool share_memory(const TensorView& a, const TensorView& b) {
  const bool in_one_place = a.device == b.device && a.device != no_device;
  return in_one_place && meet(range_of(a), range_of(b)) && elements_meet(a, b);
}

void check_outputs_apart(const KernelSource& source, std::span<const TensorView> tensors) {
  for (std::size_t output = 0; output < tensors.size(); ++output) {
    if (!source.tensors[output].output) continue;
    const Range written = range_of(tensors[output]);
    for (std::size_t other = 0; other < tensors.size(); ++other) {
      if (other == output || !meet(written, range_of(tensors[other]))) continue;
      if (!share_memory(tensors[output], tensors[other])) continue;
      LaunchRefusal(source, tensors).overlap(static_cast<int>(output), static_cast<int>(other));
    }
  }
}

}  // namespace flashcore
