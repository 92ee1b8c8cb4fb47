// Reading the JSON of files that somebody else may have written: every field has to be there and of
// its type, every number in its range, and none may be left over.
#pragma once

#include <cstdint>
#include <limits>
#include <optional>
#include <stdexcept>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "dsl/dtype.h"

namespace flashcore {

/// Takes the fields of an object one after another and knows when some are left. All of it throws
/// std::invalid_argument, or what nlohmann::json does.
class StrictFields {
 public:
  explicit StrictFields(const nlohmann::json& object) : object_(object) {
    if (!object.is_object()) throw std::invalid_argument("not an object");
  }
  /// Throws if the object has fields that nobody took.
  void finish() const {
    if (taken_ != object_.size()) throw std::invalid_argument("unknown fields");
  }

  const nlohmann::json& at(const char* name) {
    ++taken_;
    return object_.at(name);
  }
  template <class Integer>
  void whole(const char* name, Integer& value, std::int64_t least, std::int64_t most) {
    value = static_cast<Integer>(within(at(name), least, most));
  }
  void flag(const char* name, bool& value) { at(name).get_to(value); }
  void text(const char* name, std::string& value) { at(name).get_to(value); }
  void dtype(const char* name, DType& value) {
    const std::optional<DType> found = parse_dtype(at(name).get<std::string>());
    if (!found) throw std::invalid_argument("no dtype");
    value = *found;
  }
  template <class Element, class Read>
  void list(const char* name, std::vector<Element>& elements, const Read& read) {
    const nlohmann::json& array = at(name);
    // A parameter block of 4096 bytes has no room for more of anything.
    if (!array.is_array() || array.size() > 512) throw std::invalid_argument("no list");
    for (const nlohmann::json& element : array) elements.push_back(read(element));
  }

  static std::int64_t within(const nlohmann::json& number, std::int64_t least, std::int64_t most) {
    if (!number.is_number_integer()) throw std::invalid_argument("not a whole number");
    if (number.is_number_unsigned() &&
        number.get<std::uint64_t>() > std::uint64_t{std::numeric_limits<std::int64_t>::max()})
      throw std::invalid_argument("too large");
    const auto value = number.get<std::int64_t>();
    if (value < least || value > most) throw std::invalid_argument("out of range");
    return value;
  }

 private:
  const nlohmann::json& object_;
  std::size_t taken_ = 0;
};

}  // namespace flashcore
