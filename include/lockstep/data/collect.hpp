/// \file
/// `collect` reads one pass of a pipeline into arrays in memory. Invariant: the numbers and their
/// order are those that training sees in the same pass.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <type_traits>
#include <vector>

#include "lockstep/concepts/dataset.hpp"
#include "lockstep/core/error.hpp"
#include "lockstep/core/shape.hpp"
#include "lockstep/data/pipe.hpp"
#include "lockstep/data/sources/tensors.hpp"

namespace lockstep {

/// The result of `collect`: the examples of one pass, row after row.
template <class T, class Target>
struct Collected {
  std::vector<T> features;      ///< [count, shape]
  Shape shape;                  ///< of one example
  std::vector<Target> targets;  ///< [count, target_shape]
  Shape target_shape;           ///< of one target; rank 0 for a class label
  std::vector<T> weights;       ///< [count, weight_shape]; empty for unweighted data
  Shape weight_shape;           ///< of an example's weights; rank 0 for one
  std::size_t count = 0;        ///< number of examples
};

/// Returns all examples of a pass as arrays, in the order of that pass and with its random draws
/// (numpy's `np.array(list(dataset))`). A batched pipeline contributes the examples of its batches.
///
/// `T` is the type of the numbers: double by default if the features are double, otherwise float,
/// which represents bytes exactly. Labels are std::int32_t. `pass` holds seed and epoch, as `fit`
/// counts them; `predict` reads the default one, so that its rows match those of `collect(data)`.
/// \throws UsageError if a pass never ends, and whatever the pipeline throws.
/// \code
///   const auto test = lockstep::collect(images | lockstep::rescale(1.0 / 255));
///   auto again = lockstep::tensors(test.features, test.shape, test.targets, test.target_shape);
/// \endcode
template <class T = void, Dataset D>
auto collect(const D& data, Pass pass = {}) {
  using Number = std::conditional_t<std::is_void_v<T>, typename pipeline::ValueOf<D>::type, T>;
  static_assert(std::is_same_v<Number, float> || std::is_same_v<Number, double>,
                "lockstep::collect: T must be float or double; choose one of them");
  static_assert(
      is_labeled<D>,
      "lockstep::collect: the data need examples of one real-valued feature and one target");
  const auto size = data.size();
  if (!size) throw UsageError("collect: the pipeline is infinite; put take before collect");
  const std::size_t n = data.shape().size(), m = data.shape(target_field<D>).size(), chunk = 256;
  Collected<Number, target_of<D, Number>> all{{}, data.shape(), {}, data.shape(target_field<D>), {},
                                              {}};
  if constexpr (has_weights<D>) all.weight_shape = data.shape(weight_field<D>);
  all.features.reserve(static_cast<std::size_t>(*size) * n);
  all.targets.reserve(static_cast<std::size_t>(*size) * m);
  auto stream = data.indices(pass);
  std::vector<Item> items;
  do {
    items.clear();
    while (items.size() < chunk) {
      const auto index = stream.next();
      if (!index) break;
      items.push_back({*index, all.count + items.size()});
    }
    all.features.resize((all.count + items.size()) * n);
    all.targets.resize((all.count + items.size()) * m);
    if constexpr (has_weights<D>)
      all.weights.resize((all.count + items.size()) * all.weight_shape.size());
    if (!items.empty())
      data.gather(pass, std::span<const Item>(items),
                  RowsOf<D, Number>(all.features.data(), all.targets.data(), all.weights.data())
                      .after(all.count, data));
    all.count += items.size();
  } while (items.size() == chunk);
  return all;
}

}  // namespace lockstep
