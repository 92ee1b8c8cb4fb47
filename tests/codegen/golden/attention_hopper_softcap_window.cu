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
      const float t12 = fc::in_place(t3);
      const float t13 = t12 * t12;
      const float t14 = t13 * t12;
      // whether no square of t11 is above (0.09f * fc::reciprocal(t13))
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
        within = within && t11_squares[i] <= (0.09f * fc::reciprocal(t13));
      const bool t15 = (t10 < cols_full_begin) || (t10 >= cols_full_end);
      if (t15) {
        int t16[1][2];
        // t16 = add(index(rows), t4)
        int t17[1][2];
        // t17 = sub(t16, 256)
        #pragma unroll
        for (int e = 0; e < 2; ++e) {
          t16[0][e] = (rows_begin + rows_lane + e * 8) + t4;
          t17[0][e] = t16[0][e] - 256;
        }
        // t11 = where(logical_and(ge(index(cols), t17), le(index(cols), t16)), t11, -inf)
        #pragma unroll
        for (int j = 0; j < 8; ++j) {
          #pragma unroll
          for (int e = 0; e < 4; ++e) {
            const bool t18 = (j * 8 + (e % 2) * 1) >= (t17[0][(e / 2)] - (cols_begin_4 + cols_lane));
            const bool t19 = (j * 8 + (e % 2) * 1) <= (t16[0][(e / 2)] - (cols_begin_4 + cols_lane));
            const bool t20 = t18 && t19;
            t11[0][j][e] = t20 ? t11[0][j][e] : -fc::infinity();
          }
        }
      }
      float t21[1][2];
      // t21 = neg(row_max)
      #pragma unroll
      for (int e = 0; e < 2; ++e)
        t21[0][e] = -0.f;
      float probs[1][8][4];
      if (fc::all_lanes(within)) {
        // probs = exp2(fma(t11, fma(fma(((0.12634595f * (t14 * t13)) * 43.28085f), mul(t11, t11), ((-0.33310074f * t14) * 43.28085f)), mul(t11, t11), ((0.99999887f * t12) * 43.28085f)), t21))
        // reduce_sum = reduce_sum(cast, cols), each lane its partial
        #pragma unroll
        for (int e = 0; e < 2; ++e)
          row_sum[0][e] = 0.f;
        #pragma unroll
        for (int j = 0; j < 8; ++j) {
          #pragma unroll
          for (int e = 0; e < 4; ++e) {
            const float t22 = t11[0][j][e] * t11[0][j][e];
            const float t23 = fc::fma(((0.12634595f * (t14 * t13)) * 43.28085f), t22, ((-0.33310074f * t14) * 43.28085f));
            const float t24 = fc::fma(t23, t22, ((0.99999887f * t12) * 43.28085f));
            const float t25 = fc::fma(t11[0][j][e], t24, t21[0][(e / 2)]);
            probs[0][j][e] = fc::exp2(t25);
            const float t26 = fc::round_to<fc::bf16>(probs[0][j][e]);
            const float t27 = t26;
            row_sum[0][(e / 2)] = row_sum[0][(e / 2)] + t27;
          }
        }
      }
      else {
        // probs = exp2(fma((-2.f * 43.28085f), reciprocal(add(exp2(mul(t11, (2.88539f * t12))), 1)), fma(min(t11, 0), 1.401298464e-45, add(t21, 43.2808512266689))))
        // reduce_sum = reduce_sum(cast, cols), each lane its partial
        #pragma unroll
        for (int e = 0; e < 2; ++e)
          row_sum[0][e] = 0.f;
        #pragma unroll
        for (int j = 0; j < 8; ++j) {
          #pragma unroll
          for (int e = 0; e < 4; ++e) {
            if (e == 0 && j % 2 == 0) fc::hold_order();
            const float t28 = t11[0][j][e] * (2.88539f * t12);
            const float t29 = fc::exp2(t28);
            const float t30 = t29 + 1.f;
            const float t31 = fc::reciprocal(t30);
            const float t32 = t21[0][(e / 2)] + 43.28085f;
            const float t33 = fc::min(t11[0][j][e], 0.f);
            const float t34 = fc::fma(t33, 1e-45f, t32);
            const float t35 = fc::fma((-2.f * 43.28085f), t31, t34);
            probs[0][j][e] = fc::exp2(t35);
            const float t36 = fc::round_to<fc::bf16>(probs[0][j][e]);
            const float t37 = t36;
            row_sum[0][(e / 2)] = row_sum[0][(e / 2)] + t37;
          }
        }
      }
      // row_sum = add(row_sum, row_sum)
      #pragma unroll
      for (int e = 0; e < 2; ++e)
        row_sum[0][e] = 0.f + row_sum[0][e];
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
        float t38[1][8][4];
        fc::pin(t38);
        fc::fence_products();
        {
          const fc::u64 a = fc::matrix(query + warp / 4 * 8192, 64, 0);
          const fc::u64 b = fc::matrix(key_2, 64, 0);
          fc::multiply_warpgroup<64, fc::bf16, 4, fc::along<64, 16384>, fc::along<64, 8192>>(t38[0], a, b, false);
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
        fc::pin(t38);
        if (thread % 128 == 0) fc::arrive(key_empty + key_slot_2 * 8);
        if (++key_slot_2 == 2) {
          key_slot_2 = 0;
          key_phase_2 ^= 1;
        }
        const bool t39 = (cols_tile_2 >= cols_full_begin) && (cols_tile_2 < cols_full_end);
        const float t40 = fc::in_place(t3);
        const float t41 = t40 * t40;
        const float t42 = t41 * t40;
        const float t43 = (0.99999887f * t40) * 43.28085f;
        const float t44 = (-0.33310074f * t42) * 43.28085f;
        const float t45 = (0.12634595f * (t42 * t41)) * 43.28085f;
        // whether no square of t38 is above (0.09f * fc::reciprocal(t41))
        float t38_squares[8] = {};
        #pragma unroll
        for (int j = 0; j < 8; ++j) {
          #pragma unroll
          for (int e = 0; e < 4; ++e) {
            float& sum = t38_squares[(e + 0 * 4 + j * 4) % 8];
            sum = fc::fma(t38[0][j][e], t38[0][j][e], sum);
          }
        }
        bool within_2 = true;
        #pragma unroll
        for (int i = 0; i < 8; ++i)
          within_2 = within_2 && t38_squares[i] <= (0.09f * fc::reciprocal(t41));
        float t46[1][2];
        // t46 = neg(row_max)
        #pragma unroll
        for (int e = 0; e < 2; ++e)
          t46[0][e] = -0.f;
        float probs_2[1][8][4];
        float t47[1][2];
        if (fc::all_lanes(within_2) && t39) {
          // probs_2 = exp2(fma(t38, fma(fma(t45, mul(t38, t38), t44), mul(t38, t38), t43), t46))
          // reduce_sum = reduce_sum(probs_2, cols), each lane its partial
          #pragma unroll
          for (int e = 0; e < 2; ++e)
            t47[0][e] = 0.f;
          #pragma unroll
          for (int j = 0; j < 8; ++j) {
            #pragma unroll
            for (int e = 0; e < 4; ++e) {
              const float t48 = t38[0][j][e] * t38[0][j][e];
              const float t49 = fc::fma(t45, t48, t44);
              const float t50 = fc::fma(t49, t48, t43);
              const float t51 = fc::fma(t38[0][j][e], t50, t46[0][(e / 2)]);
              probs_2[0][j][e] = fc::exp2(t51);
              t47[0][(e / 2)] = t47[0][(e / 2)] + probs_2[0][j][e];
            }
          }
        }
        else {
          const bool t52 = (cols_tile_2 < cols_full_begin) || (cols_tile_2 >= cols_full_end);
          if (t52) {
            int t53[1][2];
            // t53 = add(index(rows), t4)
            int t54[1][2];
            // t54 = sub(t53, 256)
            #pragma unroll
            for (int e = 0; e < 2; ++e) {
              t53[0][e] = (rows_begin + rows_lane + e * 8) + t4;
              t54[0][e] = t53[0][e] - 256;
            }
            // t38 = where(logical_and(ge(index(cols), t54), le(index(cols), t53)), t38, -inf)
            #pragma unroll
            for (int j = 0; j < 8; ++j) {
              #pragma unroll
              for (int e = 0; e < 4; ++e) {
                const bool t55 = (j * 8 + (e % 2) * 1) >= (t54[0][(e / 2)] - (cols_begin_5 + cols_lane));
                const bool t56 = (j * 8 + (e % 2) * 1) <= (t53[0][(e / 2)] - (cols_begin_5 + cols_lane));
                const bool t57 = t55 && t56;
                t38[0][j][e] = t57 ? t38[0][j][e] : -fc::infinity();
              }
            }
          }
          if (fc::all_lanes(within_2)) {
            // probs_2 = exp2(fma(t38, fma(fma(t45, mul(t38, t38), t44), mul(t38, t38), t43), t46))
            // reduce_sum = reduce_sum(cast, cols), each lane its partial
            #pragma unroll
            for (int e = 0; e < 2; ++e)
              t47[0][e] = 0.f;
            #pragma unroll
            for (int j = 0; j < 8; ++j) {
              #pragma unroll
              for (int e = 0; e < 4; ++e) {
                const float t58 = t38[0][j][e] * t38[0][j][e];
                const float t59 = fc::fma(t45, t58, t44);
                const float t60 = fc::fma(t59, t58, t43);
                const float t61 = fc::fma(t38[0][j][e], t60, t46[0][(e / 2)]);
                probs_2[0][j][e] = fc::exp2(t61);
                const float t62 = fc::round_to<fc::bf16>(probs_2[0][j][e]);
                const float t63 = t62;
                t47[0][(e / 2)] = t47[0][(e / 2)] + t63;
              }
            }
          }
          else {
            // probs_2 = exp2(fma((-2.f * 43.28085f), reciprocal(add(exp2(mul(t38, (2.88539f * t40))), 1)), fma(min(t38, 0), 1.401298464e-45, add(t46, 43.2808512266689))))
            // reduce_sum = reduce_sum(cast, cols), each lane its partial
            #pragma unroll
            for (int e = 0; e < 2; ++e)
              t47[0][e] = 0.f;
            #pragma unroll
            for (int j = 0; j < 8; ++j) {
              #pragma unroll
              for (int e = 0; e < 4; ++e) {
                if (e == 0 && j % 2 == 0) fc::hold_order();
                const float t64 = t38[0][j][e] * (2.88539f * t40);
                const float t65 = fc::exp2(t64);
                const float t66 = t65 + 1.f;
                const float t67 = fc::reciprocal(t66);
                const float t68 = t46[0][(e / 2)] + 43.28085f;
                const float t69 = fc::min(t38[0][j][e], 0.f);
                const float t70 = fc::fma(t69, 1e-45f, t68);
                const float t71 = fc::fma((-2.f * 43.28085f), t67, t70);
                probs_2[0][j][e] = fc::exp2(t71);
                const float t72 = fc::round_to<fc::bf16>(probs_2[0][j][e]);
                const float t73 = t72;
                t47[0][(e / 2)] = t47[0][(e / 2)] + t73;
              }
            }
          }
        }
        // row_sum = add(row_sum, t47)
        #pragma unroll
        for (int e = 0; e < 2; ++e)
          row_sum[0][e] = row_sum[0][e] + t47[0][e];
        fc::wait_products<0>();
        fc::pin(out);
        if (thread % 128 == 0) fc::arrive(value_empty + value_slot_2 * 8);
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
      if (thread % 128 == 0) fc::arrive(value_empty + value_slot_2 * 8);
      if (++value_slot_2 == 2) {
        value_slot_2 = 0;
        value_phase_2 ^= 1;
      }
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
      const float t74 = fc::divide(1.f, row_sum[0][e]);
      inverse[0][e] = empty ? 0.f : t74;
    }
    float t75[1][8][4];
    // t75 = cast(mul(out, inverse))
    #pragma unroll
    for (int j = 0; j < 8; ++j) {
      #pragma unroll
      for (int e = 0; e < 4; ++e) {
        const float t76 = out[0][j][e] * inverse[0][(e / 2)];
        t75[0][j][e] = t76;
      }
    }
    if (thread % 128 == 0) fc::wait_stores_read<0>();
    fc::meet(1 + warp / 4, 128);
    // t75 in shared memory
    const fc::u32 o_staged = shared;
    #pragma unroll
    for (int i = 0; i < 1; ++i)
      #pragma unroll
      for (int j = 0; j < 8; ++j)
        #pragma unroll
        for (int r = 0; r < 2; ++r)
          fc::store_shared(o_staged + fc::chunk_offset<128, 64>(rows_lane + i * 16 + r * 8, j * 8) + lane % 4 * 4,
                           fc::pack<fc::bf16>(t75[i][j][2 * r], t75[i][j][2 * r + 1]));
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
