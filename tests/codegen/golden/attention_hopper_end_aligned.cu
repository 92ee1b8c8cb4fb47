struct Parameters {
  fc::tensor_map k_tiles;  // of 80 x 64
  fc::tensor_map q_tiles;  // of 192 x 64
  fc::tensor_map v_tiles;  // of 80 x 64
  fc::bf16* o;
  fc::i64 o_stride_0, o_stride_1, o_stride_2;  // elements
  int B;
  int H;
  int Sq;
  int Sk;
  float scale;
};

extern "C" __global__ void __launch_bounds__(512, 1)
attention_forward(const __grid_constant__ Parameters p) {
  const int thread = fc::thread_index(), lane = thread % 32, warp = fc::uniform(thread / 32);
  const fc::u32 shared = fc::shared_base();
  const int rows_lane = warp % 12 * 16 + lane / 4;
  const int dv_lane = lane % 4 * 2;
  const int cols_lane = lane % 4 * 2;
  // where a ring's slots say that they are full, and that they are empty
  const fc::u32 query_full = shared + 131104, query_empty = shared + 131112;
  const fc::u32 key_full = shared + 131072, key_empty = shared + 131088;
  const fc::u32 value_full = shared + 131120, value_empty = shared + 131136;
  if (thread == 0) {
    fc::prefetch_map(p.k_tiles);
    fc::prefetch_map(p.q_tiles);
    fc::prefetch_map(p.v_tiles);
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
      int key_slot = 0, key_phase = 0;
      int query_phase = 0;
      int value_slot = 0, value_phase = 0;
      const int block_count = (((p.Sq + 191) / 192) * p.H) * p.B;
      // tiles of all blocks, every other wave of blocks backwards
      int in_wave = fc::grid_x() - 1 - fc::block_x();
      for (int first = 0; first < block_count; first += fc::grid_x()) {
        in_wave = fc::grid_x() - 1 - in_wave;
        if (first + in_wave >= block_count) break;
        const fc::u32 divisor = ((p.Sq + 191) / 192);
        const int t0 = (first + in_wave) % divisor;
        const int t1 = (first + in_wave) / divisor;
        const int rows_tile = (((p.Sq + 191) / 192) - 1) - t0;
        const fc::u32 divisor_2 = p.H;
        const int head = t1 % divisor_2;
        const int batch = t1 / divisor_2;
        const int rows_begin = p.Sq - ((p.Sq + 191) / 192 - rows_tile) * 192;
        const int t2 = fc::floor_div(((((rows_begin + 192) - 1) - p.Sq) + p.Sk), 80);
        const int cols_end = fc::max(0, fc::min((t2 + 1), ((p.Sk + 79) / 80)));
        const int t3 = cols_end - 1;
        const bool t4 = t3 >= 0;
        if (t4) {
          const int cols_begin = t3 * 80;
          fc::wait_phase(key_empty + key_slot * 8, key_phase ^ 1);
          // key <- k
          fc::arrive_expect_tx(key_full + key_slot * 8, 20480);
          fc::load_box(shared + 49152 + key_slot * 20480, p.k_tiles, key_full + key_slot * 8, 0, cols_begin, head, batch);
          fc::load_box(shared + 49152 + key_slot * 20480 + 10240, p.k_tiles, key_full + key_slot * 8, 64, cols_begin, head, batch);
          if (++key_slot == 2) {
            key_slot = 0;
            key_phase ^= 1;
          }
        }
        fc::wait_phase(query_empty, query_phase ^ 1);
        // query <- q
        fc::arrive_expect_tx(query_full, 49152);
        fc::load_box(shared, p.q_tiles, query_full, 0, rows_begin, head, batch);
        fc::load_box(shared + 24576, p.q_tiles, query_full, 64, rows_begin, head, batch);
        query_phase ^= 1;
        if (t4) {
          const int cols_begin_2 = t3 * 80;
          fc::wait_phase(value_empty + value_slot * 8, value_phase ^ 1);
          // value <- v
          fc::arrive_expect_tx(value_full + value_slot * 8, 20480);
          fc::load_box(shared + 90112 + value_slot * 20480, p.v_tiles, value_full + value_slot * 8, 0, cols_begin_2, head, batch);
          fc::load_box(shared + 90112 + value_slot * 20480 + 10240, p.v_tiles, value_full + value_slot * 8, 64, cols_begin_2, head, batch);
          if (++value_slot == 2) {
            value_slot = 0;
            value_phase ^= 1;
          }

          // cols tiles of 80
          #pragma unroll 1
          for (int cols_tile = t3 - 1; cols_tile >= 0; --cols_tile) {
            const int cols_begin_3 = cols_tile * 80;
            fc::wait_phase(key_empty + key_slot * 8, key_phase ^ 1);
            // key <- k
            fc::arrive_expect_tx(key_full + key_slot * 8, 20480);
            fc::load_box(shared + 49152 + key_slot * 20480, p.k_tiles, key_full + key_slot * 8, 0, cols_begin_3, head, batch);
            fc::load_box(shared + 49152 + key_slot * 20480 + 10240, p.k_tiles, key_full + key_slot * 8, 64, cols_begin_3, head, batch);
            if (++key_slot == 2) {
              key_slot = 0;
              key_phase ^= 1;
            }
            fc::wait_phase(value_empty + value_slot * 8, value_phase ^ 1);
            // value <- v
            fc::arrive_expect_tx(value_full + value_slot * 8, 20480);
            fc::load_box(shared + 90112 + value_slot * 20480, p.v_tiles, value_full + value_slot * 8, 0, cols_begin_3, head, batch);
            fc::load_box(shared + 90112 + value_slot * 20480 + 10240, p.v_tiles, value_full + value_slot * 8, 64, cols_begin_3, head, batch);
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
    fc::grow_registers<160>();
    int query_phase_2 = 0;
    int key_slot_2 = 0, key_phase_2 = 0;
    int value_slot_2 = 0, value_phase_2 = 0;
    const int block_count_2 = (((p.Sq + 191) / 192) * p.H) * p.B;
    // tiles of all blocks, every other wave of blocks backwards
    int in_wave_2 = fc::grid_x() - 1 - fc::block_x();
    for (int first_2 = 0; first_2 < block_count_2; first_2 += fc::grid_x()) {
      in_wave_2 = fc::grid_x() - 1 - in_wave_2;
      if (first_2 + in_wave_2 >= block_count_2) break;
      const fc::u32 divisor_3 = ((p.Sq + 191) / 192);
      const int t5 = (first_2 + in_wave_2) % divisor_3;
      const int t6 = (first_2 + in_wave_2) / divisor_3;
      const int rows_tile_2 = (((p.Sq + 191) / 192) - 1) - t5;
      const fc::u32 divisor_4 = p.H;
      const int head_2 = t6 % divisor_4;
      const int batch_2 = t6 / divisor_4;
      const int rows_begin_2 = p.Sq - ((p.Sq + 191) / 192 - rows_tile_2) * 192;
      const float scale_log2 = p.scale * 1.442695f;
      const int t7 = p.Sk - p.Sq;
      const int t8 = fc::floor_div(((((rows_begin_2 + 192) - 1) - p.Sq) + p.Sk), 80);
      const int t9 = fc::floor_div((((rows_begin_2 - p.Sq) + p.Sk) + -79), 80);
      const int cols_end_2 = fc::max(0, fc::min((t8 + 1), ((p.Sk + 79) / 80)));
      const int cols_full_end = fc::max(0, fc::min((t9 + 1), cols_end_2));
      fc::wait_phase(query_full, query_phase_2);
      const fc::u32 query = shared;
      const int t10 = cols_end_2 - 1;
      float row_sum[1][2];
      float out[1][16][4];
      if (t10 >= 0) {
        const int cols_begin_4 = t10 * 80;
        fc::wait_phase(key_full + key_slot_2 * 8, key_phase_2);
        const fc::u32 key = shared + 49152 + key_slot_2 * 20480;
        // scores = dot(query, transpose(key)), issued
        float scores[1][10][4];
        fc::pin(scores);
        fc::fence_products();
        {
          const fc::u64 a = fc::matrix(query + warp / 4 * 8192, 64, 0);
          const fc::u64 b = fc::matrix(key, 64, 0);
          fc::multiply_warpgroup<80, fc::bf16, 8, fc::along<64, 24576>, fc::along<64, 10240>>(scores[0], a, b, false);
        }
        fc::commit_products();
        fc::wait_products<0>();
        fc::pin(scores);
        fc::arrive_if(thread % 128 == 0, key_empty + key_slot_2 * 8);
        if (++key_slot_2 == 2) {
          key_slot_2 = 0;
          key_phase_2 ^= 1;
        }
        const bool masked = t10 >= cols_full_end;
        if (masked) {
          int t11[1][2];
          // t11 = add(index(rows), t7)
          #pragma unroll
          for (int e = 0; e < 2; ++e)
            t11[0][e] = (rows_begin_2 + rows_lane + e * 8) + t7;
          // scores = where(ge(sub(t11, thread_begin), thread_offset), scores, -inf)
          #pragma unroll
          for (int j = 0; j < 10; ++j) {
            #pragma unroll
            for (int e = 0; e < 4; ++e) {
              const int t12 = t11[0][(e / 2)] - (cols_begin_4 + cols_lane);
              const bool t13 = t12 >= (j * 8 + (e % 2));
              scores[0][j][e] = t13 ? scores[0][j][e] : -fc::infinity();
            }
          }
        }
        // reduce_max = reduce_max(scores, cols)
        float t14[1][2];
        #pragma unroll
        for (int e = 0; e < 2; ++e)
          t14[0][e] = -fc::infinity();
        #pragma unroll
        for (int j = 0; j < 10; ++j)
          #pragma unroll
          for (int e = 0; e < 4; ++e)
            t14[0][(e / 2)] = fc::max(t14[0][(e / 2)], scores[0][j][e]);
        #pragma unroll
        for (int e = 0; e < 2; ++e) {
          t14[0][e] = fc::max(t14[0][e], fc::shuffle_xor(t14[0][e], 1));
          t14[0][e] = fc::max(t14[0][e], fc::shuffle_xor(t14[0][e], 2));
        }
        float new_max[1][2];
        // new_max = max(row_max, mul(t14, scale_log2))
        float decay[1][2];
        // decay = exp2(sub(row_max, new_max))
        float t15[1][2];
        // t15 = neg(new_max)
        #pragma unroll
        for (int e = 0; e < 2; ++e) {
          const float t16 = t14[0][e] * scale_log2;
          new_max[0][e] = fc::max(fc::lowest(), t16);
          const float t17 = fc::lowest() - new_max[0][e];
          decay[0][e] = fc::exp2(t17);
          t15[0][e] = -new_max[0][e];
        }
        float probs[1][10][4];
        // probs = exp2(fma(scores, scale_log2, t15))
        #pragma unroll
        for (int j = 0; j < 10; ++j) {
          #pragma unroll
          for (int e = 0; e < 4; ++e) {
            const float t18 = fc::fma(scores[0][j][e], scale_log2, t15[0][(e / 2)]);
            probs[0][j][e] = fc::exp2(t18);
          }
        }
        // reduce_sum = reduce_sum(probs, cols), each lane its partial
        #pragma unroll
        for (int e = 0; e < 2; ++e)
          row_sum[0][e] = 0.f;
        #pragma unroll
        for (int j = 0; j < 10; ++j)
          #pragma unroll
          for (int e = 0; e < 4; ++e)
            row_sum[0][(e / 2)] = row_sum[0][(e / 2)] + probs[0][j][e];
        // row_sum = fma(row_sum, decay, row_sum)
        #pragma unroll
        for (int e = 0; e < 2; ++e)
          row_sum[0][e] = fc::fma(0.f, decay[0][e], row_sum[0][e]);
        fc::u32 probs_operand[1][5][4];
        // probs_operand: probs as a left operand
        #pragma unroll
        for (int i = 0; i < 1; ++i)
          #pragma unroll
          for (int k = 0; k < 5; ++k)
            #pragma unroll
            for (int r = 0; r < 4; ++r)
              probs_operand[i][k][r] =
                  fc::pack<fc::bf16>(probs[i][2 * k + r / 2][r % 2 * 2], probs[i][2 * k + r / 2][r % 2 * 2 + 1]);
        // out = mul(out, decay)
        #pragma unroll
        for (int j = 0; j < 16; ++j)
          #pragma unroll
          for (int e = 0; e < 4; ++e)
            out[0][j][e] = 0.f * decay[0][(e / 2)];
        const int t19 = fc::max(fc::min(cols_full_end, t10), 0);

        // cols tiles of 80
        for (int cols_tile_2 = t10 - 1; cols_tile_2 >= t19; --cols_tile_2) {
          const int cols_begin_5 = cols_tile_2 * 80;
          fc::wait_phase(key_full + key_slot_2 * 8, key_phase_2);
          const fc::u32 key_2 = shared + 49152 + key_slot_2 * 20480;
          // scores = dot(query, transpose(key_2)), issued
          float scores_2[1][10][4];
          fc::pin(scores_2);
          fc::fence_products();
          {
            const fc::u64 a = fc::matrix(query + warp / 4 * 8192, 64, 0);
            const fc::u64 b = fc::matrix(key_2, 64, 0);
            fc::multiply_warpgroup<80, fc::bf16, 8, fc::along<64, 24576>, fc::along<64, 10240>>(scores_2[0], a, b, false);
          }
          fc::commit_products();
          fc::wait_phase(value_full + value_slot_2 * 8, value_phase_2);
          const fc::u32 value = shared + 90112 + value_slot_2 * 20480;
          // out = out + dot(probs_operand, value), issued
          fc::pin(out);
          fc::fence_products();
          {
            const fc::u64 b = fc::matrix(value, 64, 10240);
            fc::multiply_warpgroup<128, fc::bf16, 5, fc::across<64>>(out[0], probs_operand[0], b, true);
          }
          fc::commit_products();
          fc::wait_products<1>();
          fc::pin(scores_2);
          fc::arrive_if(thread % 128 == 0, key_empty + key_slot_2 * 8);
          if (++key_slot_2 == 2) {
            key_slot_2 = 0;
            key_phase_2 ^= 1;
          }
          int t20[1][2];
          // t20 = add(index(rows), t7)
          #pragma unroll
          for (int e = 0; e < 2; ++e)
            t20[0][e] = (rows_begin_2 + rows_lane + e * 8) + t7;
          // scores_2 = where(ge(sub(t20, thread_begin), thread_offset), scores_2, -inf)
          #pragma unroll
          for (int j = 0; j < 10; ++j) {
            #pragma unroll
            for (int e = 0; e < 4; ++e) {
              const int t21 = t20[0][(e / 2)] - (cols_begin_5 + cols_lane);
              const bool t22 = t21 >= (j * 8 + (e % 2));
              scores_2[0][j][e] = t22 ? scores_2[0][j][e] : -fc::infinity();
            }
          }
          // reduce_max = reduce_max(scores_2, cols)
          float t23[1][2];
          #pragma unroll
          for (int e = 0; e < 2; ++e)
            t23[0][e] = -fc::infinity();
          #pragma unroll
          for (int j = 0; j < 10; ++j)
            #pragma unroll
            for (int e = 0; e < 4; ++e)
              t23[0][(e / 2)] = fc::max(t23[0][(e / 2)], scores_2[0][j][e]);
          #pragma unroll
          for (int e = 0; e < 2; ++e) {
            t23[0][e] = fc::max(t23[0][e], fc::shuffle_xor(t23[0][e], 1));
            t23[0][e] = fc::max(t23[0][e], fc::shuffle_xor(t23[0][e], 2));
          }
          float new_max_2[1][2];
          // new_max_2 = max(row_max, mul(t23, scale_log2))
          float decay_2[1][2];
          // decay_2 = exp2(sub(row_max, new_max_2))
          float t24[1][2];
          // t24 = neg(new_max_2)
          #pragma unroll
          for (int e = 0; e < 2; ++e) {
            const float t25 = t23[0][e] * scale_log2;
            new_max_2[0][e] = fc::max(new_max[0][e], t25);
            const float t26 = new_max[0][e] - new_max_2[0][e];
            decay_2[0][e] = fc::exp2(t26);
            t24[0][e] = -new_max_2[0][e];
          }
          float probs_2[1][10][4];
          // probs_2 = exp2(fma(scores_2, scale_log2, t24))
          #pragma unroll
          for (int j = 0; j < 10; ++j) {
            #pragma unroll
            for (int e = 0; e < 4; ++e) {
              const float t27 = fc::fma(scores_2[0][j][e], scale_log2, t24[0][(e / 2)]);
              probs_2[0][j][e] = fc::exp2(t27);
            }
          }
          // reduce_sum = reduce_sum(probs_2, cols), each lane its partial
          float t28[1][2] = {};
          #pragma unroll
          for (int j = 0; j < 10; ++j)
            #pragma unroll
            for (int e = 0; e < 4; ++e)
              t28[0][(e / 2)] = t28[0][(e / 2)] + probs_2[0][j][e];
          // row_sum = fma(row_sum, decay_2, t28)
          #pragma unroll
          for (int e = 0; e < 2; ++e)
            row_sum[0][e] = fc::fma(row_sum[0][e], decay_2[0][e], t28[0][e]);
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
            for (int k = 0; k < 5; ++k)
              #pragma unroll
              for (int r = 0; r < 4; ++r)
                probs_operand[i][k][r] =
                    fc::pack<fc::bf16>(probs_2[i][2 * k + r / 2][r % 2 * 2], probs_2[i][2 * k + r / 2][r % 2 * 2 + 1]);
          // out = mul(out, decay_2)
          #pragma unroll
          for (int j = 0; j < 16; ++j)
            #pragma unroll
            for (int e = 0; e < 4; ++e)
              out[0][j][e] = out[0][j][e] * decay_2[0][(e / 2)];
          #pragma unroll
          for (int e = 0; e < 2; ++e)
            new_max[0][e] = new_max_2[0][e];
        }

        // cols tiles of 80
        for (int cols_tile_3 = t19 - 1; cols_tile_3 >= 0; --cols_tile_3) {
          fc::wait_phase(key_full + key_slot_2 * 8, key_phase_2);
          const fc::u32 key_3 = shared + 49152 + key_slot_2 * 20480;
          // scores = dot(query, transpose(key_3)), issued
          float scores_3[1][10][4];
          fc::pin(scores_3);
          fc::fence_products();
          {
            const fc::u64 a = fc::matrix(query + warp / 4 * 8192, 64, 0);
            const fc::u64 b = fc::matrix(key_3, 64, 0);
            fc::multiply_warpgroup<80, fc::bf16, 8, fc::along<64, 24576>, fc::along<64, 10240>>(scores_3[0], a, b, false);
          }
          fc::commit_products();
          fc::wait_phase(value_full + value_slot_2 * 8, value_phase_2);
          const fc::u32 value_2 = shared + 90112 + value_slot_2 * 20480;
          // out = out + dot(probs_operand, value_2), issued
          fc::pin(out);
          fc::fence_products();
          {
            const fc::u64 b = fc::matrix(value_2, 64, 10240);
            fc::multiply_warpgroup<128, fc::bf16, 5, fc::across<64>>(out[0], probs_operand[0], b, true);
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
          float t29[1][2];
          #pragma unroll
          for (int e = 0; e < 2; ++e)
            t29[0][e] = -fc::infinity();
          #pragma unroll
          for (int j = 0; j < 10; ++j)
            #pragma unroll
            for (int e = 0; e < 4; ++e)
              t29[0][(e / 2)] = fc::max(t29[0][(e / 2)], scores_3[0][j][e]);
          #pragma unroll
          for (int e = 0; e < 2; ++e) {
            t29[0][e] = fc::max(t29[0][e], fc::shuffle_xor(t29[0][e], 1));
            t29[0][e] = fc::max(t29[0][e], fc::shuffle_xor(t29[0][e], 2));
          }
          float new_max_3[1][2];
          // new_max_3 = max(row_max, mul(t29, scale_log2))
          float decay_3[1][2];
          // decay_3 = exp2(sub(row_max, new_max_3))
          float t30[1][2];
          // t30 = neg(new_max_3)
          #pragma unroll
          for (int e = 0; e < 2; ++e) {
            const float t31 = t29[0][e] * scale_log2;
            new_max_3[0][e] = fc::max(new_max[0][e], t31);
            const float t32 = new_max[0][e] - new_max_3[0][e];
            decay_3[0][e] = fc::exp2(t32);
            t30[0][e] = -new_max_3[0][e];
          }
          float probs_3[1][10][4];
          // probs_3 = exp2(fma(scores_3, scale_log2, t30))
          #pragma unroll
          for (int j = 0; j < 10; ++j) {
            #pragma unroll
            for (int e = 0; e < 4; ++e) {
              const float t33 = fc::fma(scores_3[0][j][e], scale_log2, t30[0][(e / 2)]);
              probs_3[0][j][e] = fc::exp2(t33);
            }
          }
          // reduce_sum = reduce_sum(probs_3, cols), each lane its partial
          float t34[1][2] = {};
          #pragma unroll
          for (int j = 0; j < 10; ++j)
            #pragma unroll
            for (int e = 0; e < 4; ++e)
              t34[0][(e / 2)] = t34[0][(e / 2)] + probs_3[0][j][e];
          // row_sum = fma(row_sum, decay_3, t34)
          #pragma unroll
          for (int e = 0; e < 2; ++e)
            row_sum[0][e] = fc::fma(row_sum[0][e], decay_3[0][e], t34[0][e]);
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
            for (int k = 0; k < 5; ++k)
              #pragma unroll
              for (int r = 0; r < 4; ++r)
                probs_operand[i][k][r] =
                    fc::pack<fc::bf16>(probs_3[i][2 * k + r / 2][r % 2 * 2], probs_3[i][2 * k + r / 2][r % 2 * 2 + 1]);
          // out = mul(out, decay_3)
          #pragma unroll
          for (int j = 0; j < 16; ++j)
            #pragma unroll
            for (int e = 0; e < 4; ++e)
              out[0][j][e] = out[0][j][e] * decay_3[0][(e / 2)];
          #pragma unroll
          for (int e = 0; e < 2; ++e)
            new_max[0][e] = new_max_3[0][e];
        }
        fc::arrive_if(thread % 128 == 0, query_empty);
        query_phase_2 ^= 1;
        fc::wait_phase(value_full + value_slot_2 * 8, value_phase_2);
        const fc::u32 value_3 = shared + 90112 + value_slot_2 * 20480;
        // out = out + dot(probs_operand, value_3), issued
        fc::pin(out);
        fc::fence_products();
        {
          const fc::u64 b = fc::matrix(value_3, 64, 10240);
          fc::multiply_warpgroup<128, fc::bf16, 5, fc::across<64>>(out[0], probs_operand[0], b, true);
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
        for (int j = 0; j < 16; ++j)
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
        const float t35 = fc::divide(1.f, row_sum[0][e]);
        inverse[0][e] = empty ? 0.f : t35;
      }
      float t36[1][16][4];
      // t36 = cast(mul(out, inverse))
      #pragma unroll
      for (int j = 0; j < 16; ++j) {
        #pragma unroll
        for (int e = 0; e < 4; ++e) {
          const float t37 = out[0][j][e] * inverse[0][(e / 2)];
          t36[0][j][e] = t37;
        }
      }
      fc::bf16* const o_at = p.o + batch_2 * p.o_stride_0 + head_2 * p.o_stride_1;
      // store o = t36, each lane 8 columns
      #pragma unroll
      for (int r = 0; r < 2; ++r) {
        const int row = rows_begin_2 + rows_lane + r * 8;
        fc::bf16* const line = o_at + row * p.o_stride_2 + 0;
        #pragma unroll
        for (int j = 0; j < 4; ++j) {
          fc::u32 word[4];
          #pragma unroll
          for (int n = 0; n < 4; ++n)
            word[n] = fc::pack<fc::bf16>(t36[0][j * 4 + n][2 * r], t36[0][j * 4 + n][2 * r + 1]);
          fc::transpose_quad(word, lane);
          const int column = j * 32 + lane % 4 * 8;
          if (row >= 0) {
            fc::store_chunk(line + column, fc::chunk{{word[0], word[1], word[2], word[3]}});
          }
        }
      }
    }
  }
}
