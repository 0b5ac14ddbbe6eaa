/// \file
/// The contract of every collective, for any number of members. Invariant: nothing here depends on
/// how the members communicate; each has its own values and checks its own results.
///
/// A maker is the group under test:
/// \code
///   struct Maker {
///     static constexpr std::size_t max_size = 8;     // sizes 1 to max_size are tested
///     static constexpr lockstep::SumOrder order = lockstep::SumOrder::ranks;
///     static constexpr bool can_end = true;          // abort and timeout end the operations
///     Maker(std::size_t size, std::chrono::milliseconds timeout);
///     std::size_t size() const;
///     Member& member(std::size_t rank);              // a stable address
///     static constexpr bool in_processes = true;     // optional: each member runs in a fork
///     static constexpr bool sees_neighbors = true;   // optional: knows only some members' absence
///     std::size_t own_rank() const;                  // optional: each process runs its own member,
///     std::vector<ReportedError> gather(const ReportedError&);  // and learns what all report
///     void abort_all();                              // optional: ends all members' operations
///   };
/// \endcode
#pragma once

#include <algorithm>
#include <atomic>
#include <catch2/catch_test_macros.hpp>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <random>
#include <string>
#include <thread>
#include <type_traits>
#include <utility>
#include <vector>

#include "lockstep/concepts/collective.hpp"
#include "lockstep/core/error.hpp"
#include "members.hpp"

