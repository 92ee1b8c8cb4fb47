struct Parameters {
  const int* x;
  int* y;
  fc::i64 x_stride_0;  // elements
  fc::i64 y_stride_0;  // elements
  int N;
  int step;
};

extern "C" __global__ void __launch_bounds__(128, 1)
integers(const __grid_constant__ Parameters p) {
  const int rows_tile = fc::block_x();
  const int rows_begin = rows_tile * 64;
  const int thread = fc::thread_index(), lane = thread % 32, warp = thread / 32;
  const int d_lane = lane % 16;
  const int rows_lane = warp % 4 * 16 + lane / 16;
  int t0[3][1];
  // t0 = mul(index(d), step)
  #pragma unroll
  for (int i = 0; i < 3; ++i)
    t0[i][0] = (d_lane + i * 16) * p.step;
  int t1[8][3][1];
  // t1 = sub(index(rows), t0)
  int t2[8][3][1];
  // t2 = abs(t1)
  #pragma unroll
  for (int i = 0; i < 8; ++i) {
    #pragma unroll
    for (int j = 0; j < 3; ++j) {
      t1[i][j][0] = (rows_begin + rows_lane + i * 2) - t0[j][0];
      t2[i][j][0] = t1[i][j][0] < 0 ? -t1[i][j][0] : t1[i][j][0];
    }
  }
  // load = load x
  int t3[8][3][1];
  const int* const x_at = p.x;
  #pragma unroll
  for (int i = 0; i < 8; ++i)
    #pragma unroll
    for (int j = 0; j < 3; ++j)
      if (rows_begin + rows_lane + i * 2 < p.N) {
        fc::load_global<1>(&t3[i][j][0], x_at + (rows_begin + rows_lane + i * 2) * p.x_stride_0 + (d_lane + j * 16));
      }
      else {
        t3[i][j][0] = 0;
      }
  int t4[8][3][1];
  // t4 = where(eq(mod(t1, 3), 0), div(t1, 5), min(t3, t2))
  #pragma unroll
  for (int i = 0; i < 8; ++i) {
    #pragma unroll
    for (int j = 0; j < 3; ++j) {
      const int t5 = fc::min(t3[i][j][0], t2[i][j][0]);
      const int t6 = fc::floor_div(t1[i][j][0], 5);
      const int t7 = fc::floor_mod(t1[i][j][0], 3);
      const bool t8 = t7 == 0;
      t4[i][j][0] = t8 ? t6 : t5;
    }
  }
  int* const y_at = p.y;
  // store y = t4
  #pragma unroll
  for (int i = 0; i < 8; ++i)
    #pragma unroll
    for (int j = 0; j < 3; ++j)
      if (rows_begin + rows_lane + i * 2 < p.N) {
        fc::store_global<1>(y_at + (rows_begin + rows_lane + i * 2) * p.y_stride_0 + (d_lane + j * 16), &t4[i][j][0]);
      }
}
