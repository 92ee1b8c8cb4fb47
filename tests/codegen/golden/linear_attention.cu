struct Parameters {
  const fc::bf16* q;
  const fc::bf16* k;
  const fc::bf16* v;
  fc::bf16* o;
  fc::i64 q_stride_0, q_stride_1;  // elements
  fc::i64 k_stride_0, k_stride_1;  // elements
  fc::i64 v_stride_0, v_stride_1;  // elements
  fc::i64 o_stride_0, o_stride_1;  // elements
  int L;
};

extern "C" __global__ void __launch_bounds__(128, 1)
linear_attention(const __grid_constant__ Parameters p) {
  const int dv_tile = fc::block_x();
  const int dv_begin = dv_tile * 32;
  const int head = fc::block_y();
  const int thread = fc::thread_index(), lane = thread % 32, warp = thread / 32;
  const fc::u32 shared = fc::shared_base();
  const int d_lane = warp % 4 * 16 + lane / 4;
  const int dv_lane = lane % 4 * 2;
  const int t_lane = warp % 4 * 16 + lane / 4;
  const int s_lane = lane % 4 * 2;
  const int t0 = 0 + 0;
  const bool t1 = t0 < ((p.L + 63) / 64);
  const fc::bf16* const q_at = p.q + head * p.q_stride_0;
  // q <- q, asynchronously
  if (t1) {
    const fc::bf16* const q_source = q_at + (t0 * 64) * p.q_stride_1;
    const int q_rows = p.L - (t0 * 64);
    {
      const int row = thread / 8, column = thread % 8 * 8;
      const fc::bf16* source = q_source + row * static_cast<int>(p.q_stride_1) + column;
      const int rows_left = q_rows - row;
      #pragma unroll
      for (int i = 0; i < 4; ++i) {
        fc::copy_async(shared + 0 * 8192 + fc::panel_chunk_offset<64, 64>(row, column, 0) + i * 2048, source, i * 16 < rows_left ? 16 : 0);
        source += 16 * static_cast<int>(p.q_stride_1);
      }
    }
  }
  const fc::bf16* const k_at = p.k + head * p.k_stride_0;
  // k <- k, asynchronously
  if (t1) {
    const fc::bf16* const k_source = k_at + (t0 * 64) * p.k_stride_1;
    const int k_rows = p.L - (t0 * 64);
    {
      const int row = thread / 8, column = thread % 8 * 8;
      const fc::bf16* source = k_source + row * static_cast<int>(p.k_stride_1) + column;
      const int rows_left = k_rows - row;
      #pragma unroll
      for (int i = 0; i < 4; ++i) {
        fc::copy_async(shared + 16384 + 0 * 8192 + fc::panel_chunk_offset<64, 64>(row, column, 0) + i * 2048, source, i * 16 < rows_left ? 16 : 0);
        source += 16 * static_cast<int>(p.k_stride_1);
      }
    }
  }
  const fc::bf16* const v_at = p.v + head * p.v_stride_0;
  // v <- v, asynchronously
  if (t1) {
    const fc::bf16* const v_source = v_at + (t0 * 64) * p.v_stride_1 + dv_begin;
    const int v_rows = p.L - (t0 * 64);
    {
      const int row = thread / 4, column = thread % 4 * 8;
      const fc::bf16* source = v_source + row * static_cast<int>(p.v_stride_1) + column;
      const int rows_left = v_rows - row;
      #pragma unroll
      for (int i = 0; i < 2; ++i) {
        fc::copy_async(shared + 32768 + 0 * 4096 + fc::panel_chunk_offset<64, 32>(row, column, 0) + i * 2048, source, i * 32 < rows_left ? 16 : 0);
        source += 32 * static_cast<int>(p.v_stride_1);
      }
    }
  }
  fc::commit_copies();
  fc::bf16* const o_at = p.o + head * p.o_stride_0;

  float t2[1][4][4] = {};
  int slot = 0;
  // t tiles of 64
  for (int t_tile = 0; t_tile < ((p.L + 63) / 64); ++t_tile) {
    const int t_begin = t_tile * 64;
    fc::wait_copies<0>();
    const int next_tile = t_tile + 1;
    const int freed_slot = 1 - slot;
    const bool t3 = next_tile < ((p.L + 63) / 64);
    fc::barrier();
    // q <- q, asynchronously
    if (t3) {
      const fc::bf16* const q_source_2 = q_at + (next_tile * 64) * p.q_stride_1;
      const int q_rows_2 = p.L - (next_tile * 64);
      {
        const int row = thread / 8, column = thread % 8 * 8;
        const fc::bf16* source = q_source_2 + row * static_cast<int>(p.q_stride_1) + column;
        const int rows_left = q_rows_2 - row;
        #pragma unroll
        for (int i = 0; i < 4; ++i) {
          fc::copy_async(shared + freed_slot * 8192 + fc::panel_chunk_offset<64, 64>(row, column, 0) + i * 2048, source, i * 16 < rows_left ? 16 : 0);
          source += 16 * static_cast<int>(p.q_stride_1);
        }
      }
    }
    // k <- k, asynchronously
    if (t3) {
      const fc::bf16* const k_source_2 = k_at + (next_tile * 64) * p.k_stride_1;
      const int k_rows_2 = p.L - (next_tile * 64);
      {
        const int row = thread / 8, column = thread % 8 * 8;
        const fc::bf16* source = k_source_2 + row * static_cast<int>(p.k_stride_1) + column;
        const int rows_left = k_rows_2 - row;
        #pragma unroll
        for (int i = 0; i < 4; ++i) {
          fc::copy_async(shared + 16384 + freed_slot * 8192 + fc::panel_chunk_offset<64, 64>(row, column, 0) + i * 2048, source, i * 16 < rows_left ? 16 : 0);
          source += 16 * static_cast<int>(p.k_stride_1);
        }
      }
    }
    // v <- v, asynchronously
    if (t3) {
      const fc::bf16* const v_source_2 = v_at + (next_tile * 64) * p.v_stride_1 + dv_begin;
      const int v_rows_2 = p.L - (next_tile * 64);
      {
        const int row = thread / 4, column = thread % 4 * 8;
        const fc::bf16* source = v_source_2 + row * static_cast<int>(p.v_stride_1) + column;
        const int rows_left = v_rows_2 - row;
        #pragma unroll
        for (int i = 0; i < 2; ++i) {
          fc::copy_async(shared + 32768 + freed_slot * 4096 + fc::panel_chunk_offset<64, 32>(row, column, 0) + i * 2048, source, i * 32 < rows_left ? 16 : 0);
          source += 32 * static_cast<int>(p.v_stride_1);
        }
      }
    }
    fc::commit_copies();
    const fc::u32 read_slot = shared + slot * 8192;
    const fc::u32 read_slot_2 = shared + 16384 + slot * 8192;
    const fc::u32 read_slot_3 = shared + 32768 + slot * 4096;
    // product = dot(read_slot, transpose(read_slot_2))
    float t4[1][8][4] = {};
    #pragma unroll
    for (int k = 0; k < 4; ++k) {
      fc::u32 a[1][4];
      fc::load_matrices(a[0], fc::matrix_address<64, 64>(read_slot, warp % 4 * 16 + lane % 16, lane / 16 * 8, 0, k * 16));
      #pragma unroll
      for (int j = 0; j < 4; ++j) {
        fc::u32 b[4];
        fc::load_matrices(b, fc::matrix_address<64, 64>(read_slot_2, lane % 8 + lane / 16 * 8, lane / 8 % 2 * 8, j * 16, k * 16));
        fc::multiply<fc::bf16>(t4[0][2 * j], a[0], b[0], b[1]);
        fc::multiply<fc::bf16>(t4[0][2 * j + 1], a[0], b[2], b[3]);
      }
    }
    // t4 = where(ge(sub(index(t), thread_begin), thread_offset), t4, 0)
    #pragma unroll
    for (int j = 0; j < 8; ++j) {
      #pragma unroll
      for (int e = 0; e < 4; ++e) {
        const int t5 = (t_begin + t_lane + (e / 2) * 8) - (t_begin + s_lane);
        const bool t6 = t5 >= (j * 8 + (e % 2));
        t4[0][j][e] = t6 ? t4[0][j][e] : 0.f;
      }
    }
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
    float t7[1][4][4];
    // t7 = cast(t2)
    #pragma unroll
    for (int j = 0; j < 4; ++j)
      #pragma unroll
      for (int e = 0; e < 4; ++e)
        t7[0][j][e] = t2[0][j][e];
    // t7 in shared memory
    const fc::u32 operand_shared = shared + 40960;
    #pragma unroll
    for (int i = 0; i < 1; ++i)
      #pragma unroll
      for (int j = 0; j < 4; ++j)
        #pragma unroll
        for (int r = 0; r < 2; ++r)
          fc::store_shared(operand_shared + fc::chunk_offset<64, 32>(d_lane + i * 16 + r * 8, j * 8) + lane % 4 * 4,
                           fc::pack<fc::bf16>(t7[i][j][2 * r], t7[i][j][2 * r + 1]));
    fc::barrier();
    // product = dot(read_slot, operand_shared)
    float t8[1][4][4] = {};
    #pragma unroll
    for (int k = 0; k < 4; ++k) {
      fc::u32 a[1][4];
      fc::load_matrices(a[0], fc::matrix_address<64, 64>(read_slot, warp % 4 * 16 + lane % 16, lane / 16 * 8, 0, k * 16));
      #pragma unroll
      for (int j = 0; j < 2; ++j) {
        fc::u32 b[4];
        fc::load_matrices_transposed(b, fc::matrix_address<64, 32>(operand_shared, lane % 16, lane / 16 * 8, k * 16, j * 16));
        fc::multiply<fc::bf16>(t8[0][2 * j], a[0], b[0], b[1]);
        fc::multiply<fc::bf16>(t8[0][2 * j + 1], a[0], b[2], b[3]);
      }
    }
    // product = t8 + dot(t4_operand, read_slot_3)
    #pragma unroll
    for (int k = 0; k < 4; ++k) {
      #pragma unroll
      for (int j = 0; j < 2; ++j) {
        fc::u32 b[4];
        fc::load_matrices_transposed(b, fc::matrix_address<64, 32>(read_slot_3, lane % 16, lane / 16 * 8, k * 16, j * 16));
        fc::multiply<fc::bf16>(t8[0][2 * j], t4_operand[0][k], b[0], b[1]);
        fc::multiply<fc::bf16>(t8[0][2 * j + 1], t4_operand[0][k], b[2], b[3]);
      }
    }
    // t8 = cast(t8)
    #pragma unroll
    for (int j = 0; j < 4; ++j)
      #pragma unroll
      for (int e = 0; e < 4; ++e)
        t8[0][j][e] = t8[0][j][e];
    // store o = t8
    #pragma unroll
    for (int j = 0; j < 4; ++j)
      #pragma unroll
      for (int e = 0; e < 2; ++e)
        if (t_begin + t_lane + e * 8 < p.L) {
          fc::store_global<2>(o_at + (t_begin + t_lane + e * 8) * p.o_stride_1 + (dv_begin + dv_lane + j * 8), &t8[0][j][e * 2]);
        }
    // product = t2 + dot(transpose(read_slot_2), read_slot_3)
    #pragma unroll
    for (int k = 0; k < 4; ++k) {
      fc::u32 a[1][4];
      fc::load_matrices_transposed(a[0], fc::matrix_address<64, 64, true>(read_slot_2, lane % 8 + lane / 16 * 8, lane / 8 % 2 * 8, k * 16, warp % 4 * 16));
      #pragma unroll
      for (int j = 0; j < 2; ++j) {
        fc::u32 b[4];
        fc::load_matrices_transposed(b, fc::matrix_address<64, 32>(read_slot_3, lane % 16, lane / 16 * 8, k * 16, j * 16));
        fc::multiply<fc::bf16>(t2[0][2 * j], a[0], b[0], b[1]);
        fc::multiply<fc::bf16>(t2[0][2 * j + 1], a[0], b[2], b[3]);
      }
    }
    const int next_slot = 1 - slot;
    slot = next_slot;
  }
  fc::wait_copies<0>();
}
