/// \file
/// The loader assembles the batches of a batched pipeline in memory. Invariants: the contents of a
/// batch do not depend on the prefetch depth or on the share; the constructor allocates all memory
/// for batches; a pass ends, fails and stops in the same way with and without a prefetch thread.
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

/// `count` uninitialized elements, aligned to 64 bytes (a cache line).
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

/// Type-erased pipeline, so that the batch assembly below is compiled once per element type instead
/// of once per pipeline.
template <class T, class Target>
class ExampleSource {
 public:
  virtual ~ExampleSource() = default;
  /// Starts a pass and skips its first `skip` examples. Returns how many were skipped, which is
  /// less than `skip` if the pass is shorter.
  virtual std::uint64_t begin(Pass pass, std::uint64_t skip) = 0;
  /// Appends the next items of the pass until `items` holds `count` or the pass ends, and advances
  /// `ordinal` by the number of items appended.
  virtual void append_items(std::size_t count, std::vector<Item>& items,
                            std::uint64_t& ordinal) = 0;
  /// Writes the features and targets of `items`, row after row.
  virtual void gather(Pass pass, std::span<const Item> items, T* x, Target* y) const = 0;
  /// Multiplies each w by the weight of its item; does nothing for unweighted data.
  virtual void weigh(std::span<const Item> items, T* w) const = 0;
};

/// The numbers that the batch assembly needs to know about a pipeline.
struct BatchSizes {
  std::size_t batch;    ///< examples in a global batch
  std::size_t largest;  ///< examples in the largest batch of a pass
  std::size_t depth;    ///< batches assembled ahead; 0: no thread
  std::size_t x, y;     ///< elements of one example and of one target
  bool is_weighted;     ///< whether the data have sample weights
};

/// Collects the sizes of a pipeline. A data set smaller than one batch limits the memory reserved.
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

/// The ExampleSource over pipeline `D`. Keeps its index stream from pass to pass, so that only the
/// first pass allocates.
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
    std::uint64_t skipped = 0;
    while (skipped < skip && index()) ++skipped;
    return skipped;
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
  // Kept out of line so that the nested streams of a pipeline compile to one function.
  [[gnu::noinline]] std::optional<std::uint64_t> index() { return stream_->next(); }

  D dataset_;
  std::optional<pipeline::StreamOf<D>> stream_;
};

/// Assembles batches from an ExampleSource. This is the part of a loader that does not depend on
/// the pipeline's type: the ring of buffers, the share of this worker, and the prefetch thread.
///
///     released_           acquired_            assembled_      counters of batches, all rising
///        | held by the      | ready, returned      | free, filled
///        | caller           | by next()            | by advance()
///
/// The ring has depth + 2 buffers: `depth` ready ones, the batch in use, and the one before it,
/// which a device may still be reading. With depth 0, next() calls advance() in its own thread.
template <class T, class Target>
class BatchAssembler {
 public:
  using Batch = LoadedBatch<T, Target>;
  using Share = std::function<Slice(std::size_t)>;

  /// `source` must outlive the assembler.
  [[gnu::cold]] BatchAssembler(ExampleSource<T, Target>& source, const BatchSizes& sizes,
                               Share share, const ClassWeights& class_weights);
  BatchAssembler(const BatchAssembler&) = delete;
  BatchAssembler& operator=(const BatchAssembler&) = delete;
  [[gnu::cold]] ~BatchAssembler();

  bool is_weighted() const { return sizes_.is_weighted || !class_weights_.empty(); }
  /// Replaces the share and allocates the memory for it. Call `begin` before the next batch.
  [[gnu::cold]] void set_share(Share share);
  /// Starts a pass; stops the thread of the previous one first.
  [[gnu::cold]] void begin(Pass pass, std::uint64_t skip_examples);
  /// The next batch; false at the end of the pass. See Loader::next.
  bool next(Batch& out);

 private:
  struct Buffer {
    AlignedArray<T> x;
    AlignedArray<Target> y;
    std::vector<T> w;
    Batch batch;
  };

  /// The slice of a global batch that this worker holds, checked against the batch and the buffers.
  Slice share_of(std::size_t global) const;
  [[gnu::cold]] void allocate();
  /// Waits for the next ready batch and releases the one before the last; null at the end of the
  /// pass.
  const Batch* acquire();
  /// Body of the prefetch thread: waits for a free buffer and fills it, until the pass ends or
  /// stop() is called.
  [[gnu::cold]] void run();
  void advance();
  void publish(bool more, std::exception_ptr error);
  bool assemble(Buffer& buffer);
  [[gnu::cold]] void weigh(Buffer& buffer, std::span<const Item> items);
  [[gnu::cold]] void stop();

  ExampleSource<T, Target>& source_;
  BatchSizes sizes_;
  Share share_;
  ClassTable class_weights_;
  std::size_t largest_ = 0;  // examples in the share of the largest batch
  bool begun_ = false;
  // Owned by the thread that assembles: the prefetch thread while it runs, otherwise the caller.
  Pass pass_;
  std::uint64_t ordinal_ = 0;
  std::vector<Item> items_;
  // The ring. The caller holds batches released_ .. acquired_ - 1; acquired_ .. assembled_ - 1 are
  // ready. mutex_ guards these counters, which alone decide who may touch a buffer.
  std::vector<Buffer> buffers_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::uint64_t assembled_ = 0, acquired_ = 0, released_ = 0;
  bool finished_ = false, stopped_ = false;
  std::exception_ptr error_;
  std::thread thread_;  // last member: the thread uses all of the above
};

}  // namespace detail

/// Assembles the batches of a pass, in the calling thread or, for a pipeline that ends in
/// `prefetch(k)`, up to k batches ahead in a separate thread. Not thread-safe: all calls come from
/// one thread.
///
/// An example's ordinal is its position in the pass, counted from 0 in the order of the stream.
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
  /// Maps the size of a global batch to the slice of it that this worker holds. Must be a pure
  /// function whose count is largest for the largest batch; may be called from the prefetch thread.
  using Share = std::function<Slice(std::size_t)>;

  /// Allocates the memory for all batches. Without `share`, the worker holds the whole of each
  /// batch. `class_weights`: Keras' `class_weight`, multiplied with the sample weights of the data.
  explicit Loader(const D& dataset, Share share = {}, const ClassWeights& class_weights = {})
      : source_(dataset),
        assembler_(source_, detail::batch_sizes(dataset), std::move(share), class_weights) {}

  /// Whether batches carry weights.
  bool is_weighted() const { return assembler_.is_weighted(); }

  /// Starts a pass and skips its first `skip_examples` examples. A pass in progress is abandoned.
  /// \throws whatever the pipeline throws.
  void begin(Pass pass, std::uint64_t skip_examples = 0) { assembler_.begin(pass, skip_examples); }
  /// Replaces the share, for a worker whose part of the job changes. Call `begin` before `next`.
  void set_share(Share share) { assembler_.set_share(std::move(share)); }

  /// Writes the next batch of the pass to `out`; returns false at the end of the pass. A batch
  /// stays valid until the second next() after the call that returned it, or until begin(), so a
  /// device may still read it while the following batch is fetched.
  /// \throws what the pipeline threw while it assembled this batch, and again on each call until
  /// begin(); UsageError before the first begin().
  bool next(Batch& out) { return assembler_.next(out); }

 private:
  detail::PipelineSource<T, D> source_;
  detail::BatchAssembler<T, Target> assembler_;
};

}  // namespace lockstep

#ifdef LOCKSTEP_HEADER_ONLY
#include "lockstep/data/loader.ipp"
#endif
