/// \file
/// The pipe operator: `source | operation | operation`.
///
///     tensors(x, y)  |  rescale(1.0 / 255)  |  shuffle(n)                  |  batch(64)
///     Tensors       ->  Rescale<Tensors>   ->  Shuffle<Rescale<Tensors>>  ->  Batch<...>
///
/// Invariants: an operation is a small value that does not know its source; `|` passes it a copy of
/// the source, so a finished pipeline owns all that it needs; an operation learns about earlier
/// ones from static constants of their types.
#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <limits>
#include <optional>
#include <span>
#include <tuple>
#include <type_traits>
#include <utility>

#include "lockstep/concepts/dataset.hpp"
#include "lockstep/concepts/rows.hpp"
#include "lockstep/core/error.hpp"
#include "lockstep/core/shape.hpp"

namespace lockstep::pipeline {

/// A property for which an operation refuses a source.
enum class Fault { none, batched, draws, reordered, shuffled };

/// A fault as the argument of `explain`.
template <Fault fault>
struct Found {
  static constexpr bool batched = fault == Fault::batched, draws = fault == Fault::draws,
                        reordered = fault == Fault::reordered, shuffled = fault == Fault::shuffled;
};

/// Base of the right-hand operands of `|`. An operation has `apply(source)`, which returns the
/// extended pipeline. One that refuses a source also has `fault<D>`, and `explain(found)` with the
/// error.
struct Operation {
  template <class D>
  static constexpr Fault fault = Fault::none;
};

/// Applies `operation` to `source`.
/// \code
///   auto few = lockstep::tensors(pixels, lockstep::shape(28, 28, 1), labels) |
///              lockstep::take(100);
/// \endcode
template <Dataset D, std::derived_from<Operation> O>
auto operator|(D source, const O& operation) {
  constexpr Fault fault = O::template fault<D>;
  if constexpr (fault == Fault::none) {
    return operation.apply(std::move(source));
  } else {
    O::explain(Found<fault>());
    return source;
  }
}

/// Whether the rows already lie in memory, so that a cache would only duplicate them. A source
/// declares this by `static constexpr bool in_memory = true`.
template <class D>
inline constexpr bool is_in_memory = [] {
  if constexpr (requires { D::in_memory; })
    return static_cast<bool>(D::in_memory);
  else
    return false;
}();

/// Number of random maps in the pipeline so far. Part of the key of their draws.
template <class D>
inline constexpr std::size_t random_maps = [] {
  if constexpr (requires { D::random_map_count; })
    return static_cast<std::size_t>(D::random_map_count);
  else
    return std::size_t{0};
}();

/// Whether a generator computes the examples, features or targets.
template <class D>
inline constexpr bool is_generated = [] {
  if constexpr (requires { D::generated; })
    return static_cast<bool>(D::generated);
  else
    return false;
}();

/// Whether the pipeline contains a shuffle or a repeat.
template <class D>
inline constexpr bool is_reordered = [] {
  if constexpr (requires { D::reordered; })
    return static_cast<bool>(D::reordered);
  else
    return false;
}();

/// Whether the order of the examples differs from pass to pass.
template <class D>
inline constexpr bool is_shuffled = [] {
  if constexpr (requires { D::shuffled; })
    return static_cast<bool>(D::shuffled);
  else
    return false;
}();

/// The type that represents the values of `D` exactly: double if `D::element_type` is double,
/// otherwise float.
template <class D>
struct ValueOf {
  using type = float;
};
template <class D>
  requires std::same_as<typename D::element_type, double>
struct ValueOf<D> {
  using type = double;
};

/// A pipeline whose `gather(pass, items, to, scale, offset)` converts and scales its real features
/// in one loop.
template <class D, class T>
concept GathersScaled =
    requires(const D& d, Pass pass, std::span<const Item> items, RowsOf<D, T> to, T number) {
      d.gather(pass, items, to, number, number);
    };

/// The arguments of `gather` of a stage over `D` after its destinations: none, or scale and offset.
template <class D, class T, class... Scaling>
concept Gathers = sizeof...(Scaling) == 0 || (GathersScaled<D, T> && sizeof...(Scaling) == 2);

/// The type of the index stream of a Dataset.
template <Dataset D>
using StreamOf = decltype(std::declval<const D&>().indices(Pass{}));

/// An index stream that can start another pass without allocating.
template <class S>
concept Restartable = requires(S& stream, Pass pass) { stream.restart(pass); };

/// Restarts `stream` of `source` for `pass`. The library's streams reuse their memory; other
/// streams are replaced.
template <Dataset D>
void restart(const D& source, StreamOf<D>& stream, Pass pass) {
  if constexpr (Restartable<StreamOf<D>>)
    stream.restart(pass);
  else
    stream = source.indices(pass);
}

/// Starts a pass and skips its first `skip` examples. Returns how many were skipped, which is less
/// than `skip` if the pass is shorter. `stream` is empty before the first pass.
template <Dataset D>
std::uint64_t begin(const D& source, std::optional<StreamOf<D>>& stream, Pass pass,
                    std::uint64_t skip) {
  if (stream)
    restart(source, *stream, pass);
  else
    stream.emplace(source.indices(pass));
  std::uint64_t ordinal = 0;
  while (ordinal < skip && stream->next()) ++ordinal;
  return ordinal;
}

/// Applies `f` to the source below a trailing rescale. Selecting and caching commute with rescale,
/// and a cache below the rescale stores bytes instead of floats.
template <Dataset D, class F>
auto apply_under_rescale(D source, F f) {
  if constexpr (requires { source.rebase(f); })
    return source.rebase(f);
  else
    return f(std::move(source));
}

/// The first of `faults` that `D` has.
template <Dataset D>
constexpr Fault first_of(std::initializer_list<Fault> faults) {
  if (BatchedDataset<D>) return Fault::batched;
  for (const Fault fault : faults)
    if ((fault == Fault::draws && random_maps<D> > 0) ||
        (fault == Fault::reordered && is_reordered<D>) ||
        (fault == Fault::shuffled && is_shuffled<D>))
      return fault;
  return Fault::none;
}

/// The result of `operation` and `operation_under_rescale`.
template <class Make, class Explain, bool is_under_rescale, Fault... faults>
struct MadeOperation : Operation {
  Make make;
  static constexpr Explain explain{};
  template <Dataset D>
  static constexpr Fault fault = first_of<D>({faults...});
  template <Dataset D>
  auto apply(D source) const {
    if constexpr (is_under_rescale)
      return apply_under_rescale(std::move(source), make);
    else
      return make(std::move(source));
  }
};

/// An operation before `batch`. `make(source)` returns the extended pipeline. It is called if the
/// source has none of `faults`; if it has one, `explain(found)` has a static_assert about it.
template <Fault... faults, class Make, class Explain>
constexpr auto operation(Make make, Explain) {
  return MadeOperation<Make, Explain, false, faults...>{{}, std::move(make)};
}
/// The same for one that commutes with rescale, and so is applied below it.
template <Fault... faults, class Make, class Explain>
constexpr auto operation_under_rescale(Make make, Explain) {
  return MadeOperation<Make, Explain, true, faults...>{{}, std::move(make)};
}
/// The sentence of the operation `name` about a batched source.
#define LOCKSTEP_BATCHED(name) \
  "lockstep::" name ": the pipeline is already batched; put " name " before batch"

/// The indices 0 .. size - 1 in order: the stream of a source.
class Counter {
 public:
  explicit Counter(std::uint64_t size) : size_(size) {}
  std::optional<std::uint64_t> next() {
    if (next_ == size_) return std::nullopt;
    return next_++;
  }
  void restart(Pass) { next_ = 0; }

