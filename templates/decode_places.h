// Where a block of the split program finds what it works on: the sequence that it belongs to, tiles of
// that sequence's query rows, one split of its keys, and the keys themselves, contiguous or in pages.
#pragma once

#include "templates/attention_decode.h"
#include "templates/attention_tensors.h"

namespace flashcore {

/// Keys and values, in the spec's layout or in pages that a table names.
class KeyValueCache {
 public:
  /// Declares k, v and, with pages, page_table. A page_size of 0: without pages.
  KeyValueCache(const AttentionTensors& tensors, int page_size);

  /// The most keys that a sequence has.
  static Extent longest(const AttentionTensors& tensors, int page_size);
  [[nodiscard]] Tile longest() const;

  /// A tile of keys or values: those `cols` behind the key at `begin`.
  [[nodiscard]] Tile load_keys(const Index& kv_head, Axis cols, const Tile& begin, Axis d) const {
    return load_tile(k_, kv_head, cols, begin, d);
  }
  [[nodiscard]] Tile load_values(const Index& kv_head, Axis cols, const Tile& begin,
                                 Axis dv) const {
    return load_tile(v_, kv_head, cols, begin, dv);
  }

 private:
  [[nodiscard]] Tile load_tile(const Tensor& tensor, const Index& kv_head, Axis cols,
                               const Tile& begin, Axis columns) const;

  const AttentionTensors& t_;
  int page_size_;
  Tensor k_, v_, table_;
};

/// The lengths of a block's sequence, and where it begins among packed ones; without those no value.
struct DecodeSequence {
  Tile q_len, kv_len;
  Tile q_begin, k_begin;
};

/// Declares what says how long sequences are, and places `rows` in the block's own one where they are
/// packed.
DecodeSequence place_rows(AttentionTensors& tensors, const DecodeSpec& spec, const Tensor& q,
                          const KeyValueCache& cache, Axis rows);

/// Of a sequence's keys, those that some row sees.
struct SeenKeys {
  Tile first;  ///< no value where that is the first of all
  Tile end, count;
};
SeenKeys seen_keys(const DecodeSpec& spec, const Tile& q_len, const Tile& kv_len);

/// Which of these keys a split has: so many behind the first ones, whole tiles of them.
struct SplitShare {
  Tile skipped, keys;
};
/// Equal shares of each sequence's keys.
SplitShare equal_share(const SeenKeys& visible, Axis split, const Tile& splits);

/// Places `cols` in a split, in which only the last key's tile is not full. Returns the first key of the
/// split.
Tile place_split(const DecodeSpec& spec, const DecodeSequence& sequence, const SeenKeys& visible,
                 const SplitShare& share, Axis cols);

/// What the rows of a block's tiles are: one head's query rows, or those of all heads of a group.
struct DecodePlaces {
  Tile head, row;         ///< of each, as expressions see them
  Index head_at, row_at;  ///< the same where tensors have them
  Tile kv_head;
};
DecodePlaces places_of_rows(const AttentionTensors& tensors, const DecodeSpec& spec,
                            const DecodeSequence& sequence, Axis rows);

}  // namespace flashcore
