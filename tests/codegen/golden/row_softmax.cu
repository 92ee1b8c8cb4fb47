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
  const int cols_end = fc::max(0, fc::min(((t0 >> 7) + 1), ((p.N + 127) / 128)));
  const int cols_full_end = fc::max(0, fc::min((((t0 + -127) >> 7) + 1), cols_end));
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
      bool t1[4][1];
      // t1 = lt(index(cols), extent(cols))
      #pragma unroll
      for (int i = 0; i < 4; ++i)
        t1[i][0] = (i * 32) < (p.N - (cols_begin + cols_lane));
      // scores = where(t1, scores, -inf)
      #pragma unroll
      for (int i = 0; i < 8; ++i)
        #pragma unroll
        for (int j = 0; j < 4; ++j)
          scores[i][j][0] = t1[j][0] ? scores[i][j][0] : -fc::infinity();
    }
    // reduce_max = reduce_max(scores, cols)
    float t2[8][1];
    #pragma unroll
    for (int i = 0; i < 8; ++i)
      t2[i][0] = -fc::infinity();
    #pragma unroll
    for (int i = 0; i < 8; ++i)
      #pragma unroll
      for (int j = 0; j < 4; ++j)
        t2[i][0] = fc::max(t2[i][0], scores[i][j][0]);
    #pragma unroll
    for (int i = 0; i < 8; ++i) {
      t2[i][0] = fc::max(t2[i][0], fc::shuffle_xor(t2[i][0], 1));
      t2[i][0] = fc::max(t2[i][0], fc::shuffle_xor(t2[i][0], 2));
      t2[i][0] = fc::max(t2[i][0], fc::shuffle_xor(t2[i][0], 4));
      t2[i][0] = fc::max(t2[i][0], fc::shuffle_xor(t2[i][0], 8));
      t2[i][0] = fc::max(t2[i][0], fc::shuffle_xor(t2[i][0], 16));
    }
    // t2 = max(max, t2)
    float t3[8][1];
    // t3 = neg(mul(t2, 1.4426950408889634))
    bool large[8][1];
    // large = ge(abs(mul(t2, 1.4426950408889634)), 4096)
    #pragma unroll
    for (int i = 0; i < 8; ++i) {
      t2[i][0] = fc::max(max[i][0], t2[i][0]);
      const float t4 = t2[i][0] * 1.442695f;
      t3[i][0] = -t4;
      const float t5 = t4 < 0 ? -t4 : t4;
      large[i][0] = t5 >= 4096.f;
    }
    if (!fc::all_lanes(!large[0][0] && !large[1][0] && !large[2][0] && !large[3][0] && !large[4][0] && !large[5][0] && !large[6][0] && !large[7][0])) {
      // scores = where(large, sub(scores, t2), scores)
      #pragma unroll
      for (int i = 0; i < 8; ++i) {
        #pragma unroll
        for (int j = 0; j < 4; ++j) {
          const float t6 = scores[i][j][0] - t2[i][0];
          scores[i][j][0] = large[i][0] ? t6 : scores[i][j][0];
        }
      }
      // t3 = where(large, 0, t3)
      #pragma unroll
      for (int i = 0; i < 8; ++i)
        t3[i][0] = large[i][0] ? 0.f : t3[i][0];
    }
    float t7[8][4][1];
    // t7 = exp2(fma(scores, 1.4426950408889634, t3))
    #pragma unroll
    for (int i = 0; i < 8; ++i) {
      #pragma unroll
      for (int j = 0; j < 4; ++j) {
        const float t8 = fc::fma(scores[i][j][0], 1.442695f, t3[i][0]);
        t7[i][j][0] = fc::exp2(t8);
      }
    }
    // reduce_sum = reduce_sum(t7, cols), each lane its share
    float t9[8][1] = {};
    #pragma unroll
    for (int i = 0; i < 8; ++i)
      #pragma unroll
      for (int j = 0; j < 4; ++j)
        t9[i][0] = t9[i][0] + t7[i][j][0];
    // sum = fma(sum, exp2(mul(sub(max, t2), 1.4426950408889634)), t9)
    #pragma unroll
    for (int i = 0; i < 8; ++i) {
      const float t10 = max[i][0] - t2[i][0];
      const float t11 = t10 * 1.442695f;
      const float t12 = fc::exp2(t11);
      sum[i][0] = fc::fma(sum[i][0], t12, t9[i][0]);
    }
    #pragma unroll
    for (int i = 0; i < 8; ++i)
      max[i][0] = t2[i][0];
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
    float t13[8][4][1];
    #pragma unroll
    for (int i = 0; i < 8; ++i)
      #pragma unroll
      for (int j = 0; j < 4; ++j)
        if (rows_begin + rows_lane + i < p.M && cols_begin_2 + cols_lane + j * 32 < p.N) {
          fc::load_global<1>(&t13[i][j][0], x_at + (rows_begin + rows_lane + i) * p.x_stride_0 + (cols_begin_2 + cols_lane + j * 32));
        }
        else {
          t13[i][j][0] = 0;
        }
    float t14[8][1];
    // t14 = neg(mul(max, 1.4426950408889634))
    bool large_2[8][1];
    // large = ge(abs(mul(max, 1.4426950408889634)), 4096)
    #pragma unroll
    for (int i = 0; i < 8; ++i) {
      const float t15 = max[i][0] * 1.442695f;
      t14[i][0] = -t15;
      const float t16 = t15 < 0 ? -t15 : t15;
      large_2[i][0] = t16 >= 4096.f;
    }
    if (!fc::all_lanes(!large_2[0][0] && !large_2[1][0] && !large_2[2][0] && !large_2[3][0] && !large_2[4][0] && !large_2[5][0] && !large_2[6][0] && !large_2[7][0])) {
      // t13 = where(large, sub(t13, max), t13)
      #pragma unroll
      for (int i = 0; i < 8; ++i) {
        #pragma unroll
        for (int j = 0; j < 4; ++j) {
          const float t17 = t13[i][j][0] - max[i][0];
          t13[i][j][0] = large_2[i][0] ? t17 : t13[i][j][0];
        }
      }
      // t14 = where(large, 0, t14)
      #pragma unroll
      for (int i = 0; i < 8; ++i)
        t14[i][0] = large_2[i][0] ? 0.f : t14[i][0];
    }
    float t18[8][4][1];
    // t18 = div(exp2(fma(t13, 1.4426950408889634, t14)), sum)
    #pragma unroll
    for (int i = 0; i < 8; ++i) {
      #pragma unroll
      for (int j = 0; j < 4; ++j) {
        const float t19 = fc::fma(t13[i][j][0], 1.442695f, t14[i][0]);
        const float t20 = fc::exp2(t19);
        t18[i][j][0] = fc::divide(t20, sum[i][0]);
      }
    }
    // store y = t18
    #pragma unroll
    for (int i = 0; i < 8; ++i)
      #pragma unroll
      for (int j = 0; j < 4; ++j)
        if (rows_begin + rows_lane + i < p.M && cols_begin_2 + cols_lane + j * 32 < p.N) {
          fc::store_global<1>(y_at + (rows_begin + rows_lane + i) * p.y_stride_0 + (cols_begin_2 + cols_lane + j * 32), &t18[i][j][0]);
        }
  }
}
