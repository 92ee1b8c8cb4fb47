struct Parameters {
  const float* x;
  float* sums;
  int* turns;
  fc::i64 x_stride_0;  // elements
  int R;
  int N;
};

extern "C" __global__ void __launch_bounds__(64, 1)
add_rows(const __grid_constant__ Parameters p) {
  const int rows_tile = fc::block_x();
  const int rows_begin = rows_tile * 16;
  const int thread = fc::thread_index(), lane = thread % 32, warp = thread / 32;
  const fc::u32 shared = fc::shared_base();
  const int rows_lane = warp % 2 * 8;
  const int cols_lane = lane;
  fc::wait_for_kernels();
  fc::launch_dependents();
  const float* const x_at = p.x;
  int* const turns_at = p.turns;
  float* const sums_at = p.sums;

  // cols tiles of 32
  for (int cols_tile = 0; cols_tile < ((p.N + 31) / 32); ++cols_tile) {
    const int cols_begin = cols_tile * 32;
    // load = load x
    float t0[8][1][1];
    #pragma unroll
    for (int i = 0; i < 8; ++i)
      if (rows_begin + rows_lane + i < p.R && cols_begin + cols_lane < p.N) {
        fc::load_global<1>(&t0[i][0][0], x_at + (rows_begin + rows_lane + i) * p.x_stride_0 + (cols_begin + cols_lane));
      }
      else {
        t0[i][0][0] = 0;
      }
    // partial = reduce_sum(t0, rows), each warp its partial
    float partial[1][1] = {};
    #pragma unroll
    for (int i = 0; i < 8; ++i)
      partial[0][0] = partial[0][0] + t0[i][0][0];
    // partial in shared memory
    const fc::u32 partials = shared + warp % 2 * 128;
    #pragma unroll
    for (int i = 0; i < 1; ++i)
      #pragma unroll
      for (int e = 0; e < 1; ++e)
        fc::store_shared<1>(partials + (cols_lane + i * 32 + e * 1) * 4, &partial[i][e]);
    fc::barrier();
    // combine_partials: partials of the warps, combined
    float t1[1][1];
    #pragma unroll
    for (int i = 0; i < 1; ++i) {
      #pragma unroll
      for (int e = 0; e < 1; ++e) {
        const fc::u32 share_at = shared + 0 * 128 + (cols_lane + i * 32 + e * 1) * 4;
        fc::load_shared<1>(&t1[i][e], share_at);
        #pragma unroll
        for (int partial = 0; partial < 1; ++partial) {
          float other[1];
          fc::load_shared<1>(other, share_at + (partial + 1) * 128);
          t1[i][e] = t1[i][e] + other[0];
        }
      }
    }
    const int end_of_tile = cols_begin + 32;
    if (rows_begin > 0) fc::wait_turn(turns_at + rows_begin - 16, end_of_tile);
    // store sums = t1
    if (warp == 0) {
      if (cols_begin + cols_lane < p.N) {
        fc::add_in_turn<1>(sums_at + (cols_begin + cols_lane), &t1[0][0]);
      }
    }
    fc::barrier();
    if (thread == 0) fc::release_turn(turns_at + rows_begin, end_of_tile);
  }
}
