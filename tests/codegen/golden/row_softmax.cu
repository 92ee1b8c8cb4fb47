struct Parameters {
  const float* x;
  float* y;
  fc::i64 x_stride_0;  // elements
  fc::i64 y_stride_0;  // elements
  int M;
  int N;
};

extern "C" __global__ void __launch_bounds__(128, 1)
row_softmax(const __grid_constant__ Parameters p) {
  const int rows_tile = fc::block_x();
  const int rows_begin = rows_tile * 32;
  const int thread = fc::thread_index(), lane = thread % 32, warp = thread / 32;
  const int rows_lane = warp % 4 * 8;
  const int cols_lane = lane;
  const int t0 = p.N + -1;
  const int t1 = fc::min((fc::floor_div(t0, 128) + 1), ((p.N + 127) / 128));
  const int cols_end = fc::max(0, t1);
  const int t2 = fc::min((fc::floor_div((t0 + -127), 128) + 1), cols_end);
  const int cols_full_end = fc::max(0, t2);
  const float* const x_at = p.x;

  float max[8][1];
  #pragma unroll
  for (int i = 0; i < 8; ++i)
    max[i][0] = fc::lowest();
  float sum[8][1] = {};
  // cols tiles of 128
  for (int cols_tile = cols_end - 1; cols_tile >= 0; --cols_tile) {
    const int cols_begin = cols_tile * 128;
    // scores = load x
    float scores[8][4][1];
    #pragma unroll
    for (int i = 0; i < 8; ++i)
      #pragma unroll
      for (int j = 0; j < 4; ++j)
        if (rows_begin + rows_lane + i < p.M && cols_begin + cols_lane + j * 32 < p.N) {
          fc::load_global<1>(&scores[i][j][0], x_at + (rows_begin + rows_lane + i) * p.x_stride_0 + (cols_begin + cols_lane + j * 32));
        }
        else {
          scores[i][j][0] = 0;
        }
    if (cols_tile >= cols_full_end) {
      bool t3[4][1];
      // t3 = lt(index(cols), extent(cols))
      #pragma unroll
      for (int i = 0; i < 4; ++i)
        t3[i][0] = (cols_begin + cols_lane + i * 32) < p.N;
      // scores = where(t3, scores, -inf)
      #pragma unroll
      for (int i = 0; i < 8; ++i)
        #pragma unroll
        for (int j = 0; j < 4; ++j)
          scores[i][j][0] = t3[j][0] ? scores[i][j][0] : -fc::infinity();
    }
    // reduce_max = reduce_max(scores, cols)
    float t4[8][1];
    #pragma unroll
    for (int i = 0; i < 8; ++i)
      t4[i][0] = -fc::infinity();
    #pragma unroll
    for (int i = 0; i < 8; ++i)
      #pragma unroll
      for (int j = 0; j < 4; ++j)
        t4[i][0] = fc::max(t4[i][0], scores[i][j][0]);
    #pragma unroll
    for (int i = 0; i < 8; ++i) {
      t4[i][0] = fc::max(t4[i][0], fc::shuffle_xor(t4[i][0], 1));
      t4[i][0] = fc::max(t4[i][0], fc::shuffle_xor(t4[i][0], 2));
      t4[i][0] = fc::max(t4[i][0], fc::shuffle_xor(t4[i][0], 4));
      t4[i][0] = fc::max(t4[i][0], fc::shuffle_xor(t4[i][0], 8));
      t4[i][0] = fc::max(t4[i][0], fc::shuffle_xor(t4[i][0], 16));
    }
    // t4 = max(max, t4)
    #pragma unroll
    for (int i = 0; i < 8; ++i)
      t4[i][0] = fc::max(max[i][0], t4[i][0]);
    float t5[8][4][1];
    // t5 = exp2(mul(sub(scores, t4), 1.4426950408889634))
    #pragma unroll
    for (int i = 0; i < 8; ++i) {
      #pragma unroll
      for (int j = 0; j < 4; ++j) {
        const float t6 = scores[i][j][0] - t4[i][0];
        const float t7 = t6 * 1.442695f;
        t5[i][j][0] = fc::exp2(t7);
      }
    }
    // reduce_sum = reduce_sum(t5, cols), each lane its share
    float t8[8][1] = {};
    #pragma unroll
    for (int i = 0; i < 8; ++i)
      #pragma unroll
      for (int j = 0; j < 4; ++j)
        t8[i][0] = t8[i][0] + t5[i][j][0];
    // sum = fma(sum, exp2(mul(sub(max, t4), 1.4426950408889634)), t8)
    #pragma unroll
    for (int i = 0; i < 8; ++i) {
      const float t9 = max[i][0] - t4[i][0];
      const float t10 = t9 * 1.442695f;
      const float t11 = fc::exp2(t10);
      sum[i][0] = fc::fma(sum[i][0], t11, t8[i][0]);
    }
    #pragma unroll
    for (int i = 0; i < 8; ++i)
      max[i][0] = t4[i][0];
  }
  // sum: the lanes' shares meet
  #pragma unroll
  for (int i = 0; i < 8; ++i) {
    sum[i][0] = sum[i][0] + fc::shuffle_xor(sum[i][0], 1);
    sum[i][0] = sum[i][0] + fc::shuffle_xor(sum[i][0], 2);
    sum[i][0] = sum[i][0] + fc::shuffle_xor(sum[i][0], 4);
    sum[i][0] = sum[i][0] + fc::shuffle_xor(sum[i][0], 8);
    sum[i][0] = sum[i][0] + fc::shuffle_xor(sum[i][0], 16);
  }
  float* const y_at = p.y;

  // cols tiles of 128
  for (int cols_tile_2 = ((p.N + 127) / 128) - 1; cols_tile_2 >= 0; --cols_tile_2) {
    const int cols_begin_2 = cols_tile_2 * 128;
    // load = load x
    float t12[8][4][1];
    #pragma unroll
    for (int i = 0; i < 8; ++i)
      #pragma unroll
      for (int j = 0; j < 4; ++j)
        if (rows_begin + rows_lane + i < p.M && cols_begin_2 + cols_lane + j * 32 < p.N) {
          fc::load_global<1>(&t12[i][j][0], x_at + (rows_begin + rows_lane + i) * p.x_stride_0 + (cols_begin_2 + cols_lane + j * 32));
        }
        else {
          t12[i][j][0] = 0;
        }
    float t13[8][4][1];
    // t13 = div(exp2(mul(sub(t12, max), 1.4426950408889634)), sum)
    #pragma unroll
    for (int i = 0; i < 8; ++i) {
      #pragma unroll
      for (int j = 0; j < 4; ++j) {
        const float t14 = t12[i][j][0] - max[i][0];
        const float t15 = t14 * 1.442695f;
        const float t16 = fc::exp2(t15);
        t13[i][j][0] = fc::divide(t16, sum[i][0]);
      }
    }
    // store y = t13
    #pragma unroll
    for (int i = 0; i < 8; ++i)
      #pragma unroll
      for (int j = 0; j < 4; ++j)
        if (rows_begin + rows_lane + i < p.M && cols_begin_2 + cols_lane + j * 32 < p.N) {
          fc::store_global<1>(y_at + (rows_begin + rows_lane + i) * p.y_stride_0 + (cols_begin_2 + cols_lane + j * 32), &t13[i][j][0]);
        }
  }
}
