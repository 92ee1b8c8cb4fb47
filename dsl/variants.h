// The masks and scores that people ask for by name. Each is an ordinary expression: read one,
// change it, write your own.
#pragma once

#include "dsl/expression.h"

namespace flashcore {

enum class Align {
  bottom_right,  ///< the last query row sees the last key, as in FlashAttention
  top_left,      ///< the first query row sees the first key, as in torch's is_causal
};

/// Every row sees every key.
Mask full();
/// Row i sees keys up to its diagonal: i + kv_len - q_len (bottom_right) or i (top_left).
Mask causal(Align align = Align::bottom_right);
/// Keys at most `left` before and `right` after the diagonal; a negative number: any distance.
/// Sliding window attention (Beltagy et al., Longformer, arXiv:2004.05150).
Mask sliding_window(int left, int right, Align align = Align::bottom_right);
/// The first `length` keys: with `| causal()` a prefix language model (Raffel et al.,
/// arXiv:1910.10683).
Mask prefix(int length);
/// The first lengths[b] keys of a sequence; lengths [batch].
Mask prefix(const Captured& lengths);
/// Rows and keys of the same document; ids [length] or [batch, length].
Mask documents(const Captured& ids);
Mask documents(const Captured& q_ids, const Captured& kv_ids);
/// Rows and keys of the same chunk of `size` positions.
Mask chunked(int size);
/// Keys a multiple of `step` away from the row (Child et al., Sparse Transformers,
/// arXiv:1904.10509).
Mask dilated(int step);

/// score - slopes[h] * distance to the diagonal (Press et al., ALiBi, arXiv:2108.12409); slopes
/// [heads] or [batch, heads].
Score alibi(const Captured& slopes, Align align = Align::bottom_right);
/// cap * tanh(score / cap) (Gemma 2, arXiv:2408.00118).
Score softcap(double cap);
/// score + table[h, kv_idx - q_idx + span]: one learned number a head and distance from -span to
/// span, as in T5 without its buckets; table [heads, 2 span + 1]. Distances beyond the table add
/// nothing.
Score relative_bias(const Captured& table, int span);
/// score + tensor[...]: a bias [q_len, kv_len], [heads, q_len, kv_len] or [batch, heads, q_len,
/// kv_len].
Score bias(const Captured& tensor);

/// A learned logit a head that takes its share of every softmax (Xiao et al., StreamingLLM,
/// arXiv:2309.17453; gpt-oss); logits [heads].
Sink sinks(const Captured& logits);

}  // namespace flashcore
