struct Parameters {
  const fc::bf16* q;
  const fc::bf16* k;
  const fc::bf16* v;
  fc::bf16* o;
  const int* doc;
  fc::i64 q_stride_0, q_stride_1, q_stride_2;  // elements
  fc::i64 k_stride_0, k_stride_1, k_stride_2;  // elements
  fc::i64 v_stride_0, v_stride_1, v_stride_2;  // elements
  fc::i64 o_stride_0, o_stride_1, o_stride_2;  // elements
  fc::i64 doc_stride_0, doc_stride_1;  // elements
  int Sq;
  int Sk;
  int doc_n0;
  int doc_n1;
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
  const int rows_lane = lane;
  const int cols_lane = lane;
  const int rows_lane_2 = warp % 4 * 32 + lane / 4;
  const int dv_lane = lane % 4 * 2;
  const int cols_lane_2 = lane % 4 * 2;
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
  const int t0 = fc::min((rows_begin + 128), p.Sq) - 1;
  const int t1 = fc::min(((((t0 - p.Sq) + p.Sk) >> 6) + 1), ((p.Sk + 63) / 64));
  const int cols_end = fc::max(0, t1);
  int t2[4][1];
  // t2 = gather(index(batch), min(index(rows), t0))
  #pragma unroll
  for (int i = 0; i < 4; ++i) {
    const int t3 = fc::min((rows_begin + rows_lane + i * 32), t0);
    t2[i][0] = fc::gather(p.doc, batch * p.doc_stride_0 + t3 * p.doc_stride_1, fc::within(batch, p.doc_n0) && fc::within(t3, p.doc_n1));
  }
  // reduce_min = reduce_min(t2, rows)
  int t4 = 2147483647;
  #pragma unroll
  for (int i = 0; i < 4; ++i)
    t4 = fc::min(t4, t2[i][0]);
  t4 = fc::min(t4, fc::shuffle_xor(t4, 1));
  t4 = fc::min(t4, fc::shuffle_xor(t4, 2));
  t4 = fc::min(t4, fc::shuffle_xor(t4, 4));
  t4 = fc::min(t4, fc::shuffle_xor(t4, 8));
  t4 = fc::min(t4, fc::shuffle_xor(t4, 16));
  // reduce_max = reduce_max(t2, rows)
  int t5 = -2147483647 - 1;
  #pragma unroll
  for (int i = 0; i < 4; ++i)
    t5 = fc::max(t5, t2[i][0]);
  t5 = fc::max(t5, fc::shuffle_xor(t5, 1));
  t5 = fc::max(t5, fc::shuffle_xor(t5, 2));
  t5 = fc::max(t5, fc::shuffle_xor(t5, 4));
  t5 = fc::max(t5, fc::shuffle_xor(t5, 8));
  t5 = fc::max(t5, fc::shuffle_xor(t5, 16));
  const int t6 = p.Sq - p.Sk;

