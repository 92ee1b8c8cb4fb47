#include "dsl/variants.h"

#include <cmath>

#include <fmt/format.h>

namespace flashcore {
namespace {

/// The key that stands on the diagonal of each row.
Tile diagonal(const ScoreSite& s, Align align) {
  return align == Align::top_left ? s.query_index : s.query_index + (s.key_length - s.query_length);
}

void require(bool holds, const char* what, const std::string& why, const char* fix) {
  if (!holds) throw SpecError({what, why, fix, {}});
}

void require_rank(const Captured& tensor, bool holds, const char* shapes) {
  if (!holds)
    throw SpecError({fmt::format("{} with {} dimensions", tensor.name, tensor.rank),
                     fmt::format("it is {}", shapes),
                     "reshape it",
                     {}});
}

/// ids[position] or ids[batch, position]
Tile id_of(const Captured& ids, const ScoreSite& s, const Tile& position) {
  require_rank(ids, ids.rank == 1 || ids.rank == 2, "[length] or [batch, length]");
  return ids.rank == 1 ? ids(position) : ids(s.batch, position);
}

}  // namespace

Mask full() { return {}; }

Mask causal(Align align) {
  return Mask([=](const ScoreSite& s) { return diagonal(s, align) >= s.key_index; });
}

Mask sliding_window(int left, int right, Align align) {
  // No two positions are further apart, and a sum of a position and a shorter reach fits in 32
  // bits.
  constexpr int any = 1 << 30;
  if (left >= any) left = -1;
  if (right >= any) right = -1;
  if (left < 0 && right < 0) return full();
  return Mask([=](const ScoreSite& s) {
    const Tile center = diagonal(s, align);
    if (left < 0) return s.key_index <= center + right;
    if (right < 0) return s.key_index >= center - left;
    return (s.key_index >= center - left) & (s.key_index <= center + right);
  });
}

Mask prefix(int length) {
  return Mask([=](const ScoreSite& s) { return s.key_index < length; });
}
Mask prefix(const Captured& lengths) {
  require_rank(lengths, lengths.rank == 1, "[batch]");
  return Mask([=](const ScoreSite& s) { return s.key_index < lengths(s.batch); });
}

Mask documents(const Captured& ids) { return documents(ids, ids); }
Mask documents(const Captured& q_ids, const Captured& kv_ids) {
  return Mask([=](const ScoreSite& s) {
    return id_of(q_ids, s, s.query_index) == id_of(kv_ids, s, s.key_index);
  });
}

Mask chunked(int size) {
  require(size > 0, "a chunked mask", fmt::format("its chunks have {} positions", size),
          "a size of 1 or more");
  return Mask([=](const ScoreSite& s) { return s.query_index / size == s.key_index / size; });
}

Mask dilated(int step) {
  require(step > 0, "a dilated mask", fmt::format("its step is {}", step), "a step of 1 or more");
  return Mask([=](const ScoreSite& s) { return (s.query_index - s.key_index) % step == 0; });
}

Score alibi(const Captured& slopes, Align align) {
  require_rank(slopes, slopes.rank == 1 || slopes.rank == 2, "[heads] or [batch, heads]");
  return Score([=](const Tile& score, const ScoreSite& s) {
    const Tile distance = s.key_index - diagonal(s, align);
    const Tile slope = slopes.rank == 1 ? slopes(s.head) : slopes(s.batch, s.head);
    return score + slope * cast(distance, DType::f32);
  });
}

Score softcap(double cap) {
  require(cap > 0 && std::isfinite(static_cast<float>(1 / cap)) &&
              std::isfinite(static_cast<float>(cap)),
          "a softcap", fmt::format("its limit is {}", cap),
          "a limit above 3e-39 and up to 3.4e38, which an f32 holds");
  return Score([=](const Tile& score, const ScoreSite&) { return tanh(score * (1 / cap)) * cap; });
}

Score relative_bias(const Captured& table, int span) {
  require_rank(table, table.rank == 2, "[heads, 2 span + 1]");
  return Score([=](const Tile& score, const ScoreSite& s) {
    return score + table(s.head, s.key_index - s.query_index + span);
  });
}

Score bias(const Captured& tensor) {
  require_rank(tensor, tensor.rank >= 2 && tensor.rank <= 4,
               "[q_len, kv_len], [heads, q_len, kv_len] or [batch, heads, q_len, kv_len]");
  return Score([=](const Tile& score, const ScoreSite& s) {
    std::vector<Operand> at{s.query_index, s.key_index};
    if (tensor.rank >= 3) at.insert(at.begin(), s.head);
    if (tensor.rank == 4) at.insert(at.begin(), s.batch);
    return score + tensor.read(at);
  });
}

Sink sinks(const Captured& logits) {
  require_rank(logits, logits.rank == 1, "[heads]");
  return Sink([=](const ScoreSite& s) { return logits(s.head); });
}

}  // namespace flashcore
