#include "runtime/bundle/signers.h"

#include <algorithm>

#include <fmt/format.h>

#include "dsl/error.h"
#include "runtime/cache/trusted_file.h"
#include "runtime/environment.h"

namespace flashcore {
namespace {

constexpr std::size_t largest_list = std::size_t{1} << 20;

// One key a line, or several with commas or spaces between them; what follows a # is a remark.
std::vector<PublicKey> keys_in(std::string_view text) {
  std::vector<PublicKey> keys;
  while (!text.empty()) {
    std::string_view line = text.substr(0, text.find('\n'));
    text.remove_prefix(std::min(text.size(), line.size() + 1));
    line = line.substr(0, line.find('#'));
    constexpr const char* between = ", \t\r";
    while ((line.remove_prefix(std::min(line.size(), line.find_first_not_of(between))),
            !line.empty())) {
      const std::string_view word = line.substr(0, line.find_first_of(between));
      keys.push_back(PublicKey::from_text(word));
      line.remove_prefix(word.size());
    }
  }
  return keys;
}

[[noreturn]] void refuse(const std::string& path, std::string why, std::string fix) {
  throw CacheError({.what = fmt::format("the bundle {} is not taken", path),
                    .why = std::move(why),
                    .fix = std::move(fix),
                    .where = {}});
}

}  // namespace

std::optional<std::vector<PublicKey>> accepted_signers() {
  const std::optional<std::string> value = value_of(EnvironmentVariable::bundle_signers);
  if (!value) return std::nullopt;
  const bool is_file = value->find('/') != std::string::npos;
  std::vector<PublicKey> keys = keys_in(is_file ? read_trusted_file(*value, largest_list) : *value);
  if (keys.empty())
    throw CacheError(
        {.what = fmt::format("{}={}", name_of(EnvironmentVariable::bundle_signers), *value),
         .why = "there is no key in it",
         .fix = "list at least one public key, or unset it to take unsigned bundles",
         .where = {}});
  return keys;
}

void check_signature(const std::string& path, std::string_view message,
                     const std::optional<Signature>& signature,
                     const std::optional<std::vector<PublicKey>>& accepted) {
  const char* const variable = name_of(EnvironmentVariable::bundle_signers);
  if (!signature) {
    if (accepted)
      refuse(path,
             fmt::format("it is not signed, and {} lists {} whose bundles are taken", variable,
                         accepted->size() == 1 ? "the one signer" : "the signers"),
             "sign it with the key of one of them");
    return;
  }
  if (!is_valid(*signature, message))
    refuse(path,
           fmt::format("its signature is not one of {}: it was changed after it was signed",
                       signature->signer.text()),
           "bring it along again, or build and sign it again");
  if (accepted &&
      std::find(accepted->begin(), accepted->end(), signature->signer) == accepted->end())
    refuse(path,
           fmt::format("{} signed it, whom {} does not list", signature->signer.text(), variable),
           "sign it with a key that is listed, or list this one if you trust it");
}

}  // namespace flashcore