  // which tiles of cols hold something visible, and something hidden
  for (int cols_group = 0 / 8 + warp; cols_group < 512 && cols_group * 8 < cols_end; cols_group += 4) {
    fc::u32 found = 0;
    #pragma unroll
    for (int n = 0; n < 8; ++n) {
      const int cols_begin = (cols_group * 8 + n) * 64;
      bool t7[2][1];
      // t7 = logical_and(logical_and(ge(t4, gather(index(batch), add(thread_begin, thread_offset))), ge(gather(index(batch), add(thread_begin, thread_offset)), t5)), le(add((t6 - rows_begin), index(cols)), 0))
      bool t8[2][1];
      // t8 = logical_and(logical_and(logical_and(le(t4, gather(index(batch), add(thread_begin, thread_offset))), le(gather(index(batch), add(thread_begin, thread_offset)), t5)), le(add((t6 - t0), index(cols)), 0)), lt(thread_offset, sub(extent(cols), thread_begin)))
      #pragma unroll
      for (int i = 0; i < 2; ++i) {
        const int t9 = (cols_begin + cols_lane) + (i * 32);
        const int t10 = fc::gather(p.doc, batch * p.doc_stride_0 + (cols_begin + cols_lane) * p.doc_stride_1 + (i * 32) * p.doc_stride_1, fc::within(batch, p.doc_n0) && (i * 32) < p.doc_n1 - (cols_begin + cols_lane));
        const bool t11 = t10 <= t5;
        const bool t12 = t4 <= t10;
        const bool t13 = t12 && t11;
        const bool t14 = t10 >= t5;
        const bool t15 = t4 >= t10;
        const bool t16 = t15 && t14;
        const int t17 = (t6 - t0) + (cols_begin + cols_lane + i * 32);
        const int t18 = (t6 - rows_begin) + (cols_begin + cols_lane + i * 32);
        const bool t19 = t17 <= 0;
        const bool t20 = t18 <= 0;
        const bool t21 = t13 && t19;
        t7[i][0] = t16 && t20;
        const int t22 = p.Sk - (cols_begin + cols_lane);
        const bool t23 = (i * 32) < t22;
        t8[i][0] = t21 && t23;
      }
      #pragma unroll
      for (int i = 0; i < 2; ++i)
        found |= (t8[i][0] ? 1u : 0u) << n | (t7[i][0] ? 0u : 256u) << n;
    }
    fc::note_tiles(shared + 32768 + cols_group * 4, found, lane);
  }
  fc::barrier();
  const int next_tile = fc::tile_before<512>(shared + 32768, cols_end, 0);
  const fc::bf16* const k_at = p.k + batch * p.k_stride_0 + head * p.k_stride_1;
  // key <- k, asynchronously
  if ((next_tile >= 0)) {
    const fc::bf16* const key_source = k_at + (next_tile * 64) * p.k_stride_2;
    const int key_rows = p.Sk - (next_tile * 64);
    {
      const int row = thread / 8, column = thread % 8 * 8;
      const fc::bf16* source = key_source + row * static_cast<int>(p.k_stride_2) + column;
      const int rows_left = key_rows - row;
      #pragma unroll
      for (int i = 0; i < 4; ++i) {
        #pragma unroll
        for (int panel = 0; panel < 2; ++panel) {
          fc::copy_async(shared + 34816 + fc::panel_chunk_offset<64, 128>(row, column, panel * 64) + i * 2048, source + panel * 64, i * 16 < rows_left ? 16 : 0);
        }
        source += 16 * static_cast<int>(p.k_stride_2);
      }
    }
  }
  fc::commit_copies();
  const fc::bf16* const v_at = p.v + batch * p.v_stride_0 + head * p.v_stride_1;

