/// \file
/// What a data set on a device is: the rows that a pipeline keeps in memory, copied there once, and
/// what its operations do to them on the way to a batch. Invariants: a batch is the same numbers as
/// by `gather`, and its draws are the same; which rows follow each other is the host's matter.
#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <span>

#include "lockstep/concepts/dataset.hpp"
#include "lockstep/core/shape.hpp"

namespace lockstep {

/// Rows of features and of targets, one after the other; they live as long as the pipeline.
template <class Element, class Target>
struct KeptRows {
  std::span<const Element> x;
  std::span<const Target> y;
  Shape shape;  ///< of a row of x
};

/// What an operation does to each example.
template <class O>
struct RowChange {
  using Op = O;
  Op op;
  Shape in, out;          ///< of an example, before and after it
  std::size_t place = 0;  ///< random operations before it
};

/// A pipeline whose examples can be made from rows by operations that have names.
///
/// - `kept_rows()`: the rows; making them may take a pass.
/// - `row_of(index)`: the row of the example that a stream of indices calls so.
/// - `changes()`: a tuple of RowChange, the first one first.
template <class D>
concept KeepsRows = Dataset<D> && requires(const D& d) {
  d.kept_rows();
  { d.row_of(std::uint64_t{}) } -> std::same_as<std::size_t>;
  d.changes();
};

/// The op of x[i] = T(rows[index[i]]) * scale + offset. A kernel on device D: `static void
/// run(const GatherRows&, const GatherRowsIo<D, Element, Target>&)`.
struct GatherRows {
  bool scales = false;
  double scale = 1, offset = 0;
};

template <class D, class Element, class Target>
struct GatherRowsIo {
  using T = typename D::real;
  typename D::Context& device;
  std::size_t count;           ///< examples
  const std::uint32_t* index;  ///< [count]
  const Element* rows;         ///< [rows, size]
  std::size_t size;
  T* x;                   ///< [count, size]
  const Target* targets;  ///< [rows, target_size]
  std::size_t target_size;
  Target* y;  ///< [count, target_size]
};

/// Of an operation's kernel, `static void run(const Op&, const ChangeRowsIo<D>&)`.
template <class D>
struct ChangeRowsIo {
  using T = typename D::real;
  typename D::Context& device;
  std::size_t count;
  Shape in, out;
  std::uint64_t key;            ///< of the draws, see pipeline::draws_key
  std::uint64_t first_ordinal;  ///< of the first example
  const T* x;                   ///< [count, in]
  T* y;                         ///< [count, out]; x, if the kernel is `in_place`
};

/// A context that may have room for data sets: `keeps_data(bytes)`, whether that many may be taken
/// of what is free now.
template <class C>
concept KeepsData = requires(C& c, std::size_t bytes) {
  { c.keeps_data(bytes) } -> std::same_as<bool>;
};

}  // namespace lockstep
