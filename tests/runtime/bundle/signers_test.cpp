#include "runtime/bundle/signers.h"

#include <filesystem>

#include <gmock/gmock.h>
#include <sys/stat.h>

#include "dsl/error.h"
#include "tests/runtime/support/scoped_environment.h"
#include "tests/runtime/support/temporary_directory.h"

namespace flashcore {
namespace {

namespace fs = std::filesystem;
using testing::ElementsAre;
using testing::HasSubstr;
using Accepted = std::optional<std::vector<PublicKey>>;

template <class Call>
std::string refusal_of(Call call) {
  try {
    call();
  } catch (const CacheError& error) {
    return error.what();
  }
  return "none";
}

Accepted accepted_of(const std::string& value) {
  const test::ScopedEnvironment environment(
      test::ScopedEnvironment::Variables{{"FLASHCORE_BUNDLE_SIGNERS", value}});
  return accepted_signers();
}

TEST(Signers, AreListedOrInAFile) {
  const PublicKey a = SecretKey::generate().public_key(), b = SecretKey::generate().public_key();
  EXPECT_FALSE(accepted_of(""));
  EXPECT_THAT(*accepted_of(a.text()), ElementsAre(a));
  EXPECT_THAT(*accepted_of(a.text() + "," + b.text()), ElementsAre(a, b));
  EXPECT_THAT(*accepted_of(" " + a.text() + ", " + b.text() + " "), ElementsAre(a, b));
  const test::TemporaryDirectory temporary;
  test::write_file(temporary / "signers",
                   "# who builds\n" + a.text() + "  # the farm\n\r\n" + b.text());
  EXPECT_THAT(*accepted_of(temporary / "signers"), ElementsAre(a, b));
}

TEST(Signers, AnythingElseIsAnErrorAndNeverEverybody) {
  const test::TemporaryDirectory temporary;
  test::write_file(temporary / "empty", "# nobody\n");
  EXPECT_THAT(refusal_of([&] { accepted_of(temporary / "empty"); }),
              HasSubstr("there is no key in it"));
  EXPECT_THAT(refusal_of([&] { accepted_of(temporary / "none"); }),
              HasSubstr("No such file or directory"));
  EXPECT_THAT(refusal_of([&] { accepted_of(temporary / "none/signers"); }),
              HasSubstr("its folder cannot be opened"));
  EXPECT_THAT(refusal_of([] { accepted_of("off"); }), HasSubstr("64 hexadecimal digits"));
  EXPECT_THAT(refusal_of([] { accepted_of(" "); }), HasSubstr("there is no key in it"));
}

TEST(Signers, AreReadFromAFileThatOthersCannotHaveWritten) {
  const test::TemporaryDirectory temporary;
  const std::string path = temporary / "signers";
  test::write_file(path, SecretKey::generate().public_key().text());
  const auto refusal = [&](const std::string& of) { return refusal_of([&] { accepted_of(of); }); };
  EXPECT_EQ(refusal(path), "none");
  fs::permissions(path, fs::perms(0646));
  EXPECT_THAT(refusal(path), HasSubstr("the file: others may write to it (mode 0646)"));
  fs::permissions(path, fs::perms(0644));
  fs::permissions(temporary.path(), fs::perms(0777));
  EXPECT_THAT(refusal(path), HasSubstr("its folder: others may write to it (mode 0777)"));
  fs::permissions(temporary.path(), fs::perms(0700));
  fs::create_symlink(path, temporary / "link");
  EXPECT_THAT(refusal(temporary / "link"), HasSubstr("it is a symbolic link"));
  ASSERT_EQ(mkfifo((temporary / "pipe").c_str(), 0600), 0);
  EXPECT_THAT(refusal(temporary / "pipe"), HasSubstr("it is no regular file"));
  EXPECT_THAT(refusal(temporary.path() + "/"), HasSubstr("it is no regular file"));
  test::write_file(temporary / "long", std::string((1U << 20) + 1, '\n'));
  EXPECT_THAT(refusal(temporary / "long"), HasSubstr("more than the 1048576 bytes"));
}

TEST(Signers, ASignatureHasToBeRightAndOneOfTheirs) {
  const SecretKey ours = SecretKey::generate(), theirs = SecretKey::generate();
  const Accepted anyone, us = std::vector{ours.public_key()};
  const auto refusal = [](const std::optional<Signature>& signature, const Accepted& accepted) {
    return refusal_of([&] { check_signature("/a.fcb", "message", signature, accepted); });
  };
  EXPECT_EQ(refusal(std::nullopt, anyone), "none");
  EXPECT_EQ(refusal(theirs.sign("message"), anyone), "none");
  EXPECT_EQ(refusal(ours.sign("message"), us), "none");
  EXPECT_THAT(refusal(std::nullopt, us), HasSubstr("the bundle /a.fcb is not taken"));
  EXPECT_THAT(refusal(std::nullopt, us), HasSubstr("it is not signed"));
  EXPECT_THAT(refusal(theirs.sign("message"), us),
              HasSubstr(theirs.public_key().text() + " signed it, whom"));
  EXPECT_THAT(refusal(ours.sign("other"), us), HasSubstr("it was changed after it was signed"));
  EXPECT_THAT(refusal(ours.sign("other"), anyone), HasSubstr("it was changed after it was signed"));
  // A signer who is listed, named by a signature that another made.
  EXPECT_THAT(
      refusal(Signature{.signer = ours.public_key(), .bytes = theirs.sign("message").bytes}, us),
      HasSubstr("it was changed after it was signed"));
}

}  // namespace
}  // namespace flashcore
