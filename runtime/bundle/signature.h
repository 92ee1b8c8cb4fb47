// Who made a file: Ed25519 signatures and BLAKE2b digests, both by libsodium. The digests of the
// cache find damage; these are for files that come from elsewhere, where somebody may want to be
// believed.
#pragma once

#include <array>
#include <string>
#include <string_view>

namespace flashcore {

constexpr std::size_t secure_digest_bytes = 32;

/// BLAKE2b of 256 bits, as raw bytes: nobody finds another content with the same one.
std::string secure_digest_of(std::string_view bytes);

/// What everybody may know of a signer.
class PublicKey {
 public:
  static constexpr std::size_t size = 32;

  explicit PublicKey(const std::array<unsigned char, size>& bytes) : bytes_(bytes) {}
  /// "ed25519:" and 64 hexadecimal digits. Throws CacheError.
  static PublicKey from_text(std::string_view text);
  [[nodiscard]] std::string text() const;
  [[nodiscard]] const std::array<unsigned char, size>& bytes() const { return bytes_; }
  bool operator==(const PublicKey&) const = default;

 private:
  std::array<unsigned char, size> bytes_;
};

struct Signature {
  static constexpr std::size_t size = 64;

  PublicKey signer;
  std::array<unsigned char, size> bytes;
};

/// What the signer alone has. It is wiped from memory, and no message holds it.
class SecretKey {
 public:
  static SecretKey generate();
  /// Of a file that `write` made, which nobody but its owner may be able to read. Throws
  /// CacheError.
  static SecretKey read(const std::string& path);
  /// Into a new file of mode 0600; one that is there stays as it is. Throws CacheError.
  void write(const std::string& path) const;
  SecretKey(SecretKey&& other) noexcept;
  SecretKey& operator=(SecretKey&&) = delete;
  ~SecretKey();

  [[nodiscard]] PublicKey public_key() const;
  /// Of a bundle's `message`: a signature says that it is one, so that it serves for nothing else.
  [[nodiscard]] Signature sign(std::string_view message) const;

 private:
  static constexpr std::size_t size = 64;
  SecretKey() = default;

  std::array<unsigned char, size> bytes_{};
};

/// Whether its signer signed exactly this message.
bool is_valid(const Signature& signature, std::string_view message);

}  // namespace flashcore
