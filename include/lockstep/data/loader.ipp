#pragma once

#include "lockstep/data/loader.hpp"

#include <cxxabi.h>

#include <algorithm>
#include <array>
#include <limits>
#include <new>

#include "lockstep/core/error.hpp"
#include "lockstep/core/process/threads.hpp"
#include "lockstep/data/operations/weight_shapes.hpp"

namespace lockstep {

namespace detail {
/// a * b; throws bad_alloc on overflow instead of allocating too little.
inline std::size_t checked_product(std::size_t a, std::size_t b) {
  if (b != 0 && a > std::numeric_limits<std::size_t>::max() / b) throw std::bad_alloc();
  return a * b;
}

BatchSizes batch_sizes(std::size_t batch, std::optional<std::uint64_t> size, std::size_t depth,
                       std::span<const Field> fields, FieldRole last) {
  BatchSizes sizes{
      batch, size && *size < batch ? static_cast<std::size_t>(*size) : batch, depth, {}};
  for (const Field& field : fields)
    if (field.role <= last) sizes.fields.push_back(field);
  return sizes;
}
}  // namespace detail

template <class T>
Loader<T>::Loader(std::unique_ptr<detail::ExampleSource<T>> source, detail::BatchSizes sizes,
                  Share share, const ClassWeights& class_weights, Shape weighed)
    : source_(std::move(source)),
      fields_(std::move(sizes.fields)),
      gathered_(fields_.size()),
      weighed_(weighed.size()),
      batch_(sizes.batch),
      largest_batch_(sizes.largest),
      depth_(sizes.depth),
      share_(std::move(share)),
      class_weights_(class_weights),
      buffers_(sizes.depth + 2) {
  if (!class_weights_.empty()) {
    while (target_ < fields_.size() && fields_[target_].role != FieldRole::target) ++target_;
    if (target_ == fields_.size())
      throw UsageError("class_weight: the batches have no targets; leave it out");
    if (fields_.back().role != FieldRole::weight)
      fields_.push_back({"w", {}, FieldType::real, FieldRole::weight});
  }
  if (!fields_.empty() && fields_.back().role == FieldRole::weight) {
    Shape& shape = fields_.back().shape;
    if (weighed.rank > 0) {
      given_ = shape.size();
      shape = pipeline::common_weights("data", shape, weighed);
    } else {
      weighed_ = given_ = shape.size();
    }
  }
  allocate();
  items_.reserve(largest_batch_);
}

template <class T>
void Loader<T>::set_share(Share share) {
  stop();
  begun_ = false;
  share_ = std::move(share);
  allocate();
}

template <class T>
void Loader<T>::allocate() {
  largest_ = largest_batch_;
  largest_ = share_of(largest_batch_).count;
  for (Buffer& buffer : buffers_) {
    buffer.fields = std::vector<detail::AlignedBuffer>(fields_.size());
    for (std::size_t i = 0; i < fields_.size(); ++i)
      buffer.batch.field[i] = buffer.fields[i].reserve(std::max<std::size_t>(
          detail::checked_product(detail::checked_product(largest_, fields_[i].shape.size()),
                                  bytes_of_element<T>(fields_[i].type)),
          1));  // null would mean that the field is absent
  }
}

/// Stops the thread. Waits no longer than it takes to finish the batch being assembled.
template <class T>
Loader<T>::~Loader() {
  stop();
}

template <class T>
void Loader<T>::begin(Pass pass, std::uint64_t skip_examples) {
  stop();
  begun_ = false;
  pass_ = pass;
  assembled_ = acquired_ = released_ = 0;
  finished_ = false;
  error_ = nullptr;
  ordinal_ = source_->begin(pass, skip_examples);
  if (depth_ > 0) thread_ = detail::start_thread("prefetch", [this] { run(); });
  begun_ = true;
}

template <class T>
bool Loader<T>::next(LoadedBatch& out) {
  if (!begun_) throw UsageError("loader: next() before begin(); call begin(pass) first");
  if (depth_ == 0 && !finished_) advance();
  if (const LoadedBatch* batch = acquire()) {
    out = *batch;
    return true;
  }
  if (!error_) return false;
  if (thread_.joinable())
    thread_.join();  // the thread is exiting; it must drop its reference first
  std::rethrow_exception(error_);
}

template <class T>
void Loader<T>::skip(std::uint64_t examples) {
  while (examples > 0) {
    items_.clear();
    const auto most = static_cast<std::size_t>(std::min<std::uint64_t>(examples, largest_batch_));
    source_->append_items(most, items_, ordinal_);
    if (items_.empty()) return;
    examples -= items_.size();
  }
}

template <class T>
Slice Loader<T>::share_of(std::size_t global) const {
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

template <class T>
auto Loader<T>::acquire() -> const LoadedBatch* {
  std::unique_lock lock(mutex_);
  released_ = acquired_ > 0 ? acquired_ - 1 : 0;
  changed_.notify_all();
  changed_.wait(lock, [this] { return acquired_ < assembled_ || finished_; });
  return acquired_ < assembled_ ? &buffers_[acquired_++ % buffers_.size()].batch : nullptr;
}

template <class T>
void Loader<T>::run() {
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
template <class T>
void Loader<T>::advance() {
  bool more = false;
  std::exception_ptr error;
  try {
    more = assemble(buffers_[assembled_ % buffers_.size()]);
  } catch (const abi::__forced_unwind&) {
    publish(false, detail::current_error());
    throw;
  } catch (...) {
    error = std::current_exception();
  }
  publish(more, std::move(error));
}

template <class T>
void Loader<T>::publish(bool more, std::exception_ptr error) {
  const std::scoped_lock lock(mutex_);
  error_ = std::move(error);
  finished_ = !more;
  if (more) ++assembled_;
  changed_.notify_all();
}

/// Fills one buffer; false at the end of the pass.
template <class T>
bool Loader<T>::assemble(Buffer& buffer) {
  // The share depends on the size of the global batch, so all its indices are read first.
  items_.clear();
  const std::uint64_t first = ordinal_;
  source_->append_items(batch_, items_, ordinal_);
  const std::size_t global = items_.size();
  if (global == 0) return false;
  const BatchSlice slice = whole_batch(global, pass_.number, first).with(share_of(global));
  const auto local = std::span<const Item>(items_).subspan(slice.first, slice.count);
  if (slice.count > 0) {
    std::array<void*, LoadedBatch::most> to;
    for (std::size_t i = 0; i < gathered_; ++i) to[i] = buffer.fields[i].data();
    source_->gather(pass_, local, {to.data(), gathered_});
    if (fields_.back().role == FieldRole::weight && (weighed_ > given_ || !class_weights_.empty()))
      weigh(buffer, slice.count);
  }
  buffer.batch.slice = slice;
  return true;
}

/// Completes the weights: one per position, times that of the class.
template <class T>
void Loader<T>::weigh(Buffer& buffer, std::size_t count) {
  T* const w = reinterpret_cast<T*>(buffer.fields.back().data());
  if (gathered_ < fields_.size())
    std::fill_n(w, count * weighed_, T(1));
  else
    detail::repeat_weights(w, count, weighed_ / given_);
  if (class_weights_.empty()) return;
  const std::byte* const y = buffer.fields[target_].data();
  const std::size_t width = fields_[target_].shape.size() / weighed_;
  if (fields_[target_].type == FieldType::int32)
    class_weights_.weigh(reinterpret_cast<const std::int32_t*>(y), width, count * weighed_, w);
  else
    class_weights_.weigh(reinterpret_cast<const T*>(y), width, count * weighed_, w);
}

template <class T>
void Loader<T>::stop() {
  if (!thread_.joinable()) return;
  const detail::CancellationDeferred deferred;
  {
    const std::scoped_lock lock(mutex_);
    stopped_ = true;
  }
  changed_.notify_all();
  thread_.join();
  stopped_ = false;
}

#ifdef LOCKSTEP_SEPARATE_COMPILATION
template class Loader<float>;
template class Loader<double>;
#endif

}  // namespace lockstep
