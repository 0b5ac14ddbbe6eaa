/// \file
/// Runs the members of a group in threads, makes their inputs, and computes the expected results.
/// Invariants: a hang ends the program with a message; results are compared only with the
/// formulas in this file; a fault in one member ends all of them.
#pragma once

#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <exception>
#include <iterator>
#include <limits>
#include <memory>
#include <new>
#include <random>
#include <stdexcept>
#include <string>
#include <thread>
#include <type_traits>
#include <utility>
#include <vector>

#include "lockstep/collectives/algorithms/sum_members.hpp"
#include "lockstep/core/error.hpp"
#include "lockstep/core/function_ref.hpp"
#include "support/deadline.hpp"

namespace contract {

using Clock = std::chrono::steady_clock;
using namespace std::chrono_literals;

using testing::Deadline;

/// The outcome of a check in a separate thread.
struct Fault : std::logic_error {
  using std::logic_error::logic_error;
};
inline void expect(bool holds, const char* what) {
  if (!holds) throw Fault(what);
}

/// Maps memory that processes share: those forked later. Tests whose members are started as separate
/// processes replace it.
inline void* (*map_shared)(std::size_t bytes) = [](std::size_t bytes) {
  return ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
};

/// Allocates memory that processes share.
template <class T>
struct Shared {
  using value_type = T;
  Shared() = default;
  template <class U>
  Shared(const Shared<U>&) {}
  T* allocate(std::size_t n) {
    void* const p = map_shared(n * sizeof(T));
    if (p == MAP_FAILED) throw std::bad_alloc();
    return static_cast<T*>(p);
  }
  void deallocate(T* p, std::size_t n) { ::munmap(p, n * sizeof(T)); }
  bool operator==(const Shared&) const = default;
};

/// An exception as a process reports it to its parent.
struct ReportedError {
  enum class Type { none, fault, aborted, timed_out, usage, other };
  Type type = Type::none;
  char text[500] = {};

