struct Parameters {
  const fc::f16* q;
  const fc::f16* k;
  const fc::f16* v;
  fc::f16* o;
  fc::i64 q_stride_0, q_stride_1, q_stride_2;  // elements
  fc::i64 k_stride_0, k_stride_1, k_stride_2;  // elements
  fc::i64 v_stride_0, v_stride_1, v_stride_2;  // elements
  fc::i64 o_stride_0, o_stride_1, o_stride_2;  // elements
  float scale;
};

extern "C" __global__ void __launch_bounds__(96, 1)
attention_forward(const __grid_constant__ Parameters p) {
  const int rows_tile = fc::block_x();
  const int rows_begin = rows_tile * 96;
  const int head = fc::block_y();
  const int batch = fc::block_z();
  const int thread = fc::thread_index(), lane = thread % 32, warp = thread / 32;
  const fc::u32 shared = fc::shared_base();
  const int rows_lane = warp % 3 * 32 + lane / 4;
  const int dv_lane = lane % 4 * 2;
  const int cols_lane = lane % 4 * 2;
  fc::wait_for_kernels();
  fc::launch_dependents();
  const fc::f16* const q_at = p.q + batch * p.q_stride_0 + head * p.q_stride_1;
  // query <- q, asynchronously
  const fc::f16* const query_source = q_at + (rows_begin) * p.q_stride_2;
  const int query_rows = 100 - (rows_begin);
  const int query_columns = 72 - (0);
  {
    const int row = thread / 8, column = thread % 8 * 8;
    const fc::f16* source = query_source + row * static_cast<int>(p.q_stride_2) + column;
    const int rows_left = query_rows - row;
    #pragma unroll
    for (int i = 0; i < 8; ++i) {
      fc::copy_async(shared + fc::panel_chunk_offset<96, 80>(row + i * 12, column, 0), source, i * 12 < rows_left ? (column < query_columns ? 16 : 0) : 0);
      source += 12 * static_cast<int>(p.q_stride_2);
    }
  }
  {
    const int row = thread / 2, column = thread % 2 * 8;
    const fc::f16* source = query_source + row * static_cast<int>(p.q_stride_2) + column + 64;
    const int rows_left = query_rows - row;
    #pragma unroll
    for (int i = 0; i < 2; ++i) {
      fc::copy_async(shared + fc::panel_chunk_offset<96, 80>(row, column, 64) + i * 1536, source, i * 48 < rows_left ? (column + 64 < query_columns ? 16 : 0) : 0);
      source += 48 * static_cast<int>(p.q_stride_2);
    }
  }
  const fc::u32 query = shared;
  const float scale_log2 = p.scale * 1.442695f;
  const int t0 = fc::floor_div((fc::min((rows_begin + 96), 100) - 1), 48);
  const int cols_end = fc::max(0, fc::min((t0 + 1), 7));
  const int t1 = fc::min((fc::floor_div((rows_begin + -47), 48) + 1), cols_end);
  const int cols_full_end = fc::max(0, t1);
  fc::commit_copies();
  const int t2 = 0 + 0;
  const bool t3 = t2 < cols_end;
  const fc::f16* const k_at = p.k + batch * p.k_stride_0 + head * p.k_stride_1;
  // key <- k, asynchronously
  if (t3) {
    const fc::f16* const key_source = k_at + (t2 * 48) * p.k_stride_2;
    const int key_rows = 333 - (t2 * 48);
    const int key_columns = 72 - (0);
    {
      const int row = thread / 8, column = thread % 8 * 8;
      const fc::f16* source = key_source + row * static_cast<int>(p.k_stride_2) + column;
      const int rows_left = key_rows - row;
      #pragma unroll
      for (int i = 0; i < 4; ++i) {
        fc::copy_async(shared + 15360 + 0 * 7680 + fc::panel_chunk_offset<48, 80>(row + i * 12, column, 0), source, i * 12 < rows_left ? (column < key_columns ? 16 : 0) : 0);
        source += 12 * static_cast<int>(p.k_stride_2);
      }
    }
    {
      const int row = thread / 2, column = thread % 2 * 8;
      const fc::f16* source = key_source + row * static_cast<int>(p.k_stride_2) + column + 64;
      const int rows_left = key_rows - row;
      #pragma unroll
      for (int i = 0; i < 1; ++i) {
        fc::copy_async(shared + 15360 + 0 * 7680 + fc::panel_chunk_offset<48, 80>(row, column, 64), source, rows_left > 0 ? (column + 64 < key_columns ? 16 : 0) : 0);
      }
    }
  }
  const fc::f16* const v_at = p.v + batch * p.v_stride_0 + head * p.v_stride_1;
  // value <- v, asynchronously
  if (t3) {
    const fc::f16* const value_source = v_at + (t2 * 48) * p.v_stride_2;
    const int value_rows = 333 - (t2 * 48);
    const int value_columns = 40 - (0);
    {
      const int row = thread / 4, column = thread % 4 * 8;
      const fc::f16* source = value_source + row * static_cast<int>(p.v_stride_2) + column;
      const int rows_left = value_rows - row;
      #pragma unroll
      for (int i = 0; i < 2; ++i) {
        fc::copy_async(shared + 38912 + 0 * 4608 + fc::panel_chunk_offset<48, 48>(row, column, 0) + i * 1536, source, i * 24 < rows_left ? (column < value_columns ? 16 : 0) : 0);
        source += 24 * static_cast<int>(p.v_stride_2);
      }
    }
    {
      const int row = thread / 2, column = thread % 2 * 8;
      const fc::f16* source = value_source + row * static_cast<int>(p.v_stride_2) + column + 32;
      const int rows_left = value_rows - row;
      #pragma unroll
      for (int i = 0; i < 1; ++i) {
        fc::copy_async(shared + 38912 + 0 * 4608 + fc::panel_chunk_offset<48, 48>(row, column, 32), source, rows_left > 0 ? (column + 32 < value_columns ? 16 : 0) : 0);
      }
    }
  }
  fc::commit_copies();
  const int t4 = 0 + 1;
  const bool t5 = t4 < cols_end;
  // key <- k, asynchronously
  if (t5) {
    const fc::f16* const key_source_2 = k_at + (t4 * 48) * p.k_stride_2;
    const int key_rows_2 = 333 - (t4 * 48);
    const int key_columns_2 = 72 - (0);
    {
      const int row = thread / 8, column = thread % 8 * 8;
      const fc::f16* source = key_source_2 + row * static_cast<int>(p.k_stride_2) + column;
      const int rows_left = key_rows_2 - row;
      #pragma unroll
      for (int i = 0; i < 4; ++i) {
        fc::copy_async(shared + 15360 + 1 * 7680 + fc::panel_chunk_offset<48, 80>(row + i * 12, column, 0), source, i * 12 < rows_left ? (column < key_columns_2 ? 16 : 0) : 0);
        source += 12 * static_cast<int>(p.k_stride_2);
      }
    }
    {
      const int row = thread / 2, column = thread % 2 * 8;
      const fc::f16* source = key_source_2 + row * static_cast<int>(p.k_stride_2) + column + 64;
      const int rows_left = key_rows_2 - row;
      #pragma unroll
      for (int i = 0; i < 1; ++i) {
        fc::copy_async(shared + 15360 + 1 * 7680 + fc::panel_chunk_offset<48, 80>(row, column, 64), source, rows_left > 0 ? (column + 64 < key_columns_2 ? 16 : 0) : 0);
      }
    }
  }
  // value <- v, asynchronously
  if (t5) {
    const fc::f16* const value_source_2 = v_at + (t4 * 48) * p.v_stride_2;
    const int value_rows_2 = 333 - (t4 * 48);
    const int value_columns_2 = 40 - (0);
    {
      const int row = thread / 4, column = thread % 4 * 8;
      const fc::f16* source = value_source_2 + row * static_cast<int>(p.v_stride_2) + column;
      const int rows_left = value_rows_2 - row;
      #pragma unroll
      for (int i = 0; i < 2; ++i) {
        fc::copy_async(shared + 38912 + 1 * 4608 + fc::panel_chunk_offset<48, 48>(row, column, 0) + i * 1536, source, i * 24 < rows_left ? (column < value_columns_2 ? 16 : 0) : 0);
        source += 24 * static_cast<int>(p.v_stride_2);
      }
    }
    {
      const int row = thread / 2, column = thread % 2 * 8;
      const fc::f16* source = value_source_2 + row * static_cast<int>(p.v_stride_2) + column + 32;
      const int rows_left = value_rows_2 - row;
      #pragma unroll
      for (int i = 0; i < 1; ++i) {
        fc::copy_async(shared + 38912 + 1 * 4608 + fc::panel_chunk_offset<48, 48>(row, column, 32), source, rows_left > 0 ? (column + 32 < value_columns_2 ? 16 : 0) : 0);
      }
    }
  }
  fc::commit_copies();
  fc::wait_copies<2>();
  fc::barrier();
  // query_kept: query in registers
  fc::u32 query_kept[2][5][4];
  #pragma unroll
  for (int i = 0; i < 2; ++i)
    #pragma unroll
    for (int k = 0; k < 5; ++k)
      fc::load_matrices(query_kept[i][k], fc::matrix_address<96, 80>(query, warp % 3 * 32 + lane % 16, lane / 16 * 8, i * 16, k * 16));

  float row_max[2][2];
  #pragma unroll
  for (int i = 0; i < 2; ++i)
    #pragma unroll
    for (int e = 0; e < 2; ++e)
      row_max[i][e] = fc::lowest();
  float row_sum[2][2] = {};
  float out[2][6][4] = {};
  int slot = 0;
  // cols tiles of 48
  for (int cols_tile = 0; cols_tile < cols_full_end; ++cols_tile) {
    fc::wait_copies<1>();
    const int next_tile = cols_tile + 2;
    const int freed_slot = (slot == 0) ? 2 : (slot - 1);
    const bool t6 = next_tile < cols_end;
    fc::barrier();
    // key <- k, asynchronously
    if (t6) {
      const fc::f16* const key_source_3 = k_at + (next_tile * 48) * p.k_stride_2;
      const int key_rows_3 = 333 - (next_tile * 48);
      const int key_columns_3 = 72 - (0);
      {
        const int row = thread / 8, column = thread % 8 * 8;
        const fc::f16* source = key_source_3 + row * static_cast<int>(p.k_stride_2) + column;
        const int rows_left = key_rows_3 - row;
        #pragma unroll
        for (int i = 0; i < 4; ++i) {
          fc::copy_async(shared + 15360 + freed_slot * 7680 + fc::panel_chunk_offset<48, 80>(row + i * 12, column, 0), source, i * 12 < rows_left ? (column < key_columns_3 ? 16 : 0) : 0);
          source += 12 * static_cast<int>(p.k_stride_2);
        }
      }
      {
        const int row = thread / 2, column = thread % 2 * 8;
        const fc::f16* source = key_source_3 + row * static_cast<int>(p.k_stride_2) + column + 64;
        const int rows_left = key_rows_3 - row;
        #pragma unroll
        for (int i = 0; i < 1; ++i) {
          fc::copy_async(shared + 15360 + freed_slot * 7680 + fc::panel_chunk_offset<48, 80>(row, column, 64), source, rows_left > 0 ? (column + 64 < key_columns_3 ? 16 : 0) : 0);
        }
      }
    }
    // value <- v, asynchronously
    if (t6) {
      const fc::f16* const value_source_3 = v_at + (next_tile * 48) * p.v_stride_2;
      const int value_rows_3 = 333 - (next_tile * 48);
      const int value_columns_3 = 40 - (0);
      {
        const int row = thread / 4, column = thread % 4 * 8;
        const fc::f16* source = value_source_3 + row * static_cast<int>(p.v_stride_2) + column;
        const int rows_left = value_rows_3 - row;
        #pragma unroll
        for (int i = 0; i < 2; ++i) {
          fc::copy_async(shared + 38912 + freed_slot * 4608 + fc::panel_chunk_offset<48, 48>(row, column, 0) + i * 1536, source, i * 24 < rows_left ? (column < value_columns_3 ? 16 : 0) : 0);
          source += 24 * static_cast<int>(p.v_stride_2);
        }
      }
      {
        const int row = thread / 2, column = thread % 2 * 8;
        const fc::f16* source = value_source_3 + row * static_cast<int>(p.v_stride_2) + column + 32;
        const int rows_left = value_rows_3 - row;
        #pragma unroll
        for (int i = 0; i < 1; ++i) {
          fc::copy_async(shared + 38912 + freed_slot * 4608 + fc::panel_chunk_offset<48, 48>(row, column, 32), source, rows_left > 0 ? (column + 32 < value_columns_3 ? 16 : 0) : 0);
        }
      }
    }
    fc::commit_copies();
    const fc::u32 key = shared + 15360 + slot * 7680;
    const fc::u32 value = shared + 38912 + slot * 4608;
    // scores = dot(query_kept, transpose(key))
    float scores[2][6][4] = {};
    #pragma unroll
    for (int k = 0; k < 5; ++k) {
      #pragma unroll
      for (int j = 0; j < 3; ++j) {
        fc::u32 b[4];
        fc::load_matrices(b, fc::matrix_address<48, 80>(key, lane % 8 + lane / 16 * 8, lane / 8 % 2 * 8, j * 16, k * 16));
        #pragma unroll
        for (int i = 0; i < 2; ++i) {
          fc::multiply<fc::f16>(scores[i][2 * j], query_kept[i][k], b[0], b[1]);
          fc::multiply<fc::f16>(scores[i][2 * j + 1], query_kept[i][k], b[2], b[3]);
        }
      }
    }
    // reduce_max = reduce_max(scores, cols)
    float t7[2][2];
    #pragma unroll
    for (int i = 0; i < 2; ++i)
      #pragma unroll
      for (int e = 0; e < 2; ++e)
        t7[i][e] = -fc::infinity();
    #pragma unroll
    for (int i = 0; i < 2; ++i)
      #pragma unroll
      for (int j = 0; j < 6; ++j)
        #pragma unroll
        for (int e = 0; e < 4; ++e)
          t7[i][(e / 2)] = fc::max(t7[i][(e / 2)], scores[i][j][e]);
    #pragma unroll
    for (int i = 0; i < 2; ++i) {
      #pragma unroll
      for (int e = 0; e < 2; ++e) {
        t7[i][e] = fc::max(t7[i][e], fc::shuffle_xor(t7[i][e], 1));
        t7[i][e] = fc::max(t7[i][e], fc::shuffle_xor(t7[i][e], 2));
      }
    }
    float new_max[2][2];
    // new_max = max(row_max, mul(t7, scale_log2))
    float decay[2][2];
    // decay = exp2(sub(row_max, new_max))
    float t8[2][2];
    // t8 = neg(new_max)
    #pragma unroll
    for (int i = 0; i < 2; ++i) {
      #pragma unroll
      for (int e = 0; e < 2; ++e) {
        const float t9 = t7[i][e] * scale_log2;
        new_max[i][e] = fc::max(row_max[i][e], t9);
        const float t10 = row_max[i][e] - new_max[i][e];
        decay[i][e] = fc::exp2(t10);
        t8[i][e] = -new_max[i][e];
      }
    }
    float probs[2][6][4];
    // probs = exp2(fma(scores, scale_log2, t8))
    #pragma unroll
    for (int i = 0; i < 2; ++i) {
      #pragma unroll
      for (int j = 0; j < 6; ++j) {
        #pragma unroll
        for (int e = 0; e < 4; ++e) {
          const float t11 = fc::fma(scores[i][j][e], scale_log2, t8[i][(e / 2)]);
          probs[i][j][e] = fc::exp2(t11);
        }
      }
    }
    // reduce_sum = reduce_sum(probs, cols), each lane its partial
    float t12[2][2] = {};
    #pragma unroll
    for (int i = 0; i < 2; ++i)
      #pragma unroll
      for (int j = 0; j < 6; ++j)
        #pragma unroll
        for (int e = 0; e < 4; ++e)
          t12[i][(e / 2)] = t12[i][(e / 2)] + probs[i][j][e];
    // row_sum = fma(row_sum, decay, t12)
    #pragma unroll
    for (int i = 0; i < 2; ++i)
      #pragma unroll
      for (int e = 0; e < 2; ++e)
        row_sum[i][e] = fc::fma(row_sum[i][e], decay[i][e], t12[i][e]);
    fc::u32 probs_operand[2][3][4];
    // probs_operand: probs as a left operand
    #pragma unroll
    for (int i = 0; i < 2; ++i)
      #pragma unroll
      for (int k = 0; k < 3; ++k)
        #pragma unroll
        for (int r = 0; r < 4; ++r)
          probs_operand[i][k][r] =
              fc::pack<fc::f16>(probs[i][2 * k + r / 2][r % 2 * 2], probs[i][2 * k + r / 2][r % 2 * 2 + 1]);
    // out = mul(out, decay)
    #pragma unroll
    for (int i = 0; i < 2; ++i)
      #pragma unroll
      for (int j = 0; j < 6; ++j)
        #pragma unroll
        for (int e = 0; e < 4; ++e)
          out[i][j][e] = out[i][j][e] * decay[i][(e / 2)];
    // product = out + dot(probs_operand, value)
    #pragma unroll
    for (int k = 0; k < 3; ++k) {
      #pragma unroll
      for (int j = 0; j < 3; ++j) {
        fc::u32 b[4];
        fc::load_matrices_transposed(b, fc::matrix_address<48, 48>(value, lane % 16, lane / 16 * 8, k * 16, j * 16));
        #pragma unroll
        for (int i = 0; i < 2; ++i) {
          fc::multiply<fc::f16>(out[i][2 * j], probs_operand[i][k], b[0], b[1]);
          fc::multiply<fc::f16>(out[i][2 * j + 1], probs_operand[i][k], b[2], b[3]);
        }
      }
    }
    const int next_slot = (slot == 2) ? 0 : (slot + 1);
    #pragma unroll
    for (int i = 0; i < 2; ++i)
      #pragma unroll
      for (int e = 0; e < 2; ++e)
        row_max[i][e] = new_max[i][e];
    slot = next_slot;
  }

  int slot_2 = slot;
  // cols tiles of 48
  for (int cols_tile_2 = cols_full_end; cols_tile_2 < cols_end; ++cols_tile_2) {
    const int cols_begin = cols_tile_2 * 48;
    fc::wait_copies<1>();
    const int next_tile_2 = cols_tile_2 + 2;
    const int freed_slot_2 = (slot_2 == 0) ? 2 : (slot_2 - 1);
    const bool t13 = next_tile_2 < cols_end;
    fc::barrier();
    // key <- k, asynchronously
    if (t13) {
      const fc::f16* const key_source_4 = k_at + (next_tile_2 * 48) * p.k_stride_2;
      const int key_rows_4 = 333 - (next_tile_2 * 48);
      const int key_columns_4 = 72 - (0);
      {
        const int row = thread / 8, column = thread % 8 * 8;
        const fc::f16* source = key_source_4 + row * static_cast<int>(p.k_stride_2) + column;
        const int rows_left = key_rows_4 - row;
        #pragma unroll
        for (int i = 0; i < 4; ++i) {
          fc::copy_async(shared + 15360 + freed_slot_2 * 7680 + fc::panel_chunk_offset<48, 80>(row + i * 12, column, 0), source, i * 12 < rows_left ? (column < key_columns_4 ? 16 : 0) : 0);
          source += 12 * static_cast<int>(p.k_stride_2);
        }
      }
      {
        const int row = thread / 2, column = thread % 2 * 8;
        const fc::f16* source = key_source_4 + row * static_cast<int>(p.k_stride_2) + column + 64;
        const int rows_left = key_rows_4 - row;
        #pragma unroll
        for (int i = 0; i < 1; ++i) {
          fc::copy_async(shared + 15360 + freed_slot_2 * 7680 + fc::panel_chunk_offset<48, 80>(row, column, 64), source, rows_left > 0 ? (column + 64 < key_columns_4 ? 16 : 0) : 0);
        }
      }
    }
    // value <- v, asynchronously
    if (t13) {
      const fc::f16* const value_source_4 = v_at + (next_tile_2 * 48) * p.v_stride_2;
      const int value_rows_4 = 333 - (next_tile_2 * 48);
      const int value_columns_4 = 40 - (0);
      {
        const int row = thread / 4, column = thread % 4 * 8;
        const fc::f16* source = value_source_4 + row * static_cast<int>(p.v_stride_2) + column;
        const int rows_left = value_rows_4 - row;
        #pragma unroll
        for (int i = 0; i < 2; ++i) {
          fc::copy_async(shared + 38912 + freed_slot_2 * 4608 + fc::panel_chunk_offset<48, 48>(row, column, 0) + i * 1536, source, i * 24 < rows_left ? (column < value_columns_4 ? 16 : 0) : 0);
          source += 24 * static_cast<int>(p.v_stride_2);
        }
      }
      {
        const int row = thread / 2, column = thread % 2 * 8;
        const fc::f16* source = value_source_4 + row * static_cast<int>(p.v_stride_2) + column + 32;
        const int rows_left = value_rows_4 - row;
        #pragma unroll
        for (int i = 0; i < 1; ++i) {
          fc::copy_async(shared + 38912 + freed_slot_2 * 4608 + fc::panel_chunk_offset<48, 48>(row, column, 32), source, rows_left > 0 ? (column + 32 < value_columns_4 ? 16 : 0) : 0);
        }
      }
    }
    fc::commit_copies();
    const fc::u32 key_2 = shared + 15360 + slot_2 * 7680;
    const fc::u32 value_2 = shared + 38912 + slot_2 * 4608;
    // scores = dot(query_kept, transpose(key_2))
    float scores_2[2][6][4] = {};
    #pragma unroll
    for (int k = 0; k < 5; ++k) {
      #pragma unroll
      for (int j = 0; j < 3; ++j) {
        fc::u32 b[4];
        fc::load_matrices(b, fc::matrix_address<48, 80>(key_2, lane % 8 + lane / 16 * 8, lane / 8 % 2 * 8, j * 16, k * 16));
        #pragma unroll
        for (int i = 0; i < 2; ++i) {
          fc::multiply<fc::f16>(scores_2[i][2 * j], query_kept[i][k], b[0], b[1]);
          fc::multiply<fc::f16>(scores_2[i][2 * j + 1], query_kept[i][k], b[2], b[3]);
        }
      }
    }
    // scores_2 = where(ge(sub(index(rows), thread_begin), thread_offset), scores_2, -inf)
    #pragma unroll
    for (int i = 0; i < 2; ++i) {
      #pragma unroll
      for (int j = 0; j < 6; ++j) {
        #pragma unroll
        for (int e = 0; e < 4; ++e) {
          const int t14 = (rows_begin + rows_lane + i * 16 + (e / 2) * 8) - (cols_begin + cols_lane);
          const bool t15 = t14 >= (j * 8 + (e % 2));
          scores_2[i][j][e] = t15 ? scores_2[i][j][e] : -fc::infinity();
        }
      }
    }
    // reduce_max = reduce_max(scores_2, cols)
    float t16[2][2];
    #pragma unroll
    for (int i = 0; i < 2; ++i)
      #pragma unroll
      for (int e = 0; e < 2; ++e)
        t16[i][e] = -fc::infinity();
    #pragma unroll
    for (int i = 0; i < 2; ++i)
      #pragma unroll
      for (int j = 0; j < 6; ++j)
        #pragma unroll
        for (int e = 0; e < 4; ++e)
          t16[i][(e / 2)] = fc::max(t16[i][(e / 2)], scores_2[i][j][e]);
    #pragma unroll
    for (int i = 0; i < 2; ++i) {
      #pragma unroll
      for (int e = 0; e < 2; ++e) {
        t16[i][e] = fc::max(t16[i][e], fc::shuffle_xor(t16[i][e], 1));
        t16[i][e] = fc::max(t16[i][e], fc::shuffle_xor(t16[i][e], 2));
      }
    }
    float new_max_2[2][2];
    // new_max_2 = max(row_max, mul(t16, scale_log2))
    float decay_2[2][2];
    // decay_2 = exp2(sub(row_max, new_max_2))
    float t17[2][2];
    // t17 = neg(new_max_2)
    #pragma unroll
    for (int i = 0; i < 2; ++i) {
      #pragma unroll
      for (int e = 0; e < 2; ++e) {
        const float t18 = t16[i][e] * scale_log2;
        new_max_2[i][e] = fc::max(row_max[i][e], t18);
        const float t19 = row_max[i][e] - new_max_2[i][e];
        decay_2[i][e] = fc::exp2(t19);
        t17[i][e] = -new_max_2[i][e];
      }
    }
    float probs_2[2][6][4];
    // probs_2 = exp2(fma(scores_2, scale_log2, t17))
    #pragma unroll
    for (int i = 0; i < 2; ++i) {
      #pragma unroll
      for (int j = 0; j < 6; ++j) {
        #pragma unroll
        for (int e = 0; e < 4; ++e) {
          const float t20 = fc::fma(scores_2[i][j][e], scale_log2, t17[i][(e / 2)]);
          probs_2[i][j][e] = fc::exp2(t20);
        }
      }
    }
    // reduce_sum = reduce_sum(probs_2, cols), each lane its partial
    float t21[2][2] = {};
    #pragma unroll
    for (int i = 0; i < 2; ++i)
      #pragma unroll
      for (int j = 0; j < 6; ++j)
        #pragma unroll
        for (int e = 0; e < 4; ++e)
          t21[i][(e / 2)] = t21[i][(e / 2)] + probs_2[i][j][e];
    // row_sum = fma(row_sum, decay_2, t21)
    #pragma unroll
    for (int i = 0; i < 2; ++i)
      #pragma unroll
      for (int e = 0; e < 2; ++e)
        row_sum[i][e] = fc::fma(row_sum[i][e], decay_2[i][e], t21[i][e]);
    fc::u32 probs_2_operand[2][3][4];
    // probs_2_operand: probs_2 as a left operand
    #pragma unroll
    for (int i = 0; i < 2; ++i)
      #pragma unroll
      for (int k = 0; k < 3; ++k)
        #pragma unroll
        for (int r = 0; r < 4; ++r)
          probs_2_operand[i][k][r] =
              fc::pack<fc::f16>(probs_2[i][2 * k + r / 2][r % 2 * 2], probs_2[i][2 * k + r / 2][r % 2 * 2 + 1]);
    // out = mul(out, decay_2)
    #pragma unroll
    for (int i = 0; i < 2; ++i)
      #pragma unroll
      for (int j = 0; j < 6; ++j)
        #pragma unroll
        for (int e = 0; e < 4; ++e)
          out[i][j][e] = out[i][j][e] * decay_2[i][(e / 2)];
    // product = out + dot(probs_2_operand, value_2)
    #pragma unroll
    for (int k = 0; k < 3; ++k) {
      #pragma unroll
      for (int j = 0; j < 3; ++j) {
        fc::u32 b[4];
        fc::load_matrices_transposed(b, fc::matrix_address<48, 48>(value_2, lane % 16, lane / 16 * 8, k * 16, j * 16));
        #pragma unroll
        for (int i = 0; i < 2; ++i) {
          fc::multiply<fc::f16>(out[i][2 * j], probs_2_operand[i][k], b[0], b[1]);
          fc::multiply<fc::f16>(out[i][2 * j + 1], probs_2_operand[i][k], b[2], b[3]);
        }
      }
    }
    const int next_slot_2 = (slot_2 == 2) ? 0 : (slot_2 + 1);
    #pragma unroll
    for (int i = 0; i < 2; ++i)
      #pragma unroll
      for (int e = 0; e < 2; ++e)
        row_max[i][e] = new_max_2[i][e];
    slot_2 = next_slot_2;
  }
  fc::wait_copies<0>();
  // row_sum: partials of the lanes, combined
  #pragma unroll
  for (int i = 0; i < 2; ++i) {
    #pragma unroll
    for (int e = 0; e < 2; ++e) {
      row_sum[i][e] = row_sum[i][e] + fc::shuffle_xor(row_sum[i][e], 1);
      row_sum[i][e] = row_sum[i][e] + fc::shuffle_xor(row_sum[i][e], 2);
    }
  }
  float inverse[2][2];
  // inverse = where(eq(row_sum, 0), 0, div(1, row_sum))
  #pragma unroll
  for (int i = 0; i < 2; ++i) {
    #pragma unroll
    for (int e = 0; e < 2; ++e) {
      const bool empty = row_sum[i][e] == 0.f;
      const float t22 = fc::divide(1.f, row_sum[i][e]);
      inverse[i][e] = empty ? 0.f : t22;
    }
  }
  float t23[2][6][4];
  // t23 = cast(mul(out, inverse))
  #pragma unroll
  for (int i = 0; i < 2; ++i) {
    #pragma unroll
    for (int j = 0; j < 6; ++j) {
      #pragma unroll
      for (int e = 0; e < 4; ++e) {
        const float t24 = out[i][j][e] * inverse[i][(e / 2)];
        t23[i][j][e] = t24;
      }
    }
  }
  fc::barrier();
  // t23 in shared memory
  const fc::u32 o_staged = shared;
  #pragma unroll
  for (int i = 0; i < 2; ++i)
    #pragma unroll
    for (int j = 0; j < 6; ++j)
      #pragma unroll
      for (int r = 0; r < 2; ++r)
        fc::store_shared(o_staged + fc::chunk_offset<96, 48>(rows_lane + i * 16 + r * 8, j * 8) + lane % 4 * 4,
                         fc::pack<fc::f16>(t23[i][j][2 * r], t23[i][j][2 * r + 1]));
  fc::barrier();
  fc::f16* const o_at = p.o + batch * p.o_stride_0 + head * p.o_stride_1;
  // store o
  fc::f16* const o_target = o_at + rows_begin * p.o_stride_2;
  {
    const int row = thread / 4, column = thread % 4 * 8;
    fc::f16* out_pointer = o_target + row * static_cast<int>(p.o_stride_2) + column;
    const int rows_left = 100 - rows_begin - row;
    #pragma unroll
    for (int i = 0; i < 4; ++i) {
      if (i * 24 < rows_left && 40 - 0 - (column) > 0) {
        fc::store_chunk(out_pointer, fc::load_shared_chunk(o_staged + fc::panel_chunk_offset<96, 48>(row, column, 0) + i * 1536));
      }
      out_pointer += 24 * static_cast<int>(p.o_stride_2);
    }
  }
  {
    const int row = thread / 2, column = thread % 2 * 8;
    fc::f16* out_pointer = o_target + row * static_cast<int>(p.o_stride_2) + column + 32;
    const int rows_left = 100 - rows_begin - row;
    #pragma unroll
    for (int i = 0; i < 2; ++i) {
      if (i * 48 < rows_left && 40 - 0 - (column + 32) > 0) {
        fc::store_chunk(out_pointer, fc::load_shared_chunk(o_staged + fc::panel_chunk_offset<96, 48>(row, column, 32) + i * 1536));
      }
      out_pointer += 48 * static_cast<int>(p.o_stride_2);
    }
  }
}
