struct Parameters {
  fc::tensor_map k_tiles;  // of 64 x 64
  fc::tensor_map q_tiles;  // of 64 x 64
  fc::tensor_map v_tiles;  // of 64 x 64
  fc::tensor_map o_tiles;  // of 64 x 64
  const int* doc;
  int H;
  int Sq;
  int Sk;
  int doc_n0;
  float scale;
};

extern "C" __global__ void __launch_bounds__(256, 1)
attention_forward(const __grid_constant__ Parameters p) {
  const int rows_tile = fc::block_x();
  const int rows_begin = rows_tile * 64;
  const int head_run = fc::block_y();
  const int head_begin = head_run * 4;
  const int batch = fc::block_z();
  const int thread = fc::thread_index(), lane = thread % 32, warp = fc::uniform(thread / 32);
  const fc::u32 shared = fc::shared_base();
  const int rows_lane = lane;
  const int cols_lane = lane;
  const int rows_lane_2 = warp % 4 * 16 + lane / 4;
  const int dv_lane = lane % 4 * 2;
  const int cols_lane_2 = lane % 4 * 2;
  const int head_end = fc::min((head_begin + 4), p.H);
  const int t0 = fc::min((((p.Sk + -1) >> 6) + 1), ((p.Sk + 63) / 64));
  const int cols_end = fc::max(0, t0);
  fc::wait_for_kernels();
  fc::launch_dependents();
  int t1[2][1];
  // t1 = gather(min(index(rows), (fc::min((rows_begin + 64), p.Sq) - 1)))
  #pragma unroll
  for (int i = 0; i < 2; ++i) {
    const int t2 = fc::min((rows_begin + rows_lane + i * 32), (fc::min((rows_begin + 64), p.Sq) - 1));
    t1[i][0] = fc::gather(p.doc, t2, fc::within(t2, p.doc_n0));
  }
  // reduce_min = reduce_min(t1, rows)
  int t3 = 2147483647;
  #pragma unroll
  for (int i = 0; i < 2; ++i)
    t3 = fc::min(t3, t1[i][0]);
  t3 = fc::min(t3, fc::shuffle_xor(t3, 1));
  t3 = fc::min(t3, fc::shuffle_xor(t3, 2));
  t3 = fc::min(t3, fc::shuffle_xor(t3, 4));
  t3 = fc::min(t3, fc::shuffle_xor(t3, 8));
  t3 = fc::min(t3, fc::shuffle_xor(t3, 16));
  // reduce_max = reduce_max(t1, rows)
  int t4 = -2147483647 - 1;
  #pragma unroll
  for (int i = 0; i < 2; ++i)
    t4 = fc::max(t4, t1[i][0]);
  t4 = fc::max(t4, fc::shuffle_xor(t4, 1));
  t4 = fc::max(t4, fc::shuffle_xor(t4, 2));
  t4 = fc::max(t4, fc::shuffle_xor(t4, 4));
  t4 = fc::max(t4, fc::shuffle_xor(t4, 8));
  t4 = fc::max(t4, fc::shuffle_xor(t4, 16));

  // which tiles of cols hold something visible, and something hidden
  for (int cols_group = 0 / 8 + warp; cols_group < 512 && cols_group * 8 < cols_end; cols_group += 8) {
    fc::u32 found = 0;
    #pragma unroll
    for (int n = 0; n < 8; ++n) {
      const int cols_begin = (cols_group * 8 + n) * 64;
      bool t5[2][1];
      // t5 = logical_and(logical_and(le(t3, gather(add(thread_begin, thread_offset))), le(gather(add(thread_begin, thread_offset)), t4)), lt(thread_offset, sub(extent(cols), thread_begin)))
      bool t6[2][1];
      // t6 = logical_and(logical_and(ge(t3, gather(add(thread_begin, thread_offset))), ge(gather(add(thread_begin, thread_offset)), t4)), lt(thread_offset, sub(extent(cols), thread_begin)))
      #pragma unroll
      for (int i = 0; i < 2; ++i) {
        const int t7 = (cols_begin + cols_lane) + (i * 32);
        const int t8 = fc::gather(p.doc, (cols_begin + cols_lane) + (i * 32), (i * 32) < p.doc_n0 - (cols_begin + cols_lane));
        const bool t9 = t8 <= t4;
        const bool t10 = t3 <= t8;
        const bool t11 = t10 && t9;
        const bool t12 = t8 >= t4;
        const bool t13 = t3 >= t8;
        const bool t14 = t13 && t12;
        const int t15 = p.Sk - (cols_begin + cols_lane);
        const bool t16 = (i * 32) < t15;
        t5[i][0] = t11 && t16;
        t6[i][0] = t14 && t16;
      }
      #pragma unroll
      for (int i = 0; i < 2; ++i)
        found |= (t5[i][0] ? 1u : 0u) << n | (t6[i][0] ? 0u : 256u) << n;
    }
    fc::note_tiles(shared + cols_group * 4, found, lane);
  }
  // where a ring's slots say that they are full, and that they are empty
  const fc::u32 query_full = shared + 51232, query_empty = shared + 51240;
  const fc::u32 key_full = shared + 51200, key_empty = shared + 51216;
  const fc::u32 value_full = shared + 51248, value_empty = shared + 51264;
  if (thread == 0) {
    fc::prefetch_map(p.k_tiles);
    fc::prefetch_map(p.q_tiles);
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

  if (warp >= 4) {
    if (thread == 128) {
      int key_slot = 0, key_phase = 0;
      int query_phase = 0;
      int value_slot = 0, value_phase = 0;
      // positions of this block
      for (int head = head_begin; head < head_end; ++head) {
        const int t17 = fc::tile_before<512>(shared, cols_end, 0);
        const bool t18 = t17 >= 0;
        if (t18) {
          const int cols_begin_2 = t17 * 64;
          fc::wait_phase(key_empty + key_slot * 8, key_phase ^ 1);
          // key <- k
          fc::arrive_expect_tx(key_full + key_slot * 8, 8192);
          fc::load_box(shared + 10240 + key_slot * 8192, p.k_tiles, key_full + key_slot * 8, 0, cols_begin_2, head, batch);
          if (++key_slot == 2) {
            key_slot = 0;
            key_phase ^= 1;
          }
        }
        fc::wait_phase(query_empty, query_phase ^ 1);
        // query <- q
        fc::arrive_expect_tx(query_full, 8192);
        fc::load_box(shared + 2048, p.q_tiles, query_full, 0, rows_begin, head, batch);
        query_phase ^= 1;
        if (t18) {
          const int cols_begin_3 = t17 * 64;
          fc::wait_phase(value_empty + value_slot * 8, value_phase ^ 1);
          // value <- v
          fc::arrive_expect_tx(value_full + value_slot * 8, 8192);
          fc::load_box(shared + 26624 + value_slot * 8192, p.v_tiles, value_full + value_slot * 8, 0, cols_begin_3, head, batch);
          if (++value_slot == 2) {
            value_slot = 0;
            value_phase ^= 1;
          }

          // cols tiles of 64
          for (int cols_tile_2 = fc::tile_before<512>(shared, t17, 0), next_tile; cols_tile_2 >= 0; cols_tile_2 = next_tile) {
            next_tile = fc::tile_before<512>(shared, cols_tile_2, 0);
            const int cols_begin_4 = cols_tile_2 * 64;
            fc::wait_phase(key_empty + key_slot * 8, key_phase ^ 1);
            // key <- k
            fc::arrive_expect_tx(key_full + key_slot * 8, 8192);
            fc::load_box(shared + 10240 + key_slot * 8192, p.k_tiles, key_full + key_slot * 8, 0, cols_begin_4, head, batch);
            if (++key_slot == 2) {
              key_slot = 0;
              key_phase ^= 1;
            }
            fc::wait_phase(value_empty + value_slot * 8, value_phase ^ 1);
            // value <- v
            fc::arrive_expect_tx(value_full + value_slot * 8, 8192);
            fc::load_box(shared + 26624 + value_slot * 8192, p.v_tiles, value_full + value_slot * 8, 0, cols_begin_4, head, batch);
            if (++value_slot == 2) {
              value_slot = 0;
              value_phase ^= 1;
            }
          }
        }
      }
    }
  }
  else {
    int query_phase_2 = 0;
    int key_slot_2 = 0, key_phase_2 = 0;
    int value_slot_2 = 0, value_phase_2 = 0;
    // positions of this block
    for (int head_2 = head_begin; head_2 < head_end; ++head_2) {
      const float scale_log2 = p.scale * 1.442695f;
      fc::wait_phase(query_full, query_phase_2);
      const fc::u32 query = shared + 2048;
      const int t19 = fc::tile_before<512>(shared, cols_end, 0);
      float row_sum[1][2];
      float out[1][8][4];
      if (t19 >= 0) {
        const int cols_begin_5 = t19 * 64;
        fc::wait_phase(key_full + key_slot_2 * 8, key_phase_2);
        const fc::u32 key = shared + 10240 + key_slot_2 * 8192;
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
        const bool full = !fc::tile_is_masked<512>(shared, t19);
        const bool masked = !full;
        int t20[1][2];
        int t21[8][2];
        if (masked) {
          // t20 = gather(add(thread_begin, thread_offset))
          #pragma unroll
          for (int e = 0; e < 2; ++e) {
            const int t22 = (rows_begin + rows_lane_2) + (e * 8);
            t20[0][e] = fc::gather(p.doc, (rows_begin + rows_lane_2) + (e * 8), (e * 8) < p.doc_n0 - (rows_begin + rows_lane_2));
          }
          // t21 = gather(add(thread_begin, thread_offset))
          #pragma unroll
          for (int i = 0; i < 8; ++i) {
            #pragma unroll
            for (int e = 0; e < 2; ++e) {
              const int t23 = (cols_begin_5 + cols_lane_2) + (i * 8 + e);
              t21[i][e] = fc::gather(p.doc, (cols_begin_5 + cols_lane_2) + (i * 8 + e), (i * 8 + e) < p.doc_n0 - (cols_begin_5 + cols_lane_2));
            }
          }
        }
        fc::wait_products<0>();
        fc::pin(scores);
        fc::arrive_if(thread % 128 == 0, key_empty + key_slot_2 * 8);
        if (++key_slot_2 == 2) {
          key_slot_2 = 0;
          key_phase_2 ^= 1;
        }
        if (masked) {
          bool t24[8][2];
          // t24 = lt(thread_offset, sub(extent(cols), thread_begin))
          #pragma unroll
          for (int i = 0; i < 8; ++i) {
            #pragma unroll
            for (int e = 0; e < 2; ++e) {
              const int t25 = p.Sk - (cols_begin_5 + cols_lane_2);
              t24[i][e] = (i * 8 + e) < t25;
            }
          }
          // scores = where(logical_and(eq(t20, t21), t24), scores, -inf)
          #pragma unroll
          for (int j = 0; j < 8; ++j) {
            #pragma unroll
            for (int e = 0; e < 4; ++e) {
              const bool t26 = t20[0][(e / 2)] == t21[j][(e % 2)];
              const bool t27 = t26 && t24[j][(e % 2)];
              scores[0][j][e] = t27 ? scores[0][j][e] : -fc::infinity();
            }
          }
        }
        // reduce_max = reduce_max(scores, cols)
        float t28[1][2];
        #pragma unroll
        for (int e = 0; e < 2; ++e)
          t28[0][e] = -fc::infinity();
        #pragma unroll
        for (int j = 0; j < 8; ++j)
          #pragma unroll
          for (int e = 0; e < 4; ++e)
            t28[0][(e / 2)] = fc::max(t28[0][(e / 2)], scores[0][j][e]);
        #pragma unroll
        for (int e = 0; e < 2; ++e) {
          t28[0][e] = fc::max(t28[0][e], fc::shuffle_xor(t28[0][e], 1));
          t28[0][e] = fc::max(t28[0][e], fc::shuffle_xor(t28[0][e], 2));
        }
        float new_max[1][2];
        // new_max = max(row_max, mul(t28, scale_log2))
        float decay[1][2];
        // decay = exp2(sub(row_max, new_max))
        float t29[1][2];
        // t29 = neg(new_max)
        #pragma unroll
        for (int e = 0; e < 2; ++e) {
          const float t30 = t28[0][e] * scale_log2;
          new_max[0][e] = fc::max(fc::lowest(), t30);
          const float t31 = fc::lowest() - new_max[0][e];
          decay[0][e] = fc::exp2(t31);
          t29[0][e] = -new_max[0][e];
        }
        float probs[1][8][4];
        // probs = exp2(fma(scores, scale_log2, t29))
        #pragma unroll
        for (int j = 0; j < 8; ++j) {
          #pragma unroll
          for (int e = 0; e < 4; ++e) {
            const float t32 = fc::fma(scores[0][j][e], scale_log2, t29[0][(e / 2)]);
            probs[0][j][e] = fc::exp2(t32);
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

        // cols tiles of 64
        for (int cols_tile_3 = fc::tile_before<512>(shared, t19, 0), next_tile_2; cols_tile_3 >= 0; cols_tile_3 = next_tile_2) {
          next_tile_2 = fc::tile_before<512>(shared, cols_tile_3, 0);
          const int cols_begin_6 = cols_tile_3 * 64;
          fc::wait_phase(key_full + key_slot_2 * 8, key_phase_2);
          const fc::u32 key_2 = shared + 10240 + key_slot_2 * 8192;
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
          const fc::u32 value = shared + 26624 + value_slot_2 * 8192;
          // out = out + dot(probs_operand, value), issued
          fc::pin(out);
          fc::fence_products();
          {
            const fc::u64 b = fc::matrix(value, 64, 0);
            fc::multiply_warpgroup<64, fc::bf16, 4, fc::across<64>>(out[0], probs_operand[0], b, true);
          }
          fc::commit_products();
          const bool full_2 = !fc::tile_is_masked<512>(shared, cols_tile_3);
          const bool masked_2 = !full_2;
          int t33[1][2];
          int t34[8][2];
          if (masked_2) {
            // t33 = gather(add(thread_begin, thread_offset))
            #pragma unroll
            for (int e = 0; e < 2; ++e) {
              const int t35 = (rows_begin + rows_lane_2) + (e * 8);
              t33[0][e] = fc::gather(p.doc, (rows_begin + rows_lane_2) + (e * 8), (e * 8) < p.doc_n0 - (rows_begin + rows_lane_2));
            }
            // t34 = gather(add(thread_begin, thread_offset))
            #pragma unroll
            for (int i = 0; i < 8; ++i) {
              #pragma unroll
              for (int e = 0; e < 2; ++e) {
                const int t36 = (cols_begin_6 + cols_lane_2) + (i * 8 + e);
                t34[i][e] = fc::gather(p.doc, (cols_begin_6 + cols_lane_2) + (i * 8 + e), (i * 8 + e) < p.doc_n0 - (cols_begin_6 + cols_lane_2));
              }
            }
          }
          fc::wait_products<1>();
          fc::pin(scores_2);
          fc::arrive_if(thread % 128 == 0, key_empty + key_slot_2 * 8);
          if (++key_slot_2 == 2) {
            key_slot_2 = 0;
            key_phase_2 ^= 1;
          }
          if (masked_2) {
            bool t37[8][2];
            // t37 = lt(thread_offset, sub(extent(cols), thread_begin))
            #pragma unroll
            for (int i = 0; i < 8; ++i) {
              #pragma unroll
              for (int e = 0; e < 2; ++e) {
                const int t38 = p.Sk - (cols_begin_6 + cols_lane_2);
                t37[i][e] = (i * 8 + e) < t38;
              }
            }
            // scores_2 = where(logical_and(eq(t33, t34), t37), scores_2, -inf)
            #pragma unroll
            for (int j = 0; j < 8; ++j) {
              #pragma unroll
              for (int e = 0; e < 4; ++e) {
                const bool t39 = t33[0][(e / 2)] == t34[j][(e % 2)];
                const bool t40 = t39 && t37[j][(e % 2)];
                scores_2[0][j][e] = t40 ? scores_2[0][j][e] : -fc::infinity();
              }
            }
          }
          // reduce_max = reduce_max(scores_2, cols)
          float t41[1][2];
          #pragma unroll
          for (int e = 0; e < 2; ++e)
            t41[0][e] = -fc::infinity();
          #pragma unroll
          for (int j = 0; j < 8; ++j)
            #pragma unroll
            for (int e = 0; e < 4; ++e)
              t41[0][(e / 2)] = fc::max(t41[0][(e / 2)], scores_2[0][j][e]);
          #pragma unroll
          for (int e = 0; e < 2; ++e) {
            t41[0][e] = fc::max(t41[0][e], fc::shuffle_xor(t41[0][e], 1));
            t41[0][e] = fc::max(t41[0][e], fc::shuffle_xor(t41[0][e], 2));
          }
          float new_max_2[1][2];
          // new_max_2 = max(row_max, mul(t41, scale_log2))
          float decay_2[1][2];
          // decay_2 = exp2(sub(row_max, new_max_2))
          float t42[1][2];
          // t42 = neg(new_max_2)
          #pragma unroll
          for (int e = 0; e < 2; ++e) {
            const float t43 = t41[0][e] * scale_log2;
            new_max_2[0][e] = fc::max(new_max[0][e], t43);
            const float t44 = new_max[0][e] - new_max_2[0][e];
            decay_2[0][e] = fc::exp2(t44);
            t42[0][e] = -new_max_2[0][e];
          }
          float probs_2[1][8][4];
          // probs_2 = exp2(fma(scores_2, scale_log2, t42))
          #pragma unroll
          for (int j = 0; j < 8; ++j) {
            #pragma unroll
            for (int e = 0; e < 4; ++e) {
              const float t45 = fc::fma(scores_2[0][j][e], scale_log2, t42[0][(e / 2)]);
              probs_2[0][j][e] = fc::exp2(t45);
            }
          }
          // reduce_sum = reduce_sum(probs_2, cols), each lane its partial
          float t46[1][2] = {};
          #pragma unroll
          for (int j = 0; j < 8; ++j)
            #pragma unroll
            for (int e = 0; e < 4; ++e)
              t46[0][(e / 2)] = t46[0][(e / 2)] + probs_2[0][j][e];
          // row_sum = fma(row_sum, decay_2, t46)
          #pragma unroll
          for (int e = 0; e < 2; ++e)
            row_sum[0][e] = fc::fma(row_sum[0][e], decay_2[0][e], t46[0][e]);
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
        fc::arrive_if(thread % 128 == 0, query_empty);
        query_phase_2 ^= 1;
        fc::wait_phase(value_full + value_slot_2 * 8, value_phase_2);
        const fc::u32 value_2 = shared + 26624 + value_slot_2 * 8192;
        // out = out + dot(probs_operand, value_2), issued
        fc::pin(out);
        fc::fence_products();
        {
          const fc::u64 b = fc::matrix(value_2, 64, 0);
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
        fc::arrive_if(thread % 128 == 0, query_empty);
        query_phase_2 ^= 1;
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
        const float t47 = fc::divide(1.f, row_sum[0][e]);
        inverse[0][e] = empty ? 0.f : t47;
      }
      float t48[1][8][4];
      // t48 = cast(mul(out, inverse))
      #pragma unroll
      for (int j = 0; j < 8; ++j) {
        #pragma unroll
        for (int e = 0; e < 4; ++e) {
          const float t49 = out[0][j][e] * inverse[0][(e / 2)];
          t48[0][j][e] = t49;
        }
      }
      if (thread % 128 == 0) fc::wait_stores_read<0>();
      fc::meet(1 + warp / 4, 128);
      // t48 in shared memory
      const fc::u32 o_staged = shared + 43008;
      #pragma unroll
      for (int i = 0; i < 1; ++i)
        #pragma unroll
        for (int j = 0; j < 8; ++j)
          #pragma unroll
          for (int r = 0; r < 2; ++r)
            fc::store_shared(o_staged + fc::chunk_offset<64, 64>(rows_lane_2 + i * 16 + r * 8, j * 8) + lane % 4 * 4,
                             fc::pack<fc::bf16>(t48[i][j][2 * r], t48[i][j][2 * r + 1]));
      fc::fence_async();
      fc::meet(1 + warp / 4, 128);
      // store o
      if (thread % 128 == 0) {
        fc::store_box(p.o_tiles, o_staged + warp / 4 * 8192, 0, rows_begin + warp / 4 * 64, head_2, batch);
        fc::commit_stores();
      }
    }
    if (thread % 128 == 0) fc::wait_stores_read<0>();
  }
}
