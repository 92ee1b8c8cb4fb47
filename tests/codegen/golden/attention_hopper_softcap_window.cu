struct Parameters {
  fc::tensor_map q_tiles;  // of 128 x 64
  fc::tensor_map k_tiles;  // of 64 x 64
  fc::tensor_map v_tiles;  // of 64 x 64
  fc::tensor_map o_tiles;  // of 64 x 64
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
  const fc::u32 query_full = shared + 49152, query_empty = shared + 49160;
  const fc::u32 key_full = shared + 49168, key_empty = shared + 49184;
  const fc::u32 value_full = shared + 49200, value_empty = shared + 49216;
  if (thread == 0) {
    fc::prefetch_map(p.q_tiles);
    fc::prefetch_map(p.k_tiles);
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
      fc::arrive_expect_tx(query_full, 16384);
      fc::load_box(shared, p.q_tiles, query_full, 0, rows_begin, head, batch);
      query_phase ^= 1;
      const int t0 = -63 - ((((rows_begin * -1) + p.Sq) - p.Sk) + 256);
      const int t1 = (fc::min((rows_begin + 128), p.Sq) - 1) - p.Sq;
      const int cols_begin = fc::max(0, fc::min(((t0 + 63) >> 6), ((p.Sk + 63) / 64)));
      const int t2 = fc::min((((t1 + p.Sk) >> 6) + 1), ((p.Sk + 63) / 64));
      const int cols_end = fc::max(cols_begin, t2);

      // cols tiles of 64
      #pragma unroll 1
      for (int cols_tile = cols_end - 1; cols_tile >= cols_begin; --cols_tile) {
        const int cols_begin_2 = cols_tile * 64;
        // key <- k
        fc::wait_phase(key_empty + key_slot * 8, key_phase ^ 1);
        fc::arrive_expect_tx(key_full + key_slot * 8, 8192);
        fc::load_box(shared + 16384 + key_slot * 8192, p.k_tiles, key_full + key_slot * 8, 0, cols_begin_2, head, batch);
        if (++key_slot == 2) {
          key_slot = 0;
          key_phase ^= 1;
        }
        // value <- v
        fc::wait_phase(value_empty + value_slot * 8, value_phase ^ 1);
        fc::arrive_expect_tx(value_full + value_slot * 8, 8192);
        fc::load_box(shared + 32768 + value_slot * 8192, p.v_tiles, value_full + value_slot * 8, 0, cols_begin_2, head, batch);
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
    const float t3 = p.scale * 0.033333335f;
    const int t4 = p.Sk - p.Sq;
    const int t5 = fc::min((rows_begin + 128), p.Sq) - 1;
    const int t6 = -63 - ((((rows_begin * -1) + p.Sq) - p.Sk) + 256);
    const int t7 = (0 - ((((t5 * -1) + p.Sq) - p.Sk) + 256)) + 63;
    const int t8 = ((((rows_begin - p.Sq) + p.Sk) + -63) >> 6) + 1;
    const int cols_begin_3 = fc::max(0, fc::min(((t6 + 63) >> 6), ((p.Sk + 63) / 64)));
    const int t9 = fc::min(((((t5 - p.Sq) + p.Sk) >> 6) + 1), ((p.Sk + 63) / 64));
    const int cols_end_2 = fc::max(cols_begin_3, t9);
    const int cols_full_begin = fc::max(cols_begin_3, fc::min((t7 >> 6), cols_end_2));
    const int cols_full_end = fc::max(cols_full_begin, fc::min(t8, cols_end_2));
    fc::wait_phase(query_full, query_phase_2);
    const fc::u32 query = shared;
    const int t10 = cols_end_2 - 1;
    float row_sum[1][2];
    float out[1][8][4];
    if (t10 >= cols_begin_3) {
      const int cols_begin_4 = t10 * 64;
      fc::wait_phase(key_full + key_slot_2 * 8, key_phase_2);
      const fc::u32 key = shared + 16384 + key_slot_2 * 8192;
      // product = dot(query, transpose(key)), issued
      float t11[1][8][4];
      fc::pin(t11);
      fc::fence_products();
      {
        const fc::u64 a = fc::matrix(query + warp / 4 * 8192, 64, 0);
        const fc::u64 b = fc::matrix(key, 64, 0);
        fc::multiply_warpgroup<64, fc::bf16, 4, fc::along<64, 16384>, fc::along<64, 8192>>(t11[0], a, b, false);
      }
      fc::commit_products();
      fc::wait_products<0>();
      fc::pin(t11);
      if (thread % 128 == 0) fc::arrive(key_empty + key_slot_2 * 8);
      if (++key_slot_2 == 2) {
        key_slot_2 = 0;
        key_phase_2 ^= 1;
      }
      // whether polynomials serve for tanh(t11 * t3)
      const fc::small_tanh small = fc::small_tanh_of(fc::in_place(t3), 43.28085f);
      float t11_squares[8] = {};
      #pragma unroll
      for (int j = 0; j < 8; ++j) {
        #pragma unroll
        for (int e = 0; e < 4; ++e) {
          float& sum = t11_squares[(e + 0 * 4 + j * 4) % 8];
          sum = fc::fma(t11[0][j][e], t11[0][j][e], sum);
        }
      }
      bool all_small = true;
      #pragma unroll
      for (int i = 0; i < 8; ++i)
        all_small = all_small && fc::is_small(small, t11_squares[i]);
      if (t10 < cols_full_begin || t10 >= cols_full_end) {
        int t12[1][2];
        // t12 = add(index(rows), t4)
        #pragma unroll
        for (int e = 0; e < 2; ++e)
          t12[0][e] = (rows_begin + rows_lane + e * 8) + t4;
        int t13[1][2];
        // t13 = sub(t12, 256)
        #pragma unroll
        for (int e = 0; e < 2; ++e)
          t13[0][e] = t12[0][e] - 256;
        // t11 = where(logical_and(ge(index(cols), t13), le(index(cols), t12)), t11, -inf)
        #pragma unroll
        for (int j = 0; j < 8; ++j) {
          #pragma unroll
          for (int e = 0; e < 4; ++e) {
            const bool t14 = (j * 8 + (e % 2) * 1) >= (t13[0][(e / 2)] - (cols_begin_4 + cols_lane));
            const bool t15 = (j * 8 + (e % 2) * 1) <= (t12[0][(e / 2)] - (cols_begin_4 + cols_lane));
            const bool t16 = t14 && t15;
            t11[0][j][e] = t16 ? t11[0][j][e] : -fc::infinity();
          }
        }
      }
      float t17[1][2];
      // t17 = neg(row_max)
      #pragma unroll
      for (int e = 0; e < 2; ++e)
        t17[0][e] = -0.f;
      // probs = exp2(tanh(t11 * t3), -inf where that is, times 43.28085f plus t17)
      // reduce_sum = reduce_sum(probs, cols), each lane its partial
      float t18[1][2] = {};
      // as rounded where a mask cuts the tile
      if (fc::all_lanes(all_small)) {
        #pragma unroll
        for (int j = 0; j < 8; ++j) {
          #pragma unroll
          for (int e = 0; e < 4; ++e) {
            t11[0][j][e] = fc::exp2(fc::evaluate_add(small, t11[0][j][e], t17[0][(e / 2)]));
            t18[0][(e / 2)] += fc::round_to<fc::bf16>(t11[0][j][e]);
          }
        }
      }
      else {
        #pragma unroll
        for (int j = 0; j < 8; ++j) {
          #pragma unroll
          for (int e = 0; e < 4; ++e) {
            if (e == 0 && j % 2 == 0) fc::hold_order();
            t11[0][j][e] = fc::exp2(fc::evaluate_visible_add(small, t11[0][j][e], t17[0][(e / 2)]));
            t18[0][(e / 2)] += fc::round_to<fc::bf16>(t11[0][j][e]);
          }
        }
      }
      // row_sum = add(row_sum, t18)
      #pragma unroll
      for (int e = 0; e < 2; ++e)
        t18[0][e] = 0.f + t18[0][e];
      // t11_operand: t11 as a left operand
      fc::u32 t11_operand[1][4][4];
      #pragma unroll
      for (int i = 0; i < 1; ++i)
        #pragma unroll
        for (int k = 0; k < 4; ++k)
          #pragma unroll
          for (int r = 0; r < 4; ++r)
            t11_operand[i][k][r] =
                fc::pack<fc::bf16>(t11[i][2 * k + r / 2][r % 2 * 2], t11[i][2 * k + r / 2][r % 2 * 2 + 1]);

      float out_2[1][8][4] = {};
      // cols tiles of 64
      for (int cols_tile_2 = t10 - 1; cols_tile_2 >= cols_begin_3; --cols_tile_2) {
        const int cols_begin_5 = cols_tile_2 * 64;
        fc::wait_phase(key_full + key_slot_2 * 8, key_phase_2);
        const fc::u32 key_2 = shared + 16384 + key_slot_2 * 8192;
        // product = dot(query, transpose(key_2)), issued
        float t19[1][8][4];
        fc::pin(t19);
        fc::fence_products();
        {
          const fc::u64 a = fc::matrix(query + warp / 4 * 8192, 64, 0);
          const fc::u64 b = fc::matrix(key_2, 64, 0);
          fc::multiply_warpgroup<64, fc::bf16, 4, fc::along<64, 16384>, fc::along<64, 8192>>(t19[0], a, b, false);
        }
        fc::commit_products();
        fc::wait_phase(value_full + value_slot_2 * 8, value_phase_2);
        const fc::u32 value = shared + 32768 + value_slot_2 * 8192;
        // out = out_2 + dot(t11_operand, value), issued
        fc::pin(out_2);
        fc::fence_products();
        {
          const fc::u64 b = fc::matrix(value, 64, 0);
          fc::multiply_warpgroup<64, fc::bf16, 4, fc::across<64>>(out_2[0], t11_operand[0], b, true);
        }
        fc::commit_products();
        fc::wait_products<1>();
        fc::pin(t19);
        if (thread % 128 == 0) fc::arrive(key_empty + key_slot_2 * 8);
        if (++key_slot_2 == 2) {
          key_slot_2 = 0;
          key_phase_2 ^= 1;
        }
        // whether polynomials serve for tanh(t19 * t3)
        const fc::small_tanh small_2 = fc::small_tanh_of(fc::in_place(t3), 43.28085f);
        float t19_squares[8] = {};
        #pragma unroll
        for (int j = 0; j < 8; ++j) {
          #pragma unroll
          for (int e = 0; e < 4; ++e) {
            float& sum = t19_squares[(e + 0 * 4 + j * 4) % 8];
            sum = fc::fma(t19[0][j][e], t19[0][j][e], sum);
          }
        }
        bool all_small_2 = true;
        #pragma unroll
        for (int i = 0; i < 8; ++i)
          all_small_2 = all_small_2 && fc::is_small(small_2, t19_squares[i]);
        float t20[1][2];
        // t20 = neg(row_max)
        #pragma unroll
        for (int e = 0; e < 2; ++e)
          t20[0][e] = -0.f;
        // probs = exp2(tanh(t19 * t3), -inf where that is, times 43.28085f plus t20)
        // reduce_sum = reduce_sum(probs, cols), each lane its partial
        float t21[1][2] = {};
        // as rounded where a mask cuts the tile
        if (fc::all_lanes(all_small_2 && !(cols_tile_2 < cols_full_begin || cols_tile_2 >= cols_full_end))) {
          #pragma unroll
          for (int j = 0; j < 8; ++j) {
            #pragma unroll
            for (int e = 0; e < 4; ++e) {
              t19[0][j][e] = fc::exp2(fc::evaluate_add(small_2, t19[0][j][e], t20[0][(e / 2)]));
              t21[0][(e / 2)] += t19[0][j][e];
            }
          }
        }
        else {
          if (cols_tile_2 < cols_full_begin || cols_tile_2 >= cols_full_end) {
            int t22[1][2];
            // t22 = add(index(rows), t4)
            #pragma unroll
            for (int e = 0; e < 2; ++e)
              t22[0][e] = (rows_begin + rows_lane + e * 8) + t4;
            int t23[1][2];
            // t23 = sub(t22, 256)
            #pragma unroll
            for (int e = 0; e < 2; ++e)
              t23[0][e] = t22[0][e] - 256;
            // t19 = where(logical_and(ge(index(cols), t23), le(index(cols), t22)), t19, -inf)
            #pragma unroll
            for (int j = 0; j < 8; ++j) {
              #pragma unroll
              for (int e = 0; e < 4; ++e) {
                const bool t24 = (j * 8 + (e % 2) * 1) >= (t23[0][(e / 2)] - (cols_begin_5 + cols_lane));
                const bool t25 = (j * 8 + (e % 2) * 1) <= (t22[0][(e / 2)] - (cols_begin_5 + cols_lane));
                const bool t26 = t24 && t25;
                t19[0][j][e] = t26 ? t19[0][j][e] : -fc::infinity();
              }
            }
          }
          if (fc::all_lanes(all_small_2)) {
            #pragma unroll
            for (int j = 0; j < 8; ++j) {
              #pragma unroll
              for (int e = 0; e < 4; ++e) {
                t19[0][j][e] = fc::exp2(fc::evaluate_add(small_2, t19[0][j][e], t20[0][(e / 2)]));
                t21[0][(e / 2)] += fc::round_to<fc::bf16>(t19[0][j][e]);
              }
            }
          }
          else {
            #pragma unroll
            for (int j = 0; j < 8; ++j) {
              #pragma unroll
              for (int e = 0; e < 4; ++e) {
                if (e == 0 && j % 2 == 0) fc::hold_order();
                t19[0][j][e] = fc::exp2(fc::evaluate_visible_add(small_2, t19[0][j][e], t20[0][(e / 2)]));
                t21[0][(e / 2)] += fc::round_to<fc::bf16>(t19[0][j][e]);
              }
            }
          }
        }
        // row_sum = add(row_sum, t21)
        #pragma unroll
        for (int e = 0; e < 2; ++e)
          t18[0][e] = t18[0][e] + t21[0][e];
        fc::wait_products<0>();
        fc::pin(out_2);
        if (thread % 128 == 0) fc::arrive(value_empty + value_slot_2 * 8);
        if (++value_slot_2 == 2) {
          value_slot_2 = 0;
          value_phase_2 ^= 1;
        }
        // t11_operand: t19 as a left operand
        #pragma unroll
        for (int i = 0; i < 1; ++i)
          #pragma unroll
          for (int k = 0; k < 4; ++k)
            #pragma unroll
            for (int r = 0; r < 4; ++r)
              t11_operand[i][k][r] =
                  fc::pack<fc::bf16>(t19[i][2 * k + r / 2][r % 2 * 2], t19[i][2 * k + r / 2][r % 2 * 2 + 1]);
      }
      fc::wait_phase(value_full + value_slot_2 * 8, value_phase_2);
      const fc::u32 value_2 = shared + 32768 + value_slot_2 * 8192;
      // out = out_2 + dot(t11_operand, value_2), issued
      fc::pin(out_2);
      fc::fence_products();
      {
        const fc::u64 b = fc::matrix(value_2, 64, 0);
        fc::multiply_warpgroup<64, fc::bf16, 4, fc::across<64>>(out_2[0], t11_operand[0], b, true);
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
        row_sum[0][e] = t18[0][e];
      #pragma unroll
      for (int j = 0; j < 8; ++j)
        #pragma unroll
        for (int e = 0; e < 4; ++e)
          out[0][j][e] = out_2[0][j][e];
    }
    else {
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
      const float t27 = fc::divide(1.f, row_sum[0][e]);
      inverse[0][e] = empty ? 0.f : t27;
    }
    float t28[1][8][4];
    // t28 = cast(mul(out, inverse))
    #pragma unroll
    for (int j = 0; j < 8; ++j) {
      #pragma unroll
      for (int e = 0; e < 4; ++e) {
        const float t29 = out[0][j][e] * inverse[0][(e / 2)];
        t28[0][j][e] = t29;
      }
    }
    if (thread % 128 == 0) fc::wait_stores_read<0>();
    fc::meet(1 + warp / 4, 128);
    // t28 in shared memory
    const fc::u32 o_staged = shared;
    #pragma unroll
    for (int i = 0; i < 1; ++i)
      #pragma unroll
      for (int j = 0; j < 8; ++j)
        #pragma unroll
        for (int r = 0; r < 2; ++r)
          fc::store_shared(o_staged + fc::chunk_offset<128, 64>(rows_lane + i * 16 + r * 8, j * 8) + lane % 4 * 4,
                           fc::pack<fc::bf16>(t28[i][j][2 * r], t28[i][j][2 * r + 1]));
    // store o
    fc::fence_async();
    fc::meet(1 + warp / 4, 128);
    if (thread % 128 == 0) {
      fc::store_box(p.o_tiles, o_staged + warp / 4 * 8192, 0, rows_begin + warp / 4 * 64, head, batch);
      fc::commit_stores();
    }
    if (thread % 128 == 0) fc::wait_stores_read<0>();
    fc::meet(1 + warp / 4, 128);
    if (thread % 128 == 0) fc::arrive(query_empty);
    query_phase_2 ^= 1;
    if (thread % 128 == 0) fc::wait_stores_read<0>();
  }
}
