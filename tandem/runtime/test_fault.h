// Faults in kernels, for tests: TANDEM_TEST_FAULT makes one rank of a first attempt
//
//   loop:RANK:STEP:N   compute for ever in its N-th kernel of that step's first pass (of as many as there
//   are,
//                      counted around), after a line on stderr that says where
//   lose:RANK:STEP:N   not send its N-th message of that step
//   slow:RANK:FACTOR   take that many times as long for each kernel
//   flip:RANK:STEP:N   turn a bit of a weight, before that step's first kernel that reads one; N < 0: of what
//                      the kernel number -N of a pass has computed
//   rust:RANK:STEP:N   turn a bit of the N-th tensor of those that the update before that step read (weights,
//                      masters, optimizer states; counted around), before that step's first kernel
//   bend:RANK:STEP:N   turn a bit of what that step's update writes as its N-th tensor of those
//
// A rank has a place (comm/places/place_page.h) wherever this means something.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "tandem/runtime/device.h"

namespace tandem {

class TestFault {
 public:
  static std::optional<TestFault> from_environment();  // throws ConfigError where it is none of these

  void before(const Program& program, const BoundCommand& item) const;
  bool loses(const BoundCommand& item) const;                  // a message
  void after(const BoundCommand& item, double seconds) const;  // that a kernel took

 private:
  bool is_mine() const;
  void flip(const TensorArg& tensor) const;
  void rust(const BoundCommand& item) const;
  void bend(const BoundCommand& item) const;

  enum class Kind { Loop, Lose, Slow, Flip, Rust, Bend };
  Kind kind_ = Kind::Slow;
  mutable bool done_ = false;
  mutable std::vector<TensorArg> seen_;  // state, in the update
  mutable int64_t messages_ = 0;         // of that step; one thread sends them
  int rank_ = 0;
  int64_t step_ = 0, number_ = 0;
  double factor_ = 1;
};

}  // namespace tandem
