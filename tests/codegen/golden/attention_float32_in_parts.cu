struct Parameters {
  fc::tensor_map q_high_tiles;  // of 64 x 64
  fc::tensor_map q_middle_tiles;  // of 64 x 64
  fc::tensor_map q_low_tiles;  // of 64 x 64
  fc::tensor_map k_high_tiles;  // of 32 x 64
  fc::tensor_map k_middle_tiles;  // of 32 x 64
  fc::tensor_map k_low_tiles;  // of 32 x 64
  fc::tensor_map v_left_middle_tiles;  // of 32 x 64
  fc::tensor_map v_left_low_tiles;  // of 32 x 64
  fc::tensor_map v_left_high_tiles;  // of 32 x 64
  fc::tensor_map v_right_middle_tiles;  // of 32 x 64
  fc::tensor_map v_right_low_tiles;  // of 32 x 64
  fc::tensor_map v_right_high_tiles;  // of 32 x 64
  float* o;
  fc::i64 o_stride_0, o_stride_1, o_stride_2;  // elements
  int Sq;
  int Sk;
  float scale;
};

extern "C" __global__ void __launch_bounds__(256, 1)
attention_forward_in_parts(const __grid_constant__ Parameters p) {
  const int rows_tile = fc::block_x();
  const int rows_begin = rows_tile * 64;
  const int head = fc::block_y();
  const int batch = fc::block_z();
  const int thread = fc::thread_index(), lane = thread % 32, warp = fc::uniform(thread / 32);
  const fc::u32 shared = fc::shared_base();
  const int rows_lane = warp % 4 * 16 + lane / 4;
  const int dv_lane = lane % 4 * 2;
  const int cols_lane = lane % 4 * 2;
  // where a ring's slots say that they are full, and that they are empty
  const fc::u32 query_high_full = shared + 196608, query_high_empty = shared + 196616;
  const fc::u32 query_middle_full = shared + 196624, query_middle_empty = shared + 196632;
  const fc::u32 query_low_full = shared + 196640, query_low_empty = shared + 196648;
  const fc::u32 key_high_full = shared + 196656, key_high_empty = shared + 196664;
  const fc::u32 key_middle_full = shared + 196672, key_middle_empty = shared + 196680;
  const fc::u32 key_low_full = shared + 196688, key_low_empty = shared + 196696;
  const fc::u32 value_high_full = shared + 196736, value_high_empty = shared + 196744;
  const fc::u32 value_middle_full = shared + 196704, value_middle_empty = shared + 196712;
  const fc::u32 value_low_full = shared + 196720, value_low_empty = shared + 196728;
  const fc::u32 value_high_2_full = shared + 196784, value_high_2_empty = shared + 196792;
  const fc::u32 value_middle_2_full = shared + 196752, value_middle_2_empty = shared + 196760;
  const fc::u32 value_low_2_full = shared + 196768, value_low_2_empty = shared + 196776;
  if (thread == 0) {
    fc::prefetch_map(p.q_high_tiles);
    fc::prefetch_map(p.q_middle_tiles);
    fc::prefetch_map(p.q_low_tiles);
    fc::prefetch_map(p.k_high_tiles);
    fc::prefetch_map(p.k_middle_tiles);
    fc::prefetch_map(p.k_low_tiles);
    fc::prefetch_map(p.v_left_middle_tiles);
    fc::prefetch_map(p.v_left_low_tiles);
    fc::prefetch_map(p.v_left_high_tiles);
    fc::prefetch_map(p.v_right_middle_tiles);
    fc::prefetch_map(p.v_right_low_tiles);
    fc::prefetch_map(p.v_right_high_tiles);
    fc::init_mbarrier(query_high_full, 1);
    fc::init_mbarrier(query_high_empty, 1);
    fc::init_mbarrier(query_middle_full, 1);
    fc::init_mbarrier(query_middle_empty, 1);
    fc::init_mbarrier(query_low_full, 1);
    fc::init_mbarrier(query_low_empty, 1);
    fc::init_mbarrier(key_high_full, 1);
    fc::init_mbarrier(key_high_empty, 1);
    fc::init_mbarrier(key_middle_full, 1);
    fc::init_mbarrier(key_middle_empty, 1);
    fc::init_mbarrier(key_low_full, 1);
    fc::init_mbarrier(key_low_empty, 1);
    fc::init_mbarrier(value_high_full, 1);
    fc::init_mbarrier(value_high_empty, 1);
    fc::init_mbarrier(value_middle_full, 1);
    fc::init_mbarrier(value_middle_empty, 1);
    fc::init_mbarrier(value_low_full, 1);
    fc::init_mbarrier(value_low_empty, 1);
    fc::init_mbarrier(value_high_2_full, 1);
    fc::init_mbarrier(value_high_2_empty, 1);
    fc::init_mbarrier(value_middle_2_full, 1);
    fc::init_mbarrier(value_middle_2_empty, 1);
    fc::init_mbarrier(value_low_2_full, 1);
    fc::init_mbarrier(value_low_2_empty, 1);
    fc::publish_mbarriers();
  }
  fc::barrier();
  fc::wait_for_kernels();
  fc::launch_dependents();

  if (warp >= 4) {
    if (thread == 128) {
      unsigned phases = 0;
      fc::wait_phase(query_high_empty, (phases >> 0 & 1) ^ 1);
      // query_high <- q_high
      fc::arrive_expect_tx(query_high_full, 32768);
      fc::load_box(shared, p.q_high_tiles, query_high_full, 0, rows_begin, head, batch);
      fc::load_box(shared + 8192, p.q_high_tiles, query_high_full, 64, rows_begin, head, batch);
      fc::load_box(shared + 16384, p.q_high_tiles, query_high_full, 128, rows_begin, head, batch);
      fc::load_box(shared + 24576, p.q_high_tiles, query_high_full, 192, rows_begin, head, batch);
      phases ^= 1u << 0;
      fc::wait_phase(query_middle_empty, (phases >> 1 & 1) ^ 1);
      // query_middle <- q_middle
      fc::arrive_expect_tx(query_middle_full, 32768);
      fc::load_box(shared + 32768, p.q_middle_tiles, query_middle_full, 0, rows_begin, head, batch);
      fc::load_box(shared + 32768 + 8192, p.q_middle_tiles, query_middle_full, 64, rows_begin, head, batch);
      fc::load_box(shared + 32768 + 16384, p.q_middle_tiles, query_middle_full, 128, rows_begin, head, batch);
      fc::load_box(shared + 32768 + 24576, p.q_middle_tiles, query_middle_full, 192, rows_begin, head, batch);
      phases ^= 1u << 1;
      fc::wait_phase(query_low_empty, (phases >> 2 & 1) ^ 1);
      // query_low <- q_low
      fc::arrive_expect_tx(query_low_full, 32768);
      fc::load_box(shared + 65536, p.q_low_tiles, query_low_full, 0, rows_begin, head, batch);
      fc::load_box(shared + 65536 + 8192, p.q_low_tiles, query_low_full, 64, rows_begin, head, batch);
      fc::load_box(shared + 65536 + 16384, p.q_low_tiles, query_low_full, 128, rows_begin, head, batch);
      fc::load_box(shared + 65536 + 24576, p.q_low_tiles, query_low_full, 192, rows_begin, head, batch);
      phases ^= 1u << 2;
      const int t0 = ((fc::min((rows_begin + 64), p.Sq) - 1) - p.Sq) + p.Sk;
      const int cols_end = fc::max(0, fc::min(((t0 >> 5) + 1), ((p.Sk + 31) / 32)));

      // cols tiles of 32
      #pragma unroll 1
      for (int cols_tile = 0; cols_tile < cols_end; ++cols_tile) {
        const int cols_begin = cols_tile * 32;
        fc::wait_phase(key_high_empty, (phases >> 3 & 1) ^ 1);
        // key_high <- k_high
        fc::arrive_expect_tx(key_high_full, 16384);
        fc::load_box(shared + 98304, p.k_high_tiles, key_high_full, 0, cols_begin, head, batch);
        fc::load_box(shared + 98304 + 4096, p.k_high_tiles, key_high_full, 64, cols_begin, head, batch);
        fc::load_box(shared + 98304 + 8192, p.k_high_tiles, key_high_full, 128, cols_begin, head, batch);
        fc::load_box(shared + 98304 + 12288, p.k_high_tiles, key_high_full, 192, cols_begin, head, batch);
        phases ^= 1u << 3;
        fc::wait_phase(key_middle_empty, (phases >> 4 & 1) ^ 1);
        // key_middle <- k_middle
        fc::arrive_expect_tx(key_middle_full, 16384);
        fc::load_box(shared + 114688, p.k_middle_tiles, key_middle_full, 0, cols_begin, head, batch);
        fc::load_box(shared + 114688 + 4096, p.k_middle_tiles, key_middle_full, 64, cols_begin, head, batch);
        fc::load_box(shared + 114688 + 8192, p.k_middle_tiles, key_middle_full, 128, cols_begin, head, batch);
        fc::load_box(shared + 114688 + 12288, p.k_middle_tiles, key_middle_full, 192, cols_begin, head, batch);
        phases ^= 1u << 4;
        fc::wait_phase(key_low_empty, (phases >> 5 & 1) ^ 1);
        // key_low <- k_low
        fc::arrive_expect_tx(key_low_full, 16384);
        fc::load_box(shared + 131072, p.k_low_tiles, key_low_full, 0, cols_begin, head, batch);
        fc::load_box(shared + 131072 + 4096, p.k_low_tiles, key_low_full, 64, cols_begin, head, batch);
        fc::load_box(shared + 131072 + 8192, p.k_low_tiles, key_low_full, 128, cols_begin, head, batch);
        fc::load_box(shared + 131072 + 12288, p.k_low_tiles, key_low_full, 192, cols_begin, head, batch);
        phases ^= 1u << 5;
        fc::wait_phase(value_middle_empty, (phases >> 6 & 1) ^ 1);
        // value_middle <- v_left_middle
        fc::arrive_expect_tx(value_middle_full, 8192);
        fc::load_box(shared + 155648, p.v_left_middle_tiles, value_middle_full, 0, cols_begin, head, batch);
        fc::load_box(shared + 155648 + 4096, p.v_left_middle_tiles, value_middle_full, 64, cols_begin, head, batch);
        phases ^= 1u << 6;
        fc::wait_phase(value_low_empty, (phases >> 7 & 1) ^ 1);
        // value_low <- v_left_low
        fc::arrive_expect_tx(value_low_full, 8192);
        fc::load_box(shared + 163840, p.v_left_low_tiles, value_low_full, 0, cols_begin, head, batch);
        fc::load_box(shared + 163840 + 4096, p.v_left_low_tiles, value_low_full, 64, cols_begin, head, batch);
        phases ^= 1u << 7;
        fc::wait_phase(value_high_empty, (phases >> 8 & 1) ^ 1);
        // value_high <- v_left_high
        fc::arrive_expect_tx(value_high_full, 8192);
        fc::load_box(shared + 147456, p.v_left_high_tiles, value_high_full, 0, cols_begin, head, batch);
        fc::load_box(shared + 147456 + 4096, p.v_left_high_tiles, value_high_full, 64, cols_begin, head, batch);
        phases ^= 1u << 8;
        fc::wait_phase(value_middle_2_empty, (phases >> 9 & 1) ^ 1);
        // value_middle_2 <- v_right_middle
        fc::arrive_expect_tx(value_middle_2_full, 8192);
        fc::load_box(shared + 180224, p.v_right_middle_tiles, value_middle_2_full, 0, cols_begin, head, batch);
        fc::load_box(shared + 180224 + 4096, p.v_right_middle_tiles, value_middle_2_full, 64, cols_begin, head, batch);
        phases ^= 1u << 9;
        fc::wait_phase(value_low_2_empty, (phases >> 10 & 1) ^ 1);
        // value_low_2 <- v_right_low
        fc::arrive_expect_tx(value_low_2_full, 8192);
        fc::load_box(shared + 188416, p.v_right_low_tiles, value_low_2_full, 0, cols_begin, head, batch);
        fc::load_box(shared + 188416 + 4096, p.v_right_low_tiles, value_low_2_full, 64, cols_begin, head, batch);
        phases ^= 1u << 10;
        fc::wait_phase(value_high_2_empty, (phases >> 11 & 1) ^ 1);
        // value_high_2 <- v_right_high
        fc::arrive_expect_tx(value_high_2_full, 8192);
        fc::load_box(shared + 172032, p.v_right_high_tiles, value_high_2_full, 0, cols_begin, head, batch);
        fc::load_box(shared + 172032 + 4096, p.v_right_high_tiles, value_high_2_full, 64, cols_begin, head, batch);
        phases ^= 1u << 11;
      }
    }
  }
  else {
    unsigned phases_2 = 0;
    const float scale_log2 = p.scale * 1.442695f;
    const int t1 = ((fc::min((rows_begin + 64), p.Sq) - 1) - p.Sq) + p.Sk;
    const int t2 = ((((rows_begin - p.Sq) + p.Sk) + -31) >> 5) + 1;
    const int cols_end_2 = fc::max(0, fc::min(((t1 >> 5) + 1), ((p.Sk + 31) / 32)));
    const int cols_full_end = fc::max(0, fc::min(t2, cols_end_2));
    fc::wait_phase(query_high_full, (phases_2 >> 0 & 1));
    const fc::u32 query_high = shared;
    fc::wait_phase(query_middle_full, (phases_2 >> 1 & 1));
    const fc::u32 query_middle = shared + 32768;
    fc::wait_phase(query_low_full, (phases_2 >> 2 & 1));
    const fc::u32 query_low = shared + 65536;

    float row_max[1][2];
    #pragma unroll
    for (int e = 0; e < 2; ++e)
      row_max[0][e] = fc::lowest();
    float row_sum[1][2] = {};
    float out[1][16][4] = {};
    float out_2[1][16][4] = {};
    // cols tiles of 32
    for (int cols_tile_2 = 0; cols_tile_2 < cols_end_2; ++cols_tile_2) {
      const int cols_begin_2 = cols_tile_2 * 32;
      fc::wait_phase(key_high_full, (phases_2 >> 3 & 1));
      const fc::u32 key_high = shared + 98304;
      fc::wait_phase(key_middle_full, (phases_2 >> 4 & 1));
      const fc::u32 key_middle = shared + 114688;
      fc::wait_phase(key_low_full, (phases_2 >> 5 & 1));
      const fc::u32 key_low = shared + 131072;
      // product = dot(query_middle, transpose(key_middle)), issued
      float t3[1][4][4];
      fc::pin(t3);
      fc::fence_products();
      {
        const fc::u64 a = fc::matrix(query_middle + warp / 4 * 8192, 64, 0);
        const fc::u64 b = fc::matrix(key_middle, 64, 0);
        fc::multiply_warpgroup<32, fc::bf16, 16, fc::along<64, 8192>, fc::along<64, 4096>>(t3[0], a, b, false);
      }
      fc::commit_products();
      // product = t3 + dot(query_high, transpose(key_low)), issued
      fc::fence_products();
      {
        const fc::u64 a = fc::matrix(query_high + warp / 4 * 8192, 64, 0);
        const fc::u64 b = fc::matrix(key_low, 64, 0);
        fc::multiply_warpgroup<32, fc::bf16, 16, fc::along<64, 8192>, fc::along<64, 4096>>(t3[0], a, b, true);
      }
      fc::commit_products();
      // product = t3 + dot(query_low, transpose(key_high)), issued
      fc::fence_products();
      {
        const fc::u64 a = fc::matrix(query_low + warp / 4 * 8192, 64, 0);
        const fc::u64 b = fc::matrix(key_high, 64, 0);
        fc::multiply_warpgroup<32, fc::bf16, 16, fc::along<64, 8192>, fc::along<64, 4096>>(t3[0], a, b, true);
      }
      fc::commit_products();
      // product = t3 + dot(query_high, transpose(key_middle)), issued
      fc::fence_products();
      {
        const fc::u64 a = fc::matrix(query_high + warp / 4 * 8192, 64, 0);
        const fc::u64 b = fc::matrix(key_middle, 64, 0);
        fc::multiply_warpgroup<32, fc::bf16, 16, fc::along<64, 8192>, fc::along<64, 4096>>(t3[0], a, b, true);
      }
      fc::commit_products();
      // product = t3 + dot(query_middle, transpose(key_high)), issued
      fc::fence_products();
      {
        const fc::u64 a = fc::matrix(query_middle + warp / 4 * 8192, 64, 0);
        const fc::u64 b = fc::matrix(key_high, 64, 0);
        fc::multiply_warpgroup<32, fc::bf16, 16, fc::along<64, 8192>, fc::along<64, 4096>>(t3[0], a, b, true);
      }
      fc::commit_products();
      // scores = t3 + dot(query_high, transpose(key_high)), issued
      fc::fence_products();
      {
        const fc::u64 a = fc::matrix(query_high + warp / 4 * 8192, 64, 0);
        const fc::u64 b = fc::matrix(key_high, 64, 0);
        fc::multiply_warpgroup<32, fc::bf16, 16, fc::along<64, 8192>, fc::along<64, 4096>>(t3[0], a, b, true);
      }
      fc::commit_products();
      fc::wait_products<0>();
      fc::pin(t3);
      fc::arrive_if(thread % 128 == 0, key_low_empty);
      phases_2 ^= 1u << 5;
      fc::arrive_if(thread % 128 == 0, key_middle_empty);
      phases_2 ^= 1u << 4;
      fc::arrive_if(thread % 128 == 0, key_high_empty);
      phases_2 ^= 1u << 3;
      const bool masked = cols_tile_2 >= cols_full_end;
      if (masked) {
        int t4[1][2];
        // t4 = add(index(rows), (p.Sk - p.Sq))
        #pragma unroll
        for (int e = 0; e < 2; ++e)
          t4[0][e] = (rows_begin + rows_lane + e * 8) + (p.Sk - p.Sq);
        // scores = where(ge(sub(t4, thread_begin), thread_offset), scores, -inf)
        #pragma unroll
        for (int j = 0; j < 4; ++j) {
          #pragma unroll
          for (int e = 0; e < 4; ++e) {
            const int t5 = t4[0][(e / 2)] - (cols_begin_2 + cols_lane);
            const bool t6 = t5 >= (j * 8 + (e % 2));
            t3[0][j][e] = t6 ? t3[0][j][e] : -fc::infinity();
          }
        }
      }
      // reduce_max = reduce_max(scores, cols)
      float t7[1][2];
      #pragma unroll
      for (int e = 0; e < 2; ++e)
        t7[0][e] = -fc::infinity();
      #pragma unroll
      for (int j = 0; j < 4; ++j)
        #pragma unroll
        for (int e = 0; e < 4; ++e)
          t7[0][(e / 2)] = fc::max(t7[0][(e / 2)], t3[0][j][e]);
      #pragma unroll
      for (int e = 0; e < 2; ++e) {
        t7[0][e] = fc::max(t7[0][e], fc::shuffle_xor(t7[0][e], 1));
        t7[0][e] = fc::max(t7[0][e], fc::shuffle_xor(t7[0][e], 2));
      }
      float new_max[1][2];
      // new_max = max(row_max, mul(t7, scale_log2))
      float decay[1][2];
      // decay = exp2(sub(row_max, new_max))
      float t8[1][2];
      // t8 = neg(new_max)
      #pragma unroll
      for (int e = 0; e < 2; ++e) {
        const float t9 = t7[0][e] * scale_log2;
        new_max[0][e] = fc::max(row_max[0][e], t9);
        const float t10 = row_max[0][e] - new_max[0][e];
        decay[0][e] = fc::exp2(t10);
        t8[0][e] = -new_max[0][e];
      }
      float probs[1][4][4];
      // probs = exp2(fma(scores, scale_log2, t8))
      #pragma unroll
      for (int j = 0; j < 4; ++j) {
        #pragma unroll
        for (int e = 0; e < 4; ++e) {
          const float t11 = fc::fma(t3[0][j][e], scale_log2, t8[0][(e / 2)]);
          probs[0][j][e] = fc::exp2(t11);
        }
      }
      // reduce_sum = reduce_sum(probs, cols), each lane its partial
      float t12[1][2] = {};
      #pragma unroll
      for (int j = 0; j < 4; ++j)
        #pragma unroll
        for (int e = 0; e < 4; ++e)
          t12[0][(e / 2)] = t12[0][(e / 2)] + probs[0][j][e];
      // row_sum = fma(row_sum, decay, t12)
      #pragma unroll
      for (int e = 0; e < 2; ++e)
        row_sum[0][e] = fc::fma(row_sum[0][e], decay[0][e], t12[0][e]);
      float t13[1][4][4];
      // t13 = cast(probs)
      #pragma unroll
      for (int j = 0; j < 4; ++j)
        #pragma unroll
        for (int e = 0; e < 4; ++e)
          t13[0][j][e] = fc::round_to<fc::bf16>(probs[0][j][e]);
      fc::u32 probs_operand[1][2][4];
      // probs_operand: probs as a left operand
      #pragma unroll
      for (int i = 0; i < 1; ++i)
        #pragma unroll
        for (int k = 0; k < 2; ++k)
          #pragma unroll
          for (int r = 0; r < 4; ++r)
            probs_operand[i][k][r] =
                fc::pack<fc::bf16>(probs[i][2 * k + r / 2][r % 2 * 2], probs[i][2 * k + r / 2][r % 2 * 2 + 1]);
      // probs = sub(probs, cast(t13))
      float t14[1][4][4];
      // t14 = cast(probs)
      #pragma unroll
      for (int j = 0; j < 4; ++j) {
        #pragma unroll
        for (int e = 0; e < 4; ++e) {
          const float t15 = t13[0][j][e];
          probs[0][j][e] = probs[0][j][e] - t15;
          t14[0][j][e] = fc::round_to<fc::bf16>(probs[0][j][e]);
        }
      }
      fc::u32 probs_operand_2[1][2][4];
      // probs_operand_2: probs as a left operand
      #pragma unroll
      for (int i = 0; i < 1; ++i)
        #pragma unroll
        for (int k = 0; k < 2; ++k)
          #pragma unroll
          for (int r = 0; r < 4; ++r)
            probs_operand_2[i][k][r] =
                fc::pack<fc::bf16>(probs[i][2 * k + r / 2][r % 2 * 2], probs[i][2 * k + r / 2][r % 2 * 2 + 1]);
      // probs = sub(probs, cast(t14))
      #pragma unroll
      for (int j = 0; j < 4; ++j) {
        #pragma unroll
        for (int e = 0; e < 4; ++e) {
          const float t16 = t14[0][j][e];
          probs[0][j][e] = probs[0][j][e] - t16;
        }
      }
      fc::u32 probs_operand_3[1][2][4];
      // probs_operand_3: probs as a left operand
      #pragma unroll
      for (int i = 0; i < 1; ++i)
        #pragma unroll
        for (int k = 0; k < 2; ++k)
          #pragma unroll
          for (int r = 0; r < 4; ++r)
            probs_operand_3[i][k][r] =
                fc::pack<fc::bf16>(probs[i][2 * k + r / 2][r % 2 * 2], probs[i][2 * k + r / 2][r % 2 * 2 + 1]);
      fc::wait_phase(value_middle_full, (phases_2 >> 6 & 1));
      const fc::u32 value_middle = shared + 155648;
      // product = dot(probs_operand_2, value_middle), issued
      float t17[1][16][4];
      fc::pin(t17);
      fc::fence_products();
      {
        const fc::u64 b = fc::matrix(value_middle, 64, 4096);
        fc::multiply_warpgroup<128, fc::bf16, 2, fc::across<64>>(t17[0], probs_operand_2[0], b, false);
      }
      fc::commit_products();
      fc::wait_phase(value_low_full, (phases_2 >> 7 & 1));
      const fc::u32 value_low = shared + 163840;
      // product = t17 + dot(probs_operand, value_low), issued
      fc::fence_products();
      {
        const fc::u64 b = fc::matrix(value_low, 64, 4096);
        fc::multiply_warpgroup<128, fc::bf16, 2, fc::across<64>>(t17[0], probs_operand[0], b, true);
      }
      fc::commit_products();
      fc::wait_phase(value_high_full, (phases_2 >> 8 & 1));
      const fc::u32 value_high = shared + 147456;
      // product = t17 + dot(probs_operand_3, value_high), issued
      fc::fence_products();
      {
        const fc::u64 b = fc::matrix(value_high, 64, 4096);
        fc::multiply_warpgroup<128, fc::bf16, 2, fc::across<64>>(t17[0], probs_operand_3[0], b, true);
      }
      fc::commit_products();
      // product = t17 + dot(probs_operand, value_middle), issued
      fc::fence_products();
      {
        const fc::u64 b = fc::matrix(value_middle, 64, 4096);
        fc::multiply_warpgroup<128, fc::bf16, 2, fc::across<64>>(t17[0], probs_operand[0], b, true);
      }
      fc::commit_products();
      // product = t17 + dot(probs_operand_2, value_high), issued
      fc::fence_products();
      {
        const fc::u64 b = fc::matrix(value_high, 64, 4096);
        fc::multiply_warpgroup<128, fc::bf16, 2, fc::across<64>>(t17[0], probs_operand_2[0], b, true);
      }
      fc::commit_products();
      // product = t17 + dot(probs_operand, value_high), issued
      fc::fence_products();
      {
        const fc::u64 b = fc::matrix(value_high, 64, 4096);
        fc::multiply_warpgroup<128, fc::bf16, 2, fc::across<64>>(t17[0], probs_operand[0], b, true);
      }
      fc::commit_products();
      fc::wait_products<0>();
      fc::pin(t17);
      fc::arrive_if(thread % 128 == 0, value_high_empty);
      phases_2 ^= 1u << 8;
      fc::arrive_if(thread % 128 == 0, value_low_empty);
      phases_2 ^= 1u << 7;
      fc::arrive_if(thread % 128 == 0, value_middle_empty);
      phases_2 ^= 1u << 6;
      // out = fma(out, decay, t17)
      #pragma unroll
      for (int j = 0; j < 16; ++j)
        #pragma unroll
        for (int e = 0; e < 4; ++e)
          out[0][j][e] = fc::fma(out[0][j][e], decay[0][(e / 2)], t17[0][j][e]);
      fc::wait_phase(value_middle_2_full, (phases_2 >> 9 & 1));
      const fc::u32 value_middle_2 = shared + 180224;
      // product = dot(probs_operand_2, value_middle_2), issued
      float t18[1][16][4];
      fc::pin(t18);
      fc::fence_products();
      {
        const fc::u64 b = fc::matrix(value_middle_2, 64, 4096);
        fc::multiply_warpgroup<128, fc::bf16, 2, fc::across<64>>(t18[0], probs_operand_2[0], b, false);
      }
      fc::commit_products();
      fc::wait_phase(value_low_2_full, (phases_2 >> 10 & 1));
      const fc::u32 value_low_2 = shared + 188416;
      // product = t18 + dot(probs_operand, value_low_2), issued
      fc::fence_products();
      {
        const fc::u64 b = fc::matrix(value_low_2, 64, 4096);
        fc::multiply_warpgroup<128, fc::bf16, 2, fc::across<64>>(t18[0], probs_operand[0], b, true);
      }
      fc::commit_products();
      fc::wait_phase(value_high_2_full, (phases_2 >> 11 & 1));
      const fc::u32 value_high_2 = shared + 172032;
      // product = t18 + dot(probs_operand_3, value_high_2), issued
      fc::fence_products();
      {
        const fc::u64 b = fc::matrix(value_high_2, 64, 4096);
        fc::multiply_warpgroup<128, fc::bf16, 2, fc::across<64>>(t18[0], probs_operand_3[0], b, true);
      }
      fc::commit_products();
      // product = t18 + dot(probs_operand, value_middle_2), issued
      fc::fence_products();
      {
        const fc::u64 b = fc::matrix(value_middle_2, 64, 4096);
        fc::multiply_warpgroup<128, fc::bf16, 2, fc::across<64>>(t18[0], probs_operand[0], b, true);
      }
      fc::commit_products();
      // product = t18 + dot(probs_operand_2, value_high_2), issued
      fc::fence_products();
      {
        const fc::u64 b = fc::matrix(value_high_2, 64, 4096);
        fc::multiply_warpgroup<128, fc::bf16, 2, fc::across<64>>(t18[0], probs_operand_2[0], b, true);
      }
      fc::commit_products();
      // product = t18 + dot(probs_operand, value_high_2), issued
      fc::fence_products();
      {
        const fc::u64 b = fc::matrix(value_high_2, 64, 4096);
        fc::multiply_warpgroup<128, fc::bf16, 2, fc::across<64>>(t18[0], probs_operand[0], b, true);
      }
      fc::commit_products();
      fc::wait_products<0>();
      fc::pin(t18);
      fc::arrive_if(thread % 128 == 0, value_high_2_empty);
      phases_2 ^= 1u << 11;
      fc::arrive_if(thread % 128 == 0, value_low_2_empty);
      phases_2 ^= 1u << 10;
      fc::arrive_if(thread % 128 == 0, value_middle_2_empty);
      phases_2 ^= 1u << 9;
      // out_2 = fma(out_2, decay, t18)
      #pragma unroll
      for (int j = 0; j < 16; ++j)
        #pragma unroll
        for (int e = 0; e < 4; ++e)
          out_2[0][j][e] = fc::fma(out_2[0][j][e], decay[0][(e / 2)], t18[0][j][e]);
      #pragma unroll
      for (int e = 0; e < 2; ++e)
        row_max[0][e] = new_max[0][e];
    }
    fc::meet(1 + warp / 4, 128);
    fc::arrive_if(thread % 128 == 0, query_low_empty);
    phases_2 ^= 1u << 2;
    fc::arrive_if(thread % 128 == 0, query_middle_empty);
    phases_2 ^= 1u << 1;
    fc::arrive_if(thread % 128 == 0, query_high_empty);
    phases_2 ^= 1u << 0;
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
      const float t19 = fc::divide(1.f, row_sum[0][e]);
      inverse[0][e] = empty ? 0.f : t19;
    }
    // out = mul(out, inverse)
    #pragma unroll
    for (int j = 0; j < 16; ++j)
      #pragma unroll
      for (int e = 0; e < 4; ++e)
        out[0][j][e] = out[0][j][e] * inverse[0][(e / 2)];
    float* const o_at = p.o + batch * p.o_stride_0 + head * p.o_stride_1;
    // store o = out
    #pragma unroll
    for (int j = 0; j < 16; ++j)
      #pragma unroll
      for (int e = 0; e < 4; ++e)
        if (rows_begin + rows_lane + (e / 2) * 8 < p.Sq && fc::within((dv_lane + j * 8 + (e % 2)), 256)) {
          fc::store_global<1>(o_at + (rows_begin + rows_lane + (e / 2) * 8) * p.o_stride_2 + ((dv_lane + j * 8 + (e % 2))), &out[0][j][e]);
        }
    int t20[16][2];
    // t20 = add(index(dv), 128)
    #pragma unroll
    for (int i = 0; i < 16; ++i)
      #pragma unroll
      for (int e = 0; e < 2; ++e)
        t20[i][e] = (dv_lane + i * 8 + e) + 128;
    // out_2 = mul(out_2, inverse)
    #pragma unroll
    for (int j = 0; j < 16; ++j)
      #pragma unroll
      for (int e = 0; e < 4; ++e)
        out_2[0][j][e] = out_2[0][j][e] * inverse[0][(e / 2)];
    float* const o_at_2 = p.o + batch * p.o_stride_0 + head * p.o_stride_1;
    // store o = out_2
    #pragma unroll
    for (int j = 0; j < 16; ++j)
      #pragma unroll
      for (int e = 0; e < 4; ++e)
        if (rows_begin + rows_lane + (e / 2) * 8 < p.Sq && fc::within(t20[j][(e % 2)], 256)) {
          fc::store_global<1>(o_at_2 + (rows_begin + rows_lane + (e / 2) * 8) * p.o_stride_2 + (t20[j][(e % 2)]), &out_2[0][j][e]);
        }
  }
}
