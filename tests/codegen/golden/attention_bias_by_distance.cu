struct Parameters {
  const fc::bf16* q;
  const fc::bf16* k;
  const fc::bf16* v;
  fc::bf16* o;
  const float* table;
  fc::i64 q_stride_0, q_stride_1, q_stride_2;  // elements
  fc::i64 k_stride_0, k_stride_1, k_stride_2;  // elements
  fc::i64 v_stride_0, v_stride_1, v_stride_2;  // elements
  fc::i64 o_stride_0, o_stride_1, o_stride_2;  // elements
  fc::i64 table_stride_0, table_stride_1;  // elements
  int Sq;
  int Sk;
  int table_n0;
  int table_n1;
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
    const int row = thread / 8, column = thread % 8 * 8;
    const fc::bf16* source = query_source + row * static_cast<int>(p.q_stride_2) + column;
    const int rows_left = query_rows - row;
    #pragma unroll
    for (int i = 0; i < 4; ++i) {
      fc::copy_async(shared + fc::panel_chunk_offset<64, 64>(row, column, 0) + i * 2048, source, i * 16 < rows_left ? 16 : 0);
      source += 16 * static_cast<int>(p.q_stride_2);
    }
  }
  const fc::u32 query = shared;
  const int t0 = p.Sk + -1;
  const int cols_end = fc::max(0, fc::min(((t0 >> 6) + 1), ((p.Sk + 63) / 64)));
  const int t1 = fc::max((((t0 + -63) >> 6) + 1), (cols_end - 1));
  const int cols_full_end = fc::max(0, fc::min(t1, cols_end));
  const int t2 = cols_end - 1;
  const bool t3 = t2 >= 0;
  const fc::bf16* const k_at = p.k + batch * p.k_stride_0 + head * p.k_stride_1;
  // key <- k, asynchronously
  if (t3) {
    const fc::bf16* const key_source = k_at + (t2 * 64) * p.k_stride_2;
    const int key_rows = p.Sk - (t2 * 64);
    {
      const int row = thread / 8, column = thread % 8 * 8;
      const fc::bf16* source = key_source + row * static_cast<int>(p.k_stride_2) + column;
      const int rows_left = key_rows - row;
      #pragma unroll
      for (int i = 0; i < 4; ++i) {
        fc::copy_async(shared + 8192 + 0 * 8192 + fc::panel_chunk_offset<64, 64>(row, column, 0) + i * 2048, source, i * 16 < rows_left ? 16 : 0);
        source += 16 * static_cast<int>(p.k_stride_2);
      }
    }
  }
  const fc::bf16* const v_at = p.v + batch * p.v_stride_0 + head * p.v_stride_1;
  // value <- v, asynchronously
  if (t3) {
    const fc::bf16* const value_source = v_at + (t2 * 64) * p.v_stride_2;
    const int value_rows = p.Sk - (t2 * 64);
    {
      const int row = thread / 8, column = thread % 8 * 8;
      const fc::bf16* source = value_source + row * static_cast<int>(p.v_stride_2) + column;
      const int rows_left = value_rows - row;
      #pragma unroll
      for (int i = 0; i < 4; ++i) {
        fc::copy_async(shared + 24576 + 0 * 8192 + fc::panel_chunk_offset<64, 64>(row, column, 0) + i * 2048, source, i * 16 < rows_left ? 16 : 0);
        source += 16 * static_cast<int>(p.v_stride_2);
      }
    }
  }
  fc::commit_copies();

  float row_max[1][2];
  #pragma unroll
  for (int e = 0; e < 2; ++e)
    row_max[0][e] = fc::lowest();
  float row_sum[1][2] = {};
  float out[1][8][4] = {};
  int slot = 0;
  // cols tiles of 64
  for (int cols_tile = cols_end - 1; cols_tile >= 0; --cols_tile) {
    const int cols_begin = cols_tile * 64;
    fc::wait_copies<0>();
    const int next_tile = cols_tile - 1;
    const int freed_slot = 1 - slot;
    const bool t4 = next_tile >= 0;
    fc::barrier();
    // key <- k, asynchronously
    if (t4) {
      const fc::bf16* const key_source_2 = k_at + (next_tile * 64) * p.k_stride_2;
      const int key_rows_2 = p.Sk - (next_tile * 64);
      {
        const int row = thread / 8, column = thread % 8 * 8;
        const fc::bf16* source = key_source_2 + row * static_cast<int>(p.k_stride_2) + column;
        const int rows_left = key_rows_2 - row;
        #pragma unroll
        for (int i = 0; i < 4; ++i) {
          fc::copy_async(shared + 8192 + freed_slot * 8192 + fc::panel_chunk_offset<64, 64>(row, column, 0) + i * 2048, source, i * 16 < rows_left ? 16 : 0);
          source += 16 * static_cast<int>(p.k_stride_2);
        }
      }
    }
    // value <- v, asynchronously
    if (t4) {
      const fc::bf16* const value_source_2 = v_at + (next_tile * 64) * p.v_stride_2;
      const int value_rows_2 = p.Sk - (next_tile * 64);
      {
        const int row = thread / 8, column = thread % 8 * 8;
        const fc::bf16* source = value_source_2 + row * static_cast<int>(p.v_stride_2) + column;
        const int rows_left = value_rows_2 - row;
        #pragma unroll
        for (int i = 0; i < 4; ++i) {
          fc::copy_async(shared + 24576 + freed_slot * 8192 + fc::panel_chunk_offset<64, 64>(row, column, 0) + i * 2048, source, i * 16 < rows_left ? 16 : 0);
          source += 16 * static_cast<int>(p.v_stride_2);
        }
      }
    }
    fc::commit_copies();
    const fc::u32 key = shared + 8192 + slot * 8192;
    const fc::u32 value = shared + 24576 + slot * 8192;
    // product = dot(query, transpose(key))
    float t5[1][8][4] = {};
    const fc::u32 query_2 = fc::in_place(query);
    #pragma unroll
    for (int k = 0; k < 4; ++k) {
      fc::u32 a[1][4];
      fc::load_matrices(a[0], fc::matrix_address<64, 64>(query_2, warp % 4 * 16 + lane % 16, lane / 16 * 8, 0, k * 16));
      #pragma unroll
      for (int j = 0; j < 4; ++j) {
        fc::u32 b[4];
        fc::load_matrices(b, fc::matrix_address<64, 64>(key, lane % 8 + lane / 16 * 8, lane / 8 % 2 * 8, j * 16, k * 16));
        fc::multiply<fc::bf16>(t5[0][2 * j], a[0], b[0], b[1]);
        fc::multiply<fc::bf16>(t5[0][2 * j + 1], a[0], b[2], b[3]);
      }
    }
    const int t6 = rows_begin - cols_begin;
    const int least = t6 + -63;
    const int greatest = t6 + 63;
    const int from_end = (greatest < 0) ? p.table_n1 : 0;
    const bool t7 = ((head >= 0) && (head < p.table_n0)) && ((least + from_end) >= 0);
    const bool t8 = (t7 && (least <= greatest)) && ((greatest + from_end) < p.table_n1);
    if (t8) {
      // modified = fma(t5, scale, gather(index(head), add(add(sub(index(rows), thread_begin), from_end), neg(thread_offset))))
      #pragma unroll
      for (int j = 0; j < 8; ++j) {
        #pragma unroll
        for (int e = 0; e < 4; ++e) {
          const int t9 = (rows_begin + rows_lane + (e / 2) * 8) - (cols_begin + cols_lane);
          const int t10 = -(j * 8 + (e % 2));
          const int t11 = t9 + from_end;
          const int t12 = t11 + t10;
          const float t13 = fc::gather(p.table + (head * p.table_stride_0 + t11 * p.table_stride_1), t10 * p.table_stride_1, true);
          t5[0][j][e] = fc::fma(t5[0][j][e], p.scale, t13);
        }
      }
    }
    else {
      // modified = fma(t5, scale, gather(index(head), sub(index(rows), index(cols))))
      #pragma unroll
      for (int j = 0; j < 8; ++j) {
        #pragma unroll
        for (int e = 0; e < 4; ++e) {
          const int t14 = (rows_begin + rows_lane + (e / 2) * 8) - (cols_begin + cols_lane + j * 8 + (e % 2));
          const float t15 = fc::gather(p.table, head * p.table_stride_0 + fc::wrapped(t14, p.table_n1) * p.table_stride_1, fc::within(head, p.table_n0) && fc::within(fc::wrapped(t14, p.table_n1), p.table_n1));
          t5[0][j][e] = fc::fma(t5[0][j][e], p.scale, t15);
        }
      }
    }
    const bool masked = cols_tile >= cols_full_end;
    if (masked) {
      bool t16[8][2];
      // t16 = lt(thread_offset, sub(extent(cols), thread_begin))
      #pragma unroll
      for (int i = 0; i < 8; ++i) {
        #pragma unroll
        for (int e = 0; e < 2; ++e) {
          const int t17 = p.Sk - (cols_begin + cols_lane);
          t16[i][e] = (i * 8 + e) < t17;
        }
      }
      // modified = where(t16, modified, -inf)
      #pragma unroll
      for (int j = 0; j < 8; ++j)
        #pragma unroll
        for (int e = 0; e < 4; ++e)
          t5[0][j][e] = t16[j][(e % 2)] ? t5[0][j][e] : -fc::infinity();
    }
    // reduce_max = reduce_max(modified, cols)
    float t18[1][2];
    #pragma unroll
    for (int e = 0; e < 2; ++e)
      t18[0][e] = -fc::infinity();
    #pragma unroll
    for (int j = 0; j < 8; ++j)
      #pragma unroll
      for (int e = 0; e < 4; ++e)
        t18[0][(e / 2)] = fc::max(t18[0][(e / 2)], t5[0][j][e]);
    #pragma unroll
    for (int e = 0; e < 2; ++e) {
      t18[0][e] = fc::max(t18[0][e], fc::shuffle_xor(t18[0][e], 1));
      t18[0][e] = fc::max(t18[0][e], fc::shuffle_xor(t18[0][e], 2));
    }
    float new_max[1][2];
    // new_max = max(row_max, mul(t18, 1.4426950408889634))
    float decay[1][2];
    // decay = exp2(sub(row_max, new_max))
    float t19[1][2];
    // t19 = neg(new_max)
    #pragma unroll
    for (int e = 0; e < 2; ++e) {
      const float t20 = t18[0][e] * 1.442695f;
      new_max[0][e] = fc::max(row_max[0][e], t20);
      const float t21 = row_max[0][e] - new_max[0][e];
      decay[0][e] = fc::exp2(t21);
      t19[0][e] = -new_max[0][e];
    }
    float probs[1][8][4];
    // probs = exp2(fma(modified, 1.4426950408889634, t19))
    #pragma unroll
    for (int j = 0; j < 8; ++j) {
      #pragma unroll
      for (int e = 0; e < 4; ++e) {
        const float t22 = fc::fma(t5[0][j][e], 1.442695f, t19[0][(e / 2)]);
        probs[0][j][e] = fc::exp2(t22);
      }
    }
    // reduce_sum = reduce_sum(probs, cols), each lane its partial
    float t23[1][2] = {};
    #pragma unroll
    for (int j = 0; j < 8; ++j)
      #pragma unroll
      for (int e = 0; e < 4; ++e)
        t23[0][(e / 2)] = t23[0][(e / 2)] + probs[0][j][e];
    // row_sum = fma(row_sum, decay, t23)
    #pragma unroll
    for (int e = 0; e < 2; ++e)
      row_sum[0][e] = fc::fma(row_sum[0][e], decay[0][e], t23[0][e]);
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
    const int next_slot = 1 - slot;
    #pragma unroll
    for (int e = 0; e < 2; ++e)
      row_max[0][e] = new_max[0][e];
    slot = next_slot;
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
    const float t24 = fc::divide(1.f, row_sum[0][e]);
    inverse[0][e] = empty ? 0.f : t24;
  }
  float t25[1][8][4];
  // t25 = cast(mul(out, inverse))
  #pragma unroll
  for (int j = 0; j < 8; ++j) {
    #pragma unroll
    for (int e = 0; e < 4; ++e) {
      const float t26 = out[0][j][e] * inverse[0][(e / 2)];
      t25[0][j][e] = t26;
    }
  }
  fc::barrier();
  // t25 in shared memory
  const fc::u32 o_staged = shared;
  #pragma unroll
  for (int i = 0; i < 1; ++i)
    #pragma unroll
    for (int j = 0; j < 8; ++j)
      #pragma unroll
      for (int r = 0; r < 2; ++r)
        fc::store_shared(o_staged + fc::chunk_offset<64, 64>(rows_lane + i * 16 + r * 8, j * 8) + lane % 4 * 4,
                         fc::pack<fc::bf16>(t25[i][j][2 * r], t25[i][j][2 * r + 1]));
  fc::barrier();
  fc::bf16* const o_at = p.o + batch * p.o_stride_0 + head * p.o_stride_1;
  // store o
  fc::bf16* const o_target = o_at + rows_begin * p.o_stride_2;
  {
    const int row = thread / 8, column = thread % 8 * 8;
    fc::bf16* out_pointer = o_target + row * static_cast<int>(p.o_stride_2) + column;
    const int rows_left = p.Sq - rows_begin - row;
    #pragma unroll
    for (int i = 0; i < 4; ++i) {
      if (i * 16 < rows_left) {
        fc::store_chunk(out_pointer, fc::load_shared_chunk(o_staged + fc::panel_chunk_offset<64, 64>(row, column, 0) + i * 2048));
      }
      out_pointer += 16 * static_cast<int>(p.o_stride_2);
    }
  }
}
