struct Parameters {
  fc::tensor_map q_tiles;  // of 128 x 64
  fc::tensor_map q_tiles_128x16;  // of 128 x 16
  fc::tensor_map k_tiles;  // of 128 x 64
  fc::tensor_map k_tiles_128x16;  // of 128 x 16
  fc::tensor_map v_tiles;  // of 128 x 64
  fc::tensor_map v_tiles_128x16;  // of 128 x 16
  fc::tensor_map o_tiles;  // of 64 x 64
  fc::tensor_map o_tiles_64x16;  // of 64 x 16
  const fc::bf16* q;
  const fc::bf16* k;
  const fc::bf16* v;
  fc::bf16* o;
  fc::i64 q_stride_0, q_stride_1, q_stride_2;  // elements
  fc::i64 k_stride_0, k_stride_1, k_stride_2;  // elements
  fc::i64 v_stride_0, v_stride_1, v_stride_2;  // elements
  fc::i64 o_stride_0, o_stride_1, o_stride_2;  // elements
  int B;
  int H;
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
  const fc::u32 query_full = shared + 102400, query_empty = shared + 102408;
  const fc::u32 key_full = shared + 102416, key_empty = shared + 102432;
  const fc::u32 value_full = shared + 102448, value_empty = shared + 102464;
  if (thread == 0) {
    fc::prefetch_map(p.q_tiles);
    fc::prefetch_map(p.q_tiles_128x16);
    fc::prefetch_map(p.k_tiles);
    fc::prefetch_map(p.k_tiles_128x16);
    fc::prefetch_map(p.v_tiles);
    fc::prefetch_map(p.v_tiles_128x16);
    fc::prefetch_map(p.o_tiles);
    fc::prefetch_map(p.o_tiles_64x16);
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
    fc::publish_mbarriers();
  }
  fc::barrier();

