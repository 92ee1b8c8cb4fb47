"""Programs that several test modules run."""

# Blocks of rows add to the same sums, one behind the other.
ADD_ROWS = """
program add_rows
axis rows: parallel_tiles R
axis cols: tiles N
input x: f32 [R, N]
output sums: f32 [N]
output turns: i32 [R]
{
  loop cols {
    tile %tile : i32
    %x = load x[rows, cols] : f32[rows, cols]
    %sum = reduce_sum %x along rows : f32[cols]
    store sums[cols], %sum adding in order of turns
    yield
  }
}
"""
