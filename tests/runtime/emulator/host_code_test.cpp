// Host code in the cache: by what it is found, and what of a file is taken.
#include "runtime/emulator/host_code.h"

#include <functional>
#include <set>

#include <gtest/gtest.h>

#include "runtime/emulator/host_toolchain.h"

namespace flashcore {
namespace {

HostCodeOrigin origin() {
  return {.boot = "b1", .compiler = "c++ 12", .flags = {"-O0", "-g"}, .text = "int x;"};
}

TEST(HostCode, EverythingThatDecidesItChangesItsKey) {
  const std::vector<std::function<void(HostCodeOrigin&)>> changes{
      [](HostCodeOrigin&) {},
      [](HostCodeOrigin& o) { o.boot = "b2"; },  // another machine, or this one started anew
      [](HostCodeOrigin& o) { o.compiler = "c++ 13"; },
      [](HostCodeOrigin& o) { o.flags[0] = "-O2"; },
      [](HostCodeOrigin& o) { o.flags.pop_back(); },
      [](HostCodeOrigin& o) { o.flags = {"-O0-g"}; },
      [](HostCodeOrigin& o) { o.text += " "; },
  };
  std::set<std::string> names, preimages;
  for (const auto& change : changes) {
    HostCodeOrigin changed = origin();
    change(changed);
    const CacheKey key = host_code_key(changed, "k");
    names.insert(key.name);
    preimages.insert(key.preimage);
  }
  EXPECT_EQ(names.size(), changes.size());
  EXPECT_EQ(preimages.size(), changes.size());
  EXPECT_EQ(host_code_key(origin(), "k").name, host_code_key(origin(), "other").name);
}

TEST(HostCode, OnlyAWholeFileOfItsKeyIsTaken) {
  const CacheKey key = host_code_key(origin(), "k");
  const std::string file = encode_host_code(key, "library");
  EXPECT_EQ(decode_host_code(key, file), "library");
  HostCodeOrigin other = origin();
  other.text = "int y;";
  EXPECT_FALSE(decode_host_code(host_code_key(other, "k"), file));
  for (std::size_t i = 0; i < file.size(); ++i) {
    EXPECT_FALSE(decode_host_code(key, file.substr(0, i)));
    std::string damaged = file;
    damaged[i] = static_cast<char>(damaged[i] ^ 1);
    EXPECT_FALSE(decode_host_code(key, damaged));
  }
}

TEST(HostCode, TheMachineAndItsCompilerSayWhoTheyAre) {
  EXPECT_GT(boot_of_machine().size(), 30U);
  const std::string compiler = find_host_compiler(""), identity = identity_of_compiler(compiler);
  EXPECT_EQ(identity, identity_of_compiler(compiler));
  EXPECT_NE(identity.find(compiler + "\n"), std::string::npos) << identity;
  EXPECT_NE(identity, identity_of_compiler("/bin/true"));
}

}  // namespace
}  // namespace flashcore
