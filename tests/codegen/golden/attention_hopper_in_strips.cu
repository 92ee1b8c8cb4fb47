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
    const float scale_log2 = p.scale * 1.442695f;
    const int t1 = p.Sk + -1;
    const int t2 = fc::min((fc::floor_div(t1, 80) + 1), ((p.Sk + 79) / 80));
    const int cols_end_2 = fc::max(0, t2);
    const int t3 = fc::min((fc::floor_div((t1 + -79), 80) + 1), cols_end_2);
    const int cols_full_end = fc::max(0, t3);
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
      const int t4 = fc::min(cols_full_end, cols_tile_2);
      if (cols_tile_2 >= cols_full_end) {
        bool t5[10][2];
        // t5 = lt(index(cols), extent(cols))
        #pragma unroll
        for (int i = 0; i < 10; ++i)
          #pragma unroll
          for (int e = 0; e < 2; ++e)
            t5[i][e] = (i * 8 + e * 1) < (p.Sk - (cols_begin_2 + cols_lane));
        // scores = where(t5, scores, -inf)
        #pragma unroll
        for (int j = 0; j < 10; ++j)
          #pragma unroll
          for (int e = 0; e < 4; ++e)
            scores[0][j][e] = t5[j][(e % 2)] ? scores[0][j][e] : -fc::infinity();
      }
      // reduce_max = reduce_max(scores, cols)
      float t6[1][2];
      float t6_parts[1][2][2];
      #pragma unroll
      for (int e = 0; e < 2; ++e)
        #pragma unroll
        for (int c = 0; c < 2; ++c)
          t6_parts[0][e][c] = -fc::infinity();
      #pragma unroll
      for (int j = 0; j < 10; ++j)
        #pragma unroll
        for (int e = 0; e < 4; ++e)
          t6_parts[0][(e / 2)][j % 2] = fc::max(t6_parts[0][(e / 2)][j % 2], scores[0][j][e]);
      #pragma unroll
      for (int e = 0; e < 2; ++e) {
        t6[0][e] = fc::max(t6_parts[0][e][0], t6_parts[0][e][1]);
        t6[0][e] = fc::max(t6[0][e], fc::shuffle_xor(t6[0][e], 1));
        t6[0][e] = fc::max(t6[0][e], fc::shuffle_xor(t6[0][e], 2));
      }
      float new_max[1][2];
      // new_max = max(row_max, mul(t6, scale_log2))
      float decay[1][2];
      // decay = exp2(sub(row_max, new_max))
      float t7[1][2];
      // t7 = neg(new_max)
      #pragma unroll
      for (int e = 0; e < 2; ++e) {
        const float t8 = t6[0][e] * scale_log2;
        new_max[0][e] = fc::max(row_max[0][e], t8);
        const float t9 = row_max[0][e] - new_max[0][e];
        decay[0][e] = fc::exp2(t9);
        t7[0][e] = -new_max[0][e];
      }
      // scores = fma(scores, scale_log2, t7)
      // probs = exp2(scores)
      // reduce_sum = reduce_sum(probs, cols), each lane its share
      float t10[1][2] = {};
      // scores_operand: scores as a left operand
      fc::u32 scores_operand[1][5][4];
      // out = mul(out, decay)
      // scores, strip 1 of 3
      #pragma unroll
      for (int j = 0; j < 4; ++j)
        #pragma unroll
        for (int e = 0; e < 4; ++e)
          scores[0][j][e] = fc::fma(scores[0][j][e], scale_log2, t7[0][(e / 2)]);
      fc::hold_order();
      // scores, strip 2 of 3
      #pragma unroll
      for (int j = 4; j < 8; ++j)
        #pragma unroll
        for (int e = 0; e < 4; ++e)
          scores[0][j][e] = fc::fma(scores[0][j][e], scale_log2, t7[0][(e / 2)]);
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
          scores[0][j][e] = fc::fma(scores[0][j][e], scale_log2, t7[0][(e / 2)]);
      // probs, strip 2 of 3
      #pragma unroll
      for (int j = 4; j < 8; ++j)
        #pragma unroll
        for (int e = 0; e < 4; ++e)
          scores[0][j][e] = fc::exp2(scores[0][j][e]);
      // t10, strip 1 of 3
      #pragma unroll
      for (int j = 0; j < 4; ++j)
        #pragma unroll
        for (int e = 0; e < 4; ++e)
          t10[0][(e / 2)] = t10[0][(e / 2)] + scores[0][j][e];
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
      // t10, strip 2 of 3
      #pragma unroll
      for (int j = 4; j < 8; ++j)
        #pragma unroll
        for (int e = 0; e < 4; ++e)
          t10[0][(e / 2)] = t10[0][(e / 2)] + scores[0][j][e];
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
      // t10, strip 3 of 3
      #pragma unroll
      for (int j = 8; j < 10; ++j)
        #pragma unroll
        for (int e = 0; e < 4; ++e)
          t10[0][(e / 2)] = t10[0][(e / 2)] + scores[0][j][e];
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
      // row_sum = fma(row_sum, decay, t10)
      #pragma unroll
      for (int e = 0; e < 2; ++e)
        row_sum[0][e] = fc::fma(row_sum[0][e], decay[0][e], t10[0][e]);

      // cols tiles of 80
      for (int cols_tile_3 = cols_tile_2 - 1; cols_tile_3 >= t4; --cols_tile_3) {
        const int cols_begin_3 = cols_tile_3 * 80;
        fc::await_phase(key_full + key_slot_2 * 8, key_phase_2);
        const fc::u32 key_2 = shared + 16384 + key_slot_2 * 10240;
        // scores = dot(query, transpose(key_2)), started
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
        // product = out + dot(scores_operand, value), started
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
        bool t11[10][2];
        // t11 = lt(index(cols), extent(cols))
        #pragma unroll
        for (int i = 0; i < 10; ++i)
          #pragma unroll
          for (int e = 0; e < 2; ++e)
            t11[i][e] = (i * 8 + e * 1) < (p.Sk - (cols_begin_3 + cols_lane));
        // scores_2 = where(t11, scores_2, -inf)
        // reduce_max = reduce_max(scores_2, cols)
        float t12[1][2];
        float t12_parts[1][2][2];
        #pragma unroll
        for (int e = 0; e < 2; ++e)
          #pragma unroll
          for (int c = 0; c < 2; ++c)
            t12_parts[0][e][c] = -fc::infinity();
        // scores_2, strip 1 of 3
        #pragma unroll
        for (int j = 0; j < 4; ++j)
          #pragma unroll
          for (int e = 0; e < 4; ++e)
            scores_2[0][j][e] = t11[j][(e % 2)] ? scores_2[0][j][e] : -fc::infinity();
        // t12, strip 1 of 3
        #pragma unroll
        for (int j = 0; j < 4; ++j)
          #pragma unroll
          for (int e = 0; e < 4; ++e)
            t12_parts[0][(e / 2)][j % 2] = fc::max(t12_parts[0][(e / 2)][j % 2], scores_2[0][j][e]);
        fc::hold_order();
        // scores_2, strip 2 of 3
        #pragma unroll
        for (int j = 4; j < 8; ++j)
          #pragma unroll
          for (int e = 0; e < 4; ++e)
            scores_2[0][j][e] = t11[j][(e % 2)] ? scores_2[0][j][e] : -fc::infinity();
        // t12, strip 2 of 3
        #pragma unroll
        for (int j = 4; j < 8; ++j)
          #pragma unroll
          for (int e = 0; e < 4; ++e)
            t12_parts[0][(e / 2)][j % 2] = fc::max(t12_parts[0][(e / 2)][j % 2], scores_2[0][j][e]);
        fc::hold_order();
        // scores_2, strip 3 of 3
        #pragma unroll
        for (int j = 8; j < 10; ++j)
          #pragma unroll
          for (int e = 0; e < 4; ++e)
            scores_2[0][j][e] = t11[j][(e % 2)] ? scores_2[0][j][e] : -fc::infinity();
        // t12, strip 3 of 3
        #pragma unroll
        for (int j = 8; j < 10; ++j)
          #pragma unroll
          for (int e = 0; e < 4; ++e)
            t12_parts[0][(e / 2)][j % 2] = fc::max(t12_parts[0][(e / 2)][j % 2], scores_2[0][j][e]);
        #pragma unroll
        for (int e = 0; e < 2; ++e) {
          t12[0][e] = fc::max(t12_parts[0][e][0], t12_parts[0][e][1]);
          t12[0][e] = fc::max(t12[0][e], fc::shuffle_xor(t12[0][e], 1));
          t12[0][e] = fc::max(t12[0][e], fc::shuffle_xor(t12[0][e], 2));
        }
        float new_max_2[1][2];
        // new_max_2 = max(new_max, mul(t12, scale_log2))
        float decay_2[1][2];
        // decay_2 = exp2(sub(new_max, new_max_2))
        float t13[1][2];
        // t13 = neg(new_max_2)
        #pragma unroll
        for (int e = 0; e < 2; ++e) {
          const float t14 = t12[0][e] * scale_log2;
          new_max_2[0][e] = fc::max(new_max[0][e], t14);
          const float t15 = new_max[0][e] - new_max_2[0][e];
          decay_2[0][e] = fc::exp2(t15);
          t13[0][e] = -new_max_2[0][e];
        }
        fc::await_products<0>();
        fc::pin(out);
        if (thread % 128 == 0) fc::arrive(value_empty + value_slot_2 * 8);
        if (++value_slot_2 == 2) {
          value_slot_2 = 0;
          value_phase_2 ^= 1;
        }
        // scores_2 = fma(scores_2, scale_log2, t13)
        // probs = exp2(scores_2)
        // reduce_sum = reduce_sum(probs, cols), each lane its share
        float t16[1][2] = {};
        // scores_operand: scores_2 as a left operand
        // out = mul(out, decay_2)
        // scores_2, strip 1 of 3
        #pragma unroll
        for (int j = 0; j < 4; ++j)
          #pragma unroll
          for (int e = 0; e < 4; ++e)
            scores_2[0][j][e] = fc::fma(scores_2[0][j][e], scale_log2, t13[0][(e / 2)]);
        fc::hold_order();
        // scores_2, strip 2 of 3
        #pragma unroll
        for (int j = 4; j < 8; ++j)
          #pragma unroll
          for (int e = 0; e < 4; ++e)
            scores_2[0][j][e] = fc::fma(scores_2[0][j][e], scale_log2, t13[0][(e / 2)]);
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
            scores_2[0][j][e] = fc::fma(scores_2[0][j][e], scale_log2, t13[0][(e / 2)]);
        // probs, strip 2 of 3
        #pragma unroll
        for (int j = 4; j < 8; ++j)
          #pragma unroll
          for (int e = 0; e < 4; ++e)
            scores_2[0][j][e] = fc::exp2(scores_2[0][j][e]);
        // t16, strip 1 of 3
        #pragma unroll
        for (int j = 0; j < 4; ++j)
          #pragma unroll
          for (int e = 0; e < 4; ++e)
            t16[0][(e / 2)] = t16[0][(e / 2)] + scores_2[0][j][e];
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
        // t16, strip 2 of 3
        #pragma unroll
        for (int j = 4; j < 8; ++j)
          #pragma unroll
          for (int e = 0; e < 4; ++e)
            t16[0][(e / 2)] = t16[0][(e / 2)] + scores_2[0][j][e];
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
        // t16, strip 3 of 3
        #pragma unroll
        for (int j = 8; j < 10; ++j)
          #pragma unroll
          for (int e = 0; e < 4; ++e)
            t16[0][(e / 2)] = t16[0][(e / 2)] + scores_2[0][j][e];
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
        // row_sum = fma(row_sum, decay_2, t16)
        #pragma unroll
        for (int e = 0; e < 2; ++e)
          row_sum[0][e] = fc::fma(row_sum[0][e], decay_2[0][e], t16[0][e]);
        #pragma unroll
        for (int e = 0; e < 2; ++e)
          new_max[0][e] = new_max_2[0][e];
      }

      // cols tiles of 80
      for (int cols_tile_4 = t4 - 1; cols_tile_4 >= 0; --cols_tile_4) {
        fc::await_phase(key_full + key_slot_2 * 8, key_phase_2);
        const fc::u32 key_3 = shared + 16384 + key_slot_2 * 10240;
        // scores = dot(query, transpose(key_3)), started
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
        // product = out + dot(scores_operand, value_2), started
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
        // reduce_max = reduce_max(scores_3, cols)
        float t17[1][2];
        float t17_parts[1][2][2];
        #pragma unroll
        for (int e = 0; e < 2; ++e)
          #pragma unroll
          for (int c = 0; c < 2; ++c)
            t17_parts[0][e][c] = -fc::infinity();
        #pragma unroll
        for (int j = 0; j < 10; ++j)
          #pragma unroll
          for (int e = 0; e < 4; ++e)
            t17_parts[0][(e / 2)][j % 2] = fc::max(t17_parts[0][(e / 2)][j % 2], scores_3[0][j][e]);
        #pragma unroll
        for (int e = 0; e < 2; ++e) {
          t17[0][e] = fc::max(t17_parts[0][e][0], t17_parts[0][e][1]);
          t17[0][e] = fc::max(t17[0][e], fc::shuffle_xor(t17[0][e], 1));
          t17[0][e] = fc::max(t17[0][e], fc::shuffle_xor(t17[0][e], 2));
        }
        float new_max_3[1][2];
        // new_max_3 = max(new_max, mul(t17, scale_log2))
        float decay_3[1][2];
        // decay_3 = exp2(sub(new_max, new_max_3))
        float t18[1][2];
        // t18 = neg(new_max_3)
        #pragma unroll
        for (int e = 0; e < 2; ++e) {
          const float t19 = t17[0][e] * scale_log2;
          new_max_3[0][e] = fc::max(new_max[0][e], t19);
          const float t20 = new_max[0][e] - new_max_3[0][e];
          decay_3[0][e] = fc::exp2(t20);
          t18[0][e] = -new_max_3[0][e];
        }
        fc::await_products<0>();
        fc::pin(out);
        if (thread % 128 == 0) fc::arrive(value_empty + value_slot_2 * 8);
        if (++value_slot_2 == 2) {
          value_slot_2 = 0;
          value_phase_2 ^= 1;
        }
        // scores_3 = fma(scores_3, scale_log2, t18)
        // probs = exp2(scores_3)
        // reduce_sum = reduce_sum(probs, cols), each lane its share
        float t21[1][2] = {};
        // scores_operand: scores_3 as a left operand
        // out = mul(out, decay_3)
        // scores_3, strip 1 of 3
        #pragma unroll
        for (int j = 0; j < 4; ++j)
          #pragma unroll
          for (int e = 0; e < 4; ++e)
            scores_3[0][j][e] = fc::fma(scores_3[0][j][e], scale_log2, t18[0][(e / 2)]);
        fc::hold_order();
        // scores_3, strip 2 of 3
        #pragma unroll
        for (int j = 4; j < 8; ++j)
          #pragma unroll
          for (int e = 0; e < 4; ++e)
            scores_3[0][j][e] = fc::fma(scores_3[0][j][e], scale_log2, t18[0][(e / 2)]);
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
            scores_3[0][j][e] = fc::fma(scores_3[0][j][e], scale_log2, t18[0][(e / 2)]);
        // probs, strip 2 of 3
        #pragma unroll
        for (int j = 4; j < 8; ++j)
          #pragma unroll
          for (int e = 0; e < 4; ++e)
            scores_3[0][j][e] = fc::exp2(scores_3[0][j][e]);
        // t21, strip 1 of 3
        #pragma unroll
        for (int j = 0; j < 4; ++j)
          #pragma unroll
          for (int e = 0; e < 4; ++e)
            t21[0][(e / 2)] = t21[0][(e / 2)] + scores_3[0][j][e];
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
        // t21, strip 2 of 3
        #pragma unroll
        for (int j = 4; j < 8; ++j)
          #pragma unroll
          for (int e = 0; e < 4; ++e)
            t21[0][(e / 2)] = t21[0][(e / 2)] + scores_3[0][j][e];
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
        // t21, strip 3 of 3
        #pragma unroll
        for (int j = 8; j < 10; ++j)
          #pragma unroll
          for (int e = 0; e < 4; ++e)
            t21[0][(e / 2)] = t21[0][(e / 2)] + scores_3[0][j][e];
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
        // row_sum = fma(row_sum, decay_3, t21)
        #pragma unroll
        for (int e = 0; e < 2; ++e)
          row_sum[0][e] = fc::fma(row_sum[0][e], decay_3[0][e], t21[0][e]);
        #pragma unroll
        for (int e = 0; e < 2; ++e)
          new_max[0][e] = new_max_3[0][e];
      }
      fc::await_phase(value_full + value_slot_2 * 8, value_phase_2);
      const fc::u32 value_3 = shared + 36864 + value_slot_2 * 10240;
      // product = out + dot(scores_operand, value_3), started
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
        row_max[0][e] = new_max[0][e];
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
      const float t22 = fc::divide(1.f, row_sum[0][e]);
      inverse[0][e] = empty ? 0.f : t22;
    }
    float t23[1][8][4];
    // t23 = cast(mul(out, inverse))
    #pragma unroll
    for (int j = 0; j < 8; ++j) {
      #pragma unroll
      for (int e = 0; e < 4; ++e) {
        const float t24 = out[0][j][e] * inverse[0][(e / 2)];
        t23[0][j][e] = t24;
      }
    }
    if (thread % 128 == 0) fc::await_stores_read<0>();
    fc::meet(1 + warp / 4, 128);
    // t23 in shared memory
    const fc::u32 o_staged = shared;
    #pragma unroll
    for (int i = 0; i < 1; ++i)
      #pragma unroll
      for (int j = 0; j < 8; ++j)
        #pragma unroll
        for (int r = 0; r < 2; ++r)
          fc::store_shared(o_staged + fc::chunk_offset<128, 64>(rows_lane + i * 16 + r * 8, j * 8) + lane % 4 * 4,
                           fc::pack<fc::bf16>(t23[i][j][2 * r], t23[i][j][2 * r + 1]));
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
