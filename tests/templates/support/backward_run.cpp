#include "tests/templates/support/backward_run.h"

#include <algorithm>
#include <map>
#include <random>

#include <fmt/format.h>

#include "dsl/json.h"
#include "runtime/reference/formats.h"
#include "templates/attention_backward.h"
#include "tests/support/kernel_run.h"

namespace flashcore {
namespace {

using Values = std::vector<double>;

/// Where the elements of a tensor of a batch are, by sequence, head, row and column.
struct Place {
  TensorLayout layout;
  int heads, length, dim;
  std::vector<int> begins;  ///< of packed sequences

  [[nodiscard]] std::size_t operator()(int b, int h, int i, int c) const {
    std::size_t row = 0;
    if (layout == TensorLayout::thd)
      row = static_cast<std::size_t>((begins[static_cast<std::size_t>(b)] + i) * heads + h);
    else if (layout == TensorLayout::bshd)
      row = static_cast<std::size_t>((b * length + i) * heads + h);
    else
      row = static_cast<std::size_t>((b * heads + h) * length + i);
    return row * static_cast<std::size_t>(dim) + static_cast<std::size_t>(c);
  }
};

/// A problem with its inputs, and everything that follows from them by definition.
class Definition {
 public:
  Definition(const AttentionSpec& spec, const std::function<bool(const Site&)>& visible,
             const BackwardProblem& problem)
      : spec_(spec), visible_(visible), p_(problem) {
    const int q_rows = rows_of(p_.q_lens, p_.q_len), kv_rows = rows_of(p_.kv_lens, p_.kv_len);
    const std::vector<int> q_begins = begins_of(p_.q_lens), kv_begins = begins_of(p_.kv_lens);
    q_ = {spec.layout, p_.heads, q_rows, spec.stored_dim(), q_begins};
    o_ = {spec.layout, p_.heads, q_rows, spec.stored_value_dim(), q_begins};
    k_ = {spec.layout, p_.kv_heads, kv_rows, spec.stored_dim(), kv_begins};
    v_ = {spec.layout, p_.kv_heads, kv_rows, spec.stored_value_dim(), kv_begins};
    std::mt19937 random(7);
    std::normal_distribution<double> normal;
    const auto draw = [&](const Place& place, double spread) {
      Values drawn(size_of_tensor(place));
      for (double& x : drawn) x = round_to(spec.dtype, normal(random) * spread);
      return drawn;
    };
    given["q"] = draw(q_, p_.spread);
    given["k"] = draw(k_, 1);
    given["v"] = draw(v_, 1);
    given["dout"] = draw(o_, 1);
    given["o"] = Values(given["dout"].size());
    given["lse"] = Values(
        static_cast<std::size_t>(packed() ? p_.heads * q_rows : p_.batch * p_.heads * q_rows),
        -INFINITY);
    differentiate([](double x) { return x; }, exact);
    given["o"] = exact["o"];
    for (double& x : given["o"]) x = round_to(spec.dtype, x);
    given["lse"] = exact["lse"];
    differentiate([&](double x) { return round_to(spec_.dtype, x); }, plain);
    poison_padding();
    for (const CapturedValues& values : p_.captured) given[values.tensor.name] = values.values;
    const auto as_values = [](const std::vector<int>& numbers) {
      return Values(numbers.begin(), numbers.end());
    };
    given["q_lens"] = as_values(p_.q_lens);
    given["kv_lens"] = as_values(p_.kv_lens);
    given["cu_seqlens_q"] = as_values(q_begins);
    given["cu_seqlens_k"] = as_values(kv_begins);
  }

  /// The arguments of one of the programs.
  [[nodiscard]] RunInputs inputs(const Program& program) const {
    RunInputs in{.extents = {{"B", p_.batch},
                             {"H", p_.heads},
                             {"Sq", q_.length},
                             {"Sk", k_.length},
                             {"Tq", q_.length},
                             {"Tk", k_.length},
                             {"aligned_rows", q_.length + 4 * p_.batch}},
                 .row_gap = p_.row_gap,
                 .aligned_rows = {"lse_log2", "delta"},
                 .values = given};
    for (const ir::Parameter& parameter : program.function().parameters) {
      if (parameter.dtype == DType::f32)
        in.scalars.emplace_back(scale());
      else
        in.scalars.emplace_back(
            std::ranges::max(parameter.name == "max_q_len" ? p_.q_lens : p_.kv_lens));
    }
    for (const ir::Tensor& declared : program.function().tensors)
      for (const CapturedValues& values : p_.captured)
        if (values.tensor.name == declared.name)
          for (std::size_t d = 0; d < declared.dims.size(); ++d)
            in.extents[declared.dims[d].name] = values.shape[d];
    return in;
  }

  [[nodiscard]] bool cancels() const { return k_.length == 1; }

  std::map<std::string, Values> given, exact, plain;

 private:
  using Round = std::function<double(double)>;

