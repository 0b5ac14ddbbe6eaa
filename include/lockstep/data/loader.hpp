/// \file
/// The loader turns a batched pipeline into batches in memory. Invariants: what is in a batch does
/// not depend on the prefetch depth nor on the share; all memory for batches is taken by the
/// constructor; a pass ends, fails and stops the same way with and without a thread.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <functional>
#include <limits>
#include <memory>
#include <mutex>
#include <new>
#include <optional>
#include <span>
#include <string>
#include <thread>
#include <type_traits>
#include <utility>
#include <vector>

#include "lockstep/concepts/dataset.hpp"
#include "lockstep/concepts/loaded_batch.hpp"
#include "lockstep/core/config.hpp"
#include "lockstep/core/slice.hpp"
#include "lockstep/data/operations/batch.hpp"
#include "lockstep/data/operations/class_weights.hpp"
#include "lockstep/data/operations/prefetch.hpp"
#include "lockstep/data/sources/tensors.hpp"

namespace lockstep {

namespace detail {

/// `count` elements, 64-byte aligned, not initialised.
template <class T>
class AlignedArray {
 public:
  AlignedArray() = default;
  explicit AlignedArray(std::size_t count) {
    if (count > std::numeric_limits<std::size_t>::max() / sizeof(T)) throw std::bad_alloc();
    data_ = static_cast<T*>(::operator new(count * sizeof(T), std::align_val_t{64}));
  }
  AlignedArray(AlignedArray&& other) noexcept : data_(std::exchange(other.data_, nullptr)) {}
  AlignedArray& operator=(AlignedArray&& other) noexcept {
    std::swap(data_, other.data_);
    return *this;
  }
  ~AlignedArray() { ::operator delete(data_, std::align_val_t{64}); }
  T* data() const { return data_; }

 private:
  T* data_ = nullptr;
};

/// A pipeline as the loader sees it, whatever its operations are.
template <class T, class Target>
class ExampleSource {
 public:
  virtual ~ExampleSource() = default;
  /// Starts a pass after its first `skip` examples; returns how many it left out.
  virtual std::uint64_t begin(Pass pass, std::uint64_t skip) = 0;
  /// Appends the next items of the pass until there are `count`, or no more; moves `ordinal` on.
  virtual void append_items(std::size_t count, std::vector<Item>& items,
                            std::uint64_t& ordinal) = 0;
  virtual void gather(Pass pass, std::span<const Item> items, T* x, Target* y) const = 0;
  /// Nothing if the data have no weights.
  virtual void weigh(std::span<const Item> items, T* w) const = 0;
};

struct BatchSizes {
  std::size_t batch;    ///< examples of a global batch
  std::size_t largest;  ///< of the largest one that there will be
  std::size_t depth;    ///< of the prefetch
  std::size_t x, y;     ///< elements of an example, of a target
  bool is_weighted;     ///< by the data
};

template <BatchedDataset D>
BatchSizes batch_sizes(const D& dataset) {
  const std::size_t batch = dataset.batch_size();
  const auto size = dataset.size();
  return {.batch = batch,
          .largest = size && *size < batch ? static_cast<std::size_t>(*size) : batch,
          .depth = dataset.prefetch_depth(),
          .x = dataset.shape().size(),
          .y = dataset.target_shape().size(),
          .is_weighted = WeightedDataset<D>};
}

/// The pipeline D.
template <class T, BatchedDataset D>
class PipelineSource final : public ExampleSource<T, target_of<D, T>> {
 public:
  using Target = target_of<D, T>;
  explicit PipelineSource(const D& dataset) : dataset_(dataset) {}
  std::uint64_t begin(Pass pass, std::uint64_t skip) override {
    if (stream_)
      pipeline::restart(dataset_, *stream_, pass);
    else
      stream_.emplace(dataset_.indices(pass));
    std::uint64_t left_out = 0;
    while (left_out < skip && index()) ++left_out;
    return left_out;
  }
  void append_items(std::size_t count, std::vector<Item>& items, std::uint64_t& ordinal) override {
    while (items.size() < count) {
      const auto next = index();
      if (!next) break;
      items.push_back({*next, ordinal++});
    }
  }
  void gather(Pass pass, std::span<const Item> items, T* x, Target* y) const override {
    dataset_.gather(pass, items, x, y);
  }
  void weigh([[maybe_unused]] std::span<const Item> items, [[maybe_unused]] T* w) const override {
    if constexpr (WeightedDataset<D>) dataset_.weigh(items, w);
  }

