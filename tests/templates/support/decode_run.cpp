#include "tests/templates/support/decode_run.h"

#include <algorithm>
#include <map>
#include <numeric>
#include <random>

#include <fmt/format.h>

#include "dsl/json.h"
#include "runtime/reference/formats.h"
#include "templates/decode_plan.h"
#include "tests/support/kernel_run.h"

namespace flashcore {
namespace {

using Values = std::vector<double>;

/// A problem with its inputs, and the output and log-sum-exps that follow from them by definition.
class Definition {
 public:
  Definition(const DecodeSpec& spec, const DecodeRun& problem)
      : balances_(spec.balances), spec_(spec.attention), p_(problem) {
    std::mt19937 random(11);
    std::normal_distribution<double> normal;
    const auto draw = [&](std::size_t count, double spread) {
      Values drawn(count);
      for (double& x : drawn) x = round_to(spec_.dtype, normal(random) * spread);
      return drawn;
    };
    const double most = spec_.dtype == DType::f16 ? 6e3 : 1e30;
    q_ = draw(static_cast<std::size_t>(p_.batch * p_.heads * p_.q_len * d()),
              std::min(p_.spread, most));
    k_ = draw(static_cast<std::size_t>(p_.batch * p_.kv_heads * p_.kv_len * d()), 1);
    v_ = draw(static_cast<std::size_t>(p_.batch * p_.kv_heads * p_.kv_len * dv()), 1);
    define();
    lay_out();
    if (spec_.page_size) cut_into_pages(random);
    for (const CapturedValues& values : p_.captured) given[values.tensor.name] = values.values;
    given["q_lens"] = Values(p_.q_lens.begin(), p_.q_lens.end());
    given["kv_lens"] = Values(p_.kv_lens.begin(), p_.kv_lens.end());
  }

  /// The arguments of one of the programs.
  [[nodiscard]] RunInputs inputs(const Program& program) const {
    RunInputs in{.extents = {{"B", p_.batch},
                             {"H", p_.heads},
                             {"Sq", p_.q_len},
                             {"Sk", p_.kv_len},
                             {"splits", p_.splits},
                             {"pages", pages_ * p_.batch},
                             {"max_pages", pages_ + 1}},
                 .values = given};
    const std::int32_t room = spec_.page_size ? (pages_ + 1) * spec_.page_size : p_.kv_len;
    const std::map<std::string, std::int32_t> numbers{
        {"most_rows", p_.q_len}, {"most_keys", room}, {"head_blocks", p_.kv_heads},
        {"row_tiles", 1},        {"block_slots", 4},  {"splits", p_.splits}};
    for (const ir::Parameter& parameter : program.function().parameters) {
      if (const auto number = numbers.find(parameter.name); number != numbers.end())
        in.scalars.emplace_back(number->second);
      else
        in.scalars.emplace_back(scale());
    }
    for (const ir::Tensor& declared : program.function().tensors)
      for (const CapturedValues& values : p_.captured)
        if (values.tensor.name == declared.name)
          for (std::size_t i = 0; i < declared.dims.size(); ++i)
            in.extents[declared.dims[i].name] = values.shape[i];
    return in;
  }

  /// What o and lse are off by.
  [[nodiscard]] std::string compare() const {
    std::string report;
    // A single weight is 1 here, and there a number near 1 that is rounded as well.
    double worst = 0, lse_worst = 0, largest = 0;
    for (const double x : o_) largest = std::max(largest, std::abs(x));
    double allowed = largest * std::ldexp(1, spec_.dtype == DType::bf16 ? -7 : -10);
    const Values& o = given.at("o");
    for (std::size_t i = 0; i < o_.size(); ++i) {
      const double off = std::abs(o[i] - o_[i]);
      if (!(off <= worst)) worst = off;
      allowed = std::max(allowed, 3 * std::abs(plain_[i] - o_[i]));
    }
    if (!(worst <= allowed + 1e-5))
      report += fmt::format("o is off by {:.3g}, allowed {:.3g}\n", worst, allowed);
    if (!spec_.lse) return report;
    const Values& lse = given.at("lse");
    for (std::size_t i = 0; i < lse_.size(); ++i) {
      if (lse[i] == lse_[i]) continue;
      const double off = std::abs(lse[i] - lse_[i]) / std::max(1., std::abs(lse_[i]));
      if (!(off <= lse_worst)) lse_worst = off;
    }
    if (!(lse_worst <= 1e-5)) report += fmt::format("lse is off by {:.3g}\n", lse_worst);
    return report;
  }

  [[nodiscard]] bool has_large_scores() const { return p_.spread > 1; }
  /// Of balanced splits each program stores what the other does not: the sums of sequences with several splits,
  /// or the output. `compare` finds what none has stored.
  [[nodiscard]] bool may_leave_elements() const { return balances_; }

