struct Parameters {
  fc::tensor_map q_tiles;  // of 128 x 64
  fc::tensor_map k_tiles;  // of 128 x 64
  fc::tensor_map v_tiles;  // of 128 x 64
  fc::bf16* o;
  fc::i64 o_stride_0, o_stride_1, o_stride_2;  // elements
  int B;
  int H;
  int Sq;
  int Sk;
  float scale;
};

extern "C" __global__ void __launch_bounds__(384, 1)
attention_forward(const __grid_constant__ Parameters p) {
  const int thread = fc::thread_index(), lane = thread % 32, warp = fc::uniform(thread / 32);
  const fc::u32 shared = fc::shared_base();
  const int rows_lane = warp % 8 * 16 + lane / 4;
  const int dv_lane = lane % 4 * 2;
  const int cols_lane = lane % 4 * 2;
  // where a ring's slots say that they are full, and that they are empty
  const fc::u32 query_full = shared + 196608, query_empty = shared + 196624;
  const fc::u32 key_full = shared + 196640, key_empty = shared + 196656;
  const fc::u32 value_full = shared + 196672, value_empty = shared + 196688;
  if (thread == 0) {
    fc::prefetch_map(p.q_tiles);
    fc::prefetch_map(p.k_tiles);
    fc::prefetch_map(p.v_tiles);
    for (int slot = 0; slot < 2; ++slot) {
      fc::init_mbarrier(query_full + slot * 8, 1);
      fc::init_mbarrier(query_empty + slot * 8, 2);
    }
    for (int slot = 0; slot < 2; ++slot) {
      fc::init_mbarrier(key_full + slot * 8, 1);
      fc::init_mbarrier(key_empty + slot * 8, 2);
    }
    for (int slot = 0; slot < 2; ++slot) {
      fc::init_mbarrier(value_full + slot * 8, 1);
      fc::init_mbarrier(value_empty + slot * 8, 2);
    }
    fc::publish_mbarriers();
  }
  fc::barrier();
  fc::wait_for_kernels();
  fc::launch_dependents();

  if (warp >= 8) {
    fc::shrink_registers<24>();
    if (thread == 256) {
      int query_slot = 0, query_phase = 0;
      int key_slot = 0, key_phase = 0;
      int value_slot = 0, value_phase = 0;
      const int block_count = (p.H * p.B) * ((p.Sq + 127) / 128);
      // tiles of all blocks, every other wave of blocks backwards
      int in_wave = fc::grid_x() - 1 - fc::block_x();
      for (int first = 0; first < block_count; first += fc::grid_x()) {
        in_wave = fc::grid_x() - 1 - in_wave;
        if (first + in_wave >= block_count) break;
        const fc::u32 divisor = p.H;
        const int head = (first + in_wave) % divisor;
        const int t0 = (first + in_wave) / divisor;
        const fc::u32 divisor_2 = p.B;
        const int batch = t0 % divisor_2;
        const int t1 = t0 / divisor_2;
        const int rows_tile = (((p.Sq + 127) / 128) - 1) - t1;
        const int rows_begin = rows_tile * 128;
        fc::wait_phase(query_empty + query_slot * 8, query_phase ^ 1);
        // query <- q
        fc::arrive_expect_tx(query_full + query_slot * 8, 32768);
        fc::load_box(shared + query_slot * 32768, p.q_tiles, query_full + query_slot * 8, 0, rows_begin, head, batch);
        fc::load_box(shared + query_slot * 32768 + 16384, p.q_tiles, query_full + query_slot * 8, 64, rows_begin, head, batch);
        if (++query_slot == 2) {
          query_slot = 0;
          query_phase ^= 1;
        }
        const int t2 = (fc::min((rows_begin + 128), p.Sq) - 1) - p.Sq;
        const int t3 = fc::min((((t2 + p.Sk) >> 7) + 1), ((p.Sk + 127) / 128));
        const int cols_end = fc::max(0, t3);

        // cols tiles of 128
        #pragma unroll 1
        for (int cols_tile = cols_end - 1; cols_tile >= 0; --cols_tile) {
          const int cols_begin = cols_tile * 128;
          fc::wait_phase(key_empty + key_slot * 8, key_phase ^ 1);
          // key <- k
          fc::arrive_expect_tx(key_full + key_slot * 8, 32768);
          fc::load_box(shared + 65536 + key_slot * 32768, p.k_tiles, key_full + key_slot * 8, 0, cols_begin, head, batch);
          fc::load_box(shared + 65536 + key_slot * 32768 + 16384, p.k_tiles, key_full + key_slot * 8, 64, cols_begin, head, batch);
          if (++key_slot == 2) {
            key_slot = 0;
            key_phase ^= 1;
          }
          fc::wait_phase(value_empty + value_slot * 8, value_phase ^ 1);
          // value <- v
          fc::arrive_expect_tx(value_full + value_slot * 8, 32768);
          fc::load_box(shared + 131072 + value_slot * 32768, p.v_tiles, value_full + value_slot * 8, 0, cols_begin, head, batch);
          fc::load_box(shared + 131072 + value_slot * 32768 + 16384, p.v_tiles, value_full + value_slot * 8, 64, cols_begin, head, batch);
          if (++value_slot == 2) {
            value_slot = 0;
            value_phase ^= 1;
          }
        }
      }
    }
  }
  else {
    fc::grow_registers<240>();
    int query_slot_2 = 0, query_phase_2 = 0;
    int key_slot_2 = 0, key_phase_2 = 0;
    int value_slot_2 = 0, value_phase_2 = 0;
    const int block_count_2 = (p.H * p.B) * ((p.Sq + 127) / 128);
    // tiles of all blocks, every other wave of blocks backwards
    int in_wave_2 = fc::grid_x() - 1 - fc::block_x();
    for (int first_2 = 0; first_2 < block_count_2; first_2 += fc::grid_x()) {
      in_wave_2 = fc::grid_x() - 1 - in_wave_2;
      if (first_2 + in_wave_2 >= block_count_2) break;
      const fc::u32 divisor_3 = p.H;
      const int head_2 = (first_2 + in_wave_2) % divisor_3;
      const int t4 = (first_2 + in_wave_2) / divisor_3;
      const fc::u32 divisor_4 = p.B;
      const int batch_2 = t4 % divisor_4;
      const int t5 = t4 / divisor_4;
      const int rows_tile_2 = (((p.Sq + 127) / 128) - 1) - t5;
      const int rows_begin_2 = rows_tile_2 * 128;
      const float scale_log2 = p.scale * 1.442695f;
      const int t6 = p.Sk - p.Sq;
      const int t7 = (fc::min((rows_begin_2 + 128), p.Sq) - 1) - p.Sq;
      const int t8 = ((((rows_begin_2 - p.Sq) + p.Sk) + -127) >> 7) + 1;
      const int t9 = fc::min((((t7 + p.Sk) >> 7) + 1), ((p.Sk + 127) / 128));
      const int cols_end_2 = fc::max(0, t9);
      const int cols_full_end = fc::max(0, fc::min(t8, cols_end_2));
      fc::wait_phase(query_full + query_slot_2 * 8, query_phase_2);
      const fc::u32 query = shared + query_slot_2 * 32768;
      const int t10 = cols_end_2 - 1;
      float row_sum[1][2];
      float out[1][16][4];
      if (t10 >= 0) {
        const int cols_begin_2 = t10 * 128;
        fc::wait_phase(key_full + key_slot_2 * 8, key_phase_2);
        const fc::u32 key = shared + 65536 + key_slot_2 * 32768;
        // scores = dot(query, transpose(key)), issued
        float scores[1][16][4];
        fc::pin(scores);
        fc::fence_products();
        {
          const fc::u64 a = fc::matrix(query + warp / 4 * 8192, 64, 0);
          const fc::u64 b = fc::matrix(key, 64, 0);
          fc::multiply_warpgroup<128, fc::bf16, 8, fc::along<64, 16384>, fc::along<64, 16384>>(scores[0], a, b, false);
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
          // t11 = add(index(rows), t6)
          #pragma unroll
          for (int e = 0; e < 2; ++e)
            t11[0][e] = (rows_begin_2 + rows_lane + e * 8) + t6;
          // scores = where(ge(sub(t11, thread_begin), thread_offset), scores, -inf)
          #pragma unroll
          for (int j = 0; j < 16; ++j) {
            #pragma unroll
            for (int e = 0; e < 4; ++e) {
              const int t12 = t11[0][(e / 2)] - (cols_begin_2 + cols_lane);
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
        for (int j = 0; j < 16; ++j)
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
        float probs[1][16][4];
        // probs = exp2(fma(scores, scale_log2, t15))
        #pragma unroll
        for (int j = 0; j < 16; ++j) {
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
        // out = mul(out, decay)
        #pragma unroll
        for (int j = 0; j < 16; ++j)
          #pragma unroll
          for (int e = 0; e < 4; ++e)
            out[0][j][e] = 0.f * decay[0][(e / 2)];

        // cols tiles of 128
        for (int cols_tile_2 = t10 - 1; cols_tile_2 >= 0; --cols_tile_2) {
          const int cols_begin_3 = cols_tile_2 * 128;
          fc::wait_phase(key_full + key_slot_2 * 8, key_phase_2);
          const fc::u32 key_2 = shared + 65536 + key_slot_2 * 32768;
          // scores = dot(query, transpose(key_2)), issued
          float scores_2[1][16][4];
          fc::pin(scores_2);
          fc::fence_products();
          {
            const fc::u64 a = fc::matrix(query + warp / 4 * 8192, 64, 0);
            const fc::u64 b = fc::matrix(key_2, 64, 0);
            fc::multiply_warpgroup<128, fc::bf16, 8, fc::along<64, 16384>, fc::along<64, 16384>>(scores_2[0], a, b, false);
          }
          fc::commit_products();
          fc::wait_phase(value_full + value_slot_2 * 8, value_phase_2);
          const fc::u32 value = shared + 131072 + value_slot_2 * 32768;
          // out = out + dot(probs_operand, value), issued
          fc::pin(out);
          fc::fence_products();
          {
            const fc::u64 b = fc::matrix(value, 64, 16384);
            fc::multiply_warpgroup<128, fc::bf16, 8, fc::across<64>>(out[0], probs_operand[0], b, true);
          }
          fc::commit_products();
          fc::wait_products<1>();
          fc::pin(scores_2);
          fc::arrive_if(thread % 128 == 0, key_empty + key_slot_2 * 8);
          if (++key_slot_2 == 2) {
            key_slot_2 = 0;
            key_phase_2 ^= 1;
          }
          const bool masked_2 = cols_tile_2 >= cols_full_end;
          if (masked_2) {
            int t19[1][2];
            // t19 = add(index(rows), t6)
            #pragma unroll
            for (int e = 0; e < 2; ++e)
              t19[0][e] = (rows_begin_2 + rows_lane + e * 8) + t6;
            // scores_2 = where(ge(sub(t19, thread_begin), thread_offset), scores_2, -inf)
            #pragma unroll
            for (int j = 0; j < 16; ++j) {
              #pragma unroll
              for (int e = 0; e < 4; ++e) {
                const int t20 = t19[0][(e / 2)] - (cols_begin_3 + cols_lane);
                const bool t21 = t20 >= (j * 8 + (e % 2));
                scores_2[0][j][e] = t21 ? scores_2[0][j][e] : -fc::infinity();
              }
            }
          }
          // reduce_max = reduce_max(scores_2, cols)
          float t22[1][2];
          #pragma unroll
          for (int e = 0; e < 2; ++e)
            t22[0][e] = -fc::infinity();
          #pragma unroll
          for (int j = 0; j < 16; ++j)
            #pragma unroll
            for (int e = 0; e < 4; ++e)
              t22[0][(e / 2)] = fc::max(t22[0][(e / 2)], scores_2[0][j][e]);
          #pragma unroll
          for (int e = 0; e < 2; ++e) {
            t22[0][e] = fc::max(t22[0][e], fc::shuffle_xor(t22[0][e], 1));
            t22[0][e] = fc::max(t22[0][e], fc::shuffle_xor(t22[0][e], 2));
          }
          float new_max_2[1][2];
          // new_max_2 = max(row_max, mul(t22, scale_log2))
          float decay_2[1][2];
          // decay_2 = exp2(sub(row_max, new_max_2))
          float t23[1][2];
          // t23 = neg(new_max_2)
          #pragma unroll
          for (int e = 0; e < 2; ++e) {
            const float t24 = t22[0][e] * scale_log2;
            new_max_2[0][e] = fc::max(new_max[0][e], t24);
            const float t25 = new_max[0][e] - new_max_2[0][e];
            decay_2[0][e] = fc::exp2(t25);
            t23[0][e] = -new_max_2[0][e];
          }
          float probs_2[1][16][4];
          // probs_2 = exp2(fma(scores_2, scale_log2, t23))
          #pragma unroll
          for (int j = 0; j < 16; ++j) {
            #pragma unroll
            for (int e = 0; e < 4; ++e) {
              const float t26 = fc::fma(scores_2[0][j][e], scale_log2, t23[0][(e / 2)]);
              probs_2[0][j][e] = fc::exp2(t26);
            }
          }
          // reduce_sum = reduce_sum(probs_2, cols), each lane its partial
          float t27[1][2] = {};
          #pragma unroll
          for (int j = 0; j < 16; ++j)
            #pragma unroll
            for (int e = 0; e < 4; ++e)
              t27[0][(e / 2)] = t27[0][(e / 2)] + probs_2[0][j][e];
          // row_sum = fma(row_sum, decay_2, t27)
          #pragma unroll
          for (int e = 0; e < 2; ++e)
            row_sum[0][e] = fc::fma(row_sum[0][e], decay_2[0][e], t27[0][e]);
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
        fc::wait_phase(value_full + value_slot_2 * 8, value_phase_2);
        const fc::u32 value_2 = shared + 131072 + value_slot_2 * 32768;
        // out = out + dot(probs_operand, value_2), issued
        fc::pin(out);
        fc::fence_products();
        {
          const fc::u64 b = fc::matrix(value_2, 64, 16384);
          fc::multiply_warpgroup<128, fc::bf16, 8, fc::across<64>>(out[0], probs_operand[0], b, true);
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
        for (int j = 0; j < 16; ++j)
          #pragma unroll
          for (int e = 0; e < 4; ++e)
            out[0][j][e] = 0.f;
      }
      fc::arrive_if(thread % 128 == 0, query_empty + query_slot_2 * 8);
      if (++query_slot_2 == 2) {
        query_slot_2 = 0;
        query_phase_2 ^= 1;
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
        const float t28 = fc::divide(1.f, row_sum[0][e]);
        inverse[0][e] = empty ? 0.f : t28;
      }
      float t29[1][16][4];
      // t29 = cast(mul(out, inverse))
      #pragma unroll
      for (int j = 0; j < 16; ++j) {
        #pragma unroll
        for (int e = 0; e < 4; ++e) {
          const float t30 = out[0][j][e] * inverse[0][(e / 2)];
          t29[0][j][e] = t30;
        }
      }
      fc::bf16* const o_at = p.o + batch_2 * p.o_stride_0 + head_2 * p.o_stride_1;
      // store o = t29, each lane 8 columns
      #pragma unroll
      for (int r = 0; r < 2; ++r) {
        const int row = rows_begin_2 + rows_lane + r * 8;
        fc::bf16* const line = o_at + row * p.o_stride_2 + 0;
        #pragma unroll
        for (int j = 0; j < 4; ++j) {
          fc::u32 word[4];
          #pragma unroll
          for (int n = 0; n < 4; ++n)
            word[n] = fc::pack<fc::bf16>(t29[0][j * 4 + n][2 * r], t29[0][j * 4 + n][2 * r + 1]);
          fc::transpose_quad(word, lane);
          const int column = j * 32 + lane % 4 * 8;
          if (row < p.Sq) {
            fc::store_chunk(line + column, fc::chunk{{word[0], word[1], word[2], word[3]}});
          }
        }
      }
    }
  }
}
