// Programs may call their parts whatever they like: words of C++ and CUDA, what the kernels around
// them are made of, and names that other parts of the same kernel have already.
#include "codegen/text/names.h"

#include <cctype>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "codegen/generate.h"
#include "codegen/prelude.h"
#include "dsl/ir/parse.h"
#include "dsl/ir/print.h"
#include "dsl/program_builder.h"
#include "runtime/compile.h"
#include "runtime/cuda/nvrtc.h"
#include "runtime/cuda/nvrtc_search.h"
#include "tests/codegen/support/programs.h"
#include "tests/support/kernel_run.h"

namespace flashcore {
namespace {

using testing::HasSubstr;

/// Null on a machine without NVRTC.
const Nvrtc* nvrtc() {
  static const std::unique_ptr<Nvrtc> compiler = [] {
    try {
      return std::make_unique<Nvrtc>(find_nvrtc(NvrtcSearch::from_environment()));
    } catch (const CompileError&) {
      return std::unique_ptr<Nvrtc>();
    }
  }();
  return compiler.get();
}

bool in_word(char c) { return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_'; }

/// The words of a text that could name a part of a program; `before`: only those in front of it.
void add_words(std::string_view text, std::set<std::string>& words, std::string_view before = "") {
  for (std::size_t at = 0; at < text.size();) {
    std::size_t end = at;
    while (end < text.size() && in_word(text[end])) ++end;
    const bool named = end > at && std::isalpha(static_cast<unsigned char>(text[at])) != 0;
    if (named && text.substr(end).starts_with(before)) words.emplace(text.substr(at, end - at));
    at = end + 1;
  }
}

// Words of C++, of its headers and of CUDA; functions and types that a file has without asking.
constexpr std::string_view foreign = R"(
  alignas alignof and and_eq asm auto bitand bitor bool break case catch char char8_t char16_t
  char32_t class compl concept const consteval constexpr constinit const_cast continue co_await
  co_return co_yield decltype default delete do double dynamic_cast else enum explicit export extern
  false float for friend goto if inline int long mutable namespace new noexcept not not_eq nullptr
  operator or or_eq private protected public register reinterpret_cast requires return short signed
  sizeof static static_assert static_cast struct switch template this thread_local throw true try
  typedef typeid typename union unsigned using virtual void volatile wchar_t while xor xor_eq
  final override import module typeof restrict defined
  NULL EOF NAN INFINITY INT_MAX FLT_MAX M_PI assert errno offsetof stdin stdout stderr linux unix
  threadIdx blockIdx blockDim gridDim warpSize dim3 half half2 float4 int2 uint4 size_t ptrdiff_t
  cudaStream_t cudaStreamDefault cudaSuccess CUstream CUDART_VERSION NV_IF_TARGET WARP_SZ clock_t
  min max abs sin sinf cos tanh tanhf exp exp2 exp2f expf log2 log2f sqrt sqrtf rsqrt fma fmaf pow
  floor round erf j0 y1 printf malloc free memcpy memset memmove abort main exit read write index
  std va_list clock clock64 tile_counter __global__ flashcore_enter fc_machine fc_call FC_KERNEL
  FC_DEVICE Parameters fc p add mov ld st bar ret entry reg param)";

constexpr std::size_t each = 4;

/// Words for the parts of one program: `each` of every kind, those of one kind after the other's.
struct Parts {
  Parts(const std::vector<std::string>& words, std::size_t first) {
    const auto take = [&](std::size_t begin) {
      std::vector<std::string> some;
      for (std::size_t i = 0; i < each; ++i) some.push_back(words[(begin + i) % words.size()]);
      return some;
    };
    program = words[first];
    axes = take(first);
    tensors = take(first + each);
    scalars = take(first + 2 * each);
    output = words[(first + 3 * each) % words.size()];
    lengths = take(first % 2 ? first : first + each);  // as axes, or as tensors are called
  }
  std::string program, output;
  std::vector<std::string> axes, tensors, scalars, lengths;
};

/// Positions have variables of their name in the kernel, and so have values; the others fields.
Program sum_of(const Parts& parts) {
  ProgramBuilder b(parts.program);
  std::vector<Axis> axes;
  for (std::size_t i = 0; i < each; ++i)
    axes.push_back(b.parallel(parts.axes[i], Extent(parts.lengths[i])));
  Tile sum = cast(index(axes[0]), DType::f32);
  for (std::size_t i = 0; i < each; ++i) {
    const Tile factor = b.scalar(parts.scalars[i], DType::f32);
    const Tensor x = b.input(parts.tensors[i], DType::f32, {Extent(parts.lengths[i])});
    sum = (sum * factor + load(x(axes[i]))).named(parts.lengths[i]);
  }
  const auto& n = parts.lengths;
  const Tensor y =
      b.output(parts.output, DType::f32, {Extent(n[0]), Extent(n[1]), Extent(n[2]), Extent(n[3])});
  store(y(axes[0], axes[1], axes[2], axes[3]), sum);
  return b.finish();
}

/// Tiles, copies ahead and loops have names made of those of tensors and axes.
Program product_of(const Parts& parts) {
  const Extent m(parts.lengths[0]), n(parts.lengths[1]), k(parts.lengths[2]);
  ProgramBuilder b(parts.program);
  const Axis rows = b.parallel_tiles(parts.axes[0], m),
             columns = b.parallel_tiles(parts.axes[1], n);
  const Axis depth = b.tiles(parts.axes[2], k);
  const Tensor x = b.input(parts.tensors[0], DType::f16, {m, k});
  const Tensor y = b.input(parts.tensors[1], DType::f16, {n, k});
  const Tensor z = b.output(parts.output, DType::f16, {m, n});
  const Tile factor = b.scalar(parts.scalars[0], DType::f32);
  const Tile start = b.fill({rows, columns}, 0).named(parts.scalars[1]);
  const Tile sum = b.loop(depth, start, [&](const Tile& s) {
    return s + dot(load(x(rows, depth)).named(parts.tensors[2]),
                   transpose(load(y(columns, depth)).named(parts.tensors[3])));
  });
  store(z(rows, columns), cast((sum * factor).named(parts.scalars[2]), DType::f16));
  return b.finish();
}

Schedule product_schedule(const Parts& parts, bool warpgroups) {
  Schedule schedule;
  schedule.warps_m = 4;
  schedule.tiles = {{parts.axes[0], 64}, {parts.axes[1], 64}, {parts.axes[2], 32}};
  if (!warpgroups) return schedule;
  schedule.instruction = Instruction::wgmma;
  schedule.copy = CopyInstruction::tma;
  schedule.tiles[parts.axes[2]] = 64;
  schedule.staged_stores = true;
  return schedule;
}

KernelSource sum_kernel(const Parts& parts, const char* target) {
  Schedule schedule;
  schedule.warps_m = 1;
  return generate(sum_of(parts), schedule, find_target(target));
}
KernelSource product_kernel(const Parts& parts, bool warpgroups) {
  return generate(product_of(parts), product_schedule(parts, warpgroups),
                  find_target(warpgroups ? "sm_90a" : "sm_80"));
}

const Parts ordinary({"first_axis", "second_axis", "third_axis", "fourth_axis", "m", "n", "q", "k",
                      "scale", "sum", "total", "shift", "out"},
                     0);

/// What kernels of such programs are made of.
std::set<std::string> words_of_kernels() {
  std::set<std::string> words;
  add_words(sum_kernel(ordinary, "sm_80").body, words);
  for (const bool warpgroups : {false, true})
    add_words(product_kernel(ordinary, warpgroups).body, words);
  return words;
}

void expect_compiles(const KernelSource& source, const Parts& parts, const char* target) {
  SCOPED_TRACE(parts.program);
  EXPECT_EQ(source.name, parts.program);
  EXPECT_EQ(source.tensors[0].name, parts.tensors[0]);
  EXPECT_EQ(source.scalars[0].name, parts.scalars[0]);
  EXPECT_NE(source.body.find(source.entry + "(const"), std::string::npos);
  if (!nvrtc()) return;
  try {
    EXPECT_GT(compile_cubin(*nvrtc(), source, target).resources.registers, 0);
  } catch (const Error& error) {
    ADD_FAILURE() << error.what();
  }
}

TEST(Names, AreAnyWordsOfTheLanguagesAroundThem) {
  std::set<std::string> words = words_of_kernels();
  add_words(foreign, words);
  for (const PreludeFile& file : device_prelude()) add_words(file.text, words, "(");
  const std::vector<std::string> all{words.begin(), words.end()};
  EXPECT_GT(all.size(), 400U);
  for (std::size_t first = 0; first < all.size(); first += each) {
    const Parts parts(all, first);
    const char* target = first % (2 * each) ? "sm_80" : "sm_90a";
    expect_compiles(sum_kernel(parts, target), parts, target);
    // The text form has room for them too.
    const std::string text = ir::print(sum_of(parts).function());
    EXPECT_EQ(ir::print(ir::parse(text, "names.fc")), text);
  }
}

TEST(Names, AreAnyNamesOfTheSameKernel) {
  const std::set<std::string> words = words_of_kernels();
  const std::vector<std::string> all{words.begin(), words.end()};
  for (std::size_t first = 0; first < all.size(); first += each) {
    const Parts parts(all, first);
    const bool warpgroups = first % (2 * each) != 0;
    expect_compiles(product_kernel(parts, warpgroups), parts, warpgroups ? "sm_90a" : "sm_80");
  }
}

std::string differences(const Program& program, const KernelSource& source,
                        const std::vector<std::int64_t>& lengths, const Parts& parts,
                        std::size_t scalars) {
  RunInputs in;
  for (std::size_t i = 0; i < lengths.size(); ++i) in.extents[parts.lengths[i]] = lengths[i];
  in.scalars.assign(scalars, ScalarValue(0.5F));
  try {
    KernelRun run(program, in);
    run.emulate(source);
    return run.compare();
  } catch (const Error& error) {
    return error.what();
  }
}

TEST(Names, MeanTheSameInTheEmulator) {
  std::set<std::string> words;
  add_words(foreign, words);
  const std::vector<std::string> all{words.begin(), words.end()};
  for (std::size_t first = 0; first < all.size(); first += 20) {
    const Parts parts(all, first);
    SCOPED_TRACE(parts.program);
    EXPECT_EQ(differences(sum_of(parts), sum_kernel(parts, "sm_80"), {2, 3, 1, 2}, parts, each),
              "");
  }
  for (const char* name : {"exp2f", "memcpy", "main", "read"}) {
    Parts parts = ordinary;
    parts.program = name;
    EXPECT_EQ(differences(product_of(parts), product_kernel(parts, false), {70, 40, 48}, parts, 1),
              "");
  }
  const Parts clash({"p", "slot", "k_tile", "rows_left", "x", "x_stride_0", "x_tiles", "word",
                     "shared", "thread", "sum", "source", "tile_counter"},
                    0);
  for (const bool warpgroups : {false, true})
    EXPECT_EQ(
        differences(product_of(clash), product_kernel(clash, warpgroups), {70, 40, 48}, clash, 1),
        "");
}

TEST(Names, KernelsAreCalledWhatTheirProgramsAre) {
  EXPECT_EQ(entry_name("row_softmax"), "row_softmax");
  EXPECT_EQ(entry_name("double"), "double_kernel");
  EXPECT_EQ(entry_name("sinf"), "sinf_kernel");
  EXPECT_EQ(entry_name(std::string(3000, 'x')).size(), 128U);
}

TEST(Names, OfValuesAreCutToWhatAnIdentifierIs) {
  Names names;
  EXPECT_EQ(names.unique("two words\n"), "two_words_");
  EXPECT_EQ(names.unique("2nd"), "t2nd");
  EXPECT_EQ(names.unique("x"), "x");
  EXPECT_EQ(names.unique("x"), "x_2");
  EXPECT_EQ(names.unique("__LINE__"), "__LINE___2");
  EXPECT_EQ(names.unique("int"), "int_2");
  names.release("x");
  EXPECT_EQ(names.unique("x"), "x");
}

TEST(Names, OfValuesBreakNoComment) {
  Program (*const program)(const std::string&) = [](const std::string& label) {
    ProgramBuilder b("labelled");
    const Axis rows = b.parallel_tiles("rows", Extent("N")), d = b.whole("d", 16);
    const Tensor x = b.input("x", DType::f32, {Extent("N"), 16});
    const Tensor y = b.output("y", DType::f32, {Extent("N")});
    store(y(rows), reduce_sum(exp(load(x(rows, d))).named(label), d));
    return b.finish();
  };
  const Program odd = program("a \\\n} not C++ \\");
  Schedule schedule;
  schedule.tiles = {{"rows", 32}};
  const KernelSource source = generate(odd, schedule, find_target("sm_80"));
  KernelRun run(odd, {.extents = {{"N", 5}}});
  run.emulate(source);
  EXPECT_EQ(run.compare(), "");
}

}  // namespace
}  // namespace flashcore
