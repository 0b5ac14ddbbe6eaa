/// \file
/// A value that many threads read while another one replaces it. Invariants: a reader sees one
/// value for as long as it reads; readers neither wait, lock nor allocate; the thread that replaces
/// the value destroys the old one.
#pragma once

#include <atomic>
#include <memory>
#include <thread>
#include <utility>

#include "lockstep/core/chrono.hpp"

namespace lockstep::detail {

/// Where one reader announces what it reads. Used by one thread at a time.
template <class T>
class ReaderMark {
 public:
  ReaderMark() = default;
  ReaderMark(const ReaderMark&) = delete;
  ReaderMark& operator=(const ReaderMark&) = delete;

 private:
  template <class>
  friend class SharedValue;
  std::atomic<const T*> reads_{nullptr};
};

/// A hazard pointer per reader:
///
///     reader    mark = current;  if current has changed: again;   ... reads ...   mark = null
///     writer    current = next;  waits while a mark has the old value;            deletes it
///
/// All four accesses are sequentially consistent: either the reader sees the new value, or the
/// writer sees the mark. A mark made after the exchange sees the new value.
template <class T>
class SharedValue {
 public:
  explicit SharedValue(std::unique_ptr<const T> first) : current_(first.release()) {}
  SharedValue(const SharedValue&) = delete;
  SharedValue& operator=(const SharedValue&) = delete;
  /// No reader may be left.
  ~SharedValue() { delete current_.load(); }

  /// The value for the lifetime of the object.
  class Reading {
   public:
    Reading(const SharedValue& shared, ReaderMark<T>& mark) : mark_(mark) {
      const T* seen = shared.current_.load();
      for (const T* before = nullptr; seen != before; seen = shared.current_.load()) {
        mark.reads_.store(seen);
        before = seen;
      }
      value_ = seen;
    }
    ~Reading() { mark_.reads_.store(nullptr, std::memory_order_release); }
    Reading(const Reading&) = delete;
    Reading& operator=(const Reading&) = delete;
    const T& operator*() const { return *value_; }
    const T* operator->() const { return value_; }

   private:
    ReaderMark<T>& mark_;
    const T* value_;
  };

  /// Publishes `next`. \returns the old value, which must outlive its readers: see
  /// `wait_for_reader`.
  std::unique_ptr<const T> exchange(std::unique_ptr<const T> next) {
    return std::unique_ptr<const T>(current_.exchange(next.release()));
  }
  /// Waits until `mark` no longer reads `old`, which has been exchanged.
  static void wait_for_reader(const ReaderMark<T>& mark, const T& old) {
    for (int i = 0; mark.reads_.load() == &old; ++i) {
      if (i < 100)
        std::this_thread::yield();
      else  // the reader computes for long, or has no core
        std::this_thread::sleep_for(std::chrono::microseconds(50));
    }
  }

 private:
  std::atomic<const T*> current_;
};

}  // namespace lockstep::detail
