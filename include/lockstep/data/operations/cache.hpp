/// \file
/// `cache` computes each example once and keeps it in memory. Invariants: the first gather fills
/// the cache, on whichever thread it runs, completely or not at all; copies of the pipeline share
/// the cache; it sits below a rescale, so bytes stay bytes in memory.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "lockstep/concepts/dataset.hpp"
#include "lockstep/concepts/rows.hpp"
#include "lockstep/core/error.hpp"
#include "lockstep/data/convert.hpp"
#include "lockstep/data/operations/map.hpp"
#include "lockstep/data/operations/rescale.hpp"
#include "lockstep/data/pipe.hpp"
#include "lockstep/data/sources/tensors.hpp"

namespace lockstep {

namespace pipeline {

/// The examples of `D`, stored in the type that represents them exactly.
template <Dataset D>
class Cache : public ExampleStage<D> {
  using Value = typename ValueOf<D>::type;
  using Kept = target_of<D, Value>;

 public:
  static constexpr bool in_memory = true;

  /// \throws UsageError if a pass of `D` never ends.
  explicit Cache(D source) : ExampleStage<D>(std::move(source)), store_(std::make_shared<Store>()) {
    if (!this->size()) throw UsageError("cache: the pipeline is infinite; put take before cache");
  }

  /// Weights are looked up in the source, which keeps them by index.
  template <class T, std::same_as<T>... Scaling>
    requires(sizeof...(Scaling) == 0 || sizeof...(Scaling) == 2)
  void gather(Pass pass, std::span<const Item> items, RowsOf<D, T> to, Scaling... scaling) const {
    if (to.w() != nullptr) this->source().gather(pass, items, to.only(FieldRole::weight));
    if (!to.wants_values()) return;
    const std::size_t n = this->shape().size(), m = target_size();
    const Store& store = filled();
    for (std::size_t i = 0; i < items.size(); ++i) {
      const std::size_t row = store.row(items[i].index);
      if (to.x() != nullptr)
        detail::copy_row(store.x.data() + row * n, to.x() + i * n, n, scaling...);
      if (to.y() != nullptr) detail::copy_row(store.y.data() + row * m, to.y() + i * m, m);
    }
  }
  /// All stored rows, for a device that keeps the data set in its own memory.
  KeptRows<Value, Kept> kept_rows() const {
    const Store& store = filled();
    return {store.x, store.y, this->shape()};
  }
  /// The row that holds the example with this source index.
  std::size_t row_of(std::uint64_t index) const { return filled().row(index); }
  std::tuple<> changes() const { return {}; }

 private:
  struct Store {
    std::mutex mutex;
    std::atomic<bool> ready = false;
    std::vector<std::uint64_t> indices;  // sorted: row r holds example indices[r]
    std::vector<Value> x;
    std::vector<Kept> y;

    /// Row of example `index`. Contiguous indices, the usual case, need no search.
    std::size_t row(std::uint64_t index) const {
      if (!indices.empty() && indices.back() - indices.front() + 1 == indices.size() &&
          index - indices.front() < indices.size())
        return static_cast<std::size_t>(index - indices.front());
      const auto found = std::lower_bound(indices.begin(), indices.end(), index);
      if (found == indices.end() || *found != index)
        throw UsageError(
            "cache: example {} was not in the first pass; the source must yield the same examples "
            "in every pass",
            index);
      return static_cast<std::size_t>(found - indices.begin());
    }
  };

  std::size_t target_size() const { return this->shape(target_field<D>).size(); }

  /// The filled store. The acquire load makes later calls lock-free.
  const Store& filled() const {
    Store& store = *store_;
    if (!store.ready.load(std::memory_order_acquire)) {
      const std::scoped_lock lock(store.mutex);
      if (!store.ready.load(std::memory_order_relaxed)) {
        fill(store);
        store.ready.store(true, std::memory_order_release);
      }
    }
    return store;
  }

  /// Gathers each distinct example of one pass, in chunks that bound the list of items.
  void fill(Store& store) const {
    const Pass pass{};
    auto stream = this->indices(pass);
    store.indices.clear();  // left by an attempt that threw
    while (const auto index = stream.next()) store.indices.push_back(*index);
    std::sort(store.indices.begin(), store.indices.end());
    store.indices.erase(std::unique(store.indices.begin(), store.indices.end()),
                        store.indices.end());
    const std::size_t count = store.indices.size(), chunk = 256;
    const std::size_t n = this->shape().size(), m = target_size();
    store.x.resize(count * n);
    store.y.resize(count * m);
    std::vector<Item> items;
    for (std::size_t first = 0; first < count; first += items.size()) {
      items.clear();
      for (std::size_t i = first; i < std::min(count, first + chunk); ++i)
        items.push_back({store.indices[i], i});
      this->source().gather(
          pass, items, RowsOf<D, Value>(store.x.data() + first * n, store.y.data() + first * m));
    }
  }

  std::shared_ptr<Store> store_;
};

}  // namespace pipeline

/// Computes the examples once, in the first pass, and keeps them in memory. Data that are already
/// in memory are not stored twice, and a rescale stays above the cache, so the cache holds bytes.
///
/// Examples are stored as float, or as double if `element_type` of the source is double.
/// \throws UsageError if a pass of the source never ends.
/// \code
///   auto train = images | lockstep::map(decode) | lockstep::cache | lockstep::shuffle(10'000);
/// \endcode
inline constexpr auto cache =
    pipeline::operation_under_rescale<pipeline::Fault::draws, pipeline::Fault::reordered>(
        []<class D>(D source) {
          if constexpr (pipeline::is_in_memory<D>)
            return source;
          else
            return pipeline::Cache<D>(std::move(source));
        },
        [](auto found) {
          static_assert(!found.batched, LOCKSTEP_BATCHED("cache"));
          static_assert(!found.draws,
                        "lockstep::cache: a random map before cache would freeze its draws; put "
                        "cache before map");
          static_assert(!found.reordered,
                        "lockstep::cache: a shuffle or repeat before cache would freeze the order; "
                        "put cache before shuffle and repeat");
        });

}  // namespace lockstep
