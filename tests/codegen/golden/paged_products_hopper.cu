struct Parameters {
  fc::tensor_map k_tiles;  // of 32 x 64
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
  const fc::u32 k_full = shared + 8192, k_empty = shared + 8208;
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
      const int t1 = fc::min(((((t0 - p.M) + (p.N * 64)) >> 5) + 1), (((p.N * 64) + 31) / 32));
      const int cols_end = fc::max(0, t1);

      // cols tiles of 32
      #pragma unroll 1
      for (int cols_tile = cols_end - 1; cols_tile >= 0; --cols_tile) {
        const int cols_begin = cols_tile * 32;
        // k <- k
        const int position = fc::gather(p.pages, batch * p.pages_stride_0 + (cols_begin >> 6) * p.pages_stride_1, fc::within(batch, p.B) && fc::within((cols_begin >> 6), p.N));
        const int position_2 = cols_begin & 63;
        fc::wait_phase(k_empty + k_slot * 8, k_phase ^ 1);
        fc::arrive_expect_tx(k_full + k_slot * 8, 4096);
        fc::load_box(shared + k_slot * 4096, p.k_tiles, k_full + k_slot * 8, 0, position_2, position);
        if (++k_slot == 2) {
          k_slot = 0;
          k_phase ^= 1;
        }
      }
    }
  }
  else {
    int k_slot_2 = 0, k_phase_2 = 0;
    int t2[1][2];
    // t2 = mod(index(rows), 3)
    int t3[1][2];
    // t3 = div(index(rows), 3)
    #pragma unroll
    for (int e = 0; e < 2; ++e) {
      t2[0][e] = fc::floor_mod((rows_begin + rows_lane + e * 8), 3);
      t3[0][e] = fc::floor_div((rows_begin + rows_lane + e * 8), 3);
    }
    // load = load q
    float t4[1][8][4];
    const fc::bf16* const q_at = p.q + batch * p.q_stride_0;
    #pragma unroll
    for (int j = 0; j < 8; ++j)
      #pragma unroll
      for (int e = 0; e < 2; ++e)
        if (rows_begin + rows_lane + e * 8 < (p.M * 3) && fc::within(t2[0][e], 3) && fc::within(t3[0][e], p.M)) {
          fc::load_global<2>(&t4[0][j][e * 2], q_at + (t2[0][e]) * p.q_stride_1 + (t3[0][e]) * p.q_stride_2 + (d_lane + j * 8));
        }
        else {
          (&t4[0][j][e * 2])[0] = 0;
          (&t4[0][j][e * 2])[1] = 0;
        }
    // t4 = cast(t4)
    #pragma unroll
    for (int j = 0; j < 8; ++j)
      #pragma unroll
      for (int e = 0; e < 4; ++e)
        t4[0][j][e] = t4[0][j][e];
    fc::u32 t4_operand[1][4][4];
    // t4_operand: t4 as a left operand
    #pragma unroll
    for (int i = 0; i < 1; ++i)
      #pragma unroll
      for (int k = 0; k < 4; ++k)
        #pragma unroll
        for (int r = 0; r < 4; ++r)
          t4_operand[i][k][r] =
              fc::pack<fc::bf16>(t4[i][2 * k + r / 2][r % 2 * 2], t4[i][2 * k + r / 2][r % 2 * 2 + 1]);
    const int t5 = fc::floor_div((fc::min((rows_begin + 64), (p.M * 3)) - 1), 3);
    const int t6 = (fc::floor_div(rows_begin, 3) - p.M) + (p.N * 64);
    const int t7 = fc::min(((((t5 - p.M) + (p.N * 64)) >> 5) + 1), (((p.N * 64) + 31) / 32));
    const int cols_end_2 = fc::max(0, t7);
    const int cols_full_end = fc::max(0, fc::min((((t6 + -31) >> 5) + 1), cols_end_2));

    float t8[1][2] = {};
    // cols tiles of 32
    for (int cols_tile_2 = cols_end_2 - 1; cols_tile_2 >= 0; --cols_tile_2) {
      const int cols_begin_2 = cols_tile_2 * 32;
      fc::wait_phase(k_full + k_slot_2 * 8, k_phase_2);
      const fc::u32 k_2 = shared + k_slot_2 * 4096;
      // product = dot(t4_operand, transpose(k_2)), issued
      float t9[1][4][4];
      fc::pin(t9);
      fc::fence_products();
      {
        const fc::u64 b = fc::matrix(k_2, 64, 0);
        fc::multiply_warpgroup<32, fc::bf16, 4, fc::along<64, 4096>>(t9[0], t4_operand[0], b, false);
      }
      fc::commit_products();
      fc::wait_products<0>();
      fc::pin(t9);
      fc::arrive_if(thread % 128 == 0, k_empty + k_slot_2 * 8);
      if (++k_slot_2 == 2) {
        k_slot_2 = 0;
        k_phase_2 ^= 1;
      }
      const bool masked = cols_tile_2 >= cols_full_end;
      if (masked) {
        int t10[1][2];
        // t10 = add(t3, ((p.N * 64) - p.M))
        #pragma unroll
        for (int e = 0; e < 2; ++e)
          t10[0][e] = t3[0][e] + ((p.N * 64) - p.M);
        // t9 = where(le(thread_offset, sub(max(t10, -1), thread_begin)), t9, 0)
        #pragma unroll
        for (int j = 0; j < 4; ++j) {
          #pragma unroll
          for (int e = 0; e < 4; ++e) {
            const int t11 = fc::max(t10[0][(e / 2)], -1);
            const int t12 = t11 - (cols_begin_2 + cols_lane);
            const bool t13 = (j * 8 + (e % 2)) <= t12;
            t9[0][j][e] = t13 ? t9[0][j][e] : 0.f;
          }
        }
      }
      // reduce_sum = reduce_sum(t9, cols), each lane its partial
      float t14[1][2] = {};
      #pragma unroll
      for (int j = 0; j < 4; ++j)
        #pragma unroll
        for (int e = 0; e < 4; ++e)
          t14[0][(e / 2)] = t14[0][(e / 2)] + t9[0][j][e];
      // t8 = add(t8, t14)
      #pragma unroll
      for (int e = 0; e < 2; ++e)
        t8[0][e] = t8[0][e] + t14[0][e];
    }
    // t8: partials of the lanes, combined
    #pragma unroll
    for (int e = 0; e < 2; ++e) {
      t8[0][e] = t8[0][e] + fc::shuffle_xor(t8[0][e], 1);
      t8[0][e] = t8[0][e] + fc::shuffle_xor(t8[0][e], 2);
    }
    float* const s_at = p.s + batch * p.s_stride_0;
    // store s = t8
    if ((lane & 3) == 0) {
      #pragma unroll
      for (int e = 0; e < 2; ++e)
        if (rows_begin + rows_lane + e * 8 < (p.M * 3) && fc::within(t2[0][e], 3) && fc::within(t3[0][e], p.M)) {
          fc::store_global<1>(s_at + (t2[0][e]) * p.s_stride_1 + (t3[0][e]), &t8[0][e]);
        }
    }
  }
}