 private:
  std::uint64_t size_;
  std::uint64_t next_ = 0;
};

/// The first `count` indices of a stream.
template <IndexStream S>
class FirstOf {
 public:
  FirstOf(S source, std::uint64_t count) : source_(std::move(source)), count_(count) {}
  std::optional<std::uint64_t> next() {
    if (position_ == count_) return std::nullopt;
    ++position_;
    return source_.next();
  }
  void restart(Pass pass)
    requires Restartable<S>
  {
    source_.restart(pass);
    position_ = 0;
  }

 private:
  S source_;
  std::uint64_t count_;
  std::uint64_t position_ = 0;
};

/// Base of all pipeline stages. Describes itself as `D` does; a derived class overrides what it
/// changes.
template <Dataset D>
class Stage {
 public:
  using fields = typename D::fields;
  using element_type = typename ValueOf<D>::type;
  static constexpr bool in_memory = is_in_memory<D>;
  static constexpr std::size_t random_map_count = random_maps<D>;
  static constexpr bool reordered = is_reordered<D>;
  static constexpr bool shuffled = is_shuffled<D>;
  static constexpr bool generated = is_generated<D>;

  explicit Stage(D source) : source_(std::move(source)) {}

  Shape shape(std::size_t field = 0) const { return source_.shape(field); }
  std::optional<std::uint64_t> size() const { return source_.size(); }
  auto indices(Pass pass) const { return source_.indices(pass); }

 protected:
  const D& source() const { return source_; }

 private:
  D source_;
};

/// Base of the stages that read or change the values of an example: its one feature and its one
/// target.
template <Dataset D>
class ExampleStage : public Stage<D> {
  static_assert(
      is_labeled<D>,
      "lockstep::pipeline: this operation needs examples of one real-valued feature and one "
      "target; put it before the operation that adds fields");

 public:
  using Stage<D>::Stage;
};

/// Base of the stages that select or reorder the examples of `D` without changing them.
template <Dataset D>
class Selection : public Stage<D> {
 public:
  using Stage<D>::Stage;

  template <class T, std::same_as<T>... Scaling>
    requires Gathers<D, T, Scaling...>
  void gather(Pass pass, std::span<const Item> items, RowsOf<D, T> to, Scaling... scaling) const {
    this->source().gather(pass, items, to, scaling...);
  }
  auto kept_rows() const
    requires KeepsRows<D>
  {
    return this->source().kept_rows();
  }
  std::size_t row_of(std::uint64_t index) const
    requires KeepsRows<D>
  {
    return this->source().row_of(index);
  }
  auto changes() const
    requires KeepsRows<D>
  {
    return this->source().changes();
  }
};

/// Base of the stages that change the examples of `D` and can also run on a device that keeps the
/// rows. `P`, the derived class, has `change()`, its RowChange.
template <class P, Dataset D>
class Mapped : public ExampleStage<D> {
 public:
  using ExampleStage<D>::ExampleStage;

  auto kept_rows() const
    requires KeepsRows<D>
  {
    return this->source().kept_rows();
  }
  std::size_t row_of(std::uint64_t index) const
    requires KeepsRows<D>
  {
    return this->source().row_of(index);
  }
  auto changes() const
    requires KeepsRows<D>
  {
    return std::tuple_cat(this->source().changes(),
                          std::make_tuple(static_cast<const P*>(this)->change()));
  }
};

}  // namespace lockstep::pipeline