  /// What a program has stored. What it has not is NaN, and stays as it was.
  void take(const std::string& output, Values stored) {
    Values& before = given[output];
    if (balances_ && before.size() == stored.size())
      for (std::size_t i = 0; i < stored.size(); ++i)
        if (std::isnan(stored[i])) stored[i] = before[i];
    before = std::move(stored);
  }

  std::map<std::string, Values> given;

 private:
  [[nodiscard]] int d() const { return spec_.stored_dim(); }
  [[nodiscard]] int dv() const { return spec_.stored_value_dim(); }
  [[nodiscard]] double scale() const { return 1 / std::sqrt(static_cast<double>(spec_.head_dim)); }
  static int own(const std::vector<int>& lengths, int b, int length) {
    return lengths.empty() ? length : lengths[static_cast<std::size_t>(b)];
  }
  static std::size_t at(int b, int heads, int h, int length, int i) {
    return static_cast<std::size_t>((b * heads + h) * length + i);
  }

  void define() {
    o_.assign(static_cast<std::size_t>(p_.batch * p_.heads * p_.q_len * dv()), 0);
    plain_ = o_;
    lse_.assign(static_cast<std::size_t>(p_.batch * p_.heads * p_.q_len), -INFINITY);
    for (int b = 0; b < p_.batch; ++b)
      for (int h = 0; h < p_.heads; ++h)
        for (int i = 0; i < own(p_.q_lens, b, p_.q_len); ++i) define_row(b, h, i);
  }

  void define_row(int b, int h, int i) {
    const int keys = own(p_.kv_lens, b, p_.kv_len), kv = h / (p_.heads / p_.kv_heads);
    const std::size_t row = at(b, p_.heads, h, p_.q_len, i);
    const auto line = [](auto& values, std::size_t number, int dim) {
      return values.data() + number * static_cast<std::size_t>(dim);
    };
    Site site{.b = b, .h = h, .q_idx = i, .q_len = own(p_.q_lens, b, p_.q_len)};
    site.kv_len = keys;
    Values scores(static_cast<std::size_t>(keys), -INFINITY);
    const double sink = p_.sink(site);
    double most = sink;
    for (int j = 0; j < keys; ++j) {
      site.kv_idx = j;
      if (!p_.visible(site)) continue;
      const double* query = line(q_, row, d());
      site.score =
          scale() * std::inner_product(query, query + d(),
                                       line(k_, at(b, p_.kv_heads, kv, p_.kv_len, j), d()), 0.);
      const double score = scores[static_cast<std::size_t>(j)] = p_.score(site);
      most = std::max(most, score);
    }
    if (std::isinf(most)) return;
    double total = std::exp(sink - most);
    double *exact = line(o_, row, dv()), *plain = line(plain_, row, dv());
    for (int j = 0; j < keys; ++j) {
      const double score = scores[static_cast<std::size_t>(j)];
      if (score == -INFINITY) continue;
      const double weight = std::exp(score - most), rounded = round_to(spec_.dtype, weight);
      total += weight;
      const double* value = line(v_, at(b, p_.kv_heads, kv, p_.kv_len, j), dv());
      for (int c = 0; c < dv(); ++c) {
        exact[c] += weight * value[c];
        plain[c] += rounded * value[c];
      }
    }
    lse_[row] = most + std::log(total);
    for (int c = 0; c < dv(); ++c) {
      exact[c] /= total;
      plain[c] = round_to(spec_.dtype, plain[c] / total);
    }
  }

  /// Tensors in the spec's layout, NaN beyond the sequences.
  void lay_out() {
    const auto arranged = [&](const Values& from, int heads, int length, int dim,
                              const std::vector<int>& lengths) {
      Values to(from.size(), NAN);
      for (int b = 0; b < p_.batch; ++b)
        for (int h = 0; h < heads; ++h)
          for (int i = 0; i < own(lengths, b, length); ++i)
            for (int c = 0; c < dim; ++c)
              to[place(b, h, i, heads, length) * static_cast<std::size_t>(dim) +
                 static_cast<std::size_t>(c)] =
                  from[at(b, heads, h, length, i) * static_cast<std::size_t>(dim) +
                       static_cast<std::size_t>(c)];
      return to;
    };
    given["q"] = arranged(q_, p_.heads, p_.q_len, d(), p_.q_lens);
    given["k"] = arranged(k_, p_.kv_heads, p_.kv_len, d(), p_.kv_lens);
    given["v"] = arranged(v_, p_.kv_heads, p_.kv_len, dv(), p_.kv_lens);
    o_ = arranged(o_, p_.heads, p_.q_len, dv(), {});
    plain_ = arranged(plain_, p_.heads, p_.q_len, dv(), {});
  }
  [[nodiscard]] std::size_t place(int b, int h, int i, int heads, int length) const {
    return spec_.layout == TensorLayout::bshd
               ? static_cast<std::size_t>((b * length + i) * heads + h)
               : at(b, heads, h, length, i);
  }

