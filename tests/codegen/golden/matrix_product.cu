struct Parameters {
  const fc::bf16* a;
  const fc::bf16* b;
  fc::bf16* c;
  fc::i64 a_stride_0;  // elements
  fc::i64 b_stride_0;  // elements
  fc::i64 c_stride_0;  // elements
  int M;
  int N;
  int K;
};

extern "C" __global__ void __launch_bounds__(128, 1)
matrix_product(const __grid_constant__ Parameters p) {
  const int m_tile = fc::block_x();
  const int m_begin = m_tile * 128;
  const int n_tile = fc::block_y();
  const int n_begin = n_tile * 128;
  const int thread = fc::thread_index(), lane = thread % 32, warp = thread / 32;
  const fc::u32 shared = fc::shared_base();
  const int m_lane = warp / 2 % 2 * 64 + lane / 4;
  const int n_lane = warp % 2 * 64 + lane % 4 * 2;
  const int t0 = ((p.K + 31) / 32) - 1;
  const bool t1 = t0 >= 0;
  const fc::bf16* const b_at = p.b;
  // b <- b, asynchronously
  if (t1) {
    const fc::bf16* const b_source = b_at + (n_begin) * p.b_stride_0 + t0 * 32;
    const int b_rows = p.N - (n_begin);
    const int b_columns = p.K - (t0 * 32);
    {
      const int row = thread / 4, column = thread % 4 * 8;
      const fc::bf16* source = b_source + row * static_cast<int>(p.b_stride_0) + column;
      const int rows_left = b_rows - row;
      #pragma unroll
      for (int i = 0; i < 4; ++i) {
        fc::copy_async(shared + 0 * 8192 + fc::panel_chunk_offset<128, 32>(row, column, 0) + i * 2048, source, i * 32 < rows_left ? (fc::max(0, fc::min(8, b_columns - (column))) * 2) : 0);
        source += 32 * static_cast<int>(p.b_stride_0);
      }
    }
  }
  const fc::bf16* const a_at = p.a;
  // a <- a, asynchronously
  if (t1) {
    const fc::bf16* const a_source = a_at + (m_begin) * p.a_stride_0 + t0 * 32;
    const int a_rows = p.M - (m_begin);
    const int a_columns = p.K - (t0 * 32);
    {
      const int row = thread / 4, column = thread % 4 * 8;
      const fc::bf16* source = a_source + row * static_cast<int>(p.a_stride_0) + column;
      const int rows_left = a_rows - row;
      #pragma unroll
      for (int i = 0; i < 4; ++i) {
        fc::copy_async(shared + 16384 + 0 * 8192 + fc::panel_chunk_offset<128, 32>(row, column, 0) + i * 2048, source, i * 32 < rows_left ? (fc::max(0, fc::min(8, a_columns - (column))) * 2) : 0);
        source += 32 * static_cast<int>(p.a_stride_0);
      }
    }
  }
  fc::commit_copies();

  float sum[4][8][4] = {};
  int slot = 0;
  // k tiles of 32
  for (int k_tile = ((p.K + 31) / 32) - 1; k_tile >= 0; --k_tile) {
    fc::wait_copies<0>();
    const int next_tile = k_tile - 1;
    const int freed_slot = 1 - slot;
    const bool t2 = next_tile >= 0;
    fc::barrier();
    // b <- b, asynchronously
    if (t2) {
      const fc::bf16* const b_source_2 = b_at + (n_begin) * p.b_stride_0 + next_tile * 32;
      const int b_rows_2 = p.N - (n_begin);
      const int b_columns_2 = p.K - (next_tile * 32);
      {
        const int row = thread / 4, column = thread % 4 * 8;
        const fc::bf16* source = b_source_2 + row * static_cast<int>(p.b_stride_0) + column;
        const int rows_left = b_rows_2 - row;
        #pragma unroll
        for (int i = 0; i < 4; ++i) {
          fc::copy_async(shared + freed_slot * 8192 + fc::panel_chunk_offset<128, 32>(row, column, 0) + i * 2048, source, i * 32 < rows_left ? (fc::max(0, fc::min(8, b_columns_2 - (column))) * 2) : 0);
          source += 32 * static_cast<int>(p.b_stride_0);
        }
      }
    }
    // a <- a, asynchronously
    if (t2) {
      const fc::bf16* const a_source_2 = a_at + (m_begin) * p.a_stride_0 + next_tile * 32;
      const int a_rows_2 = p.M - (m_begin);
      const int a_columns_2 = p.K - (next_tile * 32);
      {
        const int row = thread / 4, column = thread % 4 * 8;
        const fc::bf16* source = a_source_2 + row * static_cast<int>(p.a_stride_0) + column;
        const int rows_left = a_rows_2 - row;
        #pragma unroll
        for (int i = 0; i < 4; ++i) {
          fc::copy_async(shared + 16384 + freed_slot * 8192 + fc::panel_chunk_offset<128, 32>(row, column, 0) + i * 2048, source, i * 32 < rows_left ? (fc::max(0, fc::min(8, a_columns_2 - (column))) * 2) : 0);
          source += 32 * static_cast<int>(p.a_stride_0);
        }
      }
    }
    fc::commit_copies();
    const fc::u32 read_slot = shared + slot * 8192;
    const fc::u32 read_slot_2 = shared + 16384 + slot * 8192;
    // product = sum + dot(read_slot_2, transpose(read_slot))
    #pragma unroll
    for (int k = 0; k < 2; ++k) {
      fc::u32 a[4][4];
      #pragma unroll
      for (int i = 0; i < 4; ++i)
        fc::load_matrices(a[i], fc::matrix_address<128, 32>(read_slot_2, warp / 2 % 2 * 64 + lane % 16, lane / 16 * 8, i * 16, k * 16));
      #pragma unroll
      for (int j = 0; j < 4; ++j) {
        fc::u32 b[4];
        fc::load_matrices(b, fc::matrix_address<128, 32>(read_slot, warp % 2 * 64 + lane % 8 + lane / 16 * 8, lane / 8 % 2 * 8, j * 16, k * 16));
        #pragma unroll
        for (int i = 0; i < 4; ++i) {
          fc::multiply<fc::bf16>(sum[i][2 * j], a[i], b[0], b[1]);
          fc::multiply<fc::bf16>(sum[i][2 * j + 1], a[i], b[2], b[3]);
        }
      }
    }
    const int next_slot = 1 - slot;
    slot = next_slot;
  }
  fc::wait_copies<0>();
  // sum = cast(sum)
  #pragma unroll
  for (int i = 0; i < 4; ++i)
    #pragma unroll
    for (int j = 0; j < 8; ++j)
      #pragma unroll
      for (int e = 0; e < 4; ++e)
        sum[i][j][e] = sum[i][j][e];
  fc::barrier();
  // sum in shared memory
  const fc::u32 c_staged = shared;
  #pragma unroll
  for (int i = 0; i < 4; ++i)
    #pragma unroll
    for (int j = 0; j < 8; ++j)
      #pragma unroll
      for (int r = 0; r < 2; ++r)
        fc::store_shared(c_staged + fc::chunk_offset<128, 128, true>(m_lane + i * 16 + r * 8, warp % 2 * 64 + j * 8) + lane % 4 * 4,
                         fc::pack<fc::bf16>(sum[i][j][2 * r], sum[i][j][2 * r + 1]));
  fc::barrier();
  fc::bf16* const c_at = p.c;
  // store c
  fc::bf16* const c_target = c_at + m_begin * p.c_stride_0 + n_begin;
  {
    const int row = thread / 8, column = thread % 8 * 8;
    fc::bf16* out_pointer = c_target + row * static_cast<int>(p.c_stride_0) + column;
    const int rows_left = p.M - m_begin - row;
    #pragma unroll
    for (int i = 0; i < 8; ++i) {
      #pragma unroll
      for (int panel = 0; panel < 2; ++panel) {
        if (i * 16 < rows_left) {
          fc::store_partial_chunk(out_pointer + panel * 64, fc::load_shared_chunk(c_staged + fc::panel_chunk_offset<128, 128>(row, column, panel * 64) + i * 2048), p.N - n_begin - (column + panel * 64));
        }
      }
      out_pointer += 16 * static_cast<int>(p.c_stride_0);
    }
  }
}
