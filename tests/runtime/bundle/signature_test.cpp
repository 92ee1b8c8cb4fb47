#include "runtime/bundle/signature.h"

#include <filesystem>

#include <gmock/gmock.h>

#include "dsl/error.h"
#include "tests/runtime/support/temporary_directory.h"

namespace flashcore {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;

template <class Call>
std::string refusal_of(Call call) {
  try {
    call();
  } catch (const CacheError& error) {
    return error.what();
  }
  return "none";
}

TEST(Signature, OfThisMessageByThisSignerAlone) {
  const SecretKey key = SecretKey::generate(), other = SecretKey::generate();
  const Signature signature = key.sign("message");
  EXPECT_EQ(signature.signer, key.public_key());
  EXPECT_TRUE(is_valid(signature, "message"));
  EXPECT_FALSE(is_valid(signature, "Message"));
  EXPECT_FALSE(is_valid(signature, ""));
  EXPECT_FALSE(is_valid({.signer = other.public_key(), .bytes = signature.bytes}, "message"));
  for (std::size_t at = 0; at < Signature::size; ++at) {
    Signature changed = signature;
    changed.bytes[at] ^= 1;
    EXPECT_FALSE(is_valid(changed, "message")) << at;
  }
}

TEST(Signature, TheSameMessageHasTheSameSignature) {
  const SecretKey key = SecretKey::generate();
  EXPECT_EQ(key.sign("message").bytes, key.sign("message").bytes);
}

TEST(SecureDigest, IsBlake2bOf32Bytes) {
  // RFC 7693's algorithm, as hashlib.blake2b(b"abc", digest_size=32) gives it.
  std::string hex;
  for (const char byte : secure_digest_of("abc"))
    hex += fmt::format("{:02x}", static_cast<unsigned char>(byte));
  EXPECT_EQ(hex, "bddd813c634239723171ef3fee98579b94964e3bb1cb3e427262c8c068d52319");
}

TEST(PublicKey, ComesBackFromItsText) {
  const PublicKey key = SecretKey::generate().public_key();
  EXPECT_EQ(PublicKey::from_text(key.text()), key);
  EXPECT_EQ(key.text().size(), 8U + 64U);
  const std::string text = key.text();
  for (const std::string& wrong :
       {std::string(), text.substr(8), text.substr(0, 71), text + "0", "ED25519:" + text.substr(8),
        text.substr(0, 71) + "g", std::string("ed25519:") + std::string(64, ' ')})
    EXPECT_THAT(refusal_of([&] { PublicKey::from_text(wrong); }),
                HasSubstr("one is ed25519: and 64 hexadecimal digits"))
        << wrong;
}

TEST(SecretKey, ComesBackFromItsFile) {
  const test::TemporaryDirectory temporary;
  const std::string path = temporary / "signer.key";
  const SecretKey key = SecretKey::generate();
  key.write(path);
  EXPECT_EQ(fs::status(path).permissions(), fs::perms(0600));
  EXPECT_EQ(SecretKey::read(path).public_key(), key.public_key());
  EXPECT_TRUE(is_valid(SecretKey::read(path).sign("message"), "message"));
}

TEST(SecretKey, ReplacesNoFileAndFollowsNoLink) {
  const test::TemporaryDirectory temporary;
  const SecretKey key = SecretKey::generate();
  test::write_file(temporary / "there", "mine");
  EXPECT_THAT(refusal_of([&] { key.write(temporary / "there"); }), HasSubstr("File exists"));
  EXPECT_EQ(test::read_file(temporary / "there"), "mine");
  fs::create_symlink(temporary / "target", temporary / "link");
  EXPECT_THAT(refusal_of([&] { key.write(temporary / "link"); }), HasSubstr("cannot be written"));
  EXPECT_FALSE(fs::exists(temporary / "target"));
}

TEST(SecretKey, IsReadFromAFileOfItsOwnersAlone) {
  const test::TemporaryDirectory temporary;
  const std::string path = temporary / "signer.key";
  SecretKey::generate().write(path);
  const auto refusal = [&] { return refusal_of([&] { SecretKey::read(path); }); };
  fs::permissions(path, fs::perms(0640));
  EXPECT_THAT(refusal(), HasSubstr("others may read it (mode 0640)"));
  fs::permissions(path, fs::perms(0620));
  EXPECT_THAT(refusal(), HasSubstr("others may write to it (mode 0620)"));
  fs::permissions(path, fs::perms(0600));
  EXPECT_EQ(refusal(), "none");
  // What it holds is in no message.
  const std::string secret = test::read_file(path);
  test::write_file(path, secret.substr(0, 60));
  EXPECT_THAT(refusal(), HasSubstr("it holds no secret key"));
  EXPECT_THAT(refusal(), testing::Not(HasSubstr(secret.substr(15, 20))));
}

}  // namespace
}  // namespace flashcore
