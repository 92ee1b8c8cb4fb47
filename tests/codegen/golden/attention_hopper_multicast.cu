struct Parameters {
  fc::tensor_map k_tiles;  // of 88 x 64
  fc::tensor_map q_tiles;  // of 128 x 64
  fc::tensor_map v_tiles;  // of 88 x 64
  fc::bf16* o;
  fc::i64 o_stride_0, o_stride_1, o_stride_2;  // elements
  int B;
  int H;
  int Sq;
  int Sk;
  float scale;
};

extern "C" __global__ void __cluster_dims__(2, 1, 1) __launch_bounds__(384, 1)
attention_forward(const __grid_constant__ Parameters p) {
  const int rank = fc::block_x() % 2;
  const int thread = fc::thread_index(), lane = thread % 32, warp = fc::uniform(thread / 32);
  const fc::u32 shared = fc::shared_base();
  const int rows_lane = warp % 8 * 16 + lane / 4;
  const int dv_lane = lane % 4 * 2;
  const int cols_lane = lane % 4 * 2;
  // where a ring's slots say that they are full, and that they are empty
  const fc::u32 query_full = shared + 213024, query_empty = shared + 213032;
  const fc::u32 key_full = shared + 212992, key_empty = shared + 213008;
  const fc::u32 value_full = shared + 213040, value_empty = shared + 213056;
  const fc::u32 other_block = fc::cluster_address(shared, rank ^ 1) - shared;
  if (thread == 0) {
    fc::prefetch_map(p.k_tiles);
    fc::prefetch_map(p.q_tiles);
    fc::prefetch_map(p.v_tiles);
    fc::init_mbarrier(query_full, 1);
    fc::init_mbarrier(query_empty, 2);
    for (int slot = 0; slot < 2; ++slot) {
      fc::init_mbarrier(key_full + slot * 8, 1);
      fc::init_mbarrier(key_empty + slot * 8, 4);
    }
    for (int slot = 0; slot < 2; ++slot) {
      fc::init_mbarrier(value_full + slot * 8, 1);
      fc::init_mbarrier(value_empty + slot * 8, 4);
    }
    fc::publish_mbarriers();
  }
  fc::arrive_at_cluster();
  fc::wait_cluster();
  fc::wait_for_kernels();
  fc::launch_dependents();

  if (warp >= 8) {
    fc::shrink_registers<24>();
    if (thread == 256) {
      int key_slot = 0, key_phase = 0;
      int query_phase = 0;
      int value_slot = 0, value_phase = 0;
      const int cluster_count = ((((((p.Sq + 127) / 128) + 2) - 1) / 2) * p.H) * p.B;
      // tiles of all blocks, every other wave of blocks backwards
      int in_wave = fc::grid_x() / 2 - 1 - fc::block_x() / 2;
      for (int first = 0; first < cluster_count; first += fc::grid_x() / 2) {
        in_wave = fc::grid_x() / 2 - 1 - in_wave;
        if (first + in_wave >= cluster_count) break;
        const fc::u32 divisor = (((((p.Sq + 127) / 128) + 2) - 1) / 2);
        const int t0 = (first + in_wave) % divisor;
        const int t1 = (first + in_wave) / divisor;
        const fc::u32 divisor_2 = p.H;
        const int head = t1 % divisor_2;
        const int batch = t1 / divisor_2;
        const int rows_tile = (t0 * 2) + rank;
        const int rows_begin = rows_tile * 128;
        const int t2 = fc::min((fc::floor_div((p.Sk + -1), 176) + 1), ((p.Sk + 175) / 176));
        const int cols_end = fc::max(0, t2);
        const int t3 = cols_end - 1;
        const bool t4 = t3 >= 0;
        if (t4) {
          const int cols_begin = t3 * 176;
          fc::wait_phase(key_empty + key_slot * 8, key_phase ^ 1);
          // key <- k
          fc::arrive_expect_tx(key_full + key_slot * 8, 45056);
          fc::load_box_for_cluster(shared + 32768 + key_slot * 45056 + rank * 11264, p.k_tiles, key_full + key_slot * 8, 0, cols_begin + rank * 88, head, batch);
          fc::load_box_for_cluster(shared + 32768 + key_slot * 45056 + 22528 + rank * 11264, p.k_tiles, key_full + key_slot * 8, 64, cols_begin + rank * 88, head, batch);
          if (++key_slot == 2) {
            key_slot = 0;
            key_phase ^= 1;
          }
        }
        fc::wait_phase(query_empty, query_phase ^ 1);
        // query <- q
        fc::arrive_expect_tx(query_full, 32768);
        fc::load_box(shared, p.q_tiles, query_full, 0, rows_begin, head, batch);
        fc::load_box(shared + 16384, p.q_tiles, query_full, 64, rows_begin, head, batch);
        query_phase ^= 1;
        if (t4) {
          const int cols_begin_2 = t3 * 176;
          fc::wait_phase(value_empty + value_slot * 8, value_phase ^ 1);
          // value <- v
          fc::arrive_expect_tx(value_full + value_slot * 8, 45056);
          fc::load_box_for_cluster(shared + 122880 + value_slot * 45056 + rank * 11264, p.v_tiles, value_full + value_slot * 8, 0, cols_begin_2 + rank * 88, head, batch);
          fc::load_box_for_cluster(shared + 122880 + value_slot * 45056 + 22528 + rank * 11264, p.v_tiles, value_full + value_slot * 8, 64, cols_begin_2 + rank * 88, head, batch);
          if (++value_slot == 2) {
            value_slot = 0;
            value_phase ^= 1;
          }

          // cols tiles of 176
          #pragma unroll 1
          for (int cols_tile = t3 - 1; cols_tile >= 0; --cols_tile) {
            const int cols_begin_3 = cols_tile * 176;
            fc::wait_phase(key_empty + key_slot * 8, key_phase ^ 1);
            // key <- k
            fc::arrive_expect_tx(key_full + key_slot * 8, 45056);
            fc::load_box_for_cluster(shared + 32768 + key_slot * 45056 + rank * 11264, p.k_tiles, key_full + key_slot * 8, 0, cols_begin_3 + rank * 88, head, batch);
            fc::load_box_for_cluster(shared + 32768 + key_slot * 45056 + 22528 + rank * 11264, p.k_tiles, key_full + key_slot * 8, 64, cols_begin_3 + rank * 88, head, batch);
            if (++key_slot == 2) {
              key_slot = 0;
              key_phase ^= 1;
            }
            fc::wait_phase(value_empty + value_slot * 8, value_phase ^ 1);
            // value <- v
            fc::arrive_expect_tx(value_full + value_slot * 8, 45056);
            fc::load_box_for_cluster(shared + 122880 + value_slot * 45056 + rank * 11264, p.v_tiles, value_full + value_slot * 8, 0, cols_begin_3 + rank * 88, head, batch);
            fc::load_box_for_cluster(shared + 122880 + value_slot * 45056 + 22528 + rank * 11264, p.v_tiles, value_full + value_slot * 8, 64, cols_begin_3 + rank * 88, head, batch);
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
    fc::grow_registers<240>();
    int query_phase_2 = 0;
    int key_slot_2 = 0, key_phase_2 = 0;
    int value_slot_2 = 0, value_phase_2 = 0;
    if (warp / 4 == 1) fc::signal(5, 256);
    const int cluster_count_2 = ((((((p.Sq + 127) / 128) + 2) - 1) / 2) * p.H) * p.B;
    // tiles of all blocks, every other wave of blocks backwards
    int in_wave_2 = fc::grid_x() / 2 - 1 - fc::block_x() / 2;
    for (int first_2 = 0; first_2 < cluster_count_2; first_2 += fc::grid_x() / 2) {
      in_wave_2 = fc::grid_x() / 2 - 1 - in_wave_2;
      if (first_2 + in_wave_2 >= cluster_count_2) break;
      const fc::u32 divisor_3 = (((((p.Sq + 127) / 128) + 2) - 1) / 2);
      const int t5 = (first_2 + in_wave_2) % divisor_3;
      const int t6 = (first_2 + in_wave_2) / divisor_3;
      const fc::u32 divisor_4 = p.H;
      const int head_2 = t6 % divisor_4;
      const int batch_2 = t6 / divisor_4;
      const int rows_tile_2 = (t5 * 2) + rank;
      const int rows_begin_2 = rows_tile_2 * 128;
      const float scale_log2 = p.scale * 1.442695f;
      const int t7 = p.Sk + -1;
      const int t8 = fc::min((fc::floor_div(t7, 176) + 1), ((p.Sk + 175) / 176));
      const int cols_end_2 = fc::max(0, t8);
      const int t9 = fc::max((fc::floor_div((t7 + -175), 176) + 1), (cols_end_2 - 1));
      const int cols_full_end = fc::max(0, fc::min(t9, cols_end_2));
      fc::wait_phase(query_full, query_phase_2);
      const fc::u32 query = shared;
      const int t10 = cols_end_2 - 1;
      float row_sum[1][2];
      float out[1][16][4];
      if (t10 >= 0) {
        const int cols_begin_4 = t10 * 176;
        fc::wait_phase(key_full + key_slot_2 * 8, key_phase_2);
        const fc::u32 key = shared + 32768 + key_slot_2 * 45056;
        // scores = dot(query, transpose(key)), issued
        float scores[1][22][4];
        fc::pin(scores);
        fc::fence_products();
        {
          const fc::u64 a = fc::matrix(query + warp / 4 * 8192, 64, 0);
          const fc::u64 b = fc::matrix(key, 64, 0);
          fc::multiply_warpgroup<176, fc::bf16, 8, fc::along<64, 16384>, fc::along<64, 22528>>(scores[0], a, b, false);
        }
        fc::commit_products();
        fc::wait_products<0>();
        fc::pin(scores);
        fc::arrive_in_both_if(thread % 128 == 0, key_empty + key_slot_2 * 8, other_block);
        if (++key_slot_2 == 2) {
          key_slot_2 = 0;
          key_phase_2 ^= 1;
        }
        const bool masked = t10 >= cols_full_end;
        if (masked) {
          bool t11[22][2];
          // t11 = lt(thread_offset, sub(extent(cols), thread_begin))
          #pragma unroll
          for (int i = 0; i < 22; ++i) {
            #pragma unroll
            for (int e = 0; e < 2; ++e) {
              const int t12 = p.Sk - (cols_begin_4 + cols_lane);
              t11[i][e] = (i * 8 + e) < t12;
            }
          }
          // scores = where(t11, scores, -inf)
          #pragma unroll
          for (int j = 0; j < 22; ++j)
            #pragma unroll
            for (int e = 0; e < 4; ++e)
              scores[0][j][e] = t11[j][(e % 2)] ? scores[0][j][e] : -fc::infinity();
        }
        // reduce_max = reduce_max(scores, cols)
        float t13[1][2];
        #pragma unroll
        for (int e = 0; e < 2; ++e)
          t13[0][e] = -fc::infinity();
        #pragma unroll
        for (int j = 0; j < 22; ++j)
          #pragma unroll
          for (int e = 0; e < 4; ++e)
            t13[0][(e / 2)] = fc::max(t13[0][(e / 2)], scores[0][j][e]);
        #pragma unroll
        for (int e = 0; e < 2; ++e) {
          t13[0][e] = fc::max(t13[0][e], fc::shuffle_xor(t13[0][e], 1));
          t13[0][e] = fc::max(t13[0][e], fc::shuffle_xor(t13[0][e], 2));
        }
        float new_max[1][2];
        // new_max = max(row_max, mul(t13, scale_log2))
        float decay[1][2];
        // decay = exp2(sub(row_max, new_max))
        float t14[1][2];
        // t14 = neg(new_max)
        #pragma unroll
        for (int e = 0; e < 2; ++e) {
          const float t15 = t13[0][e] * scale_log2;
          new_max[0][e] = fc::max(fc::lowest(), t15);
          const float t16 = fc::lowest() - new_max[0][e];
          decay[0][e] = fc::exp2(t16);
          t14[0][e] = -new_max[0][e];
        }
        float probs[1][22][4];
        // probs = exp2(fma(scores, scale_log2, t14))
        #pragma unroll
        for (int j = 0; j < 22; ++j) {
          #pragma unroll
          for (int e = 0; e < 4; ++e) {
            const float t17 = fc::fma(scores[0][j][e], scale_log2, t14[0][(e / 2)]);
            probs[0][j][e] = fc::exp2(t17);
          }
        }
        // reduce_sum = reduce_sum(probs, cols), each lane its partial
        #pragma unroll
        for (int e = 0; e < 2; ++e)
          row_sum[0][e] = 0.f;
        #pragma unroll
        for (int j = 0; j < 22; ++j)
          #pragma unroll
          for (int e = 0; e < 4; ++e)
            row_sum[0][(e / 2)] = row_sum[0][(e / 2)] + probs[0][j][e];
        // row_sum = fma(row_sum, decay, row_sum)
        #pragma unroll
        for (int e = 0; e < 2; ++e)
          row_sum[0][e] = fc::fma(0.f, decay[0][e], row_sum[0][e]);
        fc::u32 probs_operand[1][11][4];
        // probs_operand: probs as a left operand
        #pragma unroll
        for (int i = 0; i < 1; ++i)
          #pragma unroll
          for (int k = 0; k < 11; ++k)
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

        // cols tiles of 176
        for (int cols_tile_2 = t10 - 1; cols_tile_2 >= 0; --cols_tile_2) {
          fc::wait_phase(key_full + key_slot_2 * 8, key_phase_2);
          const fc::u32 key_2 = shared + 32768 + key_slot_2 * 45056;
          fc::meet(5 + warp / 4, 256);
          // scores = dot(query, transpose(key_2)), issued
          float scores_2[1][22][4];
          fc::pin(scores_2);
          fc::fence_products();
          {
            const fc::u64 a = fc::matrix(query + warp / 4 * 8192, 64, 0);
            const fc::u64 b = fc::matrix(key_2, 64, 0);
            fc::multiply_warpgroup<176, fc::bf16, 8, fc::along<64, 16384>, fc::along<64, 22528>>(scores_2[0], a, b, false);
          }
          fc::commit_products();
          fc::wait_phase(value_full + value_slot_2 * 8, value_phase_2);
          const fc::u32 value = shared + 122880 + value_slot_2 * 45056;
          // out = out + dot(probs_operand, value), issued
          fc::pin(out);
          fc::fence_products();
          {
            const fc::u64 b = fc::matrix(value, 64, 22528);
            fc::multiply_warpgroup<128, fc::bf16, 11, fc::across<64>>(out[0], probs_operand[0], b, true);
          }
          fc::commit_products();
          fc::signal(5 + (warp / 4 + 1) % 2, 256);
          fc::wait_products<1>();
          fc::pin(scores_2);
          fc::arrive_in_both_if(thread % 128 == 0, key_empty + key_slot_2 * 8, other_block);
          if (++key_slot_2 == 2) {
            key_slot_2 = 0;
            key_phase_2 ^= 1;
          }
          // reduce_max = reduce_max(scores_2, cols)
          float t18[1][2];
          #pragma unroll
          for (int e = 0; e < 2; ++e)
            t18[0][e] = -fc::infinity();
          #pragma unroll
          for (int j = 0; j < 22; ++j)
            #pragma unroll
            for (int e = 0; e < 4; ++e)
              t18[0][(e / 2)] = fc::max(t18[0][(e / 2)], scores_2[0][j][e]);
          #pragma unroll
          for (int e = 0; e < 2; ++e) {
            t18[0][e] = fc::max(t18[0][e], fc::shuffle_xor(t18[0][e], 1));
            t18[0][e] = fc::max(t18[0][e], fc::shuffle_xor(t18[0][e], 2));
          }
          float new_max_2[1][2];
          // new_max_2 = max(row_max, mul(t18, scale_log2))
          float decay_2[1][2];
          // decay_2 = exp2(sub(row_max, new_max_2))
          float t19[1][2];
          // t19 = neg(new_max_2)
          #pragma unroll
          for (int e = 0; e < 2; ++e) {
            const float t20 = t18[0][e] * scale_log2;
            new_max_2[0][e] = fc::max(new_max[0][e], t20);
            const float t21 = new_max[0][e] - new_max_2[0][e];
            decay_2[0][e] = fc::exp2(t21);
            t19[0][e] = -new_max_2[0][e];
          }
          float probs_2[1][22][4];
          // probs_2 = exp2(fma(scores_2, scale_log2, t19))
          #pragma unroll
          for (int j = 0; j < 22; ++j) {
            #pragma unroll
            for (int e = 0; e < 4; ++e) {
              const float t22 = fc::fma(scores_2[0][j][e], scale_log2, t19[0][(e / 2)]);
              probs_2[0][j][e] = fc::exp2(t22);
            }
          }
          // reduce_sum = reduce_sum(probs_2, cols), each lane its partial
          float t23[1][2] = {};
          #pragma unroll
          for (int j = 0; j < 22; ++j)
            #pragma unroll
            for (int e = 0; e < 4; ++e)
              t23[0][(e / 2)] = t23[0][(e / 2)] + probs_2[0][j][e];
          // row_sum = fma(row_sum, decay_2, t23)
          #pragma unroll
          for (int e = 0; e < 2; ++e)
            row_sum[0][e] = fc::fma(row_sum[0][e], decay_2[0][e], t23[0][e]);
          fc::wait_products<0>();
          fc::pin(out);
          fc::arrive_in_both_if(thread % 128 == 0, value_empty + value_slot_2 * 8, other_block);
          if (++value_slot_2 == 2) {
            value_slot_2 = 0;
            value_phase_2 ^= 1;
          }
          // probs_operand: probs_2 as a left operand
          #pragma unroll
          for (int i = 0; i < 1; ++i)
            #pragma unroll
            for (int k = 0; k < 11; ++k)
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
        fc::arrive_if(thread % 128 == 0, query_empty);
        query_phase_2 ^= 1;
        fc::wait_phase(value_full + value_slot_2 * 8, value_phase_2);
        const fc::u32 value_2 = shared + 122880 + value_slot_2 * 45056;
        // out = out + dot(probs_operand, value_2), issued
        fc::pin(out);
        fc::fence_products();
        {
          const fc::u64 b = fc::matrix(value_2, 64, 22528);
          fc::multiply_warpgroup<128, fc::bf16, 11, fc::across<64>>(out[0], probs_operand[0], b, true);
        }
        fc::commit_products();
        fc::wait_products<0>();
        fc::pin(out);
        fc::arrive_in_both_if(thread % 128 == 0, value_empty + value_slot_2 * 8, other_block);
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
        const float t24 = fc::divide(1.f, row_sum[0][e]);
        inverse[0][e] = empty ? 0.f : t24;
      }
      float t25[1][16][4];
      // t25 = cast(mul(out, inverse))
      #pragma unroll
      for (int j = 0; j < 16; ++j) {
        #pragma unroll
        for (int e = 0; e < 4; ++e) {
          const float t26 = out[0][j][e] * inverse[0][(e / 2)];
          t25[0][j][e] = t26;
        }
      }
      fc::bf16* const o_at = p.o + batch_2 * p.o_stride_0 + head_2 * p.o_stride_1;
      // store o = t25, each lane 8 columns
      #pragma unroll
      for (int r = 0; r < 2; ++r) {
        const int row = rows_begin_2 + rows_lane + r * 8;
        fc::bf16* const line = o_at + row * p.o_stride_2 + 0;
        #pragma unroll
        for (int j = 0; j < 4; ++j) {
          fc::u32 word[4];
          #pragma unroll
          for (int n = 0; n < 4; ++n)
            word[n] = fc::pack<fc::bf16>(t25[0][j * 4 + n][2 * r], t25[0][j * 4 + n][2 * r + 1]);
          fc::transpose_quad(word, lane);
          const int column = j * 32 + lane % 4 * 8;
          if (row < p.Sq) {
            fc::store_chunk(line + column, fc::chunk{{word[0], word[1], word[2], word[3]}});
          }
        }
      }
    }
    if (warp / 4 == 0) fc::meet(5, 256);
    fc::arrive_at_cluster();
    fc::wait_cluster();
  }
}
