#pragma once

#include "lockstep/collectives/store_group.hpp"

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <cstring>
#include <string_view>
#include <vector>

#include "lockstep/cluster/rendezvous/messages.hpp"
#include "lockstep/cluster/rendezvous/rendezvous.hpp"
#include "lockstep/core/error.hpp"

namespace lockstep {

struct StoreGroup::Member {
  using Call = detail::CollectiveCall;
  using Operation = Call::Operation;

  Member(Rendezvous& j, const Options& o) : job(j), options(o) {}

  /// Runs one operation. Any exception ends the group.
  template <class Body>
  void run(const Call& call, const Body& body) {
    if (ended)
      throw CollectiveAborted("{}: the group has ended, since an operation failed or was aborted",
                              call.name());
    try {
      body();
    } catch (...) {
      ended = true;
      throw;
    }
  }

  /// One round: the values of all members, by rank.
  std::string round(const Call& call, std::string_view value) {
    using std::chrono::milliseconds;
    const auto limit = std::chrono::ceil<milliseconds>(options.timeout);
    struct Wait {
      explicit Wait(std::atomic<bool>& w) : waits(w) { waits = true; }
      ~Wait() { waits = false; }
      std::atomic<bool>& waits;
    };
    try {
      const Wait wait(waits);
      std::string all =
          job.gather(options.name, {{"call", call.description()}}, value, limit, &ended);
      ++done;
      return all;
    } catch (const CollectiveTimeout& e) {
      const std::size_t missing = e.peer().value_or(0);
      throw CollectiveTimeout(
          missing,
          "{}: replica {} waited {} ms for replica {}, which did not arrive; it hangs, or it needs "
          "a longer timeout",
          call.name(), job.rank(), limit.count(), missing);
    } catch (const CollectiveAborted&) {
      throw CollectiveAborted("{}: aborted in this process", call.name());
    }
  }

  /// Collects p[0..bytes) of member r at all[r * stride], in rounds of whole 8-byte words.
  void gather(const Call& call, const std::byte* p, std::size_t bytes, std::byte* all,
              std::size_t stride) {
    const std::size_t size = job.size(), most = detail::max_value_bytes / size / 8 * 8;
    std::size_t at = 0;
    do {
      const std::size_t count = std::min(most, bytes - at);
      const std::string values = round(call, {reinterpret_cast<const char*>(p) + at, count});
      if (values.size() != size * count)
        throw CollectiveError("{}: the chief returned {} bytes, not {}", call.name(), values.size(),
                              size * count);
      for (std::size_t r = 0; r < size && count > 0; ++r)
        std::memcpy(all + r * stride + at, values.data() + r * count, count);
      at += count;
    } while (at < bytes);
  }

  Rendezvous& job;
  Options options;
  std::atomic<bool> ended{false}, waits{false};
  std::atomic<std::uint64_t> done{0};
};

StoreGroup::StoreGroup(Rendezvous& job, const Options& options)
    : member_(std::make_shared<Member>(job, options)) {
  if (job.size() > detail::max_value_bytes / 8)
    throw UsageError("store group: the job has {} workers; it must have at most {}", job.size(),
                     detail::max_value_bytes / 8);
}

std::size_t StoreGroup::rank() const { return member_->job.rank(); }

std::size_t StoreGroup::size() const { return member_->job.size(); }

void StoreGroup::abort() {
  member_->ended = true;
  member_->job.wake();
}

ExchangeProgress StoreGroup::progress() const {
  ExchangeProgress now{member_->done, {}};
  if (member_->waits) now.waits_for = rank();
  return now;
}

void StoreGroup::reduce(std::byte* p, detail::Elements elements, detail::SumParts sum, double* sums,
                        std::size_t m) {
  const Member::Call call{
      Member::Operation::all_reduce, elements.kind, elements.n, m, 0, elements.size};
  member_->run(call, [&] {
    if (size() == 1) return;
    // The sums come first, since they need more alignment.
    const std::size_t first = m * sizeof(double), bytes = elements.bytes(),
                      stride = (first + bytes + 7) / 8 * 8;
    std::vector<std::byte> own(first + bytes), all(size() * stride);
    if (first > 0) std::memcpy(own.data(), sums, first);
    if (bytes > 0) std::memcpy(own.data() + first, p, bytes);
    member_->gather(call, own.data(), own.size(), all.data(), stride);
    std::vector<const std::byte*> parts(size());
    for (std::size_t r = 0; r < size(); ++r) parts[r] = all.data() + r * stride;
    if (first > 0)
      detail::sum_parts<double>(reinterpret_cast<std::byte*>(sums), parts.data(), size(), first,
                                member_->options.order);
    for (const std::byte*& part : parts) part += first;
    if (bytes > 0) sum(p, parts.data(), size(), bytes, member_->options.order);
  });
}

void StoreGroup::send(std::byte* p, detail::Elements elements, std::size_t root) {
  const Member::Call call{
      Member::Operation::broadcast, elements.kind, elements.n, 0, root, elements.size};
  member_->run(call, [&] {
    if (root >= size())
      throw UsageError("broadcast: root is {}; it must be below the group's size, {}", root,
                       size());
    const std::size_t bytes = elements.bytes();
    std::size_t at = 0;
    do {
      const std::size_t count = std::min(detail::max_value_bytes, bytes - at);
      const std::string_view value(reinterpret_cast<const char*>(p) + at,
                                   root == rank() ? count : 0);
      const std::string values = member_->round(call, value);
      if (values.size() != count)
        throw CollectiveError("{}: the chief returned {} bytes, not {}", call.name(), values.size(),
                              count);
      if (root != rank() && count > 0) std::memcpy(p + at, values.data(), count);
      at += count;
    } while (at < bytes);
  });
}

void StoreGroup::gather(const std::byte* p, detail::Elements elements, std::byte* out) {
  const Member::Call call{
      Member::Operation::all_gather, elements.kind, elements.n, 0, 0, elements.size};
  member_->run(call, [&] {
    if (size() > 1)
      member_->gather(call, p, elements.bytes(), out, elements.bytes());
    else if (elements.n > 0)
      std::memmove(out, p, elements.bytes());
  });
}

void StoreGroup::barrier() {
  const Member::Call call{};
  member_->run(call, [&] { member_->round(call, {}); });
}

}  // namespace lockstep
