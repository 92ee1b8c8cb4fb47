struct Parameters {
  fc::tensor_map q_tiles;  // of 64 x 64
  fc::tensor_map k_tiles;  // of 64 x 64
  fc::tensor_map v_tiles;  // of 64 x 64
  fc::tensor_map o_tiles;  // of 64 x 64
  int Sq;
  int Sk;
  float scale;
};

extern "C" __global__ void __launch_bounds__(384, 1)
attention_forward(const __grid_constant__ Parameters p) {
  const int rows_tile = fc::block_x();
  const int rows_begin = rows_tile * 64;
  const int head = fc::block_y();
  const int batch = fc::block_z();
  const int thread = fc::thread_index(), lane = thread % 32, warp = fc::uniform(thread / 32);
  const fc::u32 shared = fc::shared_base();
  const int rows_lane = warp % 4 * 16 + lane / 4;
  const int dv_lane = warp / 4 % 2 * 256 + lane % 4 * 2;
  const int cols_lane = warp / 4 % 2 * 32 + lane % 4 * 2;
  // where a ring's slots say that they are full, and that they are empty
  const fc::u32 query_full = shared + 206336, query_empty = shared + 206344;
  const fc::u32 key_full = shared + 206352, key_empty = shared + 206360;
  const fc::u32 value_full = shared + 206368, value_empty = shared + 206376;
  if (thread == 0) {
    fc::prefetch_map(p.q_tiles);
    fc::prefetch_map(p.k_tiles);
    fc::prefetch_map(p.v_tiles);
    fc::prefetch_map(p.o_tiles);
    fc::init_mbarrier(query_full, 1);
    fc::init_mbarrier(query_empty, 2);
    fc::init_mbarrier(key_full, 1);
    fc::init_mbarrier(key_empty, 2);
    fc::init_mbarrier(value_full, 1);
    fc::init_mbarrier(value_empty, 2);
    fc::publish_mbarriers();
  }
  fc::barrier();
  fc::wait_for_kernels();
  fc::launch_dependents();

  if (warp >= 8) {
    fc::shrink_registers<24>();
    if (thread == 256) {
      int query_phase = 0;
      int key_phase = 0;
      int value_phase = 0;
      fc::wait_phase(query_empty, query_phase ^ 1);
      // query <- q
      fc::arrive_expect_tx(query_full, 65536);
      fc::load_box(shared, p.q_tiles, query_full, 0, rows_begin, head, batch);
      fc::load_box(shared + 8192, p.q_tiles, query_full, 64, rows_begin, head, batch);
      fc::load_box(shared + 16384, p.q_tiles, query_full, 128, rows_begin, head, batch);
      fc::load_box(shared + 24576, p.q_tiles, query_full, 192, rows_begin, head, batch);
      fc::load_box(shared + 32768, p.q_tiles, query_full, 256, rows_begin, head, batch);
      fc::load_box(shared + 40960, p.q_tiles, query_full, 320, rows_begin, head, batch);
      fc::load_box(shared + 49152, p.q_tiles, query_full, 384, rows_begin, head, batch);
      fc::load_box(shared + 57344, p.q_tiles, query_full, 448, rows_begin, head, batch);
      query_phase ^= 1;
      const int t0 = ((fc::min((rows_begin + 64), p.Sq) - 1) - p.Sq) + p.Sk;
      const int cols_end = fc::max(0, fc::min(((t0 >> 6) + 1), ((p.Sk + 63) / 64)));

      // cols tiles of 64
      #pragma unroll 1
      for (int cols_tile = cols_end - 1; cols_tile >= 0; --cols_tile) {
        const int cols_begin = cols_tile * 64;
        fc::wait_phase(key_empty, key_phase ^ 1);
        // key <- k
        fc::arrive_expect_tx(key_full, 65536);
        fc::load_box(shared + 65536, p.k_tiles, key_full, 0, cols_begin, head, batch);
        fc::load_box(shared + 65536 + 8192, p.k_tiles, key_full, 64, cols_begin, head, batch);
        fc::load_box(shared + 65536 + 16384, p.k_tiles, key_full, 128, cols_begin, head, batch);
        fc::load_box(shared + 65536 + 24576, p.k_tiles, key_full, 192, cols_begin, head, batch);
        fc::load_box(shared + 65536 + 32768, p.k_tiles, key_full, 256, cols_begin, head, batch);
        fc::load_box(shared + 65536 + 40960, p.k_tiles, key_full, 320, cols_begin, head, batch);
        fc::load_box(shared + 65536 + 49152, p.k_tiles, key_full, 384, cols_begin, head, batch);
        fc::load_box(shared + 65536 + 57344, p.k_tiles, key_full, 448, cols_begin, head, batch);
        key_phase ^= 1;
        fc::wait_phase(value_empty, value_phase ^ 1);
        // value <- v
        fc::arrive_expect_tx(value_full, 65536);
        fc::load_box(shared + 131072, p.v_tiles, value_full, 0, cols_begin, head, batch);
        fc::load_box(shared + 131072 + 8192, p.v_tiles, value_full, 64, cols_begin, head, batch);
        fc::load_box(shared + 131072 + 16384, p.v_tiles, value_full, 128, cols_begin, head, batch);
        fc::load_box(shared + 131072 + 24576, p.v_tiles, value_full, 192, cols_begin, head, batch);
        fc::load_box(shared + 131072 + 32768, p.v_tiles, value_full, 256, cols_begin, head, batch);
        fc::load_box(shared + 131072 + 40960, p.v_tiles, value_full, 320, cols_begin, head, batch);
        fc::load_box(shared + 131072 + 49152, p.v_tiles, value_full, 384, cols_begin, head, batch);
        fc::load_box(shared + 131072 + 57344, p.v_tiles, value_full, 448, cols_begin, head, batch);
        value_phase ^= 1;
      }
    }
  }
  else {
    fc::grow_registers<240>();
    int query_phase_2 = 0;
    int key_phase_2 = 0;
    int value_phase_2 = 0;
    const float scale_log2 = p.scale * 1.442695f;
    const int t1 = p.Sk - p.Sq;
    const int t2 = ((fc::min((rows_begin + 64), p.Sq) - 1) - p.Sq) + p.Sk;
    const int t3 = ((((rows_begin - p.Sq) + p.Sk) + -63) >> 6) + 1;
    const int cols_end_2 = fc::max(0, fc::min(((t2 >> 6) + 1), ((p.Sk + 63) / 64)));
    const int cols_full_end = fc::max(0, fc::min(t3, cols_end_2));
    fc::wait_phase(query_full, query_phase_2);
    const fc::u32 query = shared;
    const int t4 = cols_end_2 - 1;
    float row_sum[1][2];
    float out[1][32][4];
    if (t4 >= 0) {
      const int cols_begin_2 = t4 * 64;
      fc::wait_phase(key_full, key_phase_2);
      const fc::u32 key = shared + 65536;
      // scores = dot(query, transpose(key)), issued
      float scores[1][4][4];
      fc::pin(scores);
      fc::fence_products();
      {
        const fc::u64 a = fc::matrix(query, 64, 0);
        const fc::u64 b = fc::matrix(key + warp / 4 * 4096, 64, 0);
        fc::multiply_warpgroup<32, fc::bf16, 32, fc::along<64, 8192>, fc::along<64, 8192>>(scores[0], a, b, false);
      }
      fc::commit_products();
      fc::wait_products<0>();
      fc::pin(scores);
      fc::arrive_if(thread % 128 == 0, key_empty);
      key_phase_2 ^= 1;
      const bool masked = t4 >= cols_full_end;
      if (masked) {
        int t5[1][2];
        // t5 = add(index(rows), t1)
        #pragma unroll
        for (int e = 0; e < 2; ++e)
          t5[0][e] = (rows_begin + rows_lane + e * 8) + t1;
        // scores = where(ge(sub(t5, thread_begin), thread_offset), scores, -inf)
        #pragma unroll
        for (int j = 0; j < 4; ++j) {
          #pragma unroll
          for (int e = 0; e < 4; ++e) {
            const int t6 = t5[0][(e / 2)] - (cols_begin_2 + cols_lane);
            const bool t7 = t6 >= (j * 8 + (e % 2));
            scores[0][j][e] = t7 ? scores[0][j][e] : -fc::infinity();
          }
        }
      }
      // partial = reduce_max(scores, cols), each warp its partial
      float partial[1][2];
      #pragma unroll
      for (int e = 0; e < 2; ++e)
        partial[0][e] = -fc::infinity();
      #pragma unroll
      for (int j = 0; j < 4; ++j)
        #pragma unroll
        for (int e = 0; e < 4; ++e)
          partial[0][(e / 2)] = fc::max(partial[0][(e / 2)], scores[0][j][e]);
      #pragma unroll
      for (int e = 0; e < 2; ++e) {
        partial[0][e] = fc::max(partial[0][e], fc::shuffle_xor(partial[0][e], 1));
        partial[0][e] = fc::max(partial[0][e], fc::shuffle_xor(partial[0][e], 2));
      }
      // partial in shared memory
      const fc::u32 partials = shared + 205824 + warp / 4 % 2 * 256;
      if ((lane & 3) == 0) {
        #pragma unroll
        for (int i = 0; i < 1; ++i)
          #pragma unroll
          for (int e = 0; e < 2; ++e)
            fc::store_shared<1>(partials + (rows_lane + i * 16 + e * 8) * 4, &partial[i][e]);
      }
      fc::meet(9, 256);
      // combine_partials: partials of the warps, combined
      float t8[1][2];
      #pragma unroll
      for (int i = 0; i < 1; ++i) {
        #pragma unroll
        for (int e = 0; e < 2; ++e) {
          const fc::u32 share_at = shared + 205824 + 0 * 256 + (rows_lane + i * 16 + e * 8) * 4;
          fc::load_shared<1>(&t8[i][e], share_at);
          #pragma unroll
          for (int partial = 0; partial < 1; ++partial) {
            float other[1];
            fc::load_shared<1>(other, share_at + (partial + 1) * 256);
            t8[i][e] = fc::max(t8[i][e], other[0]);
          }
        }
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
      float probs[1][4][4];
      // probs = exp2(fma(scores, scale_log2, t9))
      #pragma unroll
      for (int j = 0; j < 4; ++j) {
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
      for (int j = 0; j < 4; ++j)
        #pragma unroll
        for (int e = 0; e < 4; ++e)
          row_sum[0][(e / 2)] = row_sum[0][(e / 2)] + probs[0][j][e];
      // row_sum = fma(row_sum, decay, row_sum)
      #pragma unroll
      for (int e = 0; e < 2; ++e)
        row_sum[0][e] = fc::fma(0.f, decay[0][e], row_sum[0][e]);
      // probs = cast(probs)
      #pragma unroll
      for (int j = 0; j < 4; ++j)
        #pragma unroll
        for (int e = 0; e < 4; ++e)
          probs[0][j][e] = probs[0][j][e];
      // probs in shared memory
      const fc::u32 operand_shared = shared + 196608;
      const fc::u32 rows_here = fc::in_place(static_cast<fc::u32>(rows_lane));
      #pragma unroll
      for (int i = 0; i < 1; ++i)
        #pragma unroll
        for (int j = 0; j < 4; ++j)
          #pragma unroll
          for (int r = 0; r < 2; ++r)
            fc::store_shared(operand_shared + fc::chunk_offset<64, 64, true>(rows_here + i * 16 + r * 8, warp / 4 % 2 * 32 + j * 8) + lane % 4 * 4,
                             fc::pack<fc::bf16>(probs[i][j][2 * r], probs[i][j][2 * r + 1]));
      fc::fence_async();
      // out = mul(out, decay)
      #pragma unroll
      for (int j = 0; j < 32; ++j)
        #pragma unroll
        for (int e = 0; e < 4; ++e)
          out[0][j][e] = 0.f * decay[0][(e / 2)];

      fc::u32 operand_shared_2 = operand_shared;
      // cols tiles of 64
      for (int cols_tile_2 = t4 - 1; cols_tile_2 >= 0; --cols_tile_2) {
        const int cols_begin_3 = cols_tile_2 * 64;
        fc::wait_phase(key_full, key_phase_2);
        const fc::u32 key_2 = shared + 65536;
        // scores = dot(query, transpose(key_2)), issued
        float scores_2[1][4][4];
        fc::pin(scores_2);
        fc::fence_products();
        {
          const fc::u64 a = fc::matrix(query, 64, 0);
          const fc::u64 b = fc::matrix(key_2 + warp / 4 * 4096, 64, 0);
          fc::multiply_warpgroup<32, fc::bf16, 32, fc::along<64, 8192>, fc::along<64, 8192>>(scores_2[0], a, b, false);
        }
        fc::commit_products();
        fc::wait_phase(value_full, value_phase_2);
        const fc::u32 value = shared + 131072;
        fc::meet(9, 256);
        // out = out + dot(operand_shared_2, value), issued
        fc::pin(out);
        fc::fence_products();
        {
          const fc::u64 a = fc::matrix(operand_shared_2, 64, 0);
          const fc::u64 b = fc::matrix(value + warp / 4 * 32768, 64, 8192);
          fc::multiply_warpgroup<256, fc::bf16, 4, fc::along<64, 8192>, fc::across<64>>(out[0], a, b, true);
        }
        fc::commit_products();
        fc::wait_products<1>();
        fc::pin(scores_2);
        fc::arrive_if(thread % 128 == 0, key_empty);
        key_phase_2 ^= 1;
        const bool masked_2 = cols_tile_2 >= cols_full_end;
        if (masked_2) {
          int t13[1][2];
          // t13 = add(index(rows), t1)
          #pragma unroll
          for (int e = 0; e < 2; ++e)
            t13[0][e] = (rows_begin + rows_lane + e * 8) + t1;
          // scores_2 = where(ge(sub(t13, thread_begin), thread_offset), scores_2, -inf)
          #pragma unroll
          for (int j = 0; j < 4; ++j) {
            #pragma unroll
            for (int e = 0; e < 4; ++e) {
              const int t14 = t13[0][(e / 2)] - (cols_begin_3 + cols_lane);
              const bool t15 = t14 >= (j * 8 + (e % 2));
              scores_2[0][j][e] = t15 ? scores_2[0][j][e] : -fc::infinity();
            }
          }
        }
        // partial = reduce_max(scores_2, cols), each warp its partial
        float partial_2[1][2];
        #pragma unroll
        for (int e = 0; e < 2; ++e)
          partial_2[0][e] = -fc::infinity();
        #pragma unroll
        for (int j = 0; j < 4; ++j)
          #pragma unroll
          for (int e = 0; e < 4; ++e)
            partial_2[0][(e / 2)] = fc::max(partial_2[0][(e / 2)], scores_2[0][j][e]);
        #pragma unroll
        for (int e = 0; e < 2; ++e) {
          partial_2[0][e] = fc::max(partial_2[0][e], fc::shuffle_xor(partial_2[0][e], 1));
          partial_2[0][e] = fc::max(partial_2[0][e], fc::shuffle_xor(partial_2[0][e], 2));
        }
        // partial_2 in shared memory
        const fc::u32 partials_2 = shared + 205824 + warp / 4 % 2 * 256;
        if ((lane & 3) == 0) {
          #pragma unroll
          for (int i = 0; i < 1; ++i)
            #pragma unroll
            for (int e = 0; e < 2; ++e)
              fc::store_shared<1>(partials_2 + (rows_lane + i * 16 + e * 8) * 4, &partial_2[i][e]);
        }
        fc::meet(9, 256);
        // combine_partials: partials of the warps, combined
        float t16[1][2];
        #pragma unroll
        for (int i = 0; i < 1; ++i) {
          #pragma unroll
          for (int e = 0; e < 2; ++e) {
            const fc::u32 share_at_2 = shared + 205824 + 0 * 256 + (rows_lane + i * 16 + e * 8) * 4;
            fc::load_shared<1>(&t16[i][e], share_at_2);
            #pragma unroll
            for (int partial = 0; partial < 1; ++partial) {
              float other[1];
              fc::load_shared<1>(other, share_at_2 + (partial + 1) * 256);
              t16[i][e] = fc::max(t16[i][e], other[0]);
            }
          }
        }
        float new_max_2[1][2];
        // new_max_2 = max(row_max, mul(t16, scale_log2))
        float decay_2[1][2];
        // decay_2 = exp2(sub(row_max, new_max_2))
        float t17[1][2];
        // t17 = neg(new_max_2)
        #pragma unroll
        for (int e = 0; e < 2; ++e) {
          const float t18 = t16[0][e] * scale_log2;
          new_max_2[0][e] = fc::max(new_max[0][e], t18);
          const float t19 = new_max[0][e] - new_max_2[0][e];
          decay_2[0][e] = fc::exp2(t19);
          t17[0][e] = -new_max_2[0][e];
        }
        float probs_2[1][4][4];
        // probs_2 = exp2(fma(scores_2, scale_log2, t17))
        #pragma unroll
        for (int j = 0; j < 4; ++j) {
          #pragma unroll
          for (int e = 0; e < 4; ++e) {
            const float t20 = fc::fma(scores_2[0][j][e], scale_log2, t17[0][(e / 2)]);
            probs_2[0][j][e] = fc::exp2(t20);
          }
        }
        // reduce_sum = reduce_sum(probs_2, cols), each lane its partial
        float t21[1][2] = {};
        #pragma unroll
        for (int j = 0; j < 4; ++j)
          #pragma unroll
          for (int e = 0; e < 4; ++e)
            t21[0][(e / 2)] = t21[0][(e / 2)] + probs_2[0][j][e];
        // row_sum = fma(row_sum, decay_2, t21)
        #pragma unroll
        for (int e = 0; e < 2; ++e)
          row_sum[0][e] = fc::fma(row_sum[0][e], decay_2[0][e], t21[0][e]);
        // probs_2 = cast(probs_2)
        #pragma unroll
        for (int j = 0; j < 4; ++j)
          #pragma unroll
          for (int e = 0; e < 4; ++e)
            probs_2[0][j][e] = probs_2[0][j][e];
        fc::wait_products<0>();
        fc::pin(out);
        fc::arrive_if(thread % 128 == 0, value_empty);
        value_phase_2 ^= 1;
        fc::meet(9, 256);
        // probs_2 in shared memory
        const fc::u32 operand_shared_3 = shared + 196608;
        #pragma unroll
        for (int i = 0; i < 1; ++i)
          #pragma unroll
          for (int j = 0; j < 4; ++j)
            #pragma unroll
            for (int r = 0; r < 2; ++r)
              fc::store_shared(operand_shared_3 + fc::chunk_offset<64, 64, true>(rows_lane + i * 16 + r * 8, warp / 4 % 2 * 32 + j * 8) + lane % 4 * 4,
                               fc::pack<fc::bf16>(probs_2[i][j][2 * r], probs_2[i][j][2 * r + 1]));
        fc::fence_async();
        // out = mul(out, decay_2)
        #pragma unroll
        for (int j = 0; j < 32; ++j)
          #pragma unroll
          for (int e = 0; e < 4; ++e)
            out[0][j][e] = out[0][j][e] * decay_2[0][(e / 2)];
        #pragma unroll
        for (int e = 0; e < 2; ++e)
          new_max[0][e] = new_max_2[0][e];
        operand_shared_2 = operand_shared_3;
      }
      fc::wait_phase(value_full, value_phase_2);
      const fc::u32 value_2 = shared + 131072;
      fc::meet(9, 256);
      // out = out + dot(operand_shared_2, value_2), issued
      fc::pin(out);
      fc::fence_products();
      {
        const fc::u64 a = fc::matrix(operand_shared_2, 64, 0);
        const fc::u64 b = fc::matrix(value_2 + warp / 4 * 32768, 64, 8192);
        fc::multiply_warpgroup<256, fc::bf16, 4, fc::along<64, 8192>, fc::across<64>>(out[0], a, b, true);
      }
      fc::commit_products();
      fc::wait_products<0>();
      fc::pin(out);
      fc::arrive_if(thread % 128 == 0, value_empty);
      value_phase_2 ^= 1;
    }
    else {
      fc::meet(1 + warp / 4, 128);
      #pragma unroll
      for (int e = 0; e < 2; ++e)
        row_sum[0][e] = 0.f;
      #pragma unroll
      for (int j = 0; j < 32; ++j)
        #pragma unroll
        for (int e = 0; e < 4; ++e)
          out[0][j][e] = 0.f;
    }
    // partial: partials of the lanes, combined
    #pragma unroll
    for (int e = 0; e < 2; ++e) {
      row_sum[0][e] = row_sum[0][e] + fc::shuffle_xor(row_sum[0][e], 1);
      row_sum[0][e] = row_sum[0][e] + fc::shuffle_xor(row_sum[0][e], 2);
    }
    // partial in shared memory
    const fc::u32 partials_3 = shared + 204800 + warp / 4 % 2 * 256;
    if ((lane & 3) == 0) {
      #pragma unroll
      for (int i = 0; i < 1; ++i)
        #pragma unroll
        for (int e = 0; e < 2; ++e)
          fc::store_shared<1>(partials_3 + (rows_lane + i * 16 + e * 8) * 4, &row_sum[i][e]);
    }
    fc::meet(9, 256);
    // row_sum: partials of the warps, combined
    float row_sum_2[1][2];
    #pragma unroll
    for (int i = 0; i < 1; ++i) {
      #pragma unroll
      for (int e = 0; e < 2; ++e) {
        const fc::u32 share_at_3 = shared + 204800 + 0 * 256 + (rows_lane + i * 16 + e * 8) * 4;
        fc::load_shared<1>(&row_sum_2[i][e], share_at_3);
        #pragma unroll
        for (int partial = 0; partial < 1; ++partial) {
          float other[1];
          fc::load_shared<1>(other, share_at_3 + (partial + 1) * 256);
          row_sum_2[i][e] = row_sum_2[i][e] + other[0];
        }
      }
    }
    float inverse[1][2];
    // inverse = where(eq(row_sum_2, 0), 0, div(1, row_sum_2))
    #pragma unroll
    for (int e = 0; e < 2; ++e) {
      const bool empty = row_sum_2[0][e] == 0.f;
      const float t22 = fc::divide(1.f, row_sum_2[0][e]);
      inverse[0][e] = empty ? 0.f : t22;
    }
    float t23[1][32][4];
    // t23 = cast(mul(out, inverse))
    #pragma unroll
    for (int j = 0; j < 32; ++j) {
      #pragma unroll
      for (int e = 0; e < 4; ++e) {
        const float t24 = out[0][j][e] * inverse[0][(e / 2)];
        t23[0][j][e] = t24;
      }
    }
    if (thread % 128 == 0) fc::wait_stores_read<0>();
    fc::meet(1 + warp / 4, 128);
    // t23 in shared memory
    const fc::u32 o_staged = shared;
    #pragma unroll
    for (int i = 0; i < 1; ++i)
      #pragma unroll
      for (int j = 0; j < 32; ++j)
        #pragma unroll
        for (int r = 0; r < 2; ++r)
          fc::store_shared(o_staged + fc::chunk_offset<64, 512, true>(rows_lane + i * 16 + r * 8, warp / 4 % 2 * 256 + j * 8) + lane % 4 * 4,
                           fc::pack<fc::bf16>(t23[i][j][2 * r], t23[i][j][2 * r + 1]));
    fc::fence_async();
    fc::meet(1 + warp / 4, 128);
    // store o
    if (thread % 128 == 0) {
      fc::store_box(p.o_tiles, o_staged + warp / 4 * 32768, warp / 4 * 256 + 0, rows_begin, head, batch);
      fc::store_box(p.o_tiles, o_staged + 8192 + warp / 4 * 32768, warp / 4 * 256 + 64, rows_begin, head, batch);
      fc::store_box(p.o_tiles, o_staged + 16384 + warp / 4 * 32768, warp / 4 * 256 + 128, rows_begin, head, batch);
      fc::store_box(p.o_tiles, o_staged + 24576 + warp / 4 * 32768, warp / 4 * 256 + 192, rows_begin, head, batch);
      fc::commit_stores();
    }
    if (thread % 128 == 0) fc::wait_stores_read<0>();
    fc::meet(1 + warp / 4, 128);
    fc::arrive_if(thread % 128 == 0, query_empty);
    query_phase_2 ^= 1;
    if (thread % 128 == 0) fc::wait_stores_read<0>();
  }
}
