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
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <thread>
#include <utility>
#include <vector>

#include "lockstep/concepts/dataset.hpp"
#include "lockstep/concepts/loaded_batch.hpp"
#include "lockstep/core/aligned_buffer.hpp"
#include "lockstep/core/config.hpp"
#include "lockstep/core/slice.hpp"
#include "lockstep/data/operations/batch.hpp"
#include "lockstep/data/operations/class_weights.hpp"
#include "lockstep/data/operations/prefetch.hpp"
#include "lockstep/data/pipe.hpp"

namespace lockstep {

namespace detail {

/// Type-erased pipeline, so that the batch assembly below is compiled once per element type instead
/// of once per pipeline.
template <class T>
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
  /// Writes the first `to.size()` fields of `items`, row after row.
  virtual void gather(Pass pass, std::span<const Item> items, std::span<void* const> to) const = 0;
};

/// The ExampleSource over pipeline `D`. Keeps its index stream from pass to pass, so that only the
/// first pass allocates.
template <class T, BatchedDataset D>
class PipelineSource final : public ExampleSource<T> {
 public:
  explicit PipelineSource(const D& dataset) : dataset_(dataset) {}
  std::uint64_t begin(Pass pass, std::uint64_t skip) override {
    return pipeline::begin(dataset_, stream_, pass, skip);
  }
  void append_items(std::size_t count, std::vector<Item>& items, std::uint64_t& ordinal) override {
    while (items.size() < count) {
      const auto next = index();
      if (!next) break;
      items.push_back({*next, ordinal++});
    }
  }
  void gather(Pass pass, std::span<const Item> items, std::span<void* const> to) const override {
    RowsOf<D, T> rows;
    for (std::size_t field = 0; field < to.size(); ++field) rows[field] = to[field];
    dataset_.gather(pass, items, rows);
  }

 private:
  // Kept out of line so that the nested streams of a pipeline compile to one function.
  [[gnu::noinline]] std::optional<std::uint64_t> index() { return stream_->next(); }

  D dataset_;
  std::optional<pipeline::StreamOf<D>> stream_;
};

/// The facts about a pipeline that the batch assembly needs.
struct BatchSizes {
  std::size_t batch;          ///< examples in a global batch
  std::size_t largest;        ///< examples in the largest batch of a pass
  std::size_t depth;          ///< batches assembled ahead; 0: no thread
  std::vector<Field> fields;  ///< what to assemble: the pipeline's fields up to some role
};

/// The sizes of a pipeline of `size` examples, nullopt: infinite, with the `fields` up to those of
/// role `last`. A data set smaller than one batch limits the memory reserved.
LOCKSTEP_COLD_DECL BatchSizes batch_sizes(std::size_t batch, std::optional<std::uint64_t> size,
                                          std::size_t depth, std::span<const Field> fields,
                                          FieldRole last);
template <BatchedDataset D>
BatchSizes batch_sizes(const D& dataset, FieldRole last = FieldRole::weight) {
  static_assert(D::fields::size < LoadedBatch::most,
                "lockstep::Loader: a pipeline has 15 fields at most; remove some");
  return batch_sizes(dataset.batch_size(), dataset.size(), dataset.prefetch_depth(),
                     fields_of(dataset), last);
}

}  // namespace detail

/// Assembles the batches of a pass, in the calling thread or, for a pipeline that ends in
/// `prefetch(k)`, up to k batches ahead in a separate thread. Not thread-safe: all calls come from
/// one thread.
///
///     released_           acquired_            assembled_      counters of batches, all rising
///        | held by the      | ready, returned      | free, filled
///        | caller           | by next()            | by advance()
///
/// The ring has depth + 2 buffers: `depth` ready ones, the batch in use, and the one before it,
/// which a device may still be reading. With depth 0, next() calls advance() in its own thread.
///
/// An example's ordinal is its position in the pass, counted from 0 in the order of the stream.
/// \code
///   lockstep::Loader<float> loader(train);
///   lockstep::LoadedBatch batch;
///   loader.begin({.seed = 1, .number = epoch});
///   while (loader.next(batch))
///     step(batch.rows<float>(0), batch.rows<std::int32_t>(1), batch.slice.count);
/// \endcode
template <class T>
class Loader {
 public:
  /// Maps the size of a global batch to the slice of it that this worker holds. Must be a pure
  /// function whose count is largest for the largest batch; may be called from the prefetch thread.
  using Share = std::function<Slice(std::size_t)>;

