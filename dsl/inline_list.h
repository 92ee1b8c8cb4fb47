// A few values on the stack of a call. Room for as many as there may be is not cleared: that would
// take as long as much of a launch.
#pragma once

#include <cstddef>
#include <new>
#include <span>
#include <type_traits>

namespace flashcore {

template <class Value, std::size_t capacity>
class InlineList {
 public:
  Value& push(const Value& value) { return *new (&slots_[count_++]) Value(value); }
  /// What `make` returns, made in its place: to copy what was written just now, processors wait for it.
  template <class Make>
  Value& push_made(const Make& make) {
    return *new (&slots_[count_++]) Value(make());
  }
  [[nodiscard]] std::span<const Value> span() const {
    return {reinterpret_cast<const Value*>(slots_), count_};
  }

 private:
  static_assert(std::is_trivially_destructible_v<Value>);
  struct alignas(Value) Slot {
    std::byte bytes[sizeof(Value)];
  };
  Slot slots_[capacity];
  std::size_t count_ = 0;
};

}  // namespace flashcore
