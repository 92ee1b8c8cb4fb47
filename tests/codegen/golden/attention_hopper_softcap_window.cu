struct Parameters {
  fc::tensor_map q_tiles;  // of 128 x 64
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
        fc::wait_phase(key_empty + key_slot * 8, key_phase ^ 1);
        // key <- k
        fc::arrive_expect_tx(key_full + key_slot * 8, 8192);
        fc::load_box(shared + 16384 + key_slot * 8192, p.k_tiles, key_full + key_slot * 8, 0, cols_begin_2, head, batch);
        if (++key_slot == 2) {
          key_slot = 0;
          key_phase ^= 1;
        }
        fc::wait_phase(value_empty + value_slot * 8, value_phase ^ 1);
        // value <- v
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
      fc::arrive_if(thread % 128 == 0, key_empty + key_slot_2 * 8);
      if (++key_slot_2 == 2) {
        key_slot_2 = 0;
        key_phase_2 ^= 1;
      }
      const float factor = fc::in_place(t3);
      const float square = factor * factor;
      const float cube = square * factor;
      const float first = (0.99999887f * factor) * 43.28085f;
      const float third = (-0.33310074f * cube) * 43.28085f;
      const float fifth = (0.12634595f * (cube * square)) * 43.28085f;
      const float limit = 0.09f * fc::reciprocal(square);
      const float exponent = 2.88539f * factor;
      // whether no square of t11 is above limit
      float t11_squares[8] = {};
      #pragma unroll
      for (int j = 0; j < 8; ++j) {
        #pragma unroll
        for (int e = 0; e < 4; ++e) {
          float& sum = t11_squares[(e + 0 * 4 + j * 4) % 8];
          sum = fc::fma(t11[0][j][e], t11[0][j][e], sum);
        }
      }
      bool within = true;
      #pragma unroll
      for (int i = 0; i < 8; ++i)
        within = within && t11_squares[i] <= limit;
      const bool masked = (t10 < cols_full_begin) || (t10 >= cols_full_end);
      if (masked) {
        int t12[1][2];
        // t12 = add(index(rows), t4)
        int t13[1][2];
        // t13 = sub(t12, 256)
        #pragma unroll
        for (int e = 0; e < 2; ++e) {
          t12[0][e] = (rows_begin + rows_lane + e * 8) + t4;
          t13[0][e] = t12[0][e] - 256;
        }
        // t11 = where(logical_and(ge(thread_offset, sub(t13, thread_begin)), le(thread_offset, sub(t12, thread_begin))), t11, -inf)
        #pragma unroll
        for (int j = 0; j < 8; ++j) {
          #pragma unroll
          for (int e = 0; e < 4; ++e) {
            const int t14 = t13[0][(e / 2)] - (cols_begin_4 + cols_lane);
            const bool t15 = (j * 8 + (e % 2)) >= t14;
            const int t16 = t12[0][(e / 2)] - (cols_begin_4 + cols_lane);
            const bool t17 = (j * 8 + (e % 2)) <= t16;
            const bool t18 = t15 && t17;
            t11[0][j][e] = t18 ? t11[0][j][e] : -fc::infinity();
          }
        }
      }
      float t19[1][2];
      // t19 = neg(row_max)
      #pragma unroll
      for (int e = 0; e < 2; ++e)
        t19[0][e] = -0.f;
      if (fc::all_lanes(within)) {
        // probs = exp2(fma(t11, fma(fma(fifth, mul(t11, t11), third), mul(t11, t11), first), t19))
        // reduce_sum = reduce_sum(cast, cols), each lane its partial
        #pragma unroll
        for (int e = 0; e < 2; ++e)
          row_sum[0][e] = 0.f;
        #pragma unroll
        for (int j = 0; j < 8; ++j) {
          #pragma unroll
          for (int e = 0; e < 4; ++e) {
            const float t20 = t11[0][j][e] * t11[0][j][e];
            const float t21 = fc::fma(fifth, t20, third);
            const float t22 = fc::fma(t21, t20, first);
            const float t23 = fc::fma(t11[0][j][e], t22, t19[0][(e / 2)]);
            t11[0][j][e] = fc::exp2(t23);
            const float t24 = fc::round_to<fc::bf16>(t11[0][j][e]);
            const float t25 = t24;
            row_sum[0][(e / 2)] = row_sum[0][(e / 2)] + t25;
          }
        }
      }
      else {
        // probs = exp2(fma((-2.f * 43.28085f), reciprocal(add(exp2(mul(t11, exponent)), 1)), fma(min(t11, 0), 1.401298464e-45, add(t19, 43.2808512266689))))
        // reduce_sum = reduce_sum(cast, cols), each lane its partial
        #pragma unroll
        for (int e = 0; e < 2; ++e)
          row_sum[0][e] = 0.f;
        #pragma unroll
        for (int j = 0; j < 8; ++j) {
          #pragma unroll
          for (int e = 0; e < 4; ++e) {
            if (e == 0 && j % 2 == 0) fc::hold_order();
            const float t26 = t11[0][j][e] * exponent;
            const float t27 = fc::exp2(t26);
            const float t28 = t27 + 1.f;
            const float t29 = fc::reciprocal(t28);
            const float t30 = t19[0][(e / 2)] + 43.28085f;
            const float t31 = fc::min(t11[0][j][e], 0.f);
            const float t32 = fc::fma(t31, 1e-45f, t30);
            const float t33 = fc::fma((-2.f * 43.28085f), t29, t32);
            t11[0][j][e] = fc::exp2(t33);
            const float t34 = fc::round_to<fc::bf16>(t11[0][j][e]);
            const float t35 = t34;
            row_sum[0][(e / 2)] = row_sum[0][(e / 2)] + t35;
          }
        }
      }
      // row_sum = add(row_sum, row_sum)
      #pragma unroll
      for (int e = 0; e < 2; ++e)
        row_sum[0][e] = 0.f + row_sum[0][e];
      fc::u32 t11_operand[1][4][4];
      // t11_operand: t11 as a left operand
      #pragma unroll
      for (int i = 0; i < 1; ++i)
        #pragma unroll
        for (int k = 0; k < 4; ++k)
          #pragma unroll
          for (int r = 0; r < 4; ++r)
            t11_operand[i][k][r] =
                fc::pack<fc::bf16>(t11[i][2 * k + r / 2][r % 2 * 2], t11[i][2 * k + r / 2][r % 2 * 2 + 1]);

      #pragma unroll
      for (int j = 0; j < 8; ++j)
        #pragma unroll
        for (int e = 0; e < 4; ++e)
          out[0][j][e] = 0.f;
      // cols tiles of 64
      for (int cols_tile_2 = t10 - 1; cols_tile_2 >= cols_begin_3; --cols_tile_2) {
        const int cols_begin_5 = cols_tile_2 * 64;
        fc::wait_phase(key_full + key_slot_2 * 8, key_phase_2);
        const fc::u32 key_2 = shared + 16384 + key_slot_2 * 8192;
        // product = dot(query, transpose(key_2)), issued
        float t36[1][8][4];
        fc::pin(t36);
        fc::fence_products();
        {
          const fc::u64 a = fc::matrix(query + warp / 4 * 8192, 64, 0);
          const fc::u64 b = fc::matrix(key_2, 64, 0);
          fc::multiply_warpgroup<64, fc::bf16, 4, fc::along<64, 16384>, fc::along<64, 8192>>(t36[0], a, b, false);
        }
        fc::commit_products();
        fc::wait_phase(value_full + value_slot_2 * 8, value_phase_2);
        const fc::u32 value = shared + 32768 + value_slot_2 * 8192;
        // out = out + dot(t11_operand, value), issued
        fc::pin(out);
        fc::fence_products();
        {
          const fc::u64 b = fc::matrix(value, 64, 0);
          fc::multiply_warpgroup<64, fc::bf16, 4, fc::across<64>>(out[0], t11_operand[0], b, true);
        }
        fc::commit_products();
        fc::wait_products<1>();
        fc::pin(t36);
        fc::arrive_if(thread % 128 == 0, key_empty + key_slot_2 * 8);
        if (++key_slot_2 == 2) {
          key_slot_2 = 0;
          key_phase_2 ^= 1;
        }
        const bool t37 = (cols_tile_2 >= cols_full_begin) && (cols_tile_2 < cols_full_end);
        const float factor_2 = fc::in_place(t3);
        const float square_2 = factor_2 * factor_2;
        const float cube_2 = square_2 * factor_2;
        const float first_2 = (0.99999887f * factor_2) * 43.28085f;
        const float third_2 = (-0.33310074f * cube_2) * 43.28085f;
        const float fifth_2 = (0.12634595f * (cube_2 * square_2)) * 43.28085f;
        const float limit_2 = 0.09f * fc::reciprocal(square_2);
        const float exponent_2 = 2.88539f * factor_2;
        // whether no square of t36 is above limit_2
        float t36_squares[8] = {};
        #pragma unroll
        for (int j = 0; j < 8; ++j) {
          #pragma unroll
          for (int e = 0; e < 4; ++e) {
            float& sum = t36_squares[(e + 0 * 4 + j * 4) % 8];
            sum = fc::fma(t36[0][j][e], t36[0][j][e], sum);
          }
        }
        bool within_2 = true;
        #pragma unroll
        for (int i = 0; i < 8; ++i)
          within_2 = within_2 && t36_squares[i] <= limit_2;
        float t38[1][2];
        // t38 = neg(row_max)
        #pragma unroll
        for (int e = 0; e < 2; ++e)
          t38[0][e] = -0.f;
        float t39[1][2];
        if (fc::all_lanes(within_2) && t37) {
          // probs = exp2(fma(t36, fma(fma(fifth_2, mul(t36, t36), third_2), mul(t36, t36), first_2), t38))
          // reduce_sum = reduce_sum(probs, cols), each lane its partial
          #pragma unroll
          for (int e = 0; e < 2; ++e)
            t39[0][e] = 0.f;
          #pragma unroll
          for (int j = 0; j < 8; ++j) {
            #pragma unroll
            for (int e = 0; e < 4; ++e) {
              const float t40 = t36[0][j][e] * t36[0][j][e];
              const float t41 = fc::fma(fifth_2, t40, third_2);
              const float t42 = fc::fma(t41, t40, first_2);
              const float t43 = fc::fma(t36[0][j][e], t42, t38[0][(e / 2)]);
              t36[0][j][e] = fc::exp2(t43);
              t39[0][(e / 2)] = t39[0][(e / 2)] + t36[0][j][e];
            }
          }
        }
        else {
          const bool masked_2 = (cols_tile_2 < cols_full_begin) || (cols_tile_2 >= cols_full_end);
          if (masked_2) {
            int t44[1][2];
            // t44 = add(index(rows), t4)
            int t45[1][2];
            // t45 = sub(t44, 256)
            #pragma unroll
            for (int e = 0; e < 2; ++e) {
              t44[0][e] = (rows_begin + rows_lane + e * 8) + t4;
              t45[0][e] = t44[0][e] - 256;
            }
            // t36 = where(logical_and(ge(thread_offset, sub(t45, thread_begin)), le(thread_offset, sub(t44, thread_begin))), t36, -inf)
            #pragma unroll
            for (int j = 0; j < 8; ++j) {
              #pragma unroll
              for (int e = 0; e < 4; ++e) {
                const int t46 = t45[0][(e / 2)] - (cols_begin_5 + cols_lane);
                const bool t47 = (j * 8 + (e % 2)) >= t46;
                const int t48 = t44[0][(e / 2)] - (cols_begin_5 + cols_lane);
                const bool t49 = (j * 8 + (e % 2)) <= t48;
                const bool t50 = t47 && t49;
                t36[0][j][e] = t50 ? t36[0][j][e] : -fc::infinity();
              }
            }
          }
          if (fc::all_lanes(within_2)) {
            // probs = exp2(fma(t36, fma(fma(fifth_2, mul(t36, t36), third_2), mul(t36, t36), first_2), t38))
            // reduce_sum = reduce_sum(cast, cols), each lane its partial
            #pragma unroll
            for (int e = 0; e < 2; ++e)
              t39[0][e] = 0.f;
            #pragma unroll
            for (int j = 0; j < 8; ++j) {
              #pragma unroll
              for (int e = 0; e < 4; ++e) {
                const float t51 = t36[0][j][e] * t36[0][j][e];
                const float t52 = fc::fma(fifth_2, t51, third_2);
                const float t53 = fc::fma(t52, t51, first_2);
                const float t54 = fc::fma(t36[0][j][e], t53, t38[0][(e / 2)]);
                t36[0][j][e] = fc::exp2(t54);
                const float t55 = fc::round_to<fc::bf16>(t36[0][j][e]);
                const float t56 = t55;
                t39[0][(e / 2)] = t39[0][(e / 2)] + t56;
              }
            }
          }
          else {
            // probs = exp2(fma((-2.f * 43.28085f), reciprocal(add(exp2(mul(t36, exponent_2)), 1)), fma(min(t36, 0), 1.401298464e-45, add(t38, 43.2808512266689))))
            // reduce_sum = reduce_sum(cast, cols), each lane its partial
            #pragma unroll
            for (int e = 0; e < 2; ++e)
              t39[0][e] = 0.f;
            #pragma unroll
            for (int j = 0; j < 8; ++j) {
              #pragma unroll
              for (int e = 0; e < 4; ++e) {
                if (e == 0 && j % 2 == 0) fc::hold_order();
                const float t57 = t36[0][j][e] * exponent_2;
                const float t58 = fc::exp2(t57);
                const float t59 = t58 + 1.f;
                const float t60 = fc::reciprocal(t59);
                const float t61 = t38[0][(e / 2)] + 43.28085f;
                const float t62 = fc::min(t36[0][j][e], 0.f);
                const float t63 = fc::fma(t62, 1e-45f, t61);
                const float t64 = fc::fma((-2.f * 43.28085f), t60, t63);
                t36[0][j][e] = fc::exp2(t64);
                const float t65 = fc::round_to<fc::bf16>(t36[0][j][e]);
                const float t66 = t65;
                t39[0][(e / 2)] = t39[0][(e / 2)] + t66;
              }
            }
          }
        }
        // row_sum = add(row_sum, t39)
        #pragma unroll
        for (int e = 0; e < 2; ++e)
          row_sum[0][e] = row_sum[0][e] + t39[0][e];
        fc::wait_products<0>();
        fc::pin(out);
        fc::arrive_if(thread % 128 == 0, value_empty + value_slot_2 * 8);
        if (++value_slot_2 == 2) {
          value_slot_2 = 0;
          value_phase_2 ^= 1;
        }
        // t11_operand: t36 as a left operand
        #pragma unroll
        for (int i = 0; i < 1; ++i)
          #pragma unroll
          for (int k = 0; k < 4; ++k)
            #pragma unroll
            for (int r = 0; r < 4; ++r)
              t11_operand[i][k][r] =
                  fc::pack<fc::bf16>(t36[i][2 * k + r / 2][r % 2 * 2], t36[i][2 * k + r / 2][r % 2 * 2 + 1]);
      }
      fc::wait_phase(value_full + value_slot_2 * 8, value_phase_2);
      const fc::u32 value_2 = shared + 32768 + value_slot_2 * 8192;
      // out = out + dot(t11_operand, value_2), issued
      fc::pin(out);
      fc::fence_products();
      {
        const fc::u64 b = fc::matrix(value_2, 64, 0);
        fc::multiply_warpgroup<64, fc::bf16, 4, fc::across<64>>(out[0], t11_operand[0], b, true);
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
      const float t67 = fc::divide(1.f, row_sum[0][e]);
      inverse[0][e] = empty ? 0.f : t67;
    }
    float t68[1][8][4];
    // t68 = cast(mul(out, inverse))
    #pragma unroll
    for (int j = 0; j < 8; ++j) {
      #pragma unroll
      for (int e = 0; e < 4; ++e) {
        const float t69 = out[0][j][e] * inverse[0][(e / 2)];
        t68[0][j][e] = t69;
      }
    }
    if (thread % 128 == 0) fc::wait_stores_read<0>();
    fc::meet(1 + warp / 4, 128);
    // t68 in shared memory
    const fc::u32 o_staged = shared;
    #pragma unroll
    for (int i = 0; i < 1; ++i)
      #pragma unroll
      for (int j = 0; j < 8; ++j)
        #pragma unroll
        for (int r = 0; r < 2; ++r)
          fc::store_shared(o_staged + fc::chunk_offset<128, 64>(rows_lane + i * 16 + r * 8, j * 8) + lane % 4 * 4,
                           fc::pack<fc::bf16>(t68[i][j][2 * r], t68[i][j][2 * r + 1]));
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
