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
  const int t1 = fc::max((((t0 + -127) >> 7) + 1), (cols_end - 1));
  const int cols_full_end = fc::max(0, fc::min(t1, cols_end));
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
    const bool masked = cols_tile >= cols_full_end;
    if (masked) {
      bool t2[4][1];
      // t2 = lt(thread_offset, sub(extent(cols), thread_begin))
      #pragma unroll
      for (int i = 0; i < 4; ++i) {
        const int t3 = p.N - (cols_begin + cols_lane);
        t2[i][0] = (i * 32) < t3;
      }
      // scores = where(t2, scores, -inf)
      #pragma unroll
      for (int i = 0; i < 8; ++i)
        #pragma unroll
        for (int j = 0; j < 4; ++j)
          scores[i][j][0] = t2[j][0] ? scores[i][j][0] : -fc::infinity();
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
    float t5[8][1];
    // t5 = limit_scale(1.4426950408889634, t4)
    float t6[8][1];
    // t6 = mul_rn(t4, t5)
    float t7[8][1];
    // t7 = neg(t6)
    #pragma unroll
    for (int i = 0; i < 8; ++i) {
      t4[i][0] = fc::max(max[i][0], t4[i][0]);
      t5[i][0] = fc::limit_scale(1.442695f, t4[i][0]);
      t6[i][0] = fc::mul_rn(t4[i][0], t5[i][0]);
      t7[i][0] = -t6[i][0];
    }
    // reduce_sum = reduce_sum(exp2, cols), each lane its partial
    float t8[8][1] = {};
    #pragma unroll
    for (int i = 0; i < 8; ++i) {
      #pragma unroll
      for (int j = 0; j < 4; ++j) {
        const float t9 = fc::fma(scores[i][j][0], t5[i][0], t7[i][0]);
        const float t10 = fc::exp2(t9);
        t8[i][0] = t8[i][0] + t10;
      }
    }
    // sum = fma(sum, exp2(sub(mul_rn(max, t5), t6)), t8)
    #pragma unroll
    for (int i = 0; i < 8; ++i) {
      const float t11 = fc::mul_rn(max[i][0], t5[i][0]);
      const float t12 = t11 - t6[i][0];
      const float t13 = fc::exp2(t12);
      sum[i][0] = fc::fma(sum[i][0], t13, t8[i][0]);
    }
    #pragma unroll
    for (int i = 0; i < 8; ++i)
      max[i][0] = t4[i][0];
  }
  // sum: partials of the lanes, combined
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
    float t14[8][4][1];
    #pragma unroll
    for (int i = 0; i < 8; ++i)
      #pragma unroll
      for (int j = 0; j < 4; ++j)
        if (rows_begin + rows_lane + i < p.M && cols_begin_2 + cols_lane + j * 32 < p.N) {
          fc::load_global<1>(&t14[i][j][0], x_at + (rows_begin + rows_lane + i) * p.x_stride_0 + (cols_begin_2 + cols_lane + j * 32));
        }
        else {
          t14[i][j][0] = 0;
        }
    float t15[8][1];
    // t15 = limit_scale(1.4426950408889634, max)
    float t16[8][1];
    // t16 = neg(mul_rn(max, t15))
    #pragma unroll
    for (int i = 0; i < 8; ++i) {
      t15[i][0] = fc::limit_scale(1.442695f, max[i][0]);
      const float t17 = fc::mul_rn(max[i][0], t15[i][0]);
      t16[i][0] = -t17;
    }
    float t18[8][4][1];
    // t18 = div(exp2(fma(t14, t15, t16)), sum)
    #pragma unroll
    for (int i = 0; i < 8; ++i) {
      #pragma unroll
      for (int j = 0; j < 4; ++j) {
        const float t19 = fc::fma(t14[i][j][0], t15[i][0], t16[i][0]);
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
