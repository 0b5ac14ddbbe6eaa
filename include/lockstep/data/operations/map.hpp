/// \file
/// `map` applies a function to each example. Invariants: the function works in float, whatever type
/// the device computes in; a random map draws from a generator keyed by (seed, pass, position in
/// the pipeline, ordinal), so its draws depend neither on how a batch is split nor on the thread
/// that gathers it.
#pragma once

#include <algorithm>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <type_traits>
#include <utility>

#include "lockstep/concepts/dataset.hpp"
#include "lockstep/core/rng.hpp"
#include "lockstep/core/shape.hpp"
#include "lockstep/data/convert.hpp"
#include "lockstep/data/operations/example_draws.hpp"
#include "lockstep/data/pipe.hpp"
#include "lockstep/data/scratch.hpp"
#include "lockstep/data/sources/tensors.hpp"

namespace lockstep {

/// One example as a mapped function sees it; the function may write to both spans. `Target` is
/// std::int32_t for class labels, float for real values.
template <class Target = std::int32_t>
struct Example {
  std::span<float> x;
  std::span<Target> y;
};

namespace pipeline {

/// Row `i` of a destination, of `count` elements of type E, to be filled by a function of the user:
/// the row itself if the field is wanted and has that type, otherwise scratch, from which `put`
/// copies.
template <class Owner, int Use, class E, class Y>
std::span<E> row_of_field(Y* rows, std::size_t i, std::size_t count) {
  if constexpr (std::same_as<Y, E>)
    if (rows != nullptr) return {rows + i * count, count};
  return scratch<Owner, Use, E>(count);
}
template <class E, class Y>
void put(std::span<const E> row, Y* rows, std::size_t i) {
  if constexpr (!std::same_as<Y, E>)
    if (rows != nullptr) detail::copy_row(row.data(), rows + i * row.size(), row.size());
}

/// Callable as `fn(example)`, or, for a random map, as `fn(example, draws)`.
template <class Fn, class Target>
concept PlainMap = std::invocable<const Fn&, Example<Target>&>;
template <class Fn, class Target>
concept RandomMap = !PlainMap<Fn, Target> && std::invocable<const Fn&, Example<Target>&, Philox&>;
/// Callable as `fn(in, out)`, or, for a random map, as `fn(in, out, draws)`.
template <class Fn>
concept PlainShapeMap = std::invocable<const Fn&, std::span<const float>, std::span<float>>;
template <class Fn>
concept RandomShapeMap =
    !PlainShapeMap<Fn> &&
    std::invocable<const Fn&, std::span<const float>, std::span<float>, Philox&>;

/// `D` with `Fn` applied to each example in place.
template <Dataset D, class Fn>
class Map : public ExampleStage<D> {
  using Target = target_of<D>;

 public:
  using element_type = float;
  static constexpr bool in_memory = false;
  static constexpr bool random = RandomMap<Fn, Target>;
  static constexpr std::size_t random_map_count = random_maps<D> + (random ? 1 : 0);

  Map(D source, Fn fn)
      : ExampleStage<D>(std::move(source)), fn_(std::make_shared<const Fn>(std::move(fn))) {}

  template <class T>
  void gather(Pass pass, std::span<const Item> items, RowsOf<D, T> to) const {
    const std::size_t n = this->shape().size(), m = this->shape(target_field<D>).size();
    if constexpr (std::same_as<T, float>) return gather_in_place(pass, items, to);
    if (to.w() != nullptr) this->source().gather(pass, items, to.only(FieldRole::weight));
    for (std::size_t i = 0; i < items.size() && to.wants_values(); ++i) {
      const Example<Target> example{row_of_field<Map, 0, float>(to.x(), i, n),
                                    row_of_field<Map, 1, Target>(to.y(), i, m)};
      this->source().gather(pass, items.subspan(i, 1),
                            RowsOf<D, float>(example.x.data(), example.y.data()));
      call(pass, items[i], example);
      put<float>(example.x, to.x(), i);
      put<Target>(example.y, to.y(), i);
    }
  }

  const Fn& function() const { return *fn_; }
  const D& upstream() const { return this->source(); }

 private:
  /// Gathers the source's examples where they go, or in scratch if a field is not wanted.
  void gather_in_place(Pass pass, std::span<const Item> items, RowsOf<D, float> to) const {
    if (!to.wants_values()) return this->source().gather(pass, items, to);
    const std::size_t n = this->shape().size(), m = this->shape(target_field<D>).size();
    constexpr std::size_t block = 64;  // bounds the scratch
    for (std::size_t first = 0; first < items.size(); first += block) {
      const auto some = items.subspan(first, std::min(block, items.size() - first));
      RowsOf<D, float> here = to.after(first, *this);
      float* const x = here.x() != nullptr ? here.x() : scratch<Map, 0>(block * n).data();
      Target* const y = here.y() != nullptr ? here.y() : scratch<Map, 1, Target>(block * m).data();
      here[0] = x;
      here[target_field<D>] = y;
      this->source().gather(pass, some, here);
      for (std::size_t i = 0; i < some.size(); ++i)
        call(pass, some[i], {{x + i * n, n}, {y + i * m, m}});
    }
  }
  void call(Pass pass, const Item& item, Example<Target> example) const {
    if constexpr (random) {
      Philox draws = example_draws(pass, "map", random_maps<D>, item.ordinal);
      (*fn_)(example, draws);
    } else {
      (*fn_)(example);
    }
  }

