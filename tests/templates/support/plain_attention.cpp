#include "tests/templates/support/plain_attention.h"

#include <algorithm>
#include <cmath>

#include <fmt/format.h>

namespace flashcore {
namespace {

/// A tensor [batch, heads, length, dim] in either layout.
struct Matrix {
  std::vector<double> values;
  int heads = 0, length = 0, dim = 0, batch = 0;
  bool bshd = false;

  Matrix(const KernelRun& run, std::size_t tensor, TensorLayout layout)
      : values(run.values(tensor)), bshd(layout == TensorLayout::bshd) {
    const TensorView view = run.views()[tensor];
    batch = static_cast<int>(view.shape[0]);
    heads = static_cast<int>(view.shape[bshd ? 2 : 1]);
    length = static_cast<int>(view.shape[bshd ? 1 : 2]);
    dim = static_cast<int>(view.shape[3]);
  }
  [[nodiscard]] std::size_t offset(int b, int h, int i, int c) const {
    const std::int64_t row = bshd ? (std::int64_t{b} * length + i) * heads + h
                                  : (std::int64_t{b} * heads + h) * length + i;
    return static_cast<std::size_t>(row * dim + c);
  }
  [[nodiscard]] double at(int b, int h, int i, int c) const { return values[offset(b, h, i, c)]; }
};

std::string differs(const char* name, const Site& site, double got, double want) {
  const bool same = got == want || std::abs(got - want) <= 1e-9 * (1 + std::abs(want));
  return same ? ""
              : fmt::format("the reference's {} at b {} h {} q_idx {} is {} and should be {}\n",
                            name, site.b, site.h, site.q_idx, got, want);
}

}  // namespace

std::string PlainAttention::compare(const AttentionSpec& spec, const KernelRun& run, double scale,
                                    const std::vector<ReferenceOutput>& outputs) const {
  const Matrix q(run, 0, spec.layout), k(run, 1, spec.layout), v(run, 2, spec.layout),
      o(run, 3, spec.layout);
  std::string report;
  Site site;
  site.q_len = q.length;
  site.kv_len = k.length;
  for (site.b = 0; site.b < q.batch; ++site.b)
    for (site.h = 0; site.h < q.heads; ++site.h)
      for (site.q_idx = 0; site.q_idx < q.length; ++site.q_idx) {
        const int kv_head = site.h / (q.heads / k.heads);
        std::vector<double> scores(static_cast<std::size_t>(k.length), -INFINITY);
        double most = -INFINITY;
        for (site.kv_idx = 0; site.kv_idx < k.length; ++site.kv_idx) {
          if (!visible(site)) continue;
          double sum = 0;
          for (int c = 0; c < q.dim; ++c)
            sum += q.at(site.b, site.h, site.q_idx, c) * k.at(site.b, kv_head, site.kv_idx, c);
          site.score = sum * scale;
          const double value = score(site);
          scores[static_cast<std::size_t>(site.kv_idx)] = value;
          most = std::max(most, value);
        }
        const double logit = sink(site);
        most = std::max(most, logit);
        double total = std::isinf(most) ? 0 : std::exp(logit - most);
        std::vector<double> row(static_cast<std::size_t>(v.dim), 0);
        for (int j = 0; j < k.length && !std::isinf(most); ++j) {
          const double weight = std::exp(scores[static_cast<std::size_t>(j)] - most);
          total += weight;
          for (int c = 0; c < v.dim; ++c)
            row[static_cast<std::size_t>(c)] += weight * v.at(site.b, kv_head, j, c);
        }
        for (int c = 0; c < v.dim; ++c) {
          const double want = total == 0 ? 0 : row[static_cast<std::size_t>(c)] / total;
          report +=
              differs("o", site, outputs[0].values[o.offset(site.b, site.h, site.q_idx, c)], want);
        }
        if (spec.lse) {
          const std::size_t at =
              (static_cast<std::size_t>(site.b) * static_cast<std::size_t>(q.heads) +
               static_cast<std::size_t>(site.h)) *
                  static_cast<std::size_t>(q.length) +
              static_cast<std::size_t>(site.q_idx);
          report += differs("lse", site, outputs[1].values[at],
                            total == 0 ? -INFINITY : most + std::log(total));
        }
        if (!report.empty()) return report;
      }
  return report;
}

}  // namespace flashcore
