struct Parameters {
  const fc::bf16* q;
  const fc::bf16* k;
  const fc::bf16* v;
  fc::bf16* o;
  float* lse;
  fc::i64 q_stride_0, q_stride_1, q_stride_2;  // elements
  fc::i64 k_stride_0, k_stride_1, k_stride_2;  // elements
  fc::i64 v_stride_0, v_stride_1, v_stride_2;  // elements
  fc::i64 o_stride_0, o_stride_1, o_stride_2;  // elements
  fc::i64 lse_stride_0, lse_stride_1;  // elements
  int B;
  int H;
  int Sq;
  int Sk;
  float scale;
};

extern "C" __global__ void __launch_bounds__(128, 1)
attention_forward(const __grid_constant__ Parameters p) {
  const int rows_tile = fc::block_x();
  const int rows_begin = rows_tile * 64;
  const int head = fc::block_y();
  const int batch = fc::block_z();
  const int thread = fc::thread_index(), lane = thread % 32, warp = thread / 32;
  const fc::u32 shared = fc::shared_base();
  const int rows_lane = warp % 4 * 16 + lane / 4;
  const int dv_lane = lane % 4 * 2;
  const int cols_lane = lane % 4 * 2;
  const fc::bf16* const q_at = p.q + batch * p.q_stride_0 + head * p.q_stride_1;
  // query <- q, asynchronously
  const fc::bf16* const query_source = q_at + (rows_begin) * p.q_stride_2;
  const int query_rows = p.Sq - (rows_begin);
  {
    const int row = thread / 4, column = thread % 4 * 8;
    const fc::bf16* source = query_source + row * static_cast<int>(p.q_stride_2) + column;
    const int rows_left = query_rows - row;
    #pragma unroll
    for (int i = 0; i < 2; ++i) {
      fc::copy_async(shared + fc::panel_chunk_offset<64, 32>(row, column, 0) + i * 2048, source, i * 32 < rows_left ? 16 : 0);
      source += 32 * static_cast<int>(p.q_stride_2);
    }
  }
  const fc::u32 query = shared;
  const float scale_log2 = p.scale * 1.442695f;
  const int t0 = p.Sk + -1;
  const int cols_end = fc::max(0, fc::min(((t0 >> 6) + 1), ((p.Sk + 63) / 64)));
  const int cols_full_end = fc::max(0, fc::min((((t0 + -63) >> 6) + 1), cols_end));
  const int t1 = cols_end - 1;
  const bool t2 = t1 >= 0;
  const fc::bf16* const k_at = p.k + batch * p.k_stride_0 + head * p.k_stride_1;
  // key <- k, asynchronously
  if (t2) {
    const fc::bf16* const key_source = k_at + (t1 * 64) * p.k_stride_2;
    const int key_rows = p.Sk - (t1 * 64);
    {
      const int row = thread / 4, column = thread % 4 * 8;
      const fc::bf16* source = key_source + row * static_cast<int>(p.k_stride_2) + column;
      const int rows_left = key_rows - row;
      #pragma unroll
      for (int i = 0; i < 2; ++i) {
        fc::copy_async(shared + 4096 + 0 * 4096 + fc::panel_chunk_offset<64, 32>(row, column, 0) + i * 2048, source, i * 32 < rows_left ? 16 : 0);
        source += 32 * static_cast<int>(p.k_stride_2);
      }
    }
  }
  const fc::bf16* const v_at = p.v + batch * p.v_stride_0 + head * p.v_stride_1;
  // value <- v, asynchronously
  if (t2) {
    const fc::bf16* const value_source = v_at + (t1 * 64) * p.v_stride_2;
    const int value_rows = p.Sk - (t1 * 64);
    {
      const int row = thread / 4, column = thread % 4 * 8;
      const fc::bf16* source = value_source + row * static_cast<int>(p.v_stride_2) + column;
      const int rows_left = value_rows - row;
      #pragma unroll
      for (int i = 0; i < 2; ++i) {
        fc::copy_async(shared + 12288 + 0 * 4096 + fc::panel_chunk_offset<64, 32>(row, column, 0) + i * 2048, source, i * 32 < rows_left ? 16 : 0);
        source += 32 * static_cast<int>(p.v_stride_2);
      }
    }
  }
  fc::commit_copies();

  float row_max[1][2];
  #pragma unroll
  for (int e = 0; e < 2; ++e)
    row_max[0][e] = fc::lowest();
  float row_sum[1][2] = {};
  float out[1][4][4] = {};
  int slot = 0;
  // cols tiles of 64
  for (int cols_tile = cols_end - 1; cols_tile >= 0; --cols_tile) {
    const int cols_begin = cols_tile * 64;
    fc::wait_copies<0>();
    const int next_tile = cols_tile - 1;
    const int freed_slot = 1 - slot;
    const bool t3 = next_tile >= 0;
    fc::barrier();
    // key <- k, asynchronously
    if (t3) {
      const fc::bf16* const key_source_2 = k_at + (next_tile * 64) * p.k_stride_2;
      const int key_rows_2 = p.Sk - (next_tile * 64);
      {
        const int row = thread / 4, column = thread % 4 * 8;
        const fc::bf16* source = key_source_2 + row * static_cast<int>(p.k_stride_2) + column;
        const int rows_left = key_rows_2 - row;
        #pragma unroll
        for (int i = 0; i < 2; ++i) {
          fc::copy_async(shared + 4096 + freed_slot * 4096 + fc::panel_chunk_offset<64, 32>(row, column, 0) + i * 2048, source, i * 32 < rows_left ? 16 : 0);
          source += 32 * static_cast<int>(p.k_stride_2);
        }
      }
    }
    // value <- v, asynchronously
    if (t3) {
      const fc::bf16* const value_source_2 = v_at + (next_tile * 64) * p.v_stride_2;
      const int value_rows_2 = p.Sk - (next_tile * 64);
      {
        const int row = thread / 4, column = thread % 4 * 8;
        const fc::bf16* source = value_source_2 + row * static_cast<int>(p.v_stride_2) + column;
        const int rows_left = value_rows_2 - row;
        #pragma unroll
        for (int i = 0; i < 2; ++i) {
          fc::copy_async(shared + 12288 + freed_slot * 4096 + fc::panel_chunk_offset<64, 32>(row, column, 0) + i * 2048, source, i * 32 < rows_left ? 16 : 0);
          source += 32 * static_cast<int>(p.v_stride_2);
        }
      }
    }
    fc::commit_copies();
    const fc::u32 key = shared + 4096 + slot * 4096;
    const fc::u32 value = shared + 12288 + slot * 4096;
    // scores = dot(query, transpose(key))
    float scores[1][8][4] = {};
    const fc::u32 query_2 = fc::in_place(query);
    #pragma unroll
    for (int k = 0; k < 2; ++k) {
      fc::u32 a[1][4];
      fc::load_matrices(a[0], fc::matrix_address<64, 32>(query_2, warp % 4 * 16 + lane % 16, lane / 16 * 8, 0, k * 16));
      #pragma unroll
      for (int j = 0; j < 4; ++j) {
        fc::u32 b[4];
        fc::load_matrices(b, fc::matrix_address<64, 32>(key, lane % 8 + lane / 16 * 8, lane / 8 % 2 * 8, j * 16, k * 16));
        fc::multiply<fc::bf16>(scores[0][2 * j], a[0], b[0], b[1]);
        fc::multiply<fc::bf16>(scores[0][2 * j + 1], a[0], b[2], b[3]);
      }
    }
    if (cols_tile >= cols_full_end) {
      bool t4[8][2];
      // t4 = lt(index(cols), extent(cols))
      #pragma unroll
      for (int i = 0; i < 8; ++i)
        #pragma unroll
        for (int e = 0; e < 2; ++e)
          t4[i][e] = (i * 8 + e * 1) < (p.Sk - (cols_begin + cols_lane));
      // scores = where(t4, scores, -inf)
      #pragma unroll
      for (int j = 0; j < 8; ++j)
        #pragma unroll
        for (int e = 0; e < 4; ++e)
          scores[0][j][e] = t4[j][(e % 2)] ? scores[0][j][e] : -fc::infinity();
    }
    // reduce_max = reduce_max(scores, cols)
    float t5[1][2];
    #pragma unroll
    for (int e = 0; e < 2; ++e)
      t5[0][e] = -fc::infinity();
    #pragma unroll
    for (int j = 0; j < 8; ++j)
      #pragma unroll
      for (int e = 0; e < 4; ++e)
        t5[0][(e / 2)] = fc::max(t5[0][(e / 2)], scores[0][j][e]);
    #pragma unroll
    for (int e = 0; e < 2; ++e) {
      t5[0][e] = fc::max(t5[0][e], fc::shuffle_xor(t5[0][e], 1));
      t5[0][e] = fc::max(t5[0][e], fc::shuffle_xor(t5[0][e], 2));
    }
    float new_max[1][2];
    // new_max = max(row_max, mul(t5, scale_log2))
    float decay[1][2];
    // decay = exp2(sub(row_max, new_max))
    float t6[1][2];
    // t6 = neg(new_max)
    #pragma unroll
    for (int e = 0; e < 2; ++e) {
      const float t7 = t5[0][e] * scale_log2;
      new_max[0][e] = fc::max(row_max[0][e], t7);
      const float t8 = row_max[0][e] - new_max[0][e];
      decay[0][e] = fc::exp2(t8);
      t6[0][e] = -new_max[0][e];
    }
    // scores = fma(scores, scale_log2, t6)
    // probs = exp2(scores)
    // reduce_sum = reduce_sum(probs, cols), each lane its share
    float t9[1][2] = {};
    // scores_operand: scores as a left operand
    fc::u32 scores_operand[1][4][4];
    // out = mul(out, decay)
    // scores, strip 1 of 2
    #pragma unroll
    for (int j = 0; j < 4; ++j)
      #pragma unroll
      for (int e = 0; e < 4; ++e)
        scores[0][j][e] = fc::fma(scores[0][j][e], scale_log2, t6[0][(e / 2)]);
    // probs, strip 1 of 2
    #pragma unroll
    for (int j = 0; j < 4; ++j)
      #pragma unroll
      for (int e = 0; e < 4; ++e)
        scores[0][j][e] = fc::exp2(scores[0][j][e]);
    // t9, strip 1 of 2
    #pragma unroll
    for (int j = 0; j < 4; ++j)
      #pragma unroll
      for (int e = 0; e < 4; ++e)
        t9[0][(e / 2)] = t9[0][(e / 2)] + scores[0][j][e];
    // scores_operand, strip 1 of 2
    #pragma unroll
    for (int i = 0; i < 1; ++i)
      #pragma unroll
      for (int k = 0; k < 2; ++k)
        #pragma unroll
        for (int r = 0; r < 4; ++r)
          scores_operand[i][k][r] =
              fc::pack<fc::bf16>(scores[i][2 * k + r / 2][r % 2 * 2], scores[i][2 * k + r / 2][r % 2 * 2 + 1]);
    // out, strip 1 of 2
    #pragma unroll
    for (int j = 0; j < 2; ++j)
      #pragma unroll
      for (int e = 0; e < 4; ++e)
        out[0][j][e] = out[0][j][e] * decay[0][(e / 2)];
    fc::hold_order();
    // scores, strip 2 of 2
    #pragma unroll
    for (int j = 4; j < 8; ++j)
      #pragma unroll
      for (int e = 0; e < 4; ++e)
        scores[0][j][e] = fc::fma(scores[0][j][e], scale_log2, t6[0][(e / 2)]);
    // probs, strip 2 of 2
    #pragma unroll
    for (int j = 4; j < 8; ++j)
      #pragma unroll
      for (int e = 0; e < 4; ++e)
        scores[0][j][e] = fc::exp2(scores[0][j][e]);
    // t9, strip 2 of 2
    #pragma unroll
    for (int j = 4; j < 8; ++j)
      #pragma unroll
      for (int e = 0; e < 4; ++e)
        t9[0][(e / 2)] = t9[0][(e / 2)] + scores[0][j][e];
    // scores_operand, strip 2 of 2
    #pragma unroll
    for (int i = 0; i < 1; ++i)
      #pragma unroll
      for (int k = 2; k < 4; ++k)
        #pragma unroll
        for (int r = 0; r < 4; ++r)
          scores_operand[i][k][r] =
              fc::pack<fc::bf16>(scores[i][2 * k + r / 2][r % 2 * 2], scores[i][2 * k + r / 2][r % 2 * 2 + 1]);
    // out, strip 2 of 2
    #pragma unroll
    for (int j = 2; j < 4; ++j)
      #pragma unroll
      for (int e = 0; e < 4; ++e)
        out[0][j][e] = out[0][j][e] * decay[0][(e / 2)];
    // row_sum = fma(row_sum, decay, t9)
    #pragma unroll
    for (int e = 0; e < 2; ++e)
      row_sum[0][e] = fc::fma(row_sum[0][e], decay[0][e], t9[0][e]);
    // product = out + dot(scores_operand, value)
    #pragma unroll
    for (int k = 0; k < 4; ++k) {
      #pragma unroll
      for (int j = 0; j < 2; ++j) {
        fc::u32 b[4];
        fc::load_matrices_transposed(b, fc::matrix_address<64, 32>(value, lane % 16, lane / 16 * 8, k * 16, j * 16));
        fc::multiply<fc::bf16>(out[0][2 * j], scores_operand[0][k], b[0], b[1]);
        fc::multiply<fc::bf16>(out[0][2 * j + 1], scores_operand[0][k], b[2], b[3]);
      }
    }
    const int next_slot = 1 - slot;
    #pragma unroll
    for (int e = 0; e < 2; ++e)
      row_max[0][e] = new_max[0][e];
    slot = next_slot;
  }
  fc::wait_copies<0>();
  // row_sum: the lanes' shares meet
  #pragma unroll
  for (int e = 0; e < 2; ++e) {
    row_sum[0][e] = row_sum[0][e] + fc::shuffle_xor(row_sum[0][e], 1);
    row_sum[0][e] = row_sum[0][e] + fc::shuffle_xor(row_sum[0][e], 2);
  }
  bool empty[1][2];
  // empty = eq(row_sum, 0)
  float inverse[1][2];
  // inverse = where(empty, 0, div(1, row_sum))
  #pragma unroll
  for (int e = 0; e < 2; ++e) {
    empty[0][e] = row_sum[0][e] == 0.f;
    const float t10 = fc::divide(1.f, row_sum[0][e]);
    inverse[0][e] = empty[0][e] ? 0.f : t10;
  }
  float t11[1][4][4];
  // t11 = cast(mul(out, inverse))
  #pragma unroll
  for (int j = 0; j < 4; ++j) {
    #pragma unroll
    for (int e = 0; e < 4; ++e) {
      const float t12 = out[0][j][e] * inverse[0][(e / 2)];
      t11[0][j][e] = t12;
    }
  }
  fc::barrier();
  // t11 in shared memory
  const fc::u32 o_staged = shared;
  #pragma unroll
  for (int i = 0; i < 1; ++i)
    #pragma unroll
    for (int j = 0; j < 4; ++j)
      #pragma unroll
      for (int r = 0; r < 2; ++r)
        fc::store_shared(o_staged + fc::chunk_offset<64, 32>(rows_lane + i * 16 + r * 8, j * 8) + lane % 4 * 4,
                         fc::pack<fc::bf16>(t11[i][j][2 * r], t11[i][j][2 * r + 1]));
  fc::barrier();
  fc::bf16* const o_at = p.o + batch * p.o_stride_0 + head * p.o_stride_1;
  // store o
  fc::bf16* const o_target = o_at + rows_begin * p.o_stride_2;
  {
    const int row = thread / 4, column = thread % 4 * 8;
    fc::bf16* out_pointer = o_target + row * static_cast<int>(p.o_stride_2) + column;
    const int rows_left = p.Sq - rows_begin - row;
    #pragma unroll
    for (int i = 0; i < 2; ++i) {
      if (i * 32 < rows_left) {
        fc::store_chunk(out_pointer, fc::load_shared_chunk(o_staged + fc::panel_chunk_offset<64, 32>(row, column, 0) + i * 2048));
      }
      out_pointer += 32 * static_cast<int>(p.o_stride_2);
    }
  }
  float t13[1][2];
  // t13 = where(empty, -inf, where(eq(row_max, inf), inf, mul(add(row_max, log2(row_sum)), 0.6931471805599453)))
  #pragma unroll
  for (int e = 0; e < 2; ++e) {
    const float t14 = fc::log2(row_sum[0][e]);
    const float t15 = row_max[0][e] + t14;
    const float t16 = t15 * 0.6931472f;
    const bool t17 = row_max[0][e] == fc::infinity();
    const float t18 = t17 ? fc::infinity() : t16;
    t13[0][e] = empty[0][e] ? -fc::infinity() : t18;
  }
  float* const lse_at = p.lse + batch * p.lse_stride_0 + head * p.lse_stride_1;
  // store lse = t13
  if ((lane & 3) == 0) {
    #pragma unroll
    for (int e = 0; e < 2; ++e)
      if (rows_begin + rows_lane + e * 8 < p.Sq) {
        fc::store_global<1>(lse_at + (rows_begin + rows_lane + e * 8), &t13[0][e]);
      }
  }
}
