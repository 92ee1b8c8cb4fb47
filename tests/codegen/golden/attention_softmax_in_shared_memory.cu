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
  const int rows_begin = rows_tile * 64;
  const int head = fc::block_y();
  const int batch = fc::block_z();
  const int thread = fc::thread_index(), lane = thread % 32, warp = thread / 32;
  const fc::u32 shared = fc::shared_base();
  const int rows_lane = warp % 4 * 16 + lane / 2;
  const int dv_lane = lane % 2 * 4;
  const int rows_lane_2 = warp / 2 % 2 * 32 + lane / 4;
  const int cols_lane = warp % 2 * 16 + lane % 4 * 2;
  const int cols_lane_2 = lane % 2 * 4;
  const int dv_lane_2 = warp % 2 * 16 + lane % 4 * 2;
  const fc::bf16* const q_at = p.q + batch * p.q_stride_0 + head * p.q_stride_1;
  // query <- q
  const fc::bf16* const query_source = q_at + (rows_begin) * p.q_stride_2;
  const int query_rows = p.Sq - (rows_begin);
  {
    const int row = thread / 4, column = thread % 4 * 8;
    const fc::bf16* source = query_source + row * static_cast<int>(p.q_stride_2) + column;
    const int rows_left = query_rows - row;
    #pragma unroll
    for (int i = 0; i < 2; ++i) {
      fc::copy_chunk(shared + fc::panel_chunk_offset<64, 32>(row, column, 0) + i * 2048, source, i * 32 < rows_left ? 16 : 0);
      source += 32 * static_cast<int>(p.q_stride_2);
    }
  }
  const fc::u32 query = shared;
  const float scale_log2 = p.scale * 1.442695f;
  const int t0 = p.Sk + -1;
  const int cols_end = fc::max(0, fc::min(((t0 >> 5) + 1), ((p.Sk + 31) / 32)));
  const int t1 = fc::max((((t0 + -31) >> 5) + 1), (cols_end - 1));
  const int cols_full_end = fc::max(0, fc::min(t1, cols_end));
  const int t2 = cols_end - 1;
  const bool t3 = t2 >= 0;
  const fc::bf16* const k_at = p.k + batch * p.k_stride_0 + head * p.k_stride_1;
  // key <- k
  if (t3) {
    const fc::bf16* const key_source = k_at + (t2 * 32) * p.k_stride_2;
    const int key_rows = p.Sk - (t2 * 32);
    {
      const int row = thread / 4, column = thread % 4 * 8;
      const fc::bf16* source = key_source + row * static_cast<int>(p.k_stride_2) + column;
      const int rows_left = key_rows - row;
      #pragma unroll
      for (int i = 0; i < 1; ++i) {
        fc::copy_chunk(shared + 4096 + 0 * 2048 + fc::panel_chunk_offset<32, 32>(row, column, 0), source, rows_left > 0 ? 16 : 0);
      }
    }
  }
  const fc::bf16* const v_at = p.v + batch * p.v_stride_0 + head * p.v_stride_1;
  // value <- v
  if (t3) {
    const fc::bf16* const value_source = v_at + (t2 * 32) * p.v_stride_2;
    const int value_rows = p.Sk - (t2 * 32);
    {
      const int row = thread / 4, column = thread % 4 * 8;
      const fc::bf16* source = value_source + row * static_cast<int>(p.v_stride_2) + column;
      const int rows_left = value_rows - row;
      #pragma unroll
      for (int i = 0; i < 1; ++i) {
        fc::copy_chunk(shared + 8192 + 0 * 2048 + fc::panel_chunk_offset<32, 32>(row, column, 0), source, rows_left > 0 ? 16 : 0);
      }
    }
  }

  float row_max[1][1];
  row_max[0][0] = fc::lowest();
  float row_sum[1][1] = {};
  float out[1][4][4] = {};
  int slot = 0;
  // cols tiles of 32
  for (int cols_tile = cols_end - 1; cols_tile >= 0; --cols_tile) {
    const int cols_begin = cols_tile * 32;
    const int next_tile = cols_tile - 1;
    const int freed_slot = 1 - slot;
    const bool t4 = next_tile >= 0;
    fc::barrier();
    // key <- k
    if (t4) {
      const fc::bf16* const key_source_2 = k_at + (next_tile * 32) * p.k_stride_2;
      const int key_rows_2 = p.Sk - (next_tile * 32);
      {
        const int row = thread / 4, column = thread % 4 * 8;
        const fc::bf16* source = key_source_2 + row * static_cast<int>(p.k_stride_2) + column;
        const int rows_left = key_rows_2 - row;
        #pragma unroll
        for (int i = 0; i < 1; ++i) {
          fc::copy_chunk(shared + 4096 + freed_slot * 2048 + fc::panel_chunk_offset<32, 32>(row, column, 0), source, rows_left > 0 ? 16 : 0);
        }
      }
    }
    // value <- v
    if (t4) {
      const fc::bf16* const value_source_2 = v_at + (next_tile * 32) * p.v_stride_2;
      const int value_rows_2 = p.Sk - (next_tile * 32);
      {
        const int row = thread / 4, column = thread % 4 * 8;
        const fc::bf16* source = value_source_2 + row * static_cast<int>(p.v_stride_2) + column;
        const int rows_left = value_rows_2 - row;
        #pragma unroll
        for (int i = 0; i < 1; ++i) {
          fc::copy_chunk(shared + 8192 + freed_slot * 2048 + fc::panel_chunk_offset<32, 32>(row, column, 0), source, rows_left > 0 ? 16 : 0);
        }
      }
    }
    const fc::u32 key = shared + 4096 + slot * 2048;
    const fc::u32 value = shared + 8192 + slot * 2048;
    fc::barrier();
    // scores = dot(query, transpose(key))
    float scores[2][2][4] = {};
    const fc::u32 query_2 = fc::in_place(query);
    #pragma unroll
    for (int k = 0; k < 2; ++k) {
      fc::u32 a[2][4];
      #pragma unroll
      for (int i = 0; i < 2; ++i)
        fc::load_matrices(a[i], fc::matrix_address<64, 32>(query_2, warp / 2 % 2 * 32 + lane % 16, lane / 16 * 8, i * 16, k * 16));
      #pragma unroll
      for (int j = 0; j < 1; ++j) {
        fc::u32 b[4];
        fc::load_matrices(b, fc::matrix_address<32, 32>(key, warp % 2 * 16 + lane % 8 + lane / 16 * 8, lane / 8 % 2 * 8, j * 16, k * 16));
        #pragma unroll
        for (int i = 0; i < 2; ++i) {
          fc::multiply<fc::bf16>(scores[i][2 * j], a[i], b[0], b[1]);
          fc::multiply<fc::bf16>(scores[i][2 * j + 1], a[i], b[2], b[3]);
        }
      }
    }
    // scores in shared memory
    const fc::u32 scores_shared = shared + 12288;
    #pragma unroll
    for (int i = 0; i < 2; ++i)
      #pragma unroll
      for (int j = 0; j < 2; ++j)
        #pragma unroll
        for (int r = 0; r < 2; ++r)
          fc::store_shared<2>(scores_shared + ((rows_lane_2 + i * 16 + r * 8) * 40 + warp % 2 * 16 + j * 8 + lane % 4 * 2) * 4, &scores[i][j][2 * r]);
    fc::barrier();
    // scores from shared memory
    float scores_2[1][4][4];
    #pragma unroll
    for (int i = 0; i < 1; ++i)
      #pragma unroll
      for (int j = 0; j < 4; ++j)
        fc::load_shared<4>(&scores_2[i][j][0], scores_shared + ((rows_lane + i * 16) * 40 + j * 8 + lane % 2 * 4) * 4);
    const bool masked = cols_tile >= cols_full_end;
    if (masked) {
      bool t5[4][4];
      // t5 = lt(thread_offset, sub(extent(cols), thread_begin))
      #pragma unroll
      for (int i = 0; i < 4; ++i) {
        #pragma unroll
        for (int e = 0; e < 4; ++e) {
          const int t6 = p.Sk - (cols_begin + cols_lane_2);
          t5[i][e] = (i * 8 + e) < t6;
        }
      }
      // scores_2 = where(t5, scores_2, -inf)
      #pragma unroll
      for (int j = 0; j < 4; ++j)
        #pragma unroll
        for (int e = 0; e < 4; ++e)
          scores_2[0][j][e] = t5[j][e] ? scores_2[0][j][e] : -fc::infinity();
    }
    // reduce_max = reduce_max(scores_2, cols)
    float t7[1][1];
    t7[0][0] = -fc::infinity();
    #pragma unroll
    for (int j = 0; j < 4; ++j)
      #pragma unroll
      for (int e = 0; e < 4; ++e)
        t7[0][0] = fc::max(t7[0][0], scores_2[0][j][e]);
    t7[0][0] = fc::max(t7[0][0], fc::shuffle_xor(t7[0][0], 1));
    float new_max[1][1];
    // new_max = max(row_max, mul(t7, scale_log2))
    float decay[1][1];
    // decay = exp2(sub(row_max, new_max))
    float t8[1][1];
    // t8 = neg(new_max)
    const float t9 = t7[0][0] * scale_log2;
    new_max[0][0] = fc::max(row_max[0][0], t9);
    const float t10 = row_max[0][0] - new_max[0][0];
    decay[0][0] = fc::exp2(t10);
    t8[0][0] = -new_max[0][0];
    float probs[1][4][4];
    // probs = exp2(fma(scores_2, scale_log2, t8))
    #pragma unroll
    for (int j = 0; j < 4; ++j) {
      #pragma unroll
      for (int e = 0; e < 4; ++e) {
        const float t11 = fc::fma(scores_2[0][j][e], scale_log2, t8[0][0]);
        probs[0][j][e] = fc::exp2(t11);
      }
    }
    // reduce_sum = reduce_sum(probs, cols), each lane its partial
    float t12[1][1] = {};
    #pragma unroll
    for (int j = 0; j < 4; ++j)
      #pragma unroll
      for (int e = 0; e < 4; ++e)
        t12[0][0] = t12[0][0] + probs[0][j][e];
    // row_sum = fma(row_sum, decay, t12)
    row_sum[0][0] = fc::fma(row_sum[0][0], decay[0][0], t12[0][0]);
    // probs = cast(probs)
    #pragma unroll
    for (int j = 0; j < 4; ++j)
      #pragma unroll
      for (int e = 0; e < 4; ++e)
        probs[0][j][e] = probs[0][j][e];
    // out = mul(out, decay)
    #pragma unroll
    for (int j = 0; j < 4; ++j)
      #pragma unroll
      for (int e = 0; e < 4; ++e)
        out[0][j][e] = out[0][j][e] * decay[0][0];
    fc::barrier();
    // probs in shared memory
    const fc::u32 operand_shared = shared + 12288;
    #pragma unroll
    for (int i = 0; i < 1; ++i)
      #pragma unroll
      for (int j = 0; j < 4; ++j)
        fc::store_shared(operand_shared + fc::chunk_offset<64, 32>(rows_lane + i * 16, j * 8) + lane % 2 * 8,
                         fc::pack<fc::bf16>(probs[i][j][0], probs[i][j][1]), fc::pack<fc::bf16>(probs[i][j][2], probs[i][j][3]));
    fc::barrier();
    // product = dot(operand_shared, value)
    float product[2][2][4] = {};
    #pragma unroll
    for (int k = 0; k < 2; ++k) {
      fc::u32 a[2][4];
      #pragma unroll
      for (int i = 0; i < 2; ++i)
        fc::load_matrices(a[i], fc::matrix_address<64, 32>(operand_shared, warp / 2 % 2 * 32 + lane % 16, lane / 16 * 8, i * 16, k * 16));
      #pragma unroll
      for (int j = 0; j < 1; ++j) {
        fc::u32 b[4];
        fc::load_matrices_transposed(b, fc::matrix_address<32, 32, true>(value, lane % 16, lane / 16 * 8, k * 16, warp % 2 * 16 + j * 16));
        #pragma unroll
        for (int i = 0; i < 2; ++i) {
          fc::multiply<fc::bf16>(product[i][2 * j], a[i], b[0], b[1]);
          fc::multiply<fc::bf16>(product[i][2 * j + 1], a[i], b[2], b[3]);
        }
      }
    }
    fc::barrier();
    // product in shared memory
    const fc::u32 product_shared = shared + 12288;
    #pragma unroll
    for (int i = 0; i < 2; ++i)
      #pragma unroll
      for (int j = 0; j < 2; ++j)
        #pragma unroll
        for (int r = 0; r < 2; ++r)
          fc::store_shared<2>(product_shared + ((rows_lane_2 + i * 16 + r * 8) * 40 + warp % 2 * 16 + j * 8 + lane % 4 * 2) * 4, &product[i][j][2 * r]);
    fc::barrier();
    // product from shared memory
    float product_2[1][4][4];
    #pragma unroll
    for (int i = 0; i < 1; ++i)
      #pragma unroll
      for (int j = 0; j < 4; ++j)
        fc::load_shared<4>(&product_2[i][j][0], product_shared + ((rows_lane + i * 16) * 40 + j * 8 + lane % 2 * 4) * 4);
    // out = add(out, product_2)
    #pragma unroll
    for (int j = 0; j < 4; ++j)
      #pragma unroll
      for (int e = 0; e < 4; ++e)
        out[0][j][e] = out[0][j][e] + product_2[0][j][e];
    const int next_slot = 1 - slot;
    row_max[0][0] = new_max[0][0];
    slot = next_slot;
  }
  // row_sum: partials of the lanes, combined
  row_sum[0][0] = row_sum[0][0] + fc::shuffle_xor(row_sum[0][0], 1);
  float inverse[1][1];
  // inverse = where(eq(row_sum, 0), 0, div(1, row_sum))
  const bool empty = row_sum[0][0] == 0.f;
  const float t13 = fc::divide(1.f, row_sum[0][0]);
  inverse[0][0] = empty ? 0.f : t13;
  float t14[1][4][4];
  // t14 = cast(mul(out, inverse))
  #pragma unroll
  for (int j = 0; j < 4; ++j) {
    #pragma unroll
    for (int e = 0; e < 4; ++e) {
      const float t15 = out[0][j][e] * inverse[0][0];
      t14[0][j][e] = t15;
    }
  }
  fc::barrier();
  // t14 in shared memory
  const fc::u32 o_staged = shared;
  #pragma unroll
  for (int i = 0; i < 1; ++i)
    #pragma unroll
    for (int j = 0; j < 4; ++j)
      fc::store_shared(o_staged + fc::chunk_offset<64, 32>(rows_lane + i * 16, j * 8) + lane % 2 * 8,
                       fc::pack<fc::bf16>(t14[i][j][0], t14[i][j][1]), fc::pack<fc::bf16>(t14[i][j][2], t14[i][j][3]));
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
}
