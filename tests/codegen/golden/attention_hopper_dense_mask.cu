struct Parameters {
  fc::tensor_map q_tiles;  // of 128 x 64
  fc::tensor_map k_tiles;  // of 96 x 64
  fc::tensor_map visible_tiles;  // of 128 x 64
  fc::tensor_map visible_tiles_128x32;  // of 128 x 32
  fc::tensor_map v_tiles;  // of 96 x 64
  fc::tensor_map o_tiles;  // of 64 x 64
  int Sk;
  float scale;
};

extern "C" __global__ void __launch_bounds__(384, 1)
attention_forward(const __grid_constant__ Parameters p) {
  const int rows_tile = fc::block_x();
  const int rows_begin = rows_tile * 128;
  const int head = fc::block_y();
  const int batch = fc::block_z();
  const int thread = fc::thread_index(), lane = thread % 32, warp = fc::uniform(thread / 32);
  const fc::u32 shared = fc::shared_base();
  const int rows_lane = warp % 8 * 16 + lane / 4;
  const int dv_lane = lane % 4 * 2;
  const int cols_lane = lane % 4 * 2;
  // where a ring's slots say that they are full, and that they are empty
  const fc::u32 query_full = shared + 90112, query_empty = shared + 90120;
  const fc::u32 key_full = shared + 90128, key_empty = shared + 90144;
  const fc::u32 value_full = shared + 90192, value_empty = shared + 90208;
  const fc::u32 visible_tile_full = shared + 90160, visible_tile_empty = shared + 90176;
  if (thread == 0) {
    fc::prefetch_map(p.q_tiles);
    fc::prefetch_map(p.k_tiles);
    fc::prefetch_map(p.visible_tiles);
    fc::prefetch_map(p.visible_tiles_128x32);
    fc::prefetch_map(p.v_tiles);
    fc::prefetch_map(p.o_tiles);
    fc::init_mbarrier(query_full, 1);
    fc::init_mbarrier(query_empty, 2);
    for (int slot = 0; slot < 2; ++slot) {
      fc::init_mbarrier(key_full + slot * 8, 1);
      fc::init_mbarrier(key_empty + slot * 8, 2);
    }
    for (int slot = 0; slot < 2; ++slot) {
      fc::init_mbarrier(value_full + slot * 8, 1);
      fc::init_mbarrier(value_empty + slot * 8, 2);
    }
    for (int slot = 0; slot < 2; ++slot) {
      fc::init_mbarrier(visible_tile_full + slot * 8, 1);
      fc::init_mbarrier(visible_tile_empty + slot * 8, 8);
    }
    fc::publish_mbarriers();
  }
  fc::barrier();
  fc::wait_for_kernels();
  fc::launch_dependents();

  if (warp >= 8) {
    fc::shrink_registers<24>();
    if (thread == 256) {
      int query_phase = 0;
      int key_slot = 0, key_phase = 0;
      int visible_tile_slot = 0, visible_tile_phase = 0;
      int value_slot = 0, value_phase = 0;
      fc::wait_phase(query_empty, query_phase ^ 1);
      // query <- q
      fc::arrive_expect_tx(query_full, 16384);
      fc::load_box(shared, p.q_tiles, query_full, 0, rows_begin, head, batch);
      query_phase ^= 1;
      const int t0 = fc::min((fc::floor_div((p.Sk + -1), 96) + 1), ((p.Sk + 95) / 96));
      const int cols_end = fc::max(0, t0);

      // cols tiles of 96
      #pragma unroll 1
      for (int cols_tile = cols_end - 1; cols_tile >= 0; --cols_tile) {
        const int cols_begin = cols_tile * 96;
        fc::wait_phase(key_empty + key_slot * 8, key_phase ^ 1);
        // key <- k
        fc::arrive_expect_tx(key_full + key_slot * 8, 12288);
        fc::load_box(shared + 16384 + key_slot * 12288, p.k_tiles, key_full + key_slot * 8, 0, cols_begin, head, batch);
        if (++key_slot == 2) {
          key_slot = 0;
          key_phase ^= 1;
        }
        fc::wait_phase(visible_tile_empty + visible_tile_slot * 8, visible_tile_phase ^ 1);
        // visible_tile <- visible
        fc::arrive_expect_tx(visible_tile_full + visible_tile_slot * 8, 12288);
        fc::load_box(shared + 65536 + visible_tile_slot * 12288, p.visible_tiles, visible_tile_full + visible_tile_slot * 8, cols_begin, rows_begin, 0, batch);
        fc::load_box(shared + 65536 + visible_tile_slot * 12288 + 8192, p.visible_tiles_128x32, visible_tile_full + visible_tile_slot * 8, cols_begin + 64, rows_begin, 0, batch);
        if (++visible_tile_slot == 2) {
          visible_tile_slot = 0;
          visible_tile_phase ^= 1;
        }
        fc::wait_phase(value_empty + value_slot * 8, value_phase ^ 1);
        // value <- v
        fc::arrive_expect_tx(value_full + value_slot * 8, 12288);
        fc::load_box(shared + 40960 + value_slot * 12288, p.v_tiles, value_full + value_slot * 8, 0, cols_begin, head, batch);
        if (++value_slot == 2) {
          value_slot = 0;
          value_phase ^= 1;
        }
      }
    }
  }
  else {
    fc::grow_registers<240>();
    int query_phase_2 = 0;
    int key_slot_2 = 0, key_phase_2 = 0;
    int visible_tile_slot_2 = 0, visible_tile_phase_2 = 0;
    int value_slot_2 = 0, value_phase_2 = 0;
    const float scale_log2 = p.scale * 1.442695f;
    const int t1 = p.Sk + -1;
    const int t2 = fc::min((fc::floor_div(t1, 96) + 1), ((p.Sk + 95) / 96));
    const int cols_end_2 = fc::max(0, t2);
    const int t3 = fc::max((fc::floor_div((t1 + -95), 96) + 1), (cols_end_2 - 1));
    const int cols_full_end = fc::max(0, fc::min(t3, cols_end_2));
    fc::wait_phase(query_full, query_phase_2);
    const fc::u32 query = shared;
    const int t4 = cols_end_2 - 1;
    float row_sum[1][2];
    float out[1][8][4];
    if (t4 >= 0) {
      const int cols_begin_2 = t4 * 96;
      fc::wait_phase(key_full + key_slot_2 * 8, key_phase_2);
      const fc::u32 key = shared + 16384 + key_slot_2 * 12288;
      // scores = dot(query, transpose(key)), issued
      float scores[1][12][4];
      fc::pin(scores);
      fc::fence_products();
      {
        const fc::u64 a = fc::matrix(query + warp / 4 * 8192, 64, 0);
        const fc::u64 b = fc::matrix(key, 64, 0);
        fc::multiply_warpgroup<96, fc::bf16, 4, fc::along<64, 16384>, fc::along<64, 12288>>(scores[0], a, b, false);
      }
      fc::commit_products();
      fc::wait_products<0>();
      fc::pin(scores);
      fc::arrive_if(thread % 128 == 0, key_empty + key_slot_2 * 8);
      if (++key_slot_2 == 2) {
        key_slot_2 = 0;
        key_phase_2 ^= 1;
      }
      fc::wait_phase(visible_tile_full + visible_tile_slot_2 * 8, visible_tile_phase_2);
      const fc::u32 visible_tile = shared + 65536 + visible_tile_slot_2 * 12288;
      // convert from shared memory
      fc::condition_tile<1, 12, 4> t5;
      #pragma unroll
      for (int i = 0; i < 1; ++i)
        #pragma unroll
        for (int j = 0; j < 12; ++j)
          #pragma unroll
          for (int r = 0; r < 2; ++r)
            fc::load_conditions(t5, i, j, 2 * r, visible_tile + fc::chunk_offset<128, 48>(rows_lane + i * 16 + r * 8, j / 2 * 8) + j % 2 * 8 + lane % 4 * 2);
      fc::fence_async();
      fc::arrive_as_warp(visible_tile_empty + visible_tile_slot_2 * 8, lane);
      if (++visible_tile_slot_2 == 2) {
        visible_tile_slot_2 = 0;
        visible_tile_phase_2 ^= 1;
      }
      // scores = where(t5, scores, -inf)
      #pragma unroll
      for (int j = 0; j < 12; ++j)
        #pragma unroll
        for (int e = 0; e < 4; ++e)
          scores[0][j][e] = fc::condition(t5, 0, j, e) ? scores[0][j][e] : -fc::infinity();
      const bool masked = t4 >= cols_full_end;
      if (masked) {
        bool t6[12][2];
        // t6 = lt(thread_offset, sub(extent(cols), thread_begin))
        #pragma unroll
        for (int i = 0; i < 12; ++i) {
          #pragma unroll
          for (int e = 0; e < 2; ++e) {
            const int t7 = p.Sk - (cols_begin_2 + cols_lane);
            t6[i][e] = (i * 8 + e) < t7;
          }
        }
        // scores = where(t6, scores, -inf)
        #pragma unroll
        for (int j = 0; j < 12; ++j)
          #pragma unroll
          for (int e = 0; e < 4; ++e)
            scores[0][j][e] = t6[j][(e % 2)] ? scores[0][j][e] : -fc::infinity();
      }
      // reduce_max = reduce_max(scores, cols)
      float t8[1][2];
      #pragma unroll
      for (int e = 0; e < 2; ++e)
        t8[0][e] = -fc::infinity();
      #pragma unroll
      for (int j = 0; j < 12; ++j)
        #pragma unroll
        for (int e = 0; e < 4; ++e)
          t8[0][(e / 2)] = fc::max(t8[0][(e / 2)], scores[0][j][e]);
      #pragma unroll
      for (int e = 0; e < 2; ++e) {
        t8[0][e] = fc::max(t8[0][e], fc::shuffle_xor(t8[0][e], 1));
        t8[0][e] = fc::max(t8[0][e], fc::shuffle_xor(t8[0][e], 2));
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
        new_max[0][e] = fc::max(fc::lowest(), t10);
        const float t11 = fc::lowest() - new_max[0][e];
        decay[0][e] = fc::exp2(t11);
        t9[0][e] = -new_max[0][e];
      }
      float probs[1][12][4];
      // probs = exp2(fma(scores, scale_log2, t9))
      #pragma unroll
      for (int j = 0; j < 12; ++j) {
        #pragma unroll
        for (int e = 0; e < 4; ++e) {
          const float t12 = fc::fma(scores[0][j][e], scale_log2, t9[0][(e / 2)]);
          probs[0][j][e] = fc::exp2(t12);
        }
      }
      // reduce_sum = reduce_sum(probs, cols), each lane its partial
      #pragma unroll
      for (int e = 0; e < 2; ++e)
        row_sum[0][e] = 0.f;
      #pragma unroll
      for (int j = 0; j < 12; ++j)
        #pragma unroll
        for (int e = 0; e < 4; ++e)
          row_sum[0][(e / 2)] = row_sum[0][(e / 2)] + probs[0][j][e];
      // row_sum = fma(row_sum, decay, row_sum)
      #pragma unroll
      for (int e = 0; e < 2; ++e)
        row_sum[0][e] = fc::fma(0.f, decay[0][e], row_sum[0][e]);
      fc::u32 probs_operand[1][6][4];
      // probs_operand: probs as a left operand
      #pragma unroll
      for (int i = 0; i < 1; ++i)
        #pragma unroll
        for (int k = 0; k < 6; ++k)
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

      // cols tiles of 96
      for (int cols_tile_2 = t4 - 1; cols_tile_2 >= 0; --cols_tile_2) {
        fc::wait_phase(key_full + key_slot_2 * 8, key_phase_2);
        const fc::u32 key_2 = shared + 16384 + key_slot_2 * 12288;
        // scores = dot(query, transpose(key_2)), issued
        float scores_2[1][12][4];
        fc::pin(scores_2);
        fc::fence_products();
        {
          const fc::u64 a = fc::matrix(query + warp / 4 * 8192, 64, 0);
          const fc::u64 b = fc::matrix(key_2, 64, 0);
          fc::multiply_warpgroup<96, fc::bf16, 4, fc::along<64, 16384>, fc::along<64, 12288>>(scores_2[0], a, b, false);
        }
        fc::commit_products();
        fc::wait_phase(value_full + value_slot_2 * 8, value_phase_2);
        const fc::u32 value = shared + 40960 + value_slot_2 * 12288;
        // out = out + dot(probs_operand, value), issued
        fc::pin(out);
        fc::fence_products();
        {
          const fc::u64 b = fc::matrix(value, 64, 0);
          fc::multiply_warpgroup<64, fc::bf16, 6, fc::across<64>>(out[0], probs_operand[0], b, true);
        }
        fc::commit_products();
        fc::wait_products<1>();
        fc::pin(scores_2);
        fc::arrive_if(thread % 128 == 0, key_empty + key_slot_2 * 8);
        if (++key_slot_2 == 2) {
          key_slot_2 = 0;
          key_phase_2 ^= 1;
        }
        fc::wait_phase(visible_tile_full + visible_tile_slot_2 * 8, visible_tile_phase_2);
        const fc::u32 visible_tile_2 = shared + 65536 + visible_tile_slot_2 * 12288;
        // convert from shared memory
        fc::condition_tile<1, 12, 4> t13;
        #pragma unroll
        for (int i = 0; i < 1; ++i)
          #pragma unroll
          for (int j = 0; j < 12; ++j)
            #pragma unroll
            for (int r = 0; r < 2; ++r)
              fc::load_conditions(t13, i, j, 2 * r, visible_tile_2 + fc::chunk_offset<128, 48>(rows_lane + i * 16 + r * 8, j / 2 * 8) + j % 2 * 8 + lane % 4 * 2);
        fc::fence_async();
        fc::arrive_as_warp(visible_tile_empty + visible_tile_slot_2 * 8, lane);
        if (++visible_tile_slot_2 == 2) {
          visible_tile_slot_2 = 0;
          visible_tile_phase_2 ^= 1;
        }
        // scores_2 = where(t13, scores_2, -inf)
        #pragma unroll
        for (int j = 0; j < 12; ++j)
          #pragma unroll
          for (int e = 0; e < 4; ++e)
            scores_2[0][j][e] = fc::condition(t13, 0, j, e) ? scores_2[0][j][e] : -fc::infinity();
        // reduce_max = reduce_max(scores_2, cols)
        float t14[1][2];
        #pragma unroll
        for (int e = 0; e < 2; ++e)
          t14[0][e] = -fc::infinity();
        #pragma unroll
        for (int j = 0; j < 12; ++j)
          #pragma unroll
          for (int e = 0; e < 4; ++e)
            t14[0][(e / 2)] = fc::max(t14[0][(e / 2)], scores_2[0][j][e]);
        #pragma unroll
        for (int e = 0; e < 2; ++e) {
          t14[0][e] = fc::max(t14[0][e], fc::shuffle_xor(t14[0][e], 1));
          t14[0][e] = fc::max(t14[0][e], fc::shuffle_xor(t14[0][e], 2));
        }
        float new_max_2[1][2];
        // new_max_2 = max(row_max, mul(t14, scale_log2))
        float decay_2[1][2];
        // decay_2 = exp2(sub(row_max, new_max_2))
        float t15[1][2];
        // t15 = neg(new_max_2)
        #pragma unroll
        for (int e = 0; e < 2; ++e) {
          const float t16 = t14[0][e] * scale_log2;
          new_max_2[0][e] = fc::max(new_max[0][e], t16);
          const float t17 = new_max[0][e] - new_max_2[0][e];
          decay_2[0][e] = fc::exp2(t17);
          t15[0][e] = -new_max_2[0][e];
        }
        float probs_2[1][12][4];
        // probs_2 = exp2(fma(scores_2, scale_log2, t15))
        #pragma unroll
        for (int j = 0; j < 12; ++j) {
          #pragma unroll
          for (int e = 0; e < 4; ++e) {
            const float t18 = fc::fma(scores_2[0][j][e], scale_log2, t15[0][(e / 2)]);
            probs_2[0][j][e] = fc::exp2(t18);
          }
        }
        // reduce_sum = reduce_sum(probs_2, cols), each lane its partial
        float t19[1][2] = {};
        #pragma unroll
        for (int j = 0; j < 12; ++j)
          #pragma unroll
          for (int e = 0; e < 4; ++e)
            t19[0][(e / 2)] = t19[0][(e / 2)] + probs_2[0][j][e];
        // row_sum = fma(row_sum, decay_2, t19)
        #pragma unroll
        for (int e = 0; e < 2; ++e)
          row_sum[0][e] = fc::fma(row_sum[0][e], decay_2[0][e], t19[0][e]);
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
          for (int k = 0; k < 6; ++k)
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
      }
      fc::wait_phase(value_full + value_slot_2 * 8, value_phase_2);
      const fc::u32 value_2 = shared + 40960 + value_slot_2 * 12288;
      // out = out + dot(probs_operand, value_2), issued
      fc::pin(out);
      fc::fence_products();
      {
        const fc::u64 b = fc::matrix(value_2, 64, 0);
        fc::multiply_warpgroup<64, fc::bf16, 6, fc::across<64>>(out[0], probs_operand[0], b, true);
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
      const float t20 = fc::divide(1.f, row_sum[0][e]);
      inverse[0][e] = empty ? 0.f : t20;
    }
    float t21[1][8][4];
    // t21 = cast(mul(out, inverse))
    #pragma unroll
    for (int j = 0; j < 8; ++j) {
      #pragma unroll
      for (int e = 0; e < 4; ++e) {
        const float t22 = out[0][j][e] * inverse[0][(e / 2)];
        t21[0][j][e] = t22;
      }
    }
    if (thread % 128 == 0) fc::wait_stores_read<0>();
    fc::meet(1 + warp / 4, 128);
    // t21 in shared memory
    const fc::u32 o_staged = shared;
    #pragma unroll
    for (int i = 0; i < 1; ++i)
      #pragma unroll
      for (int j = 0; j < 8; ++j)
        #pragma unroll
        for (int r = 0; r < 2; ++r)
          fc::store_shared(o_staged + fc::chunk_offset<128, 64>(rows_lane + i * 16 + r * 8, j * 8) + lane % 4 * 4,
                           fc::pack<fc::bf16>(t21[i][j][2 * r], t21[i][j][2 * r + 1]));
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
    if (thread % 128 == 0) fc::wait_stores_read<0>();
  }
}
