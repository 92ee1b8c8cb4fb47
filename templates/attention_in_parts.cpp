#include "templates/attention_in_parts.h"

#include "templates/attention_tensors.h"

namespace flashcore {

bool halves_values(const AttentionSpec& spec) { return spec.stored_value_dim() > 128; }

int value_columns(const AttentionSpec& spec) {
  const int dim = spec.stored_value_dim();
  return halves_values(spec) ? (dim + 15) / 16 * 8 : dim;
}

std::vector<std::string> names_of_values(const AttentionSpec& spec) {
  if (halves_values(spec)) return {"v_left", "v_right"};
  return {"v"};
}

bool can_attend_in_parts(const AttentionSpec& spec, const Target& target) {
  return spec.splits_products() && !spec.paged() && target.wgmma && target.tma;
}

Program split_operand(const AttentionSpec& spec, const std::string& name) {
  AttentionSpec own = spec;
  if (spec.packed()) own.batch = 1;  // all sequences at once
  const bool queries = name == "q", values = name == "v";
  ProgramBuilder b("split_" + name);
  const AttentionTensors t = declare_attention(b, own, queries ? Heads::queries : Heads::keys);
  const Extent heads = queries ? t.heads : t.kv_heads, length = queries ? t.q_len : t.kv_len;
  const int dim = values ? spec.stored_value_dim() : spec.stored_dim();
  const int width = values ? value_columns(spec) : dim;
  const Axis rows = b.parallel_tiles("rows", length), d = b.whole("d", width);
  const Tensor x = t.input(name, heads, length, dim);
  int first = 0;
  for (const std::string& range : values ? names_of_values(spec) : std::vector{name}) {
    const Index columns = width == dim ? Index(d) : Index(index(d) + first);
    const Factor parts = split(load(t.at(x, t.head, rows, columns)));
    for (std::size_t i = 0; i < parts.size(); ++i) {
      const Tensor part = t.output(range + part_names[i], heads, length, width, DType::bf16);
      store(t.at(part, t.head, rows, d), parts[i]);
    }
    first += width;
  }
  return b.finish();
}

Module attention_in_parts(const AttentionSpec& spec) {
  ModuleBuilder m("attention_in_parts");
  std::vector<std::string> operands = names_of_values(spec);
  operands.insert(operands.begin(), {"q", "k"});
  for (const std::string& operand : operands)
    for (const char* part : part_names) m.workspace(operand + part);
  for (const char* name : {"q", "k", "v"}) m.kernel(split_operand(spec, name));
  m.kernel(attention_forward_in_parts(spec));
  return m.finish();
}

}  // namespace flashcore