 private:
  // Not inlined: the streams of a pipeline become one function here.
  [[gnu::noinline]] std::optional<std::uint64_t> index() { return stream_->next(); }

  D dataset_;
  std::optional<pipeline::StreamOf<D>> stream_;
};

/// What of a loader does not depend on the pipeline: batches, shares, and the thread.
template <class T, class Target>
class BatchAssembler {
 public:
  using Batch = LoadedBatch<T, Target>;
  using Share = std::function<Slice(std::size_t)>;

  /// `source` outlives it.
  [[gnu::cold]] BatchAssembler(ExampleSource<T, Target>& source, const BatchSizes& sizes,
                               Share share, const ClassWeights& class_weights);
  BatchAssembler(const BatchAssembler&) = delete;
  BatchAssembler& operator=(const BatchAssembler&) = delete;
  [[gnu::cold]] ~BatchAssembler();

  bool is_weighted() const { return sizes_.is_weighted || !class_weights_.empty(); }
  [[gnu::cold]] void begin(Pass pass, std::uint64_t skip_examples);
  bool next(Batch& out);

 private:
  struct Buffer {
    AlignedArray<T> x;
    AlignedArray<Target> y;
    std::vector<T> w;
    Batch batch;
  };

  Slice share_of(std::size_t global) const;
  const Batch* acquire();
  [[gnu::cold]] void run();
  void advance();
  bool assemble(Buffer& buffer);
  [[gnu::cold]] void weigh(Buffer& buffer, std::span<const Item> items);
  [[gnu::cold]] void stop();

  ExampleSource<T, Target>& source_;
  BatchSizes sizes_;
  Share share_;
  ClassTable class_weights_;
  std::size_t largest_ = 0;  // the share of the largest batch
  bool begun_ = false;
  // Used by whoever assembles: the thread while it runs, else the caller.
  Pass pass_;
  std::uint64_t ordinal_ = 0;
  std::vector<Item> items_;
  // A ring. The caller holds the batches released_ .. acquired_ - 1, and acquired_ .. assembled_ - 1 wait
  // for it. The mutex guards the numbers, which also say whose a buffer is.
  std::vector<Buffer> buffers_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::uint64_t assembled_ = 0, acquired_ = 0, released_ = 0;
  bool finished_ = false, stopped_ = false;
  std::exception_ptr error_;
  std::thread thread_;  // last: it uses all of the above
};

}  // namespace detail

/// Assembles the batches of a pass, in the caller's thread or, for a pipeline that ends in
/// `prefetch(k)`, up to k batches ahead in a thread of its own. One thread calls it.
///
/// Ordinals count the examples of the pass from 0, in the order of the stream.
/// \code
///   lockstep::Loader<float, decltype(train)> loader(train);
///   lockstep::LoadedBatch<float, std::int32_t> batch;
///   loader.begin({.seed = 1, .number = epoch});
///   while (loader.next(batch)) step(batch.x, batch.y, batch.slice.count);
/// \endcode
template <class T, BatchedDataset D>
class Loader {
 public:
  using Target = target_of<D, T>;
  using Batch = LoadedBatch<T, Target>;
  /// Which part of a global batch of so many examples this worker holds. A pure function, whose
  /// count is largest for the largest batch; may be called in the thread that assembles.
  using Share = std::function<Slice(std::size_t)>;

  /// Takes the memory for all batches. Without `share`, the worker holds all of each batch.
  /// `class_weights`: Keras' `class_weight`, multiplied with the weights that the data have.
  explicit Loader(const D& dataset, Share share = {}, const ClassWeights& class_weights = {})
      : source_(dataset),
        assembler_(source_, detail::batch_sizes(dataset), std::move(share), class_weights) {}

  /// Whether batches have weights.
  bool is_weighted() const { return assembler_.is_weighted(); }

  /// Starts a pass, after its first `skip_examples` examples; one that is under way is dropped.
  /// \throws what the pipeline throws.
  void begin(Pass pass, std::uint64_t skip_examples = 0) { assembler_.begin(pass, skip_examples); }

  /// The next batch of the pass; false at its end. A batch stays valid until the second next()
  /// after the one that gave it, or until begin(), so that a device may still read it while the
  /// following one is fetched.
  /// \throws what the pipeline threw, in its place among the batches, and again until begin();
  /// UsageError before the first begin().
  bool next(Batch& out) { return assembler_.next(out); }

 private:
  detail::PipelineSource<T, D> source_;
  detail::BatchAssembler<T, Target> assembler_;
};

}  // namespace lockstep

#ifdef LOCKSTEP_HEADER_ONLY
#include "lockstep/data/loader.ipp"
#endif
