// Every field of what a kernel is made of reaches the key that it is found by, or stands here with
// the reason why it need not. The structures are taken apart by structured bindings, which do not
// compile when a field is added: whoever adds one decides here.
#include <cstddef>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <type_traits>
#include <vector>

#include <gmock/gmock.h>
#include <nlohmann/json.hpp>

#include "codegen/generate.h"
#include "dsl/error.h"
#include "dsl/json.h"
#include "runtime/cache/key.h"
#include "runtime/compile.h"
#include "runtime/request.h"
#include "templates/attention.h"

namespace flashcore {
namespace {

using Json = nlohmann::json;
using testing::IsEmpty;

CacheKey key_of(const KernelSource& source, const std::string& architecture) {
  const Toolchain toolchain{.version = {13, 0}, .digest = "0123"};
  return make_key(source, architecture, compile_options(architecture, toolchain.version),
                  toolchain);
}

// --- What a kernel is: all of a KernelSource.

// Another value of the same type.
void change(std::string& value) { value += "x"; }
void change(bool& value) { value = !value; }
template <class Number>
requires std::is_arithmetic_v<Number>
void change(Number& value) { value += 1; }
template <class Enum>
requires std::is_enum_v<Enum>
void change(Enum& value) { value = static_cast<Enum>(value == Enum{} ? 1 : 0); }
void change(std::optional<double>& value) {
  value = value ? std::nullopt : std::optional<double>(0.5);
}

using Visit = std::function<void(const std::string& name, const std::function<void()>& change)>;

template <class Leaf>
void each_field(Leaf& leaf, const std::string& name, const Visit& visit) {
  visit(name, [&] { change(leaf); });
}

void each_field(Extent& it, const std::string& at, const Visit& visit);
void each_field(TensorArgument& it, const std::string& at, const Visit& visit);
void each_field(ScalarArgument& it, const std::string& at, const Visit& visit);
void each_field(TensorMapArgument& it, const std::string& at, const Visit& visit);
void each_field(ParameterField& it, const std::string& at, const Visit& visit);
void each_field(GridAxis& it, const std::string& at, const Visit& visit);

// How many there are, and each of the first one's fields.
template <class Element>
void each_field(std::vector<Element>& list, const std::string& at, const Visit& visit) {
  visit(at + ".size()", [&] { list.emplace_back(); });
  if (!list.empty()) each_field(list.front(), at + "[0]", visit);
}

template <class... Fields>
void each_named(const std::string& at, const Visit& visit, const std::vector<const char*>& names,
                Fields&... fields) {
  ASSERT_EQ(names.size(), sizeof...(fields));
  std::size_t i = 0;
  (each_field(fields, at + "." + names[i++], visit), ...);
}

void each_field(Extent& it, const std::string& at, const Visit& visit) {
  auto& [name, value, plus, times] = it;
  each_field(name, at + ".name", visit);
  // A number has no name and nothing added to it.
  visit(at + ".value", [&] { it = Extent(value + 7); });
  each_field(plus, at + ".plus", visit);
  each_field(times, at + ".times", visit);
}
void each_field(TensorArgument& it, const std::string& at, const Visit& visit) {
  auto& [name, dtype, output, dims, alignment, stride_limits, unwritten, gathered, last_stride] =
      it;
  each_named(at, visit,
             {"name", "dtype", "output", "dims", "alignment", "stride_limits", "unwritten",
              "gathered", "has_last_stride"},
             name, dtype, output, dims, alignment, stride_limits, unwritten, gathered, last_stride);
}
void each_field(ScalarArgument& it, const std::string& at, const Visit& visit) {
  auto& [name, dtype, positive, is_length] = it;
  each_named(at, visit, {"name", "dtype", "positive", "is_length"}, name, dtype, positive,
             is_length);
}
void each_field(TensorMapArgument& it, const std::string& at, const Visit& visit) {
  auto& [tensor, row_dim, rows, width] = it;
  each_named(at, visit, {"tensor", "row_dim", "rows", "width"}, tensor, row_dim, rows, width);
}
void each_field(ParameterField& it, const std::string& at, const Visit& visit) {
  auto& [kind, index, dim, offset] = it;
  each_named(at, visit, {"kind", "index", "dim", "offset"}, kind, index, dim, offset);
}
void each_field(GridAxis& it, const std::string& at, const Visit& visit) {
  auto& [name, extent, tile, scalar] = it;
  each_named(at, visit, {"name", "extent", "tile", "scalar"}, name, extent, tile, scalar);
}
void each_field(KernelSource& it, const Visit& visit) {
  auto& [name, entry, prelude, body, tensors, scalars, extents, tensor_maps, parameters,
         parameter_bytes, grid, cluster, flat_grid, persistent, waits_for_kernels, keeps_operands,
         threads, shared_bytes, min_blocks, split_registers] = it;
  each_named("source", visit,
             {"name",           "entry",   "prelude",      "body",       "tensors",
              "scalars",        "extents", "tensor_maps",  "parameters", "parameter_bytes",
              "grid",           "cluster", "flat_grid",    "persistent", "waits_for_kernels",
              "keeps_operands", "threads", "shared_bytes", "min_blocks", "split_registers"},
             name, entry, prelude, body, tensors, scalars, extents, tensor_maps, parameters,
             parameter_bytes, grid, cluster, flat_grid, persistent, waits_for_kernels,
             keeps_operands, threads, shared_bytes, min_blocks, split_registers);
}

// A kernel that has something in every list.
KernelSource rich_kernel() {
  const AttentionSpec spec{.head_dim = 64, .mask = causal(), .layout = TensorLayout::thd};
  const Target& target = find_target("sm_90a");
  KernelSource source =
      generate(attention_forward(spec), attention_schedule(spec, target, {}), target);
  for (const bool there :
       {!source.tensors.empty(), !source.scalars.empty(), !source.extents.empty(),
        !source.tensor_maps.empty(), !source.parameters.empty(), !source.grid.empty()})
    EXPECT_TRUE(there);
  return source;
}

TEST(KeyReflection, EveryFieldOfAKernelIsInItsKey) {
  // What messages call the kernel; the text calls it `entry`.
  const std::set<std::string> left_out{"source.name"};
  const KernelSource original = rich_kernel();
  const CacheKey key = key_of(original, "sm_90a");
  std::size_t count = 0;
  {
    KernelSource source = original;
    each_field(source, [&](const std::string&, const std::function<void()>&) { ++count; });
  }
  ASSERT_GT(count, 50U);
  std::set<std::string> names{key.name};
  for (std::size_t i = 0; i < count; ++i) {
    KernelSource source = original;
    std::size_t at = 0;
    each_field(source, [&](const std::string& name, const std::function<void()>& change) {
      if (at++ != i) return;
      change();
      const CacheKey changed = key_of(source, "sm_90a");
      if (left_out.contains(name)) {
        EXPECT_TRUE(changed.preimage == key.preimage) << name;
      } else {
        EXPECT_TRUE(changed.preimage != key.preimage) << name;
        EXPECT_FALSE(changed.asks_for(key.preimage)) << name;
        EXPECT_TRUE(names.insert(changed.name).second) << name;
      }
    });
  }
}

TEST(KeyReflection, EveryPartOfTheCompileIsInItsKey) {
  const KernelSource source = rich_kernel();
  const std::vector<std::string> options = compile_options("sm_90a", {13, 0});
  const Toolchain toolchain{.version = {13, 0}, .digest = "0123"};
  std::set<std::string> names{make_key(source, "sm_90a", options, toolchain).name};
  const auto expect_new = [&](const CacheKey& key, const std::string& what) {
    EXPECT_TRUE(names.insert(key.name).second) << what;
  };
  expect_new(make_key(source, "sm_90", options, toolchain), "architecture");
  for (std::size_t i = 0; i < options.size(); ++i) {
    std::vector<std::string> other = options;
    other[i] += "x";
    expect_new(make_key(source, "sm_90a", other, toolchain), options[i]);
    other.erase(other.begin() + static_cast<std::ptrdiff_t>(i));
    expect_new(make_key(source, "sm_90a", other, toolchain), "no " + options[i]);
  }
  for (int field = 0; field < 3; ++field) {
    Toolchain other = toolchain;
    auto& [version, digest] = other;
    auto& [major, minor] = version;
    if (field == 0) ++major;
    if (field == 1) ++minor;
    if (field == 2) digest += "x";
    expect_new(make_key(source, "sm_90a", options, other), "toolchain");
  }
}

// --- What it is made from: specs and schedules, as JSON has them, which one list for each writes.

// The other values of a field, any of which may be possible in one place and not in another.
using Values = std::map<std::string, std::vector<Json>>;

std::optional<CacheKey> key_of(const AttentionSpec& spec, const Schedule& schedule,
                               const Target& target) {
  try {
    return key_of(generate(attention_forward(spec), schedule, target), std::string(target.name));
  } catch (const Error&) {
    return std::nullopt;  // not in this place
  }
}

template <class Value>
Value read(const std::string& text) {
  if constexpr (std::is_same_v<Value, Schedule>) return schedule_from_json(text);
  if constexpr (std::is_same_v<Value, AttentionSpec>) return attention_spec_from_json(text);
}

struct Place {
  AttentionSpec spec;
  Schedule schedule;
  const Target* target;
};

// Kernels of all kinds.
std::vector<Place> places() {
  const std::vector<AttentionSpec> specs{
      {.head_dim = 64, .heads = 8, .kv_heads = 4, .mask = causal()},
      {.head_dim = 128},
      {.head_dim = 128, .mask = causal(), .score = softcap(30)},
      {.head_dim = 192, .mask = causal()},
      {.head_dim = 64, .kv_lens = true},
  };
  std::vector<Place> found;
  for (const char* name : {"sm_80", "sm_90a"}) {
    const Target& target = find_target(name);
    for (const AttentionSpec& spec : specs) {
      std::vector<std::vector<Schedule>> reached = reachable_schedules(spec, target, {}, "");
      for (const std::vector<Schedule>& schedules : reached)
        for (const Schedule& schedule : schedules) found.push_back({spec, schedule, &target});
    }
  }
  // Some fields work only beside others, which no schedule that ships has.
  Place shared = found.front(), two_along_columns = shared;
  shared.schedule.softmax = Softmax::shared;
  two_along_columns.schedule.warps_n = 2;
  found.insert(found.end(), {shared, two_along_columns});
  return found;
}

std::string request_at(const Place& place) {
  return request_of(attention_forward(place.spec), place.schedule, *place.target);
}

// The fields that make another kernel in no place, whichever value they get.
template <class Value>
std::vector<std::string> without_effect(const Values& values, Value Place::*member,
                                        const std::vector<Place>& everywhere) {
  std::vector<std::string> found;
  for (const auto& [name, others] : values) {
    bool reaches = false;
    for (const Place& place : everywhere) {
      const std::optional<CacheKey> before = key_of(place.spec, place.schedule, *place.target);
      for (const Json& other : others) {
        Json json = Json::parse(to_json(place.*member));
        if (json.at(name) == other) continue;
        json[name] = other;
        Place changed = place;
        changed.*member = read<Value>(json.dump());
        const auto after = key_of(changed.spec, changed.schedule, *changed.target);
        reaches = before && after && after->name != before->name;
        if (!reaches) continue;
        // A bundle is asked before any code is generated.
        EXPECT_NE(request_at(changed), request_at(place)) << name;
        break;
      }
      if (reaches) break;
    }
    if (!reaches) found.push_back(name);
  }
  return found;
}

// Both ways, so that a field that is added has to be decided about.
template <class Value>
void expect_all_named(const Values& values, const std::map<std::string, std::string>& left_out) {
  std::set<std::string> here, there;
  for (const auto& [name, others] : values) here.insert(name);
  for (const auto& [name, reason] : left_out) here.insert(name);
  const Json written = Json::parse(to_json(Value{}));
  for (const auto& [name, value] : written.items()) there.insert(name);
  there.erase("kind");
  EXPECT_EQ(here, there);
}

TEST(KeyReflection, EveryFieldOfAScheduleMakesAnotherKernelSomewhere) {
  // Does not compile when a field is added to the structure.
  const Schedule all;
  const auto& [tiles, warps_m, warps_n, product_split, stages, instruction, copy, softmax,
               keep_operands, load_vectors, staged_stores, keep_addresses, peel_masks, descending,
               last_tiles_first, end_aligned_tiles, grid_order, flat_grid, overlap_products,
               late_products, rescale_before_product, rescale_before_wait, lazy_scaling,
               reduction_chains, sums_by_products, ping_pong, persistent, tile_scheduler,
               positions_per_block, outer_stages, cluster_splits, producer, producer_warps,
               blocks_per_processor, multicast_blocks] = all;
  static_cast<void>(tiles);
  const Values values{
      {"tiles", {{{"rows", 64}, {"cols", 64}}, {{"rows", 128}, {"cols", 64}}}},
      {"warps_m", {2, 4, 8}},
      {"warps_n", {2}},
      {"product_split", {"columns"}},
      {"stages", {1, 2, 3}},
      {"instruction", {"wmma", "mma_m16n8k16"}},
      {"copy", {"vector", "cp_async"}},
      {"softmax", {"shared"}},
      {"keep_operands", {true, false}},
      {"staged_stores", {true, false}},
      {"keep_addresses", {true, false}},
      {"peel_masks", {true, false}},
      {"descending", {true, false}},
      {"last_tiles_first", {true, false}},
      {"end_aligned_tiles", {true, false}},
      {"grid_order", {"tiles_first", "tiles_last", "grouped"}},
      {"flat_grid", {true, false}},
      {"overlap_products", {true, false}},
      {"late_products", {true, false}},
      {"rescale_before_product", {true, false}},
      {"rescale_before_wait", {true, false}},
      {"lazy_scaling", {true, false}},
      {"reduction_chains", {1, 2, 4}},
      {"sums_by_products", {true, false}},
      {"ping_pong", {true, false}},
      {"persistent", {true, false}},
      {"tile_scheduler", {"serpentine", "dynamic"}},
      {"positions_per_block", {1, 2}},
      {"outer_stages", {1, 2}},
      {"cluster_splits", {1, 2}},
      {"multicast_blocks", {1, 2}},
      {"producer", {true, false}},
      {"producer_warps", {1, 2}},
      {"blocks_per_processor", {1, 2}},
  };
  const std::map<std::string, std::string> left_out{
      {"load_vectors", "no loop of these programs loads a vector: those of gradients do"},
  };
  expect_all_named<Schedule>(values, left_out);
  EXPECT_THAT(without_effect(values, &Place::schedule, places()), IsEmpty());
}

TEST(KeyReflection, EveryFieldOfASpecMakesAnotherKernelSomewhere) {
  const AttentionSpec all;
  const auto& [head_dim, head_dim_v, heads, kv_heads, dtype, products, mask, score, sink, layout,
               lse, q_lens, kv_lens, page_size, large_scores, deterministic, batch, q_len, kv_len] =
      all;
  static_cast<void>(head_dim);
  const Values values{
      {"head_dim", {32, 96}},
      {"head_dim_v", {32}},
      {"heads", {4, 16}},
      {"kv_heads", {2, 8}},
      {"dtype", {"f16"}},
      {"mask", {"true", Json::parse(to_json(AttentionSpec{.mask = sliding_window(9, 3)}))["mask"]}},
      {"score", {Json::parse(to_json(AttentionSpec{.score = softcap(50)}))["score"]}},
      {"sink", {"0.5"}},
      {"layout", {"bshd", "thd"}},
      {"lse", {true}},
      {"q_lens", {true}},
      {"kv_lens", {true}},
      {"page_size", {16}},
      {"large_scores", {true}},
      {"batch", {3}},
      {"q_len", {100}},
      {"kv_len", {100}},
  };
  const std::map<std::string, std::string> left_out{
      {"products", "every dtype goes with one of them, and the dtype is in the kernel"},
      {"deterministic", "it chooses among programs of gradients, and is in none of them"},
  };
  expect_all_named<AttentionSpec>(values, left_out);
  EXPECT_THAT(without_effect(values, &Place::spec, places()), IsEmpty());
}

// What is the same question has one key: how it was written, where, and by which process.
TEST(KeyReflection, NothingElseChangesTheKey) {
  const Place place = places().front();
  const std::string key = key_of(place.spec, place.schedule, *place.target)->name;
  const auto expect_same = [&](const AttentionSpec& spec, const Schedule& schedule) {
    EXPECT_EQ(key_of(spec, schedule, *place.target)->name, key);
  };
  // The order and the spacing of the JSON, and defaults that are left out.
  const Json sorted = Json::parse(to_json(place.spec));
  Json short_spec = Json::object();
  const Json defaults = Json::parse(to_json(AttentionSpec{}));
  for (const auto& [name, value] : sorted.items())
    if (defaults.at(name) != value) short_spec[name] = value;
  expect_same(attention_spec_from_json(sorted.dump()), place.schedule);
  expect_same(attention_spec_from_json(short_spec.dump(8)), place.schedule);
  expect_same(place.spec, schedule_from_json(Json::parse(to_json(place.schedule)).dump()));
  // A process that has generated other kernels before, at another time.
  for (const Place& other : places()) (void)key_of(other.spec, other.schedule, *other.target);
  expect_same(place.spec, place.schedule);
  // What 0 stands for.
  AttentionSpec spelled_out = place.spec;
  spelled_out.head_dim_v = spelled_out.head_dim;
  expect_same(spelled_out, place.schedule);
  // How gradients are added up.
  AttentionSpec in_any_order = place.spec;
  in_any_order.deterministic = false;
  expect_same(in_any_order, place.schedule);
}

}  // namespace
}  // namespace flashcore
