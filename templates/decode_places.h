// Where a block of the split program finds what it works on: the sequence that it belongs to, tiles of
// that sequence's query rows, and one split of its keys.
#pragma once

#include "templates/attention_decode.h"
#include "templates/attention_tensors.h"

namespace flashcore {

/// The lengths of a block's sequence, and where it begins among packed ones; without those no value.
struct DecodeSequence {
  Tile q_len, kv_len;
  Tile q_begin, k_begin;
};

/// Declares what says how long sequences are, and places `rows` in the block's own one where they are
/// packed. Blocks for which `exists`, if there is such a condition, does not hold leave at once.
DecodeSequence place_rows(AttentionTensors& tensors, const DecodeSpec& spec, const Tensor& q,
                          const Tensor& k, Axis rows, const Tile& exists);

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
