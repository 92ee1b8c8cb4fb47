struct Parameters {
  fc::tensor_map q_tiles;  // of 64 x 64
  fc::tensor_map k_tiles;  // of 64 x 64
  fc::tensor_map v_tiles;  // of 64 x 64
  fc::tensor_map o_tiles;  // of 64 x 64
  const int* doc;
  fc::i64 doc_stride_0, doc_stride_1;  // elements
  int Sq;
  int Sk;
  int doc_n0;
  int doc_n1;
  float scale;
};

extern "C" __global__ void __launch_bounds__(128, 4)
attention_forward(const __grid_constant__ Parameters p) {
  const int rows_tile = fc::block_x();
  const int rows_begin = rows_tile * 64;
  const int head = fc::block_y();
  const int batch = fc::block_z();
  const int thread = fc::thread_index(), lane = thread % 32, warp = fc::uniform(thread / 32);
  const fc::u32 shared = fc::shared_base();
  const int rows_lane = lane;
  const int cols_lane = lane;
  const int rows_lane_2 = warp % 4 * 16 + lane / 4;
  const int dv_lane = lane % 4 * 2;
  const int cols_lane_2 = lane % 4 * 2;
  const int t0 = fc::min((rows_begin + 64), p.Sq) - 1;
  const int t1 = fc::min(((((t0 - p.Sq) + p.Sk) >> 6) + 1), ((p.Sk + 63) / 64));
  const int cols_end = fc::max(0, t1);
  fc::wait_for_kernels();
  fc::launch_dependents();
  int t2[2][1];
  // t2 = gather(index(batch), min(index(rows), t0))
  #pragma unroll
  for (int i = 0; i < 2; ++i) {
    const int t3 = fc::min((rows_begin + rows_lane + i * 32), t0);
    t2[i][0] = fc::gather(p.doc, batch * p.doc_stride_0 + t3 * p.doc_stride_1, fc::within(batch, p.doc_n0) && fc::within(t3, p.doc_n1));
  }
  // reduce_min = reduce_min(t2, rows)
  int t4 = 2147483647;
  #pragma unroll
  for (int i = 0; i < 2; ++i)
    t4 = fc::min(t4, t2[i][0]);
  t4 = fc::min(t4, fc::shuffle_xor(t4, 1));
  t4 = fc::min(t4, fc::shuffle_xor(t4, 2));
  t4 = fc::min(t4, fc::shuffle_xor(t4, 4));
  t4 = fc::min(t4, fc::shuffle_xor(t4, 8));
  t4 = fc::min(t4, fc::shuffle_xor(t4, 16));
  // reduce_max = reduce_max(t2, rows)
  int t5 = -2147483647 - 1;
  #pragma unroll
  for (int i = 0; i < 2; ++i)
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
    fc::note_tiles(shared + cols_group * 4, found, lane);
  }
  // where a ring's slots say that they are full
  const fc::u32 query_full = shared + 43008;
  const fc::u32 key_full = shared + 43016;
  const fc::u32 value_full = shared + 43032;
  if (thread == 0) {
    fc::prefetch_map(p.q_tiles);
    fc::prefetch_map(p.k_tiles);
    fc::prefetch_map(p.v_tiles);
    fc::prefetch_map(p.o_tiles);
    fc::init_mbarrier(query_full, 1);
    for (int slot = 0; slot < 2; ++slot) {
      fc::init_mbarrier(key_full + slot * 8, 1);
    }
    for (int slot = 0; slot < 2; ++slot) {
      fc::init_mbarrier(value_full + slot * 8, 1);
    }
    fc::publish_mbarriers();
  }
  fc::barrier();

  int query_phase = 0;
  int key_slot = 0, key_phase = 0;
  int value_slot = 0, value_phase = 0;
  if (thread == 0) {
    // query <- q
    fc::arrive_expect_tx(query_full, 8192);
    fc::load_box(shared + 2048, p.q_tiles, query_full, 0, rows_begin, head, batch);
  }
  int next_key;
  int next_value;
  if (thread == 0) {
    int next_key_2 = cols_end;
    int next_value_2 = cols_end;
    for (int slot = 0; slot < 2; ++slot) {
      const int next_key_3 = fc::tile_before<512>(shared, next_key_2, 0);
      if (next_key_3 >= 0) {
        const int cols_begin_2 = next_key_3 * 64;
        // key <- k
        fc::arrive_expect_tx(key_full + slot * 8, 8192);
        fc::load_box(shared + 10240 + slot * 8192, p.k_tiles, key_full + slot * 8, 0, cols_begin_2, head, batch);
      }
      const int next_value_3 = fc::tile_before<512>(shared, next_value_2, 0);
      if (next_value_3 >= 0) {
        const int cols_begin_3 = next_value_3 * 64;
        // value <- v
        fc::arrive_expect_tx(value_full + slot * 8, 8192);
        fc::load_box(shared + 26624 + slot * 8192, p.v_tiles, value_full + slot * 8, 0, cols_begin_3, head, batch);
      }
      next_key_2 = next_key_3;
      next_value_2 = next_value_3;
    }
    next_key = next_key_2;
    next_value = next_value_2;
  }
  else {
    next_key = cols_end;
    next_value = cols_end;
  }
  const float scale_log2 = p.scale * 1.442695f;
  const int t24 = p.Sk - p.Sq;
  fc::wait_phase(query_full, query_phase);
  const fc::u32 query = shared + 2048;
  const int t25 = fc::tile_before<512>(shared, cols_end, 0);
  float row_sum[1][2];
  float out[1][8][4];
  if (t25 >= 0) {
    const int cols_begin_4 = t25 * 64;
    fc::wait_phase(key_full + key_slot * 8, key_phase);
    const fc::u32 key = shared + 10240 + key_slot * 8192;
    // scores = dot(query, transpose(key)), issued
    float scores[1][8][4];
    fc::pin(scores);
    fc::fence_products();
    {
      const fc::u64 a = fc::matrix(query + warp / 4 * 8192, 64, 0);
      const fc::u64 b = fc::matrix(key, 64, 0);
      fc::multiply_warpgroup<64, fc::bf16, 4, fc::along<64, 8192>, fc::along<64, 8192>>(scores[0], a, b, false);
    }
    fc::commit_products();
    int next_key_4;
    if (thread == 0) {
      const int next_tile = fc::tile_before<512>(shared, next_key, 0);
      next_key_4 = next_tile;
    }
    else {
      next_key_4 = next_key;
    }
    const bool full = !fc::tile_is_masked<512>(shared, t25);
    const bool masked = !full;
    int t26[1][2];
    int t27[8][2];
    if (masked) {
      // t26 = gather(index(batch), add(thread_begin, thread_offset))
      #pragma unroll
      for (int e = 0; e < 2; ++e) {
        const int t28 = (rows_begin + rows_lane_2) + (e * 8);
        t26[0][e] = fc::gather(p.doc, batch * p.doc_stride_0 + (rows_begin + rows_lane_2) * p.doc_stride_1 + (e * 8) * p.doc_stride_1, fc::within(batch, p.doc_n0) && (e * 8) < p.doc_n1 - (rows_begin + rows_lane_2));
      }
      // t27 = gather(index(batch), add(thread_begin, thread_offset))
      #pragma unroll
      for (int i = 0; i < 8; ++i) {
        #pragma unroll
        for (int e = 0; e < 2; ++e) {
          const int t29 = (cols_begin_4 + cols_lane_2) + (i * 8 + e);
          t27[i][e] = fc::gather(p.doc, batch * p.doc_stride_0 + (cols_begin_4 + cols_lane_2) * p.doc_stride_1 + (i * 8 + e) * p.doc_stride_1, fc::within(batch, p.doc_n0) && (i * 8 + e) < p.doc_n1 - (cols_begin_4 + cols_lane_2));
        }
      }
    }
    fc::wait_products<0>();
    fc::pin(scores);
    if ((thread == 0) && (next_key_4 >= 0)) {
      const int cols_begin_5 = next_key_4 * 64;
      // key <- k
      fc::arrive_expect_tx(key_full + key_slot * 8, 8192);
      fc::load_box(shared + 10240 + key_slot * 8192, p.k_tiles, key_full + key_slot * 8, 0, cols_begin_5, head, batch);
    }
    if (++key_slot == 2) {
      key_slot = 0;
      key_phase ^= 1;
    }
    if (masked) {
      int t30[1][2];
      // t30 = add(index(rows), t24)
      #pragma unroll
      for (int e = 0; e < 2; ++e)
        t30[0][e] = (rows_begin + rows_lane_2 + e * 8) + t24;
      // scores = where(logical_and(eq(t26, t27), ge(sub(t30, thread_begin), thread_offset)), scores, -inf)
      #pragma unroll
      for (int j = 0; j < 8; ++j) {
        #pragma unroll
        for (int e = 0; e < 4; ++e) {
          const bool t31 = t26[0][(e / 2)] == t27[j][(e % 2)];
          const int t32 = t30[0][(e / 2)] - (cols_begin_4 + cols_lane_2);
          const bool t33 = t32 >= (j * 8 + (e % 2));
          const bool t34 = t31 && t33;
          scores[0][j][e] = t34 ? scores[0][j][e] : -fc::infinity();
        }
      }
    }
    // reduce_max = reduce_max(scores, cols)
    float t35[1][2];
    #pragma unroll
    for (int e = 0; e < 2; ++e)
      t35[0][e] = -fc::infinity();
    #pragma unroll
    for (int j = 0; j < 8; ++j)
      #pragma unroll
      for (int e = 0; e < 4; ++e)
        t35[0][(e / 2)] = fc::max(t35[0][(e / 2)], scores[0][j][e]);
    #pragma unroll
    for (int e = 0; e < 2; ++e) {
      t35[0][e] = fc::max(t35[0][e], fc::shuffle_xor(t35[0][e], 1));
      t35[0][e] = fc::max(t35[0][e], fc::shuffle_xor(t35[0][e], 2));
    }
    float new_max[1][2];
    // new_max = max(row_max, mul(t35, scale_log2))
    float decay[1][2];
    // decay = exp2(sub(row_max, new_max))
    float t36[1][2];
    // t36 = neg(new_max)
    #pragma unroll
    for (int e = 0; e < 2; ++e) {
      const float t37 = t35[0][e] * scale_log2;
      new_max[0][e] = fc::max(fc::lowest(), t37);
      const float t38 = fc::lowest() - new_max[0][e];
      decay[0][e] = fc::exp2(t38);
      t36[0][e] = -new_max[0][e];
    }
    float probs[1][8][4];
    // probs = exp2(fma(scores, scale_log2, t36))
    #pragma unroll
    for (int j = 0; j < 8; ++j) {
      #pragma unroll
      for (int e = 0; e < 4; ++e) {
        const float t39 = fc::fma(scores[0][j][e], scale_log2, t36[0][(e / 2)]);
        probs[0][j][e] = fc::exp2(t39);
      }
    }
    // reduce_sum = reduce_sum(probs, cols), each lane its partial
    #pragma unroll
    for (int e = 0; e < 2; ++e)
      row_sum[0][e] = 0.f;
    #pragma unroll
    for (int j = 0; j < 8; ++j)
      #pragma unroll
      for (int e = 0; e < 4; ++e)
        row_sum[0][(e / 2)] = row_sum[0][(e / 2)] + probs[0][j][e];
    // row_sum = fma(row_sum, decay, row_sum)
    #pragma unroll
    for (int e = 0; e < 2; ++e)
      row_sum[0][e] = fc::fma(0.f, decay[0][e], row_sum[0][e]);
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
        out[0][j][e] = 0.f * decay[0][(e / 2)];

    int next_key_5 = next_key_4;
    int next_value_4 = next_value;
    // cols tiles of 64
    for (int cols_tile_2 = fc::tile_before<512>(shared, t25, 0), next_tile_2; cols_tile_2 >= 0; cols_tile_2 = next_tile_2) {
      next_tile_2 = fc::tile_before<512>(shared, cols_tile_2, 0);
      const int cols_begin_6 = cols_tile_2 * 64;
      fc::wait_phase(key_full + key_slot * 8, key_phase);
      const fc::u32 key_2 = shared + 10240 + key_slot * 8192;
      // scores = dot(query, transpose(key_2)), issued
      float scores_2[1][8][4];
      fc::pin(scores_2);
      fc::fence_products();
      {
        const fc::u64 a = fc::matrix(query + warp / 4 * 8192, 64, 0);
        const fc::u64 b = fc::matrix(key_2, 64, 0);
        fc::multiply_warpgroup<64, fc::bf16, 4, fc::along<64, 8192>, fc::along<64, 8192>>(scores_2[0], a, b, false);
      }
      fc::commit_products();
      fc::wait_phase(value_full + value_slot * 8, value_phase);
      const fc::u32 value = shared + 26624 + value_slot * 8192;
      // out = out + dot(probs_operand, value), issued
      fc::pin(out);
      fc::fence_products();
      {
        const fc::u64 b = fc::matrix(value, 64, 0);
        fc::multiply_warpgroup<64, fc::bf16, 4, fc::across<64>>(out[0], probs_operand[0], b, true);
      }
      fc::commit_products();
      int next_key_6;
      if (thread == 0) {
        const int next_tile_3 = fc::tile_before<512>(shared, next_key_5, 0);
        next_key_6 = next_tile_3;
      }
      else {
        next_key_6 = next_key_5;
      }
      int next_value_5;
      if (thread == 0) {
        const int next_tile_4 = fc::tile_before<512>(shared, next_value_4, 0);
        next_value_5 = next_tile_4;
      }
      else {
        next_value_5 = next_value_4;
      }
      const bool full_2 = !fc::tile_is_masked<512>(shared, cols_tile_2);
      const bool masked_2 = !full_2;
      int t40[1][2];
      int t41[8][2];
      if (masked_2) {
        // t40 = gather(index(batch), add(thread_begin, thread_offset))
        #pragma unroll
        for (int e = 0; e < 2; ++e) {
          const int t42 = (rows_begin + rows_lane_2) + (e * 8);
          t40[0][e] = fc::gather(p.doc, batch * p.doc_stride_0 + (rows_begin + rows_lane_2) * p.doc_stride_1 + (e * 8) * p.doc_stride_1, fc::within(batch, p.doc_n0) && (e * 8) < p.doc_n1 - (rows_begin + rows_lane_2));
        }
        // t41 = gather(index(batch), add(thread_begin, thread_offset))
        #pragma unroll
        for (int i = 0; i < 8; ++i) {
          #pragma unroll
          for (int e = 0; e < 2; ++e) {
            const int t43 = (cols_begin_6 + cols_lane_2) + (i * 8 + e);
            t41[i][e] = fc::gather(p.doc, batch * p.doc_stride_0 + (cols_begin_6 + cols_lane_2) * p.doc_stride_1 + (i * 8 + e) * p.doc_stride_1, fc::within(batch, p.doc_n0) && (i * 8 + e) < p.doc_n1 - (cols_begin_6 + cols_lane_2));
          }
        }
      }
      fc::wait_products<1>();
      fc::pin(scores_2);
      if ((thread == 0) && (next_key_6 >= 0)) {
        const int cols_begin_7 = next_key_6 * 64;
        // key <- k
        fc::arrive_expect_tx(key_full + key_slot * 8, 8192);
        fc::load_box(shared + 10240 + key_slot * 8192, p.k_tiles, key_full + key_slot * 8, 0, cols_begin_7, head, batch);
      }
      if (++key_slot == 2) {
        key_slot = 0;
        key_phase ^= 1;
      }
      if (masked_2) {
        int t44[1][2];
        // t44 = add(index(rows), t24)
        #pragma unroll
        for (int e = 0; e < 2; ++e)
          t44[0][e] = (rows_begin + rows_lane_2 + e * 8) + t24;
        // scores_2 = where(logical_and(eq(t40, t41), ge(sub(t44, thread_begin), thread_offset)), scores_2, -inf)
        #pragma unroll
        for (int j = 0; j < 8; ++j) {
          #pragma unroll
          for (int e = 0; e < 4; ++e) {
            const bool t45 = t40[0][(e / 2)] == t41[j][(e % 2)];
            const int t46 = t44[0][(e / 2)] - (cols_begin_6 + cols_lane_2);
            const bool t47 = t46 >= (j * 8 + (e % 2));
            const bool t48 = t45 && t47;
            scores_2[0][j][e] = t48 ? scores_2[0][j][e] : -fc::infinity();
          }
        }
      }
      // reduce_max = reduce_max(scores_2, cols)
      float t49[1][2];
      #pragma unroll
      for (int e = 0; e < 2; ++e)
        t49[0][e] = -fc::infinity();
      #pragma unroll
      for (int j = 0; j < 8; ++j)
        #pragma unroll
        for (int e = 0; e < 4; ++e)
          t49[0][(e / 2)] = fc::max(t49[0][(e / 2)], scores_2[0][j][e]);
      #pragma unroll
      for (int e = 0; e < 2; ++e) {
        t49[0][e] = fc::max(t49[0][e], fc::shuffle_xor(t49[0][e], 1));
        t49[0][e] = fc::max(t49[0][e], fc::shuffle_xor(t49[0][e], 2));
      }
      float new_max_2[1][2];
      // new_max_2 = max(row_max, mul(t49, scale_log2))
      float decay_2[1][2];
      // decay_2 = exp2(sub(row_max, new_max_2))
      float t50[1][2];
      // t50 = neg(new_max_2)
      #pragma unroll
      for (int e = 0; e < 2; ++e) {
        const float t51 = t49[0][e] * scale_log2;
        new_max_2[0][e] = fc::max(new_max[0][e], t51);
        const float t52 = new_max[0][e] - new_max_2[0][e];
        decay_2[0][e] = fc::exp2(t52);
        t50[0][e] = -new_max_2[0][e];
      }
      float probs_2[1][8][4];
      // probs_2 = exp2(fma(scores_2, scale_log2, t50))
      #pragma unroll
      for (int j = 0; j < 8; ++j) {
        #pragma unroll
        for (int e = 0; e < 4; ++e) {
          const float t53 = fc::fma(scores_2[0][j][e], scale_log2, t50[0][(e / 2)]);
          probs_2[0][j][e] = fc::exp2(t53);
        }
      }
      // reduce_sum = reduce_sum(probs_2, cols), each lane its partial
      float t54[1][2] = {};
      #pragma unroll
      for (int j = 0; j < 8; ++j)
        #pragma unroll
        for (int e = 0; e < 4; ++e)
          t54[0][(e / 2)] = t54[0][(e / 2)] + probs_2[0][j][e];
      // row_sum = fma(row_sum, decay_2, t54)
      #pragma unroll
      for (int e = 0; e < 2; ++e)
        row_sum[0][e] = fc::fma(row_sum[0][e], decay_2[0][e], t54[0][e]);
      fc::wait_products<0>();
      fc::pin(out);
      if ((thread == 0) && (next_value_5 >= 0)) {
        const int cols_begin_8 = next_value_5 * 64;
        // value <- v
        fc::arrive_expect_tx(value_full + value_slot * 8, 8192);
        fc::load_box(shared + 26624 + value_slot * 8192, p.v_tiles, value_full + value_slot * 8, 0, cols_begin_8, head, batch);
      }
      if (++value_slot == 2) {
        value_slot = 0;
        value_phase ^= 1;
      }
      // probs_operand: probs_2 as a left operand
      #pragma unroll
      for (int i = 0; i < 1; ++i)
        #pragma unroll
        for (int k = 0; k < 4; ++k)
          #pragma unroll
          for (int r = 0; r < 4; ++r)
            probs_operand[i][k][r] =
                fc::pack<fc::bf16>(probs_2[i][2 * k + r / 2][r % 2 * 2], probs_2[i][2 * k + r / 2][r % 2 * 2 + 1]);
      // out = mul(out, decay_2)
      #pragma unroll
      for (int j = 0; j < 8; ++j)
        #pragma unroll
        for (int e = 0; e < 4; ++e)
          out[0][j][e] = out[0][j][e] * decay_2[0][(e / 2)];
      #pragma unroll
      for (int e = 0; e < 2; ++e)
        new_max[0][e] = new_max_2[0][e];
      next_key_5 = next_key_6;
      next_value_4 = next_value_5;
    }
    fc::wait_phase(value_full + value_slot * 8, value_phase);
    const fc::u32 value_2 = shared + 26624 + value_slot * 8192;
    // out = out + dot(probs_operand, value_2), issued
    fc::pin(out);
    fc::fence_products();
    {
      const fc::u64 b = fc::matrix(value_2, 64, 0);
      fc::multiply_warpgroup<64, fc::bf16, 4, fc::across<64>>(out[0], probs_operand[0], b, true);
    }
    fc::commit_products();
    int next_value_6;
    if (thread == 0) {
      const int next_tile_5 = fc::tile_before<512>(shared, next_value_4, 0);
      next_value_6 = next_tile_5;
    }
    else {
      next_value_6 = next_value_4;
    }
    fc::wait_products<0>();
    fc::pin(out);
    if ((thread == 0) && (next_value_6 >= 0)) {
      const int cols_begin_9 = next_value_6 * 64;
      // value <- v
      fc::arrive_expect_tx(value_full + value_slot * 8, 8192);
      fc::load_box(shared + 26624 + value_slot * 8192, p.v_tiles, value_full + value_slot * 8, 0, cols_begin_9, head, batch);
    }
    if (++value_slot == 2) {
      value_slot = 0;
      value_phase ^= 1;
    }
  }
  else {
    fc::meet(1 + warp / 4, 128);
    #pragma unroll
    for (int e = 0; e < 2; ++e)
      row_sum[0][e] = 0.f;
    #pragma unroll
    for (int j = 0; j < 8; ++j)
      #pragma unroll
      for (int e = 0; e < 4; ++e)
        out[0][j][e] = 0.f;
  }
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
    const float t55 = fc::divide(1.f, row_sum[0][e]);
    inverse[0][e] = empty ? 0.f : t55;
  }
  float t56[1][8][4];
  // t56 = cast(mul(out, inverse))
  #pragma unroll
  for (int j = 0; j < 8; ++j) {
    #pragma unroll
    for (int e = 0; e < 4; ++e) {
      const float t57 = out[0][j][e] * inverse[0][(e / 2)];
      t56[0][j][e] = t57;
    }
  }
  if (thread % 128 == 0) fc::wait_stores_read<0>();
  fc::meet(1 + warp / 4, 128);
  // t56 in shared memory
  const fc::u32 o_staged = shared + 2048;
  #pragma unroll
  for (int i = 0; i < 1; ++i)
    #pragma unroll
    for (int j = 0; j < 8; ++j)
      #pragma unroll
      for (int r = 0; r < 2; ++r)
        fc::store_shared(o_staged + fc::chunk_offset<64, 64>(rows_lane_2 + i * 16 + r * 8, j * 8) + lane % 4 * 4,
                         fc::pack<fc::bf16>(t56[i][j][2 * r], t56[i][j][2 * r + 1]));
  fc::fence_async();
  fc::meet(1 + warp / 4, 128);
  // store o
  if (thread % 128 == 0) {
    fc::store_box(p.o_tiles, o_staged + warp / 4 * 8192, 0, rows_begin + warp / 4 * 64, head, batch);
    fc::commit_stores();
  }
  if (thread % 128 == 0) fc::wait_stores_read<0>();
  fc::meet(1 + warp / 4, 128);
  query_phase ^= 1;
  if (thread % 128 == 0) fc::wait_stores_read<0>();
}
