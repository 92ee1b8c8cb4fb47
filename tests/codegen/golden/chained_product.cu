struct Parameters {
  const fc::bf16* a;
  const fc::bf16* b;
  const fc::bf16* c;
  float* y;
  fc::i64 a_stride_0;  // elements
  fc::i64 b_stride_0;  // elements
  fc::i64 c_stride_0;  // elements
  fc::i64 y_stride_0;  // elements
  int M;
  int N;
};

extern "C" __global__ void __launch_bounds__(128, 1)
chained_product(const __grid_constant__ Parameters p) {
  const int m_tile = fc::block_x();
  const int m_begin = m_tile * 64;
  const int thread = fc::thread_index(), lane = thread % 32, warp = thread / 32;
  const fc::u32 shared = fc::shared_base();
  const int m_lane = warp % 4 * 16 + lane / 4;
  const int p_lane = lane % 4 * 2;
  const int n_lane = warp % 4 * 16 + lane / 4;
  const int t0 = ((p.N + 63) / 64) - 1;
  const bool t1 = t0 >= 0;
  const fc::bf16* const b_at = p.b;
  // b <- b, asynchronously
  if (t1) {
    const fc::bf16* const b_source = b_at + (t0 * 64) * p.b_stride_0;
    const int b_rows = p.N - (t0 * 64);
    {
      const int row = thread / 4, column = thread % 4 * 8;
      const fc::bf16* source = b_source + row * static_cast<int>(p.b_stride_0) + column;
      const int rows_left = b_rows - row;
      #pragma unroll
      for (int i = 0; i < 2; ++i) {
        fc::copy_async(shared + 0 * 4096 + fc::panel_chunk_offset<64, 32>(row, column, 0) + i * 2048, source, i * 32 < rows_left ? 16 : 0);
        source += 32 * static_cast<int>(p.b_stride_0);
      }
    }
  }
  const fc::bf16* const c_at = p.c;
  // c <- c, asynchronously
  if (t1) {
    const fc::bf16* const c_source = c_at;
    {
      const int row = thread / 8, column = thread % 8 * 8;
      const fc::bf16* source = c_source + row * static_cast<int>(p.c_stride_0) + column;
      #pragma unroll
      for (int i = 0; i < 2; ++i) {
        fc::copy_async(shared + 8192 + 0 * 4096 + fc::panel_chunk_offset<32, 64>(row, column, 0) + i * 2048, source, 16);
        source += 16 * static_cast<int>(p.c_stride_0);
      }
    }
  }
  const fc::bf16* const a_at = p.a;
  // a <- a, asynchronously
  if (t1) {
    const fc::bf16* const a_source = a_at + (m_begin) * p.a_stride_0 + t0 * 64;
    const int a_rows = p.M - (m_begin);
    const int a_columns = p.N - (t0 * 64);
    {
      const int row = thread / 8, column = thread % 8 * 8;
      const fc::bf16* source = a_source + row * static_cast<int>(p.a_stride_0) + column;
      const int rows_left = a_rows - row;
      #pragma unroll
      for (int i = 0; i < 4; ++i) {
        fc::copy_async(shared + 16384 + 0 * 8192 + fc::panel_chunk_offset<64, 64>(row, column, 0) + i * 2048, source, i * 16 < rows_left ? (fc::max(0, fc::min(8, a_columns - (column))) * 2) : 0);
        source += 16 * static_cast<int>(p.a_stride_0);
      }
    }
  }
  fc::commit_copies();

  float t2[1][8][4] = {};
  int slot = 0;
  // n tiles of 64
  for (int n_tile = ((p.N + 63) / 64) - 1; n_tile >= 0; --n_tile) {
    fc::wait_copies<0>();
    const int next_tile = n_tile - 1;
    const int freed_slot = 1 - slot;
    const bool t3 = next_tile >= 0;
    fc::barrier();
    // b <- b, asynchronously
    if (t3) {
      const fc::bf16* const b_source_2 = b_at + (next_tile * 64) * p.b_stride_0;
      const int b_rows_2 = p.N - (next_tile * 64);
      {
        const int row = thread / 4, column = thread % 4 * 8;
        const fc::bf16* source = b_source_2 + row * static_cast<int>(p.b_stride_0) + column;
        const int rows_left = b_rows_2 - row;
        #pragma unroll
        for (int i = 0; i < 2; ++i) {
          fc::copy_async(shared + freed_slot * 4096 + fc::panel_chunk_offset<64, 32>(row, column, 0) + i * 2048, source, i * 32 < rows_left ? 16 : 0);
          source += 32 * static_cast<int>(p.b_stride_0);
        }
      }
    }
    // c <- c, asynchronously
    if (t3) {
      const fc::bf16* const c_source_2 = c_at;
      {
        const int row = thread / 8, column = thread % 8 * 8;
        const fc::bf16* source = c_source_2 + row * static_cast<int>(p.c_stride_0) + column;
        #pragma unroll
        for (int i = 0; i < 2; ++i) {
          fc::copy_async(shared + 8192 + freed_slot * 4096 + fc::panel_chunk_offset<32, 64>(row, column, 0) + i * 2048, source, 16);
          source += 16 * static_cast<int>(p.c_stride_0);
        }
      }
    }
    // a <- a, asynchronously
    if (t3) {
      const fc::bf16* const a_source_2 = a_at + (m_begin) * p.a_stride_0 + next_tile * 64;
      const int a_rows_2 = p.M - (m_begin);
      const int a_columns_2 = p.N - (next_tile * 64);
      {
        const int row = thread / 8, column = thread % 8 * 8;
        const fc::bf16* source = a_source_2 + row * static_cast<int>(p.a_stride_0) + column;
        const int rows_left = a_rows_2 - row;
        #pragma unroll
        for (int i = 0; i < 4; ++i) {
          fc::copy_async(shared + 16384 + freed_slot * 8192 + fc::panel_chunk_offset<64, 64>(row, column, 0) + i * 2048, source, i * 16 < rows_left ? (fc::max(0, fc::min(8, a_columns_2 - (column))) * 2) : 0);
          source += 16 * static_cast<int>(p.a_stride_0);
        }
      }
    }
    fc::commit_copies();
    const fc::u32 read_slot = shared + slot * 4096;
    const fc::u32 read_slot_2 = shared + 8192 + slot * 4096;
    // product = dot(read_slot, read_slot_2)
    float t4[1][8][4] = {};
    #pragma unroll
    for (int k = 0; k < 2; ++k) {
      fc::u32 a[1][4];
      fc::load_matrices(a[0], fc::matrix_address<64, 32>(read_slot, warp % 4 * 16 + lane % 16, lane / 16 * 8, 0, k * 16));
      #pragma unroll
      for (int j = 0; j < 4; ++j) {
        fc::u32 b[4];
        fc::load_matrices_transposed(b, fc::matrix_address<32, 64>(read_slot_2, lane % 16, lane / 16 * 8, k * 16, j * 16));
        fc::multiply<fc::bf16>(t4[0][2 * j], a[0], b[0], b[1]);
        fc::multiply<fc::bf16>(t4[0][2 * j + 1], a[0], b[2], b[3]);
      }
    }
    float inner[1][8][4];
    // inner = cast(mul(t4, 0.125))
    #pragma unroll
    for (int j = 0; j < 8; ++j) {
      #pragma unroll
      for (int e = 0; e < 4; ++e) {
        const float t5 = t4[0][j][e] * 0.125f;
        inner[0][j][e] = t5;
      }
    }
    // inner in shared memory
    const fc::u32 inner_shared = shared + 32768;
    #pragma unroll
    for (int i = 0; i < 1; ++i)
      #pragma unroll
      for (int j = 0; j < 8; ++j)
        #pragma unroll
        for (int r = 0; r < 2; ++r)
          fc::store_shared(inner_shared + fc::chunk_offset<64, 64>(n_lane + i * 16 + r * 8, j * 8) + lane % 4 * 4,
                           fc::pack<fc::bf16>(inner[i][j][2 * r], inner[i][j][2 * r + 1]));
    const fc::u32 read_slot_3 = shared + 16384 + slot * 8192;
    fc::barrier();
    // product = t2 + dot(read_slot_3, inner_shared)
    #pragma unroll
    for (int k = 0; k < 4; ++k) {
      fc::u32 a[1][4];
      fc::load_matrices(a[0], fc::matrix_address<64, 64>(read_slot_3, warp % 4 * 16 + lane % 16, lane / 16 * 8, 0, k * 16));
      #pragma unroll
      for (int j = 0; j < 4; ++j) {
        fc::u32 b[4];
        fc::load_matrices_transposed(b, fc::matrix_address<64, 64>(inner_shared, lane % 16, lane / 16 * 8, k * 16, j * 16));
        fc::multiply<fc::bf16>(t2[0][2 * j], a[0], b[0], b[1]);
        fc::multiply<fc::bf16>(t2[0][2 * j + 1], a[0], b[2], b[3]);
      }
    }
    const int next_slot = 1 - slot;
    slot = next_slot;
  }
  fc::wait_copies<0>();
  float* const y_at = p.y;
  // store y = t2
  #pragma unroll
  for (int j = 0; j < 8; ++j)
    #pragma unroll
    for (int e = 0; e < 2; ++e)
      if (m_begin + m_lane + e * 8 < p.M) {
        fc::store_global<2>(y_at + (m_begin + m_lane + e * 8) * p.y_stride_0 + (p_lane + j * 8), &t2[0][j][e * 2]);
      }
}
