struct Parameters {
  fc::tensor_map b_tiles;  // of 128 x 64
  fc::tensor_map a_tiles;  // of 128 x 64
  fc::tensor_map c_tiles;  // of 64 x 64
  int M;
  int N;
  int K;
};

extern "C" __global__ void __launch_bounds__(384, 1)
matrix_product(const __grid_constant__ Parameters p) {
  const int thread = fc::thread_index(), lane = thread % 32, warp = fc::uniform(thread / 32);
  const fc::u32 shared = fc::shared_base();
  const int m_lane = warp % 8 * 16 + lane / 4;
  const int n_lane = lane % 4 * 2;
  // where a ring's slots say that they are full, and that they are empty
  const fc::u32 b_full = shared + 131072, b_empty = shared + 131096;
  const fc::u32 a_full = shared + 131120, a_empty = shared + 131144;
  if (thread == 0) {
    fc::prefetch_map(p.b_tiles);
    fc::prefetch_map(p.a_tiles);
    fc::prefetch_map(p.c_tiles);
    for (int slot = 0; slot < 3; ++slot) {
      fc::init_mbarrier(b_full + slot * 8, 1);
      fc::init_mbarrier(b_empty + slot * 8, 2);
    }
    for (int slot = 0; slot < 3; ++slot) {
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
      int b_slot = 0, b_phase = 0;
      int a_slot = 0, a_phase = 0;
      const int block_count = ((p.M + 127) / 128) * ((p.N + 127) / 128);
      // tiles of all blocks, every other wave of blocks backwards
      int in_wave = fc::grid_x() - 1 - fc::block_x();
      for (int first = 0; first < block_count; first += fc::grid_x()) {
        in_wave = fc::grid_x() - 1 - in_wave;
        if (first + in_wave >= block_count) break;
        const fc::u32 divisor = ((p.M + 127) / 128);
        const int m_tile = (first + in_wave) % divisor;
        const int n_tile = (first + in_wave) / divisor;
        const int m_begin = m_tile * 128;
        const int n_begin = n_tile * 128;

        // k tiles of 64
        #pragma unroll 1
        for (int k_tile = ((p.K + 63) / 64) - 1; k_tile >= 0; --k_tile) {
          const int k_begin = k_tile * 64;
          fc::wait_phase(b_empty + b_slot * 8, b_phase ^ 1);
          // b <- b
          fc::arrive_expect_tx(b_full + b_slot * 8, 16384);
          fc::load_box(shared + b_slot * 16384, p.b_tiles, b_full + b_slot * 8, k_begin, n_begin);
          if (++b_slot == 3) {
            b_slot = 0;
            b_phase ^= 1;
          }
          fc::wait_phase(a_empty + a_slot * 8, a_phase ^ 1);
          // a <- a
          fc::arrive_expect_tx(a_full + a_slot * 8, 16384);
          fc::load_box(shared + 49152 + a_slot * 16384, p.a_tiles, a_full + a_slot * 8, k_begin, m_begin);
          if (++a_slot == 3) {
            a_slot = 0;
            a_phase ^= 1;
          }
        }
      }
    }
  }
  else {
    fc::grow_registers<240>();
    int b_slot_2 = 0, b_phase_2 = 0;
    int a_slot_2 = 0, a_phase_2 = 0;
    const int block_count_2 = ((p.M + 127) / 128) * ((p.N + 127) / 128);
    // tiles of all blocks, every other wave of blocks backwards
    int in_wave_2 = fc::grid_x() - 1 - fc::block_x();
    for (int first_2 = 0; first_2 < block_count_2; first_2 += fc::grid_x()) {
      in_wave_2 = fc::grid_x() - 1 - in_wave_2;
      if (first_2 + in_wave_2 >= block_count_2) break;
      const fc::u32 divisor_2 = ((p.M + 127) / 128);
      const int m_tile_2 = (first_2 + in_wave_2) % divisor_2;
      const int n_tile_2 = (first_2 + in_wave_2) / divisor_2;
      const int m_begin_2 = m_tile_2 * 128;
      const int n_begin_2 = n_tile_2 * 128;

      float sum[1][16][4] = {};
      // k tiles of 64
      for (int k_tile_2 = ((p.K + 63) / 64) - 1; k_tile_2 >= 0; --k_tile_2) {
        fc::wait_phase(b_full + b_slot_2 * 8, b_phase_2);
        const fc::u32 b_2 = shared + b_slot_2 * 16384;
        fc::wait_phase(a_full + a_slot_2 * 8, a_phase_2);
        const fc::u32 a_2 = shared + 49152 + a_slot_2 * 16384;
        // product = sum + dot(a_2, transpose(b_2)), issued
        fc::pin(sum);
        fc::fence_products();
        {
          const fc::u64 a = fc::matrix(a_2 + warp / 4 * 8192, 64, 0);
          const fc::u64 b = fc::matrix(b_2, 64, 0);
          fc::multiply_warpgroup<128, fc::bf16, 4, fc::along<64, 16384>, fc::along<64, 16384>>(sum[0], a, b, true);
        }
        fc::commit_products();
        fc::wait_products<0>();
        fc::pin(sum);
        fc::arrive_if(thread % 128 == 0, a_empty + a_slot_2 * 8);
        if (++a_slot_2 == 3) {
          a_slot_2 = 0;
          a_phase_2 ^= 1;
        }
        fc::arrive_if(thread % 128 == 0, b_empty + b_slot_2 * 8);
        if (++b_slot_2 == 3) {
          b_slot_2 = 0;
          b_phase_2 ^= 1;
        }
      }
      // sum = cast(sum)
      #pragma unroll
      for (int j = 0; j < 16; ++j)
        #pragma unroll
        for (int e = 0; e < 4; ++e)
          sum[0][j][e] = sum[0][j][e];
      if (thread % 128 == 0) fc::wait_stores_read<0>();
      fc::meet(1 + warp / 4, 128);
      // sum in shared memory
      const fc::u32 c_staged = shared + 98304;
      #pragma unroll
      for (int i = 0; i < 1; ++i)
        #pragma unroll
        for (int j = 0; j < 16; ++j)
          #pragma unroll
          for (int r = 0; r < 2; ++r)
            fc::store_shared(c_staged + fc::chunk_offset<128, 128>(m_lane + i * 16 + r * 8, j * 8) + lane % 4 * 4,
                             fc::pack<fc::bf16>(sum[i][j][2 * r], sum[i][j][2 * r + 1]));
      fc::fence_async();
      fc::meet(1 + warp / 4, 128);
      // store c
      if (thread % 128 == 0) {
        fc::store_box(p.c_tiles, c_staged + warp / 4 * 8192, n_begin_2, m_begin_2 + warp / 4 * 64);
        fc::store_box(p.c_tiles, c_staged + 16384 + warp / 4 * 8192, n_begin_2 + 64, m_begin_2 + warp / 4 * 64);
        fc::commit_stores();
      }
    }
    if (thread % 128 == 0) fc::wait_stores_read<0>();
  }
}
