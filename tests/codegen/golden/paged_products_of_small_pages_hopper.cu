struct Parameters {
  fc::tensor_map k_tiles;  // of 16 x 64
  const fc::bf16* q;
  const int* pages;
  float* s;
  fc::i64 q_stride_0, q_stride_1, q_stride_2;  // elements
  fc::i64 pages_stride_0, pages_stride_1;  // elements
  fc::i64 s_stride_0, s_stride_1;  // elements
  int B;
  int M;
  int N;
};

extern "C" __global__ void __launch_bounds__(256, 1)
paged_products(const __grid_constant__ Parameters p) {
  const int rows_tile = fc::block_x();
  const int rows_begin = rows_tile * 64;
  const int batch = fc::block_y();
  const int thread = fc::thread_index(), lane = thread % 32, warp = fc::uniform(thread / 32);
  const fc::u32 shared = fc::shared_base();
  const int rows_lane = warp % 4 * 16 + lane / 4;
  const int d_lane = lane % 4 * 2;
  const int cols_lane = lane % 4 * 2;
  // where a ring's slots say that they are full, and that they are empty
  const fc::u32 k_full = shared + 32768, k_empty = shared + 32784;
  if (thread == 0) {
    fc::prefetch_map(p.k_tiles);
    for (int slot = 0; slot < 2; ++slot) {
      fc::init_mbarrier(k_full + slot * 8, 1);
      fc::init_mbarrier(k_empty + slot * 8, 1);
    }
    fc::publish_mbarriers();
  }
  fc::barrier();
  fc::wait_for_kernels();
  fc::launch_dependents();

  if (warp >= 4) {
    if (thread == 128) {
      int k_slot = 0, k_phase = 0;
      const int t0 = fc::floor_div((fc::min((rows_begin + 64), (p.M * 3)) - 1), 3);
      const int t1 = fc::min(((((t0 - p.M) + (p.N * 16)) >> 6) + 1), (((p.N * 16) + 63) / 64));
      const int cols_end = fc::max(0, t1);

      // cols tiles of 64
      #pragma unroll 1
      for (int cols_tile = cols_end - 1; cols_tile >= 0; --cols_tile) {
        const int cols_begin = cols_tile * 64;
        // k <- k
        int positions[4], positions_2[4];
        #pragma unroll
        for (int box = 0; box < 4; ++box) {
          const int first_row = box * 16;
          const int t2 = cols_begin + first_row;
          const int position = fc::gather(p.pages, batch * p.pages_stride_0 + (t2 >> 4) * p.pages_stride_1, fc::within(batch, p.B) && fc::within((t2 >> 4), p.N));
          const int position_2 = t2 & 15;
          positions[box] = position;
          positions_2[box] = position_2;
        }
        fc::wait_phase(k_empty + k_slot * 8, k_phase ^ 1);
        fc::arrive_expect_tx(k_full + k_slot * 8, 16384);
        #pragma unroll
        for (int box = 0; box < 4; ++box) {
          fc::load_box(shared + k_slot * 16384 + box * 2048, p.k_tiles, k_full + k_slot * 8, 0, positions_2[box], positions[box]);
          fc::load_box(shared + k_slot * 16384 + 8192 + box * 2048, p.k_tiles, k_full + k_slot * 8, 64, positions_2[box], positions[box]);
        }
        if (++k_slot == 2) {
          k_slot = 0;
          k_phase ^= 1;
        }
      }
    }
  }
  else {
    int k_slot_2 = 0, k_phase_2 = 0;
    int t3[1][2];
    // t3 = mod(index(rows), 3)
    int t4[1][2];
    // t4 = div(index(rows), 3)
    #pragma unroll
    for (int e = 0; e < 2; ++e) {
      t3[0][e] = fc::floor_mod((rows_begin + rows_lane + e * 8), 3);
      t4[0][e] = fc::floor_div((rows_begin + rows_lane + e * 8), 3);
    }
    // load = load q
    float t5[1][16][4];
    const fc::bf16* const q_at = p.q + batch * p.q_stride_0;
    #pragma unroll
    for (int j = 0; j < 16; ++j)
      #pragma unroll
      for (int e = 0; e < 2; ++e)
        if (rows_begin + rows_lane + e * 8 < (p.M * 3) && fc::within(t3[0][e], 3) && fc::within(t4[0][e], p.M)) {
          fc::load_global<2>(&t5[0][j][e * 2], q_at + (t3[0][e]) * p.q_stride_1 + (t4[0][e]) * p.q_stride_2 + (d_lane + j * 8));
        }
        else {
          (&t5[0][j][e * 2])[0] = 0;
          (&t5[0][j][e * 2])[1] = 0;
        }
    // t5 = cast(t5)
    #pragma unroll
    for (int j = 0; j < 16; ++j)
      #pragma unroll
      for (int e = 0; e < 4; ++e)
        t5[0][j][e] = t5[0][j][e];
    fc::u32 t5_operand[1][8][4];
    // t5_operand: t5 as a left operand
    #pragma unroll
    for (int i = 0; i < 1; ++i)
      #pragma unroll
      for (int k = 0; k < 8; ++k)
        #pragma unroll
        for (int r = 0; r < 4; ++r)
          t5_operand[i][k][r] =
              fc::pack<fc::bf16>(t5[i][2 * k + r / 2][r % 2 * 2], t5[i][2 * k + r / 2][r % 2 * 2 + 1]);
    const int t6 = fc::floor_div((fc::min((rows_begin + 64), (p.M * 3)) - 1), 3);
    const int t7 = (fc::floor_div(rows_begin, 3) - p.M) + (p.N * 16);
    const int t8 = fc::min(((((t6 - p.M) + (p.N * 16)) >> 6) + 1), (((p.N * 16) + 63) / 64));
    const int cols_end_2 = fc::max(0, t8);
    const int cols_full_end = fc::max(0, fc::min((((t7 + -63) >> 6) + 1), cols_end_2));

    float t9[1][2] = {};
    // cols tiles of 64
    for (int cols_tile_2 = cols_end_2 - 1; cols_tile_2 >= 0; --cols_tile_2) {
      const int cols_begin_2 = cols_tile_2 * 64;
      fc::wait_phase(k_full + k_slot_2 * 8, k_phase_2);
      const fc::u32 k_2 = shared + k_slot_2 * 16384;
      const int cols_left = (p.N * 16) - (cols_tile_2 * 64);
      if (cols_left < 64) {
        const float zeros[4] = {};
        for (int at = fc::max(0, cols_left) * 128 + thread * 16; at < 8192; at += 2048) {
          #pragma unroll
          for (int panel = 0; panel < 2; ++panel)
            fc::store_shared<4>(k_2 + panel * 8192 + at, zeros);
        }
        fc::fence_async();
        fc::meet(9, 128);
      }
      // product = dot(t5_operand, transpose(k_2)), issued
      float t10[1][8][4];
      fc::pin(t10);
      fc::fence_products();
      {
        const fc::u64 b = fc::matrix(k_2, 64, 0);
        fc::multiply_warpgroup<64, fc::bf16, 8, fc::along<64, 8192>>(t10[0], t5_operand[0], b, false);
      }
      fc::commit_products();
      fc::wait_products<0>();
      fc::pin(t10);
      fc::arrive_if(thread % 128 == 0, k_empty + k_slot_2 * 8);
      if (++k_slot_2 == 2) {
        k_slot_2 = 0;
        k_phase_2 ^= 1;
      }
      const bool masked = cols_tile_2 >= cols_full_end;
      if (masked) {
        int t11[1][2];
        // t11 = add(t4, ((p.N * 16) - p.M))
        #pragma unroll
        for (int e = 0; e < 2; ++e)
          t11[0][e] = t4[0][e] + ((p.N * 16) - p.M);
        // t10 = where(le(thread_offset, sub(max(t11, -1), thread_begin)), t10, 0)
        #pragma unroll
        for (int j = 0; j < 8; ++j) {
          #pragma unroll
          for (int e = 0; e < 4; ++e) {
            const int t12 = fc::max(t11[0][(e / 2)], -1);
            const int t13 = t12 - (cols_begin_2 + cols_lane);
            const bool t14 = (j * 8 + (e % 2)) <= t13;
            t10[0][j][e] = t14 ? t10[0][j][e] : 0.f;
          }
        }
      }
      // reduce_sum = reduce_sum(t10, cols), each lane its partial
      float t15[1][2] = {};
      #pragma unroll
      for (int j = 0; j < 8; ++j)
        #pragma unroll
        for (int e = 0; e < 4; ++e)
          t15[0][(e / 2)] = t15[0][(e / 2)] + t10[0][j][e];
      // t9 = add(t9, t15)
      #pragma unroll
      for (int e = 0; e < 2; ++e)
        t9[0][e] = t9[0][e] + t15[0][e];
    }
    // t9: partials of the lanes, combined
    #pragma unroll
    for (int e = 0; e < 2; ++e) {
      t9[0][e] = t9[0][e] + fc::shuffle_xor(t9[0][e], 1);
      t9[0][e] = t9[0][e] + fc::shuffle_xor(t9[0][e], 2);
    }
    float* const s_at = p.s + batch * p.s_stride_0;
    // store s = t9
    if ((lane & 3) == 0) {
      #pragma unroll
      for (int e = 0; e < 2; ++e)
        if (rows_begin + rows_lane + e * 8 < (p.M * 3) && fc::within(t3[0][e], 3) && fc::within(t4[0][e], p.M)) {
          fc::store_global<1>(s_at + (t3[0][e]) * p.s_stride_1 + (t4[0][e]), &t9[0][e]);
        }
    }
  }
}