  if (warp >= 8) {
    fc::shrink_registers<24>();
    if (thread == 256) {
      int query_phase = 0;
      int key_slot = 0, key_phase = 0;
      int value_slot = 0, value_phase = 0;
      // query <- q
      fc::wait_phase(query_empty, query_phase ^ 1);
      fc::arrive_expect_tx(query_full, 20480);
      fc::load_box(shared, p.q_tiles, query_full, 0, rows_begin, head, batch);
      fc::load_box(shared + 16384, p.q_tiles_128x16, query_full, 64, rows_begin, head, batch);
      query_phase ^= 1;
      const int t0 = (fc::min((rows_begin + 128), p.Sq) - 1) - p.Sq;
      const int t1 = fc::min((((t0 + p.Sk) >> 7) + 1), ((p.Sk + 127) / 128));
      const int cols_end = fc::max(0, t1);

      // cols tiles of 128
      #pragma unroll 1
      for (int cols_tile = cols_end - 1; cols_tile >= 0; --cols_tile) {
        const int cols_begin = cols_tile * 128;
        // key <- k
        fc::wait_phase(key_empty + key_slot * 8, key_phase ^ 1);
        fc::arrive_expect_tx(key_full + key_slot * 8, 20480);
        fc::load_box(shared + 20480 + key_slot * 20480, p.k_tiles, key_full + key_slot * 8, 0, cols_begin, head, batch);
        fc::load_box(shared + 20480 + key_slot * 20480 + 16384, p.k_tiles_128x16, key_full + key_slot * 8, 64, cols_begin, head, batch);
        if (++key_slot == 2) {
          key_slot = 0;
          key_phase ^= 1;
        }
        // value <- v
        fc::wait_phase(value_empty + value_slot * 8, value_phase ^ 1);
        fc::arrive_expect_tx(value_full + value_slot * 8, 20480);
        fc::load_box(shared + 61440 + value_slot * 20480, p.v_tiles, value_full + value_slot * 8, 0, cols_begin, head, batch);
        fc::load_box(shared + 61440 + value_slot * 20480 + 16384, p.v_tiles_128x16, value_full + value_slot * 8, 64, cols_begin, head, batch);
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
    int value_slot_2 = 0, value_phase_2 = 0;
    const float t2 = p.scale * 0.033333335f;
    const int t3 = p.Sk - p.Sq;
    const int t4 = (fc::min((rows_begin + 128), p.Sq) - 1) - p.Sq;
    const int t5 = ((((rows_begin - p.Sq) + p.Sk) + -127) >> 7) + 1;
    const int t6 = fc::min((((t4 + p.Sk) >> 7) + 1), ((p.Sk + 127) / 128));
    const int cols_end_2 = fc::max(0, t6);
    const int cols_full_end = fc::max(0, fc::min(t5, cols_end_2));
    fc::wait_phase(query_full, query_phase_2);
    const fc::u32 query = shared;
    const int t7 = cols_end_2 - 1;
    float row_sum[1][2];
    float out[1][10][4];
    if (t7 >= 0) {
      const int cols_begin_2 = t7 * 128;
      fc::wait_phase(key_full + key_slot_2 * 8, key_phase_2);
      const fc::u32 key = shared + 20480 + key_slot_2 * 20480;
      // product = dot(query, transpose(key)), issued
      float t8[1][16][4];
      fc::pin(t8);
      fc::fence_products();
      {
        const fc::u64 a = fc::matrix(query + warp / 4 * 8192, 64, 0);
        const fc::u64 b = fc::matrix(key, 64, 0);
        fc::multiply_warpgroup<128, fc::bf16, 4, fc::along<64, 16384>, fc::along<64, 16384>>(t8[0], a, b, false);
      }
      {
        const fc::u64 a = fc::matrix(query + 16384 + warp / 4 * 2048, 16, 0);
        const fc::u64 b = fc::matrix(key + 16384, 16, 0);
        fc::multiply_warpgroup<128, fc::bf16, 1, fc::along<16, 4096>, fc::along<16, 4096>>(t8[0], a, b, true);
      }
      fc::commit_products();
      fc::wait_products<0>();
      fc::pin(t8);
      if (thread % 128 == 0) fc::arrive(key_empty + key_slot_2 * 8);
      if (++key_slot_2 == 2) {
        key_slot_2 = 0;
        key_phase_2 ^= 1;
      }
      // whether polynomials serve for tanh(t8 * t2)
      const fc::small_tanh small = fc::small_tanh_of(fc::in_place(t2), 43.28085f);
      float t8_squares[8] = {};
      #pragma unroll
      for (int j = 0; j < 16; ++j) {
        #pragma unroll
        for (int e = 0; e < 4; ++e) {
          float& sum = t8_squares[(e + 0 * 4 + j * 4) % 8];
          sum = fc::fma(t8[0][j][e], t8[0][j][e], sum);
        }
      }
      bool all_small = true;
      #pragma unroll
      for (int i = 0; i < 8; ++i)
        all_small = all_small && fc::is_small(small, t8_squares[i]);
      if (t7 >= cols_full_end) {
        int t9[1][2];
        // t9 = add(index(rows), t3)
        #pragma unroll
        for (int e = 0; e < 2; ++e)
          t9[0][e] = (rows_begin + rows_lane + e * 8) + t3;
        // t8 = where(ge(t9, index(cols)), t8, -inf)
        #pragma unroll
        for (int j = 0; j < 16; ++j) {
          #pragma unroll
          for (int e = 0; e < 4; ++e) {
            const bool t10 = (t9[0][(e / 2)] - (cols_begin_2 + cols_lane)) >= (j * 8 + (e % 2) * 1);
            t8[0][j][e] = t10 ? t8[0][j][e] : -fc::infinity();
          }
        }
      }
      float t11[1][2];
      // t11 = neg(row_max)
      #pragma unroll
      for (int e = 0; e < 2; ++e)
        t11[0][e] = -0.f;
      // probs = exp2(tanh(t8 * t2), -inf where that is, times 43.28085f plus t11)
      // reduce_sum = reduce_sum(probs, cols), each lane its partial
      float t12[1][2] = {};
      // as rounded where a mask cuts the tile
      if (fc::all_lanes(all_small)) {
        #pragma unroll
        for (int j = 0; j < 16; ++j) {
          #pragma unroll
          for (int e = 0; e < 4; ++e) {
            t8[0][j][e] = fc::exp2(fc::evaluate_add(small, t8[0][j][e], t11[0][(e / 2)]));
            t12[0][(e / 2)] += fc::round_to<fc::bf16>(t8[0][j][e]);
          }
        }
      }
      else {
        #pragma unroll
        for (int j = 0; j < 16; ++j) {
          #pragma unroll
          for (int e = 0; e < 4; ++e) {
            if (e == 0 && j % 2 == 0) fc::hold_order();
            t8[0][j][e] = fc::exp2(fc::evaluate_visible_add(small, t8[0][j][e], t11[0][(e / 2)]));
            t12[0][(e / 2)] += fc::round_to<fc::bf16>(t8[0][j][e]);
          }
        }
      }
      // row_sum = add(row_sum, t12)
      #pragma unroll
      for (int e = 0; e < 2; ++e)
        t12[0][e] = 0.f + t12[0][e];
      // t8_operand: t8 as a left operand
      fc::u32 t8_operand[1][8][4];
      #pragma unroll
      for (int i = 0; i < 1; ++i)
        #pragma unroll
        for (int k = 0; k < 8; ++k)
          #pragma unroll
          for (int r = 0; r < 4; ++r)
            t8_operand[i][k][r] =
                fc::pack<fc::bf16>(t8[i][2 * k + r / 2][r % 2 * 2], t8[i][2 * k + r / 2][r % 2 * 2 + 1]);

      float out_2[1][10][4] = {};
      // cols tiles of 128
      for (int cols_tile_2 = t7 - 1; cols_tile_2 >= 0; --cols_tile_2) {
        const int cols_begin_3 = cols_tile_2 * 128;
        fc::wait_phase(key_full + key_slot_2 * 8, key_phase_2);
        const fc::u32 key_2 = shared + 20480 + key_slot_2 * 20480;
        // product = dot(query, transpose(key_2)), issued
        float t13[1][16][4];
        fc::pin(t13);
        fc::fence_products();
        {
          const fc::u64 a = fc::matrix(query + warp / 4 * 8192, 64, 0);
          const fc::u64 b = fc::matrix(key_2, 64, 0);
          fc::multiply_warpgroup<128, fc::bf16, 4, fc::along<64, 16384>, fc::along<64, 16384>>(t13[0], a, b, false);
        }
        {
          const fc::u64 a = fc::matrix(query + 16384 + warp / 4 * 2048, 16, 0);
          const fc::u64 b = fc::matrix(key_2 + 16384, 16, 0);
          fc::multiply_warpgroup<128, fc::bf16, 1, fc::along<16, 4096>, fc::along<16, 4096>>(t13[0], a, b, true);
        }
        fc::commit_products();
        fc::wait_phase(value_full + value_slot_2 * 8, value_phase_2);
        const fc::u32 value = shared + 61440 + value_slot_2 * 20480;
        // out = out_2 + dot(t8_operand, value), issued
        fc::pin(out_2);
        fc::fence_products();
        {
          const fc::u64 b = fc::matrix(value, 64, 0);
          fc::multiply_warpgroup<64, fc::bf16, 8, fc::across<64>>(out_2[0], t8_operand[0], b, true);
        }
        {
          const fc::u64 b = fc::matrix(value + 16384, 16, 0);
          fc::multiply_warpgroup<16, fc::bf16, 8, fc::across<16>>(out_2[0] + 8, t8_operand[0], b, true);
        }
        fc::commit_products();
        fc::wait_products<1>();
        fc::pin(t13);
        if (thread % 128 == 0) fc::arrive(key_empty + key_slot_2 * 8);
        if (++key_slot_2 == 2) {
          key_slot_2 = 0;
          key_phase_2 ^= 1;
        }
        // whether polynomials serve for tanh(t13 * t2)
        const fc::small_tanh small_2 = fc::small_tanh_of(fc::in_place(t2), 43.28085f);
        float t13_squares[8] = {cols_tile_2 >= cols_full_end ? fc::infinity() : 0.f};
        #pragma unroll
        for (int j = 0; j < 16; ++j) {
          #pragma unroll
          for (int e = 0; e < 4; ++e) {
            float& sum = t13_squares[(e + 0 * 4 + j * 4) % 8];
            sum = fc::fma(t13[0][j][e], t13[0][j][e], sum);
          }
        }
        bool all_small_2 = true;
        #pragma unroll
        for (int i = 0; i < 8; ++i)
          all_small_2 = all_small_2 && fc::is_small(small_2, t13_squares[i]);
        float t14[1][2];
        // t14 = neg(row_max)
        #pragma unroll
        for (int e = 0; e < 2; ++e)
          t14[0][e] = -0.f;
        // probs = exp2(tanh(t13 * t2), -inf where that is, times 43.28085f plus t14)
        // reduce_sum = reduce_sum(probs, cols), each lane its partial
        float t15[1][2] = {};
        // as rounded where a mask cuts the tile
        if (fc::all_lanes(all_small_2)) {
          #pragma unroll
          for (int j = 0; j < 16; ++j) {
            #pragma unroll
            for (int e = 0; e < 4; ++e) {
              t13[0][j][e] = fc::exp2(fc::evaluate_add(small_2, t13[0][j][e], t14[0][(e / 2)]));
              t15[0][(e / 2)] += t13[0][j][e];
            }
          }
        }
        else {
          bool all_moderate = true;
          #pragma unroll
          for (int i = 0; i < 8; ++i)
            all_moderate = all_moderate && fc::is_moderate(small_2, t13_squares[i]);
          if (fc::all_lanes(all_moderate)) {
            #pragma unroll
            for (int j = 0; j < 16; ++j) {
              #pragma unroll
              for (int e = 0; e < 4; ++e) {
                t13[0][j][e] = fc::exp2(fc::evaluate_moderate_add(small_2, t13[0][j][e], t14[0][(e / 2)]));
                t15[0][(e / 2)] += t13[0][j][e];
              }
            }
          }
          else {
            if (cols_tile_2 >= cols_full_end) {
              int t16[1][2];
              // t16 = add(index(rows), t3)
              #pragma unroll
              for (int e = 0; e < 2; ++e)
                t16[0][e] = (rows_begin + rows_lane + e * 8) + t3;
              // t13 = where(ge(t16, index(cols)), t13, -inf)
              #pragma unroll
              for (int j = 0; j < 16; ++j) {
                #pragma unroll
                for (int e = 0; e < 4; ++e) {
                  const bool t17 = (t16[0][(e / 2)] - (cols_begin_3 + cols_lane)) >= (j * 8 + (e % 2) * 1);
                  t13[0][j][e] = t17 ? t13[0][j][e] : -fc::infinity();
                }
              }
            }
            #pragma unroll
            for (int j = 0; j < 16; ++j) {
              #pragma unroll
              for (int e = 0; e < 4; ++e) {
                if (e == 0 && j % 2 == 0) fc::hold_order();
                t13[0][j][e] = fc::exp2(fc::evaluate_visible_add(small_2, t13[0][j][e], t14[0][(e / 2)]));
                t15[0][(e / 2)] += fc::round_to<fc::bf16>(t13[0][j][e]);
              }
            }
          }
        }
        // row_sum = add(row_sum, t15)
        #pragma unroll
        for (int e = 0; e < 2; ++e)
          t12[0][e] = t12[0][e] + t15[0][e];
        fc::wait_products<0>();
        fc::pin(out_2);
        if (thread % 128 == 0) fc::arrive(value_empty + value_slot_2 * 8);
        if (++value_slot_2 == 2) {
          value_slot_2 = 0;
          value_phase_2 ^= 1;
        }
        // t8_operand: t13 as a left operand
        #pragma unroll
        for (int i = 0; i < 1; ++i)
          #pragma unroll
          for (int k = 0; k < 8; ++k)
            #pragma unroll
            for (int r = 0; r < 4; ++r)
              t8_operand[i][k][r] =
                  fc::pack<fc::bf16>(t13[i][2 * k + r / 2][r % 2 * 2], t13[i][2 * k + r / 2][r % 2 * 2 + 1]);
      }
      fc::wait_phase(value_full + value_slot_2 * 8, value_phase_2);
      const fc::u32 value_2 = shared + 61440 + value_slot_2 * 20480;
      // out = out_2 + dot(t8_operand, value_2), issued
      fc::pin(out_2);
      fc::fence_products();
      {
        const fc::u64 b = fc::matrix(value_2, 64, 0);
        fc::multiply_warpgroup<64, fc::bf16, 8, fc::across<64>>(out_2[0], t8_operand[0], b, true);
      }
      {
        const fc::u64 b = fc::matrix(value_2 + 16384, 16, 0);
        fc::multiply_warpgroup<16, fc::bf16, 8, fc::across<16>>(out_2[0] + 8, t8_operand[0], b, true);
      }
      fc::commit_products();
      fc::wait_products<0>();
      fc::pin(out_2);
      if (thread % 128 == 0) fc::arrive(value_empty + value_slot_2 * 8);
      if (++value_slot_2 == 2) {
        value_slot_2 = 0;
        value_phase_2 ^= 1;
      }
      #pragma unroll
      for (int e = 0; e < 2; ++e)
        row_sum[0][e] = t12[0][e];
      #pragma unroll
      for (int j = 0; j < 10; ++j)
        #pragma unroll
        for (int e = 0; e < 4; ++e)
          out[0][j][e] = out_2[0][j][e];
    }
    else {
      #pragma unroll
      for (int e = 0; e < 2; ++e)
        row_sum[0][e] = 0.f;
      #pragma unroll
      for (int j = 0; j < 10; ++j)
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
      const float t18 = fc::divide(1.f, row_sum[0][e]);
      inverse[0][e] = empty ? 0.f : t18;
    }
    float t19[1][10][4];
    // t19 = cast(mul(out, inverse))
    #pragma unroll
    for (int j = 0; j < 10; ++j) {
      #pragma unroll
      for (int e = 0; e < 4; ++e) {
        const float t20 = out[0][j][e] * inverse[0][(e / 2)];
        t19[0][j][e] = t20;
      }
    }
    if (thread % 128 == 0) fc::wait_stores_read<0>();
    fc::meet(1 + warp / 4, 128);
    // t19 in shared memory
    const fc::u32 o_staged = shared;
    #pragma unroll
    for (int i = 0; i < 1; ++i)
      #pragma unroll
      for (int j = 0; j < 10; ++j)
        #pragma unroll
        for (int r = 0; r < 2; ++r)
          fc::store_shared(o_staged + fc::chunk_offset<128, 80>(rows_lane + i * 16 + r * 8, j * 8) + lane % 4 * 4,
                           fc::pack<fc::bf16>(t19[i][j][2 * r], t19[i][j][2 * r + 1]));
    // store o
    fc::fence_async();
    fc::meet(1 + warp / 4, 128);
    if (thread % 128 == 0) {
      fc::store_box(p.o_tiles, o_staged + warp / 4 * 8192, 0, rows_begin + warp / 4 * 64, head, batch);
      fc::store_box(p.o_tiles_64x16, o_staged + 16384 + warp / 4 * 2048, 64, rows_begin + warp / 4 * 64, head, batch);
      fc::commit_stores();
    }
    if (thread % 128 == 0) fc::wait_stores_read<0>();
    fc::meet(1 + warp / 4, 128);
    if (thread % 128 == 0) fc::arrive(query_empty);
    query_phase_2 ^= 1;
    if (thread % 128 == 0) fc::wait_stores_read<0>();
  }
}
