struct Parameters {
  const fc::f16* x;
  const float* bias;
  fc::f16* y;
  fc::i64 x_stride_0;  // elements
  fc::i64 y_stride_0;  // elements
  int N;
  float scale;
};

extern "C" __global__ void __launch_bounds__(128, 1)
elementwise(const __grid_constant__ Parameters p) {
  const int rows_tile = fc::block_x();
  const int rows_begin = rows_tile * 64;
  const int thread = fc::thread_index(), lane = thread % 32, warp = thread / 32;
  const int d_lane = lane * 4;
  const int rows_lane = warp % 4 * 16;
  // load = load bias
  float t0[1][4];
  const float* const bias_at = p.bias;
  fc::load_global<4>(&t0[0][0], bias_at + (d_lane));
  // load = load x
  float t1[16][1][4];
  const fc::f16* const x_at = p.x;
  #pragma unroll
  for (int i = 0; i < 16; ++i)
    if (rows_begin + rows_lane + i < p.N) {
      fc::load_global<4>(&t1[i][0][0], x_at + (rows_begin + rows_lane + i) * p.x_stride_0 + (d_lane));
    }
    else {
      (&t1[i][0][0])[0] = 0;
      (&t1[i][0][0])[1] = 0;
      (&t1[i][0][0])[2] = 0;
      (&t1[i][0][0])[3] = 0;
    }
  // t1 = cast(t1)
  #pragma unroll
  for (int i = 0; i < 16; ++i)
    #pragma unroll
    for (int e = 0; e < 4; ++e)
      t1[i][0][e] = t1[i][0][e];
  const float factor = fc::in_place(p.scale);
  const float square = factor * factor;
  const float cube = square * factor;
  const float first = 0.99999887f * factor;
  const float third = -0.33310074f * cube;
  const float fifth = 0.12634595f * (cube * square);
  const float limit = 0.09f * fc::reciprocal(square);
  const float exponent = 2.88539f * factor;
  // whether no square of t1 is above limit
  float t1_squares[8] = {};
  #pragma unroll
  for (int i = 0; i < 16; ++i) {
    #pragma unroll
    for (int e = 0; e < 4; ++e) {
      float& sum = t1_squares[(e + i * 4 + 0 * 4) % 8];
      sum = fc::fma(t1[i][0][e], t1[i][0][e], sum);
    }
  }
  bool within = true;
  #pragma unroll
  for (int i = 0; i < 8; ++i)
    within = within && t1_squares[i] <= limit;
  if (fc::all_lanes(within)) {
    // t1 = mul(t1, fma(fma(fifth, mul(t1, t1), third), mul(t1, t1), first))
    #pragma unroll
    for (int i = 0; i < 16; ++i) {
      #pragma unroll
      for (int e = 0; e < 4; ++e) {
        const float t2 = t1[i][0][e] * t1[i][0][e];
        const float t3 = fc::fma(fifth, t2, third);
        const float t4 = fc::fma(t3, t2, first);
        t1[i][0][e] = t1[i][0][e] * t4;
      }
    }
  }
  else {
    // t1 = fma(-2, reciprocal(add(exp2(mul(t1, exponent)), 1)), 1)
    #pragma unroll
    for (int i = 0; i < 16; ++i) {
      #pragma unroll
      for (int e = 0; e < 4; ++e) {
        if (e == 0) fc::hold_order();
        const float t5 = t1[i][0][e] * exponent;
        const float t6 = fc::exp2(t5);
        const float t7 = t6 + 1.f;
        const float t8 = fc::reciprocal(t7);
        t1[i][0][e] = fc::fma(-2.f, t8, 1.f);
      }
    }
  }
  float t9[16][1][4];
  // t9 = cast(add(t1, t0))
  #pragma unroll
  for (int i = 0; i < 16; ++i) {
    #pragma unroll
    for (int e = 0; e < 4; ++e) {
      const float t10 = t1[i][0][e] + t0[0][e];
      t9[i][0][e] = t10;
    }
  }
  fc::f16* const y_at = p.y;
  // store y = t9
  #pragma unroll
  for (int i = 0; i < 16; ++i)
    if (rows_begin + rows_lane + i < p.N) {
      fc::store_global<4>(y_at + (rows_begin + rows_lane + i) * p.y_stride_0 + (d_lane), &t9[i][0][0]);
    }
}
