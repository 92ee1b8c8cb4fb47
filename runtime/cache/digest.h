// Content digests: 128 bits of XXH3, fast enough to check every file on every load. They find
// damage and tell keys apart; they are no defence against a forger, the directory's policy is.
#pragma once

#include <string>
#include <string_view>

namespace flashcore {

constexpr std::size_t digest_bytes = 16;

/// Two digits a byte.
std::string hexadecimal(std::string_view bytes);

/// Sixteen raw bytes.
std::string raw_digest_of(std::string_view bytes);

/// The same as 32 hexadecimal digits.
std::string digest_of(std::string_view bytes);

/// The digest of a file's content, mapped, not read into memory; empty when it cannot be read.
std::string digest_of_file(const std::string& path);

}  // namespace flashcore
