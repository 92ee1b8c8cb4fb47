// The backward programs of attention for backward.py, by numbers.
#include "dsl/export.h"
#include "dsl/variants.h"
#include "templates/attention_backward.h"

namespace fc = flashcore;

namespace {

fc::AttentionSpec spec_of(const fc::Arguments& a) {
  fc::AttentionSpec spec{.head_dim = a.integer("head_dim")};
  spec.head_dim_v = a.integer("head_dim_v", 0);
  spec.heads = a.integer("heads", 0);
  spec.kv_heads = a.integer("kv_heads", 0);
  spec.dtype = a.integer("f16", 0) ? fc::DType::f16 : fc::DType::bf16;
  spec.layout = static_cast<fc::TensorLayout>(a.integer("layout", 0));
  const int window = a.integer("window", -1);
  if (window >= 0)
    spec.mask = fc::sliding_window(window, 0);
  else if (a.integer("causal", 0))
    spec.mask = fc::causal();
  return spec;
}

using Build = fc::Program (*)(const fc::AttentionSpec&);
using Schedules = std::vector<fc::Schedule> (*)(const fc::AttentionSpec&, const fc::Target&);

fc::Exported exported(const fc::Arguments& a, Build build, Schedules schedules) {
  const fc::AttentionSpec spec = spec_of(a);
  return {build(spec), [=](const fc::Target& target) { return schedules(spec, target).front(); }};
}

fc::Exported rows(const fc::Arguments& a) {
  return exported(a, fc::attention_backward_rows, fc::attention_backward_rows_schedules);
}
fc::Exported keys(const fc::Arguments& a) {
  return exported(a, fc::attention_backward_keys, fc::attention_backward_keys_schedules);
}
fc::Exported queries(const fc::Arguments& a) {
  return exported(a, fc::attention_backward_queries, fc::attention_backward_queries_schedules);
}
fc::Exported groups(const fc::Arguments& a) {
  return exported(a, fc::attention_backward_groups, fc::attention_backward_groups_schedules);
}

}  // namespace

FLASHCORE_EXPORT_PROGRAM(rows)
FLASHCORE_EXPORT_PROGRAM(keys)
FLASHCORE_EXPORT_PROGRAM(queries)
FLASHCORE_EXPORT_PROGRAM(groups)
