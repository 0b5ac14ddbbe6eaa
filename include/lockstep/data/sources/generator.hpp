/// \file
/// `generator` computes examples from their number. Invariant: an example is a function of its
/// number alone, so any worker can compute its share without the others.
#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <type_traits>
#include <utility>

#include "lockstep/concepts/dataset.hpp"
#include "lockstep/core/count.hpp"
#include "lockstep/core/shape.hpp"
#include "lockstep/data/convert.hpp"
#include "lockstep/data/operations/map.hpp"
#include "lockstep/data/pipe.hpp"
#include "lockstep/data/scratch.hpp"

namespace lockstep {

namespace detail {
/// Writes the number itself. Also replaces a generator of the wrong type, so that the static_assert
/// is the only error.
struct Numbered {
  void operator()(std::uint64_t number, auto& example) const {
    example.x[0] = static_cast<float>(number);
  }
};
}  // namespace detail

namespace pipeline {

/// The signature of a generator function.
template <class Fn, class Target>
concept Generates = std::invocable<const Fn&, std::uint64_t, Example<Target>&>;

/// `count` examples computed by `Fn`.
template <class Target, class Fn>
class Generator {
 public:
  using fields = Labeled<Target>;
  static constexpr bool generated = true;

  Generator(std::uint64_t count, Shape shape, Shape target_shape, Fn fn)
      : count_(count),
        shape_(shape),
        target_shape_(target_shape),
        fn_(std::make_shared<const Fn>(std::move(fn))) {}

  Shape shape(std::size_t field = 0) const { return field == 0 ? shape_ : target_shape_; }
  std::optional<std::uint64_t> size() const { return count_; }
  Counter indices(Pass) const { return Counter(count_); }

  template <class T>
  void gather(Pass, std::span<const Item> items, Rows<T, fields> to) const {
    const std::size_t n = shape_.size(), m = target_shape_.size();
    for (std::size_t i = 0; i < items.size() && to.wants_values(); ++i) {
      const Example<Target> example{row_of_field<Generator, 0, float>(to.x(), i, n),
                                    row_of_field<Generator, 1, Target>(to.y(), i, m)};
      make(items[i].index, example);
      put<float>(example.x, to.x(), i);
      put<Target>(example.y, to.y(), i);
    }
  }

 private:
  void make(std::uint64_t number, Example<Target> example) const { (*fn_)(number, example); }

  std::uint64_t count_;
  Shape shape_, target_shape_;
  // Held by pointer: a lambda with captures is not assignable, but a Dataset must be.
  std::shared_ptr<const Fn> fn_;
};

}  // namespace pipeline

/// A data set of `count` computed examples of `shape`: `fn(number, example)` writes all of
/// `example.x` and `example.y` from the number of the example, 0 to count - 1. `Target` is
/// std::int32_t for class labels, float for real values of `target_shape`. `fn` must be callable as
/// const and from several threads at once, and must produce the same example at each call: for
/// noise, use a Philox keyed by the number.
///
/// A generator that only runs forward (tf.data's `from_generator`) cannot number its examples:
/// every worker would have to run all of it, and a shuffle to store all of it. Let it fill two
/// vectors and pass them to `tensors`.
/// \code
///   auto sines = lockstep::generator<float>(1'000, lockstep::shape(1), lockstep::shape(1),
///       [](std::uint64_t number, auto& example) {
///         example.x[0] = 0.01f * static_cast<float>(number);
///         example.y[0] = std::sin(example.x[0]);
///       });
/// \endcode
template <class Target = std::int32_t, class Fn>
auto generator(Count count, Shape shape, Shape target_shape, Fn fn) {
  const std::uint64_t examples = count.checked("generator", "give at least 0 examples");
  constexpr bool kind = std::same_as<Target, std::int32_t> || std::same_as<Target, float>;
  constexpr bool fits = kind && pipeline::Generates<Fn, Target>;
  static_assert(kind,
                "lockstep::generator: targets are std::int32_t (class labels) or float (real "
                "values); choose one of them");
  static_assert(
      fits || !kind,
      "lockstep::generator: the function must be callable as const with 'std::uint64_t number, "
      "Example<Target>& example'; declare its parameter 'auto& example'");
  if constexpr (fits)
    return pipeline::Generator<Target, Fn>(examples, shape, target_shape, std::move(fn));
  else
    return pipeline::Generator<std::int32_t, detail::Numbered>(examples, shape, target_shape, {});
}

}  // namespace lockstep