  // Held by pointer: a lambda with captures is not assignable, but a Dataset must be.
  std::shared_ptr<const Fn> fn_;
};

/// `D` with features of shape `To`, which `Fn` computes from the old ones.
template <Shape To, Dataset D, class Fn>
class ShapeMap : public ExampleStage<D> {
  using Target = target_of<D>;

 public:
  using element_type = float;
  static constexpr bool in_memory = false;
  static constexpr bool random = RandomShapeMap<Fn>;
  static constexpr std::size_t random_map_count = random_maps<D> + (random ? 1 : 0);

  ShapeMap(D source, Fn fn)
      : ExampleStage<D>(std::move(source)), fn_(std::make_shared<const Fn>(std::move(fn))) {}
  Shape shape(std::size_t field = 0) const { return field == 0 ? To : this->source().shape(field); }

  template <class T>
  void gather(Pass pass, std::span<const Item> items, RowsOf<D, T> to) const {
    if (to.x() == nullptr) return this->source().gather(pass, items, to);
    if (to.w() != nullptr) this->source().gather(pass, items, to.only(FieldRole::weight));
    const std::size_t m = this->shape(target_field<D>).size();
    const std::span<float> in = scratch<ShapeMap, 0>(this->source().shape().size());
    for (std::size_t i = 0; i < items.size(); ++i) {
      const auto target = row_of_field<ShapeMap, 1, Target>(to.y(), i, m);
      this->source().gather(pass, items.subspan(i, 1),
                            RowsOf<D, float>(in.data(), to.y() ? target.data() : nullptr));
      const auto out = row_of_field<ShapeMap, 2, float>(to.x(), i, To.size());
      call(pass, items[i], in, out);
      put<float>(out, to.x(), i);
      put<Target>(target, to.y(), i);
    }
  }

  const Fn& function() const { return *fn_; }
  const D& upstream() const { return this->source(); }

 private:
  void call(Pass pass, const Item& item, std::span<const float> in, std::span<float> out) const {
    if constexpr (random) {
      Philox draws = example_draws(pass, "map", random_maps<D>, item.ordinal);
      (*fn_)(in, out, draws);
    } else {
      (*fn_)(in, out);
    }
  }

  // Held by pointer: a lambda with captures is not assignable, but a Dataset must be.
  std::shared_ptr<const Fn> fn_;
};

}  // namespace pipeline

/// Applies `fn` to each example in place: `fn(example)`, or `fn(example, draws)` for a random map.
/// `example.x` and `example.y` are writable spans; `draws` is a Philox& keyed by seed, pass, map
/// and example. `fn` must be callable as const and from several threads at once.
/// \code
///   auto noisy = images | lockstep::map([](auto& example, lockstep::Philox& draws) {
///     for (float& v : example.x) v += 8.0f * static_cast<float>(draws.normal());
///   });
/// \endcode
template <class Fn>
auto map(Fn fn) {
  return pipeline::operation(
      [f = std::move(fn)]<class D>(D source) {
        using Target = target_of<D>;
        constexpr bool fits = pipeline::PlainMap<Fn, Target> || pipeline::RandomMap<Fn, Target>;
        static_assert(fits,
                      "lockstep::map: the function must be callable as const with this pipeline's "
                      "'Example<Target>&' or 'Example<Target>&, Philox&'; declare its parameter "
                      "'auto& example'");
        if constexpr (fits)
          return pipeline::Map<D, Fn>(std::move(source), f);
        else
          return source;
      },
      [](auto found) { static_assert(!found.batched, LOCKSTEP_BATCHED("map")); });
}

/// Applies a map that changes the shape of the features: `fn(in, out)` or `fn(in, out, draws)`
/// writes all of `out`, which has shape `To`.
/// \code
///   auto ends = signals | lockstep::map<lockstep::shape(2)>(
///       [](std::span<const float> in, std::span<float> out) {
///         out[0] = in.front();
///         out[1] = in.back();
///       });
/// \endcode
template <Shape To, class Fn>
auto map(Fn fn) {
  return pipeline::operation(
      [f = std::move(fn)]<class D>(D source) {
        constexpr bool fits = pipeline::PlainShapeMap<Fn> || pipeline::RandomShapeMap<Fn>;
        static_assert(
            fits,
            "lockstep::map: a map that changes the shape is called with 'std::span<const float> "
            "in, std::span<float> out' and optionally 'Philox&'; give the function these "
            "parameters");
        if constexpr (fits)
          return pipeline::ShapeMap<To, D, Fn>(std::move(source), f);
        else
          return source;
      },
      [](auto found) { static_assert(!found.batched, LOCKSTEP_BATCHED("map")); });
}

}  // namespace lockstep
