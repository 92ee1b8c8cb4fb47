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
  const int rows_begin = rows_tile * 128;
  const int head = fc::block_y();
  const int batch = fc::block_z();
  const int thread = fc::thread_index(), lane = thread % 32, warp = thread / 32;
  const fc::u32 shared = fc::shared_base();
  const int rows_lane = warp % 4 * 32 + lane / 4;
  const int dv_lane = lane % 4 * 2;
  const int cols_lane = lane % 4 * 2;
  fc::wait_for_kernels();
  fc::launch_dependents();
  const fc::bf16* const q_at = p.q + batch * p.q_stride_0 + head * p.q_stride_1;
  // query <- q, asynchronously
  const fc::bf16* const query_source = q_at + (rows_begin) * p.q_stride_2;
  const int query_rows = p.Sq - (rows_begin);
  {
    const int row = thread / 8, column = thread % 8 * 8;
    const fc::bf16* source = query_source + row * static_cast<int>(p.q_stride_2) + column;
    const int rows_left = query_rows - row;
    #pragma unroll
    for (int i = 0; i < 8; ++i) {
      #pragma unroll
      for (int panel = 0; panel < 2; ++panel) {
        fc::copy_async(shared + fc::panel_chunk_offset<128, 128>(row, column, panel * 64) + i * 2048, source + panel * 64, i * 16 < rows_left ? 16 : 0);
      }
      source += 16 * static_cast<int>(p.q_stride_2);
    }
  }
  const fc::u32 query = shared;
  const float scale_log2 = p.scale * 1.442695f;
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
        #pragma unroll
        for (int panel = 0; panel < 2; ++panel) {
          fc::copy_async(shared + 32768 + 0 * 16384 + fc::panel_chunk_offset<64, 128>(row, column, panel * 64) + i * 2048, source + panel * 64, i * 16 < rows_left ? 16 : 0);
        }
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
        #pragma unroll
        for (int panel = 0; panel < 2; ++panel) {
          fc::copy_async(shared + 65536 + 0 * 16384 + fc::panel_chunk_offset<64, 128>(row, column, panel * 64) + i * 2048, source + panel * 64, i * 16 < rows_left ? 16 : 0);
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
  float out[2][16][4] = {};
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
          #pragma unroll
          for (int panel = 0; panel < 2; ++panel) {
            fc::copy_async(shared + 32768 + freed_slot * 16384 + fc::panel_chunk_offset<64, 128>(row, column, panel * 64) + i * 2048, source + panel * 64, i * 16 < rows_left ? 16 : 0);
          }
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
          #pragma unroll
          for (int panel = 0; panel < 2; ++panel) {
            fc::copy_async(shared + 65536 + freed_slot * 16384 + fc::panel_chunk_offset<64, 128>(row, column, panel * 64) + i * 2048, source + panel * 64, i * 16 < rows_left ? 16 : 0);
          }
          source += 16 * static_cast<int>(p.v_stride_2);
        }
      }
    }
    fc::commit_copies();
    const fc::u32 key = shared + 32768 + slot * 16384;
    const fc::u32 value = shared + 65536 + slot * 16384;
    // scores = dot(query, transpose(key))
    float scores[2][8][4] = {};
    const fc::u32 query_2 = fc::in_place(query);
    #pragma unroll
    for (int k = 0; k < 8; ++k) {
      fc::u32 a[2][4];
      #pragma unroll
      for (int i = 0; i < 2; ++i)
        fc::load_matrices(a[i], fc::matrix_address<128, 128>(query_2, warp % 4 * 32 + lane % 16, lane / 16 * 8, i * 16, k * 16));
      #pragma unroll
      for (int j = 0; j < 4; ++j) {
        fc::u32 b[4];
        fc::load_matrices(b, fc::matrix_address<64, 128>(key, lane % 8 + lane / 16 * 8, lane / 8 % 2 * 8, j * 16, k * 16));
        #pragma unroll
        for (int i = 0; i < 2; ++i) {
          fc::multiply<fc::bf16>(scores[i][2 * j], a[i], b[0], b[1]);
          fc::multiply<fc::bf16>(scores[i][2 * j + 1], a[i], b[2], b[3]);
        }
      }
    }
    const bool masked = cols_tile >= cols_full_end;
    if (masked) {
      bool t5[8][2];
      // t5 = lt(thread_offset, sub(extent(cols), thread_begin))
      #pragma unroll
      for (int i = 0; i < 8; ++i) {
        #pragma unroll
        for (int e = 0; e < 2; ++e) {
          const int t6 = p.Sk - (cols_begin + cols_lane);
          t5[i][e] = (i * 8 + e) < t6;
        }
      }
      // scores = where(t5, scores, -inf)
      #pragma unroll
      for (int i = 0; i < 2; ++i)
        #pragma unroll
        for (int j = 0; j < 8; ++j)
          #pragma unroll
          for (int e = 0; e < 4; ++e)
            scores[i][j][e] = t5[j][(e % 2)] ? scores[i][j][e] : -fc::infinity();
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
      for (int j = 0; j < 8; ++j)
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
    float probs[2][8][4];
    // probs = exp2(fma(scores, scale_log2, t8))
    #pragma unroll
    for (int i = 0; i < 2; ++i) {
      #pragma unroll
      for (int j = 0; j < 8; ++j) {
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
      for (int j = 0; j < 8; ++j)
        #pragma unroll
        for (int e = 0; e < 4; ++e)
          t12[i][(e / 2)] = t12[i][(e / 2)] + probs[i][j][e];
    // row_sum = fma(row_sum, decay, t12)
    #pragma unroll
    for (int i = 0; i < 2; ++i)
      #pragma unroll
      for (int e = 0; e < 2; ++e)
        row_sum[i][e] = fc::fma(row_sum[i][e], decay[i][e], t12[i][e]);
    fc::u32 probs_operand[2][4][4];
    // probs_operand: probs as a left operand
    #pragma unroll
    for (int i = 0; i < 2; ++i)
      #pragma unroll
      for (int k = 0; k < 4; ++k)
        #pragma unroll
        for (int r = 0; r < 4; ++r)
          probs_operand[i][k][r] =
              fc::pack<fc::bf16>(probs[i][2 * k + r / 2][r % 2 * 2], probs[i][2 * k + r / 2][r % 2 * 2 + 1]);
    // out = mul(out, decay)
    #pragma unroll
    for (int i = 0; i < 2; ++i)
      #pragma unroll
      for (int j = 0; j < 16; ++j)
        #pragma unroll
        for (int e = 0; e < 4; ++e)
          out[i][j][e] = out[i][j][e] * decay[i][(e / 2)];
    // product = out + dot(probs_operand, value)
    #pragma unroll
    for (int k = 0; k < 4; ++k) {
      #pragma unroll
      for (int j = 0; j < 8; ++j) {
        fc::u32 b[4];
        fc::load_matrices_transposed(b, fc::matrix_address<64, 128>(value, lane % 16, lane / 16 * 8, k * 16, j * 16));
        #pragma unroll
        for (int i = 0; i < 2; ++i) {
          fc::multiply<fc::bf16>(out[i][2 * j], probs_operand[i][k], b[0], b[1]);
          fc::multiply<fc::bf16>(out[i][2 * j + 1], probs_operand[i][k], b[2], b[3]);
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
      const float t13 = fc::divide(1.f, row_sum[i][e]);
      inverse[i][e] = empty ? 0.f : t13;
    }
  }
  float t14[2][16][4];
  // t14 = cast(mul(out, inverse))
  #pragma unroll
  for (int i = 0; i < 2; ++i) {
    #pragma unroll
    for (int j = 0; j < 16; ++j) {
      #pragma unroll
      for (int e = 0; e < 4; ++e) {
        const float t15 = out[i][j][e] * inverse[i][(e / 2)];
        t14[i][j][e] = t15;
      }
    }
  }
  fc::barrier();
  // t14 in shared memory
  const fc::u32 o_staged = shared;
  #pragma unroll
  for (int i = 0; i < 2; ++i)
    #pragma unroll
    for (int j = 0; j < 16; ++j)
      #pragma unroll
      for (int r = 0; r < 2; ++r)
        fc::store_shared(o_staged + fc::chunk_offset<128, 128>(rows_lane + i * 16 + r * 8, j * 8) + lane % 4 * 4,
                         fc::pack<fc::bf16>(t14[i][j][2 * r], t14[i][j][2 * r + 1]));
  fc::barrier();
  fc::bf16* const o_at = p.o + batch * p.o_stride_0 + head * p.o_stride_1;
  // store o
  fc::bf16* const o_target = o_at + rows_begin * p.o_stride_2;
  {
    const int row = thread / 8, column = thread % 8 * 8;
    fc::bf16* out_pointer = o_target + row * static_cast<int>(p.o_stride_2) + column;
    const int rows_left = p.Sq - rows_begin - row;
    #pragma unroll
    for (int i = 0; i < 8; ++i) {
      #pragma unroll
      for (int panel = 0; panel < 2; ++panel) {
        if (i * 16 < rows_left) {
          fc::store_chunk(out_pointer + panel * 64, fc::load_shared_chunk(o_staged + fc::panel_chunk_offset<128, 128>(row, column, panel * 64) + i * 2048));
        }
      }
      out_pointer += 16 * static_cast<int>(p.o_stride_2);
    }
  }
}
