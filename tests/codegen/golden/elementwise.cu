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
  // whether polynomials serve for tanh(t1 * p.scale)
  const fc::small_tanh small = fc::small_tanh_of(fc::in_place(p.scale));
  float t1_squares[8] = {};
  #pragma unroll
  for (int i = 0; i < 16; ++i) {
    #pragma unroll
    for (int e = 0; e < 4; ++e) {
      float& sum = t1_squares[(e + i * 4 + 0 * 4) % 8];
      sum = fc::fma(t1[i][0][e], t1[i][0][e], sum);
    }
  }
  bool all_small = true;
  #pragma unroll
  for (int i = 0; i < 8; ++i)
    all_small = all_small && fc::is_small(small, t1_squares[i]);
  // tanh = tanh(t1 * p.scale)
  if (fc::all_lanes(all_small)) {
    #pragma unroll
    for (int i = 0; i < 16; ++i)
      #pragma unroll
      for (int e = 0; e < 4; ++e)
        t1[i][0][e] = fc::evaluate(small, t1[i][0][e]);
  }
  else {
    #pragma unroll
    for (int i = 0; i < 16; ++i) {
      #pragma unroll
      for (int e = 0; e < 4; ++e) {
        if (e == 0) fc::hold_order();
        t1[i][0][e] = fc::evaluate_any(small, t1[i][0][e]);
      }
    }
  }
  float t2[16][1][4];
  // t2 = cast(add(t1, t0))
  #pragma unroll
  for (int i = 0; i < 16; ++i) {
    #pragma unroll
    for (int e = 0; e < 4; ++e) {
      const float t3 = t1[i][0][e] + t0[0][e];
      t2[i][0][e] = t3;
    }
  }
  fc::f16* const y_at = p.y;
  // store y = t2
  #pragma unroll
  for (int i = 0; i < 16; ++i)
    if (rows_begin + rows_lane + i < p.N) {
      fc::store_global<4>(y_at + (rows_begin + rows_lane + i) * p.y_stride_0 + (d_lane), &t2[i][0][0]);
    }
}
