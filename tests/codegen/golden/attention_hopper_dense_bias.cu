struct Parameters {
  fc::tensor_map q_tiles;  // of 128 x 64
  fc::tensor_map k_tiles;  // of 64 x 64
  fc::tensor_map bias_tiles;  // of 128 x 64
  fc::tensor_map v_tiles;  // of 64 x 64
  fc::tensor_map o_tiles;  // of 64 x 64
  int Sq;
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
  const fc::u32 query_full = shared + 81920, query_empty = shared + 81928;
  const fc::u32 key_full = shared + 81936, key_empty = shared + 81952;
  const fc::u32 value_full = shared + 82000, value_empty = shared + 82016;
  const fc::u32 bias_tile_full = shared + 81968, bias_tile_empty = shared + 81984;
  if (thread == 0) {
    fc::prefetch_map(p.q_tiles);
    fc::prefetch_map(p.k_tiles);
    fc::prefetch_map(p.bias_tiles);
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
      fc::init_mbarrier(bias_tile_full + slot * 8, 1);
      fc::init_mbarrier(bias_tile_empty + slot * 8, 8);
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
      int bias_tile_slot = 0, bias_tile_phase = 0;
      int value_slot = 0, value_phase = 0;
      fc::wait_phase(query_empty, query_phase ^ 1);
      // query <- q
      fc::arrive_expect_tx(query_full, 16384);
      fc::load_box(shared, p.q_tiles, query_full, 0, rows_begin, head, batch);
      query_phase ^= 1;
      const int t0 = (fc::min((rows_begin + 128), p.Sq) - 1) - p.Sq;
      const int t1 = fc::min((((t0 + p.Sk) >> 6) + 1), ((p.Sk + 63) / 64));
      const int cols_end = fc::max(0, t1);

      // cols tiles of 64
      #pragma unroll 1
      for (int cols_tile = cols_end - 1; cols_tile >= 0; --cols_tile) {
        const int cols_begin = cols_tile * 64;
        fc::wait_phase(key_empty + key_slot * 8, key_phase ^ 1);
        // key <- k
        fc::arrive_expect_tx(key_full + key_slot * 8, 8192);
        fc::load_box(shared + 16384 + key_slot * 8192, p.k_tiles, key_full + key_slot * 8, 0, cols_begin, head, batch);
        if (++key_slot == 2) {
          key_slot = 0;
          key_phase ^= 1;
        }
        fc::wait_phase(bias_tile_empty + bias_tile_slot * 8, bias_tile_phase ^ 1);
        // bias_tile <- bias
        fc::arrive_expect_tx(bias_tile_full + bias_tile_slot * 8, 16384);
        fc::load_box(shared + 49152 + bias_tile_slot * 16384, p.bias_tiles, bias_tile_full + bias_tile_slot * 8, cols_begin, rows_begin, head);
        if (++bias_tile_slot == 2) {
          bias_tile_slot = 0;
          bias_tile_phase ^= 1;
        }
        fc::wait_phase(value_empty + value_slot * 8, value_phase ^ 1);
        // value <- v
        fc::arrive_expect_tx(value_full + value_slot * 8, 8192);
        fc::load_box(shared + 32768 + value_slot * 8192, p.v_tiles, value_full + value_slot * 8, 0, cols_begin, head, batch);
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
    int bias_tile_slot_2 = 0, bias_tile_phase_2 = 0;
    int value_slot_2 = 0, value_phase_2 = 0;
    const int t2 = p.Sk - p.Sq;
    const int t3 = (fc::min((rows_begin + 128), p.Sq) - 1) - p.Sq;
    const int t4 = ((((rows_begin - p.Sq) + p.Sk) + -63) >> 6) + 1;
    const int t5 = fc::min((((t3 + p.Sk) >> 6) + 1), ((p.Sk + 63) / 64));
    const int cols_end_2 = fc::max(0, t5);
    const int cols_full_end = fc::max(0, fc::min(t4, cols_end_2));
    fc::wait_phase(query_full, query_phase_2);
    const fc::u32 query = shared;
    const int t6 = cols_end_2 - 1;
    float row_sum[1][2];
    float out[1][8][4];
    if (t6 >= 0) {
      const int cols_begin_2 = t6 * 64;
      fc::wait_phase(key_full + key_slot_2 * 8, key_phase_2);
      const fc::u32 key = shared + 16384 + key_slot_2 * 8192;
      // product = dot(query, transpose(key)), issued
      float t7[1][8][4];
      fc::pin(t7);
      fc::fence_products();
      {
        const fc::u64 a = fc::matrix(query + warp / 4 * 8192, 64, 0);
        const fc::u64 b = fc::matrix(key, 64, 0);
        fc::multiply_warpgroup<64, fc::bf16, 4, fc::along<64, 16384>, fc::along<64, 8192>>(t7[0], a, b, false);
      }
      fc::commit_products();
      fc::wait_products<0>();
      fc::pin(t7);
      fc::arrive_if(thread % 128 == 0, key_empty + key_slot_2 * 8);
      if (++key_slot_2 == 2) {
        key_slot_2 = 0;
        key_phase_2 ^= 1;
      }
      fc::wait_phase(bias_tile_full + bias_tile_slot_2 * 8, bias_tile_phase_2);
      const fc::u32 bias_tile = shared + 49152 + bias_tile_slot_2 * 16384;
      // bias from shared memory
      float bias[1][8][4];
      #pragma unroll
      for (int i = 0; i < 1; ++i)
        #pragma unroll
        for (int j = 0; j < 8; ++j)
          #pragma unroll
          for (int r = 0; r < 2; ++r)
            fc::load_shared_halves<fc::bf16, 2>(&bias[i][j][2 * r], bias_tile + fc::chunk_offset<128, 64>(rows_lane + i * 16 + r * 8, j * 8) + lane % 4 * 4);
      fc::fence_async();
      fc::arrive_as_warp(bias_tile_empty + bias_tile_slot_2 * 8, lane);
      if (++bias_tile_slot_2 == 2) {
        bias_tile_slot_2 = 0;
        bias_tile_phase_2 ^= 1;
      }
      // modified = fma(t7, scale, cast(bias))
      #pragma unroll
      for (int j = 0; j < 8; ++j) {
        #pragma unroll
        for (int e = 0; e < 4; ++e) {
          const float t8 = bias[0][j][e];
          t7[0][j][e] = fc::fma(t7[0][j][e], p.scale, t8);
        }
      }
      const bool masked = t6 >= cols_full_end;
      if (masked) {
        int t9[1][2];
        // t9 = add(index(rows), t2)
        #pragma unroll
        for (int e = 0; e < 2; ++e)
          t9[0][e] = (rows_begin + rows_lane + e * 8) + t2;
        // scores = where(ge(sub(t9, thread_begin), thread_offset), modified, -inf)
        #pragma unroll
        for (int j = 0; j < 8; ++j) {
          #pragma unroll
          for (int e = 0; e < 4; ++e) {
            const int t10 = t9[0][(e / 2)] - (cols_begin_2 + cols_lane);
            const bool t11 = t10 >= (j * 8 + (e % 2));
            t7[0][j][e] = t11 ? t7[0][j][e] : -fc::infinity();
          }
        }
      }
      // reduce_max = reduce_max(scores, cols)
      float t12[1][2];
      #pragma unroll
      for (int e = 0; e < 2; ++e)
        t12[0][e] = -fc::infinity();
      #pragma unroll
      for (int j = 0; j < 8; ++j)
        #pragma unroll
        for (int e = 0; e < 4; ++e)
          t12[0][(e / 2)] = fc::max(t12[0][(e / 2)], t7[0][j][e]);
      #pragma unroll
      for (int e = 0; e < 2; ++e) {
        t12[0][e] = fc::max(t12[0][e], fc::shuffle_xor(t12[0][e], 1));
        t12[0][e] = fc::max(t12[0][e], fc::shuffle_xor(t12[0][e], 2));
      }
      float new_max[1][2];
      // new_max = max(row_max, mul(t12, 1.4426950408889634))
      float decay[1][2];
      // decay = exp2(sub(row_max, new_max))
      float t13[1][2];
      // t13 = neg(new_max)
      #pragma unroll
      for (int e = 0; e < 2; ++e) {
        const float t14 = t12[0][e] * 1.442695f;
        new_max[0][e] = fc::max(fc::lowest(), t14);
        const float t15 = fc::lowest() - new_max[0][e];
        decay[0][e] = fc::exp2(t15);
        t13[0][e] = -new_max[0][e];
      }
      float probs[1][8][4];
      // probs = exp2(fma(scores, 1.4426950408889634, t13))
      #pragma unroll
      for (int j = 0; j < 8; ++j) {
        #pragma unroll
        for (int e = 0; e < 4; ++e) {
          const float t16 = fc::fma(t7[0][j][e], 1.442695f, t13[0][(e / 2)]);
          probs[0][j][e] = fc::exp2(t16);
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
      for (int cols_tile_2 = t6 - 1; cols_tile_2 >= 0; --cols_tile_2) {
        const int cols_begin_3 = cols_tile_2 * 64;
        fc::wait_phase(key_full + key_slot_2 * 8, key_phase_2);
        const fc::u32 key_2 = shared + 16384 + key_slot_2 * 8192;
        // product = dot(query, transpose(key_2)), issued
        float t17[1][8][4];
        fc::pin(t17);
        fc::fence_products();
        {
          const fc::u64 a = fc::matrix(query + warp / 4 * 8192, 64, 0);
          const fc::u64 b = fc::matrix(key_2, 64, 0);
          fc::multiply_warpgroup<64, fc::bf16, 4, fc::along<64, 16384>, fc::along<64, 8192>>(t17[0], a, b, false);
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
        fc::wait_products<1>();
        fc::pin(t17);
        fc::arrive_if(thread % 128 == 0, key_empty + key_slot_2 * 8);
        if (++key_slot_2 == 2) {
          key_slot_2 = 0;
          key_phase_2 ^= 1;
        }
        fc::wait_phase(bias_tile_full + bias_tile_slot_2 * 8, bias_tile_phase_2);
        const fc::u32 bias_tile_2 = shared + 49152 + bias_tile_slot_2 * 16384;
        // bias from shared memory
        float bias_2[1][8][4];
        #pragma unroll
        for (int i = 0; i < 1; ++i)
          #pragma unroll
          for (int j = 0; j < 8; ++j)
            #pragma unroll
            for (int r = 0; r < 2; ++r)
              fc::load_shared_halves<fc::bf16, 2>(&bias_2[i][j][2 * r], bias_tile_2 + fc::chunk_offset<128, 64>(rows_lane + i * 16 + r * 8, j * 8) + lane % 4 * 4);
        fc::fence_async();
        fc::arrive_as_warp(bias_tile_empty + bias_tile_slot_2 * 8, lane);
        if (++bias_tile_slot_2 == 2) {
          bias_tile_slot_2 = 0;
          bias_tile_phase_2 ^= 1;
        }
        // modified = fma(t17, scale, cast(bias_2))
        #pragma unroll
        for (int j = 0; j < 8; ++j) {
          #pragma unroll
          for (int e = 0; e < 4; ++e) {
            const float t18 = bias_2[0][j][e];
            t17[0][j][e] = fc::fma(t17[0][j][e], p.scale, t18);
          }
        }
        const bool masked_2 = cols_tile_2 >= cols_full_end;
        if (masked_2) {
          int t19[1][2];
          // t19 = add(index(rows), t2)
          #pragma unroll
          for (int e = 0; e < 2; ++e)
            t19[0][e] = (rows_begin + rows_lane + e * 8) + t2;
          // scores = where(ge(sub(t19, thread_begin), thread_offset), modified, -inf)
          #pragma unroll
          for (int j = 0; j < 8; ++j) {
            #pragma unroll
            for (int e = 0; e < 4; ++e) {
              const int t20 = t19[0][(e / 2)] - (cols_begin_3 + cols_lane);
              const bool t21 = t20 >= (j * 8 + (e % 2));
              t17[0][j][e] = t21 ? t17[0][j][e] : -fc::infinity();
            }
          }
        }
        // reduce_max = reduce_max(scores, cols)
        float t22[1][2];
        #pragma unroll
        for (int e = 0; e < 2; ++e)
          t22[0][e] = -fc::infinity();
        #pragma unroll
        for (int j = 0; j < 8; ++j)
          #pragma unroll
          for (int e = 0; e < 4; ++e)
            t22[0][(e / 2)] = fc::max(t22[0][(e / 2)], t17[0][j][e]);
        #pragma unroll
        for (int e = 0; e < 2; ++e) {
          t22[0][e] = fc::max(t22[0][e], fc::shuffle_xor(t22[0][e], 1));
          t22[0][e] = fc::max(t22[0][e], fc::shuffle_xor(t22[0][e], 2));
        }
        float new_max_2[1][2];
        // new_max_2 = max(row_max, mul(t22, 1.4426950408889634))
        float decay_2[1][2];
        // decay_2 = exp2(sub(row_max, new_max_2))
        float t23[1][2];
        // t23 = neg(new_max_2)
        #pragma unroll
        for (int e = 0; e < 2; ++e) {
          const float t24 = t22[0][e] * 1.442695f;
          new_max_2[0][e] = fc::max(new_max[0][e], t24);
          const float t25 = new_max[0][e] - new_max_2[0][e];
          decay_2[0][e] = fc::exp2(t25);
          t23[0][e] = -new_max_2[0][e];
        }
        float probs_2[1][8][4];
        // probs_2 = exp2(fma(scores, 1.4426950408889634, t23))
        #pragma unroll
        for (int j = 0; j < 8; ++j) {
          #pragma unroll
          for (int e = 0; e < 4; ++e) {
            const float t26 = fc::fma(t17[0][j][e], 1.442695f, t23[0][(e / 2)]);
            probs_2[0][j][e] = fc::exp2(t26);
          }
        }
        // reduce_sum = reduce_sum(probs_2, cols), each lane its partial
        float t27[1][2] = {};
        #pragma unroll
        for (int j = 0; j < 8; ++j)
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
      const float t28 = fc::divide(1.f, row_sum[0][e]);
      inverse[0][e] = empty ? 0.f : t28;
    }
    float t29[1][8][4];
    // t29 = cast(mul(out, inverse))
    #pragma unroll
    for (int j = 0; j < 8; ++j) {
      #pragma unroll
      for (int e = 0; e < 4; ++e) {
        const float t30 = out[0][j][e] * inverse[0][(e / 2)];
        t29[0][j][e] = t30;
      }
    }
    if (thread % 128 == 0) fc::wait_stores_read<0>();
    fc::meet(1 + warp / 4, 128);
    // t29 in shared memory
    const fc::u32 o_staged = shared;
    #pragma unroll
    for (int i = 0; i < 1; ++i)
      #pragma unroll
      for (int j = 0; j < 8; ++j)
        #pragma unroll
        for (int r = 0; r < 2; ++r)
          fc::store_shared(o_staged + fc::chunk_offset<128, 64>(rows_lane + i * 16 + r * 8, j * 8) + lane % 4 * 4,
                           fc::pack<fc::bf16>(t29[i][j][2 * r], t29[i][j][2 * r + 1]));
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