  [[nodiscard]] bool packed() const { return spec_.packed(); }
  [[nodiscard]] double scale() const { return 1 / std::sqrt(static_cast<double>(spec_.head_dim)); }
  [[nodiscard]] int rows_of(const std::vector<int>& lengths, int length) const {
    if (!packed()) return length;
    int sum = 7;  // rows behind the last sequence
    for (int one : lengths) sum += one;
    return sum;
  }
  static std::vector<int> begins_of(const std::vector<int>& lengths) {
    std::vector<int> sums{0};
    for (const int length : lengths) sums.push_back(sums.back() + length);
    return sums;
  }
  [[nodiscard]] std::size_t size_of_tensor(const Place& place) const {
    return static_cast<std::size_t>((packed() ? 1 : p_.batch) * place.heads * place.length *
                                    place.dim);
  }
  [[nodiscard]] int own(const std::vector<int>& lengths, int b, int length) const {
    return lengths.empty() ? length : lengths[static_cast<std::size_t>(b)];
  }

  /// Of every tensor made, each element is rounded.
  void differentiate(const Round& round, std::map<std::string, Values>& made) {
    // What belongs to no packed sequence is not written; padding is zeros.
    const double beyond = packed() ? NAN : 0;
    for (const auto& [name, place] : {std::pair("dq", &q_), {"o", &o_}, {"dk", &k_}, {"dv", &v_}})
      made[name] = Values(size_of_tensor(*place), beyond);
    made["lse"] = given["lse"];
    for (int b = 0; b < p_.batch; ++b)
      for (int h = 0; h < p_.heads; ++h) one_head(b, h, round, made);
    for (const char* name : {"dk", "dv"})
      for (double& x : made[name]) x = round(x);
  }

  void one_head(int b, int h, const Round& round, std::map<std::string, Values>& made) {
    const int rows = own(p_.q_lens, b, q_.length), cols = own(p_.kv_lens, b, k_.length);
    const int group = p_.heads / p_.kv_heads, kv = h / group;
    const auto dot = [](const Values& x, std::size_t at, const Values& y, std::size_t other,
                        int n) {
      double sum = 0;
      for (int c = 0; c < n; ++c)
        sum += x[at + static_cast<std::size_t>(c)] * y[other + static_cast<std::size_t>(c)];
      return sum;
    };
    const auto add = [](Values& to, std::size_t at, double factor, const Values& x,
                        std::size_t other, int n) {
      for (int c = 0; c < n; ++c)
        to[at + static_cast<std::size_t>(c)] += factor * x[other + static_cast<std::size_t>(c)];
    };
    // The heads of a group add up, each of them rounded.
    Values dk(static_cast<std::size_t>(cols * k_.dim)), dv(static_cast<std::size_t>(cols * v_.dim));
    for (int i = 0; i < rows; ++i) {
      Values probs(static_cast<std::size_t>(cols), -INFINITY);
      Site site{.b = b, .h = h, .q_idx = i, .q_len = rows, .kv_len = cols};
      double most = p_.sink(site), total = 0;
      for (int j = 0; j < cols; ++j) {
        site.kv_idx = j;
        if (!visible_(site)) continue;
        const double score =
            round(dot(given["q"], q_(b, h, i, 0), given["k"], k_(b, kv, j, 0), q_.dim)) * scale();
        probs[static_cast<std::size_t>(j)] = score;
        most = std::max(most, score);
      }
      const std::size_t out = o_(b, h, i, 0), query = q_(b, h, i, 0);
      for (int c = 0; c < o_.dim; ++c) made["o"][out + static_cast<std::size_t>(c)] = 0;
      for (int c = 0; c < q_.dim; ++c) made["dq"][query + static_cast<std::size_t>(c)] = 0;
      if (std::isinf(most)) continue;
      total = std::exp(p_.sink(site) - most);
      for (const double score : probs) total += std::exp(score - most);
      for (double& x : probs) x = round(std::exp(x - most) / total);
      const std::size_t row =
          packed()
              ? static_cast<std::size_t>(h * q_.length + q_.begins[static_cast<std::size_t>(b)] + i)
              : static_cast<std::size_t>((b * p_.heads + h) * q_.length + i);
      made["lse"][row] = most + std::log(total);
      for (int j = 0; j < cols; ++j)
        add(made["o"], out, probs[static_cast<std::size_t>(j)], given["v"], v_(b, kv, j, 0),
            o_.dim);
      for (int c = 0; c < o_.dim; ++c)
        made["o"][out + static_cast<std::size_t>(c)] =
            round(made["o"][out + static_cast<std::size_t>(c)]);
      const double delta = dot(made["o"], out, given["dout"], out, o_.dim);
      for (int j = 0; j < cols; ++j) {
        const double prob = probs[static_cast<std::size_t>(j)];
        const double dprob = round(dot(given["dout"], out, given["v"], v_(b, kv, j, 0), o_.dim));
        const double dscore = round(prob * (dprob - delta)) * scale();
        add(made["dq"], query, dscore, given["k"], k_(b, kv, j, 0), q_.dim);
        add(dk, static_cast<std::size_t>(j * k_.dim), dscore, given["q"], query, k_.dim);
        add(dv, static_cast<std::size_t>(j * v_.dim), prob, given["dout"], out, v_.dim);
      }
      for (int c = 0; c < q_.dim; ++c) {
        double& x = made["dq"][query + static_cast<std::size_t>(c)];
        x = round(x);
      }
    }
    for (int j = 0; j < cols; ++j) {
      const auto put = [&](const char* name, const Place& place, const Values& sums) {
        for (int c = 0; c < place.dim; ++c) {
          double& x = made[name][place(b, kv, j, c)];
          const double sum = round(sums[static_cast<std::size_t>(j * place.dim + c)]);
          x = h % group == 0 ? sum : x + sum;
        }
      };
      put("dk", k_, dk);
      put("dv", v_, dv);
    }
  }

