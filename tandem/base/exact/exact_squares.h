// The sum of the squares of fp32 numbers, exactly, as one integer of 640 bits: no order and no grouping of
// the numbers can be seen in it. For sums that must not show which rank has added up which part.
//
// Limbs of 32 bits travel between ranks as doubles, which add up without rounding.
#pragma once

#include <cstdint>
#include <span>

namespace tandem {

class ExactSquares {
 public:
  static constexpr int kLimbs = 20;  // the first counts units of 2^-298, the square of the smallest number

  void add(std::span<const float> values);
  void add(const ExactSquares& other);

  bool is_finite() const { return !has_other_; }  // no infinity, no NaN; those are left out of the sum
  void write(std::span<double> limbs) const;      // kLimbs integers below 2^32

  // The rounded sum that limbs stand for; those of up to a million ranks may have been added up.
  static double total(std::span<const double> limbs);
  // Of several of them, one behind the other.
  static double total_of_all(std::span<const double> limbs);

 private:
  void add_some(std::span<const float> values);
  void carry();

  uint64_t limbs_[kLimbs] = {};
  bool has_other_ = false;
};

}  // namespace tandem
