// Damaged text ends in an error of the family or in a function that prints, never in a crash:
// programs are read from files.
#include <random>
#include <string>

#include <gtest/gtest.h>

#include "dsl/ir/parse.h"
#include "dsl/ir/print.h"
#include "dsl/ir/verify.h"

namespace flashcore::ir {
namespace {

const std::string whole = R"(program test
axis b: parallel B tile 1
axis rows: parallel_tiles M tile 64
axis cols: tiles N tile 32
axis d: whole 16 tile 16
parameter scale: f32 positive
input q: bf16 [B, M, 16]
input k: bf16 [B, N, 16]
output y: f32 [B, M]
channel k: bf16 [32, 16] stages 2 by cp_async at 2048
{
  %b = index b : i32
  %q = load q[%b, rows, d] : bf16[rows, d] @ shared
  %0 = constant -inf : f32[rows]
  %scale = parameter scale : f32
  %end = tile_count cols : i32
  %zero = constant 0 : i32
  %any = lt %zero, %end : i1
  issue k[%b, cols, d], %zero, %zero, %any in k
  commit
  %m = loop cols from %zero to %end descending {
    tile %tile : i32
    carry %m_in = %0 : f32[rows] @ rows(4w 2s*8 8l/4)
    wait pending 0
    barrier
    %k = read_slot %zero in k : bf16[cols, d] @ shared
    %kt = transpose %k : bf16[d, cols] @ shared
    %s = dot %q, %kt : f32[rows, cols] @ rows(4w 2s*8 8l/4) cols(4f 2s 4l*2)
    %c = index cols : i32[cols]
    %low = constant -inf : f32
    %seen = lt %c, %end : i1[cols]
    %w = where %seen, %s, %low : f32[rows, cols]
    %most = reduce_max %w along cols by lane : f32[rows]
    %next = max %m_in, %most : f32[rows]
    yield %next
  }
  %y = combine_partials %m along cols of reduce_max : f32[rows]
  store y[%b, rows], %y
}
)";

/// Reads, verifies and prints; errors of the family are fine.
void survive(const std::string& text) {
  try {
    const Function f = parse(text);
    const std::string printed = print(f);
    EXPECT_EQ(print(parse(printed)), printed) << text;
    verify(f);
  } catch (const Error& error) {
    EXPECT_FALSE(error.complaint().why.empty()) << error.what();
  }
}

TEST(DamagedText, TheWholeIsFine) { EXPECT_NO_THROW(verify(parse(whole))); }

TEST(DamagedText, CutAnywhere) {
  for (std::size_t i = 0; i < whole.size(); ++i) survive(whole.substr(0, i));
}

TEST(DamagedText, WithoutALine) {
  for (std::size_t begin = 0; begin < whole.size();) {
    const std::size_t end = whole.find('\n', begin) + 1;
    survive(std::string(whole).erase(begin, end - begin));
    begin = end;
  }
}

TEST(DamagedText, WordsExchanged) {
  std::vector<std::pair<std::size_t, std::size_t>> words;  // where, how long
  for (std::size_t i = 0; i < whole.size(); ++i) {
    if (std::isspace(static_cast<unsigned char>(whole[i]))) continue;
    std::size_t end = i + 1;
    while (std::isalnum(static_cast<unsigned char>(whole[end])) || whole[end] == '_') ++end;
    words.emplace_back(i, end - i);
    i = end - 1;
  }
  std::mt19937 random(3);
  for (int round = 0; round < 4000; ++round) {
    const auto [to, to_length] = words[random() % words.size()];
    const auto [from, length] = words[random() % words.size()];
    survive(std::string(whole).replace(to, to_length, whole.substr(from, length)));
  }
}

TEST(DamagedText, BytesExchanged) {
  std::mt19937 random(4);
  for (int round = 0; round < 4000; ++round) {
    std::string text = whole;
    text[random() % text.size()] = static_cast<char>(random() % 256);
    survive(text);
  }
}

}  // namespace
}  // namespace flashcore::ir