  /// NaN where a tensor belongs to no sequence.
  void poison_padding() {
    for (const auto& [name, place, lengths] : {std::tuple("q", &q_, &p_.q_lens),
                                               {"dout", &o_, &p_.q_lens},
                                               {"o", &o_, &p_.q_lens},
                                               {"k", &k_, &p_.kv_lens},
                                               {"v", &v_, &p_.kv_lens}}) {
      if (lengths->empty()) continue;
      Values poisoned(given[name].size(), NAN);
      for (int b = 0; b < p_.batch; ++b)
        for (int h = 0; h < place->heads; ++h)
          for (int i = 0; i < (*lengths)[static_cast<std::size_t>(b)]; ++i)
            for (int c = 0; c < place->dim; ++c)
              poisoned[(*place)(b, h, i, c)] = given[name][(*place)(b, h, i, c)];
      given[name] = std::move(poisoned);
    }
  }

  const AttentionSpec& spec_;
  const std::function<bool(const Site&)>& visible_;
  const BackwardProblem& p_;
  Place q_{}, k_{}, v_{}, o_{};
};

/// One launch; its outputs join what is given to the programs behind it.
std::string launch(const Program& program, const ScheduledKernel& kernel, Definition& definition) {
  KernelRun run(program, definition.inputs(program));
  run.emulate(kernel.source);
  const auto& tensors = program.function().tensors;
  // The reference would add once more to what the kernel has added.
  bool adds = false;
  for (std::size_t t = 0; t < tensors.size(); ++t)
    adds = adds || program.function().adds_to(ir::TensorId(t));
  // Where a row sees one key, the gradients of scores cancel up to the rounding of f32 sums.
  std::string report = definition.cancels() || adds ? "" : run.compare();
  for (std::size_t t = 0; t < tensors.size(); ++t)
    if (tensors[t].output) definition.given[tensors[t].name] = run.values(t);
  if (!report.empty()) report += fmt::format("  under {}\n", to_json(kernel.schedule));
  return report;
}

std::string compare_gradients(const Definition& definition) {
  std::string report;
  for (const char* name : {"dq", "dk", "dv"}) {
    const Values &got = definition.given.at(name), &want = definition.exact.at(name),
                 &plain = definition.plain.at(name);
    double allowed = 0, largest = 0, worst = 0;
    for (std::size_t i = 0; i < want.size(); ++i) {
      const bool same = std::isnan(got[i]) && std::isnan(want[i]);
      const double difference = same ? 0 : std::abs(got[i] - want[i]);
      if (!(difference <= worst)) worst = difference;
      if (std::isnan(want[i])) continue;
      allowed = std::max(allowed, 3 * std::abs(plain[i] - want[i]));
      largest = std::max(largest, std::abs(want[i]));
    }
    if (!(worst <= allowed + 1e-5 * largest + 1e-6))
      report += fmt::format("{} is off by {:.3g}, allowed {:.3g}, the largest is {:.3g}\n", name,
                            worst, allowed, largest);
  }
  return report;
}

}  // namespace

std::vector<ProgramKernels> backward_kernels(const AttentionSpec& spec, const Target& target,
                                             bool adding, bool all_schedules) {
  const Module module = adding ? attention_backward_adding(spec) : attention_backward(spec);
  std::vector<ProgramKernels> kernels;
  for (const Program& program : module.kernels()) {
    ProgramKernels own{program, {}};
    for (const std::int64_t length : backward_length_bounds()) {
      ProgramKernels found =
          generate_for(program, attention_backward_schedules(program.name(), spec, target, length),
                       target, all_schedules);
      for (ScheduledKernel& kernel : found.kernels)
        if (std::ranges::find(own.kernels, kernel.schedule, &ScheduledKernel::schedule) ==
            own.kernels.end())
          own.kernels.push_back(std::move(kernel));
    }
    kernels.push_back(std::move(own));
  }
  return kernels;
}

std::string compare_backward(const std::vector<ProgramKernels>& programs, const AttentionSpec& spec,
                             const std::function<bool(const Site&)>& visible,
                             const BackwardProblem& problem) {
  Definition definition(spec, visible, problem);
  std::string report;
  for (const auto& [program, kernels] : programs) {
    const std::map<std::string, Values> given = definition.given;
    for (const ScheduledKernel& kernel : kernels) {
      definition.given = given;
      report += launch(program, kernel, definition);
    }
    if (kernels.empty()) report += fmt::format("{}: no schedule fits\n", program.name());
    if (!report.empty()) return report;
  }
  return compare_gradients(definition);
}

}  // namespace flashcore
