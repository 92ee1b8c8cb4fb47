struct Parameters {
  fc::tensor_map q_tiles;  // of 128 x 64
  fc::tensor_map q_tiles_128x16;  // of 128 x 16
  fc::tensor_map k_tiles;  // of 128 x 64
  fc::tensor_map k_tiles_128x16;  // of 128 x 16
  fc::tensor_map v_tiles;  // of 128 x 64
  fc::tensor_map v_tiles_128x16;  // of 128 x 16
  fc::tensor_map o_tiles;  // of 64 x 64
  fc::tensor_map o_tiles_64x16;  // of 64 x 16
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
  fc::wait_for_kernels();
  fc::launch_dependents();

  if (warp >= 8) {
    fc::shrink_registers<24>();
    if (thread == 256) {
      int query_phase = 0;
      int key_slot = 0, key_phase = 0;
      int value_slot = 0, value_phase = 0;
      fc::wait_phase(query_empty, query_phase ^ 1);
      // query <- q
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
        fc::wait_phase(key_empty + key_slot * 8, key_phase ^ 1);
        // key <- k
        fc::arrive_expect_tx(key_full + key_slot * 8, 20480);
        fc::load_box(shared + 20480 + key_slot * 20480, p.k_tiles, key_full + key_slot * 8, 0, cols_begin, head, batch);
        fc::load_box(shared + 20480 + key_slot * 20480 + 16384, p.k_tiles_128x16, key_full + key_slot * 8, 64, cols_begin, head, batch);
        if (++key_slot == 2) {
          key_slot = 0;
          key_phase ^= 1;
        }
        fc::wait_phase(value_empty + value_slot * 8, value_phase ^ 1);
        // value <- v
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
      fc::arrive_if(thread % 128 == 0, key_empty + key_slot_2 * 8);
      if (++key_slot_2 == 2) {
        key_slot_2 = 0;
        key_phase_2 ^= 1;
      }
      const float factor = fc::in_place(t2);
      const float square = factor * factor;
      const float cube = square * factor;
      const float first = (0.99999887f * factor) * 43.28085f;
      const float third = (-0.33310074f * cube) * 43.28085f;
      const float fifth = (0.12634595f * (cube * square)) * 43.28085f;
      const float limit = 0.09f * fc::reciprocal(square);
      const float exponent = 2.88539f * factor;
      // whether no square of t8 is above limit
      float t8_squares[8] = {};
      #pragma unroll
      for (int j = 0; j < 16; ++j) {
        #pragma unroll
        for (int e = 0; e < 4; ++e) {
          float& sum = t8_squares[(e + 0 * 4 + j * 4) % 8];
          sum = fc::fma(t8[0][j][e], t8[0][j][e], sum);
        }
      }
      bool within = true;
      #pragma unroll
      for (int i = 0; i < 8; ++i)
        within = within && t8_squares[i] <= limit;
      const bool masked = t7 >= cols_full_end;
      if (masked) {
        int t9[1][2];
        // t9 = add(index(rows), t3)
        #pragma unroll
        for (int e = 0; e < 2; ++e)
          t9[0][e] = (rows_begin + rows_lane + e * 8) + t3;
        // t8 = where(ge(sub(t9, thread_begin), thread_offset), t8, -inf)
        #pragma unroll
        for (int j = 0; j < 16; ++j) {
          #pragma unroll
          for (int e = 0; e < 4; ++e) {
            const int t10 = t9[0][(e / 2)] - (cols_begin_2 + cols_lane);
            const bool t11 = t10 >= (j * 8 + (e % 2));
            t8[0][j][e] = t11 ? t8[0][j][e] : -fc::infinity();
          }
        }
      }
      float t12[1][2];
      // t12 = neg(row_max)
      #pragma unroll
      for (int e = 0; e < 2; ++e)
        t12[0][e] = -0.f;
      if (fc::all_lanes(within)) {
        // probs = exp2(fma(t8, fma(fma(fifth, mul(t8, t8), third), mul(t8, t8), first), t12))
        // reduce_sum = reduce_sum(cast, cols), each lane its partial
        #pragma unroll
        for (int e = 0; e < 2; ++e)
          row_sum[0][e] = 0.f;
        #pragma unroll
        for (int j = 0; j < 16; ++j) {
          #pragma unroll
          for (int e = 0; e < 4; ++e) {
            const float t13 = t8[0][j][e] * t8[0][j][e];
            const float t14 = fc::fma(fifth, t13, third);
            const float t15 = fc::fma(t14, t13, first);
            const float t16 = fc::fma(t8[0][j][e], t15, t12[0][(e / 2)]);
            t8[0][j][e] = fc::exp2(t16);
            const float t17 = fc::round_to<fc::bf16>(t8[0][j][e]);
            const float t18 = t17;
            row_sum[0][(e / 2)] = row_sum[0][(e / 2)] + t18;
          }
        }
      }
      else {
        // probs = exp2(fma((-2.f * 43.28085f), reciprocal(add(exp2(mul(t8, exponent)), 1)), fma(min(t8, 0), 1.401298464e-45, add(t12, 43.2808512266689))))
        // reduce_sum = reduce_sum(cast, cols), each lane its partial
        #pragma unroll
        for (int e = 0; e < 2; ++e)
          row_sum[0][e] = 0.f;
        #pragma unroll
        for (int j = 0; j < 16; ++j) {
          #pragma unroll
          for (int e = 0; e < 4; ++e) {
            if (e == 0 && j % 2 == 0) fc::hold_order();
            const float t19 = t8[0][j][e] * exponent;
            const float t20 = fc::exp2(t19);
            const float t21 = t20 + 1.f;
            const float t22 = fc::reciprocal(t21);
            const float t23 = t12[0][(e / 2)] + 43.28085f;
            const float t24 = fc::min(t8[0][j][e], 0.f);
            const float t25 = fc::fma(t24, 1e-45f, t23);
            const float t26 = fc::fma((-2.f * 43.28085f), t22, t25);
            t8[0][j][e] = fc::exp2(t26);
            const float t27 = fc::round_to<fc::bf16>(t8[0][j][e]);
            const float t28 = t27;
            row_sum[0][(e / 2)] = row_sum[0][(e / 2)] + t28;
          }
        }
      }
      // row_sum = add(row_sum, row_sum)
      #pragma unroll
      for (int e = 0; e < 2; ++e)
        row_sum[0][e] = 0.f + row_sum[0][e];
      fc::u32 t8_operand[1][8][4];
      // t8_operand: t8 as a left operand
      #pragma unroll
      for (int i = 0; i < 1; ++i)
        #pragma unroll
        for (int k = 0; k < 8; ++k)
          #pragma unroll
          for (int r = 0; r < 4; ++r)
            t8_operand[i][k][r] =
                fc::pack<fc::bf16>(t8[i][2 * k + r / 2][r % 2 * 2], t8[i][2 * k + r / 2][r % 2 * 2 + 1]);

      #pragma unroll
      for (int j = 0; j < 10; ++j)
        #pragma unroll
        for (int e = 0; e < 4; ++e)
          out[0][j][e] = 0.f;
      // cols tiles of 128
      for (int cols_tile_2 = t7 - 1; cols_tile_2 >= 0; --cols_tile_2) {
        const int cols_begin_3 = cols_tile_2 * 128;
        fc::wait_phase(key_full + key_slot_2 * 8, key_phase_2);
        const fc::u32 key_2 = shared + 20480 + key_slot_2 * 20480;
        // product = dot(query, transpose(key_2)), issued
        float t29[1][16][4];
        fc::pin(t29);
        fc::fence_products();
        {
          const fc::u64 a = fc::matrix(query + warp / 4 * 8192, 64, 0);
          const fc::u64 b = fc::matrix(key_2, 64, 0);
          fc::multiply_warpgroup<128, fc::bf16, 4, fc::along<64, 16384>, fc::along<64, 16384>>(t29[0], a, b, false);
        }
        {
          const fc::u64 a = fc::matrix(query + 16384 + warp / 4 * 2048, 16, 0);
          const fc::u64 b = fc::matrix(key_2 + 16384, 16, 0);
          fc::multiply_warpgroup<128, fc::bf16, 1, fc::along<16, 4096>, fc::along<16, 4096>>(t29[0], a, b, true);
        }
        fc::commit_products();
        fc::wait_phase(value_full + value_slot_2 * 8, value_phase_2);
        const fc::u32 value = shared + 61440 + value_slot_2 * 20480;
        // out = out + dot(t8_operand, value), issued
        fc::pin(out);
        fc::fence_products();
        {
          const fc::u64 b = fc::matrix(value, 64, 0);
          fc::multiply_warpgroup<64, fc::bf16, 8, fc::across<64>>(out[0], t8_operand[0], b, true);
        }
        {
          const fc::u64 b = fc::matrix(value + 16384, 16, 0);
          fc::multiply_warpgroup<16, fc::bf16, 8, fc::across<16>>(out[0] + 8, t8_operand[0], b, true);
        }
        fc::commit_products();
        fc::wait_products<1>();
        fc::pin(t29);
        fc::arrive_if(thread % 128 == 0, key_empty + key_slot_2 * 8);
        if (++key_slot_2 == 2) {
          key_slot_2 = 0;
          key_phase_2 ^= 1;
        }
        const float factor_2 = fc::in_place(t2);
        const float square_2 = factor_2 * factor_2;
        const float cube_2 = square_2 * factor_2;
        const float first_2 = (0.99999887f * factor_2) * 43.28085f;
        const float third_2 = (-0.33310074f * cube_2) * 43.28085f;
        const float fifth_2 = (0.12634595f * (cube_2 * square_2)) * 43.28085f;
        const float limit_2 = 0.09f * fc::reciprocal(square_2);
        const float exponent_2 = 2.88539f * factor_2;
        const float t30 = (cols_tile_2 < cols_full_end) ? limit_2 : -1.f;
        // whether no square of t29 is above t30
        float t29_squares[8] = {};
        #pragma unroll
        for (int j = 0; j < 16; ++j) {
          #pragma unroll
          for (int e = 0; e < 4; ++e) {
            float& sum = t29_squares[(e + 0 * 4 + j * 4) % 8];
            sum = fc::fma(t29[0][j][e], t29[0][j][e], sum);
          }
        }
        bool within_2 = true;
        #pragma unroll
        for (int i = 0; i < 8; ++i)
          within_2 = within_2 && t29_squares[i] <= t30;
        float t31[1][2];
        // t31 = neg(row_max)
        #pragma unroll
        for (int e = 0; e < 2; ++e)
          t31[0][e] = -0.f;
        float t32[1][2];
        if (fc::all_lanes(within_2)) {
          // probs = exp2(fma(t29, fma(fma(fifth_2, mul(t29, t29), third_2), mul(t29, t29), first_2), t31))
          // reduce_sum = reduce_sum(probs, cols), each lane its partial
          #pragma unroll
          for (int e = 0; e < 2; ++e)
            t32[0][e] = 0.f;
          #pragma unroll
          for (int j = 0; j < 16; ++j) {
            #pragma unroll
            for (int e = 0; e < 4; ++e) {
              const float t33 = t29[0][j][e] * t29[0][j][e];
              const float t34 = fc::fma(fifth_2, t33, third_2);
              const float t35 = fc::fma(t34, t33, first_2);
              const float t36 = fc::fma(t29[0][j][e], t35, t31[0][(e / 2)]);
              t29[0][j][e] = fc::exp2(t36);
              t32[0][(e / 2)] = t32[0][(e / 2)] + t29[0][j][e];
            }
          }
        }
        else {
          // whether no square of t29 is above (t30 * 7.111111f)
          float t29_squares_2[8] = {};
          #pragma unroll
          for (int j = 0; j < 16; ++j) {
            #pragma unroll
            for (int e = 0; e < 4; ++e) {
              float& sum = t29_squares_2[(e + 0 * 4 + j * 4) % 8];
              sum = fc::fma(t29[0][j][e], t29[0][j][e], sum);
            }
          }
          bool within_3 = true;
          #pragma unroll
          for (int i = 0; i < 8; ++i)
            within_3 = within_3 && t29_squares_2[i] <= (t30 * 7.111111f);
          if (fc::all_lanes(within_3)) {
            // probs = exp2(fma(mul(t29, first_2), fma(fma(fma(fma(0.012100149, mul(mul(t29, t29), square_2), -0.0491801933), mul(mul(t29, t29), square_2), 0.132305769), mul(mul(t29, t29), square_2), -0.333254096), mul(mul(t29, t29), square_2), 1.00000012), t31))
            // reduce_sum = reduce_sum(probs, cols), each lane its partial
            #pragma unroll
            for (int e = 0; e < 2; ++e)
              t32[0][e] = 0.f;
            #pragma unroll
            for (int j = 0; j < 16; ++j) {
              #pragma unroll
              for (int e = 0; e < 4; ++e) {
                const float t37 = t29[0][j][e] * t29[0][j][e];
                const float t38 = t37 * square_2;
                const float t39 = fc::fma(0.012100149f, t38, -0.049180195f);
                const float t40 = fc::fma(t39, t38, 0.13230577f);
                const float t41 = fc::fma(t40, t38, -0.3332541f);
                const float t42 = fc::fma(t41, t38, 1.0000001f);
                const float t43 = t29[0][j][e] * first_2;
                const float t44 = fc::fma(t43, t42, t31[0][(e / 2)]);
                t29[0][j][e] = fc::exp2(t44);
                t32[0][(e / 2)] = t32[0][(e / 2)] + t29[0][j][e];
              }
            }
          }
          else {
            const bool masked_2 = cols_tile_2 >= cols_full_end;
            if (masked_2) {
              int t45[1][2];
              // t45 = add(index(rows), t3)
              #pragma unroll
              for (int e = 0; e < 2; ++e)
                t45[0][e] = (rows_begin + rows_lane + e * 8) + t3;
              // t29 = where(ge(sub(t45, thread_begin), thread_offset), t29, -inf)
              #pragma unroll
              for (int j = 0; j < 16; ++j) {
                #pragma unroll
                for (int e = 0; e < 4; ++e) {
                  const int t46 = t45[0][(e / 2)] - (cols_begin_3 + cols_lane);
                  const bool t47 = t46 >= (j * 8 + (e % 2));
                  t29[0][j][e] = t47 ? t29[0][j][e] : -fc::infinity();
                }
              }
            }
            // probs = exp2(fma((-2.f * 43.28085f), reciprocal(add(exp2(mul(t29, exponent_2)), 1)), fma(min(t29, 0), 1.401298464e-45, add(t31, 43.2808512266689))))
            // reduce_sum = reduce_sum(cast, cols), each lane its partial
            #pragma unroll
            for (int e = 0; e < 2; ++e)
              t32[0][e] = 0.f;
            #pragma unroll
            for (int j = 0; j < 16; ++j) {
              #pragma unroll
              for (int e = 0; e < 4; ++e) {
                if (e == 0 && j % 2 == 0) fc::hold_order();
                const float t48 = t29[0][j][e] * exponent_2;
                const float t49 = fc::exp2(t48);
                const float t50 = t49 + 1.f;
                const float t51 = fc::reciprocal(t50);
                const float t52 = t31[0][(e / 2)] + 43.28085f;
                const float t53 = fc::min(t29[0][j][e], 0.f);
                const float t54 = fc::fma(t53, 1e-45f, t52);
                const float t55 = fc::fma((-2.f * 43.28085f), t51, t54);
                t29[0][j][e] = fc::exp2(t55);
                const float t56 = fc::round_to<fc::bf16>(t29[0][j][e]);
                const float t57 = t56;
                t32[0][(e / 2)] = t32[0][(e / 2)] + t57;
              }
            }
          }
        }
        // row_sum = add(row_sum, t32)
        #pragma unroll
        for (int e = 0; e < 2; ++e)
          row_sum[0][e] = row_sum[0][e] + t32[0][e];
        fc::wait_products<0>();
        fc::pin(out);
        fc::arrive_if(thread % 128 == 0, value_empty + value_slot_2 * 8);
        if (++value_slot_2 == 2) {
          value_slot_2 = 0;
          value_phase_2 ^= 1;
        }
        // t8_operand: t29 as a left operand
        #pragma unroll
        for (int i = 0; i < 1; ++i)
          #pragma unroll
          for (int k = 0; k < 8; ++k)
            #pragma unroll
            for (int r = 0; r < 4; ++r)
              t8_operand[i][k][r] =
                  fc::pack<fc::bf16>(t29[i][2 * k + r / 2][r % 2 * 2], t29[i][2 * k + r / 2][r % 2 * 2 + 1]);
      }
      fc::wait_phase(value_full + value_slot_2 * 8, value_phase_2);
      const fc::u32 value_2 = shared + 61440 + value_slot_2 * 20480;
      // out = out + dot(t8_operand, value_2), issued
      fc::pin(out);
      fc::fence_products();
      {
        const fc::u64 b = fc::matrix(value_2, 64, 0);
        fc::multiply_warpgroup<64, fc::bf16, 8, fc::across<64>>(out[0], t8_operand[0], b, true);
      }
      {
        const fc::u64 b = fc::matrix(value_2 + 16384, 16, 0);
        fc::multiply_warpgroup<16, fc::bf16, 8, fc::across<16>>(out[0] + 8, t8_operand[0], b, true);
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
      const float t58 = fc::divide(1.f, row_sum[0][e]);
      inverse[0][e] = empty ? 0.f : t58;
    }
    float t59[1][10][4];
    // t59 = cast(mul(out, inverse))
    #pragma unroll
    for (int j = 0; j < 10; ++j) {
      #pragma unroll
      for (int e = 0; e < 4; ++e) {
        const float t60 = out[0][j][e] * inverse[0][(e / 2)];
        t59[0][j][e] = t60;
      }
    }
    if (thread % 128 == 0) fc::wait_stores_read<0>();
    fc::meet(1 + warp / 4, 128);
    // t59 in shared memory
    const fc::u32 o_staged = shared;
    #pragma unroll
    for (int i = 0; i < 1; ++i)
      #pragma unroll
      for (int j = 0; j < 10; ++j)
        #pragma unroll
        for (int r = 0; r < 2; ++r)
          fc::store_shared(o_staged + fc::chunk_offset<128, 80>(rows_lane + i * 16 + r * 8, j * 8) + lane % 4 * 4,
                           fc::pack<fc::bf16>(t59[i][j][2 * r], t59[i][j][2 * r + 1]));
    fc::fence_async();
    fc::meet(1 + warp / 4, 128);
    // store o
    if (thread % 128 == 0) {
      fc::store_box(p.o_tiles, o_staged + warp / 4 * 8192, 0, rows_begin + warp / 4 * 64, head, batch);
      fc::store_box(p.o_tiles_64x16, o_staged + 16384 + warp / 4 * 2048, 64, rows_begin + warp / 4 * 64, head, batch);
      fc::commit_stores();
    }
    if (thread % 128 == 0) fc::wait_stores_read<0>();
    fc::meet(1 + warp / 4, 128);
    fc::arrive_if(thread % 128 == 0, query_empty);
    query_phase_2 ^= 1;
    if (thread % 128 == 0) fc::wait_stores_read<0>();
  }
}
