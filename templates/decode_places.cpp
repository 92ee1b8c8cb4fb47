#include "templates/decode_places.h"

#include <tuple>
#include <utility>

#include "templates/key_range.h"

namespace flashcore {
namespace {

/// Where the block's own sequence begins, of those that begin where `starts` says, and its length.
std::pair<Tile, Tile> packed_sequence(const AttentionTensors& t, const char* starts,
                                      const Tile& most) {
  const Tensor at = t.builder->input(starts, DType::i32, {t.batch_size + 1});
  const Tile begin = minimum(maximum(load(at(t.sequence())), 0), most);
  const Tile end = minimum(maximum(load(at(t.sequence() + 1)), begin), most);
  return {begin, end - begin};
}

}  // namespace

DecodeSequence place_rows(AttentionTensors& t, const DecodeSpec& decode, const Tensor& q,
                          const Tensor& k, Axis rows, const Tile& exists) {
  const AttentionSpec& spec = decode.attention;
  ProgramBuilder& b = *t.builder;
  DecodeSequence own{length(q, t.length_dim()), t.longest_keys(k), {}, {}};
  const int heads = decode.packs_heads() ? spec.group() : 1;
  const auto if_it_exists = [&](const Tile& count) {
    return exists.owner() ? where(exists, count, 0) : count;
  };
  if (!spec.packed() && exists.owner()) b.segment(rows, 0, if_it_exists(own.q_len * heads));
  if (spec.packed()) {
    std::tie(own.q_begin, own.q_len) = packed_sequence(t, "cu_seqlens_q", own.q_len);
    if (!spec.paged())
      std::tie(own.k_begin, own.kv_len) = packed_sequence(t, "cu_seqlens_k", own.kv_len);
    const Tile begin = own.q_begin * heads;
    b.segment(rows, begin, begin + if_it_exists(own.q_len * heads),
              b.scalar(decode.packs_heads() ? "most_packed_rows" : "max_q_len", DType::i32));
  }
  if (spec.q_lens) own.q_len = t.own_q_len = t.own_length("q_lens", own.q_len).named("own_q_len");
  if (spec.kv_lens) own.kv_len = t.own_length("kv_lens", own.kv_len).named("own_kv_len");
  return own;
}

SeenKeys seen_keys(const DecodeSpec& decode, const Tile& q_len, const Tile& kv_len) {
  const KeyRange range(decode.attention);
  if (!range.bounded()) return {{}, kv_len, kv_len};
  auto [first, end] = range.range(q_len, kv_len);
  if (decode.attention.paged()) first = first / keys_of_splits * keys_of_splits;
  return {first, end, end - first};
}

SplitShare equal_share(const SeenKeys& visible, Axis split, const Tile& splits) {
  const Tile rounds = splits * keys_of_splits;
  const Tile share = ((visible.count + (rounds - 1)) / rounds * keys_of_splits).named("share");
  return {index(split) * share, share};
}

Tile place_split(const DecodeSpec& decode, const DecodeSequence& own, const SeenKeys& visible,
                 const SplitShare& share, Axis cols) {
  const Tile &first = visible.first, &end = visible.end;
  Tile begin = first.owner() ? first + share.skipped : share.skipped;
  // Where keys lie in pages, every split begins with a whole tile, and one behind the last key ends
  // before: so a tile lies in one page if that has a whole number of tiles, and begins with a page
  // if it has a whole number of pages itself.
  if (!decode.attention.paged()) begin = minimum(begin, end);
  begin = begin.named("split_begin");
  const Tile split_end = minimum(begin + share.keys, end);
  ProgramBuilder& b = *cols.owner;
  if (own.k_begin.owner())
    b.segment(cols, own.k_begin + begin, own.k_begin + split_end);
  else
    b.segment(cols, begin, split_end);
  return begin;
}

DecodePlaces places_of_rows(const AttentionTensors& t, const DecodeSpec& decode,
                            const DecodeSequence& own, Axis rows) {
  const int group = decode.attention.group();
  if (!decode.packs_heads()) {
    const Tile kv_head = (index(t.head) / group).named("kv_head");
    return {index(t.head), index(rows), t.head, rows, kv_head};
  }
  const Tile head = (index(t.head) * group + index(rows) % group).named("head_of_row");
  const Tile row = (index(rows) / group).named("query_row");
  if (!own.q_begin.owner()) return {head, row, head, row, index(t.head)};
  const Tile place = where(row < own.q_len, row + own.q_begin, -1).named("row_at");
  return {head, row, head, place, index(t.head)};
}

}  // namespace flashcore
