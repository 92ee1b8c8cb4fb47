struct Parameters {
  fc::tensor_map q_tiles;  // of 192 x 64
  fc::tensor_map k_tiles;  // of 128 x 64
  fc::tensor_map v_tiles;  // of 128 x 64
  fc::tensor_map o_tiles;  // of 64 x 64
  float* lse;
  fc::i64 lse_stride_0, lse_stride_1;  // elements
  int Sq;
  int Sk;
  float scale;
};

extern "C" __global__ void __launch_bounds__(512, 1)
attention_forward(const __grid_constant__ Parameters p) {
  const int rows_tile = fc::block_x();
  const int rows_begin = rows_tile * 192;
  const int head = fc::block_y();
  const int batch = fc::block_z();
  const int thread = fc::thread_index(), lane = thread % 32, warp = fc::uniform(thread / 32);
  const fc::u32 shared = fc::shared_base();
  const int rows_lane = warp % 12 * 16 + lane / 4;
  const int dv_lane = lane % 4 * 2;
  const int cols_lane = lane % 4 * 2;
  // where a ring's slots say that they are full, and that they are empty
  const fc::u32 query_full = shared + 90112, query_empty = shared + 90120;
  const fc::u32 key_full = shared + 90128, key_empty = shared + 90144;
  const fc::u32 value_full = shared + 90160, value_empty = shared + 90176;
  if (thread == 0) {
    fc::prefetch_map(p.q_tiles);
    fc::prefetch_map(p.k_tiles);
    fc::prefetch_map(p.v_tiles);
    fc::prefetch_map(p.o_tiles);
    fc::init_mbarrier(query_full, 1);
    fc::init_mbarrier(query_empty, 3);
    for (int slot = 0; slot < 2; ++slot) {
      fc::init_mbarrier(key_full + slot * 8, 1);
      fc::init_mbarrier(key_empty + slot * 8, 3);
    }
    for (int slot = 0; slot < 2; ++slot) {
      fc::init_mbarrier(value_full + slot * 8, 1);
      fc::init_mbarrier(value_empty + slot * 8, 3);
    }
    fc::publish_mbarriers();
  }
  fc::barrier();
  fc::wait_for_kernels();
  fc::launch_dependents();

  if (warp >= 12) {
    fc::shrink_registers<32>();
    if (thread == 384) {
      int query_phase = 0;
      int key_slot = 0, key_phase = 0;
      int value_slot = 0, value_phase = 0;
      fc::wait_phase(query_empty, query_phase ^ 1);
      // query <- q
      fc::arrive_expect_tx(query_full, 24576);
      fc::load_box(shared, p.q_tiles, query_full, 0, rows_begin, head, batch);
      query_phase ^= 1;
      const int t0 = fc::min((((p.Sk + -1) >> 7) + 1), ((p.Sk + 127) / 128));
      const int cols_end = fc::max(0, t0);

      // cols tiles of 128
      #pragma unroll 1
      for (int cols_tile = cols_end - 1; cols_tile >= 0; --cols_tile) {
        const int cols_begin = cols_tile * 128;
        fc::wait_phase(key_empty + key_slot * 8, key_phase ^ 1);
        // key <- k
        fc::arrive_expect_tx(key_full + key_slot * 8, 16384);
        fc::load_box(shared + 24576 + key_slot * 16384, p.k_tiles, key_full + key_slot * 8, 0, cols_begin, head, batch);
        if (++key_slot == 2) {
          key_slot = 0;
          key_phase ^= 1;
        }
        fc::wait_phase(value_empty + value_slot * 8, value_phase ^ 1);
        // value <- v
        fc::arrive_expect_tx(value_full + value_slot * 8, 16384);
        fc::load_box(shared + 57344 + value_slot * 16384, p.v_tiles, value_full + value_slot * 8, 0, cols_begin, head, batch);
        if (++value_slot == 2) {
          value_slot = 0;
          value_phase ^= 1;
        }
      }
    }
  }
  else {
    fc::grow_registers<160>();
    int query_phase_2 = 0;
    int key_slot_2 = 0, key_phase_2 = 0;
    int value_slot_2 = 0, value_phase_2 = 0;
    if (warp / 4 == 2) fc::signal(5, 256);
    const float scale_log2 = p.scale * 1.442695f;
    const int t1 = p.Sk + -1;
    const int cols_end_2 = fc::max(0, fc::min(((t1 >> 7) + 1), ((p.Sk + 127) / 128)));
    const int t2 = fc::max((((t1 + -127) >> 7) + 1), (cols_end_2 - 1));
    const int cols_full_end = fc::max(0, fc::min(t2, cols_end_2));
    fc::wait_phase(query_full, query_phase_2);
    const fc::u32 query = shared;
    const int t3 = cols_end_2 - 1;
    float row_max[1][2];
    float row_sum[1][2];
    float out[1][8][4];
    if (t3 >= 0) {
      const int cols_begin_2 = t3 * 128;
      fc::wait_phase(key_full + key_slot_2 * 8, key_phase_2);
      const fc::u32 key = shared + 24576 + key_slot_2 * 16384;
      // scores = dot(query, transpose(key)), issued
      float scores[1][16][4];
      fc::pin(scores);
      fc::fence_products();
      {
        const fc::u64 a = fc::matrix(query + warp / 4 * 8192, 64, 0);
        const fc::u64 b = fc::matrix(key, 64, 0);
        fc::multiply_warpgroup<128, fc::bf16, 4, fc::along<64, 24576>, fc::along<64, 16384>>(scores[0], a, b, false);
      }
      fc::commit_products();
      fc::wait_products<0>();
      fc::pin(scores);
      fc::arrive_if(thread % 128 == 0, key_empty + key_slot_2 * 8);
      if (++key_slot_2 == 2) {
        key_slot_2 = 0;
        key_phase_2 ^= 1;
      }
      const bool masked = t3 >= cols_full_end;
      if (masked) {
        bool t4[16][2];
        // t4 = lt(thread_offset, sub(extent(cols), thread_begin))
        #pragma unroll
        for (int i = 0; i < 16; ++i) {
          #pragma unroll
          for (int e = 0; e < 2; ++e) {
            const int t5 = p.Sk - (cols_begin_2 + cols_lane);
            t4[i][e] = (i * 8 + e) < t5;
          }
        }
        // scores = where(t4, scores, -inf)
        #pragma unroll
        for (int j = 0; j < 16; ++j)
          #pragma unroll
          for (int e = 0; e < 4; ++e)
            scores[0][j][e] = t4[j][(e % 2)] ? scores[0][j][e] : -fc::infinity();
      }
      // reduce_max = reduce_max(scores, cols)
      float t6[1][2];
      float t6_partials[1][2][2];
      #pragma unroll
      for (int e = 0; e < 2; ++e)
        #pragma unroll
        for (int c = 0; c < 2; ++c)
          t6_partials[0][e][c] = -fc::infinity();
      #pragma unroll
      for (int j = 0; j < 16; ++j)
        #pragma unroll
        for (int e = 0; e < 4; ++e)
          t6_partials[0][(e / 2)][j % 2] = fc::max(t6_partials[0][(e / 2)][j % 2], scores[0][j][e]);
      #pragma unroll
      for (int e = 0; e < 2; ++e) {
        t6[0][e] = fc::max(t6_partials[0][e][0], t6_partials[0][e][1]);
        t6[0][e] = fc::max(t6[0][e], fc::shuffle_xor(t6[0][e], 1));
        t6[0][e] = fc::max(t6[0][e], fc::shuffle_xor(t6[0][e], 2));
      }
      // new_max = max(row_max, mul(t6, scale_log2))
      float decay[1][2];
      // decay = exp2(sub(row_max, new_max))
      float t7[1][2];
      // t7 = neg(new_max)
      #pragma unroll
      for (int e = 0; e < 2; ++e) {
        const float t8 = t6[0][e] * scale_log2;
        row_max[0][e] = fc::max(fc::lowest(), t8);
        const float t9 = fc::lowest() - row_max[0][e];
        decay[0][e] = fc::exp2(t9);
        t7[0][e] = -row_max[0][e];
      }
      float probs[1][16][4];
      // probs = exp2(fma(scores, scale_log2, t7))
      #pragma unroll
      for (int j = 0; j < 16; ++j) {
        #pragma unroll
        for (int e = 0; e < 4; ++e) {
          const float t10 = fc::fma(scores[0][j][e], scale_log2, t7[0][(e / 2)]);
          probs[0][j][e] = fc::exp2(t10);
        }
      }
      // reduce_sum = reduce_sum(probs, cols), each lane its partial
      #pragma unroll
      for (int e = 0; e < 2; ++e)
        row_sum[0][e] = 0.f;
      #pragma unroll
      for (int j = 0; j < 16; ++j)
        #pragma unroll
        for (int e = 0; e < 4; ++e)
          row_sum[0][(e / 2)] = row_sum[0][(e / 2)] + probs[0][j][e];
      // row_sum = fma(row_sum, decay, row_sum)
      #pragma unroll
      for (int e = 0; e < 2; ++e)
        row_sum[0][e] = fc::fma(0.f, decay[0][e], row_sum[0][e]);
      fc::u32 probs_operand[1][8][4];
      // probs_operand: probs as a left operand
      #pragma unroll
      for (int i = 0; i < 1; ++i)
        #pragma unroll
        for (int k = 0; k < 8; ++k)
          #pragma unroll
          for (int r = 0; r < 4; ++r)
            probs_operand[i][k][r] =
                fc::pack<fc::bf16>(probs[i][2 * k + r / 2][r % 2 * 2], probs[i][2 * k + r / 2][r % 2 * 2 + 1]);

      #pragma unroll
      for (int j = 0; j < 8; ++j)
        #pragma unroll
        for (int e = 0; e < 4; ++e)
          out[0][j][e] = 0.f;
      // cols tiles of 128
      for (int cols_tile_2 = t3 - 1; cols_tile_2 >= 0; --cols_tile_2) {
        fc::wait_phase(key_full + key_slot_2 * 8, key_phase_2);
        const fc::u32 key_2 = shared + 24576 + key_slot_2 * 16384;
        fc::meet(5 + warp / 4, 256);
        // scores = dot(query, transpose(key_2)), issued
        float scores_2[1][16][4];
        fc::pin(scores_2);
        fc::fence_products();
        {
          const fc::u64 a = fc::matrix(query + warp / 4 * 8192, 64, 0);
          const fc::u64 b = fc::matrix(key_2, 64, 0);
          fc::multiply_warpgroup<128, fc::bf16, 4, fc::along<64, 24576>, fc::along<64, 16384>>(scores_2[0], a, b, false);
        }
        fc::commit_products();
        bool t11[1][2];
        // t11 = eq(decay, 1)
        #pragma unroll
        for (int e = 0; e < 2; ++e)
          t11[0][e] = decay[0][e] == 1.f;
        if (!(fc::all_lanes(t11[0][0] && t11[0][1]))) {
          // out = mul(out, decay)
          #pragma unroll
          for (int j = 0; j < 8; ++j)
            #pragma unroll
            for (int e = 0; e < 4; ++e)
              out[0][j][e] = out[0][j][e] * decay[0][(e / 2)];
        }
        fc::wait_phase(value_full + value_slot_2 * 8, value_phase_2);
        const fc::u32 value = shared + 57344 + value_slot_2 * 16384;
        // out = out + dot(probs_operand, value), issued
        fc::pin(out);
        fc::fence_products();
        {
          const fc::u64 b = fc::matrix(value, 64, 0);
          fc::multiply_warpgroup<64, fc::bf16, 8, fc::across<64>>(out[0], probs_operand[0], b, true);
        }
        fc::commit_products();
        fc::signal(5 + (warp / 4 + 1) % 3, 256);
        fc::wait_products<1>();
        fc::pin(scores_2);
        fc::arrive_if(thread % 128 == 0, key_empty + key_slot_2 * 8);
        if (++key_slot_2 == 2) {
          key_slot_2 = 0;
          key_phase_2 ^= 1;
        }
        // reduce_max = reduce_max(scores_2, cols)
        float t12[1][2];
        float t12_partials[1][2][2];
        #pragma unroll
        for (int e = 0; e < 2; ++e)
          #pragma unroll
          for (int c = 0; c < 2; ++c)
            t12_partials[0][e][c] = -fc::infinity();
        #pragma unroll
        for (int j = 0; j < 16; ++j)
          #pragma unroll
          for (int e = 0; e < 4; ++e)
            t12_partials[0][(e / 2)][j % 2] = fc::max(t12_partials[0][(e / 2)][j % 2], scores_2[0][j][e]);
        #pragma unroll
        for (int e = 0; e < 2; ++e) {
          t12[0][e] = fc::max(t12_partials[0][e][0], t12_partials[0][e][1]);
          t12[0][e] = fc::max(t12[0][e], fc::shuffle_xor(t12[0][e], 1));
          t12[0][e] = fc::max(t12[0][e], fc::shuffle_xor(t12[0][e], 2));
        }
        float new_max[1][2];
        // new_max = max(row_max, mul(t12, scale_log2))
        // decay = exp2(sub(row_max, new_max))
        float t13[1][2];
        // t13 = neg(new_max)
        #pragma unroll
        for (int e = 0; e < 2; ++e) {
          const float t14 = t12[0][e] * scale_log2;
          new_max[0][e] = fc::max(row_max[0][e], t14);
          const float t15 = row_max[0][e] - new_max[0][e];
          decay[0][e] = fc::exp2(t15);
          t13[0][e] = -new_max[0][e];
        }
        float probs_2[1][16][4];
        // probs_2 = exp2(fma(scores_2, scale_log2, t13))
        #pragma unroll
        for (int j = 0; j < 16; ++j) {
          #pragma unroll
          for (int e = 0; e < 4; ++e) {
            const float t16 = fc::fma(scores_2[0][j][e], scale_log2, t13[0][(e / 2)]);
            probs_2[0][j][e] = fc::exp2(t16);
          }
        }
        // reduce_sum = reduce_sum(probs_2, cols), each lane its partial
        float t17[1][2] = {};
        #pragma unroll
        for (int j = 0; j < 16; ++j)
          #pragma unroll
          for (int e = 0; e < 4; ++e)
            t17[0][(e / 2)] = t17[0][(e / 2)] + probs_2[0][j][e];
        // row_sum = fma(row_sum, decay, t17)
        #pragma unroll
        for (int e = 0; e < 2; ++e)
          row_sum[0][e] = fc::fma(row_sum[0][e], decay[0][e], t17[0][e]);
        fc::wait_products<0>();
        fc::pin(out);
        fc::arrive_if(thread % 128 == 0, value_empty + value_slot_2 * 8);
        if (++value_slot_2 == 2) {
          value_slot_2 = 0;
          value_phase_2 ^= 1;
        }
        // probs_operand: probs_2 as a left operand
        #pragma unroll
        for (int i = 0; i < 1; ++i)
          #pragma unroll
          for (int k = 0; k < 8; ++k)
            #pragma unroll
            for (int r = 0; r < 4; ++r)
              probs_operand[i][k][r] =
                  fc::pack<fc::bf16>(probs_2[i][2 * k + r / 2][r % 2 * 2], probs_2[i][2 * k + r / 2][r % 2 * 2 + 1]);
        #pragma unroll
        for (int e = 0; e < 2; ++e)
          row_max[0][e] = new_max[0][e];
      }
      bool t18[1][2];
      // t18 = eq(decay, 1)
      #pragma unroll
      for (int e = 0; e < 2; ++e)
        t18[0][e] = decay[0][e] == 1.f;
      if (!(fc::all_lanes(t18[0][0] && t18[0][1]))) {
        // out = mul(out, decay)
        #pragma unroll
        for (int j = 0; j < 8; ++j)
          #pragma unroll
          for (int e = 0; e < 4; ++e)
            out[0][j][e] = out[0][j][e] * decay[0][(e / 2)];
      }
      fc::wait_phase(value_full + value_slot_2 * 8, value_phase_2);
      const fc::u32 value_2 = shared + 57344 + value_slot_2 * 16384;
      // out = out + dot(probs_operand, value_2), issued
      fc::pin(out);
      fc::fence_products();
      {
        const fc::u64 b = fc::matrix(value_2, 64, 0);
        fc::multiply_warpgroup<64, fc::bf16, 8, fc::across<64>>(out[0], probs_operand[0], b, true);
      }
      fc::commit_products();
      fc::wait_products<0>();
      fc::pin(out);
      fc::arrive_if(thread % 128 == 0, value_empty + value_slot_2 * 8);
      if (++value_slot_2 == 2) {
        value_slot_2 = 0;
        value_phase_2 ^= 1;
      }
    }
    else {
      fc::meet(1 + warp / 4, 128);
      #pragma unroll
      for (int e = 0; e < 2; ++e)
        row_max[0][e] = fc::lowest();
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
    bool empty[1][2];
    // empty = eq(row_sum, 0)
    float inverse[1][2];
    // inverse = where(empty, 0, div(1, row_sum))
    #pragma unroll
    for (int e = 0; e < 2; ++e) {
      empty[0][e] = row_sum[0][e] == 0.f;
      const float t19 = fc::divide(1.f, row_sum[0][e]);
      inverse[0][e] = empty[0][e] ? 0.f : t19;
    }
    float t20[1][8][4];
    // t20 = cast(mul(out, inverse))
    #pragma unroll
    for (int j = 0; j < 8; ++j) {
      #pragma unroll
      for (int e = 0; e < 4; ++e) {
        const float t21 = out[0][j][e] * inverse[0][(e / 2)];
        t20[0][j][e] = t21;
      }
    }
    if (thread % 128 == 0) fc::wait_stores_read<0>();
    fc::meet(1 + warp / 4, 128);
    // t20 in shared memory
    const fc::u32 o_staged = shared;
    #pragma unroll
    for (int i = 0; i < 1; ++i)
      #pragma unroll
      for (int j = 0; j < 8; ++j)
        #pragma unroll
        for (int r = 0; r < 2; ++r)
          fc::store_shared(o_staged + fc::chunk_offset<192, 64>(rows_lane + i * 16 + r * 8, j * 8) + lane % 4 * 4,
                           fc::pack<fc::bf16>(t20[i][j][2 * r], t20[i][j][2 * r + 1]));
    fc::fence_async();
    fc::meet(1 + warp / 4, 128);
    // store o
    if (thread % 128 == 0) {
      fc::store_box(p.o_tiles, o_staged + warp / 4 * 8192, 0, rows_begin + warp / 4 * 64, head, batch);
      fc::commit_stores();
    }
    if (thread % 128 == 0) fc::wait_stores_read<0>();
    fc::meet(1 + warp / 4, 128);
    fc::arrive_if(thread % 128 == 0, query_empty);
    query_phase_2 ^= 1;
    float t22[1][2];
    // t22 = where(empty, -inf, where(eq(row_max, inf), inf, mul(add(row_max, log2(row_sum)), 0.6931471805599453)))
    #pragma unroll
    for (int e = 0; e < 2; ++e) {
      const float t23 = fc::log2(row_sum[0][e]);
      const float t24 = row_max[0][e] + t23;
      const float t25 = t24 * 0.6931472f;
      const bool t26 = row_max[0][e] == fc::infinity();
      const float t27 = t26 ? fc::infinity() : t25;
      t22[0][e] = empty[0][e] ? -fc::infinity() : t27;
    }
    float* const lse_at = p.lse + batch * p.lse_stride_0 + head * p.lse_stride_1;
    // store lse = t22
    if ((lane & 3) == 0) {
      #pragma unroll
      for (int e = 0; e < 2; ++e)
        if (rows_begin + rows_lane + e * 8 < p.Sq) {
          fc::store_global<1>(lse_at + (rows_begin + rows_lane + e * 8), &t22[0][e]);
        }
    }
    if (warp / 4 == 0) fc::meet(5, 256);
    if (thread % 128 == 0) fc::wait_stores_read<0>();
  }
}
