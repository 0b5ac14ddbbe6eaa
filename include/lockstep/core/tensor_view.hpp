/// \file
/// A non-owning view of a batch. Invariant: elements are contiguous, example after example.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <type_traits>

#include "lockstep/core/error.hpp"
#include "lockstep/core/shape.hpp"

namespace lockstep {

/// A view of `count` examples of one Shape, row after row. Does not own the memory.
/// \code
///   lockstep::TensorView<const float> images(pixels.data(), 64, lockstep::shape(28, 28, 1));
///   std::span<const float> third = images.row(2);   // 784 numbers
/// \endcode
template <class T>
class TensorView {
 public:
  using value_type = std::remove_const_t<T>;

  constexpr TensorView() = default;
  constexpr TensorView(T* data, std::size_t count, Shape example)
      : data_(data), count_(count), example_(example) {}
  /// Views all of `elements` as examples. \throws UsageError if the size is not a multiple of the
  /// example's.
  TensorView(std::span<T> elements, Shape example)
      : data_(elements.data()), count_(elements.size() / example.size()), example_(example) {
    if (count_ * example.size() != elements.size())
      throw UsageError(
          "tensor_view: {} elements are not a whole number of examples of shape {}; check the shape",
          elements.size(), to_string(example));
  }
  /// Converts a view of mutable elements to a view of const ones.
  constexpr operator TensorView<const T>() const { return {data_, count_, example_}; }

  constexpr T* data() const { return data_; }
  constexpr std::size_t count() const { return count_; }  ///< examples
  constexpr const Shape& example_shape() const { return example_; }
  constexpr std::size_t size() const { return count_ * example_.size(); }  ///< elements
  constexpr std::span<T> elements() const { return {data_, size()}; }
  constexpr std::span<T> row(std::size_t i) const {
    return {data_ + i * example_.size(), example_.size()};
  }
  constexpr TensorView rows(std::size_t first, std::size_t count) const {
    return {data_ + first * example_.size(), count, example_};
  }

 private:
  T* data_ = nullptr;
  std::size_t count_ = 0;
  Shape example_{};
};

}  // namespace lockstep
