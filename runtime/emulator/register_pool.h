// The registers of a block, which its warpgroups give back and take.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace flashcore {

class RegisterPool {
 public:
  /// Of warpgroups whose threads begin with so many each.
  RegisterPool(std::size_t groups, int start) : start_(start), shares_(groups) {}
  void reset();

  /// A warpgroup sets the count of its threads; more than there are it gets once others have given
  /// them back. Returns how often it had got what it asked for before.
  std::uint32_t set(std::size_t group, int registers);
  /// Leaves the value that set() returned when the warpgroup has what it asked for.
  [[nodiscard]] const std::uint32_t* grants(std::size_t group) const {
    return &shares_[group].grants;
  }

  /// "; warpgroup 1 has 168 registers a thread and waits for 240, ...": those that wait.
  [[nodiscard]] std::string describe() const;

 private:
  /// Of a thread of a warpgroup.
  struct Share {
    int held = 0;
    int wanted = 0;  ///< 0: it waits for none
    std::uint32_t grants = 0;
  };
  void hand_out();

  int start_;
  int free_ = 0;  ///< of one thread of every warpgroup
  std::vector<Share> shares_;
};

}  // namespace flashcore