  static ReportedError current() {
    ReportedError report;
    const auto note = [&](Type found, const char* what) {
      report.type = found;
      std::strncpy(report.text, what, sizeof report.text - 1);
    };
    try {
      throw;
    } catch (const Fault& e) {
      note(Type::fault, e.what());
    } catch (const lockstep::CollectiveAborted& e) {
      note(Type::aborted, e.what());
    } catch (const lockstep::CollectiveTimeout& e) {
      note(Type::timed_out, e.what());
    } catch (const lockstep::UsageError& e) {
      note(Type::usage, e.what());
    } catch (const std::exception& e) {
      note(Type::other, e.what());
    }
    return report;
  }
  std::exception_ptr error() const {
    const std::string what = text;
    switch (type) {
      case Type::none:
        return nullptr;
      case Type::fault:
        return std::make_exception_ptr(Fault(what));
      case Type::aborted:
        return std::make_exception_ptr(lockstep::CollectiveAborted(what));
      case Type::timed_out:
        return std::make_exception_ptr(lockstep::CollectiveTimeout(what));
      case Type::usage:
        return std::make_exception_ptr(lockstep::UsageError(what));
      case Type::other:
        break;
    }
    return std::make_exception_ptr(std::runtime_error(what));
  }
};

template <class Maker>
using MemberOf = std::remove_reference_t<decltype(std::declval<Maker&>().member(0))>;

/// The part of one member. A reference, so that each maker has one function that runs its members.
template <class Maker>
using Body = lockstep::FunctionRef<void(MemberOf<Maker>&, std::size_t rank)>;

/// `run_members` with a forked process per member.
template <class Maker>
std::vector<std::exception_ptr> run_processes(Maker& maker, Body<Maker> body,
                                              const std::vector<std::size_t>& absent) {
  std::vector<ReportedError, Shared<ReportedError>> reports(maker.size());
  std::vector<::pid_t> children;
  for (std::size_t rank = 0; rank < maker.size(); ++rank) {
    if (std::find(absent.begin(), absent.end(), rank) != absent.end()) continue;
    const ::pid_t child = ::fork();
    if (child < 0) throw std::runtime_error("no process for a member");
    if (child == 0) {
      ::alarm(60);
      try {
        body(maker.member(rank), rank);
      } catch (...) {
        reports[rank] = ReportedError::current();
        if (reports[rank].type == ReportedError::Type::fault) maker.member(rank).abort();
      }
      ::_exit(0);
    }
    children.push_back(child);
  }
  bool all_exited = true;
  for (const ::pid_t child : children) {
    int status = -1;
    all_exited = ::waitpid(child, &status, 0) == child && status == 0 && all_exited;
  }
  if (!all_exited) throw std::runtime_error("a member's process did not exit normally");
  std::vector<std::exception_ptr> errors;
  for (const ReportedError& report : reports) errors.push_back(report.error());
  return errors;
}

/// `run_members` in each of the processes that are the members or, with a rank of at least the size,
/// do not take part. All get the same result.
template <class Maker>
std::vector<std::exception_ptr> run_own_member(Maker& maker, Body<Maker> body,
                                               const std::vector<std::size_t>& absent) {
  ReportedError report;
  const std::size_t rank = maker.own_rank();
  if (rank < maker.size() && std::find(absent.begin(), absent.end(), rank) == absent.end()) {
    try {
      body(maker.member(rank), rank);
    } catch (...) {
      report = ReportedError::current();
      if (report.type == ReportedError::Type::fault) maker.member(rank).abort();
    }
  }
  std::vector<std::exception_ptr> errors;
  for (const ReportedError& each : maker.gather(report)) errors.push_back(each.error());
  errors.resize(maker.size());
  return errors;
}

/// Runs body(member, rank) in a thread per member or, with `in_processes`, a process per member, or in the processes
/// that a maker with `own_rank` and `gather` has, except for those in `absent`. \return what each threw. A fault ends
/// the other members' waits.
template <class Maker>
std::vector<std::exception_ptr> run_members(Maker& maker, const char* what, Body<Maker> body,
                                            const std::vector<std::size_t>& absent = {}) {
  const Deadline deadline(what);
  if constexpr (requires { Maker::in_processes; }) return run_processes(maker, body, absent);
  if constexpr (requires { maker.own_rank(); }) return run_own_member(maker, body, absent);
  std::vector<std::exception_ptr> errors(maker.size());
  std::vector<std::thread> threads;
  for (std::size_t rank = 0; rank < maker.size(); ++rank) {
    bool comes = true;
    for (const std::size_t r : absent) comes = comes && r != rank;
    if (!comes) continue;
    threads.emplace_back([&, rank] {
      try {
        body(maker.member(rank), rank);
      } catch (const Fault&) {
        errors[rank] = std::current_exception();
        maker.member(rank).abort();
      } catch (...) {
        errors[rank] = std::current_exception();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  return errors;
}

inline std::string text_of(const std::exception_ptr& error) {
  if (!error) return "";
  try {
    std::rethrow_exception(error);
  } catch (const std::exception& e) {
    return e.what();
  }
}

template <class E>
bool is(const std::exception_ptr& error) {
  if (!error) return false;
  try {
    std::rethrow_exception(error);
  } catch (const E&) {
    return true;
  } catch (...) {
    return false;
  }
}

/// Faults go first, because the other errors are their consequences.
inline std::string first_error(const std::vector<std::exception_ptr>& errors) {
  for (const auto& error : errors)
    if (is<Fault>(error)) return text_of(error);
  for (const auto& error : errors)
    if (error) return text_of(error);
  return "";
}

// The tests are not optimized, and millions of values are computed here. Without optimization only functions that are
// always_inline are inlined, so loops use pointers instead of members of containers.
#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC push_options
#pragma GCC optimize("O2")
#endif

[[gnu::always_inline]] constexpr std::uint64_t mix(std::uint64_t x) {
  x += 0x9e3779b97f4a7c15u;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
  return x ^ (x >> 31);
}

/// The seed of a member's values.
constexpr std::uint64_t key_of(std::uint64_t set, std::size_t rank) {
  return mix(set * 1000 + rank);
}

/// The i-th value of a key. Integers are small enough that 16 of them can be added without
/// overflow; the others lie between 1 and 2^25 and use their whole mantissa, so that each order of
/// addition gives different bits.
template <class T>
[[gnu::always_inline]] inline T value(std::uint64_t key, std::size_t i) {
  const std::uint64_t h = mix(key + i);
  if constexpr (std::is_same_v<T, bool>) {
    return h % 2 == 1;
  } else if constexpr (std::is_floating_point_v<T>) {
    const double mantissa = 1 + static_cast<double>(h >> 11) * 0x1p-53;
    const double scale = static_cast<double>(1u << (h % 25));
    return static_cast<T>(h & 32 ? -mantissa * scale : mantissa * scale);
  } else {
    const auto largest = static_cast<std::uint64_t>(std::numeric_limits<T>::max()) / 16;
    const auto magnitude = h % (largest + 1);
    if (std::is_signed_v<T> && (h >> 63) == 1) return static_cast<T>(0 - magnitude);
    return static_cast<T>(magnitude);
  }
}

/// at(first) + ... + at(last - 1) in the given order; a tree is split in the middle, the larger
/// half first.
template <class T, class At>
T sum_of(lockstep::SumOrder order, std::size_t first, std::size_t last, const At& at) {
  if (order == lockstep::SumOrder::tree && last - first > 1) {
    const std::size_t middle = last - (last - first) / 2;
    return static_cast<T>(sum_of<T>(order, first, middle, at) + sum_of<T>(order, middle, last, at));
  }
  T sum = at(first);
  for (std::size_t r = first + 1; r < last; ++r) sum = static_cast<T>(sum + at(r));
  return sum;
}

template <class T>
[[gnu::always_inline]] inline bool same_bits(const T& a, const T& b) {
  return std::memcmp(&a, &b, sizeof(T)) == 0;
}

/// n values between guards; each member's start at a different offset from a cache line.
template <class T>
class Numbers {
 public:
  Numbers(std::size_t n, std::size_t rank) : before_(3 + rank % 5), n_(n) {
    memory_ = std::make_unique<T[]>(before_ + n + after);
    std::memset(static_cast<void*>(memory_.get()), guard, (before_ + n + after) * sizeof(T));
  }
  /// Fills in the values of this member.
  Numbers(std::uint64_t set, std::size_t n, std::size_t rank) : Numbers(n, rank) {
    const std::uint64_t key = key_of(set, rank);
    T* const x = data();
    for (std::size_t i = 0; i < n; ++i) x[i] = value<T>(key, i);
  }
  T* data() { return memory_.get() + before_; }
  const T* data() const { return memory_.get() + before_; }
  std::size_t size() const { return n_; }
  const T& operator[](std::size_t i) const { return memory_[before_ + i]; }
  bool guards_intact() const {
    return all_guard(0, before_) && all_guard(before_ + n_, before_ + n_ + after);
  }

 private:
  static constexpr std::size_t after = 7;
  static constexpr unsigned char guard = 1;  // also a valid bool

  bool all_guard(std::size_t first, std::size_t last) const {
    const auto* bytes = reinterpret_cast<const unsigned char*>(memory_.get());
    for (std::size_t i = first * sizeof(T); i < last * sizeof(T); ++i)
      if (bytes[i] != guard) return false;
    return true;
  }

  std::unique_ptr<T[]> memory_;
  std::size_t before_, n_;
};

/// Whether x is the sum of the members' values and the guards are unchanged.
template <class T>
bool is_sum(const Numbers<T>& x, std::uint64_t set, std::size_t members, lockstep::SumOrder order) {
  std::uint64_t keys[256];  // the members of the largest group
  if (members > std::size(keys)) throw std::logic_error("is_sum: more than 256 members");
  for (std::size_t r = 0; r < members; ++r) keys[r] = key_of(set, r);
  const T* const sums = x.data();
  const std::size_t n = x.size();
  for (std::size_t i = 0; i < n; ++i) {
    const auto at = [&](std::size_t r)
                        __attribute__((always_inline)) { return value<T>(keys[r], i); };
    if (!same_bits(sums[i], sum_of<T>(order, 0, members, at))) return false;
  }
  return x.guards_intact();
}

/// Whether x has the values of `rank`.
template <class T>
bool holds(const T* x, std::uint64_t set, std::size_t rank, std::size_t n) {
  const std::uint64_t key = key_of(set, rank);
  for (std::size_t i = 0; i < n; ++i)
    if (!same_bits(x[i], value<T>(key, i))) return false;
  return true;
}

#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC pop_options
#endif

/// A random pause: none, some yields, a short sleep or a short loop.
inline void dawdle(std::mt19937_64& draw) {
  const std::uint64_t length = draw() % 100;
  switch (draw() % 8) {
    case 0:
      std::this_thread::sleep_for(std::chrono::microseconds(length));
      break;
    case 1:
    case 2:
      for (std::uint64_t i = 0; i < length % 8; ++i) std::this_thread::yield();
      break;
    case 3:
    case 4:
      for (const auto end = Clock::now() + std::chrono::microseconds(length); Clock::now() < end;) {
      }
      break;
    default:
      break;
  }
}

}  // namespace contract
