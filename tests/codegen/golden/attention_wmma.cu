struct Parameters {
  const fc::f16* q;
  const fc::f16* k;
  const fc::f16* v;
  fc::f16* o;
  fc::i64 q_stride_0, q_stride_1, q_stride_2;  // elements
  fc::i64 k_stride_0, k_stride_1, k_stride_2;  // elements
  fc::i64 v_stride_0, v_stride_1, v_stride_2;  // elements
  fc::i64 o_stride_0, o_stride_1, o_stride_2;  // elements
  int Sq;
  int Sk;
  float scale;
};

extern "C" __global__ void __launch_bounds__(256, 1)
attention_forward(const __grid_constant__ Parameters p) {
  const int rows_tile_count = (p.Sq + 63) / 64;
  const int rows_tile = rows_tile_count - 1 - fc::block_x();
  const int rows_begin = rows_tile * 64;
  const int head = fc::block_y();
  const int batch = fc::block_z();
  const int thread = fc::thread_index(), lane = thread % 32, warp = thread / 32;
  const fc::u32 shared = fc::shared_base();
  const int rows_lane = warp % 8 * 8 + lane / 4;
  const int dv_lane = lane % 4 * 2;
  const int cols_lane = lane % 4 * 2;
  const fc::f16* const q_at = p.q + batch * p.q_stride_0 + head * p.q_stride_1;
  // query <- q
  const fc::f16* const query_source = q_at + (rows_begin) * p.q_stride_2;
  const int query_rows = p.Sq - (rows_begin);
  {
    const int row = thread / 8, column = thread % 8 * 8;
    const fc::f16* source = query_source + row * static_cast<int>(p.q_stride_2) + column;
    const int rows_left = query_rows - row;
    #pragma unroll
    for (int i = 0; i < 2; ++i) {
      fc::copy_chunk(shared + (row * 72 + column) * 2 + i * 4608, source, i * 32 < rows_left ? 16 : 0);
      source += 32 * static_cast<int>(p.q_stride_2);
    }
  }
  const fc::u32 query = shared;
  const float scale_log2 = p.scale * 1.442695f;
  const int t0 = ((fc::min((rows_begin + 64), p.Sq) - 1) - p.Sq) + p.Sk;
  const int t1 = ((((rows_begin - p.Sq) + p.Sk) + -63) >> 6) + 1;
  const int cols_end = fc::max(0, fc::min(((t0 >> 6) + 1), ((p.Sk + 63) / 64)));
  const int cols_full_end = fc::max(0, fc::min(t1, cols_end));
  const int t2 = cols_end - 1;
  const fc::f16* const k_at = p.k + batch * p.k_stride_0 + head * p.k_stride_1;
  // key <- k
  if ((t2 >= 0)) {
    const fc::f16* const key_source = k_at + (t2 * 64) * p.k_stride_2;
    const int key_rows = p.Sk - (t2 * 64);
    {
      const int row = thread / 8, column = thread % 8 * 8;
      const fc::f16* source = key_source + row * static_cast<int>(p.k_stride_2) + column;
      const int rows_left = key_rows - row;
      #pragma unroll
      for (int i = 0; i < 2; ++i) {
        fc::copy_chunk(shared + 9216 + (row * 72 + column) * 2 + i * 4608, source, i * 32 < rows_left ? 16 : 0);
        source += 32 * static_cast<int>(p.k_stride_2);
      }
    }
  }
  const fc::f16* const v_at = p.v + batch * p.v_stride_0 + head * p.v_stride_1;

  float row_max[1][1];
  row_max[0][0] = fc::lowest();
  float row_sum[1][1] = {};
  float out[1][8][2] = {};
  // cols tiles of 64
  for (int cols_tile = cols_end - 1; cols_tile >= 0; --cols_tile) {
    const int cols_begin = cols_tile * 64;
    const fc::u32 key = shared + 9216;
    const fc::u32 value = shared + 36864;
    // value <- v
    const fc::f16* const value_source = v_at + (cols_tile * 64) * p.v_stride_2;
    const int value_rows = p.Sk - (cols_tile * 64);
    {
      const int row = thread / 8, column = thread % 8 * 8;
      const fc::f16* source = value_source + row * static_cast<int>(p.v_stride_2) + column;
      const int rows_left = value_rows - row;
      #pragma unroll
      for (int i = 0; i < 2; ++i) {
        fc::copy_chunk(shared + 36864 + (row * 72 + column) * 2 + i * 4608, source, i * 32 < rows_left ? 16 : 0);
        source += 32 * static_cast<int>(p.v_stride_2);
      }
    }
    fc::barrier();
    // scores = dot(query, transpose(key))
    fc::sum_block scores[1][2] = {};
    const fc::u32 query_2 = fc::in_place(query);
    #pragma unroll
    for (int k = 0; k < 4; ++k) {
      fc::left_block<fc::f16, false> a[1];
      #pragma unroll
      for (int i = 0; i < 1; ++i)
        fc::load_block(a[i], query_2 + ((warp / 2 % 4 * 16 + i * 16) * 72 + k * 16) * 2, 72);
      #pragma unroll
      for (int j = 0; j < 2; ++j) {
        fc::right_block<fc::f16, true> b;
        fc::load_block(b, key + ((warp % 2 * 32 + j * 16) * 72 + k * 16) * 2, 72);
        #pragma unroll
        for (int i = 0; i < 1; ++i)
          fc::multiply_blocks(scores[i][j], a[i], b);
      }
    }
    // scores in shared memory
    const fc::u32 scores_shared = shared + 18432;
    #pragma unroll
    for (int i = 0; i < 1; ++i)
      #pragma unroll
      for (int j = 0; j < 2; ++j)
        fc::store_block(scores_shared + ((warp / 2 % 4 * 16 + i * 16) * 72 + warp % 2 * 32 + j * 16) * 4, 72, scores[i][j]);
    fc::barrier();
    // scores from shared memory
    float scores_2[1][8][2];
    #pragma unroll
    for (int i = 0; i < 1; ++i)
      #pragma unroll
      for (int j = 0; j < 8; ++j)
        fc::load_shared<2>(&scores_2[i][j][0], scores_shared + ((rows_lane + i * 8) * 72 + j * 8 + lane % 4 * 2) * 4);
    const bool masked = cols_tile >= cols_full_end;
    if (masked) {
      int t3[1][1];
      // t3 = add(index(rows), (p.Sk - p.Sq))
      t3[0][0] = (rows_begin + rows_lane) + (p.Sk - p.Sq);
      // scores_2 = where(ge(sub(t3, thread_begin), thread_offset), scores_2, -inf)
      #pragma unroll
      for (int j = 0; j < 8; ++j) {
        #pragma unroll
        for (int e = 0; e < 2; ++e) {
          const int t4 = t3[0][0] - (cols_begin + cols_lane);
          const bool t5 = t4 >= (j * 8 + e);
          scores_2[0][j][e] = t5 ? scores_2[0][j][e] : -fc::infinity();
        }
      }
    }
    // reduce_max = reduce_max(scores_2, cols)
    float t6[1][1];
    t6[0][0] = -fc::infinity();
    #pragma unroll
    for (int j = 0; j < 8; ++j)
      #pragma unroll
      for (int e = 0; e < 2; ++e)
        t6[0][0] = fc::max(t6[0][0], scores_2[0][j][e]);
    t6[0][0] = fc::max(t6[0][0], fc::shuffle_xor(t6[0][0], 1));
    t6[0][0] = fc::max(t6[0][0], fc::shuffle_xor(t6[0][0], 2));
    float new_max[1][1];
    // new_max = max(row_max, mul(t6, scale_log2))
    float decay[1][1];
    // decay = exp2(sub(row_max, new_max))
    float t7[1][1];
    // t7 = neg(new_max)
    const float t8 = t6[0][0] * scale_log2;
    new_max[0][0] = fc::max(row_max[0][0], t8);
    const float t9 = row_max[0][0] - new_max[0][0];
    decay[0][0] = fc::exp2(t9);
    t7[0][0] = -new_max[0][0];
    float probs[1][8][2];
    // probs = exp2(fma(scores_2, scale_log2, t7))
    #pragma unroll
    for (int j = 0; j < 8; ++j) {
      #pragma unroll
      for (int e = 0; e < 2; ++e) {
        const float t10 = fc::fma(scores_2[0][j][e], scale_log2, t7[0][0]);
        probs[0][j][e] = fc::exp2(t10);
      }
    }
    // reduce_sum = reduce_sum(probs, cols), each lane its partial
    float t11[1][1] = {};
    #pragma unroll
    for (int j = 0; j < 8; ++j)
      #pragma unroll
      for (int e = 0; e < 2; ++e)
        t11[0][0] = t11[0][0] + probs[0][j][e];
    // row_sum = fma(row_sum, decay, t11)
    row_sum[0][0] = fc::fma(row_sum[0][0], decay[0][0], t11[0][0]);
    // probs = cast(probs)
    #pragma unroll
    for (int j = 0; j < 8; ++j)
      #pragma unroll
      for (int e = 0; e < 2; ++e)
        probs[0][j][e] = probs[0][j][e];
    // out = mul(out, decay)
    #pragma unroll
    for (int j = 0; j < 8; ++j)
      #pragma unroll
      for (int e = 0; e < 2; ++e)
        out[0][j][e] = out[0][j][e] * decay[0][0];
    fc::barrier();
    // probs in shared memory
    const fc::u32 operand_shared = shared + 18432;
    #pragma unroll
    for (int i = 0; i < 1; ++i)
      #pragma unroll
      for (int j = 0; j < 8; ++j)
        fc::store_shared(operand_shared + ((rows_lane + i * 8) * 72 + j * 8 + lane % 4 * 2) * 2,
                         fc::pack<fc::f16>(probs[i][j][0], probs[i][j][1]));
    const int next_tile = cols_tile - 1;
    // key <- k
    if ((next_tile >= 0)) {
      const fc::f16* const key_source_2 = k_at + (next_tile * 64) * p.k_stride_2;
      const int key_rows_2 = p.Sk - (next_tile * 64);
      {
        const int row = thread / 8, column = thread % 8 * 8;
        const fc::f16* source = key_source_2 + row * static_cast<int>(p.k_stride_2) + column;
        const int rows_left = key_rows_2 - row;
        #pragma unroll
        for (int i = 0; i < 2; ++i) {
          fc::copy_chunk(shared + 9216 + (row * 72 + column) * 2 + i * 4608, source, i * 32 < rows_left ? 16 : 0);
          source += 32 * static_cast<int>(p.k_stride_2);
        }
      }
    }
    fc::barrier();
    // product = dot(operand_shared, value)
    fc::sum_block product[1][2] = {};
    #pragma unroll
    for (int k = 0; k < 4; ++k) {
      fc::left_block<fc::f16, false> a[1];
      #pragma unroll
      for (int i = 0; i < 1; ++i)
        fc::load_block(a[i], operand_shared + ((warp / 2 % 4 * 16 + i * 16) * 72 + k * 16) * 2, 72);
      #pragma unroll
      for (int j = 0; j < 2; ++j) {
        fc::right_block<fc::f16, false> b;
        fc::load_block(b, value + ((k * 16) * 72 + warp % 2 * 32 + j * 16) * 2, 72);
        #pragma unroll
        for (int i = 0; i < 1; ++i)
          fc::multiply_blocks(product[i][j], a[i], b);
      }
    }
    fc::barrier();
    // product in shared memory
    const fc::u32 product_shared = shared + 18432;
    #pragma unroll
    for (int i = 0; i < 1; ++i)
      #pragma unroll
      for (int j = 0; j < 2; ++j)
        fc::store_block(product_shared + ((warp / 2 % 4 * 16 + i * 16) * 72 + warp % 2 * 32 + j * 16) * 4, 72, product[i][j]);
    fc::barrier();
    // product from shared memory
    float product_2[1][8][2];
    #pragma unroll
    for (int i = 0; i < 1; ++i)
      #pragma unroll
      for (int j = 0; j < 8; ++j)
        fc::load_shared<2>(&product_2[i][j][0], product_shared + ((rows_lane + i * 8) * 72 + j * 8 + lane % 4 * 2) * 4);
    // out = add(out, product_2)
    #pragma unroll
    for (int j = 0; j < 8; ++j)
      #pragma unroll
      for (int e = 0; e < 2; ++e)
        out[0][j][e] = out[0][j][e] + product_2[0][j][e];
    row_max[0][0] = new_max[0][0];
  }
  // row_sum: partials of the lanes, combined
  row_sum[0][0] = row_sum[0][0] + fc::shuffle_xor(row_sum[0][0], 1);
  row_sum[0][0] = row_sum[0][0] + fc::shuffle_xor(row_sum[0][0], 2);
  float inverse[1][1];
  // inverse = where(eq(row_sum, 0), 0, div(1, row_sum))
  const bool empty = row_sum[0][0] == 0.f;
  const float t12 = fc::divide(1.f, row_sum[0][0]);
  inverse[0][0] = empty ? 0.f : t12;
  float t13[1][8][2];
  // t13 = cast(mul(out, inverse))
  #pragma unroll
  for (int j = 0; j < 8; ++j) {
    #pragma unroll
    for (int e = 0; e < 2; ++e) {
      const float t14 = out[0][j][e] * inverse[0][0];
      t13[0][j][e] = t14;
    }
  }
  fc::barrier();
  // t13 in shared memory
  const fc::u32 o_staged = shared;
  #pragma unroll
  for (int i = 0; i < 1; ++i)
    #pragma unroll
    for (int j = 0; j < 8; ++j)
      fc::store_shared(o_staged + fc::chunk_offset<64, 64>(rows_lane + i * 8, j * 8) + lane % 4 * 4,
                       fc::pack<fc::f16>(t13[i][j][0], t13[i][j][1]));
  fc::barrier();
  fc::f16* const o_at = p.o + batch * p.o_stride_0 + head * p.o_stride_1;
  // store o
  fc::f16* const o_target = o_at + rows_begin * p.o_stride_2;
  {
    const int row = thread / 8, column = thread % 8 * 8;
    fc::f16* out_pointer = o_target + row * static_cast<int>(p.o_stride_2) + column;
    const int rows_left = p.Sq - rows_begin - row;
    #pragma unroll
    for (int i = 0; i < 2; ++i) {
      if (i * 32 < rows_left) {
        fc::store_chunk(out_pointer, fc::load_shared_chunk(o_staged + fc::panel_chunk_offset<64, 64>(row, column, 0) + i * 4096));
      }
      out_pointer += 32 * static_cast<int>(p.o_stride_2);
    }
  }
}
