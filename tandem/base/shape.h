// A tensor's logical extents, outermost first. Always dense and row-major.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <string>
#include <utility>
#include <vector>

namespace tandem {

class Shape {
 public:
  Shape() = default;
  Shape(std::initializer_list<int64_t> dims) : dims_(dims) {}
  explicit Shape(std::vector<int64_t> dims) : dims_(std::move(dims)) {}

  int rank() const { return static_cast<int>(dims_.size()); }
  int64_t operator[](int dim) const { return dims_[static_cast<size_t>(dim)]; }
  int64_t last() const { return dims_.back(); }
  int64_t elems() const {
    int64_t n = 1;
    for (int64_t d : dims_) n *= d;
    return n;
  }
  int64_t rows() const { return dims_.empty() ? 1 : elems() / dims_.back(); }  // all but the last dim
  const std::vector<int64_t>& dims() const { return dims_; }
  bool operator==(const Shape&) const = default;

 private:
  std::vector<int64_t> dims_;
};

std::string to_string(const Shape& shape);  // "[2,3]"

}  // namespace tandem
