// The programs of attention's backward pass as one module.
#include "templates/attention_backward.h"

namespace flashcore {

Module attention_backward(const AttentionSpec& spec) {
  ModuleBuilder m("attention_backward");
  m.kernel(attention_backward_rows(spec));
  m.kernel(attention_backward_keys(spec));
  if (backward_apart(spec)) m.kernel(attention_backward_values(spec));
  m.kernel(attention_backward_queries(spec));
  for (const char* workspace : {"delta", "lse_log2"}) m.workspace(workspace);
  if (spec.group() > 1) {
    m.kernel(attention_backward_groups(spec));
    for (const char* workspace : {"dk_heads", "dv_heads"}) m.workspace(workspace);
  }
  return m.finish();
}

std::vector<std::vector<Schedule>> attention_backward_schedules(const AttentionSpec& spec,
                                                                const Target& target) {
  std::vector<std::vector<Schedule>> schedules{attention_backward_rows_schedules(spec, target),
                                               attention_backward_keys_schedules(spec, target)};
  if (backward_apart(spec)) schedules.push_back(attention_backward_values_schedules(spec, target));
  schedules.push_back(attention_backward_queries_schedules(spec, target));
  if (spec.group() > 1) schedules.push_back(attention_backward_groups_schedules(spec, target));
  return schedules;
}

}  // namespace flashcore
