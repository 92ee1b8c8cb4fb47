struct Parameters {
  fc::tensor_map a_tiles;  // of 64 x 64
  fc::tensor_map b_tiles;  // of 64 x 64
  fc::tensor_map b_tiles_64x16;  // of 64 x 16
  float* c;
  fc::i64 c_stride_0;  // elements
  int M;
  int N;
  int K;
};

extern "C" __global__ void __launch_bounds__(384, 1)
transposed_product(const __grid_constant__ Parameters p) {
  const int m_tile = fc::block_x();
  const int m_begin = m_tile * 128;
  const int n_tile = fc::block_y();
  const int n_begin = n_tile * 80;
  const int thread = fc::thread_index(), lane = thread % 32, warp = fc::uniform(thread / 32);
  const fc::u32 shared = fc::shared_base();
  const int m_lane = warp % 8 * 16 + lane / 4;
  const int n_lane = lane % 4 * 2;
  // where a ring's slots say that they are full, and that they are empty
  const fc::u32 b_full = shared + 53280, b_empty = shared + 53296;
  const fc::u32 a_full = shared + 53248, a_empty = shared + 53264;
  if (thread == 0) {
    fc::prefetch_map(p.a_tiles);
    fc::prefetch_map(p.b_tiles);
    fc::prefetch_map(p.b_tiles_64x16);
    for (int slot = 0; slot < 2; ++slot) {
      fc::init_mbarrier(b_full + slot * 8, 1);
      fc::init_mbarrier(b_empty + slot * 8, 2);
    }
    for (int slot = 0; slot < 2; ++slot) {
      fc::init_mbarrier(a_full + slot * 8, 1);
      fc::init_mbarrier(a_empty + slot * 8, 2);
    }
    fc::publish_mbarriers();
  }
  fc::barrier();
  fc::wait_for_kernels();
  fc::launch_dependents();

  if (warp >= 8) {
    fc::shrink_registers<24>();
    if (thread == 256) {
      int a_slot = 0, a_phase = 0;
      int b_slot = 0, b_phase = 0;

      // k tiles of 64
      #pragma unroll 1
      for (int k_tile = ((p.K + 63) / 64) - 1; k_tile >= 0; --k_tile) {
        const int k_begin = k_tile * 64;
        fc::wait_phase(a_empty + a_slot * 8, a_phase ^ 1);
        // a <- a
        fc::arrive_expect_tx(a_full + a_slot * 8, 16384);
        fc::load_box(shared + 20480 + a_slot * 16384, p.a_tiles, a_full + a_slot * 8, m_begin, k_begin);
        fc::load_box(shared + 20480 + a_slot * 16384 + 8192, p.a_tiles, a_full + a_slot * 8, m_begin + 64, k_begin);
        if (++a_slot == 2) {
          a_slot = 0;
          a_phase ^= 1;
        }
        fc::wait_phase(b_empty + b_slot * 8, b_phase ^ 1);
        // b <- b
        fc::arrive_expect_tx(b_full + b_slot * 8, 10240);
        fc::load_box(shared + b_slot * 10240, p.b_tiles, b_full + b_slot * 8, n_begin, k_begin);
        fc::load_box(shared + b_slot * 10240 + 8192, p.b_tiles_64x16, b_full + b_slot * 8, n_begin + 64, k_begin);
        if (++b_slot == 2) {
          b_slot = 0;
          b_phase ^= 1;
        }
      }
    }
  }
  else {
    fc::grow_registers<240>();
    int a_slot_2 = 0, a_phase_2 = 0;
    int b_slot_2 = 0, b_phase_2 = 0;

    float t0[1][10][4] = {};
    // k tiles of 64
    for (int k_tile_2 = ((p.K + 63) / 64) - 1; k_tile_2 >= 0; --k_tile_2) {
      fc::wait_phase(a_full + a_slot_2 * 8, a_phase_2);
      const fc::u32 a_2 = shared + 20480 + a_slot_2 * 16384;
      fc::wait_phase(b_full + b_slot_2 * 8, b_phase_2);
      const fc::u32 b_2 = shared + b_slot_2 * 10240;
      // product = t0 + dot(transpose(a_2), b_2), issued
      fc::pin(t0);
      fc::fence_products();
      {
        const fc::u64 a = fc::matrix(a_2 + warp / 4 * 8192, 64, 0);
        const fc::u64 b = fc::matrix(b_2, 64, 0);
        fc::multiply_warpgroup<64, fc::f16, 4, fc::across<64>, fc::across<64>>(t0[0], a, b, true);
      }
      {
        const fc::u64 a = fc::matrix(a_2 + warp / 4 * 8192, 64, 0);
        const fc::u64 b = fc::matrix(b_2 + 8192, 16, 0);
        fc::multiply_warpgroup<16, fc::f16, 4, fc::across<64>, fc::across<16>>(t0[0] + 8, a, b, true);
      }
      fc::commit_products();
      fc::wait_products<0>();
      fc::pin(t0);
      fc::arrive_if(thread % 128 == 0, b_empty + b_slot_2 * 8);
      if (++b_slot_2 == 2) {
        b_slot_2 = 0;
        b_phase_2 ^= 1;
      }
      fc::arrive_if(thread % 128 == 0, a_empty + a_slot_2 * 8);
      if (++a_slot_2 == 2) {
        a_slot_2 = 0;
        a_phase_2 ^= 1;
      }
    }
    float* const c_at = p.c;
    // store c = t0
    #pragma unroll
    for (int j = 0; j < 10; ++j)
      #pragma unroll
      for (int e = 0; e < 4; ++e)
        if (m_begin + m_lane + (e / 2) * 8 < p.M && n_begin + n_lane + j * 8 + (e % 2) < p.N) {
          fc::store_global<1>(c_at + (m_begin + m_lane + (e / 2) * 8) * p.c_stride_0 + (n_begin + n_lane + j * 8 + (e % 2)), &t0[0][j][e]);
        }
  }
}
