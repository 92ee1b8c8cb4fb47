// One launch of an attention kernel on the emulator.
#pragma once

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <string>
#include <vector>

#include "dsl/attention_spec.h"
#include "runtime/reference/formats.h"
#include "templates/attention.h"
#include "tests/support/kernel_run.h"

namespace flashcore {

/// The lengths of one launch and what fills its inputs.
struct AttentionInputs {
  int batch = 1, heads = 1, kv_heads = 1, q_len = 1, kv_len = 1;
  int row_gap = 0;    ///< elements that lie unused behind every row, a multiple of 8
  double spread = 1;  ///< standard deviation of the elements of q
  unsigned seed = 1;
  /// The sequences' own lengths, for packed and padded batches; packed, `beyond` rows follow the
  /// last.
  std::vector<int> q_lens = {}, kv_lens = {};
  int beyond = 0;
  std::map<std::string, std::int64_t> captured_lengths = {};  ///< of their dimensions, by name
};

inline std::vector<int> running_sum(const std::vector<int>& lengths) {
  std::vector<int> sums{0};
  for (const int length : lengths) sums.push_back(sums.back() + length);
  return sums;
}

inline std::vector<double> as_values(const std::vector<int>& numbers) {
  return {numbers.begin(), numbers.end()};
}

/// A table of pages for sequences of these lengths, in no order, with one entry more than the longest
/// needs. What lies beyond a sequence names no page.
struct PageTable {
  PageTable(int page_size, const std::vector<int>& lengths) : size(page_size) {
    const int longest = lengths.empty() ? 0 : std::ranges::max(lengths);
    per_sequence = (longest + size - 1) / size + 1;
    pages = per_sequence * static_cast<int>(lengths.size());
    used.resize(static_cast<std::size_t>(pages));
    const int beyond[] = {-1, 1 << 30, pages};
    for (std::size_t b = 0; b < lengths.size(); ++b)
      for (int i = 0; i < per_sequence; ++i) {
        const int page = pages - 1 - (i * static_cast<int>(lengths.size()) + static_cast<int>(b));
        const int rows = std::clamp(lengths[b] - i * size, 0, size);
        used[static_cast<std::size_t>(page)] = rows;
        table.push_back(rows > 0 ? page : beyond[i % 3]);
      }
  }

  int size, per_sequence = 0, pages = 0;
  std::vector<int> table;
  std::vector<int> used;  ///< rows of each page
};

/// Writes NaN into the rows of pages that belong to no sequence.
inline void poison_pages(const PageTable& table, const TensorView& x) {
  for (std::int64_t page = 0; page < x.shape[0]; ++page)
    for (std::int64_t row = table.used[static_cast<std::size_t>(page)]; row < x.shape[1]; ++row)
      for (std::int64_t head = 0; head < x.shape[2]; ++head)
        for (std::int64_t i = 0; i < x.shape[3]; ++i)
          write_element(x.dtype, x.data,
                        page * x.strides[0] + row * x.strides[1] + head * x.strides[2] + i,
                        std::numeric_limits<double>::quiet_NaN());
}

/// Writes NaN into the rows of q, k and v that belong to no sequence.
inline void poison_padding(const AttentionSpec& spec, const AttentionInputs& in,
                           const KernelRun& run) {
  const std::vector<TensorView> views = run.views();
  for (std::size_t t = 0; t < 3; ++t) {
    const std::vector<int>& lengths = t == 0 ? in.q_lens : in.kv_lens;
    if (lengths.empty()) continue;
    const TensorView& x = views[t];
    if (t > 0 && spec.paged()) {
      poison_pages(PageTable(spec.page_size, lengths), x);
      continue;
    }
    const int length_dim = spec.packed() ? 0 : spec.layout == TensorLayout::bshd ? 1 : 2;
    const int head_dim = spec.packed() ? 1 : 3 - length_dim;
    for (std::int64_t b = 0; b < (spec.packed() ? 1 : x.shape[0]); ++b)
      for (std::int64_t row = spec.packed() ? running_sum(lengths).back() : lengths[b];
           row < x.shape[length_dim]; ++row)
        for (std::int64_t head = 0; head < x.shape[head_dim]; ++head)
          for (std::int64_t i = 0; i < x.shape[x.rank - 1]; ++i)
            write_element(x.dtype, x.data,
                          (spec.packed() ? 0 : b * x.strides[0]) + row * x.strides[length_dim] +
                              head * x.strides[head_dim] + i,
                          std::numeric_limits<double>::quiet_NaN());
  }
}

inline KernelRun attention_run(const AttentionSpec& spec, const AttentionInputs& in) {
  RunInputs inputs{
      .extents = {{"B", in.batch}, {"H", in.heads}, {"Sq", in.q_len}, {"Sk", in.kv_len}},
      .scalars = {1 / std::sqrt(static_cast<double>(spec.head_dim))},
      .spread = {{"q", in.spread}},
      .row_gap = in.row_gap,
      .seed = in.seed};
  inputs.extents.insert(in.captured_lengths.begin(), in.captured_lengths.end());
  inputs.values = {{"q_lens", as_values(in.q_lens)}, {"kv_lens", as_values(in.kv_lens)}};
  if (spec.packed()) {
    const std::vector<int> q = running_sum(in.q_lens), k = running_sum(in.kv_lens);
    inputs.extents["Tq"] = q.back() + in.beyond;
    inputs.extents["Tk"] = k.back() + in.beyond;
    inputs.values["cu_seqlens_q"] = as_values(q);
    inputs.values["cu_seqlens_k"] = as_values(k);
    inputs.scalars.emplace_back(in.q_lens.empty() ? 0 : std::ranges::max(in.q_lens));
  }
  if (spec.paged()) {
    const PageTable pages(spec.page_size, in.kv_lens);
    inputs.extents["pages"] = pages.pages;
    inputs.extents["max_pages"] = pages.per_sequence;
    inputs.values["page_table"] = as_values(pages.table);
  }
  KernelRun run(attention_forward(spec), std::move(inputs));
  poison_padding(spec, in, run);
  return run;
}

}  // namespace flashcore
