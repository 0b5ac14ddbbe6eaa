/// \file
/// A pool of objects that threads borrow for a short time. Invariants: an object has one borrower
/// at a time; a thread that borrows again gets the same object unless another thread needs it, and
/// then neither locks nor allocates; the pool makes an object only when all others are borrowed.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "lockstep/core/function_ref.hpp"

namespace lockstep::detail {

/// A number of the calling thread, counted from 0 in the order in which threads first ask.
inline std::size_t thread_number() {
  static std::atomic<std::size_t> threads{0};
  static thread_local std::size_t number = 0;  // plus 1; 0: not yet known
  if (number == 0) [[unlikely]]
    number = threads.fetch_add(1, std::memory_order_relaxed) + 1;
  return number - 1;
}

/// Idle objects wait in slots; a thread prefers the slot of its number.
///
///     thread 0 ── slot 0 [object]        borrow: exchange with null ... give: exchange with the object
///     thread 1 ── slot 1 [      ]  ...   empty: any other slot, then spare_, then a new object
///     thread 64 ─ slot 0                 full when given back: the object moves to spare_
///
template <class T>
class LeasePool {
 public:
  /// An object borrowed for the lifetime of the lease.
  class Lease {
   public:
    /// Borrows an idle object, or one that `make` returns. Throws what `make` throws.
    template <class Make>
    Lease(LeasePool& pool, const Make& make) : pool_(pool), item_(pool.borrow(make)) {}
    Lease(const Lease&) = delete;
    Lease& operator=(const Lease&) = delete;
    ~Lease() { pool_.give(item_); }
    T& operator*() const { return item_; }
    T* operator->() const { return &item_; }

   private:
    LeasePool& pool_;
    T& item_;
  };

  /// All objects, idle or borrowed. They live as long as the pool.
  std::vector<T*> all() {
    const std::scoped_lock lock(mutex_);
    std::vector<T*> items;
    items.reserve(all_.size());
    for (const std::unique_ptr<T>& item : all_) items.push_back(item.get());
    return items;
  }

 private:
  struct alignas(64) Slot {
    std::atomic<T*> item{nullptr};
  };

  template <class Make>
  T& borrow(const Make& make) {
    T* const item = own_slot().exchange(nullptr, std::memory_order_acquire);
    if (item != nullptr) [[likely]]
      return *item;
    return borrow_other(make);
  }
  std::atomic<T*>& own_slot() { return slots_[thread_number() % slots_.size()].item; }

  [[gnu::cold, gnu::noinline]] T& borrow_other(FunctionRef<std::unique_ptr<T>()> make) {
    {
      const std::scoped_lock lock(mutex_);
      for (Slot& slot : slots_)
        if (T* const item = slot.item.exchange(nullptr, std::memory_order_acquire)) return *item;
      if (!spare_.empty()) {
        T* const item = spare_.back();
        spare_.pop_back();
        return *item;
      }
    }
    std::unique_ptr<T> made = make();
    const std::scoped_lock lock(mutex_);
    spare_.reserve(all_.size() + 1);  // so that giving back cannot throw
    all_.push_back(std::move(made));
    return *all_.back();
  }
  void give(T& item) noexcept {
    if (T* const other = own_slot().exchange(&item, std::memory_order_acq_rel)) [[unlikely]]
      keep(*other);
  }
  [[gnu::cold, gnu::noinline]] void keep(T& item) noexcept {
    const std::scoped_lock lock(mutex_);
    spare_.push_back(&item);
  }

  std::array<Slot, 64> slots_{};
  std::mutex mutex_;  // guards the two below
  std::vector<T*> spare_;
  std::vector<std::unique_ptr<T>> all_;
};

}  // namespace lockstep::detail
