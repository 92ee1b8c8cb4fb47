struct Parameters {
  fc::tensor_map k_tiles;  // of 40 x 64
  fc::tensor_map q_tiles;  // of 128 x 64
  fc::tensor_map v_tiles;  // of 40 x 64
  fc::bf16* o;
  fc::i64 o_stride_0, o_stride_1, o_stride_2;  // elements
  int B;
  int H;
  int Sq;
  int Sk;
  float scale;
  int tile_counter;
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
  const fc::u32 query_full = shared + 229464, query_empty = shared + 229472;
  const fc::u32 key_full = shared + 229432, key_empty = shared + 229448;
  const fc::u32 value_full = shared + 229480, value_empty = shared + 229496;
  const fc::u32 tile_numbers_full = shared + 229536, tile_numbers_empty = shared + 229552;
  const fc::u32 cluster_numbers_full = shared + 229512, cluster_numbers_empty = shared + 229520;
  const fc::u32 tile_positions_full = shared + 229376, tile_positions_empty = shared + 229392;
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
    for (int slot = 0; slot < 2; ++slot) {
      fc::init_mbarrier(tile_numbers_full + slot * 8, 1);
      fc::init_mbarrier(tile_numbers_empty + slot * 8, 256);
    }
    fc::init_mbarrier(cluster_numbers_full, 1);
    fc::init_mbarrier(cluster_numbers_empty, 2);
    for (int slot = 0; slot < 2; ++slot) {
      fc::init_mbarrier(tile_positions_full + slot * 8, 1);
      fc::init_mbarrier(tile_positions_empty + slot * 8, 256);
    }
    fc::publish_mbarriers();
  }
  fc::arrive_at_cluster();
  fc::wait_cluster();
  fc::wait_for_kernels();
  fc::launch_dependents();

  if (warp >= 8) {
    fc::shrink_registers<40>();
    if (thread == 256) {
      int tile_positions_slot = 0, tile_positions_phase = 0;
      int key_slot = 0, key_phase = 0;
      int query_phase = 0;
      int value_slot = 0, value_phase = 0;
      int cluster_numbers_phase = 0;
      int tile_numbers_slot = 0, tile_numbers_phase = 0;
      const int cluster_count = (p.H * p.B) * (((((p.Sq + 127) / 128) + 2) - 1) / 2);
      const int positions = p.H * p.B;
      const int t0 = fc::min(positions, (16777216 / (fc::max(1, p.Sk) * 1024)));
      const int most_of_group = fc::max(1, t0);
      const int t1 = fc::max(1, (positions / most_of_group));
      const int group = fc::max(1, (((positions + t1) - 1) / t1));
      const int last_group = fc::max(0, ((((positions + group) - 1) / group) - 2));
      const int group_tiles = group * (((((p.Sq + 127) / 128) + 2) - 1) / 2);
      // tiles of all blocks, each the next that no other block has
      for (int tile = fc::block_x() / 2; tile < cluster_count;) {
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
        const int t5 = ((((((p.Sq + 127) / 128) + 2) - 1) / 2) - 1) - t3;
        const int row_of_group = t4 ? t5 : t3;
        const fc::u32 divisor_3 = p.H;
        const int head = position % divisor_3;
        const int batch = position / divisor_3;
        const int t6 = ((((((p.Sq + 127) / 128) + 2) - 1) / 2) - 1) - row_of_group;
        const int rows_tile = (t6 * 2) + rank;
        const int rows_begin = rows_tile * 128;
        fc::wait_phase(tile_positions_empty + tile_positions_slot * 8, tile_positions_phase ^ 1);
        fc::store_shared(shared + 229408 + tile_positions_slot * 12, static_cast<fc::u32>(head));
        fc::store_shared(shared + 229408 + tile_positions_slot * 12 + 4, static_cast<fc::u32>(batch));
        fc::store_shared(shared + 229408 + tile_positions_slot * 12 + 8, static_cast<fc::u32>(rows_tile));
        fc::arrive(tile_positions_full + tile_positions_slot * 8);
        if (++tile_positions_slot == 2) {
          tile_positions_slot = 0;
          tile_positions_phase ^= 1;
        }
        const int t7 = (fc::min((rows_begin + 128), p.Sq) - 1) - p.Sq;
        const int t8 = fc::min((fc::floor_div((t7 + p.Sk), 80) + 1), ((p.Sk + 79) / 80));
        const int cols_end = fc::max(0, t8);
        const int t9 = (((rows_begin / 256) * 512) + 128) - rows_begin;
        const int t10 = ((fc::min((t9 + 128), p.Sq) - 1) - p.Sq) + p.Sk;
        const int t11 = fc::min((fc::floor_div(t10, 80) + 1), ((p.Sk + 79) / 80));
        const int t12 = fc::max(cols_end, fc::max(0, t11)) - 1;
        const bool t13 = t12 >= 0;
        if (t13) {
          const int cols_begin = t12 * 80;
          fc::wait_phase(key_empty + key_slot * 8, key_phase ^ 1);
          // key <- k
          fc::arrive_expect_tx(key_full + key_slot * 8, 40960);
          fc::load_box_for_cluster(shared + 65536 + key_slot * 40960 + rank * 5120, p.k_tiles, key_full + key_slot * 8, 0, cols_begin + rank * 40, head, batch);
          fc::load_box_for_cluster(shared + 65536 + key_slot * 40960 + 10240 + rank * 5120, p.k_tiles, key_full + key_slot * 8, 64, cols_begin + rank * 40, head, batch);
          fc::load_box_for_cluster(shared + 65536 + key_slot * 40960 + 20480 + rank * 5120, p.k_tiles, key_full + key_slot * 8, 128, cols_begin + rank * 40, head, batch);
          fc::load_box_for_cluster(shared + 65536 + key_slot * 40960 + 30720 + rank * 5120, p.k_tiles, key_full + key_slot * 8, 192, cols_begin + rank * 40, head, batch);
          if (++key_slot == 2) {
            key_slot = 0;
            key_phase ^= 1;
          }
        }
        fc::wait_phase(query_empty, query_phase ^ 1);
        // query <- q
        fc::arrive_expect_tx(query_full, 65536);
        fc::load_box(shared, p.q_tiles, query_full, 0, rows_begin, head, batch);
        fc::load_box(shared + 16384, p.q_tiles, query_full, 64, rows_begin, head, batch);
        fc::load_box(shared + 32768, p.q_tiles, query_full, 128, rows_begin, head, batch);
        fc::load_box(shared + 49152, p.q_tiles, query_full, 192, rows_begin, head, batch);
        query_phase ^= 1;
        if (t13) {
          const int cols_begin_2 = t12 * 80;
          fc::wait_phase(value_empty + value_slot * 8, value_phase ^ 1);
          // value <- v
          fc::arrive_expect_tx(value_full + value_slot * 8, 40960);
          fc::load_box_for_cluster(shared + 147456 + value_slot * 40960 + rank * 5120, p.v_tiles, value_full + value_slot * 8, 0, cols_begin_2 + rank * 40, head, batch);
          fc::load_box_for_cluster(shared + 147456 + value_slot * 40960 + 10240 + rank * 5120, p.v_tiles, value_full + value_slot * 8, 64, cols_begin_2 + rank * 40, head, batch);
          fc::load_box_for_cluster(shared + 147456 + value_slot * 40960 + 20480 + rank * 5120, p.v_tiles, value_full + value_slot * 8, 128, cols_begin_2 + rank * 40, head, batch);
          fc::load_box_for_cluster(shared + 147456 + value_slot * 40960 + 30720 + rank * 5120, p.v_tiles, value_full + value_slot * 8, 192, cols_begin_2 + rank * 40, head, batch);
          if (++value_slot == 2) {
            value_slot = 0;
            value_phase ^= 1;
          }

          // cols tiles of 80
          #pragma unroll 1
          for (int cols_tile = t12 - 1; cols_tile >= 0; --cols_tile) {
            const int cols_begin_3 = cols_tile * 80;
            fc::wait_phase(key_empty + key_slot * 8, key_phase ^ 1);
            // key <- k
            fc::arrive_expect_tx(key_full + key_slot * 8, 40960);
            fc::load_box_for_cluster(shared + 65536 + key_slot * 40960 + rank * 5120, p.k_tiles, key_full + key_slot * 8, 0, cols_begin_3 + rank * 40, head, batch);
            fc::load_box_for_cluster(shared + 65536 + key_slot * 40960 + 10240 + rank * 5120, p.k_tiles, key_full + key_slot * 8, 64, cols_begin_3 + rank * 40, head, batch);
            fc::load_box_for_cluster(shared + 65536 + key_slot * 40960 + 20480 + rank * 5120, p.k_tiles, key_full + key_slot * 8, 128, cols_begin_3 + rank * 40, head, batch);
            fc::load_box_for_cluster(shared + 65536 + key_slot * 40960 + 30720 + rank * 5120, p.k_tiles, key_full + key_slot * 8, 192, cols_begin_3 + rank * 40, head, batch);
            if (++key_slot == 2) {
              key_slot = 0;
              key_phase ^= 1;
            }
            fc::wait_phase(value_empty + value_slot * 8, value_phase ^ 1);
            // value <- v
            fc::arrive_expect_tx(value_full + value_slot * 8, 40960);
            fc::load_box_for_cluster(shared + 147456 + value_slot * 40960 + rank * 5120, p.v_tiles, value_full + value_slot * 8, 0, cols_begin_3 + rank * 40, head, batch);
            fc::load_box_for_cluster(shared + 147456 + value_slot * 40960 + 10240 + rank * 5120, p.v_tiles, value_full + value_slot * 8, 64, cols_begin_3 + rank * 40, head, batch);
            fc::load_box_for_cluster(shared + 147456 + value_slot * 40960 + 20480 + rank * 5120, p.v_tiles, value_full + value_slot * 8, 128, cols_begin_3 + rank * 40, head, batch);
            fc::load_box_for_cluster(shared + 147456 + value_slot * 40960 + 30720 + rank * 5120, p.v_tiles, value_full + value_slot * 8, 192, cols_begin_3 + rank * 40, head, batch);
            if (++value_slot == 2) {
              value_slot = 0;
              value_phase ^= 1;
            }
          }
        }
        if (rank == 0) {
          tile = fc::next_tile(p.tile_counter, tile, cluster_count, fc::grid_x() / 2);
          fc::wait_phase(cluster_numbers_empty, cluster_numbers_phase ^ 1);
          fc::store_in_both(shared + 229528, static_cast<fc::u32>(tile), other_block);
          fc::publish_in_both(cluster_numbers_full, other_block);
        }
        fc::wait_published(cluster_numbers_full, cluster_numbers_phase);
        const int next_tile = static_cast<int>(fc::load_published(shared + 229528));
        fc::arrive_in_first(cluster_numbers_empty);
        cluster_numbers_phase ^= 1;
        fc::wait_phase(tile_numbers_empty + tile_numbers_slot * 8, tile_numbers_phase ^ 1);
        fc::store_shared(shared + 229568 + tile_numbers_slot * 4, static_cast<fc::u32>(next_tile));
        fc::arrive(tile_numbers_full + tile_numbers_slot * 8);
        if (++tile_numbers_slot == 2) {
          tile_numbers_slot = 0;
          tile_numbers_phase ^= 1;
        }
        tile = next_tile;
      }
    }
  }
  else {
    fc::grow_registers<232>();
    int tile_positions_slot_2 = 0, tile_positions_phase_2 = 0;
    int query_phase_2 = 0;
    int key_slot_2 = 0, key_phase_2 = 0;
    int value_slot_2 = 0, value_phase_2 = 0;
    int tile_numbers_slot_2 = 0, tile_numbers_phase_2 = 0;
    const int cluster_count_2 = (p.H * p.B) * (((((p.Sq + 127) / 128) + 2) - 1) / 2);
    // tiles of all blocks, each the next that no other block has
    for (int tile_2 = fc::block_x() / 2; tile_2 < cluster_count_2;) {
      fc::wait_phase(tile_positions_full + tile_positions_slot_2 * 8, tile_positions_phase_2);
      const int head_2 = fc::uniform(static_cast<int>(fc::load_shared_word(shared + 229408 + tile_positions_slot_2 * 12)));
      const int batch_2 = fc::uniform(static_cast<int>(fc::load_shared_word(shared + 229408 + tile_positions_slot_2 * 12 + 4)));
      const int rows_tile_2 = fc::uniform(static_cast<int>(fc::load_shared_word(shared + 229408 + tile_positions_slot_2 * 12 + 8)));
      fc::arrive(tile_positions_empty + tile_positions_slot_2 * 8);
      if (++tile_positions_slot_2 == 2) {
        tile_positions_slot_2 = 0;
        tile_positions_phase_2 ^= 1;
      }
      const int rows_begin_2 = rows_tile_2 * 128;
      const float scale_log2 = p.scale * 1.442695f;
      const int t14 = p.Sk - p.Sq;
      const int t15 = (fc::min((rows_begin_2 + 128), p.Sq) - 1) - p.Sq;
      const int t16 = fc::floor_div((((rows_begin_2 - p.Sq) + p.Sk) + -79), 80);
      const int t17 = fc::min((fc::floor_div((t15 + p.Sk), 80) + 1), ((p.Sk + 79) / 80));
      const int cols_end_2 = fc::max(0, t17);
      const int cols_full_end = fc::max(0, fc::min((t16 + 1), cols_end_2));
      const int t18 = (((rows_begin_2 / 256) * 512) + 128) - rows_begin_2;
      const int t19 = ((fc::min((t18 + 128), p.Sq) - 1) - p.Sq) + p.Sk;
      const int t20 = fc::min((fc::floor_div(t19, 80) + 1), ((p.Sk + 79) / 80));
      fc::wait_phase(query_full, query_phase_2);
      const fc::u32 query = shared;

      for (int tile_3 = cols_end_2; tile_3 < fc::max(cols_end_2, fc::max(0, t20)); ++tile_3) {
        fc::wait_phase(key_full + key_slot_2 * 8, key_phase_2);
        const fc::u32 key = shared + 65536 + key_slot_2 * 40960;
        fc::meet(1 + warp / 4, 128);
        fc::arrive_in_both_if(thread % 128 == 0, key_empty + key_slot_2 * 8, other_block);
        if (++key_slot_2 == 2) {
          key_slot_2 = 0;
          key_phase_2 ^= 1;
        }
        fc::wait_phase(value_full + value_slot_2 * 8, value_phase_2);
        const fc::u32 value = shared + 147456 + value_slot_2 * 40960;
        fc::meet(1 + warp / 4, 128);
        fc::arrive_in_both_if(thread % 128 == 0, value_empty + value_slot_2 * 8, other_block);
        if (++value_slot_2 == 2) {
          value_slot_2 = 0;
          value_phase_2 ^= 1;
        }
      }
      const int t21 = cols_end_2 - 1;
      float row_sum[1][2];
      float out[1][32][4];
      if (t21 >= 0) {
        const int cols_begin_4 = t21 * 80;
        fc::wait_phase(key_full + key_slot_2 * 8, key_phase_2);
        const fc::u32 key_2 = shared + 65536 + key_slot_2 * 40960;
        // scores = dot(query, transpose(key_2)), issued
        float scores[1][10][4];
        fc::pin(scores);
        fc::fence_products();
        {
          const fc::u64 a = fc::matrix(query + warp / 4 * 8192, 64, 0);
          const fc::u64 b = fc::matrix(key_2, 64, 0);
          fc::multiply_warpgroup<80, fc::bf16, 16, fc::along<64, 16384>, fc::along<64, 10240>>(scores[0], a, b, false);
        }
        fc::commit_products();
        fc::wait_products<0>();
        fc::pin(scores);
        fc::arrive_in_both_if(thread % 128 == 0, key_empty + key_slot_2 * 8, other_block);
        if (++key_slot_2 == 2) {
          key_slot_2 = 0;
          key_phase_2 ^= 1;
        }
        const bool masked = t21 >= cols_full_end;
        if (masked) {
          int t22[1][2];
          // t22 = add(index(rows), t14)
          #pragma unroll
          for (int e = 0; e < 2; ++e)
            t22[0][e] = (rows_begin_2 + rows_lane + e * 8) + t14;
          // scores = where(ge(sub(t22, thread_begin), thread_offset), scores, -inf)
          #pragma unroll
          for (int j = 0; j < 10; ++j) {
            #pragma unroll
            for (int e = 0; e < 4; ++e) {
              const int t23 = t22[0][(e / 2)] - (cols_begin_4 + cols_lane);
              const bool t24 = t23 >= (j * 8 + (e % 2));
              scores[0][j][e] = t24 ? scores[0][j][e] : -fc::infinity();
            }
          }
        }
        // reduce_max = reduce_max(scores, cols)
        float t25[1][2];
        #pragma unroll
        for (int e = 0; e < 2; ++e)
          t25[0][e] = -fc::infinity();
        #pragma unroll
        for (int j = 0; j < 10; ++j)
          #pragma unroll
          for (int e = 0; e < 4; ++e)
            t25[0][(e / 2)] = fc::max(t25[0][(e / 2)], scores[0][j][e]);
        #pragma unroll
        for (int e = 0; e < 2; ++e) {
          t25[0][e] = fc::max(t25[0][e], fc::shuffle_xor(t25[0][e], 1));
          t25[0][e] = fc::max(t25[0][e], fc::shuffle_xor(t25[0][e], 2));
        }
        float new_max[1][2];
        // new_max = max(row_max, mul(t25, scale_log2))
        float decay[1][2];
        // decay = exp2(sub(row_max, new_max))
        float t26[1][2];
        // t26 = neg(new_max)
        #pragma unroll
        for (int e = 0; e < 2; ++e) {
          const float t27 = t25[0][e] * scale_log2;
          new_max[0][e] = fc::max(fc::lowest(), t27);
          const float t28 = fc::lowest() - new_max[0][e];
          decay[0][e] = fc::exp2(t28);
          t26[0][e] = -new_max[0][e];
        }
        float probs[1][10][4];
        // probs = exp2(fma(scores, scale_log2, t26))
        #pragma unroll
        for (int j = 0; j < 10; ++j) {
          #pragma unroll
          for (int e = 0; e < 4; ++e) {
            const float t29 = fc::fma(scores[0][j][e], scale_log2, t26[0][(e / 2)]);
            probs[0][j][e] = fc::exp2(t29);
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
        for (int j = 0; j < 32; ++j)
          #pragma unroll
          for (int e = 0; e < 4; ++e)
            out[0][j][e] = 0.f * decay[0][(e / 2)];
        const int t30 = fc::max(fc::min(cols_full_end, t21), 0);

        // cols tiles of 80
        for (int cols_tile_2 = t21 - 1; cols_tile_2 >= t30; --cols_tile_2) {
          const int cols_begin_5 = cols_tile_2 * 80;
          fc::wait_phase(key_full + key_slot_2 * 8, key_phase_2);
          const fc::u32 key_3 = shared + 65536 + key_slot_2 * 40960;
          // scores = dot(query, transpose(key_3)), issued
          float scores_2[1][10][4];
          fc::pin(scores_2);
          fc::fence_products();
          {
            const fc::u64 a = fc::matrix(query + warp / 4 * 8192, 64, 0);
            const fc::u64 b = fc::matrix(key_3, 64, 0);
            fc::multiply_warpgroup<80, fc::bf16, 16, fc::along<64, 16384>, fc::along<64, 10240>>(scores_2[0], a, b, false);
          }
          fc::commit_products();
          fc::wait_phase(value_full + value_slot_2 * 8, value_phase_2);
          const fc::u32 value_2 = shared + 147456 + value_slot_2 * 40960;
          // out = out + dot(probs_operand, value_2), issued
          fc::pin(out);
          fc::fence_products();
          {
            const fc::u64 b = fc::matrix(value_2, 64, 10240);
            fc::multiply_warpgroup<256, fc::bf16, 5, fc::across<64>>(out[0], probs_operand[0], b, true);
          }
          fc::commit_products();
          fc::wait_products<1>();
          fc::pin(scores_2);
          fc::arrive_in_both_if(thread % 128 == 0, key_empty + key_slot_2 * 8, other_block);
          if (++key_slot_2 == 2) {
            key_slot_2 = 0;
            key_phase_2 ^= 1;
          }
          int t31[1][2];
          // t31 = add(index(rows), t14)
          #pragma unroll
          for (int e = 0; e < 2; ++e)
            t31[0][e] = (rows_begin_2 + rows_lane + e * 8) + t14;
          // scores_2 = where(ge(sub(t31, thread_begin), thread_offset), scores_2, -inf)
          #pragma unroll
          for (int j = 0; j < 10; ++j) {
            #pragma unroll
            for (int e = 0; e < 4; ++e) {
              const int t32 = t31[0][(e / 2)] - (cols_begin_5 + cols_lane);
              const bool t33 = t32 >= (j * 8 + (e % 2));
              scores_2[0][j][e] = t33 ? scores_2[0][j][e] : -fc::infinity();
            }
          }
          // reduce_max = reduce_max(scores_2, cols)
          float t34[1][2];
          #pragma unroll
          for (int e = 0; e < 2; ++e)
            t34[0][e] = -fc::infinity();
          #pragma unroll
          for (int j = 0; j < 10; ++j)
            #pragma unroll
            for (int e = 0; e < 4; ++e)
              t34[0][(e / 2)] = fc::max(t34[0][(e / 2)], scores_2[0][j][e]);
          #pragma unroll
          for (int e = 0; e < 2; ++e) {
            t34[0][e] = fc::max(t34[0][e], fc::shuffle_xor(t34[0][e], 1));
            t34[0][e] = fc::max(t34[0][e], fc::shuffle_xor(t34[0][e], 2));
          }
          float new_max_2[1][2];
          // new_max_2 = max(row_max, mul(t34, scale_log2))
          float decay_2[1][2];
          // decay_2 = exp2(sub(row_max, new_max_2))
          float t35[1][2];
          // t35 = neg(new_max_2)
          #pragma unroll
          for (int e = 0; e < 2; ++e) {
            const float t36 = t34[0][e] * scale_log2;
            new_max_2[0][e] = fc::max(new_max[0][e], t36);
            const float t37 = new_max[0][e] - new_max_2[0][e];
            decay_2[0][e] = fc::exp2(t37);
            t35[0][e] = -new_max_2[0][e];
          }
          float probs_2[1][10][4];
          // probs_2 = exp2(fma(scores_2, scale_log2, t35))
          #pragma unroll
          for (int j = 0; j < 10; ++j) {
            #pragma unroll
            for (int e = 0; e < 4; ++e) {
              const float t38 = fc::fma(scores_2[0][j][e], scale_log2, t35[0][(e / 2)]);
              probs_2[0][j][e] = fc::exp2(t38);
            }
          }
          // reduce_sum = reduce_sum(probs_2, cols), each lane its partial
          float t39[1][2] = {};
          #pragma unroll
          for (int j = 0; j < 10; ++j)
            #pragma unroll
            for (int e = 0; e < 4; ++e)
              t39[0][(e / 2)] = t39[0][(e / 2)] + probs_2[0][j][e];
          // row_sum = fma(row_sum, decay_2, t39)
          #pragma unroll
          for (int e = 0; e < 2; ++e)
            row_sum[0][e] = fc::fma(row_sum[0][e], decay_2[0][e], t39[0][e]);
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
            for (int k = 0; k < 5; ++k)
              #pragma unroll
              for (int r = 0; r < 4; ++r)
                probs_operand[i][k][r] =
                    fc::pack<fc::bf16>(probs_2[i][2 * k + r / 2][r % 2 * 2], probs_2[i][2 * k + r / 2][r % 2 * 2 + 1]);
          // out = mul(out, decay_2)
          #pragma unroll
          for (int j = 0; j < 32; ++j)
            #pragma unroll
            for (int e = 0; e < 4; ++e)
              out[0][j][e] = out[0][j][e] * decay_2[0][(e / 2)];
          #pragma unroll
          for (int e = 0; e < 2; ++e)
            new_max[0][e] = new_max_2[0][e];
        }

        // cols tiles of 80
        for (int cols_tile_3 = t30 - 1; cols_tile_3 >= 0; --cols_tile_3) {
          fc::wait_phase(key_full + key_slot_2 * 8, key_phase_2);
          const fc::u32 key_4 = shared + 65536 + key_slot_2 * 40960;
          // scores = dot(query, transpose(key_4)), issued
          float scores_3[1][10][4];
          fc::pin(scores_3);
          fc::fence_products();
          {
            const fc::u64 a = fc::matrix(query + warp / 4 * 8192, 64, 0);
            const fc::u64 b = fc::matrix(key_4, 64, 0);
            fc::multiply_warpgroup<80, fc::bf16, 16, fc::along<64, 16384>, fc::along<64, 10240>>(scores_3[0], a, b, false);
          }
          fc::commit_products();
          fc::wait_phase(value_full + value_slot_2 * 8, value_phase_2);
          const fc::u32 value_3 = shared + 147456 + value_slot_2 * 40960;
          // out = out + dot(probs_operand, value_3), issued
          fc::pin(out);
          fc::fence_products();
          {
            const fc::u64 b = fc::matrix(value_3, 64, 10240);
            fc::multiply_warpgroup<256, fc::bf16, 5, fc::across<64>>(out[0], probs_operand[0], b, true);
          }
          fc::commit_products();
          fc::wait_products<1>();
          fc::pin(scores_3);
          fc::arrive_in_both_if(thread % 128 == 0, key_empty + key_slot_2 * 8, other_block);
          if (++key_slot_2 == 2) {
            key_slot_2 = 0;
            key_phase_2 ^= 1;
          }
          // reduce_max = reduce_max(scores_3, cols)
          float t40[1][2];
          #pragma unroll
          for (int e = 0; e < 2; ++e)
            t40[0][e] = -fc::infinity();
          #pragma unroll
          for (int j = 0; j < 10; ++j)
            #pragma unroll
            for (int e = 0; e < 4; ++e)
              t40[0][(e / 2)] = fc::max(t40[0][(e / 2)], scores_3[0][j][e]);
          #pragma unroll
          for (int e = 0; e < 2; ++e) {
            t40[0][e] = fc::max(t40[0][e], fc::shuffle_xor(t40[0][e], 1));
            t40[0][e] = fc::max(t40[0][e], fc::shuffle_xor(t40[0][e], 2));
          }
          float new_max_3[1][2];
          // new_max_3 = max(row_max, mul(t40, scale_log2))
          float decay_3[1][2];
          // decay_3 = exp2(sub(row_max, new_max_3))
          float t41[1][2];
          // t41 = neg(new_max_3)
          #pragma unroll
          for (int e = 0; e < 2; ++e) {
            const float t42 = t40[0][e] * scale_log2;
            new_max_3[0][e] = fc::max(new_max[0][e], t42);
            const float t43 = new_max[0][e] - new_max_3[0][e];
            decay_3[0][e] = fc::exp2(t43);
            t41[0][e] = -new_max_3[0][e];
          }
          float probs_3[1][10][4];
          // probs_3 = exp2(fma(scores_3, scale_log2, t41))
          #pragma unroll
          for (int j = 0; j < 10; ++j) {
            #pragma unroll
            for (int e = 0; e < 4; ++e) {
              const float t44 = fc::fma(scores_3[0][j][e], scale_log2, t41[0][(e / 2)]);
              probs_3[0][j][e] = fc::exp2(t44);
            }
          }
          // reduce_sum = reduce_sum(probs_3, cols), each lane its partial
          float t45[1][2] = {};
          #pragma unroll
          for (int j = 0; j < 10; ++j)
            #pragma unroll
            for (int e = 0; e < 4; ++e)
              t45[0][(e / 2)] = t45[0][(e / 2)] + probs_3[0][j][e];
          // row_sum = fma(row_sum, decay_3, t45)
          #pragma unroll
          for (int e = 0; e < 2; ++e)
            row_sum[0][e] = fc::fma(row_sum[0][e], decay_3[0][e], t45[0][e]);
          fc::wait_products<0>();
          fc::pin(out);
          fc::arrive_in_both_if(thread % 128 == 0, value_empty + value_slot_2 * 8, other_block);
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
          for (int j = 0; j < 32; ++j)
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
        const fc::u32 value_4 = shared + 147456 + value_slot_2 * 40960;
        // out = out + dot(probs_operand, value_4), issued
        fc::pin(out);
        fc::fence_products();
        {
          const fc::u64 b = fc::matrix(value_4, 64, 10240);
          fc::multiply_warpgroup<256, fc::bf16, 5, fc::across<64>>(out[0], probs_operand[0], b, true);
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
        for (int j = 0; j < 32; ++j)
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
        const float t46 = fc::divide(1.f, row_sum[0][e]);
        inverse[0][e] = empty ? 0.f : t46;
      }
      float t47[1][32][4];
      // t47 = cast(mul(out, inverse))
      #pragma unroll
      for (int j = 0; j < 32; ++j) {
        #pragma unroll
        for (int e = 0; e < 4; ++e) {
          const float t48 = out[0][j][e] * inverse[0][(e / 2)];
          t47[0][j][e] = t48;
        }
      }
      fc::bf16* const o_at = p.o + batch_2 * p.o_stride_0 + head_2 * p.o_stride_1;
      // store o = t47, each lane 8 columns
      #pragma unroll
      for (int r = 0; r < 2; ++r) {
        const int row = rows_begin_2 + rows_lane + r * 8;
        fc::bf16* const line = o_at + row * p.o_stride_2 + 0;
        #pragma unroll
        for (int j = 0; j < 8; ++j) {
          fc::u32 word[4];
          #pragma unroll
          for (int n = 0; n < 4; ++n)
            word[n] = fc::pack<fc::bf16>(t47[0][j * 4 + n][2 * r], t47[0][j * 4 + n][2 * r + 1]);
          fc::transpose_quad(word, lane);
          const int column = j * 32 + lane % 4 * 8;
          if (row < p.Sq) {
            fc::store_chunk(line + column, fc::chunk{{word[0], word[1], word[2], word[3]}});
          }
        }
      }
      fc::wait_phase(tile_numbers_full + tile_numbers_slot_2 * 8, tile_numbers_phase_2);
      const int next_tile_2 = fc::uniform(static_cast<int>(fc::load_shared_word(shared + 229568 + tile_numbers_slot_2 * 4)));
      fc::arrive(tile_numbers_empty + tile_numbers_slot_2 * 8);
      if (++tile_numbers_slot_2 == 2) {
        tile_numbers_slot_2 = 0;
        tile_numbers_phase_2 ^= 1;
      }
      tile_2 = next_tile_2;
    }
    fc::arrive_at_cluster();
    fc::wait_cluster();
  }
}
