#include "runtime/cache/key.h"

#include <functional>
#include <set>

#include <gmock/gmock.h>

#include "runtime/cache/digest.h"
#include "tests/runtime/support/kernels.h"

namespace flashcore {
namespace {

struct Inputs {
  KernelSource source = test::scale_kernel();
  std::string architecture = "sm_80";
  std::vector<std::string> options{"--std=c++17", "-v"};
  Toolchain toolchain{.version = {13, 0}, .digest = "0123"};

  [[nodiscard]] CacheKey key() const { return make_key(source, architecture, options, toolchain); }
};

TEST(CacheKey, EveryFieldThatReachesTheCompilerChangesIt) {
  const std::vector<std::function<void(Inputs&)>> changes{
      [](Inputs&) {},
      [](Inputs& i) { i.source.entry = "scaled"; },
      [](Inputs& i) { i.source.prelude.push_back(' '); },
      [](Inputs& i) { i.source.body.push_back(' '); },
      [](Inputs& i) { i.architecture = "sm_86"; },
      [](Inputs& i) { i.architecture = "sm_80a"; },
      [](Inputs& i) { i.options.pop_back(); },
      [](Inputs& i) { i.options.emplace_back("--fmad=false"); },
      [](Inputs& i) { std::swap(i.options[0], i.options[1]); },
      [](Inputs& i) { i.options = {"--std=c++17-v"}; },  // the same letters in one option
      [](Inputs& i) { i.toolchain.version.major = 12; },
      [](Inputs& i) { i.toolchain.version.minor = 5; },
      [](Inputs& i) { i.toolchain.digest = "0124"; },
  };
  std::set<std::string> names, preimages;
  for (const auto& change : changes) {
    Inputs inputs;
    change(inputs);
    names.insert(inputs.key().name);
    preimages.insert(inputs.key().preimage);
  }
  EXPECT_EQ(names.size(), changes.size());
  EXPECT_EQ(preimages.size(), changes.size());
}

TEST(CacheKey, TellsWhatWasAskedForApartFromTheCompiler) {
  const CacheKey key = Inputs().key();
  const auto asks_the_same = [&](const std::function<void(Inputs&)>& change) {
    Inputs inputs;
    change(inputs);
    const CacheKey other = inputs.key();
    const bool by_name =
        other.name.substr(0, other.asked_name) == key.name.substr(0, key.asked_name);
    EXPECT_EQ(by_name, key.asks_for(other.preimage));
    return by_name;
  };
  EXPECT_TRUE(asks_the_same([](Inputs& i) { i.toolchain = {.version = {12, 9}, .digest = "9"}; }));
  EXPECT_TRUE(asks_the_same([](Inputs& i) { i.options.emplace_back("--no-cache"); }));
  EXPECT_FALSE(asks_the_same([](Inputs& i) { i.architecture = "sm_86"; }));
  EXPECT_FALSE(asks_the_same([](Inputs& i) { i.source.entry = "scaled"; }));
  EXPECT_FALSE(asks_the_same([](Inputs& i) { i.source.body.push_back(' '); }));
  EXPECT_FALSE(make_key(std::vector<std::string_view>{"a"}, "").asks_for("1:a\n"));
}

// An entry tells how its kernel is launched, so kernels of one text that differ in that are two.
TEST(CacheKey, WhatTheLaunchNeedsChangesIt) {
  const std::vector<std::function<void(KernelSource&)>> changes{
      [](KernelSource&) {},
      [](KernelSource& s) { s.split_registers = 64; },
      [](KernelSource& s) { s.tensors[0].alignment = 16; },
      [](KernelSource& s) { s.grid.clear(); },
      [](KernelSource& s) { s.shared_bytes = 1024; },
      [](KernelSource& s) { s.persistent = true; },
  };
  std::set<std::string> names;
  for (const auto& change : changes) {
    Inputs inputs;
    change(inputs.source);
    names.insert(inputs.key().name);
  }
  EXPECT_EQ(names.size(), changes.size());
}

TEST(CacheKey, TheNameOfTheProgramDoesNotChangeIt) {
  Inputs inputs;
  inputs.source.name = "another";
  EXPECT_EQ(inputs.key().name, Inputs().key().name);
}

TEST(CacheKey, FieldsCannotFlowIntoOneAnother) {
  const auto name = [](std::string entry, std::string prelude, std::string body) {
    Inputs inputs;
    inputs.source.entry = std::move(entry);
    inputs.source.prelude = std::move(prelude);
    inputs.source.body = std::move(body);
    return inputs.key().name;
  };
  EXPECT_NE(name("ab", "c", "d"), name("a", "bc", "d"));
  EXPECT_EQ(name("a", "bc", "d"), name("a", "b", "cd"));  // one text for the compiler
}

TEST(Digest, IsTheSameEverywhere) {
  EXPECT_EQ(digest_of(""), "99aa06d3014798d86001c324468d497f");  // as published for XXH3-128
  EXPECT_EQ(digest_of("kernel").size(), 32U);
  EXPECT_NE(digest_of("kernel"), digest_of("kernem"));
}

}  // namespace
}  // namespace flashcore
