struct Parameters {
  const fc::bf16* q;
  const fc::bf16* k;
  const fc::bf16* v;
  fc::bf16* o;
  fc::i64 q_stride_0, q_stride_1, q_stride_2;  // elements
  fc::i64 k_stride_0, k_stride_1, k_stride_2;  // elements
  fc::i64 v_stride_0, v_stride_1, v_stride_2;  // elements
  fc::i64 o_stride_0, o_stride_1, o_stride_2;  // elements
  int Sq;
  int Sk;
  float scale;
};

extern "C" __global__ void __launch_bounds__(128, 1)
attention_forward(const __grid_constant__ Parameters p) {
  const int head = fc::block_x();
  const int batch = fc::block_y();
  const int rows_tile = fc::block_z();
  const int rows_begin = rows_tile * 64;
  const int thread = fc::thread_index(), lane = thread % 32, warp = thread / 32;
  const fc::u32 shared = fc::shared_base();
  const int rows_lane = warp % 4 * 16 + lane / 4;
  const int dv_lane = lane % 4 * 2;
  const int cols_lane = lane % 4 * 2;
  const int kv_head = head >> 2;
  const fc::bf16* const q_at = p.q + batch * p.q_stride_0 + head * p.q_stride_2;
  // query <- q, asynchronously
  const fc::bf16* const query_source = q_at + (rows_begin) * p.q_stride_1;
  const int query_rows = p.Sq - (rows_begin);
  {
    const int row = thread / 8, column = thread % 8 * 8;
    const fc::bf16* source = query_source + row * static_cast<int>(p.q_stride_1) + column;
    const int rows_left = query_rows - row;
    #pragma unroll
    for (int i = 0; i < 4; ++i) {
      fc::copy_async(shared + fc::panel_chunk_offset<64, 64>(row, column, 0) + i * 2048, source, i * 16 < rows_left ? 16 : 0);
      source += 16 * static_cast<int>(p.q_stride_1);
    }
  }
  const fc::u32 query = shared;
  const float scale_log2 = p.scale * 1.442695f;
  const int t0 = p.Sk + -1;
  const int cols_end = fc::max(0, fc::min(((t0 >> 6) + 1), ((p.Sk + 63) / 64)));
  const int t1 = fc::max((((t0 + -63) >> 6) + 1), (cols_end - 1));
  const int cols_full_end = fc::max(0, fc::min(t1, cols_end));
  const int t2 = cols_end - 1;
  const fc::bf16* const k_at = p.k + batch * p.k_stride_0 + kv_head * p.k_stride_2;
  // key <- k, asynchronously
  if ((t2 >= 0)) {
    const fc::bf16* const key_source = k_at + (t2 * 64) * p.k_stride_1;
    const int key_rows = p.Sk - (t2 * 64);
    {
      const int row = thread / 8, column = thread % 8 * 8;
      const fc::bf16* source = key_source + row * static_cast<int>(p.k_stride_1) + column;
      const int rows_left = key_rows - row;
      #pragma unroll
      for (int i = 0; i < 4; ++i) {
        fc::copy_async(shared + 8192 + fc::panel_chunk_offset<64, 64>(row, column, 0) + i * 2048, source, i * 16 < rows_left ? 16 : 0);
        source += 16 * static_cast<int>(p.k_stride_1);
      }
    }
  }
  fc::commit_copies();
  const fc::bf16* const v_at = p.v + batch * p.v_stride_0 + kv_head * p.v_stride_2;

  float row_max[1][2];
  #pragma unroll
  for (int e = 0; e < 2; ++e)
    row_max[0][e] = fc::lowest();
  float row_sum[1][2] = {};
  float out[1][8][4] = {};
  // cols tiles of 64
  for (int cols_tile = cols_end - 1; cols_tile >= 0; --cols_tile) {
    const int cols_begin = cols_tile * 64;
    const fc::u32 key = shared + 8192;
    const fc::u32 value = shared + 16384;
    fc::wait_copies<0>();
    fc::barrier();
    // value <- v, asynchronously
    const fc::bf16* const value_source = v_at + (cols_tile * 64) * p.v_stride_1;
    const int value_rows = p.Sk - (cols_tile * 64);
    {
      const int row = thread / 8, column = thread % 8 * 8;
      const fc::bf16* source = value_source + row * static_cast<int>(p.v_stride_1) + column;
      const int rows_left = value_rows - row;
      #pragma unroll
      for (int i = 0; i < 4; ++i) {
        fc::copy_async(shared + 16384 + fc::panel_chunk_offset<64, 64>(row, column, 0) + i * 2048, source, i * 16 < rows_left ? 16 : 0);
        source += 16 * static_cast<int>(p.v_stride_1);
      }
    }
    fc::commit_copies();
    // scores = dot(query, transpose(key))
    float scores[1][8][4] = {};
    const fc::u32 query_2 = fc::in_place(query);
    #pragma unroll
    for (int k = 0; k < 4; ++k) {
      fc::u32 a[1][4];
      fc::load_matrices(a[0], fc::matrix_address<64, 64>(query_2, warp % 4 * 16 + lane % 16, lane / 16 * 8, 0, k * 16));
      #pragma unroll
      for (int j = 0; j < 4; ++j) {
        fc::u32 b[4];
        fc::load_matrices(b, fc::matrix_address<64, 64>(key, lane % 8 + lane / 16 * 8, lane / 8 % 2 * 8, j * 16, k * 16));
        fc::multiply<fc::bf16>(scores[0][2 * j], a[0], b[0], b[1]);
        fc::multiply<fc::bf16>(scores[0][2 * j + 1], a[0], b[2], b[3]);
      }
    }
    const bool masked = cols_tile >= cols_full_end;
    if (masked) {
      bool t3[8][2];
      // t3 = lt(thread_offset, sub(extent(cols), thread_begin))
      #pragma unroll
      for (int i = 0; i < 8; ++i) {
        #pragma unroll
        for (int e = 0; e < 2; ++e) {
          const int t4 = p.Sk - (cols_begin + cols_lane);
          t3[i][e] = (i * 8 + e) < t4;
        }
      }
      // scores = where(t3, scores, -inf)
      #pragma unroll
      for (int j = 0; j < 8; ++j)
        #pragma unroll
        for (int e = 0; e < 4; ++e)
          scores[0][j][e] = t3[j][(e % 2)] ? scores[0][j][e] : -fc::infinity();
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
    float probs[1][8][4];
    // probs = exp2(fma(scores, scale_log2, t6))
    #pragma unroll
    for (int j = 0; j < 8; ++j) {
      #pragma unroll
      for (int e = 0; e < 4; ++e) {
        const float t9 = fc::fma(scores[0][j][e], scale_log2, t6[0][(e / 2)]);
        probs[0][j][e] = fc::exp2(t9);
      }
    }
    // reduce_sum = reduce_sum(probs, cols), each lane its partial
    float t10[1][2] = {};
    #pragma unroll
    for (int j = 0; j < 8; ++j)
      #pragma unroll
      for (int e = 0; e < 4; ++e)
        t10[0][(e / 2)] = t10[0][(e / 2)] + probs[0][j][e];
    // row_sum = fma(row_sum, decay, t10)
    #pragma unroll
    for (int e = 0; e < 2; ++e)
      row_sum[0][e] = fc::fma(row_sum[0][e], decay[0][e], t10[0][e]);
    fc::u32 probs_operand[1][4][4];
    // probs_operand: probs as a left operand
    #pragma unroll
    for (int i = 0; i < 1; ++i)
      #pragma unroll
      for (int k = 0; k < 4; ++k)
        #pragma unroll
        for (int r = 0; r < 4; ++r)
          probs_operand[i][k][r] =
              fc::pack<fc::bf16>(probs[i][2 * k + r / 2][r % 2 * 2], probs[i][2 * k + r / 2][r % 2 * 2 + 1]);
    // out = mul(out, decay)
    #pragma unroll
    for (int j = 0; j < 8; ++j)
      #pragma unroll
      for (int e = 0; e < 4; ++e)
        out[0][j][e] = out[0][j][e] * decay[0][(e / 2)];
    fc::wait_copies<0>();
    const int next_tile = cols_tile - 1;
    fc::barrier();
    // key <- k, asynchronously
    if ((next_tile >= 0)) {
      const fc::bf16* const key_source_2 = k_at + (next_tile * 64) * p.k_stride_1;
      const int key_rows_2 = p.Sk - (next_tile * 64);
      {
        const int row = thread / 8, column = thread % 8 * 8;
        const fc::bf16* source = key_source_2 + row * static_cast<int>(p.k_stride_1) + column;
        const int rows_left = key_rows_2 - row;
        #pragma unroll
        for (int i = 0; i < 4; ++i) {
          fc::copy_async(shared + 8192 + fc::panel_chunk_offset<64, 64>(row, column, 0) + i * 2048, source, i * 16 < rows_left ? 16 : 0);
          source += 16 * static_cast<int>(p.k_stride_1);
        }
      }
    }
    fc::commit_copies();
    // product = out + dot(probs_operand, value)
    #pragma unroll
    for (int k = 0; k < 4; ++k) {
      #pragma unroll
      for (int j = 0; j < 4; ++j) {
        fc::u32 b[4];
        fc::load_matrices_transposed(b, fc::matrix_address<64, 64>(value, lane % 16, lane / 16 * 8, k * 16, j * 16));
        fc::multiply<fc::bf16>(out[0][2 * j], probs_operand[0][k], b[0], b[1]);
        fc::multiply<fc::bf16>(out[0][2 * j + 1], probs_operand[0][k], b[2], b[3]);
      }
    }
    #pragma unroll
    for (int e = 0; e < 2; ++e)
      row_max[0][e] = new_max[0][e];
  }
  fc::wait_copies<0>();
  // row_sum: partials of the lanes, combined
  #pragma unroll
  for (int e = 0; e < 2; ++e) {
    row_sum[0][e] = row_sum[0][e] + fc::shuffle_xor(row_sum[0][e], 1);
    row_sum[0][e] = row_sum[0][e] + fc::shuffle_xor(row_sum[0][e], 2);
  }
  float inverse[1][2];
  // inverse = where(eq(row_sum, 0), 0, div(1, row_sum))
  #pragma unroll
  for (int e = 0; e < 2; ++e) {
    const bool empty = row_sum[0][e] == 0.f;
    const float t11 = fc::divide(1.f, row_sum[0][e]);
    inverse[0][e] = empty ? 0.f : t11;
  }
  float t12[1][8][4];
  // t12 = cast(mul(out, inverse))
  #pragma unroll
  for (int j = 0; j < 8; ++j) {
    #pragma unroll
    for (int e = 0; e < 4; ++e) {
      const float t13 = out[0][j][e] * inverse[0][(e / 2)];
      t12[0][j][e] = t13;
    }
  }
  fc::barrier();
  // t12 in shared memory
  const fc::u32 o_staged = shared;
  #pragma unroll
  for (int i = 0; i < 1; ++i)
    #pragma unroll
    for (int j = 0; j < 8; ++j)
      #pragma unroll
      for (int r = 0; r < 2; ++r)
        fc::store_shared(o_staged + fc::chunk_offset<64, 64>(rows_lane + i * 16 + r * 8, j * 8) + lane % 4 * 4,
                         fc::pack<fc::bf16>(t12[i][j][2 * r], t12[i][j][2 * r + 1]));
  fc::barrier();
  fc::bf16* const o_at = p.o + batch * p.o_stride_0 + head * p.o_stride_2;
  // store o
  fc::bf16* const o_target = o_at + rows_begin * p.o_stride_1;
  {
    const int row = thread / 8, column = thread % 8 * 8;
    fc::bf16* out_pointer = o_target + row * static_cast<int>(p.o_stride_1) + column;
    const int rows_left = p.Sq - rows_begin - row;
    #pragma unroll
    for (int i = 0; i < 4; ++i) {
      if (i * 16 < rows_left) {
        fc::store_chunk(out_pointer, fc::load_shared_chunk(o_staged + fc::panel_chunk_offset<64, 64>(row, column, 0) + i * 2048));
      }
      out_pointer += 16 * static_cast<int>(p.o_stride_1);
    }
  }
}
