struct Parameters {
  fc::tensor_map q_tiles;  // of 128 x 64
  fc::tensor_map k_tiles;  // of 80 x 64
  fc::tensor_map v_tiles;  // of 80 x 64
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
  const fc::u32 query_full = shared + 57344, query_empty = shared + 57352;
  const fc::u32 key_full = shared + 57360, key_empty = shared + 57376;
  const fc::u32 value_full = shared + 57392, value_empty = shared + 57408;
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
      fc::await_phase(query_empty, query_phase ^ 1);
      fc::arrive_expecting(query_full, 16384);
      fc::load_box(shared, p.q_tiles, query_full, 0, rows_begin, head, batch);
      query_phase ^= 1;
      const int t0 = fc::min((fc::floor_div((p.Sk + -1), 80) + 1), ((p.Sk + 79) / 80));
      const int cols_end = fc::max(0, t0);

      // cols tiles of 80
      #pragma unroll 1
      for (int cols_tile = cols_end - 1; cols_tile >= 0; --cols_tile) {
        const int cols_begin = cols_tile * 80;
        // key <- k
        fc::await_phase(key_empty + key_slot * 8, key_phase ^ 1);
        fc::arrive_expecting(key_full + key_slot * 8, 10240);
        fc::load_box(shared + 16384 + key_slot * 10240, p.k_tiles, key_full + key_slot * 8, 0, cols_begin, head, batch);
        if (++key_slot == 2) {
          key_slot = 0;
          key_phase ^= 1;
        }
        // value <- v
        fc::await_phase(value_empty + value_slot * 8, value_phase ^ 1);
        fc::arrive_expecting(value_full + value_slot * 8, 10240);
        fc::load_box(shared + 36864 + value_slot * 10240, p.v_tiles, value_full + value_slot * 8, 0, cols_begin, head, batch);
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
    const float t1 = p.scale * 1.442695f;
    const int t2 = p.Sk + -1;
    const int t3 = fc::min((fc::floor_div(t2, 80) + 1), ((p.Sk + 79) / 80));
    const int cols_end_2 = fc::max(0, t3);
    const int t4 = fc::min((fc::floor_div((t2 + -79), 80) + 1), cols_end_2);
    const int cols_full_end = fc::max(0, t4);
    fc::await_phase(query_full, query_phase_2);
    const fc::u32 query = shared;

    float row_max[1][2];
    #pragma unroll
    for (int e = 0; e < 2; ++e)
      row_max[0][e] = fc::lowest();
    float row_sum[1][2] = {};
    float out[1][8][4] = {};
    // cols tiles of 80
    if (const int cols_tile_2 = cols_end_2 - 1; cols_tile_2 >= 0) {
      const int cols_begin_2 = cols_tile_2 * 80;
      fc::await_phase(key_full + key_slot_2 * 8, key_phase_2);
      const fc::u32 key = shared + 16384 + key_slot_2 * 10240;
      // scores = dot(query, transpose(key)), started
      float scores[1][10][4];
      fc::pin(scores);
      fc::open_products();
      {
        const fc::u64 a = fc::matrix(query + warp / 4 * 8192, 64, 0);
        const fc::u64 b = fc::matrix(key, 64, 0);
        fc::multiply_warpgroup<80, fc::bf16, 4, fc::along<64, 16384>, fc::along<64, 10240>>(scores[0], a, b, false);
      }
      fc::commit_products();
      fc::await_products<0>();
      fc::pin(scores);
      if (thread % 128 == 0) fc::arrive(key_empty + key_slot_2 * 8);
      if (++key_slot_2 == 2) {
        key_slot_2 = 0;
        key_phase_2 ^= 1;
      }
      const int t5 = fc::min(cols_full_end, cols_tile_2);
      if (cols_tile_2 >= cols_full_end) {
        bool t6[10][2];
        // t6 = lt(index(cols), extent(cols))
        #pragma unroll
        for (int i = 0; i < 10; ++i)
          #pragma unroll
          for (int e = 0; e < 2; ++e)
            t6[i][e] = (i * 8 + e * 1) < (p.Sk - (cols_begin_2 + cols_lane));
        // scores = where(t6, scores, -inf)
        #pragma unroll
        for (int j = 0; j < 10; ++j)
          #pragma unroll
          for (int e = 0; e < 4; ++e)
            scores[0][j][e] = t6[j][(e % 2)] ? scores[0][j][e] : -fc::infinity();
      }
      // reduce_max = reduce_max(scores, cols)
      float t7[1][2];
      float t7_parts[1][2][2];
      #pragma unroll
      for (int e = 0; e < 2; ++e)
        #pragma unroll
        for (int c = 0; c < 2; ++c)
          t7_parts[0][e][c] = -fc::infinity();
      #pragma unroll
      for (int j = 0; j < 10; ++j)
        #pragma unroll
        for (int e = 0; e < 4; ++e)
          t7_parts[0][(e / 2)][j % 2] = fc::max(t7_parts[0][(e / 2)][j % 2], scores[0][j][e]);
      #pragma unroll
      for (int e = 0; e < 2; ++e) {
        t7[0][e] = fc::max(t7_parts[0][e][0], t7_parts[0][e][1]);
        t7[0][e] = fc::max(t7[0][e], fc::shuffle_xor(t7[0][e], 1));
        t7[0][e] = fc::max(t7[0][e], fc::shuffle_xor(t7[0][e], 2));
      }
      // new_max = max(row_max, t7)
      float t8[1][2];
      // t8 = limit_scale(t1, new_max)
      float decay[1][2];
      // decay = exp2(sub(mul_rn(row_max, t8), mul_rn(new_max, t8)))
      float t9[1][2];
      // t9 = neg(mul_rn(new_max, t8))
      #pragma unroll
      for (int e = 0; e < 2; ++e) {
        t7[0][e] = fc::max(row_max[0][e], t7[0][e]);
        t8[0][e] = fc::limit_scale(t1, t7[0][e]);
        const float t10 = fc::mul_rn(t7[0][e], t8[0][e]);
        const float t11 = fc::mul_rn(row_max[0][e], t8[0][e]);
        const float t12 = t11 - t10;
        decay[0][e] = fc::exp2(t12);
        t9[0][e] = -t10;
      }
      // scores = fma(scores, t8, t9)
      // probs = exp2(scores)
      // reduce_sum = reduce_sum(probs, cols), each lane its share
      float t13[1][2] = {};
      // scores_operand: scores as a left operand
      fc::u32 scores_operand[1][5][4];
      // out = mul(out, decay)
      // scores, strip 1 of 3
      #pragma unroll
      for (int j = 0; j < 4; ++j)
        #pragma unroll
        for (int e = 0; e < 4; ++e)
          scores[0][j][e] = fc::fma(scores[0][j][e], t8[0][(e / 2)], t9[0][(e / 2)]);
      fc::hold_order();
      // scores, strip 2 of 3
      #pragma unroll
      for (int j = 4; j < 8; ++j)
        #pragma unroll
        for (int e = 0; e < 4; ++e)
          scores[0][j][e] = fc::fma(scores[0][j][e], t8[0][(e / 2)], t9[0][(e / 2)]);
      // probs, strip 1 of 3
      #pragma unroll
      for (int j = 0; j < 4; ++j)
        #pragma unroll
        for (int e = 0; e < 4; ++e)
          scores[0][j][e] = fc::exp2(scores[0][j][e]);
      fc::hold_order();
      // scores, strip 3 of 3
      #pragma unroll
      for (int j = 8; j < 10; ++j)
        #pragma unroll
        for (int e = 0; e < 4; ++e)
          scores[0][j][e] = fc::fma(scores[0][j][e], t8[0][(e / 2)], t9[0][(e / 2)]);
      // probs, strip 2 of 3
      #pragma unroll
      for (int j = 4; j < 8; ++j)
        #pragma unroll
        for (int e = 0; e < 4; ++e)
          scores[0][j][e] = fc::exp2(scores[0][j][e]);
      // t13, strip 1 of 3
      #pragma unroll
      for (int j = 0; j < 4; ++j)
        #pragma unroll
        for (int e = 0; e < 4; ++e)
          t13[0][(e / 2)] = t13[0][(e / 2)] + scores[0][j][e];
      // scores_operand, strip 1 of 3
      #pragma unroll
      for (int i = 0; i < 1; ++i)
        #pragma unroll
        for (int k = 0; k < 2; ++k)
          #pragma unroll
          for (int r = 0; r < 4; ++r)
            scores_operand[i][k][r] =
                fc::pack<fc::bf16>(scores[i][2 * k + r / 2][r % 2 * 2], scores[i][2 * k + r / 2][r % 2 * 2 + 1]);
      // out, strip 1 of 3
      #pragma unroll
      for (int j = 0; j < 3; ++j)
        #pragma unroll
        for (int e = 0; e < 4; ++e)
          out[0][j][e] = out[0][j][e] * decay[0][(e / 2)];
      fc::hold_order();
      // probs, strip 3 of 3
      #pragma unroll
      for (int j = 8; j < 10; ++j)
        #pragma unroll
        for (int e = 0; e < 4; ++e)
          scores[0][j][e] = fc::exp2(scores[0][j][e]);
      // t13, strip 2 of 3
      #pragma unroll
      for (int j = 4; j < 8; ++j)
        #pragma unroll
        for (int e = 0; e < 4; ++e)
          t13[0][(e / 2)] = t13[0][(e / 2)] + scores[0][j][e];
      // scores_operand, strip 2 of 3
      #pragma unroll
      for (int i = 0; i < 1; ++i)
        #pragma unroll
        for (int k = 2; k < 4; ++k)
          #pragma unroll
          for (int r = 0; r < 4; ++r)
            scores_operand[i][k][r] =
                fc::pack<fc::bf16>(scores[i][2 * k + r / 2][r % 2 * 2], scores[i][2 * k + r / 2][r % 2 * 2 + 1]);
      // out, strip 2 of 3
      #pragma unroll
      for (int j = 3; j < 6; ++j)
        #pragma unroll
        for (int e = 0; e < 4; ++e)
          out[0][j][e] = out[0][j][e] * decay[0][(e / 2)];
      fc::hold_order();
      // t13, strip 3 of 3
      #pragma unroll
      for (int j = 8; j < 10; ++j)
        #pragma unroll
        for (int e = 0; e < 4; ++e)
          t13[0][(e / 2)] = t13[0][(e / 2)] + scores[0][j][e];
      // scores_operand, strip 3 of 3
      #pragma unroll
      for (int i = 0; i < 1; ++i)
        #pragma unroll
        for (int k = 4; k < 5; ++k)
          #pragma unroll
          for (int r = 0; r < 4; ++r)
            scores_operand[i][k][r] =
                fc::pack<fc::bf16>(scores[i][2 * k + r / 2][r % 2 * 2], scores[i][2 * k + r / 2][r % 2 * 2 + 1]);
      // out, strip 3 of 3
      #pragma unroll
      for (int j = 6; j < 8; ++j)
        #pragma unroll
        for (int e = 0; e < 4; ++e)
          out[0][j][e] = out[0][j][e] * decay[0][(e / 2)];
      // row_sum = fma(row_sum, decay, t13)
      #pragma unroll
      for (int e = 0; e < 2; ++e)
        row_sum[0][e] = fc::fma(row_sum[0][e], decay[0][e], t13[0][e]);

      // cols tiles of 80
      for (int cols_tile_3 = cols_tile_2 - 1; cols_tile_3 >= t5; --cols_tile_3) {
        const int cols_begin_3 = cols_tile_3 * 80;
        fc::await_phase(key_full + key_slot_2 * 8, key_phase_2);
        const fc::u32 key_2 = shared + 16384 + key_slot_2 * 10240;
        // scores = dot(query, transpose(key)), started
        float scores_2[1][10][4];
        fc::pin(scores_2);
        fc::open_products();
        {
          const fc::u64 a = fc::matrix(query + warp / 4 * 8192, 64, 0);
          const fc::u64 b = fc::matrix(key_2, 64, 0);
          fc::multiply_warpgroup<80, fc::bf16, 4, fc::along<64, 16384>, fc::along<64, 10240>>(scores_2[0], a, b, false);
        }
        fc::commit_products();
        fc::await_phase(value_full + value_slot_2 * 8, value_phase_2);
        const fc::u32 value = shared + 36864 + value_slot_2 * 10240;
        // product = argument + dot(argument, value), started
        fc::pin(out);
        fc::open_products();
        {
          const fc::u64 b = fc::matrix(value, 64, 0);
          fc::multiply_warpgroup<64, fc::bf16, 5, fc::across<64>>(out[0], scores_operand[0], b, true);
        }
        fc::commit_products();
        fc::await_products<1>();
        fc::pin(scores_2);
        if (thread % 128 == 0) fc::arrive(key_empty + key_slot_2 * 8);
        if (++key_slot_2 == 2) {
          key_slot_2 = 0;
          key_phase_2 ^= 1;
        }
        bool t14[10][2];
        // t14 = lt(index(cols), extent(cols))
        #pragma unroll
        for (int i = 0; i < 10; ++i)
          #pragma unroll
          for (int e = 0; e < 2; ++e)
            t14[i][e] = (i * 8 + e * 1) < (p.Sk - (cols_begin_3 + cols_lane));
        // scores = where(t14, scores, -inf)
        // reduce_max = reduce_max(scores, cols)
        float t15[1][2];
        float t15_parts[1][2][2];
        #pragma unroll
        for (int e = 0; e < 2; ++e)
          #pragma unroll
          for (int c = 0; c < 2; ++c)
            t15_parts[0][e][c] = -fc::infinity();
        // scores, strip 1 of 3
        #pragma unroll
        for (int j = 0; j < 4; ++j)
          #pragma unroll
          for (int e = 0; e < 4; ++e)
            scores_2[0][j][e] = t14[j][(e % 2)] ? scores_2[0][j][e] : -fc::infinity();
        // t15, strip 1 of 3
        #pragma unroll
        for (int j = 0; j < 4; ++j)
          #pragma unroll
          for (int e = 0; e < 4; ++e)
            t15_parts[0][(e / 2)][j % 2] = fc::max(t15_parts[0][(e / 2)][j % 2], scores_2[0][j][e]);
        fc::hold_order();
        // scores, strip 2 of 3
        #pragma unroll
        for (int j = 4; j < 8; ++j)
          #pragma unroll
          for (int e = 0; e < 4; ++e)
            scores_2[0][j][e] = t14[j][(e % 2)] ? scores_2[0][j][e] : -fc::infinity();
        // t15, strip 2 of 3
        #pragma unroll
        for (int j = 4; j < 8; ++j)
          #pragma unroll
          for (int e = 0; e < 4; ++e)
            t15_parts[0][(e / 2)][j % 2] = fc::max(t15_parts[0][(e / 2)][j % 2], scores_2[0][j][e]);
        fc::hold_order();
        // scores, strip 3 of 3
        #pragma unroll
        for (int j = 8; j < 10; ++j)
          #pragma unroll
          for (int e = 0; e < 4; ++e)
            scores_2[0][j][e] = t14[j][(e % 2)] ? scores_2[0][j][e] : -fc::infinity();
        // t15, strip 3 of 3
        #pragma unroll
        for (int j = 8; j < 10; ++j)
          #pragma unroll
          for (int e = 0; e < 4; ++e)
            t15_parts[0][(e / 2)][j % 2] = fc::max(t15_parts[0][(e / 2)][j % 2], scores_2[0][j][e]);
        #pragma unroll
        for (int e = 0; e < 2; ++e) {
          t15[0][e] = fc::max(t15_parts[0][e][0], t15_parts[0][e][1]);
          t15[0][e] = fc::max(t15[0][e], fc::shuffle_xor(t15[0][e], 1));
          t15[0][e] = fc::max(t15[0][e], fc::shuffle_xor(t15[0][e], 2));
        }
        // new_max = max(new_max, t15)
        float t16[1][2];
        // t16 = limit_scale(t1, new_max)
        float decay_2[1][2];
        // decay = exp2(sub(mul_rn(new_max, t16), mul_rn(new_max, t16)))
        float t17[1][2];
        // t17 = neg(mul_rn(new_max, t16))
        #pragma unroll
        for (int e = 0; e < 2; ++e) {
          t15[0][e] = fc::max(t7[0][e], t15[0][e]);
          t16[0][e] = fc::limit_scale(t1, t15[0][e]);
          const float t18 = fc::mul_rn(t15[0][e], t16[0][e]);
          const float t19 = fc::mul_rn(t7[0][e], t16[0][e]);
          const float t20 = t19 - t18;
          decay_2[0][e] = fc::exp2(t20);
          t17[0][e] = -t18;
        }
        fc::await_products<0>();
        fc::pin(out);
        if (thread % 128 == 0) fc::arrive(value_empty + value_slot_2 * 8);
        if (++value_slot_2 == 2) {
          value_slot_2 = 0;
          value_phase_2 ^= 1;
        }
        // scores_2 = fma(scores, t16, t17)
        // probs = exp2(scores_2)
        // reduce_sum = reduce_sum(probs, cols), each lane its share
        float t21[1][2] = {};
        // scores_operand: scores_2 as a left operand
        // out = mul(out, decay)
        // scores_2, strip 1 of 3
        #pragma unroll
        for (int j = 0; j < 4; ++j)
          #pragma unroll
          for (int e = 0; e < 4; ++e)
            scores_2[0][j][e] = fc::fma(scores_2[0][j][e], t16[0][(e / 2)], t17[0][(e / 2)]);
        fc::hold_order();
        // scores_2, strip 2 of 3
        #pragma unroll
        for (int j = 4; j < 8; ++j)
          #pragma unroll
          for (int e = 0; e < 4; ++e)
            scores_2[0][j][e] = fc::fma(scores_2[0][j][e], t16[0][(e / 2)], t17[0][(e / 2)]);
        // probs, strip 1 of 3
        #pragma unroll
        for (int j = 0; j < 4; ++j)
          #pragma unroll
          for (int e = 0; e < 4; ++e)
            scores_2[0][j][e] = fc::exp2(scores_2[0][j][e]);
        fc::hold_order();
        // scores_2, strip 3 of 3
        #pragma unroll
        for (int j = 8; j < 10; ++j)
          #pragma unroll
          for (int e = 0; e < 4; ++e)
            scores_2[0][j][e] = fc::fma(scores_2[0][j][e], t16[0][(e / 2)], t17[0][(e / 2)]);
        // probs, strip 2 of 3
        #pragma unroll
        for (int j = 4; j < 8; ++j)
          #pragma unroll
          for (int e = 0; e < 4; ++e)
            scores_2[0][j][e] = fc::exp2(scores_2[0][j][e]);
        // t21, strip 1 of 3
        #pragma unroll
        for (int j = 0; j < 4; ++j)
          #pragma unroll
          for (int e = 0; e < 4; ++e)
            t21[0][(e / 2)] = t21[0][(e / 2)] + scores_2[0][j][e];
        // scores_operand, strip 1 of 3
        #pragma unroll
        for (int i = 0; i < 1; ++i)
          #pragma unroll
          for (int k = 0; k < 2; ++k)
            #pragma unroll
            for (int r = 0; r < 4; ++r)
              scores_operand[i][k][r] =
                  fc::pack<fc::bf16>(scores_2[i][2 * k + r / 2][r % 2 * 2], scores_2[i][2 * k + r / 2][r % 2 * 2 + 1]);
        // out, strip 1 of 3
        #pragma unroll
        for (int j = 0; j < 3; ++j)
          #pragma unroll
          for (int e = 0; e < 4; ++e)
            out[0][j][e] = out[0][j][e] * decay_2[0][(e / 2)];
        fc::hold_order();
        // probs, strip 3 of 3
        #pragma unroll
        for (int j = 8; j < 10; ++j)
          #pragma unroll
          for (int e = 0; e < 4; ++e)
            scores_2[0][j][e] = fc::exp2(scores_2[0][j][e]);
        // t21, strip 2 of 3
        #pragma unroll
        for (int j = 4; j < 8; ++j)
          #pragma unroll
          for (int e = 0; e < 4; ++e)
            t21[0][(e / 2)] = t21[0][(e / 2)] + scores_2[0][j][e];
        // scores_operand, strip 2 of 3
        #pragma unroll
        for (int i = 0; i < 1; ++i)
          #pragma unroll
          for (int k = 2; k < 4; ++k)
            #pragma unroll
            for (int r = 0; r < 4; ++r)
              scores_operand[i][k][r] =
                  fc::pack<fc::bf16>(scores_2[i][2 * k + r / 2][r % 2 * 2], scores_2[i][2 * k + r / 2][r % 2 * 2 + 1]);
        // out, strip 2 of 3
        #pragma unroll
        for (int j = 3; j < 6; ++j)
          #pragma unroll
          for (int e = 0; e < 4; ++e)
            out[0][j][e] = out[0][j][e] * decay_2[0][(e / 2)];
        fc::hold_order();
        // t21, strip 3 of 3
        #pragma unroll
        for (int j = 8; j < 10; ++j)
          #pragma unroll
          for (int e = 0; e < 4; ++e)
            t21[0][(e / 2)] = t21[0][(e / 2)] + scores_2[0][j][e];
        // scores_operand, strip 3 of 3
        #pragma unroll
        for (int i = 0; i < 1; ++i)
          #pragma unroll
          for (int k = 4; k < 5; ++k)
            #pragma unroll
            for (int r = 0; r < 4; ++r)
              scores_operand[i][k][r] =
                  fc::pack<fc::bf16>(scores_2[i][2 * k + r / 2][r % 2 * 2], scores_2[i][2 * k + r / 2][r % 2 * 2 + 1]);
        // out, strip 3 of 3
        #pragma unroll
        for (int j = 6; j < 8; ++j)
          #pragma unroll
          for (int e = 0; e < 4; ++e)
            out[0][j][e] = out[0][j][e] * decay_2[0][(e / 2)];
        // row_sum = fma(argument, decay, t21)
        #pragma unroll
        for (int e = 0; e < 2; ++e)
          row_sum[0][e] = fc::fma(row_sum[0][e], decay_2[0][e], t21[0][e]);
        #pragma unroll
        for (int e = 0; e < 2; ++e)
          t7[0][e] = t15[0][e];
      }

      // cols tiles of 80
      for (int cols_tile_4 = t5 - 1; cols_tile_4 >= 0; --cols_tile_4) {
        fc::await_phase(key_full + key_slot_2 * 8, key_phase_2);
        const fc::u32 key_3 = shared + 16384 + key_slot_2 * 10240;
        // scores = dot(query, transpose(key)), started
        float scores_3[1][10][4];
        fc::pin(scores_3);
        fc::open_products();
        {
          const fc::u64 a = fc::matrix(query + warp / 4 * 8192, 64, 0);
          const fc::u64 b = fc::matrix(key_3, 64, 0);
          fc::multiply_warpgroup<80, fc::bf16, 4, fc::along<64, 16384>, fc::along<64, 10240>>(scores_3[0], a, b, false);
        }
        fc::commit_products();
        fc::await_phase(value_full + value_slot_2 * 8, value_phase_2);
        const fc::u32 value_2 = shared + 36864 + value_slot_2 * 10240;
        // product = argument + dot(argument, value), started
        fc::pin(out);
        fc::open_products();
        {
          const fc::u64 b = fc::matrix(value_2, 64, 0);
          fc::multiply_warpgroup<64, fc::bf16, 5, fc::across<64>>(out[0], scores_operand[0], b, true);
        }
        fc::commit_products();
        fc::await_products<1>();
        fc::pin(scores_3);
        if (thread % 128 == 0) fc::arrive(key_empty + key_slot_2 * 8);
        if (++key_slot_2 == 2) {
          key_slot_2 = 0;
          key_phase_2 ^= 1;
        }
        // reduce_max = reduce_max(scores, cols)
        float t22[1][2];
        float t22_parts[1][2][2];
        #pragma unroll
        for (int e = 0; e < 2; ++e)
          #pragma unroll
          for (int c = 0; c < 2; ++c)
            t22_parts[0][e][c] = -fc::infinity();
        #pragma unroll
        for (int j = 0; j < 10; ++j)
          #pragma unroll
          for (int e = 0; e < 4; ++e)
            t22_parts[0][(e / 2)][j % 2] = fc::max(t22_parts[0][(e / 2)][j % 2], scores_3[0][j][e]);
        #pragma unroll
        for (int e = 0; e < 2; ++e) {
          t22[0][e] = fc::max(t22_parts[0][e][0], t22_parts[0][e][1]);
          t22[0][e] = fc::max(t22[0][e], fc::shuffle_xor(t22[0][e], 1));
          t22[0][e] = fc::max(t22[0][e], fc::shuffle_xor(t22[0][e], 2));
        }
        // new_max = max(new_max, t22)
        float t23[1][2];
        // t23 = limit_scale(t1, new_max)
        float decay_3[1][2];
        // decay = exp2(sub(mul_rn(new_max, t23), mul_rn(new_max, t23)))
        float t24[1][2];
        // t24 = neg(mul_rn(new_max, t23))
        #pragma unroll
        for (int e = 0; e < 2; ++e) {
          t22[0][e] = fc::max(t7[0][e], t22[0][e]);
          t23[0][e] = fc::limit_scale(t1, t22[0][e]);
          const float t25 = fc::mul_rn(t22[0][e], t23[0][e]);
          const float t26 = fc::mul_rn(t7[0][e], t23[0][e]);
          const float t27 = t26 - t25;
          decay_3[0][e] = fc::exp2(t27);
          t24[0][e] = -t25;
        }
        fc::await_products<0>();
        fc::pin(out);
        if (thread % 128 == 0) fc::arrive(value_empty + value_slot_2 * 8);
        if (++value_slot_2 == 2) {
          value_slot_2 = 0;
          value_phase_2 ^= 1;
        }
        // scores_3 = fma(scores, t23, t24)
        // probs = exp2(scores_3)
        // reduce_sum = reduce_sum(probs, cols), each lane its share
        float t28[1][2] = {};
        // scores_operand: scores_3 as a left operand
        // out = mul(out, decay)
        // scores_3, strip 1 of 3
        #pragma unroll
        for (int j = 0; j < 4; ++j)
          #pragma unroll
          for (int e = 0; e < 4; ++e)
            scores_3[0][j][e] = fc::fma(scores_3[0][j][e], t23[0][(e / 2)], t24[0][(e / 2)]);
        fc::hold_order();
        // scores_3, strip 2 of 3
        #pragma unroll
        for (int j = 4; j < 8; ++j)
          #pragma unroll
          for (int e = 0; e < 4; ++e)
            scores_3[0][j][e] = fc::fma(scores_3[0][j][e], t23[0][(e / 2)], t24[0][(e / 2)]);
        // probs, strip 1 of 3
        #pragma unroll
        for (int j = 0; j < 4; ++j)
          #pragma unroll
          for (int e = 0; e < 4; ++e)
            scores_3[0][j][e] = fc::exp2(scores_3[0][j][e]);
        fc::hold_order();
        // scores_3, strip 3 of 3
        #pragma unroll
        for (int j = 8; j < 10; ++j)
          #pragma unroll
          for (int e = 0; e < 4; ++e)
            scores_3[0][j][e] = fc::fma(scores_3[0][j][e], t23[0][(e / 2)], t24[0][(e / 2)]);
        // probs, strip 2 of 3
        #pragma unroll
        for (int j = 4; j < 8; ++j)
          #pragma unroll
          for (int e = 0; e < 4; ++e)
            scores_3[0][j][e] = fc::exp2(scores_3[0][j][e]);
        // t28, strip 1 of 3
        #pragma unroll
        for (int j = 0; j < 4; ++j)
          #pragma unroll
          for (int e = 0; e < 4; ++e)
            t28[0][(e / 2)] = t28[0][(e / 2)] + scores_3[0][j][e];
        // scores_operand, strip 1 of 3
        #pragma unroll
        for (int i = 0; i < 1; ++i)
          #pragma unroll
          for (int k = 0; k < 2; ++k)
            #pragma unroll
            for (int r = 0; r < 4; ++r)
              scores_operand[i][k][r] =
                  fc::pack<fc::bf16>(scores_3[i][2 * k + r / 2][r % 2 * 2], scores_3[i][2 * k + r / 2][r % 2 * 2 + 1]);
        // out, strip 1 of 3
        #pragma unroll
        for (int j = 0; j < 3; ++j)
          #pragma unroll
          for (int e = 0; e < 4; ++e)
            out[0][j][e] = out[0][j][e] * decay_3[0][(e / 2)];
        fc::hold_order();
        // probs, strip 3 of 3
        #pragma unroll
        for (int j = 8; j < 10; ++j)
          #pragma unroll
          for (int e = 0; e < 4; ++e)
            scores_3[0][j][e] = fc::exp2(scores_3[0][j][e]);
        // t28, strip 2 of 3
        #pragma unroll
        for (int j = 4; j < 8; ++j)
          #pragma unroll
          for (int e = 0; e < 4; ++e)
            t28[0][(e / 2)] = t28[0][(e / 2)] + scores_3[0][j][e];
        // scores_operand, strip 2 of 3
        #pragma unroll
        for (int i = 0; i < 1; ++i)
          #pragma unroll
          for (int k = 2; k < 4; ++k)
            #pragma unroll
            for (int r = 0; r < 4; ++r)
              scores_operand[i][k][r] =
                  fc::pack<fc::bf16>(scores_3[i][2 * k + r / 2][r % 2 * 2], scores_3[i][2 * k + r / 2][r % 2 * 2 + 1]);
        // out, strip 2 of 3
        #pragma unroll
        for (int j = 3; j < 6; ++j)
          #pragma unroll
          for (int e = 0; e < 4; ++e)
            out[0][j][e] = out[0][j][e] * decay_3[0][(e / 2)];
        fc::hold_order();
        // t28, strip 3 of 3
        #pragma unroll
        for (int j = 8; j < 10; ++j)
          #pragma unroll
          for (int e = 0; e < 4; ++e)
            t28[0][(e / 2)] = t28[0][(e / 2)] + scores_3[0][j][e];
        // scores_operand, strip 3 of 3
        #pragma unroll
        for (int i = 0; i < 1; ++i)
          #pragma unroll
          for (int k = 4; k < 5; ++k)
            #pragma unroll
            for (int r = 0; r < 4; ++r)
              scores_operand[i][k][r] =
                  fc::pack<fc::bf16>(scores_3[i][2 * k + r / 2][r % 2 * 2], scores_3[i][2 * k + r / 2][r % 2 * 2 + 1]);
        // out, strip 3 of 3
        #pragma unroll
        for (int j = 6; j < 8; ++j)
          #pragma unroll
          for (int e = 0; e < 4; ++e)
            out[0][j][e] = out[0][j][e] * decay_3[0][(e / 2)];
        // row_sum = fma(argument, decay, t28)
        #pragma unroll
        for (int e = 0; e < 2; ++e)
          row_sum[0][e] = fc::fma(row_sum[0][e], decay_3[0][e], t28[0][e]);
        #pragma unroll
        for (int e = 0; e < 2; ++e)
          t7[0][e] = t22[0][e];
      }
      fc::await_phase(value_full + value_slot_2 * 8, value_phase_2);
      const fc::u32 value_3 = shared + 36864 + value_slot_2 * 10240;
      // product = out + dot(scores_operand, value), started
      fc::pin(out);
      fc::open_products();
      {
        const fc::u64 b = fc::matrix(value_3, 64, 0);
        fc::multiply_warpgroup<64, fc::bf16, 5, fc::across<64>>(out[0], scores_operand[0], b, true);
      }
      fc::commit_products();
      fc::await_products<0>();
      fc::pin(out);
      if (thread % 128 == 0) fc::arrive(value_empty + value_slot_2 * 8);
      if (++value_slot_2 == 2) {
        value_slot_2 = 0;
        value_phase_2 ^= 1;
      }
      #pragma unroll
      for (int e = 0; e < 2; ++e)
        row_max[0][e] = t7[0][e];
    }
    // row_sum: the lanes' shares meet
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
      const float t29 = fc::divide(1.f, row_sum[0][e]);
      inverse[0][e] = empty ? 0.f : t29;
    }
    float t30[1][8][4];
    // t30 = cast(mul(out, inverse))
    #pragma unroll
    for (int j = 0; j < 8; ++j) {
      #pragma unroll
      for (int e = 0; e < 4; ++e) {
        const float t31 = out[0][j][e] * inverse[0][(e / 2)];
        t30[0][j][e] = t31;
      }
    }
    if (thread % 128 == 0) fc::await_stores_read<0>();
    fc::meet(1 + warp / 4, 128);
    // t30 in shared memory
    const fc::u32 o_staged = shared;
    #pragma unroll
    for (int i = 0; i < 1; ++i)
      #pragma unroll
      for (int j = 0; j < 8; ++j)
        #pragma unroll
        for (int r = 0; r < 2; ++r)
          fc::store_shared(o_staged + fc::chunk_offset<128, 64>(rows_lane + i * 16 + r * 8, j * 8) + lane % 4 * 4,
                           fc::pack<fc::bf16>(t30[i][j][2 * r], t30[i][j][2 * r + 1]));
    // store o
    fc::fence_async();
    fc::meet(1 + warp / 4, 128);
    if (thread % 128 == 0) {
      fc::store_box(p.o_tiles, o_staged + warp / 4 * 8192, 0, rows_begin + warp / 4 * 64, head, batch);
      fc::commit_stores();
    }
    if (thread % 128 == 0) fc::await_stores_read<0>();
    fc::meet(1 + warp / 4, 128);
    if (thread % 128 == 0) fc::arrive(query_empty);
    query_phase_2 ^= 1;
    if (thread % 128 == 0) fc::await_stores_read<0>();
  }
}
