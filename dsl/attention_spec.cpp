#include "dsl/attention_spec.h"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

namespace flashcore {

std::string_view name_of(TensorLayout layout) {
  switch (layout) {
    case TensorLayout::bhsd:
      return "bhsd";
    case TensorLayout::bshd:
      return "bshd";
    case TensorLayout::thd:
      return "thd";
  }
  return "?";
}

std::string_view name_of(Products products) {
  switch (products) {
    case Products::full:
      return "full";
    case Products::tf32:
      return "tf32";
  }
  return "?";
}

std::vector<Captured> captured_tensors(const AttentionSpec& spec) {
  std::vector<Captured> all;
  for (const Expression* expression :
       {static_cast<const Expression*>(&spec.mask), static_cast<const Expression*>(&spec.score),
        static_cast<const Expression*>(&spec.sink)})
    for (const Captured& tensor : expression->tensors)
      if (std::find(all.begin(), all.end(), tensor) == all.end()) all.push_back(tensor);
  return all;
}

std::vector<std::string> check(const AttentionSpec& spec) {
  std::vector<std::string> reasons;
  struct Dim {
    const char* name;
    int size, most;
  };
  const bool differ = spec.value_dim() != spec.head_dim;
  std::vector<Dim> dims = {{"head_dim", spec.head_dim, differ ? most_head_dim : most_head_dim_v}};
  if (differ) dims.push_back({"head_dim_v", spec.value_dim(), most_head_dim_v});
  for (const auto& [name, dim, most] : dims)
    if (dim > most)
      reasons.push_back(fmt::format(
          "{} = {}: must be at most {}; there is no schedule for larger ones", name, dim, most));
    else if (dim < 1)
      reasons.push_back(
          fmt::format("{} = {}: must be at least 1; the last dimension of the arrays", name, dim));
  if (spec.dtype != DType::f32 && !is_half(spec.dtype))
    reasons.push_back(fmt::format(
        "dtype = {}: tensor cores take f16, bf16 or f32; cast the tensors", name_of(spec.dtype)));
  else if (spec.splits_products() && std::max(spec.head_dim, spec.value_dim()) > most_split_dim)
    reasons.push_back(
        fmt::format("products = full with dtype = f32 and head_dim = {}: every f32 is split in "
                    "three parts, for "
                    "which there is room up to {}; products = tf32",
                    std::max(spec.head_dim, spec.value_dim()), most_split_dim));
  else if (spec.dtype != DType::f32 && spec.products == Products::tf32)
    reasons.push_back(
        fmt::format("products = tf32 with dtype = {}: 16-bit elements are multiplied as they are; "
                    "products = full",
                    name_of(spec.dtype)));
  if (spec.heads < 0 || spec.kv_heads < 0)
    reasons.push_back(fmt::format(
        "heads = {}, kv_heads = {}: must not be negative; leave out what the arrays say",
        spec.heads, spec.kv_heads));
  else if (spec.kv_heads && !spec.heads)
    reasons.push_back(fmt::format(
        "kv_heads = {} without heads: neither says enough alone; give both", spec.kv_heads));
  else if (spec.kv_heads && spec.heads % spec.kv_heads != 0)
    reasons.push_back(fmt::format(
        "heads = {} is not a multiple of kv_heads = {}: every key head serves the same number of "
        "query heads; a number of key heads that divides {}",
        spec.heads, spec.kv_heads, spec.heads));
  for (const auto& [name, length] :
       std::initializer_list<std::pair<const char*, std::optional<int>>>{
           {"batch", spec.batch}, {"q_len", spec.q_len}, {"kv_len", spec.kv_len}})
    if (length && *length < 1)
      reasons.push_back(
          fmt::format("{} = {}: a compiled-in length is at least 1; leave it open for tensors that "
                      "may be empty",
                      name, *length));
  for (const auto& [name, length] :
       std::initializer_list<std::pair<const char*, std::optional<int>>>{{"q_len", spec.q_len},
                                                                         {"kv_len", spec.kv_len}})
    if (spec.packed() && length)
      reasons.push_back(fmt::format(
          "{} = {} with layout thd: packed sequences have lengths of their own; leave it open",
          name, *length));
  if (spec.page_size < 0)
    reasons.push_back(
        fmt::format("page_size = {}: a page has at least one key; 0 for keys that are not in pages",
                    spec.page_size));
  if (spec.paged() && !spec.kv_lens)
    reasons.push_back(fmt::format(
        "page_size = {} without kv_lens: a table of pages does not say where a sequence "
        "ends; kv_lens = true",
        spec.page_size));
  if (spec.paged() && spec.kv_len)
    reasons.push_back(fmt::format(
        "kv_len = {} with page_size = {}: a call's table of pages says how many keys there is room "
        "for; leave it open",
        *spec.kv_len, spec.page_size));
  for (const auto& [name, given] :
       {std::pair{"q_lens", spec.q_lens}, {"kv_lens", spec.kv_lens && !spec.paged()}})
    if (spec.packed() && given)
      reasons.push_back(fmt::format(
          "{} with layout thd: cu_seqlens_q and cu_seqlens_k say the lengths already; leave it out",
          name));
  const auto add = [&](const std::vector<std::string>& more) {
    reasons.insert(reasons.end(), more.begin(), more.end());
  };
  add(check(spec.mask));
  if (!spec.score.text.empty()) add(check(spec.score));
  if (!spec.sink.text.empty()) add(check(spec.sink));
  const std::vector<Captured> tensors = captured_tensors(spec);
  for (std::size_t i = 0; i < tensors.size(); ++i)
    for (std::size_t k = 0; k < i; ++k)
      if (tensors[k].name == tensors[i].name)
        reasons.push_back(
            fmt::format("two different captured tensors named {}: {} with {} dimensions and {} "
                        "with {}; rename one",
                        tensors[i].name, name_of(tensors[k].dtype), tensors[k].rank,
                        name_of(tensors[i].dtype), tensors[i].rank));
  return reasons;
}

AttentionSpec nearest_valid(AttentionSpec spec) {
  const bool differ = spec.value_dim() != spec.head_dim;
  if (spec.head_dim_v) spec.head_dim_v = std::clamp(spec.head_dim_v, 1, most_head_dim_v);
  spec.head_dim = std::clamp(spec.head_dim, 1, differ ? most_head_dim : most_head_dim_v);
  if (spec.dtype != DType::f32 && !is_half(spec.dtype)) spec.dtype = DType::bf16;
  if (spec.dtype != DType::f32) spec.products = Products::full;
  if (spec.splits_products() && std::max(spec.head_dim, spec.value_dim()) > most_split_dim)
    spec.products = Products::tf32;
  if (spec.heads < 1 || spec.kv_heads < 0 || (spec.kv_heads && spec.heads % spec.kv_heads != 0))
    spec.heads = spec.kv_heads = 0;
  for (std::optional<int>* length : {&spec.batch, &spec.q_len, &spec.kv_len})
    if (*length && **length < 1) length->reset();
  spec.page_size = std::max(spec.page_size, 0);
  if (spec.paged()) {
    spec.kv_lens = true;
    spec.kv_len.reset();
  }
  if (!check(spec.mask).empty()) spec.mask = full();
  if (!check(spec.score).empty()) spec.score = {};
  if (!check(spec.sink).empty()) spec.sink = {};
  if (!check(spec).empty()) {  // each is right, and they do not go together
    spec.score = {};
    spec.sink = {};
  }
  return spec;
}

}  // namespace flashcore
