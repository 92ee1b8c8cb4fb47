struct Parameters {
  const float* q;
  const float* k;
  const float* v;
  float* o;
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
  const int rows_begin = rows_tile * 128;
  const int head = fc::block_y();
  const int batch = fc::block_z();
  const int thread = fc::thread_index(), lane = thread % 32, warp = thread / 32;
  const fc::u32 shared = fc::shared_base();
  const int rows_lane = warp % 4 * 32 + lane / 4;
  const int dv_lane = lane % 4 * 2;
  const int cols_lane = lane % 4 * 2;
  const float* const q_at = p.q + batch * p.q_stride_0 + head * p.q_stride_1;
  // query <- q, asynchronously
  const float* const query_source = q_at + (rows_begin) * p.q_stride_2;
  const int query_rows = p.Sq - (rows_begin);
  {
    const int row = thread / 8, column = thread % 8 * 4;
    const float* source = query_source + row * static_cast<int>(p.q_stride_2) + column;
    const int rows_left = query_rows - row;
    #pragma unroll
    for (int i = 0; i < 8; ++i) {
      #pragma unroll
      for (int panel = 0; panel < 2; ++panel) {
        fc::copy_async(shared + fc::panel_chunk_offset<128, 128>(row, column * 2, panel * 32 * 2) + i * 2048, source + panel * 32, i * 16 < rows_left ? 16 : 0);
      }
      source += 16 * static_cast<int>(p.q_stride_2);
    }
  }
  const fc::u32 query = shared;
  const float scale_log2 = p.scale * 1.442695f;
  const int t0 = (fc::min((rows_begin + 128), p.Sq) - 1) - p.Sq;
  const int t1 = ((((rows_begin - p.Sq) + p.Sk) + -31) >> 5) + 1;
  const int t2 = fc::min((((t0 + p.Sk) >> 5) + 1), ((p.Sk + 31) / 32));
  const int cols_end = fc::max(0, t2);
  const int cols_full_end = fc::max(0, fc::min(t1, cols_end));
  const int t3 = cols_end - 1;
  const bool t4 = t3 >= 0;
  const float* const k_at = p.k + batch * p.k_stride_0 + head * p.k_stride_1;
  // key <- k, asynchronously
  if (t4) {
    const float* const key_source = k_at + (t3 * 32) * p.k_stride_2;
    const int key_rows = p.Sk - (t3 * 32);
    {
      const int row = thread / 8, column = thread % 8 * 4;
      const float* source = key_source + row * static_cast<int>(p.k_stride_2) + column;
      const int rows_left = key_rows - row;
      #pragma unroll
      for (int i = 0; i < 2; ++i) {
        #pragma unroll
        for (int panel = 0; panel < 2; ++panel) {
          fc::copy_async(shared + 32768 + 0 * 8192 + fc::panel_chunk_offset<32, 128>(row, column * 2, panel * 32 * 2) + i * 2048, source + panel * 32, i * 16 < rows_left ? 16 : 0);
        }
        source += 16 * static_cast<int>(p.k_stride_2);
      }
    }
  }
  const float* const v_at = p.v + batch * p.v_stride_0 + head * p.v_stride_1;
  // value <- v, asynchronously
  if (t4) {
    const float* const value_source = v_at + (t3 * 32) * p.v_stride_2;
    const int value_rows = p.Sk - (t3 * 32);
    {
      const int row = thread / 8, column = thread % 8 * 4;
      const float* source = value_source + row * static_cast<int>(p.v_stride_2) + column;
      const int rows_left = value_rows - row;
      #pragma unroll
      for (int i = 0; i < 2; ++i) {
        #pragma unroll
        for (int panel = 0; panel < 2; ++panel) {
          fc::copy_async(shared + 49152 + 0 * 8192 + fc::panel_chunk_offset<32, 128>(row, column * 2, panel * 32 * 2) + i * 2048, source + panel * 32, i * 16 < rows_left ? 16 : 0);
        }
        source += 16 * static_cast<int>(p.v_stride_2);
      }
    }
  }
  fc::commit_copies();

  float row_max[2][2];
  #pragma unroll
  for (int i = 0; i < 2; ++i)
    #pragma unroll
    for (int e = 0; e < 2; ++e)
      row_max[i][e] = fc::lowest();
  float row_sum[2][2] = {};
  float out[2][8][4] = {};
  int slot = 0;
  // cols tiles of 32
  for (int cols_tile = cols_end - 1; cols_tile >= 0; --cols_tile) {
    const int cols_begin = cols_tile * 32;
    fc::wait_copies<0>();
    const int next_tile = cols_tile - 1;
    const int freed_slot = 1 - slot;
    const bool t5 = next_tile >= 0;
    fc::barrier();
    // key <- k, asynchronously
    if (t5) {
      const float* const key_source_2 = k_at + (next_tile * 32) * p.k_stride_2;
      const int key_rows_2 = p.Sk - (next_tile * 32);
      {
        const int row = thread / 8, column = thread % 8 * 4;
        const float* source = key_source_2 + row * static_cast<int>(p.k_stride_2) + column;
        const int rows_left = key_rows_2 - row;
        #pragma unroll
        for (int i = 0; i < 2; ++i) {
          #pragma unroll
          for (int panel = 0; panel < 2; ++panel) {
            fc::copy_async(shared + 32768 + freed_slot * 8192 + fc::panel_chunk_offset<32, 128>(row, column * 2, panel * 32 * 2) + i * 2048, source + panel * 32, i * 16 < rows_left ? 16 : 0);
          }
          source += 16 * static_cast<int>(p.k_stride_2);
        }
      }
    }
    // value <- v, asynchronously
    if (t5) {
      const float* const value_source_2 = v_at + (next_tile * 32) * p.v_stride_2;
      const int value_rows_2 = p.Sk - (next_tile * 32);
      {
        const int row = thread / 8, column = thread % 8 * 4;
        const float* source = value_source_2 + row * static_cast<int>(p.v_stride_2) + column;
        const int rows_left = value_rows_2 - row;
        #pragma unroll
        for (int i = 0; i < 2; ++i) {
          #pragma unroll
          for (int panel = 0; panel < 2; ++panel) {
            fc::copy_async(shared + 49152 + freed_slot * 8192 + fc::panel_chunk_offset<32, 128>(row, column * 2, panel * 32 * 2) + i * 2048, source + panel * 32, i * 16 < rows_left ? 16 : 0);
          }
          source += 16 * static_cast<int>(p.v_stride_2);
        }
      }
    }
    fc::commit_copies();
    const fc::u32 key = shared + 32768 + slot * 8192;
    const fc::u32 value = shared + 49152 + slot * 8192;
    // scores = dot(query, transpose(key))
    float scores[2][4][4] = {};
    const fc::u32 query_2 = fc::in_place(query);
    #pragma unroll
    for (int k = 0; k < 8; ++k) {
      fc::u32 a[2][4];
      #pragma unroll
      for (int i = 0; i < 2; ++i) {
        fc::load_matrices(a[i], fc::matrix_address<128, 128>(query_2, warp % 4 * 32 + lane % 16, lane / 16 * 8, i * 16, k * 16));
        fc::round_tf32(a[i]);
      }
      #pragma unroll
      for (int j = 0; j < 2; ++j) {
        fc::u32 b[4];
        fc::load_matrices(b, fc::matrix_address<32, 128>(key, lane % 8 + lane / 16 * 8, lane / 8 % 2 * 8, j * 16, k * 16));
        fc::round_tf32(b);
        #pragma unroll
        for (int i = 0; i < 2; ++i) {
          fc::multiply_tf32(scores[i][2 * j], a[i], b[0], b[1]);
          fc::multiply_tf32(scores[i][2 * j + 1], a[i], b[2], b[3]);
        }
      }
    }
    const bool masked = cols_tile >= cols_full_end;
    if (masked) {
      int t6[2][2];
      // t6 = add(index(rows), (p.Sk - p.Sq))
      #pragma unroll
      for (int i = 0; i < 2; ++i)
        #pragma unroll
        for (int e = 0; e < 2; ++e)
          t6[i][e] = (rows_begin + rows_lane + i * 16 + e * 8) + (p.Sk - p.Sq);
      // scores = where(ge(sub(t6, thread_begin), thread_offset), scores, -inf)
      #pragma unroll
      for (int i = 0; i < 2; ++i) {
        #pragma unroll
        for (int j = 0; j < 4; ++j) {
          #pragma unroll
          for (int e = 0; e < 4; ++e) {
            const int t7 = t6[i][(e / 2)] - (cols_begin + cols_lane);
            const bool t8 = t7 >= (j * 8 + (e % 2));
            scores[i][j][e] = t8 ? scores[i][j][e] : -fc::infinity();
          }
        }
      }
    }
    // reduce_max = reduce_max(scores, cols)
    float t9[2][2];
    #pragma unroll
    for (int i = 0; i < 2; ++i)
      #pragma unroll
      for (int e = 0; e < 2; ++e)
        t9[i][e] = -fc::infinity();
    #pragma unroll
    for (int i = 0; i < 2; ++i)
      #pragma unroll
      for (int j = 0; j < 4; ++j)
        #pragma unroll
        for (int e = 0; e < 4; ++e)
          t9[i][(e / 2)] = fc::max(t9[i][(e / 2)], scores[i][j][e]);
    #pragma unroll
    for (int i = 0; i < 2; ++i) {
      #pragma unroll
      for (int e = 0; e < 2; ++e) {
        t9[i][e] = fc::max(t9[i][e], fc::shuffle_xor(t9[i][e], 1));
        t9[i][e] = fc::max(t9[i][e], fc::shuffle_xor(t9[i][e], 2));
      }
    }
    float new_max[2][2];
    // new_max = max(row_max, mul(t9, scale_log2))
    float decay[2][2];
    // decay = exp2(sub(row_max, new_max))
    float t10[2][2];
    // t10 = neg(new_max)
    #pragma unroll
    for (int i = 0; i < 2; ++i) {
      #pragma unroll
      for (int e = 0; e < 2; ++e) {
        const float t11 = t9[i][e] * scale_log2;
        new_max[i][e] = fc::max(row_max[i][e], t11);
        const float t12 = row_max[i][e] - new_max[i][e];
        decay[i][e] = fc::exp2(t12);
        t10[i][e] = -new_max[i][e];
      }
    }
    float probs[2][4][4];
    // probs = exp2(fma(scores, scale_log2, t10))
    #pragma unroll
    for (int i = 0; i < 2; ++i) {
      #pragma unroll
      for (int j = 0; j < 4; ++j) {
        #pragma unroll
        for (int e = 0; e < 4; ++e) {
          const float t13 = fc::fma(scores[i][j][e], scale_log2, t10[i][(e / 2)]);
          probs[i][j][e] = fc::exp2(t13);
        }
      }
    }
    // reduce_sum = reduce_sum(probs, cols), each lane its partial
    float t14[2][2] = {};
    #pragma unroll
    for (int i = 0; i < 2; ++i)
      #pragma unroll
      for (int j = 0; j < 4; ++j)
        #pragma unroll
        for (int e = 0; e < 4; ++e)
          t14[i][(e / 2)] = t14[i][(e / 2)] + probs[i][j][e];
    // row_sum = fma(row_sum, decay, t14)
    #pragma unroll
    for (int i = 0; i < 2; ++i)
      #pragma unroll
      for (int e = 0; e < 2; ++e)
        row_sum[i][e] = fc::fma(row_sum[i][e], decay[i][e], t14[i][e]);
    // out = mul(out, decay)
    #pragma unroll
    for (int i = 0; i < 2; ++i)
      #pragma unroll
      for (int j = 0; j < 8; ++j)
        #pragma unroll
        for (int e = 0; e < 4; ++e)
          out[i][j][e] = out[i][j][e] * decay[i][(e / 2)];
    // product = out + dot(probs, value)
    #pragma unroll
    for (int k = 0; k < 4; ++k) {
      fc::u32 a[2][4];
      #pragma unroll
      for (int i = 0; i < 2; ++i) {
        fc::round_sums_tf32(a[i], probs[i][k]);
      }
      #pragma unroll
      for (int j = 0; j < 4; ++j) {
        fc::u32 b[4];
        b[0] = fc::load_shared_word(fc::matrix_address<32, 128>(value, lane % 4 * 2, (lane / 4) * 2, k * 8, (j * 16) * 2) + (lane / 4) % 4 * 4);
        b[1] = fc::load_shared_word(fc::matrix_address<32, 128>(value, lane % 4 * 2 + 1, (lane / 4) * 2, k * 8, (j * 16) * 2) + (lane / 4) % 4 * 4);
        b[2] = fc::load_shared_word(fc::matrix_address<32, 128>(value, lane % 4 * 2, (lane / 4) * 2, k * 8, (j * 16 + 8) * 2) + (lane / 4) % 4 * 4);
        b[3] = fc::load_shared_word(fc::matrix_address<32, 128>(value, lane % 4 * 2 + 1, (lane / 4) * 2, k * 8, (j * 16 + 8) * 2) + (lane / 4) % 4 * 4);
        fc::round_tf32(b);
        #pragma unroll
        for (int i = 0; i < 2; ++i) {
          fc::multiply_tf32(out[i][2 * j], a[i], b[0], b[1]);
          fc::multiply_tf32(out[i][2 * j + 1], a[i], b[2], b[3]);
        }
      }
    }
    const int next_slot = 1 - slot;
    #pragma unroll
    for (int i = 0; i < 2; ++i)
      #pragma unroll
      for (int e = 0; e < 2; ++e)
        row_max[i][e] = new_max[i][e];
    slot = next_slot;
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
      const float t15 = fc::divide(1.f, row_sum[i][e]);
      inverse[i][e] = empty ? 0.f : t15;
    }
  }
  // out = mul(out, inverse)
  #pragma unroll
  for (int i = 0; i < 2; ++i)
    #pragma unroll
    for (int j = 0; j < 8; ++j)
      #pragma unroll
      for (int e = 0; e < 4; ++e)
        out[i][j][e] = out[i][j][e] * inverse[i][(e / 2)];
  float* const o_at = p.o + batch * p.o_stride_0 + head * p.o_stride_1;
  // store o = out
  #pragma unroll
  for (int i = 0; i < 2; ++i)
    #pragma unroll
    for (int j = 0; j < 8; ++j)
      #pragma unroll
      for (int e = 0; e < 2; ++e)
        if (rows_begin + rows_lane + i * 16 + e * 8 < p.Sq) {
          fc::store_global<2>(o_at + (rows_begin + rows_lane + i * 16 + e * 8) * p.o_stride_2 + (dv_lane + j * 8), &out[i][j][e * 2]);
        }
}