  float row_max[2][2];
  #pragma unroll
  for (int i = 0; i < 2; ++i)
    #pragma unroll
    for (int e = 0; e < 2; ++e)
      row_max[i][e] = fc::lowest();
  float row_sum[2][2] = {};
  float out[2][16][4] = {};
  // cols tiles of 64
  for (int cols_tile_2 = fc::tile_before<512>(shared + 32768, cols_end, 0), next_tile_2; cols_tile_2 >= 0; cols_tile_2 = next_tile_2) {
    next_tile_2 = fc::tile_before<512>(shared + 32768, cols_tile_2, 0);
    const int cols_begin_2 = cols_tile_2 * 64;
    const fc::u32 key = shared + 34816;
    const fc::u32 value = shared + 51200;
    fc::wait_copies<0>();
    fc::barrier();
    // value <- v, asynchronously
    const fc::bf16* const value_source = v_at + (cols_tile_2 * 64) * p.v_stride_2;
    const int value_rows = p.Sk - (cols_tile_2 * 64);
    {
      const int row = thread / 8, column = thread % 8 * 8;
      const fc::bf16* source = value_source + row * static_cast<int>(p.v_stride_2) + column;
      const int rows_left = value_rows - row;
      #pragma unroll
      for (int i = 0; i < 4; ++i) {
        #pragma unroll
        for (int panel = 0; panel < 2; ++panel) {
          fc::copy_async(shared + 51200 + fc::panel_chunk_offset<64, 128>(row, column, panel * 64) + i * 2048, source + panel * 64, i * 16 < rows_left ? 16 : 0);
        }
        source += 16 * static_cast<int>(p.v_stride_2);
      }
    }
    fc::commit_copies();
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
    const bool full = !fc::tile_is_masked<512>(shared + 32768, cols_tile_2);
    const bool masked = !full;
    if (masked) {
      int t24[2][2];
      // t24 = gather(index(batch), add(thread_begin, thread_offset))
      #pragma unroll
      for (int i = 0; i < 2; ++i) {
        #pragma unroll
        for (int e = 0; e < 2; ++e) {
          const int t25 = (rows_begin + rows_lane_2) + (i * 16 + e * 8);
          t24[i][e] = fc::gather(p.doc, batch * p.doc_stride_0 + (rows_begin + rows_lane_2) * p.doc_stride_1 + (i * 16 + e * 8) * p.doc_stride_1, fc::within(batch, p.doc_n0) && (i * 16 + e * 8) < p.doc_n1 - (rows_begin + rows_lane_2));
        }
      }
      int t26[8][2];
      // t26 = gather(index(batch), add(thread_begin, thread_offset))
      #pragma unroll
      for (int i = 0; i < 8; ++i) {
        #pragma unroll
        for (int e = 0; e < 2; ++e) {
          const int t27 = (cols_begin_2 + cols_lane_2) + (i * 8 + e);
          t26[i][e] = fc::gather(p.doc, batch * p.doc_stride_0 + (cols_begin_2 + cols_lane_2) * p.doc_stride_1 + (i * 8 + e) * p.doc_stride_1, fc::within(batch, p.doc_n0) && (i * 8 + e) < p.doc_n1 - (cols_begin_2 + cols_lane_2));
        }
      }
      int t28[2][2];
      // t28 = add(index(rows), (p.Sk - p.Sq))
      #pragma unroll
      for (int i = 0; i < 2; ++i)
        #pragma unroll
        for (int e = 0; e < 2; ++e)
          t28[i][e] = (rows_begin + rows_lane_2 + i * 16 + e * 8) + (p.Sk - p.Sq);
      // scores = where(logical_and(eq(t24, t26), ge(sub(t28, thread_begin), thread_offset)), scores, -inf)
      #pragma unroll
      for (int i = 0; i < 2; ++i) {
        #pragma unroll
        for (int j = 0; j < 8; ++j) {
          #pragma unroll
          for (int e = 0; e < 4; ++e) {
            const bool t29 = t24[i][(e / 2)] == t26[j][(e % 2)];
            const int t30 = t28[i][(e / 2)] - (cols_begin_2 + cols_lane_2);
            const bool t31 = t30 >= (j * 8 + (e % 2));
            const bool t32 = t29 && t31;
            scores[i][j][e] = t32 ? scores[i][j][e] : -fc::infinity();
          }
        }
      }
    }
    // reduce_max = reduce_max(scores, cols)
    float t33[2][2];
    #pragma unroll
    for (int i = 0; i < 2; ++i)
      #pragma unroll
      for (int e = 0; e < 2; ++e)
        t33[i][e] = -fc::infinity();
    #pragma unroll
    for (int i = 0; i < 2; ++i)
      #pragma unroll
      for (int j = 0; j < 8; ++j)
        #pragma unroll
        for (int e = 0; e < 4; ++e)
          t33[i][(e / 2)] = fc::max(t33[i][(e / 2)], scores[i][j][e]);
    #pragma unroll
    for (int i = 0; i < 2; ++i) {
      #pragma unroll
      for (int e = 0; e < 2; ++e) {
        t33[i][e] = fc::max(t33[i][e], fc::shuffle_xor(t33[i][e], 1));
        t33[i][e] = fc::max(t33[i][e], fc::shuffle_xor(t33[i][e], 2));
      }
    }
    float new_max[2][2];
    // new_max = max(row_max, mul(t33, scale_log2))
    float decay[2][2];
    // decay = exp2(sub(row_max, new_max))
    float t34[2][2];
    // t34 = neg(new_max)
    #pragma unroll
    for (int i = 0; i < 2; ++i) {
      #pragma unroll
      for (int e = 0; e < 2; ++e) {
        const float t35 = t33[i][e] * scale_log2;
        new_max[i][e] = fc::max(row_max[i][e], t35);
        const float t36 = row_max[i][e] - new_max[i][e];
        decay[i][e] = fc::exp2(t36);
        t34[i][e] = -new_max[i][e];
      }
    }
    float probs[2][8][4];
    // probs = exp2(fma(scores, scale_log2, t34))
    #pragma unroll
    for (int i = 0; i < 2; ++i) {
      #pragma unroll
      for (int j = 0; j < 8; ++j) {
        #pragma unroll
        for (int e = 0; e < 4; ++e) {
          const float t37 = fc::fma(scores[i][j][e], scale_log2, t34[i][(e / 2)]);
          probs[i][j][e] = fc::exp2(t37);
        }
      }
    }
    // reduce_sum = reduce_sum(probs, cols), each lane its partial
    float t38[2][2] = {};
    #pragma unroll
    for (int i = 0; i < 2; ++i)
      #pragma unroll
      for (int j = 0; j < 8; ++j)
        #pragma unroll
        for (int e = 0; e < 4; ++e)
          t38[i][(e / 2)] = t38[i][(e / 2)] + probs[i][j][e];
    // row_sum = fma(row_sum, decay, t38)
    #pragma unroll
    for (int i = 0; i < 2; ++i)
      #pragma unroll
      for (int e = 0; e < 2; ++e)
        row_sum[i][e] = fc::fma(row_sum[i][e], decay[i][e], t38[i][e]);
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
    fc::wait_copies<0>();
    fc::barrier();
    // key <- k, asynchronously
    if ((next_tile_2 >= 0)) {
      const fc::bf16* const key_source_2 = k_at + (next_tile_2 * 64) * p.k_stride_2;
      const int key_rows_2 = p.Sk - (next_tile_2 * 64);
      {
        const int row = thread / 8, column = thread % 8 * 8;
        const fc::bf16* source = key_source_2 + row * static_cast<int>(p.k_stride_2) + column;
        const int rows_left = key_rows_2 - row;
        #pragma unroll
        for (int i = 0; i < 4; ++i) {
          #pragma unroll
          for (int panel = 0; panel < 2; ++panel) {
            fc::copy_async(shared + 34816 + fc::panel_chunk_offset<64, 128>(row, column, panel * 64) + i * 2048, source + panel * 64, i * 16 < rows_left ? 16 : 0);
          }
          source += 16 * static_cast<int>(p.k_stride_2);
        }
      }
    }
    fc::commit_copies();
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
    #pragma unroll
    for (int i = 0; i < 2; ++i)
      #pragma unroll
      for (int e = 0; e < 2; ++e)
        row_max[i][e] = new_max[i][e];
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
      const float t39 = fc::divide(1.f, row_sum[i][e]);
      inverse[i][e] = empty ? 0.f : t39;
    }
  }
  float t40[2][16][4];
  // t40 = cast(mul(out, inverse))
  #pragma unroll
  for (int i = 0; i < 2; ++i) {
    #pragma unroll
    for (int j = 0; j < 16; ++j) {
      #pragma unroll
      for (int e = 0; e < 4; ++e) {
        const float t41 = out[i][j][e] * inverse[i][(e / 2)];
        t40[i][j][e] = t41;
      }
    }
  }
  fc::barrier();
  // t40 in shared memory
  const fc::u32 o_staged = shared;
  #pragma unroll
  for (int i = 0; i < 2; ++i)
    #pragma unroll
    for (int j = 0; j < 16; ++j)
      #pragma unroll
      for (int r = 0; r < 2; ++r)
        fc::store_shared(o_staged + fc::chunk_offset<128, 128>(rows_lane_2 + i * 16 + r * 8, j * 8) + lane % 4 * 4,
                         fc::pack<fc::bf16>(t40[i][j][2 * r], t40[i][j][2 * r + 1]));
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
