#include "runtime/bundle/signature.h"

#include <algorithm>
#include <cerrno>
#include <cstring>

#include <fcntl.h>
#include <fmt/format.h>
#include <sodium.h>
#include <sys/stat.h>
#include <unistd.h>

#include "dsl/error.h"
#include "runtime/cache/directory.h"
#include "runtime/cache/trusted_file.h"

namespace flashcore {
namespace {

static_assert(PublicKey::size == crypto_sign_PUBLICKEYBYTES);
static_assert(Signature::size == crypto_sign_BYTES);
static_assert(secure_digest_bytes == crypto_generichash_BYTES);

constexpr std::string_view public_prefix = "ed25519:", secret_prefix = "ed25519-secret:";

// Before any use of the library; it may be called again, and by several threads.
void start() {
  static const int started = sodium_init();
  if (started < 0) throw InternalError("libsodium finds no random numbers");
}

// Of signatures, that they are of bundles, and of which form.
std::string signed_text(std::string_view message) {
  return "FlashCore bundle 1\n" + secure_digest_of(message);
}

template <std::size_t size>
std::string to_hex(const std::array<unsigned char, size>& bytes) {
  std::string text(2 * size + 1, '\0');
  sodium_bin2hex(text.data(), text.size(), bytes.data(), size);
  text.pop_back();
  return text;
}

template <std::size_t size>
bool from_hex(std::string_view text, std::array<unsigned char, size>& bytes) {
  std::size_t written = 0;
  const char* end = nullptr;
  return text.size() == 2 * size &&
         sodium_hex2bin(bytes.data(), size, text.data(), text.size(), nullptr, &written, &end) ==
             0 &&
         written == size && end == text.data() + text.size();
}

std::string_view without_space(std::string_view text) {
  constexpr const char* space = " \t\r\n";
  const std::size_t first = text.find_first_not_of(space);
  if (first == std::string_view::npos) return "";
  return text.substr(first, text.find_last_not_of(space) - first + 1);
}

[[noreturn]] void refuse_key(const std::string& path, std::string why, std::string fix) {
  throw CacheError({.what = fmt::format("the secret key {}", path),
                    .why = std::move(why),
                    .fix = std::move(fix),
                    .where = {}});
}

using Seed = std::array<unsigned char, crypto_sign_SEEDBYTES>;

}  // namespace

std::string secure_digest_of(std::string_view bytes) {
  start();
  std::string digest(secure_digest_bytes, '\0');
  crypto_generichash(reinterpret_cast<unsigned char*>(digest.data()), digest.size(),
                     reinterpret_cast<const unsigned char*>(bytes.data()), bytes.size(), nullptr,
                     0);
  return digest;
}

PublicKey PublicKey::from_text(std::string_view text) {
  std::array<unsigned char, size> bytes;
  if (!text.starts_with(public_prefix) || !from_hex(text.substr(public_prefix.size()), bytes))
    // Not what it says: a secret key may have been given in its place.
    throw CacheError({.what = fmt::format("a public key of {} characters", text.size()),
                      .why = "one is ed25519: and 64 hexadecimal digits",
                      .fix = "give the key that was printed when the pair was made",
                      .where = {}});
  return PublicKey(bytes);
}

std::string PublicKey::text() const { return std::string(public_prefix) + to_hex(bytes_); }

SecretKey::SecretKey(SecretKey&& other) noexcept : bytes_(other.bytes_) {
  sodium_memzero(other.bytes_.data(), size);
}

SecretKey::~SecretKey() { sodium_memzero(bytes_.data(), size); }

SecretKey SecretKey::generate() {
  start();
  static_assert(size == crypto_sign_SECRETKEYBYTES);
  SecretKey key;
  std::array<unsigned char, PublicKey::size> ignored;  // it is the second half of the secret one
  crypto_sign_keypair(ignored.data(), key.bytes_.data());
  return key;
}

SecretKey SecretKey::read(const std::string& path) {
  start();
  struct stat status {};
  if (stat(path.c_str(), &status) == 0 && (status.st_mode & (S_IRGRP | S_IROTH)) != 0)
    refuse_key(path, fmt::format("others may read it (mode {:04o})", status.st_mode & 07777),
               "chmod 600, and make a new pair if it was read");
  constexpr std::size_t largest = 4096;
  std::string content = read_trusted_file(path, largest);
  std::string_view text = without_space(content);
  Seed seed;
  const bool is_key =
      text.starts_with(secret_prefix) && from_hex(text.substr(secret_prefix.size()), seed);
  sodium_memzero(content.data(), content.size());
  if (!is_key) refuse_key(path, "it holds no secret key", "make a pair with generate_signing_key");
  SecretKey key;
  std::array<unsigned char, PublicKey::size> ignored;
  crypto_sign_seed_keypair(ignored.data(), key.bytes_.data(), seed.data());
  sodium_memzero(seed.data(), seed.size());
  return key;
}

void SecretKey::write(const std::string& path) const {
  Seed seed;
  crypto_sign_ed25519_sk_to_seed(seed.data(), bytes_.data());
  std::string text = std::string(secret_prefix) + to_hex(seed) + "\n";
  const Descriptor file(
      ::open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600));
  const bool written =
      file.is_open() &&
      ::write(file.number(), text.data(), text.size()) == static_cast<ssize_t>(text.size()) &&
      fsync(file.number()) == 0;
  const int error = errno;
  sodium_memzero(seed.data(), seed.size());
  sodium_memzero(text.data(), text.size());
  if (written) return;
  if (file.is_open()) unlink(path.c_str());
  refuse_key(path, fmt::format("it cannot be written: {}", std::strerror(error)),
             "name a new file, in a folder that you can write to");
}

PublicKey SecretKey::public_key() const {
  std::array<unsigned char, PublicKey::size> bytes;
  crypto_sign_ed25519_sk_to_pk(bytes.data(), bytes_.data());
  return PublicKey(bytes);
}

Signature SecretKey::sign(std::string_view message) const {
  const std::string text = signed_text(message);
  Signature signature{.signer = public_key(), .bytes = {}};
  crypto_sign_detached(signature.bytes.data(), nullptr,
                       reinterpret_cast<const unsigned char*>(text.data()), text.size(),
                       bytes_.data());
  return signature;
}

bool is_valid(const Signature& signature, std::string_view message) {
  const std::string text = signed_text(message);
  return crypto_sign_verify_detached(signature.bytes.data(),
                                     reinterpret_cast<const unsigned char*>(text.data()),
                                     text.size(), signature.signer.bytes().data()) == 0;
}

}  // namespace flashcore
