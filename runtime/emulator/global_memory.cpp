#include "runtime/emulator/global_memory.h"

#include <algorithm>
#include <limits>
#include <map>
#include <utility>

namespace flashcore {

GlobalMemory::GlobalMemory(std::span<const TensorArgument> arguments,
                           std::span<const TensorView> tensors, bool early)
    : early_(early) {
  for (std::size_t t = 0; t < tensors.size(); ++t)
    regions_.push_back(region_of(arguments[t], tensors[t]));
}

GlobalMemory::Region GlobalMemory::region_of(const TensorArgument& argument,
                                             const TensorView& view) {
  Region region;
  region.name = argument.name;
  region.base = reinterpret_cast<std::uintptr_t>(view.data);
  region.element_bytes = size_of(argument.dtype);
  region.output = argument.output;
  bool empty = false;
  for (int d = 0; d < view.rank; ++d) {
    const std::int64_t extent = view.shape[static_cast<std::size_t>(d)];
    std::int64_t stride = view.strides[static_cast<std::size_t>(d)];
    empty |= extent == 0;
    if (extent <= 1 || stride == 0) continue;
    if (stride < 0) {  // begin at the lowest address
      region.base += static_cast<std::uintptr_t>(stride * (extent - 1) * region.element_bytes);
      stride = -stride;
    }
    region.dims.push_back({extent, stride, 0, d});
  }
  std::stable_sort(region.dims.begin(), region.dims.end(),
                   [](const auto& a, const auto& b) { return a.stride > b.stride; });
  std::int64_t reach = 0;
  for (auto dim = region.dims.rbegin(); dim != region.dims.rend(); ++dim)
    dim->reach = reach += (dim->extent - 1) * dim->stride;
  region.span = empty ? 0 : reach + 1;
  if (region.output) {
    region.writer =
        std::make_unique<std::atomic<std::uint32_t>[]>(static_cast<std::size_t>(region.span));
    region.rewritten = std::make_unique<std::atomic<std::int64_t>>(0);
    region.noted = std::make_unique<std::map<std::int64_t, std::uint32_t>>();
  }
  return region;
}

// Writes `offset` as a sum of index * stride. Strides of an array nest, so that the first guess,
// the largest index that fits, is almost always the only one; layouts that overlap need the others.
std::int64_t GlobalMemory::Region::run(std::int64_t offset, std::size_t from) const {
  if (from == dims.size()) return offset == 0 ? 1 : 0;
  const Dimension& dim = dims[from];
  const bool innermost = from + 1 == dims.size();
  if (innermost && dim.stride == 1) return offset < dim.extent ? dim.extent - offset : 0;
  const std::int64_t inner = innermost ? 0 : dims[from + 1].reach;
  std::int64_t index = std::min(offset / dim.stride, dim.extent - 1);
  for (; index >= 0 && offset - index * dim.stride <= inner; --index)
    if (const std::int64_t found = run(offset - index * dim.stride, from + 1)) return found;
  return 0;
}

bool GlobalMemory::Region::contains_all(std::int64_t offset, std::int64_t count) const {
  while (count > 0) {
    if (offset < 0 || offset >= span) return false;
    const std::int64_t found = run(offset);
    if (found == 0) return false;
    offset += found;
    count -= found;
  }
  return true;
}

// In the author's order. An index past its extent shows which one went wrong.
std::string GlobalMemory::Region::describe(std::int64_t offset) const {
  std::map<int, std::pair<std::int64_t, std::int64_t>> positions;
  for (const Dimension& dim : dims) {
    positions[dim.number] = {offset / dim.stride, dim.extent};
    offset %= dim.stride;
  }
  std::string position, shape;
  for (const auto& [number, index_and_extent] : positions) {
    const char* separator = position.empty() ? "" : ", ";
    position += fmt::format("{}{}", separator, index_and_extent.first);
    shape += fmt::format("{}{}", separator, index_and_extent.second);
  }
  return fmt::format("{}[{}] of extents [{}]", name, position, shape);
}

std::string GlobalMemory::explain(std::uintptr_t address, int bytes) const {
  const Region* nearest = nullptr;
  std::uint64_t best = std::numeric_limits<std::uint64_t>::max();
  for (const Region& region : regions_) {
    const std::uintptr_t end =
        region.base + static_cast<std::uintptr_t>(region.span * region.element_bytes);
    const std::uint64_t distance = address < region.base ? region.base - address
                                   : address < end       ? 0
                                                         : address - end + 1;
    if (distance < best) best = distance, nearest = &region;
  }
  if (nearest == nullptr) return "the kernel has no tensors";
  const std::int64_t offset =
      static_cast<std::int64_t>(address - nearest->base) / nearest->element_bytes;
  if (address < nearest->base) {
    return fmt::format(
        "{} bytes are accessed {} bytes before the first element of {}, the nearest tensor", bytes,
        nearest->base - address, nearest->name);
  }
  if (offset >= nearest->span) {
    return fmt::format(
        "{} bytes are accessed, {} elements behind the end of {}, the nearest tensor; by its "
        "strides "
        "that is {}",
        bytes, offset - nearest->span, nearest->name, nearest->describe(offset));
  }
  return fmt::format(
      "{} bytes at element {} of {} are not all elements of it; by its strides that is {}", bytes,
      offset, nearest->name, nearest->describe(offset));
}

GlobalMemory::Hit GlobalMemory::find(const void* pointer, int bytes, int alignment, int line,
                                     bool for_write) const {
  const auto address = reinterpret_cast<std::uintptr_t>(pointer);
  if (const std::uintptr_t past = address % static_cast<std::uintptr_t>(alignment); past != 0) {
    throw Fault{FaultKind::misaligned, line,
                fmt::format("an access to global memory begins {} bytes past a multiple of {}",
                            past, alignment),
                "demand this alignment of the tensor (TensorArgument::alignment), or access fewer "
                "elements at once"};
  }
  const Region* input = nullptr;
  for (const Region& region : regions_) {
    const auto distance = static_cast<std::int64_t>(address - region.base);
    if (distance < 0 || distance % region.element_bytes != 0 || bytes % region.element_bytes != 0)
      continue;
    const std::int64_t offset = distance / region.element_bytes,
                       count = bytes / region.element_bytes;
    if (!region.contains_all(offset, count)) continue;
    if (!for_write || region.output) return {&region, offset, count};
    input = &region;
  }
  if (input != nullptr) {
    throw Fault{FaultKind::read_only, line,
                fmt::format("{} bytes of {} are written, and {} is an input", bytes, input->name,
                            input->name),
                "write to a tensor declared as an output"};
  }
  throw Fault{FaultKind::out_of_bounds, line, explain(address, bytes),
              "mask the access where the index leaves its extent"};
}

void GlobalMemory::check_read(const void* source, int bytes, int alignment, int block,
                              int line) const {
  const Hit hit = find(source, bytes, alignment, line, false);
  if (!hit.region->output) return;
  for (std::int64_t i = 0; i < hit.count; ++i) {
    const std::uint32_t writer = hit.region->writer[static_cast<std::size_t>(hit.offset + i)].load(
        std::memory_order_relaxed);
    if (writer == static_cast<std::uint32_t>(block) + 1) continue;
    const std::string who =
        writer == 0 ? "which nobody has written yet"
                    : fmt::format("which block {} wrote; blocks are not ordered", writer - 1);
    throw Fault{
        FaultKind::unwritten_output, line,
        fmt::format("the output element {} is read, {}", hit.region->describe(hit.offset + i), who),
        "read what the block itself has written, or make the tensor an input of a second "
        "kernel"};
  }
}

void GlobalMemory::note_write(const void* target, int bytes, int alignment, int block, int line) {
  const Hit hit = find(target, bytes, alignment, line, true);
  std::int64_t again = 0;
  for (std::int64_t i = 0; i < hit.count; ++i) {
    again += hit.region->writer[static_cast<std::size_t>(hit.offset + i)].exchange(
                 static_cast<std::uint32_t>(block) + 1, std::memory_order_relaxed) != 0;
  }
  if (again > 0) hit.region->rewritten->fetch_add(again, std::memory_order_relaxed);
}

void GlobalMemory::add(float* target, const float* values, int count, int alignment, int block,
                       const KnownNotes* known, int line) {
  const int bytes = count * static_cast<int>(sizeof(float));
  const std::lock_guard lock(adding_);
  const Hit hit = find(target, bytes, alignment, line, true);
  const auto notes_of = [&](std::uint32_t who) {
    return known && who < known->size() ? (*known)[who] : 0;
  };
  const auto self = static_cast<std::uint32_t>(block);
  for (std::int64_t i = 0; i < hit.count; ++i) {
    const std::int64_t element = hit.offset + i;
    std::atomic<std::uint32_t>& writer = hit.region->writer[static_cast<std::size_t>(element)];
    const std::uint32_t before = writer.load();
    if (known && before != 0 && before != self + 1 &&
        notes_of(before - 1) <= (*hit.region->noted)[element])
      throw Fault{
          FaultKind::out_of_turn, line,
          fmt::format("{} is added to behind block {}, which has not passed its turn on, or "
                      "this block has not waited for that",
                      hit.region->describe(element), before - 1),
          "wait_turn() in front of additions in order, and behind them a barrier of their "
          "threads and release_turn()"};
    writer = self + 1;
    if (known) (*hit.region->noted)[element] = notes_of(self);
    target[i] += values[i];
  }
}

std::string GlobalMemory::describe(const void* element) const {
  const auto address = reinterpret_cast<std::uintptr_t>(element);
  for (const Region& region : regions_) {
    const auto distance = static_cast<std::int64_t>(address - region.base);
    const std::int64_t offset = distance / region.element_bytes;
    if (distance >= 0 && region.contains_all(offset, 1)) return region.describe(offset);
  }
  return "?";
}

int GlobalMemory::claim_tile(int count) {
  const int claimed = claimed_.fetch_add(1);
  if (claimed == count - 1) claimed_ = 0;
  return claimed;
}

std::vector<OutputCoverage> GlobalMemory::coverage() const {
  std::vector<OutputCoverage> outputs;
  for (const Region& region : regions_) {
    if (!region.output) continue;
    OutputCoverage out{.name = region.name, .rewritten = region.rewritten->load()};
    for (std::int64_t offset = 0; offset < region.span; ++offset) {
      if (region.run(offset) == 0) continue;
      ++out.elements;
      out.unwritten += region.writer[static_cast<std::size_t>(offset)].load() == 0;
    }
    outputs.push_back(std::move(out));
  }
  return outputs;
}

}  // namespace flashcore
