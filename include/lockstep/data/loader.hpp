/// \file
/// The loader turns a batched pipeline into batches in memory. Invariants: what is in a batch does
/// not depend on the prefetch depth nor on the share; all memory for batches is taken by the
/// constructor; a pass ends, fails and stops the same way with and without a thread.
#pragma once

#include <algorithm>
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

#include "lockstep/concepts/batch.hpp"
#include "lockstep/concepts/dataset.hpp"
#include "lockstep/core/error.hpp"
#include "lockstep/core/slice.hpp"
#include "lockstep/core/threads.hpp"
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

template <class D>
concept NeverPrefetches = requires {
  typename std::bool_constant<(D::prefetch_depth() == 0)>;
  requires D::prefetch_depth() == 0;
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
  [[gnu::cold]] explicit Loader(const D& dataset, Share share = {},
                                const ClassWeights& class_weights = {})
      : dataset_(dataset),
        share_(std::move(share)),
        depth_(dataset.prefetch_depth()),
        class_weights_(class_weights),
        buffers_(depth_ + 2) {
    std::size_t global = dataset_.batch_size();
    if (const auto size = dataset_.size(); size && *size < global)
      global = static_cast<std::size_t>(*size);
    largest_ = global;
    const std::size_t local = share_of(global).count;
    largest_ = local;
    const std::size_t x_size = dataset_.shape().size(), y_size = dataset_.target_shape().size();
    for (Buffer& buffer : buffers_) {
      buffer.x = detail::AlignedArray<T>(product(local, x_size));
      buffer.y = detail::AlignedArray<Target>(product(local, y_size));
      if (is_weighted()) buffer.w = std::vector<T>(local);
    }
    items_.reserve(global);
  }
  Loader(const Loader&) = delete;
  Loader& operator=(const Loader&) = delete;
  /// Stops the thread; waits at most for the batch that it is assembling.
  ~Loader() { stop(); }

  /// Whether batches have weights.
  bool is_weighted() const { return WeightedDataset<D> || !class_weights_.empty(); }

  /// Starts a pass, after its first `skip_examples` examples; one that is under way is dropped.
  /// \throws what the pipeline throws.
  [[gnu::cold]] void begin(Pass pass, std::uint64_t skip_examples = 0) {
    stop();
    begun_ = false;
    pass_ = pass;
    assembled_ = taken_ = released_ = 0;
    finished_ = false;
    error_ = nullptr;
    ordinal_ = pipeline::begin(dataset_, stream_, pass, skip_examples);
    if constexpr (may_run_ahead)
      if (depth_ > 0) thread_ = detail::start_thread("prefetch", [this] { run(); });
    begun_ = true;
  }

  /// The next batch of the pass; false at its end. A batch stays valid until the second next()
  /// after the one that gave it, or until begin(), so that a device may still read it while the
  /// following one is fetched.
  /// \throws what the pipeline threw, in its place among the batches, and again until begin();
  /// UsageError before the first begin().
  bool next(Batch& out) {
    if (!begun_) throw UsageError("loader: next() before begin(); call begin(pass) first");
    if (depth_ == 0 && !finished_) advance();
    if (const Batch* batch = take()) {
      out = *batch;
      return true;
    }
    if (!error_) return false;
    if constexpr (may_run_ahead)
      if (thread_.joinable()) thread_.join();  // it is leaving, and must let go of the exception
    std::rethrow_exception(error_);
  }

 private:
  /// Whether the pipeline may end in `prefetch(k)`: without, nothing of the thread is compiled.
  static constexpr bool may_run_ahead = !detail::NeverPrefetches<D>;

  struct Buffer {
    detail::AlignedArray<T> x;
    detail::AlignedArray<Target> y;
    std::vector<T> w;
    Batch batch;
  };

  static std::size_t product(std::size_t a, std::size_t b) {
    if (b != 0 && a > std::numeric_limits<std::size_t>::max() / b) throw std::bad_alloc();
    return a * b;
  }

  Slice share_of(std::size_t global) const {
    if (!share_) return {0, global};
    const Slice slice = share_(global);
    if (slice.first > global || slice.count > global - slice.first)
      throw UsageError({"loader: a share of ", slice.count, " examples from ", slice.first,
                        " of a batch of ", global, "; a share lies within its batch"});
    if (slice.count > largest_)
      throw UsageError({"loader: a share of ", slice.count, " examples of a batch of ", global,
                        ", more than the ", largest_, " of the largest batch; give it no more"});
    return slice;
  }

  /// The next batch, or null at the end; the one before the last is let go.
  const Batch* take() {
    std::unique_lock<std::mutex> lock;
    if constexpr (may_run_ahead) lock = std::unique_lock(mutex_);
    released_ = taken_ > 0 ? taken_ - 1 : 0;
    if constexpr (may_run_ahead) {
      changed_.notify_all();
      changed_.wait(lock, [this] { return taken_ < assembled_ || finished_; });
    }
    return taken_ < assembled_ ? &buffers_[taken_++ % buffers_.size()].batch : nullptr;
  }

  void run() {
    while (!finished_) {
      {
        std::unique_lock lock(mutex_);
        changed_.wait(lock,
                      [this] { return stopped_ || assembled_ - released_ < buffers_.size(); });
        if (stopped_) return;
      }
      advance();
    }
  }

  /// Assembles one more batch and publishes it, or the end of the pass, or what was thrown.
  void advance() {
    bool more = false;
    std::exception_ptr error;
    try {
      more = assemble(buffers_[assembled_ % buffers_.size()]);
    } catch (...) {
      error = std::current_exception();
    }
    std::unique_lock<std::mutex> lock;
    if constexpr (may_run_ahead) lock = std::unique_lock(mutex_);
    error_ = std::move(error);
    finished_ = !more;
    if (more) ++assembled_;
    if constexpr (may_run_ahead) changed_.notify_all();
  }

  /// False at the end of the pass.
  bool assemble(Buffer& buffer) {
    // The size of the batch decides the share, so the indices come first: all of them in `items_`.
    items_.clear();
    const std::uint64_t first = ordinal_;
    while (items_.size() < dataset_.batch_size()) {
      const auto index = stream_->next();
      if (!index) break;
      items_.push_back({*index, ordinal_++});
    }
    const std::size_t global = items_.size();
    if (global == 0) return false;
    const BatchSlice slice = whole_batch(global, pass_.number, first).with(share_of(global));
    const auto own = std::span<const Item>(items_).subspan(slice.first, slice.count);
    if (slice.count > 0) dataset_.gather(pass_, own, buffer.x.data(), buffer.y.data());
    buffer.batch = {.x = buffer.x.data(), .y = buffer.y.data(), .slice = slice};
    if (is_weighted()) weigh(buffer, own);
    return true;
  }

  [[gnu::cold]] void weigh(Buffer& buffer, std::span<const Item> items) {
    std::fill(buffer.w.begin(), buffer.w.end(), T(1));
    if constexpr (WeightedDataset<D>) dataset_.weigh(items, buffer.w.data());
    class_weights_.weigh(buffer.y.data(), dataset_.target_shape().size(), items.size(),
                         buffer.w.data());
    buffer.batch.w = buffer.w.data();
  }

  void stop() {
    if constexpr (may_run_ahead) {
      if (!thread_.joinable()) return;
      {
        const std::scoped_lock lock(mutex_);
        stopped_ = true;
      }
      changed_.notify_all();
      thread_.join();
      stopped_ = false;
    }
  }

  D dataset_;
  Share share_;
  std::size_t depth_;
  detail::ClassTable class_weights_;
  std::size_t largest_ = 0;  // the share of the largest batch
  bool begun_ = false;
  // Used by whoever assembles: the thread while it runs, else the caller.
  Pass pass_;
  std::optional<pipeline::StreamOf<D>> stream_;
  std::uint64_t ordinal_ = 0;
  std::vector<Item> items_;
  // A ring. The caller holds the batches released_ .. taken_ - 1, and taken_ .. assembled_ - 1 wait
  // for it. The mutex guards the numbers, which also say whose a buffer is.
  std::vector<Buffer> buffers_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::uint64_t assembled_ = 0, taken_ = 0, released_ = 0;
  bool finished_ = false, stopped_ = false;
  std::exception_ptr error_;
  std::thread thread_;  // last: it uses all of the above
};

}  // namespace lockstep
