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
  const int rows_tile = fc::block_x();
  const int rows_begin = rows_tile * 32;
  const int head = fc::block_y();
  const int batch = fc::block_z();
  const int thread = fc::thread_index(), lane = thread % 32, warp = thread / 32;
  const fc::u32 shared = fc::shared_base();
  const int rows_lane = warp / 2 % 2 * 16 + lane / 4;
  const int dv_lane = lane % 4 * 2;
  const int cols_lane = warp % 2 * 16 + lane % 4 * 2;
  const int dv_lane_2 = warp % 2 * 16 + lane % 4 * 2;
  const fc::bf16* const q_at = p.q + batch * p.q_stride_0 + head * p.q_stride_1;
  // query <- q, asynchronously
  const fc::bf16* const query_source = q_at + (rows_begin) * p.q_stride_2;
  const int query_rows = p.Sq - (rows_begin);
  {
    const int row = thread / 4, column = thread % 4 * 8;
    const fc::bf16* source = query_source + row * static_cast<int>(p.q_stride_2) + column;
    const int rows_left = query_rows - row;
    #pragma unroll
    for (int i = 0; i < 1; ++i) {
      fc::copy_async(shared + fc::panel_chunk_offset<32, 32>(row, column, 0), source, rows_left > 0 ? 16 : 0);
    }
  }
  const fc::u32 query = shared;
  const float scale_log2 = p.scale * 1.442695f;
  const int t0 = ((fc::min((rows_begin + 32), p.Sq) - 1) - p.Sq) + p.Sk;
  const int t1 = ((((rows_begin - p.Sq) + p.Sk) + -31) >> 5) + 1;
  const int cols_end = fc::max(0, fc::min(((t0 >> 5) + 1), ((p.Sk + 31) / 32)));
  const int cols_full_end = fc::max(0, fc::min(t1, cols_end));
  const int t2 = cols_end - 1;
  const bool t3 = t2 >= 0;
  const fc::bf16* const k_at = p.k + batch * p.k_stride_0 + head * p.k_stride_1;
  // key <- k, asynchronously
  if (t3) {
    const fc::bf16* const key_source = k_at + (t2 * 32) * p.k_stride_2;
    const int key_rows = p.Sk - (t2 * 32);
    {
      const int row = thread / 4, column = thread % 4 * 8;
      const fc::bf16* source = key_source + row * static_cast<int>(p.k_stride_2) + column;
      const int rows_left = key_rows - row;
      #pragma unroll
      for (int i = 0; i < 1; ++i) {
        fc::copy_async(shared + 2048 + 0 * 2048 + fc::panel_chunk_offset<32, 32>(row, column, 0), source, rows_left > 0 ? 16 : 0);
      }
    }
  }
  const fc::bf16* const v_at = p.v + batch * p.v_stride_0 + head * p.v_stride_1;
  // value <- v, asynchronously
  if (t3) {
    const fc::bf16* const value_source = v_at + (t2 * 32) * p.v_stride_2;
    const int value_rows = p.Sk - (t2 * 32);
    {
      const int row = thread / 4, column = thread % 4 * 8;
      const fc::bf16* source = value_source + row * static_cast<int>(p.v_stride_2) + column;
      const int rows_left = value_rows - row;
      #pragma unroll
      for (int i = 0; i < 1; ++i) {
        fc::copy_async(shared + 6144 + 0 * 2048 + fc::panel_chunk_offset<32, 32>(row, column, 0), source, rows_left > 0 ? 16 : 0);
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
  // cols tiles of 32
  for (int cols_tile = cols_end - 1; cols_tile >= 0; --cols_tile) {
    const int cols_begin = cols_tile * 32;
    fc::wait_copies<0>();
    const int next_tile = cols_tile - 1;
    const int freed_slot = 1 - slot;
    const bool t4 = next_tile >= 0;
    fc::barrier();
    // key <- k, asynchronously
    if (t4) {
      const fc::bf16* const key_source_2 = k_at + (next_tile * 32) * p.k_stride_2;
      const int key_rows_2 = p.Sk - (next_tile * 32);
      {
        const int row = thread / 4, column = thread % 4 * 8;
        const fc::bf16* source = key_source_2 + row * static_cast<int>(p.k_stride_2) + column;
        const int rows_left = key_rows_2 - row;
        #pragma unroll
        for (int i = 0; i < 1; ++i) {
          fc::copy_async(shared + 2048 + freed_slot * 2048 + fc::panel_chunk_offset<32, 32>(row, column, 0), source, rows_left > 0 ? 16 : 0);
        }
      }
    }
    // value <- v, asynchronously
    if (t4) {
      const fc::bf16* const value_source_2 = v_at + (next_tile * 32) * p.v_stride_2;
      const int value_rows_2 = p.Sk - (next_tile * 32);
      {
        const int row = thread / 4, column = thread % 4 * 8;
        const fc::bf16* source = value_source_2 + row * static_cast<int>(p.v_stride_2) + column;
        const int rows_left = value_rows_2 - row;
        #pragma unroll
        for (int i = 0; i < 1; ++i) {
          fc::copy_async(shared + 6144 + freed_slot * 2048 + fc::panel_chunk_offset<32, 32>(row, column, 0), source, rows_left > 0 ? 16 : 0);
        }
      }
    }
    fc::commit_copies();
    const fc::u32 key = shared + 2048 + slot * 2048;
    const fc::u32 value = shared + 6144 + slot * 2048;
    // scores = dot(query, transpose(key))
    float scores[1][2][4] = {};
    const fc::u32 query_2 = fc::in_place(query);
    #pragma unroll
    for (int k = 0; k < 2; ++k) {
      fc::u32 a[1][4];
      fc::load_matrices(a[0], fc::matrix_address<32, 32>(query_2, warp / 2 % 2 * 16 + lane % 16, lane / 16 * 8, 0, k * 16));
      #pragma unroll
      for (int j = 0; j < 1; ++j) {
        fc::u32 b[4];
        fc::load_matrices(b, fc::matrix_address<32, 32>(key, warp % 2 * 16 + lane % 8 + lane / 16 * 8, lane / 8 % 2 * 8, j * 16, k * 16));
        fc::multiply<fc::bf16>(scores[0][2 * j], a[0], b[0], b[1]);
        fc::multiply<fc::bf16>(scores[0][2 * j + 1], a[0], b[2], b[3]);
      }
    }
    const bool masked = cols_tile >= cols_full_end;
    if (masked) {
      int t5[1][2];
      // t5 = add(index(rows), (p.Sk - p.Sq))
      #pragma unroll
      for (int e = 0; e < 2; ++e)
        t5[0][e] = (rows_begin + rows_lane + e * 8) + (p.Sk - p.Sq);
      // scores = where(ge(sub(t5, thread_begin), thread_offset), scores, -inf)
      #pragma unroll
      for (int j = 0; j < 2; ++j) {
        #pragma unroll
        for (int e = 0; e < 4; ++e) {
          const int t6 = t5[0][(e / 2)] - (cols_begin + cols_lane);
          const bool t7 = t6 >= (j * 8 + (e % 2));
          scores[0][j][e] = t7 ? scores[0][j][e] : -fc::infinity();
        }
      }
    }
    // partial = reduce_max(scores, cols), each warp its partial
    float partial[1][2];
    #pragma unroll
    for (int e = 0; e < 2; ++e)
      partial[0][e] = -fc::infinity();
    #pragma unroll
    for (int j = 0; j < 2; ++j)
      #pragma unroll
      for (int e = 0; e < 4; ++e)
        partial[0][(e / 2)] = fc::max(partial[0][(e / 2)], scores[0][j][e]);
    #pragma unroll
    for (int e = 0; e < 2; ++e) {
      partial[0][e] = fc::max(partial[0][e], fc::shuffle_xor(partial[0][e], 1));
      partial[0][e] = fc::max(partial[0][e], fc::shuffle_xor(partial[0][e], 2));
    }
    // partial in shared memory
    const fc::u32 partials = shared + 10240 + warp % 2 * 128;
    if ((lane & 3) == 0) {
      #pragma unroll
      for (int i = 0; i < 1; ++i)
        #pragma unroll
        for (int e = 0; e < 2; ++e)
          fc::store_shared<1>(partials + (rows_lane + i * 16 + e * 8) * 4, &partial[i][e]);
    }
    fc::barrier();
    // combine_partials: partials of the warps, combined
    float t8[1][2];
    #pragma unroll
    for (int i = 0; i < 1; ++i) {
      #pragma unroll
      for (int e = 0; e < 2; ++e) {
        const fc::u32 share_at = shared + 10240 + 0 * 128 + (rows_lane + i * 16 + e * 8) * 4;
        fc::load_shared<1>(&t8[i][e], share_at);
        #pragma unroll
        for (int partial = 0; partial < 1; ++partial) {
          float other[1];
          fc::load_shared<1>(other, share_at + (partial + 1) * 128);
          t8[i][e] = fc::max(t8[i][e], other[0]);
        }
      }
    }
    float new_max[1][2];
    // new_max = max(row_max, mul(t8, scale_log2))
    float decay[1][2];
    // decay = exp2(sub(row_max, new_max))
    float t9[1][2];
    // t9 = neg(new_max)
    #pragma unroll
    for (int e = 0; e < 2; ++e) {
      const float t10 = t8[0][e] * scale_log2;
      new_max[0][e] = fc::max(row_max[0][e], t10);
      const float t11 = row_max[0][e] - new_max[0][e];
      decay[0][e] = fc::exp2(t11);
      t9[0][e] = -new_max[0][e];
    }
    float probs[1][2][4];
    // probs = exp2(fma(scores, scale_log2, t9))
    #pragma unroll
    for (int j = 0; j < 2; ++j) {
      #pragma unroll
      for (int e = 0; e < 4; ++e) {
        const float t12 = fc::fma(scores[0][j][e], scale_log2, t9[0][(e / 2)]);
        probs[0][j][e] = fc::exp2(t12);
      }
    }
    // reduce_sum = reduce_sum(probs, cols), each lane its partial
    float t13[1][2] = {};
    #pragma unroll
    for (int j = 0; j < 2; ++j)
      #pragma unroll
      for (int e = 0; e < 4; ++e)
        t13[0][(e / 2)] = t13[0][(e / 2)] + probs[0][j][e];
    // row_sum = fma(row_sum, decay, t13)
    #pragma unroll
    for (int e = 0; e < 2; ++e)
      row_sum[0][e] = fc::fma(row_sum[0][e], decay[0][e], t13[0][e]);
    fc::u32 probs_operand[1][1][4];
    // probs_operand: probs as a left operand
    #pragma unroll
    for (int i = 0; i < 1; ++i)
      #pragma unroll
      for (int k = 0; k < 1; ++k)
        #pragma unroll
        for (int r = 0; r < 4; ++r)
          probs_operand[i][k][r] =
              fc::pack<fc::bf16>(probs[i][2 * k + r / 2][r % 2 * 2], probs[i][2 * k + r / 2][r % 2 * 2 + 1]);
    // out = mul(out, decay)
    #pragma unroll
    for (int j = 0; j < 4; ++j)
      #pragma unroll
      for (int e = 0; e < 4; ++e)
        out[0][j][e] = out[0][j][e] * decay[0][(e / 2)];
    // product = out + dot(probs_operand, value), each warp its partial
    #pragma unroll
    for (int k = 0; k < 1; ++k) {
      #pragma unroll
      for (int j = 0; j < 2; ++j) {
        fc::u32 b[4];
        fc::load_matrices_transposed(b, fc::matrix_address<32, 32>(value, warp % 2 * 16 + lane % 16, lane / 16 * 8, k * 16, j * 16));
        fc::multiply<fc::bf16>(out[0][2 * j], probs_operand[0][k], b[0], b[1]);
        fc::multiply<fc::bf16>(out[0][2 * j + 1], probs_operand[0][k], b[2], b[3]);
      }
    }
    const int next_slot = 1 - slot;
    #pragma unroll
    for (int e = 0; e < 2; ++e)
      row_max[0][e] = new_max[0][e];
    slot = next_slot;
  }
  fc::wait_copies<0>();
  fc::barrier();
  // out in shared memory
  const fc::u32 partials_2 = shared + warp % 2 * 5120;
  #pragma unroll
  for (int i = 0; i < 1; ++i)
    #pragma unroll
    for (int j = 0; j < 4; ++j)
      #pragma unroll
      for (int r = 0; r < 2; ++r)
        fc::store_shared<2>(partials_2 + ((rows_lane + i * 16 + r * 8) * 40 + j * 8 + lane % 4 * 2) * 4, &out[i][j][2 * r]);
  fc::barrier();
  // out: partials of the warps, combined
  float out_2[1][2][4];
  #pragma unroll
  for (int i = 0; i < 1; ++i) {
    #pragma unroll
    for (int j = 0; j < 2; ++j) {
      #pragma unroll
      for (int r = 0; r < 2; ++r) {
        const fc::u32 share_at_2 = shared + 0 * 5120 + ((rows_lane + i * 16 + r * 8) * 40 + warp % 2 * 16 + j * 8 + lane % 4 * 2) * 4;
        fc::load_shared<2>(&out_2[i][j][2 * r], share_at_2);
        #pragma unroll
        for (int partial = 0; partial < 1; ++partial) {
          float other[2];
          fc::load_shared<2>(other, share_at_2 + (partial + 1) * 5120);
          out_2[i][j][2 * r] = out_2[i][j][2 * r] + other[0];
          out_2[i][j][2 * r + 1] = out_2[i][j][2 * r + 1] + other[1];
        }
      }
    }
  }
  // partial: partials of the lanes, combined
  #pragma unroll
  for (int e = 0; e < 2; ++e) {
    row_sum[0][e] = row_sum[0][e] + fc::shuffle_xor(row_sum[0][e], 1);
    row_sum[0][e] = row_sum[0][e] + fc::shuffle_xor(row_sum[0][e], 2);
  }
  fc::barrier();
  // partial in shared memory
  const fc::u32 partials_3 = shared + warp % 2 * 128;
  if ((lane & 3) == 0) {
    #pragma unroll
    for (int i = 0; i < 1; ++i)
      #pragma unroll
      for (int e = 0; e < 2; ++e)
        fc::store_shared<1>(partials_3 + (rows_lane + i * 16 + e * 8) * 4, &row_sum[i][e]);
  }
  fc::barrier();
  // row_sum: partials of the warps, combined
  float row_sum_2[1][2];
  #pragma unroll
  for (int i = 0; i < 1; ++i) {
    #pragma unroll
    for (int e = 0; e < 2; ++e) {
      const fc::u32 share_at_3 = shared + 0 * 128 + (rows_lane + i * 16 + e * 8) * 4;
      fc::load_shared<1>(&row_sum_2[i][e], share_at_3);
      #pragma unroll
      for (int partial = 0; partial < 1; ++partial) {
        float other[1];
        fc::load_shared<1>(other, share_at_3 + (partial + 1) * 128);
        row_sum_2[i][e] = row_sum_2[i][e] + other[0];
      }
    }
  }
  float inverse[1][2];
  // inverse = where(eq(row_sum_2, 0), 0, div(1, row_sum_2))
  #pragma unroll
  for (int e = 0; e < 2; ++e) {
    const bool empty = row_sum_2[0][e] == 0.f;
    const float t14 = fc::divide(1.f, row_sum_2[0][e]);
    inverse[0][e] = empty ? 0.f : t14;
  }
  float t15[1][2][4];
  // t15 = cast(mul(out_2, inverse))
  #pragma unroll
  for (int j = 0; j < 2; ++j) {
    #pragma unroll
    for (int e = 0; e < 4; ++e) {
      const float t16 = out_2[0][j][e] * inverse[0][(e / 2)];
      t15[0][j][e] = t16;
    }
  }
  fc::barrier();
  // t15 in shared memory
  const fc::u32 o_staged = shared;
  #pragma unroll
  for (int i = 0; i < 1; ++i)
    #pragma unroll
    for (int j = 0; j < 2; ++j)
      #pragma unroll
      for (int r = 0; r < 2; ++r)
        fc::store_shared(o_staged + fc::chunk_offset<32, 32, true>(rows_lane + i * 16 + r * 8, warp % 2 * 16 + j * 8) + lane % 4 * 4,
                         fc::pack<fc::bf16>(t15[i][j][2 * r], t15[i][j][2 * r + 1]));
  fc::barrier();
  fc::bf16* const o_at = p.o + batch * p.o_stride_0 + head * p.o_stride_1;
  // store o
  fc::bf16* const o_target = o_at + rows_begin * p.o_stride_2;
  {
    const int row = thread / 4, column = thread % 4 * 8;
    fc::bf16* out_pointer = o_target + row * static_cast<int>(p.o_stride_2) + column;
    const int rows_left = p.Sq - rows_begin - row;
    #pragma unroll
    for (int i = 0; i < 1; ++i) {
      if (rows_left > 0) {
        fc::store_chunk(out_pointer, fc::load_shared_chunk(o_staged + fc::panel_chunk_offset<32, 32>(row, column, 0)));
      }
    }
  }
}