namespace contract {

inline constexpr std::chrono::milliseconds no_timeout = 60s;  // longer than any Deadline

template <class F>
void for_each_number_type(const F& f) {
  f(std::uint8_t{}), f(std::int8_t{}), f(std::uint16_t{}), f(std::int16_t{});
  f(std::uint32_t{}), f(std::int32_t{}), f(float{});
  f(std::uint64_t{}), f(std::int64_t{}), f(double{});
}

/// 0, 1, odd sizes, and sizes around the boundaries of cache lines and blocks.
inline const std::vector<std::size_t> sizes{0, 1, 2, 7, 63, 64, 65, 1001, 1024, 8193};
inline constexpr std::size_t large = 100'003;

template <class T, class Member>
void check_sum(Member& member, lockstep::SumOrder order, std::uint64_t set, std::size_t n) {
  Numbers<T> x(set, n, member.rank());
  member.all_reduce(x.data(), n);
  expect(is_sum(x, set, member.size(), order), "all_reduce: not the sum, or bits beyond it");
}

template <class T, class Member>
void check_sum_with_sums(Member& member, lockstep::SumOrder order, std::uint64_t set, std::size_t n,
                         std::size_t m) {
  Numbers<T> x(set, n, member.rank());
  Numbers<double> sums(set + 1, m, member.rank());
  member.all_reduce(x.data(), n, sums.data(), m);
  expect(is_sum(x, set, member.size(), order), "all_reduce with sums: not the sum");
  expect(is_sum(sums, set + 1, member.size(), order), "all_reduce with sums: not their sum");
}

template <class T, class Member>
void check_broadcast(Member& member, std::uint64_t set, std::size_t n, std::size_t root) {
  Numbers<T> x(set, n, member.rank());
  member.broadcast(x.data(), n, root);
  expect(holds(x.data(), set, root, n) && x.guards_intact(), "broadcast: not the root's numbers");
}

template <class T, class Gathering>
void check_gather(Gathering& member, std::uint64_t set, std::size_t n) {
  Numbers<T> x(set, n, member.rank()), all(n * member.size(), member.rank());
  member.all_gather(x.data(), n, all.data());
  bool equal = x.guards_intact() && all.guards_intact();
  for (std::size_t r = 0; r < member.size(); ++r)
    equal = equal && holds(all.data() + r * n, set, r, n);
  equal = equal && holds<T>(x.data(), set, member.rank(), n);
  expect(equal, "all_gather: not the members' numbers by rank");
  if constexpr (lockstep::ReduceScatters<Gathering, T>) {
    Numbers<T> whole(set + 1, n * member.size(), member.rank());
    T* const own = whole.data() + member.rank() * n;
    std::copy_n(x.data(), n, own);
    member.all_gather(own, n, whole.data());
    for (std::size_t r = 0; r < member.size(); ++r)
      equal = equal && holds(whole.data() + r * n, set, r, n);
    expect(equal && whole.guards_intact(), "all_gather in place: not the members' numbers");
  }
}

/// Ranges of n elements in ascending order, some of them empty, with gaps between them; the same in
/// all members.
inline std::vector<lockstep::Slice> random_ranges(std::uint64_t seed, std::size_t n,
                                                  std::size_t members) {
  std::mt19937_64 random(seed);
  std::vector<std::size_t> ends(2 * members);
  for (std::size_t& end : ends) end = random() % (n + 1);
  std::sort(ends.begin(), ends.end());
  std::vector<lockstep::Slice> ranges(members);
  for (std::size_t r = 0; r < members; ++r)
    if (random() % 4 != 0)
      ranges[r] = {ends[2 * r], ends[2 * r + 1] - ends[2 * r]};
    else
      ranges[r] = {ends[2 * r], 0};
  return ranges;
}

/// Some of the members contribute; along a tree of connections their sum may round differently.
template <class T, class Member>
void check_sums_of_some(Member& member, lockstep::SumOrder order, std::uint64_t set, std::size_t n,
                        const std::vector<lockstep::Slice>& ranges) {
  const std::size_t first = set % member.size(), count = 1 + set / 7 % (member.size() - first);
  Numbers<T> x(set, n, member.rank());
  member.reduce_scatter(x.data(), ranges, lockstep::Slice{first, count});
  bool is_sum = x.guards_intact();
  const lockstep::Slice own = ranges[member.rank()];
  for (std::size_t i = own.first; i < own.first + own.count; ++i) {
    double magnitude = 0;
    const auto at = [&](std::size_t r) {
      const T v = value<T>(key_of(set, first + r), i);
      magnitude += std::abs(static_cast<double>(v));
      return v;
    };
    const T sum = sum_of<T>(order, 0, count, at);
    const double away = std::abs(static_cast<double>(x[i]) - static_cast<double>(sum));
    is_sum = is_sum && away <= 1e-5 * magnitude;
  }
  expect(is_sum, "reduce_scatter: not the sums of the members that contribute");
}

template <class T, class Member>
void check_ranges(Member& member, lockstep::SumOrder order, std::uint64_t set, std::size_t n,
                  const std::vector<lockstep::Slice>& ranges) {
  Numbers<T> sum(set, n, member.rank()), x(set, n, member.rank()), y(set, n, member.rank());
  member.all_reduce(sum.data(), n);
  expect(is_sum(sum, set, member.size(), order), "all_reduce");
  member.reduce_scatter(x.data(), ranges);
  member.all_gather(y.data(), ranges);
  bool is_reduced = x.guards_intact(), is_gathered = y.guards_intact();
  const auto check = [&](std::size_t from, std::size_t to, std::size_t owner) {
    const bool is_own = owner == member.rank(), is_free = owner == member.size();
    for (std::size_t i = from; i < to; ++i) {
      if (is_own) is_reduced = is_reduced && same_bits(x.data()[i], sum.data()[i]);
      const T before = value<T>(key_of(set, member.rank()), i);
      if (is_free) is_reduced = is_reduced && same_bits(x.data()[i], before);
      const T after = is_free ? before : value<T>(key_of(set, owner), i);
      is_gathered = is_gathered && same_bits(y.data()[i], after);
    }
  };
  std::size_t end = 0;
  for (std::size_t r = 0; r < ranges.size(); ++r) {
    if (ranges[r].count == 0) continue;
    check(end, ranges[r].first, member.size());
    end = ranges[r].first + ranges[r].count;
    check(ranges[r].first, end, r);
  }
  check(end, n, member.size());
  expect(is_reduced, "reduce_scatter: not the sums of an all-reduce, or changes beyond the ranges");
  if constexpr (!requires { Member::has_ranges; })
    check_sums_of_some<T>(member, order, set, n, ranges);
  expect(is_gathered, "all_gather of ranges: not their owners' numbers");
}

/// How often each member has reached a barrier; shared with members that are processes.
using Counts = std::vector<std::atomic<std::uint64_t>, Shared<std::atomic<std::uint64_t>>>;

template <class Member>
void check_barrier(Member& member, Counts& came) {
  const std::uint64_t mine = ++came[member.rank()];
  member.barrier();
  for (const auto& count : came) {
    const std::uint64_t others = count;
    expect(others == mine || others == mine + 1, "barrier: left before all had come");
  }
}

template <class Member>
void check_secret(Member& member, std::uint64_t set, std::size_t n) {
  Numbers<std::uint8_t> x(set, n, member.rank());
  member.share_secret(reinterpret_cast<std::byte*>(x.data()), n);
  expect(holds(x.data(), set, 0, n) && x.guards_intact(), "share_secret: not rank 0's");
}

/// Whole numbers up to 256 are exact, however a group adds them.
inline void check_bfloat16(const lockstep::CollectiveRef& ref, std::size_t n) {
  const auto value = [](std::size_t rank, std::size_t i) { return (rank + i) % 3; };
  std::vector<lockstep::bfloat16> x;
  for (std::size_t i = 0; i < n; ++i) x.emplace_back(value(ref.rank(), i));
  ref.all_reduce(x.data(), n);
  bool equal = true;
  for (std::size_t i = 0; i < n; ++i) {
    std::size_t sum = 0;
    for (std::size_t r = 0; r < ref.size(); ++r) sum += value(r, i);
    equal = equal && static_cast<double>(x[i]) == static_cast<double>(sum);
  }
  expect(equal, "CollectiveRef: all_reduce of bfloat16");
}

/// A CollectiveRef as a kernel uses it.
template <class Member>
void check_reference(Member& member, lockstep::SumOrder order, std::uint64_t set, std::size_t n) {
  const lockstep::CollectiveRef ref(member);
  expect(ref.rank() == member.rank() && ref.size() == member.size(), "CollectiveRef: its place");
  check_sum<float>(ref, order, set, n);
  check_sum<double>(ref, order, set, n);
  Numbers<std::uint8_t> x(set, n, ref.rank()), all(n * ref.size(), ref.rank());
  ref.all_gather(reinterpret_cast<const std::byte*>(x.data()), n,
                 reinterpret_cast<std::byte*>(all.data()));
  for (std::size_t r = 0; r < ref.size(); ++r)
    expect(holds(all.data() + r * n, set, r, n), "CollectiveRef: all_gather");
  if (ref.has_bfloat16()) check_bfloat16(ref, n);
  if (!ref.has_ranges()) return;
  const std::vector<lockstep::Slice> ranges = random_ranges(set, n, ref.size());
  std::vector<lockstep::Slice> bytes;
  for (const lockstep::Slice& range : ranges)
    bytes.push_back({range.first * sizeof(double), range.count * sizeof(double)});
  Numbers<double> sum(set, n, ref.rank()), y(set, n, ref.rank());
  ref.all_reduce(sum.data(), n);
  ref.reduce_scatter(y.data(), ranges);
  ref.all_gather(reinterpret_cast<std::byte*>(y.data()), bytes);
  bool equal = y.guards_intact();
  for (const lockstep::Slice& range : ranges)
    for (std::size_t i = range.first; i < range.first + range.count; ++i)
      equal = equal && same_bits(y.data()[i], sum.data()[i]);
  expect(equal, "CollectiveRef: reduce_scatter and all_gather of ranges");
}

/// Runs `body(member)` in all members of groups of each size; nothing may be thrown.
template <class Maker>
void in_all_sizes(const char* what, lockstep::FunctionRef<void(MemberOf<Maker>&)> body) {
  for (std::size_t size = 1; size <= Maker::max_size; ++size) {
    Maker maker(size, no_timeout);
    INFO(what << ", " << size << " members");
    CHECK(first_error(run_members(maker, what, [&](auto& member, std::size_t rank) {
            expect(member.rank() == rank && member.size() == size, "the member's place");
            body(member);
          })) == "");
  }
}

/// A sequence of operations, the same in all members, each member at its own pace.
template <class Member>
void random_sequence(Member& member, lockstep::SumOrder order, std::uint64_t set, Counts& came) {
  std::mt19937_64 plan(set), pace(set * 1000 + member.rank());
  const std::size_t length = 1 + plan() % 6;
  for (std::size_t i = 0; i < length; ++i) {
    const std::uint64_t kind = plan() % 7, numbers = plan() % 100'000;
    const std::size_t n = plan() % (plan() % 4 == 0 ? 3000 : 40), root = plan() % member.size();
    dawdle(pace);
    switch (kind) {
      case 0:
        check_sum<float>(member, order, numbers, n);
        break;
      case 1:
        check_sum<double>(member, order, numbers, n);
        break;
      case 2:
        check_sum_with_sums<float>(member, order, numbers, n, n % 5);
        break;
      case 3:
        check_broadcast<std::int32_t>(member, numbers, n, root);
        break;
      case 4:
        check_gather<std::int16_t>(member, numbers, n);
        break;
      case 5:
        check_reference(member, order, numbers, n);
        break;
      default:
        check_barrier(member, came);
    }
  }
}

enum class Operation {
  all_reduce,
  all_reduce_sums,
  broadcast,
  all_gather,
  barrier,
  ref_sum,
  count
};

template <class Member>
void call(Member& member, Operation operation, std::size_t n) {
  std::vector<float> x(n, 1.0f), all(n * member.size());
  double sums[2] = {1, 2};
  switch (operation) {
    case Operation::all_reduce:
      return member.all_reduce(x.data(), n);
    case Operation::all_reduce_sums:
      return member.all_reduce(x.data(), n, sums, 2);
    case Operation::broadcast:
      return member.broadcast(x.data(), n, 0);
    case Operation::all_gather:
      return member.all_gather(x.data(), n, all.data());
    case Operation::barrier:
      return member.barrier();
    default:
      return lockstep::CollectiveRef(member).all_reduce(x.data(), n);
  }
}

template <class F>
void for_each_operation(const F& f) {
  for (int o = 0; o < static_cast<int>(Operation::count); ++o) f(static_cast<Operation>(o));
}

template <class Maker>
void abort_all(Maker& maker) {
  if constexpr (requires { maker.abort_all(); }) return maker.abort_all();
  for (std::size_t r = 0; r < maker.size(); ++r) maker.member(r).abort();
}

/// All members except the last one call; another thread aborts once they wait.
template <class Maker>
void check_abort_during(Operation operation, std::size_t size) {
  Maker maker(size, no_timeout);
  std::thread aborting([&] {
    std::this_thread::sleep_for(5ms);
    abort_all(maker);
    abort_all(maker);
  });
  const auto errors =
      run_members(maker, "abort during an operation",
                  [&](auto& member, std::size_t) { call(member, operation, 100); }, {size - 1});
  aborting.join();
  for (std::size_t r = 0; r + 1 < size; ++r) CHECK(is<lockstep::CollectiveAborted>(errors[r]));
  const auto after = run_members(maker, "an operation after an abort",
                                 [&](auto& member, std::size_t) { call(member, operation, 0); });
  for (const auto& error : after) CHECK(is<lockstep::CollectiveAborted>(error));
}

/// Members exchange until they are aborted. After that no other member accesses their values: what
/// they read stays unchanged, and what they write affects no other member.
template <class Maker>
void check_abort_at_any_time(std::uint64_t round) {
  constexpr std::size_t size = 3, n = 30'000;  // sums of odd numbers of odd numbers are never 0
  Maker maker(size, no_timeout);
  std::thread aborting([&] {
    std::mt19937_64 draw(round);
    std::this_thread::sleep_for(std::chrono::microseconds(draw() % 600));
    abort_all(maker);
  });
  const auto errors = run_members(maker, "abort at any time", [&](auto& member, std::size_t rank) {
    std::mt19937_64 pace(round * 10 + rank);
    std::vector<std::uint32_t> x(n, 1), all(size * n);
    try {
      while (true) {
        if (round % 2 == 0) {
          member.all_reduce(x.data(), n);
        } else {
          member.all_gather(x.data(), n, all.data());
          expect(std::count(all.begin(), all.end(), 1u) == std::ptrdiff_t{size * n},
                 "a member took its numbers away during all_gather");
        }
        if (pace() % 4 == 0) dawdle(pace);
      }
    } catch (const lockstep::CollectiveAborted&) {
    }
    const auto left = x;
    std::this_thread::sleep_for(100us);
    expect(x == left, "the numbers of a member that has left were changed");
    std::fill(x.begin(), x.end(), 7u);
  });
  aborting.join();
  CHECK(first_error(errors) == "");
}

/// The ranks in `absent` do not take part.
template <class Maker>
void check_timeout(Operation operation, std::size_t size, const std::vector<std::size_t>& absent) {
  constexpr std::chrono::milliseconds timeout = [] {
    if constexpr (requires { Maker::timeout_under_load; })
      return Maker::timeout_under_load;
    else
      return std::chrono::milliseconds(50);
  }();
  Maker maker(size, timeout);
  const auto start = Clock::now();
  const auto errors = run_members(
      maker, "waiting for a member that never comes",
      [&](auto& member, std::size_t) { call(member, operation, 100); }, absent);
  // Processes start at different times; their own tests measure the waits.
  if constexpr (!requires { maker.own_rank(); }) CHECK(Clock::now() - start >= timeout);

  std::size_t timed_out = 0, came = 0;
  for (const auto& error : errors) {
    if (!error) continue;
    ++came;
    CHECK(is<lockstep::CollectiveError>(error));
    if (!is<lockstep::CollectiveTimeout>(error)) continue;
    ++timed_out;
    const std::string text = text_of(error);
    const std::size_t names = text.find(" for replica "), end = text.find(", which");
    INFO(text);
    REQUIRE((names < end && end != std::string::npos));
    // On a machine under load others may be late, too.
    if constexpr (requires { Maker::sees_neighbors; }) continue;
    for (const std::size_t r : absent)
      CHECK(text.substr(names, end - names).find(" " + std::to_string(r)) != std::string::npos);
  }
  CHECK(came == size - absent.size());
  CHECK(timed_out >= 1);
}

/// The last member calls `other`, all others `call`.
template <class Maker>
void check_disagreement(const char* what, lockstep::FunctionRef<void(MemberOf<Maker>&)> call,
                        lockstep::FunctionRef<void(MemberOf<Maker>&)> other) {
  for (const std::size_t size : {std::size_t{2}, Maker::max_size}) {
    Maker maker(size, no_timeout);
    const auto errors = run_members(maker, what, [&](auto& member, std::size_t rank) {
      try {
        rank + 1 == size ? other(member) : call(member);
      } catch (const lockstep::UsageError&) {
        bool ended = false;
        try {
          contract::call(member, Operation::barrier,
                         0);  // while others may still compare the calls
        } catch (const lockstep::CollectiveAborted&) {
          ended = true;
        }
        expect(ended, "the group went on after calls that differ");
        throw;
      }
    });
    INFO(what << ", " << size << " members");
    for (const auto& error : errors) CHECK(is<lockstep::UsageError>(error));
  }
}

template <class Maker>
void check_disagreements() {
  const auto sum = [](auto type, std::size_t n, std::size_t m = 0) {
    return [=](auto& member) {
      std::vector<decltype(type)> x(n);
      std::vector<double> sums(m);
      member.all_reduce(x.data(), n, sums.data(), m);
    };
  };
  const auto from = [](std::size_t root) {
    return [=](auto& member) {
      float x[5] = {};
      member.broadcast(x, 5, root);
    };
  };
  const auto plain = [](Operation operation, std::size_t n) {
    return [=](auto& member) { call(member, operation, n); };
  };
  check_disagreement<Maker>("all_reduce of other sizes", sum(0.0f, 5), sum(0.0f, 6));
  check_disagreement<Maker>("all_reduce of something and nothing", sum(0.0f, 0), sum(0.0f, 1));
  check_disagreement<Maker>("all_reduce of other types", sum(0.0f, 5), sum(0.0, 5));
  check_disagreement<Maker>("all_reduce with other sums", sum(0.0f, 5, 2), sum(0.0f, 5, 3));
  check_disagreement<Maker>("broadcast from other roots", from(0), from(1));
  check_disagreement<Maker>("broadcast of other sizes", plain(Operation::broadcast, 5),
                            plain(Operation::broadcast, 7));
  check_disagreement<Maker>("all_gather of other sizes", plain(Operation::all_gather, 5),
                            plain(Operation::all_gather, 4));
  for_each_operation([&](Operation a) {
    const bool sums = a == Operation::all_reduce || a == Operation::ref_sum;
    const Operation b = sums ? Operation::barrier : Operation::all_reduce;
    check_disagreement<Maker>("other operations", plain(a, 5), plain(b, 5));
  });
}

template <class Maker>
void check_collective() {
  constexpr lockstep::SumOrder order = Maker::order;
  SECTION("all_reduce gives all members bit-identical sums") {
    in_all_sizes<Maker>("all_reduce", [&](auto& member) {
      for_each_number_type([&](auto type) {
        for (const std::size_t n : {1u, 1001u}) check_sum<decltype(type)>(member, order, n, n);
      });
      for (const std::size_t n : sizes) check_sum<float>(member, order, n, n);
      check_sum<float>(member, order, 1, large);
      check_sum<double>(member, order, 2, large);
    });
  }
  SECTION("all_reduce adds the sums in the same exchange") {
    in_all_sizes<Maker>("all_reduce with sums", [&](auto& member) {
      for_each_number_type(
          [&](auto type) { check_sum_with_sums<decltype(type)>(member, order, 5, 101, 3); });
      for (const std::size_t n : sizes)
        for (const std::size_t m : {0u, 1u, 2u, 1030u})
          check_sum_with_sums<float>(member, order, n, n, m);
      check_sum_with_sums<double>(member, order, 4, large, 2);
    });
  }
  SECTION("broadcast gives each member the values of the root, for every root") {
    in_all_sizes<Maker>("broadcast", [&](auto& member) {
      for (std::size_t root = 0; root < member.size(); ++root) {
        for_each_number_type(
            [&](auto type) { check_broadcast<decltype(type)>(member, root, 101, root); });
        check_broadcast<bool>(member, root, 101, root);
        for (const std::size_t n : sizes) check_broadcast<float>(member, n, n, root);
      }
      check_broadcast<float>(member, 9, large, member.size() - 1);
    });
  }
  SECTION("broadcast from a root that does not exist is refused in all members") {
    for (const std::size_t size : {std::size_t{1}, Maker::max_size}) {
      Maker maker(size, no_timeout);
      for (const auto& error : run_members(maker, "root is", [&](auto& member, std::size_t) {
             float x = 0;
             member.broadcast(&x, 1, size);
           }))
        CHECK(is<lockstep::UsageError>(error));
    }
  }
  SECTION("all_gather concatenates the members' values by rank") {
    in_all_sizes<Maker>("all_gather", [&](auto& member) {
      for_each_number_type([&](auto type) {
        for (const std::size_t n : {0u, 1u, 101u}) check_gather<decltype(type)>(member, n, n);
      });
      check_gather<bool>(member, 6, 101);
      for (const std::size_t n : sizes) check_gather<float>(member, n, n);
      check_gather<double>(member, 7, large / 4);
    });
  }
  using Member = MemberOf<Maker>;
  if constexpr (lockstep::ReduceScatters<Member, float>) {
    static_assert(lockstep::AllGathersRanges<Member, float>);
    SECTION("reduce_scatter gives each member the sums of its range, all_gather all of them") {
      in_all_sizes<Maker>("ranges", [&](auto& member) {
        const std::size_t size = member.size();
        for_each_number_type([&](auto type) {
          check_ranges<decltype(type)>(member, order, 3, 101, random_ranges(size, 101, size));
        });
        for (const std::size_t n : sizes)
          for (std::uint64_t seed = 0; seed < 3; ++seed)
            check_ranges<float>(member, order, n, n, random_ranges(seed, n, size));
        std::vector<lockstep::Slice> first(size);  // empty ranges may be anywhere
        first.front() = {7, 11};
        check_ranges<float>(member, order, 10, 20, first);
        if (size != Maker::max_size) return;
        std::vector<lockstep::Slice> last(size);
        last.back() = {0, large};
        check_ranges<double>(member, order, 8, large, last);
      });
    }
    if constexpr (!requires { Member::has_ranges; })
      if (Maker::max_size > 1)  // not a constant under mpirun
        SECTION("ranges that differ, overlap or are too few are refused in all members") {
          using Ranges = std::vector<lockstep::Slice>;
          const auto refused = [](const char* what, const auto& ranges_of) {
            Maker maker(2, no_timeout);
            INFO(what);
            for (const auto& error : run_members(maker, what, [&](auto& member, std::size_t rank) {
                   float x[8] = {};
                   member.reduce_scatter(x, ranges_of(rank));
                 }))
              CHECK(is<lockstep::UsageError>(error));
          };
          refused("other ranges", [](std::size_t rank) {
            return rank == 0 ? Ranges{{0, 4}, {4, 4}} : Ranges{{0, 5}, {5, 3}};
          });
          refused("ranges of other elements", [](std::size_t rank) {
            return rank == 0 ? Ranges{{0, 3}, {3, 3}} : Ranges{{0, 3}, {4, 3}};
          });
          refused("overlapping ranges", [](std::size_t) { return Ranges{{0, 5}, {4, 4}}; });
          refused("one range", [](std::size_t) { return Ranges{{0, 5}}; });
          Maker maker(2, no_timeout);
          for (const auto& error :
               run_members(maker, "other contributors", [](auto& member, std::size_t rank) {
                 float x[8] = {};
                 const Ranges halves{{0, 4}, {4, 4}};
                 member.reduce_scatter(x, halves, lockstep::Slice{0, 1 + rank});
               }))
            CHECK(is<lockstep::UsageError>(error));
        }
  }
  if constexpr (lockstep::SharesSecrets<Member>) {
    SECTION("share_secret gives each member the bytes of rank 0") {
      in_all_sizes<Maker>("share_secret", [&](auto& member) {
        for (const std::size_t n : {0u, 1u, 128u, 1001u}) check_secret(member, n, n);
      });
    }
  }
  SECTION("no member leaves a barrier before all have arrived") {
    for (std::size_t size = 1; size <= Maker::max_size; ++size) {
      Counts counts(size);
      Maker maker(size, no_timeout);
      CHECK(first_error(run_members(maker, "barrier", [&](auto& member, std::size_t rank) {
              std::mt19937_64 pace(rank);
              for (int i = 0; i < 50; ++i) {
                dawdle(pace);
                check_barrier(member, counts);
              }
            })) == "");
    }
  }
  SECTION("a CollectiveRef does what its member does") {
    in_all_sizes<Maker>("CollectiveRef", [&](auto& member) {
      for (const std::size_t n : sizes) check_reference(member, order, n, n);
    });
  }
  SECTION("random sequences at random paces give correct results") {
    for (std::size_t size = 1; size <= Maker::max_size; ++size) {
      Counts came(size);
      Maker maker(size, no_timeout);
      CHECK(first_error(run_members(maker, "random sequences", [&](auto& member, std::size_t) {
              for (std::uint64_t i = 0; i < 400 / Maker::max_size; ++i)
                random_sequence(member, order, size * 1000 + i, came);
            })) == "");
    }
  }
  if constexpr (Maker::can_end) {
    SECTION("abort ends the waits of all members in each operation, and in all later ones") {
      for_each_operation([](Operation operation) {
        for (const std::size_t size : {std::size_t{2}, std::size_t{3}, Maker::max_size})
          check_abort_during<Maker>(operation, size);
      });
    }
    SECTION("after an abort no member accesses the memory of one that has left") {
#ifdef __SANITIZE_ADDRESS__
      if constexpr (requires { Maker::in_processes; })
        SKIP("the sanitizer's allocator may be locked by another thread at a fork, for ever");
#endif
      for (std::uint64_t round = 0; round < 24; ++round) check_abort_at_any_time<Maker>(round);
    }
    SECTION("an absent member is named when the timeout is over") {
      for_each_operation([](Operation operation) {
        check_timeout<Maker>(operation, 2, {1});
        check_timeout<Maker>(operation, 3, {0});
      });
      check_timeout<Maker>(Operation::all_reduce, Maker::max_size, {1, Maker::max_size - 1});
      check_timeout<Maker>(Operation::barrier, Maker::max_size, {0, 1, 2});
    }
    SECTION("mismatched calls are refused in all members") { check_disagreements<Maker>(); }
  }
}

}  // namespace contract