  /// [pages, page_size, kv_heads, dim] in random order.
  void cut_into_pages(std::mt19937& random) {
    const int size = spec_.page_size;
    pages_ = (p_.kv_len + size - 1) / size;
    std::vector<int> order(static_cast<std::size_t>(pages_ * p_.batch));
    std::iota(order.begin(), order.end(), 0);
    std::shuffle(order.begin(), order.end(), random);
    Values table;
    const int numbers[] = {-1, 1 << 30, pages_ * p_.batch};
    for (int b = 0; b < p_.batch; ++b)
      for (int page = 0; page <= pages_; ++page) {
        const bool used = page * size < own(p_.kv_lens, b, p_.kv_len);
        table.push_back(used ? order[static_cast<std::size_t>(b * pages_ + page)]
                             : numbers[page % 3]);
      }
    for (const auto& [name, from, dim] : {std::tuple("k", &k_, d()), {"v", &v_, dv()}}) {
      Values paged(order.size() * static_cast<std::size_t>(size * p_.kv_heads * dim), NAN);
      for (int b = 0; b < p_.batch; ++b)
        for (int j = 0; j < own(p_.kv_lens, b, p_.kv_len); ++j)
          for (int h = 0; h < p_.kv_heads; ++h)
            for (int c = 0; c < dim; ++c) {
              const int page = order[static_cast<std::size_t>(b * pages_ + j / size)];
              paged[static_cast<std::size_t>(((page * size + j % size) * p_.kv_heads + h) * dim +
                                             c)] =
                  (*from)[at(b, p_.kv_heads, h, p_.kv_len, j) * static_cast<std::size_t>(dim) +
                          static_cast<std::size_t>(c)];
            }
      given[name] = std::move(paged);
    }
    given["page_table"] = std::move(table);
  }

  const bool balances_;
  const AttentionSpec& spec_;
  const DecodeRun& p_;
  Values q_, k_, v_;        ///< [batch, heads, length, dim]
  Values o_, plain_, lse_;  ///< o exact, and as 16 bits make it
  int pages_ = 0;           ///< of a sequence
};

/// One launch; its outputs join what is given to the program behind it.
std::string launch(const Program& program, const ScheduledKernel& kernel, Definition& definition) {
  KernelRun run(program, definition.inputs(program));
  const EmulationReport emulated = run.emulate(kernel.source);
  // The weights of a row of large scores have a rounding error in common, which the combination
  // divides away.
  std::string report = definition.has_large_scores() ? "" : run.compare();
  for (const OutputCoverage& output : emulated.outputs)
    if (output.unwritten && !definition.may_leave_elements())
      report += fmt::format("{} elements are not written\n", output.unwritten);
  const auto& tensors = program.function().tensors;
  for (std::size_t t = 0; t < tensors.size(); ++t)
    if (tensors[t].output) definition.take(tensors[t].name, run.values(t));
  if (!report.empty()) report += fmt::format("  under {}\n", to_json(kernel.schedule));
  return report;
}

}  // namespace

std::vector<ProgramKernels> decode_kernels(const DecodeSpec& spec, const Target& target, int q_len,
                                           bool all_schedules) {
  int row_tile = 16;
  while (row_tile < (spec.packs_heads() ? spec.attention.group() : 1) * q_len &&
         row_tile < (spec.rows == DecodeRows::packed ? most_decode_rows : 128))
    row_tile *= 2;
  if (spec.rows != DecodeRows::packed) row_tile = std::max(64, row_tile);
  std::vector<ProgramKernels> kernels;
  if (spec.balances)
    kernels.push_back(generate_for(
        attention_decode_plan(spec, split_costs(spec.attention, {spec.rows, row_tile})),
        attention_decode_plan_schedules(target), target, all_schedules));
  kernels.push_back(generate_for(attention_decode_split(spec),
                                 attention_decode_split_schedules(spec, target, row_tile), target,
                                 all_schedules));
  kernels.push_back(generate_for(attention_decode_combine(spec),
                                 attention_decode_combine_schedules(spec, target), target,
                                 all_schedules));
  return kernels;
}

std::string compare_decode(const std::vector<ProgramKernels>& programs, const DecodeSpec& spec,
                           const DecodeRun& problem) {
  std::size_t runs = 0;
  for (const ProgramKernels& program : programs) {
    if (program.kernels.empty()) return "no schedule fits\n";
    runs = std::max(runs, program.kernels.size());
  }
  const Definition before_any(spec, problem);
  std::string report;
  for (std::size_t i = 0; i < runs; ++i) {
    Definition definition = before_any;
    for (const auto& [program, kernels] : programs)
      report += launch(program, kernels[i % kernels.size()], definition);
    report += definition.compare();
  }
  return report;
}

}  // namespace flashcore
