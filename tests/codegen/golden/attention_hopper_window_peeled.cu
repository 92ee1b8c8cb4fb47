struct Parameters {
  fc::tensor_map q_tiles;  // of 64 x 64
  fc::tensor_map k_tiles;  // of 64 x 64
  fc::tensor_map v_tiles;  // of 64 x 64
  fc::tensor_map o_tiles;  // of 64 x 64
  int Sq;
  int Sk;
  float scale;
};

extern "C" __global__ void __launch_bounds__(256, 1)
attention_forward(const __grid_constant__ Parameters p) {
  const int rows_tile = fc::block_x();
  const int rows_begin = rows_tile * 64;
  const int head = fc::block_y();
  const int batch = fc::block_z();
  const int thread = fc::thread_index(), lane = thread % 32, warp = fc::uniform(thread / 32);
  const fc::u32 shared = fc::shared_base();
  const int rows_lane = warp % 4 * 16 + lane / 4;
  const int dv_lane = lane % 4 * 2;
  const int cols_lane = lane % 4 * 2;
  // where a ring's slots say that they are full, and that they are empty
  const fc::u32 query_full = shared + 40960, query_empty = shared + 40968;
  const fc::u32 key_full = shared + 40976, key_empty = shared + 40992;
  const fc::u32 value_full = shared + 41008, value_empty = shared + 41024;
  if (thread == 0) {
    fc::prefetch_map(p.q_tiles);
    fc::prefetch_map(p.k_tiles);
    fc::prefetch_map(p.v_tiles);
    fc::prefetch_map(p.o_tiles);
    fc::init_mbarrier(query_full, 1);
    fc::init_mbarrier(query_empty, 1);
    for (int slot = 0; slot < 2; ++slot) {
      fc::init_mbarrier(key_full + slot * 8, 1);
      fc::init_mbarrier(key_empty + slot * 8, 1);
    }
    for (int slot = 0; slot < 2; ++slot) {
      fc::init_mbarrier(value_full + slot * 8, 1);
      fc::init_mbarrier(value_empty + slot * 8, 1);
    }
    fc::publish_mbarriers();
  }
  fc::barrier();
  fc::wait_for_kernels();
  fc::launch_dependents();

  if (warp >= 4) {
    if (thread == 128) {
      int query_phase = 0;
      int key_slot = 0, key_phase = 0;
      int value_slot = 0, value_phase = 0;
      fc::wait_phase(query_empty, query_phase ^ 1);
      // query <- q
      fc::arrive_expect_tx(query_full, 8192);
      fc::load_box(shared, p.q_tiles, query_full, 0, rows_begin, head, batch);
      query_phase ^= 1;
      const int t0 = -63 - ((((rows_begin * -1) + p.Sq) - p.Sk) + 256);
      const int t1 = ((fc::min((rows_begin + 64), p.Sq) - 1) - p.Sq) + p.Sk;
      const int cols_begin = fc::max(0, fc::min(((t0 + 63) >> 6), ((p.Sk + 63) / 64)));
      const int cols_end = fc::max(cols_begin, fc::min(((t1 >> 6) + 1), ((p.Sk + 63) / 64)));

      // cols tiles of 64
      #pragma unroll 1
      for (int cols_tile = cols_end - 1; cols_tile >= cols_begin; --cols_tile) {
        const int cols_begin_2 = cols_tile * 64;
        fc::wait_phase(key_empty + key_slot * 8, key_phase ^ 1);
        // key <- k
        fc::arrive_expect_tx(key_full + key_slot * 8, 8192);
        fc::load_box(shared + 8192 + key_slot * 8192, p.k_tiles, key_full + key_slot * 8, 0, cols_begin_2, head, batch);
        if (++key_slot == 2) {
          key_slot = 0;
          key_phase ^= 1;
        }
        fc::wait_phase(value_empty + value_slot * 8, value_phase ^ 1);
        // value <- v
        fc::arrive_expect_tx(value_full + value_slot * 8, 8192);
        fc::load_box(shared + 24576 + value_slot * 8192, p.v_tiles, value_full + value_slot * 8, 0, cols_begin_2, head, batch);
        if (++value_slot == 2) {
          value_slot = 0;
          value_phase ^= 1;
        }
      }
    }
  }
  else {
    int query_phase_2 = 0;
    int key_slot_2 = 0, key_phase_2 = 0;
    int value_slot_2 = 0, value_phase_2 = 0;
    const float scale_log2 = p.scale * 1.442695f;
    const int t2 = p.Sk - p.Sq;
    const int t3 = fc::min((rows_begin + 64), p.Sq) - 1;
    const int t4 = -63 - ((((rows_begin * -1) + p.Sq) - p.Sk) + 256);
    const int t5 = (0 - ((((t3 * -1) + p.Sq) - p.Sk) + 256)) + 63;
    const int t6 = ((((rows_begin - p.Sq) + p.Sk) + -63) >> 6) + 1;
    const int cols_begin_3 = fc::max(0, fc::min(((t4 + 63) >> 6), ((p.Sk + 63) / 64)));
    const int t7 = fc::min(((((t3 - p.Sq) + p.Sk) >> 6) + 1), ((p.Sk + 63) / 64));
    const int cols_end_2 = fc::max(cols_begin_3, t7);
    const int cols_full_begin = fc::max(cols_begin_3, fc::min((t5 >> 6), cols_end_2));
    const int cols_full_end = fc::max(cols_full_begin, fc::min(t6, cols_end_2));
    fc::wait_phase(query_full, query_phase_2);
    const fc::u32 query = shared;
    const int t8 = cols_end_2 - 1;
    float row_sum[1][2];
    float out[1][8][4];
    if (t8 >= cols_begin_3) {
      const int cols_begin_4 = t8 * 64;
      fc::wait_phase(key_full + key_slot_2 * 8, key_phase_2);
      const fc::u32 key = shared + 8192 + key_slot_2 * 8192;
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
      fc::wait_products<0>();
      fc::pin(scores);
      fc::arrive_if(thread % 128 == 0, key_empty + key_slot_2 * 8);
      if (++key_slot_2 == 2) {
        key_slot_2 = 0;
        key_phase_2 ^= 1;
      }
      const bool masked = (t8 < cols_full_begin) || (t8 >= cols_full_end);
      if (masked) {
        int t9[1][2];
        // t9 = add(index(rows), t2)
        int t10[1][2];
        // t10 = sub(t9, 256)
        #pragma unroll
        for (int e = 0; e < 2; ++e) {
          t9[0][e] = (rows_begin + rows_lane + e * 8) + t2;
          t10[0][e] = t9[0][e] - 256;
        }
        // scores = where(logical_and(ge(thread_offset, sub(t10, thread_begin)), le(thread_offset, sub(t9, thread_begin))), scores, -inf)
        #pragma unroll
        for (int j = 0; j < 8; ++j) {
          #pragma unroll
          for (int e = 0; e < 4; ++e) {
            const int t11 = t10[0][(e / 2)] - (cols_begin_4 + cols_lane);
            const bool t12 = (j * 8 + (e % 2)) >= t11;
            const int t13 = t9[0][(e / 2)] - (cols_begin_4 + cols_lane);
            const bool t14 = (j * 8 + (e % 2)) <= t13;
            const bool t15 = t12 && t14;
            scores[0][j][e] = t15 ? scores[0][j][e] : -fc::infinity();
          }
        }
      }
      // reduce_max = reduce_max(scores, cols)
      float t16[1][2];
      #pragma unroll
      for (int e = 0; e < 2; ++e)
        t16[0][e] = -fc::infinity();
      #pragma unroll
      for (int j = 0; j < 8; ++j)
        #pragma unroll
        for (int e = 0; e < 4; ++e)
          t16[0][(e / 2)] = fc::max(t16[0][(e / 2)], scores[0][j][e]);
      #pragma unroll
      for (int e = 0; e < 2; ++e) {
        t16[0][e] = fc::max(t16[0][e], fc::shuffle_xor(t16[0][e], 1));
        t16[0][e] = fc::max(t16[0][e], fc::shuffle_xor(t16[0][e], 2));
      }
      float new_max[1][2];
      // new_max = max(row_max, mul(t16, scale_log2))
      float decay[1][2];
      // decay = exp2(sub(row_max, new_max))
      float t17[1][2];
      // t17 = neg(new_max)
      #pragma unroll
      for (int e = 0; e < 2; ++e) {
        const float t18 = t16[0][e] * scale_log2;
        new_max[0][e] = fc::max(fc::lowest(), t18);
        const float t19 = fc::lowest() - new_max[0][e];
        decay[0][e] = fc::exp2(t19);
        t17[0][e] = -new_max[0][e];
      }
      float probs[1][8][4];
      // probs = exp2(fma(scores, scale_log2, t17))
      #pragma unroll
      for (int j = 0; j < 8; ++j) {
        #pragma unroll
        for (int e = 0; e < 4; ++e) {
          const float t20 = fc::fma(scores[0][j][e], scale_log2, t17[0][(e / 2)]);
          probs[0][j][e] = fc::exp2(t20);
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
      const int t21 = fc::max(fc::min(cols_full_begin, t8), cols_begin_3);
      const int t22 = fc::max(fc::min(cols_full_end, t8), cols_begin_3);

      #pragma unroll 1
      for (int side = 0; side < 2; ++side) {
        const bool t23 = side == 0;

        // cols tiles of 64
        for (int cols_tile_2 = (t23 ? t8 : t21) - 1; cols_tile_2 >= (t23 ? t22 : cols_begin_3); --cols_tile_2) {
          const int cols_begin_5 = cols_tile_2 * 64;
          fc::wait_phase(key_full + key_slot_2 * 8, key_phase_2);
          const fc::u32 key_2 = shared + 8192 + key_slot_2 * 8192;
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
          fc::wait_phase(value_full + value_slot_2 * 8, value_phase_2);
          const fc::u32 value = shared + 24576 + value_slot_2 * 8192;
          // out = out + dot(probs_operand, value), issued
          fc::pin(out);
          fc::fence_products();
          {
            const fc::u64 b = fc::matrix(value, 64, 0);
            fc::multiply_warpgroup<64, fc::bf16, 4, fc::across<64>>(out[0], probs_operand[0], b, true);
          }
          fc::commit_products();
          fc::wait_products<1>();
          fc::pin(scores_2);
          fc::arrive_if(thread % 128 == 0, key_empty + key_slot_2 * 8);
          if (++key_slot_2 == 2) {
            key_slot_2 = 0;
            key_phase_2 ^= 1;
          }
          int t24[1][2];
          // t24 = add(index(rows), t2)
          int t25[1][2];
          // t25 = sub(t24, 256)
          #pragma unroll
          for (int e = 0; e < 2; ++e) {
            t24[0][e] = (rows_begin + rows_lane + e * 8) + t2;
            t25[0][e] = t24[0][e] - 256;
          }
          // scores_2 = where(logical_and(ge(thread_offset, sub(t25, thread_begin)), le(thread_offset, sub(t24, thread_begin))), scores_2, -inf)
          #pragma unroll
          for (int j = 0; j < 8; ++j) {
            #pragma unroll
            for (int e = 0; e < 4; ++e) {
              const int t26 = t25[0][(e / 2)] - (cols_begin_5 + cols_lane);
              const bool t27 = (j * 8 + (e % 2)) >= t26;
              const int t28 = t24[0][(e / 2)] - (cols_begin_5 + cols_lane);
              const bool t29 = (j * 8 + (e % 2)) <= t28;
              const bool t30 = t27 && t29;
              scores_2[0][j][e] = t30 ? scores_2[0][j][e] : -fc::infinity();
            }
          }
          // reduce_max = reduce_max(scores_2, cols)
          float t31[1][2];
          #pragma unroll
          for (int e = 0; e < 2; ++e)
            t31[0][e] = -fc::infinity();
          #pragma unroll
          for (int j = 0; j < 8; ++j)
            #pragma unroll
            for (int e = 0; e < 4; ++e)
              t31[0][(e / 2)] = fc::max(t31[0][(e / 2)], scores_2[0][j][e]);
          #pragma unroll
          for (int e = 0; e < 2; ++e) {
            t31[0][e] = fc::max(t31[0][e], fc::shuffle_xor(t31[0][e], 1));
            t31[0][e] = fc::max(t31[0][e], fc::shuffle_xor(t31[0][e], 2));
          }
          float new_max_2[1][2];
          // new_max_2 = max(row_max, mul(t31, scale_log2))
          float decay_2[1][2];
          // decay_2 = exp2(sub(row_max, new_max_2))
          float t32[1][2];
          // t32 = neg(new_max_2)
          #pragma unroll
          for (int e = 0; e < 2; ++e) {
            const float t33 = t31[0][e] * scale_log2;
            new_max_2[0][e] = fc::max(new_max[0][e], t33);
            const float t34 = new_max[0][e] - new_max_2[0][e];
            decay_2[0][e] = fc::exp2(t34);
            t32[0][e] = -new_max_2[0][e];
          }
          float probs_2[1][8][4];
          // probs_2 = exp2(fma(scores_2, scale_log2, t32))
          #pragma unroll
          for (int j = 0; j < 8; ++j) {
            #pragma unroll
            for (int e = 0; e < 4; ++e) {
              const float t35 = fc::fma(scores_2[0][j][e], scale_log2, t32[0][(e / 2)]);
              probs_2[0][j][e] = fc::exp2(t35);
            }
          }
          // reduce_sum = reduce_sum(probs_2, cols), each lane its partial
          float t36[1][2] = {};
          #pragma unroll
          for (int j = 0; j < 8; ++j)
            #pragma unroll
            for (int e = 0; e < 4; ++e)
              t36[0][(e / 2)] = t36[0][(e / 2)] + probs_2[0][j][e];
          // row_sum = fma(row_sum, decay_2, t36)
          #pragma unroll
          for (int e = 0; e < 2; ++e)
            row_sum[0][e] = fc::fma(row_sum[0][e], decay_2[0][e], t36[0][e]);
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
        }

        // cols tiles of 64
        for (int cols_tile_3 = (t23 ? t22 : t21) - 1; cols_tile_3 >= t21; --cols_tile_3) {
          fc::wait_phase(key_full + key_slot_2 * 8, key_phase_2);
          const fc::u32 key_3 = shared + 8192 + key_slot_2 * 8192;
          // scores = dot(query, transpose(key_3)), issued
          float scores_3[1][8][4];
          fc::pin(scores_3);
          fc::fence_products();
          {
            const fc::u64 a = fc::matrix(query + warp / 4 * 8192, 64, 0);
            const fc::u64 b = fc::matrix(key_3, 64, 0);
            fc::multiply_warpgroup<64, fc::bf16, 4, fc::along<64, 8192>, fc::along<64, 8192>>(scores_3[0], a, b, false);
          }
          fc::commit_products();
          fc::wait_phase(value_full + value_slot_2 * 8, value_phase_2);
          const fc::u32 value_2 = shared + 24576 + value_slot_2 * 8192;
          // out = out + dot(probs_operand, value_2), issued
          fc::pin(out);
          fc::fence_products();
          {
            const fc::u64 b = fc::matrix(value_2, 64, 0);
            fc::multiply_warpgroup<64, fc::bf16, 4, fc::across<64>>(out[0], probs_operand[0], b, true);
          }
          fc::commit_products();
          fc::wait_products<1>();
          fc::pin(scores_3);
          fc::arrive_if(thread % 128 == 0, key_empty + key_slot_2 * 8);
          if (++key_slot_2 == 2) {
            key_slot_2 = 0;
            key_phase_2 ^= 1;
          }
          // reduce_max = reduce_max(scores_3, cols)
          float t37[1][2];
          #pragma unroll
          for (int e = 0; e < 2; ++e)
            t37[0][e] = -fc::infinity();
          #pragma unroll
          for (int j = 0; j < 8; ++j)
            #pragma unroll
            for (int e = 0; e < 4; ++e)
              t37[0][(e / 2)] = fc::max(t37[0][(e / 2)], scores_3[0][j][e]);
          #pragma unroll
          for (int e = 0; e < 2; ++e) {
            t37[0][e] = fc::max(t37[0][e], fc::shuffle_xor(t37[0][e], 1));
            t37[0][e] = fc::max(t37[0][e], fc::shuffle_xor(t37[0][e], 2));
          }
          float new_max_3[1][2];
          // new_max_3 = max(row_max, mul(t37, scale_log2))
          float decay_3[1][2];
          // decay_3 = exp2(sub(row_max, new_max_3))
          float t38[1][2];
          // t38 = neg(new_max_3)
          #pragma unroll
          for (int e = 0; e < 2; ++e) {
            const float t39 = t37[0][e] * scale_log2;
            new_max_3[0][e] = fc::max(new_max[0][e], t39);
            const float t40 = new_max[0][e] - new_max_3[0][e];
            decay_3[0][e] = fc::exp2(t40);
            t38[0][e] = -new_max_3[0][e];
          }
          float probs_3[1][8][4];
          // probs_3 = exp2(fma(scores_3, scale_log2, t38))
          #pragma unroll
          for (int j = 0; j < 8; ++j) {
            #pragma unroll
            for (int e = 0; e < 4; ++e) {
              const float t41 = fc::fma(scores_3[0][j][e], scale_log2, t38[0][(e / 2)]);
              probs_3[0][j][e] = fc::exp2(t41);
            }
          }
          // reduce_sum = reduce_sum(probs_3, cols), each lane its partial
          float t42[1][2] = {};
          #pragma unroll
          for (int j = 0; j < 8; ++j)
            #pragma unroll
            for (int e = 0; e < 4; ++e)
              t42[0][(e / 2)] = t42[0][(e / 2)] + probs_3[0][j][e];
          // row_sum = fma(row_sum, decay_3, t42)
          #pragma unroll
          for (int e = 0; e < 2; ++e)
            row_sum[0][e] = fc::fma(row_sum[0][e], decay_3[0][e], t42[0][e]);
          fc::wait_products<0>();
          fc::pin(out);
          fc::arrive_if(thread % 128 == 0, value_empty + value_slot_2 * 8);
          if (++value_slot_2 == 2) {
            value_slot_2 = 0;
            value_phase_2 ^= 1;
          }
          // probs_operand: probs_3 as a left operand
          #pragma unroll
          for (int i = 0; i < 1; ++i)
            #pragma unroll
            for (int k = 0; k < 4; ++k)
              #pragma unroll
              for (int r = 0; r < 4; ++r)
                probs_operand[i][k][r] =
                    fc::pack<fc::bf16>(probs_3[i][2 * k + r / 2][r % 2 * 2], probs_3[i][2 * k + r / 2][r % 2 * 2 + 1]);
          // out = mul(out, decay_3)
          #pragma unroll
          for (int j = 0; j < 8; ++j)
            #pragma unroll
            for (int e = 0; e < 4; ++e)
              out[0][j][e] = out[0][j][e] * decay_3[0][(e / 2)];
          #pragma unroll
          for (int e = 0; e < 2; ++e)
            new_max[0][e] = new_max_3[0][e];
        }
      }
      fc::wait_phase(value_full + value_slot_2 * 8, value_phase_2);
      const fc::u32 value_3 = shared + 24576 + value_slot_2 * 8192;
      // out = out + dot(probs_operand, value_3), issued
      fc::pin(out);
      fc::fence_products();
      {
        const fc::u64 b = fc::matrix(value_3, 64, 0);
        fc::multiply_warpgroup<64, fc::bf16, 4, fc::across<64>>(out[0], probs_operand[0], b, true);
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
      const float t43 = fc::divide(1.f, row_sum[0][e]);
      inverse[0][e] = empty ? 0.f : t43;
    }
    float t44[1][8][4];
    // t44 = cast(mul(out, inverse))
    #pragma unroll
    for (int j = 0; j < 8; ++j) {
      #pragma unroll
      for (int e = 0; e < 4; ++e) {
        const float t45 = out[0][j][e] * inverse[0][(e / 2)];
        t44[0][j][e] = t45;
      }
    }
    if (thread % 128 == 0) fc::wait_stores_read<0>();
    fc::meet(1 + warp / 4, 128);
    // t44 in shared memory
    const fc::u32 o_staged = shared;
    #pragma unroll
    for (int i = 0; i < 1; ++i)
      #pragma unroll
      for (int j = 0; j < 8; ++j)
        #pragma unroll
        for (int r = 0; r < 2; ++r)
          fc::store_shared(o_staged + fc::chunk_offset<64, 64>(rows_lane + i * 16 + r * 8, j * 8) + lane % 4 * 4,
                           fc::pack<fc::bf16>(t44[i][j][2 * r], t44[i][j][2 * r + 1]));
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
