/// \file
/// Data sets that reside on a device: the rows that a pipeline keeps in memory, uploaded once, and
/// the operations that make a batch of them. Invariants: a batch has the same values as with
/// `gather`, with the same random draws; the host decides which rows a batch has.
#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <span>

#include "lockstep/concepts/dataset.hpp"
#include "lockstep/core/shape.hpp"

namespace lockstep {

/// Rows of features and targets, contiguous; they live as long as the pipeline.
template <class Element, class Target>
struct KeptRows {
  std::span<const Element> x;
  std::span<const Target> y;
  Shape shape;  ///< of a row of x
};

/// One per-example operation of the pipeline.
template <class O>
struct RowChange {
  using Op = O;
  Op op;
  Shape in, out;          ///< of an example, before and after the operation
  std::size_t place = 0;  ///< number of random operations before this one
};

/// A pipeline whose examples can be computed from rows by operations with device kernels.
///
/// - `kept_rows()`: the rows; computing them may need a pass over the data.
/// - `row_of(index)`: the row of the example with this source index.
/// - `changes()`: a tuple of RowChange, in order of application.
template <class D>
concept KeepsRows = Dataset<D> && requires(const D& d) {
  d.kept_rows();
  { d.row_of(std::uint64_t{}) } -> std::same_as<std::size_t>;
  d.changes();
};

/// The op x[i] = T(rows[index[i]]) * scale + offset. Its kernel on device D has `static void
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

/// The operands of an operation's kernel, `static void run(const Op&, const ChangeRowsIo<D>&)`.
template <class D>
struct ChangeRowsIo {
  using T = typename D::real;
  typename D::Context& device;
  std::size_t count;
  Shape in, out;
  std::uint64_t key;            ///< of the random draws, see pipeline::draws_key
  std::uint64_t first_ordinal;  ///< of the first example
  const T* x;                   ///< [count, in]
  T* y;                         ///< [count, out]; equals x if the kernel is `in_place`
};

/// A context that can hold data sets: `keeps_data(bytes)` returns whether this much of the free
/// memory may be used for one.
template <class C>
concept KeepsData = requires(C& c, std::size_t bytes) {
  { c.keeps_data(bytes) } -> std::same_as<bool>;
};

}  // namespace lockstep
