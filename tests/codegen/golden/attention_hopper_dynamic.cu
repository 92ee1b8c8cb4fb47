struct Parameters {
  fc::tensor_map k_tiles;  // of 64 x 64
  fc::tensor_map q_tiles;  // of 128 x 64
  fc::tensor_map v_tiles;  // of 64 x 64
  fc::tensor_map o_tiles;  // of 64 x 64
  int B;
  int H;
  int Sq;
  int Sk;
  float scale;
  int tile_counter;
};

extern "C" __global__ void __launch_bounds__(384, 1)
attention_forward(const __grid_constant__ Parameters p) {
  const int thread = fc::thread_index(), lane = thread % 32, warp = fc::uniform(thread / 32);
  const fc::u32 shared = fc::shared_base();
  const int rows_lane = warp % 8 * 16 + lane / 4;
  const int dv_lane = lane % 4 * 2;
  const int cols_lane = lane % 4 * 2;
  // where a ring's slots say that they are full, and that they are empty
  const fc::u32 query_full = shared + 65624, query_empty = shared + 65632;
  const fc::u32 key_full = shared + 65592, key_empty = shared + 65608;
  const fc::u32 value_full = shared + 65640, value_empty = shared + 65656;
  const fc::u32 tile_numbers_full = shared + 65672, tile_numbers_empty = shared + 65688;
  const fc::u32 tile_positions_full = shared + 65536, tile_positions_empty = shared + 65552;
  if (thread == 0) {
    fc::prefetch_map(p.k_tiles);
    fc::prefetch_map(p.q_tiles);
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
      fc::init_mbarrier(tile_numbers_full + slot * 8, 1);
      fc::init_mbarrier(tile_numbers_empty + slot * 8, 256);
    }
    for (int slot = 0; slot < 2; ++slot) {
      fc::init_mbarrier(tile_positions_full + slot * 8, 1);
      fc::init_mbarrier(tile_positions_empty + slot * 8, 256);
    }
    fc::publish_mbarriers();
  }
  fc::barrier();
  fc::wait_for_kernels();
  fc::launch_dependents();

  if (warp >= 8) {
    fc::shrink_registers<24>();
    if (thread == 256) {
      int tile_positions_slot = 0, tile_positions_phase = 0;
      int key_slot = 0, key_phase = 0;
      int query_phase = 0;
      int value_slot = 0, value_phase = 0;
      int tile_numbers_slot = 0, tile_numbers_phase = 0;
      const int block_count = (p.H * p.B) * ((p.Sq + 127) / 128);
      const int positions = p.H * p.B;
      const int t0 = fc::min(positions, (16777216 / (fc::max(1, p.Sk) * 256)));
      const int most_of_group = fc::max(1, t0);
      const int t1 = fc::max(1, (positions / most_of_group));
      const int group = fc::max(1, (((positions + t1) - 1) / t1));
      const int last_group = fc::max(0, ((((positions + group) - 1) / group) - 2));
      const int group_tiles = group * ((p.Sq + 127) / 128);
      // tiles of all blocks, each the next that no other block has
      for (int tile = fc::block_x(); tile < block_count;) {
        const fc::u32 divisor = group_tiles;
        const int whole_groups = tile / divisor;
        const int which_group = fc::min(whole_groups, last_group);
        const int first_position = which_group * group;
        const int positions_here = (which_group == last_group) ? (positions - first_position) : group;
        const int tile_of_group = tile - (which_group * group_tiles);
        const fc::u32 divisor_2 = positions_here;
        const int t2 = tile_of_group % divisor_2;
        const int t3 = tile_of_group / divisor_2;
        const int position = first_position + t2;
        const bool t4 = !(p.tile_counter != 0) && ((which_group & 1) != 0);
        const int row_of_group = t4 ? ((((p.Sq + 127) / 128) - 1) - t3) : t3;
        const fc::u32 divisor_3 = p.H;
        const int head = position % divisor_3;
        const int batch = position / divisor_3;
        const int rows_tile = (((p.Sq + 127) / 128) - 1) - row_of_group;
        const int rows_begin = rows_tile * 128;
        fc::wait_phase(tile_positions_empty + tile_positions_slot * 8, tile_positions_phase ^ 1);
        fc::store_shared(shared + 65568 + tile_positions_slot * 12, static_cast<fc::u32>(head));
        fc::store_shared(shared + 65568 + tile_positions_slot * 12 + 4, static_cast<fc::u32>(batch));
        fc::store_shared(shared + 65568 + tile_positions_slot * 12 + 8, static_cast<fc::u32>(rows_tile));
        fc::arrive(tile_positions_full + tile_positions_slot * 8);
        if (++tile_positions_slot == 2) {
          tile_positions_slot = 0;
          tile_positions_phase ^= 1;
        }
        const int t5 = (fc::min((rows_begin + 128), p.Sq) - 1) - p.Sq;
        const int t6 = fc::min((((t5 + p.Sk) >> 6) + 1), ((p.Sk + 63) / 64));
        const int cols_end = fc::max(0, t6);
        const int t7 = cols_end - 1;
        const bool t8 = t7 >= 0;
        if (t8) {
          const int cols_begin = t7 * 64;
          fc::wait_phase(key_empty + key_slot * 8, key_phase ^ 1);
          // key <- k
          fc::arrive_expect_tx(key_full + key_slot * 8, 8192);
          fc::load_box(shared + 16384 + key_slot * 8192, p.k_tiles, key_full + key_slot * 8, 0, cols_begin, head, batch);
          if (++key_slot == 2) {
            key_slot = 0;
            key_phase ^= 1;
          }
        }
        fc::wait_phase(query_empty, query_phase ^ 1);
        // query <- q
        fc::arrive_expect_tx(query_full, 16384);
        fc::load_box(shared, p.q_tiles, query_full, 0, rows_begin, head, batch);
        query_phase ^= 1;
        if (t8) {
          const int cols_begin_2 = t7 * 64;
          fc::wait_phase(value_empty + value_slot * 8, value_phase ^ 1);
          // value <- v
          fc::arrive_expect_tx(value_full + value_slot * 8, 8192);
          fc::load_box(shared + 32768 + value_slot * 8192, p.v_tiles, value_full + value_slot * 8, 0, cols_begin_2, head, batch);
          if (++value_slot == 2) {
            value_slot = 0;
            value_phase ^= 1;
          }

          // cols tiles of 64
          #pragma unroll 1
          for (int cols_tile = t7 - 1; cols_tile >= 0; --cols_tile) {
            const int cols_begin_3 = cols_tile * 64;
            fc::wait_phase(key_empty + key_slot * 8, key_phase ^ 1);
            // key <- k
            fc::arrive_expect_tx(key_full + key_slot * 8, 8192);
            fc::load_box(shared + 16384 + key_slot * 8192, p.k_tiles, key_full + key_slot * 8, 0, cols_begin_3, head, batch);
            if (++key_slot == 2) {
              key_slot = 0;
              key_phase ^= 1;
            }
            fc::wait_phase(value_empty + value_slot * 8, value_phase ^ 1);
            // value <- v
            fc::arrive_expect_tx(value_full + value_slot * 8, 8192);
            fc::load_box(shared + 32768 + value_slot * 8192, p.v_tiles, value_full + value_slot * 8, 0, cols_begin_3, head, batch);
            if (++value_slot == 2) {
              value_slot = 0;
              value_phase ^= 1;
            }
          }
        }
        tile = fc::next_tile(p.tile_counter, tile, block_count, fc::grid_x());
        fc::wait_phase(tile_numbers_empty + tile_numbers_slot * 8, tile_numbers_phase ^ 1);
        fc::store_shared(shared + 65704 + tile_numbers_slot * 4, static_cast<fc::u32>(tile));
        fc::arrive(tile_numbers_full + tile_numbers_slot * 8);
        if (++tile_numbers_slot == 2) {
          tile_numbers_slot = 0;
          tile_numbers_phase ^= 1;
        }
      }
    }
  }
  else {
    fc::grow_registers<240>();
    int tile_positions_slot_2 = 0, tile_positions_phase_2 = 0;
    int query_phase_2 = 0;
    int key_slot_2 = 0, key_phase_2 = 0;
    int value_slot_2 = 0, value_phase_2 = 0;
    int tile_numbers_slot_2 = 0, tile_numbers_phase_2 = 0;
    if (warp / 4 == 1) fc::signal(5, 256);
    const int block_count_2 = (p.H * p.B) * ((p.Sq + 127) / 128);
    // tiles of all blocks, each the next that no other block has
    for (int tile_2 = fc::block_x(); tile_2 < block_count_2;) {
      fc::wait_phase(tile_positions_full + tile_positions_slot_2 * 8, tile_positions_phase_2);
      const int head_2 = fc::uniform(static_cast<int>(fc::load_shared_word(shared + 65568 + tile_positions_slot_2 * 12)));
      const int batch_2 = fc::uniform(static_cast<int>(fc::load_shared_word(shared + 65568 + tile_positions_slot_2 * 12 + 4)));
      const int rows_tile_2 = fc::uniform(static_cast<int>(fc::load_shared_word(shared + 65568 + tile_positions_slot_2 * 12 + 8)));
      fc::arrive(tile_positions_empty + tile_positions_slot_2 * 8);
      if (++tile_positions_slot_2 == 2) {
        tile_positions_slot_2 = 0;
        tile_positions_phase_2 ^= 1;
      }
      const int rows_begin_2 = rows_tile_2 * 128;
      const float scale_log2 = p.scale * 1.442695f;
      const int t9 = p.Sk - p.Sq;
      const int t10 = (fc::min((rows_begin_2 + 128), p.Sq) - 1) - p.Sq;
      const int t11 = ((((rows_begin_2 - p.Sq) + p.Sk) + -63) >> 6) + 1;
      const int t12 = fc::min((((t10 + p.Sk) >> 6) + 1), ((p.Sk + 63) / 64));
      const int cols_end_2 = fc::max(0, t12);
      const int cols_full_end = fc::max(0, fc::min(t11, cols_end_2));
      fc::wait_phase(query_full, query_phase_2);
      const fc::u32 query = shared;
      const int t13 = cols_end_2 - 1;
      float row_sum[1][2];
      float out[1][8][4];
      if (t13 >= 0) {
        const int cols_begin_4 = t13 * 64;
        fc::wait_phase(key_full + key_slot_2 * 8, key_phase_2);
        const fc::u32 key = shared + 16384 + key_slot_2 * 8192;
        // scores = dot(query, transpose(key)), issued
        float scores[1][8][4];
        fc::pin(scores);
        fc::fence_products();
        {
          const fc::u64 a = fc::matrix(query + warp / 4 * 8192, 64, 0);
          const fc::u64 b = fc::matrix(key, 64, 0);
          fc::multiply_warpgroup<64, fc::bf16, 4, fc::along<64, 16384>, fc::along<64, 8192>>(scores[0], a, b, false);
        }
        fc::commit_products();
        fc::wait_products<0>();
        fc::pin(scores);
        fc::arrive_if(thread % 128 == 0, key_empty + key_slot_2 * 8);
        if (++key_slot_2 == 2) {
          key_slot_2 = 0;
          key_phase_2 ^= 1;
        }
        const bool masked = t13 >= cols_full_end;
        if (masked) {
          int t14[1][2];
          // t14 = add(index(rows), t9)
          #pragma unroll
          for (int e = 0; e < 2; ++e)
            t14[0][e] = (rows_begin_2 + rows_lane + e * 8) + t9;
          // scores = where(ge(sub(t14, thread_begin), thread_offset), scores, -inf)
          #pragma unroll
          for (int j = 0; j < 8; ++j) {
            #pragma unroll
            for (int e = 0; e < 4; ++e) {
              const int t15 = t14[0][(e / 2)] - (cols_begin_4 + cols_lane);
              const bool t16 = t15 >= (j * 8 + (e % 2));
              scores[0][j][e] = t16 ? scores[0][j][e] : -fc::infinity();
            }
          }
        }
        // reduce_max = reduce_max(scores, cols)
        float t17[1][2];
        #pragma unroll
        for (int e = 0; e < 2; ++e)
          t17[0][e] = -fc::infinity();
        #pragma unroll
        for (int j = 0; j < 8; ++j)
          #pragma unroll
          for (int e = 0; e < 4; ++e)
            t17[0][(e / 2)] = fc::max(t17[0][(e / 2)], scores[0][j][e]);
        #pragma unroll
        for (int e = 0; e < 2; ++e) {
          t17[0][e] = fc::max(t17[0][e], fc::shuffle_xor(t17[0][e], 1));
          t17[0][e] = fc::max(t17[0][e], fc::shuffle_xor(t17[0][e], 2));
        }
        float new_max[1][2];
        // new_max = max(row_max, mul(t17, scale_log2))
        float decay[1][2];
        // decay = exp2(sub(row_max, new_max))
        float t18[1][2];
        // t18 = neg(new_max)
        #pragma unroll
        for (int e = 0; e < 2; ++e) {
          const float t19 = t17[0][e] * scale_log2;
          new_max[0][e] = fc::max(fc::lowest(), t19);
          const float t20 = fc::lowest() - new_max[0][e];
          decay[0][e] = fc::exp2(t20);
          t18[0][e] = -new_max[0][e];
        }
        float probs[1][8][4];
        // probs = exp2(fma(scores, scale_log2, t18))
        #pragma unroll
        for (int j = 0; j < 8; ++j) {
          #pragma unroll
          for (int e = 0; e < 4; ++e) {
            const float t21 = fc::fma(scores[0][j][e], scale_log2, t18[0][(e / 2)]);
            probs[0][j][e] = fc::exp2(t21);
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
        for (int cols_tile_2 = t13 - 1; cols_tile_2 >= 0; --cols_tile_2) {
          const int cols_begin_5 = cols_tile_2 * 64;
          fc::wait_phase(key_full + key_slot_2 * 8, key_phase_2);
          const fc::u32 key_2 = shared + 16384 + key_slot_2 * 8192;
          fc::meet(5 + warp / 4, 256);
          // scores = dot(query, transpose(key_2)), issued
          float scores_2[1][8][4];
          fc::pin(scores_2);
          fc::fence_products();
          {
            const fc::u64 a = fc::matrix(query + warp / 4 * 8192, 64, 0);
            const fc::u64 b = fc::matrix(key_2, 64, 0);
            fc::multiply_warpgroup<64, fc::bf16, 4, fc::along<64, 16384>, fc::along<64, 8192>>(scores_2[0], a, b, false);
          }
          fc::commit_products();
          fc::wait_phase(value_full + value_slot_2 * 8, value_phase_2);
          const fc::u32 value = shared + 32768 + value_slot_2 * 8192;
          // out = out + dot(probs_operand, value), issued
          fc::pin(out);
          fc::fence_products();
          {
            const fc::u64 b = fc::matrix(value, 64, 0);
            fc::multiply_warpgroup<64, fc::bf16, 4, fc::across<64>>(out[0], probs_operand[0], b, true);
          }
          fc::commit_products();
          fc::signal(5 + (warp / 4 + 1) % 2, 256);
          fc::wait_products<1>();
          fc::pin(scores_2);
          fc::arrive_if(thread % 128 == 0, key_empty + key_slot_2 * 8);
          if (++key_slot_2 == 2) {
            key_slot_2 = 0;
            key_phase_2 ^= 1;
          }
          const bool masked_2 = cols_tile_2 >= cols_full_end;
          if (masked_2) {
            int t22[1][2];
            // t22 = add(index(rows), t9)
            #pragma unroll
            for (int e = 0; e < 2; ++e)
              t22[0][e] = (rows_begin_2 + rows_lane + e * 8) + t9;
            // scores_2 = where(ge(sub(t22, thread_begin), thread_offset), scores_2, -inf)
            #pragma unroll
            for (int j = 0; j < 8; ++j) {
              #pragma unroll
              for (int e = 0; e < 4; ++e) {
                const int t23 = t22[0][(e / 2)] - (cols_begin_5 + cols_lane);
                const bool t24 = t23 >= (j * 8 + (e % 2));
                scores_2[0][j][e] = t24 ? scores_2[0][j][e] : -fc::infinity();
              }
            }
          }
          // reduce_max = reduce_max(scores_2, cols)
          float t25[1][2];
          #pragma unroll
          for (int e = 0; e < 2; ++e)
            t25[0][e] = -fc::infinity();
          #pragma unroll
          for (int j = 0; j < 8; ++j)
            #pragma unroll
            for (int e = 0; e < 4; ++e)
              t25[0][(e / 2)] = fc::max(t25[0][(e / 2)], scores_2[0][j][e]);
          #pragma unroll
          for (int e = 0; e < 2; ++e) {
            t25[0][e] = fc::max(t25[0][e], fc::shuffle_xor(t25[0][e], 1));
            t25[0][e] = fc::max(t25[0][e], fc::shuffle_xor(t25[0][e], 2));
          }
          float new_max_2[1][2];
          // new_max_2 = max(row_max, mul(t25, scale_log2))
          float decay_2[1][2];
          // decay_2 = exp2(sub(row_max, new_max_2))
          float t26[1][2];
          // t26 = neg(new_max_2)
          #pragma unroll
          for (int e = 0; e < 2; ++e) {
            const float t27 = t25[0][e] * scale_log2;
            new_max_2[0][e] = fc::max(new_max[0][e], t27);
            const float t28 = new_max[0][e] - new_max_2[0][e];
            decay_2[0][e] = fc::exp2(t28);
            t26[0][e] = -new_max_2[0][e];
          }
          float probs_2[1][8][4];
          // probs_2 = exp2(fma(scores_2, scale_log2, t26))
          #pragma unroll
          for (int j = 0; j < 8; ++j) {
            #pragma unroll
            for (int e = 0; e < 4; ++e) {
              const float t29 = fc::fma(scores_2[0][j][e], scale_log2, t26[0][(e / 2)]);
              probs_2[0][j][e] = fc::exp2(t29);
            }
          }
          // reduce_sum = reduce_sum(probs_2, cols), each lane its partial
          float t30[1][2] = {};
          #pragma unroll
          for (int j = 0; j < 8; ++j)
            #pragma unroll
            for (int e = 0; e < 4; ++e)
              t30[0][(e / 2)] = t30[0][(e / 2)] + probs_2[0][j][e];
          // row_sum = fma(row_sum, decay_2, t30)
          #pragma unroll
          for (int e = 0; e < 2; ++e)
            row_sum[0][e] = fc::fma(row_sum[0][e], decay_2[0][e], t30[0][e]);
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
        const fc::u32 value_2 = shared + 32768 + value_slot_2 * 8192;
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
        const float t31 = fc::divide(1.f, row_sum[0][e]);
        inverse[0][e] = empty ? 0.f : t31;
      }
      float t32[1][8][4];
      // t32 = cast(mul(out, inverse))
      #pragma unroll
      for (int j = 0; j < 8; ++j) {
        #pragma unroll
        for (int e = 0; e < 4; ++e) {
          const float t33 = out[0][j][e] * inverse[0][(e / 2)];
          t32[0][j][e] = t33;
        }
      }
      if (thread % 128 == 0) fc::wait_stores_read<0>();
      fc::meet(1 + warp / 4, 128);
      // t32 in shared memory
      const fc::u32 o_staged = shared + 49152;
      #pragma unroll
      for (int i = 0; i < 1; ++i)
        #pragma unroll
        for (int j = 0; j < 8; ++j)
          #pragma unroll
          for (int r = 0; r < 2; ++r)
            fc::store_shared(o_staged + fc::chunk_offset<128, 64>(rows_lane + i * 16 + r * 8, j * 8) + lane % 4 * 4,
                             fc::pack<fc::bf16>(t32[i][j][2 * r], t32[i][j][2 * r + 1]));
      fc::fence_async();
      fc::meet(1 + warp / 4, 128);
      // store o
      if (thread % 128 == 0) {
        fc::store_box(p.o_tiles, o_staged + warp / 4 * 8192, 0, rows_begin_2 + warp / 4 * 64, head_2, batch_2);
        fc::commit_stores();
      }
      fc::wait_phase(tile_numbers_full + tile_numbers_slot_2 * 8, tile_numbers_phase_2);
      const int next_tile = fc::uniform(static_cast<int>(fc::load_shared_word(shared + 65704 + tile_numbers_slot_2 * 4)));
      fc::arrive(tile_numbers_empty + tile_numbers_slot_2 * 8);
      if (++tile_numbers_slot_2 == 2) {
        tile_numbers_slot_2 = 0;
        tile_numbers_phase_2 ^= 1;
      }
      tile_2 = next_tile;
    }
    if (warp / 4 == 0) fc::meet(5, 256);
    if (thread % 128 == 0) fc::wait_stores_read<0>();
  }
}