  /// Allocates the memory for all batches. Without `share`, the worker holds the whole of each
  /// batch. `class_weights`: Keras' `class_weight`, multiplied with the sample weights of the data.
  /// `last`: fields of later roles are not assembled. `weighed`: the positions of an example that
  /// have a weight each. The data have these weights, or one per example, which all positions get;
  /// it is multiplied with that of the class of their target.
  template <BatchedDataset D>
  explicit Loader(const D& dataset, Share share = {}, const ClassWeights& class_weights = {},
                  FieldRole last = FieldRole::weight, Shape weighed = {})
      : Loader(std::unique_ptr<detail::ExampleSource<T>>(new detail::PipelineSource<T, D>(dataset)),
               detail::batch_sizes(dataset, last), std::move(share), class_weights, weighed) {}
  [[gnu::cold]] Loader(std::unique_ptr<detail::ExampleSource<T>> source, detail::BatchSizes sizes,
                       Share share, const ClassWeights& class_weights, Shape weighed = {});
  Loader(const Loader&) = delete;
  Loader& operator=(const Loader&) = delete;
  [[gnu::cold]] ~Loader();

  /// The fields of a batch: the data's, and a weight if there are class weights.
  const std::vector<Field>& fields() const { return fields_; }
  /// Replaces the share and allocates the memory for it. Call `begin` before `next`.
  [[gnu::cold]] void set_share(Share share);
  /// Starts a pass and skips its first `skip_examples` examples. A pass in progress is abandoned.
  /// \throws whatever the pipeline throws.
  [[gnu::cold]] void begin(Pass pass, std::uint64_t skip_examples = 0);
  /// Writes the next batch of the pass to `out`; returns false at the end of the pass. A batch
  /// stays valid until the second next() after the call that returned it, or until begin(), so a
  /// device may still read it while the following batch is fetched.
  /// \throws what the pipeline threw while it assembled this batch, and again on each call until
  /// begin(); UsageError before the first begin().
  bool next(LoadedBatch& out);
  /// Leaves out the next `examples` of the pass, for a loader without a prefetch thread.
  [[gnu::cold]] void skip(std::uint64_t examples);

 private:
  struct Buffer {
    std::vector<detail::AlignedBuffer> fields;
    LoadedBatch batch;
  };

  /// The slice of a global batch that this worker holds, checked against the batch and the buffers.
  Slice share_of(std::size_t global) const;
  [[gnu::cold]] void allocate();
  /// Waits for the next ready batch and releases the one before the last; null at the end of the
  /// pass.
  const LoadedBatch* acquire();
  /// Body of the prefetch thread: waits for a free buffer and fills it, until the pass ends or
  /// stop() is called.
  [[gnu::cold]] void run();
  void advance();
  void publish(bool more, std::exception_ptr error);
  bool assemble(Buffer& buffer);
  [[gnu::cold]] void weigh(Buffer& buffer, std::size_t count);
  [[gnu::cold]] void stop();

  std::unique_ptr<detail::ExampleSource<T>> source_;
  std::vector<Field> fields_;
  std::size_t gathered_;   // fields that the source writes
  std::size_t weighed_;    // weights of an example
  std::size_t given_ = 1;  // of those, the source's
  std::size_t batch_, largest_batch_, depth_;
  Share share_;
  detail::ClassTable class_weights_;
  std::size_t target_ = 0;   // the field that has the classes, if there are class weights
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

}  // namespace lockstep

#ifdef LOCKSTEP_HEADER_ONLY
#include "lockstep/data/loader.ipp"
#endif
