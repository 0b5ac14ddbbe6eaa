#pragma once

#include "lockstep/data/loader.hpp"

#include <cxxabi.h>

#include <algorithm>

#include "lockstep/core/error.hpp"
#include "lockstep/core/threads.hpp"

namespace lockstep::detail {

/// a * b; throws bad_alloc on overflow instead of allocating too little.
inline std::size_t checked_product(std::size_t a, std::size_t b) {
  if (b != 0 && a > std::numeric_limits<std::size_t>::max() / b) throw std::bad_alloc();
  return a * b;
}

template <class T, class Target>
BatchAssembler<T, Target>::BatchAssembler(ExampleSource<T, Target>& source, const BatchSizes& sizes,
                                          Share share, const ClassWeights& class_weights)
    : source_(source),
      sizes_(sizes),
      share_(std::move(share)),
      class_weights_(class_weights),
      largest_(sizes.largest),
      buffers_(sizes.depth + 2) {
  allocate();
  items_.reserve(sizes.largest);
}

template <class T, class Target>
void BatchAssembler<T, Target>::set_share(Share share) {
  stop();
  begun_ = false;
  share_ = std::move(share);
  allocate();
}

template <class T, class Target>
void BatchAssembler<T, Target>::allocate() {
  largest_ = sizes_.largest;
  largest_ = share_of(sizes_.largest).count;
  for (Buffer& buffer : buffers_) {
    buffer.x = AlignedArray<T>(checked_product(largest_, sizes_.x));
    buffer.y = AlignedArray<Target>(checked_product(largest_, sizes_.y));
    if (is_weighted()) buffer.w = std::vector<T>(largest_);
  }
}

/// Stops the thread. Waits no longer than it takes to finish the batch being assembled.
template <class T, class Target>
BatchAssembler<T, Target>::~BatchAssembler() {
  stop();
}

template <class T, class Target>
void BatchAssembler<T, Target>::begin(Pass pass, std::uint64_t skip_examples) {
  stop();
  begun_ = false;
  pass_ = pass;
  assembled_ = acquired_ = released_ = 0;
  finished_ = false;
  error_ = nullptr;
  ordinal_ = source_.begin(pass, skip_examples);
  if (sizes_.depth > 0) thread_ = start_thread("prefetch", [this] { run(); });
  begun_ = true;
}

template <class T, class Target>
bool BatchAssembler<T, Target>::next(Batch& out) {
  if (!begun_) throw UsageError("loader: next() before begin(); call begin(pass) first");
  if (sizes_.depth == 0 && !finished_) advance();
  if (const Batch* batch = acquire()) {
    out = *batch;
    return true;
  }
  if (!error_) return false;
  if (thread_.joinable())
    thread_.join();  // the thread is exiting; it must drop its reference first
  std::rethrow_exception(error_);
}

template <class T, class Target>
Slice BatchAssembler<T, Target>::share_of(std::size_t global) const {
  if (!share_) return {0, global};
  const Slice slice = share_(global);
  if (slice.first > global || slice.count > global - slice.first)
    throw UsageError(
        "loader: the share of {} examples from {} exceeds the batch of {}; return a slice of the "
        "batch",
        slice.count, slice.first, global);
  if (slice.count > largest_)
    throw UsageError(
        "loader: the share of {} examples of a batch of {} exceeds the {} of the largest batch; "
        "return at most as many",
        slice.count, global, largest_);
  return slice;
}

template <class T, class Target>
auto BatchAssembler<T, Target>::acquire() -> const Batch* {
  std::unique_lock lock(mutex_);
  released_ = acquired_ > 0 ? acquired_ - 1 : 0;
  changed_.notify_all();
  changed_.wait(lock, [this] { return acquired_ < assembled_ || finished_; });
  return acquired_ < assembled_ ? &buffers_[acquired_++ % buffers_.size()].batch : nullptr;
}

template <class T, class Target>
void BatchAssembler<T, Target>::run() {
  while (!finished_) {
    {
      std::unique_lock lock(mutex_);
      changed_.wait(lock, [this] { return stopped_ || assembled_ - released_ < buffers_.size(); });
      if (stopped_) return;
    }
    advance();
  }
}

/// Assembles one batch and publishes it, or the end of the pass, or the exception thrown.
template <class T, class Target>
void BatchAssembler<T, Target>::advance() {
  bool more = false;
  std::exception_ptr error;
  try {
    more = assemble(buffers_[assembled_ % buffers_.size()]);
  } catch (const abi::__forced_unwind&) {
    publish(false, current_error());
    throw;
  } catch (...) {
    error = std::current_exception();
  }
  publish(more, std::move(error));
}

template <class T, class Target>
void BatchAssembler<T, Target>::publish(bool more, std::exception_ptr error) {
  const std::scoped_lock lock(mutex_);
  error_ = std::move(error);
  finished_ = !more;
  if (more) ++assembled_;
  changed_.notify_all();
}

/// Fills one buffer; false at the end of the pass.
template <class T, class Target>
bool BatchAssembler<T, Target>::assemble(Buffer& buffer) {
  // The share depends on the size of the global batch, so all its indices are read first.
  items_.clear();
  const std::uint64_t first = ordinal_;
  source_.append_items(sizes_.batch, items_, ordinal_);
  const std::size_t global = items_.size();
  if (global == 0) return false;
  const BatchSlice slice = whole_batch(global, pass_.number, first).with(share_of(global));
  const auto local = std::span<const Item>(items_).subspan(slice.first, slice.count);
  if (slice.count > 0) source_.gather(pass_, local, buffer.x.data(), buffer.y.data());
  // The type is spelled out because nvcc does not pass untyped designated initializers to g++.
  buffer.batch = Batch{.x = buffer.x.data(), .y = buffer.y.data(), .slice = slice};
  if (is_weighted()) weigh(buffer, local);
  return true;
}

template <class T, class Target>
void BatchAssembler<T, Target>::weigh(Buffer& buffer, std::span<const Item> items) {
  std::fill(buffer.w.begin(), buffer.w.end(), T(1));
  source_.weigh(items, buffer.w.data());
  class_weights_.weigh(buffer.y.data(), sizes_.y, items.size(), buffer.w.data());
  buffer.batch.w = buffer.w.data();
}

template <class T, class Target>
void BatchAssembler<T, Target>::stop() {
  if (!thread_.joinable()) return;
  const CancellationDeferred deferred;
  {
    const std::scoped_lock lock(mutex_);
    stopped_ = true;
  }
  changed_.notify_all();
  thread_.join();
  stopped_ = false;
}

#ifdef LOCKSTEP_SEPARATE_COMPILATION
template class BatchAssembler<float, float>;
template class BatchAssembler<float, std::int32_t>;
template class BatchAssembler<double, double>;
template class BatchAssembler<double, std::int32_t>;
#endif

}  // namespace lockstep::detail
