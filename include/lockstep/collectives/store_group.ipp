#pragma once

#include "lockstep/collectives/store_group.hpp"

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <cstring>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "lockstep/cluster/rendezvous/messages.hpp"
#include "lockstep/cluster/rendezvous/rendezvous.hpp"
#include "lockstep/collectives/algorithms/shutdown.hpp"
#include "lockstep/core/error.hpp"

namespace lockstep {

struct StoreGroup::Member final : detail::ByteCollective {
  using Call = detail::CollectiveCall;

  Member(Rendezvous& j, std::string n, const Options& o) : job(j), name(std::move(n)), options(o) {
    if (job.size() > detail::max_value_bytes / 8)
      throw UsageError("store group: the job has {} workers; it must have at most {}", job.size(),
                       detail::max_value_bytes / 8);
  }

  std::size_t rank() const override { return job.rank(); }
  std::size_t size() const override { return job.size(); }
  void abort() override {
    ended = true;
    job.wake();
  }
  ExchangeProgress progress() const override {
    ExchangeProgress now{done, {}};
    if (waits) now.waits_for = rank();
    return now;
  }

  void all_reduce(const Call& call, std::byte* p, const detail::Additions& add,
                  double* sums) override {
    run(call, [&] {
      if (size() == 1) return;
      // The sums come first, since they need more alignment.
      const std::size_t first = call.sum_bytes(), bytes = call.bytes(),
                        stride = (first + bytes + 7) / 8 * 8;
      std::vector<std::byte> own(first + bytes), all(size() * stride);
      if (first > 0) std::memcpy(own.data(), sums, first);
      if (bytes > 0) std::memcpy(own.data() + first, p, bytes);
      gather(call, own.data(), own.size(), all.data(), stride);
      std::vector<const std::byte*> parts(size());
      for (std::size_t r = 0; r < size(); ++r) parts[r] = all.data() + r * stride;
      if (first > 0)
        detail::sum_parts<double>(reinterpret_cast<std::byte*>(sums), parts.data(), size(), first,
                                  options.order);
      for (const std::byte*& part : parts) part += first;
      if (bytes > 0) add.parts(p, parts.data(), size(), bytes, options.order);
    });
  }
  void broadcast(const Call& call, std::byte* p) override {
    run(call, [&] {
      const std::size_t bytes = call.bytes();
      const bool is_root = call.root == rank();
      std::size_t at = 0;
      do {
        const std::size_t count = std::min(detail::max_value_bytes, bytes - at);
        const std::string values =
            round(call, {reinterpret_cast<const char*>(p) + at, is_root ? count : 0});
        check(call, values, count);
        if (!is_root && count > 0) std::memcpy(p + at, values.data(), count);
        at += count;
      } while (at < bytes);
    });
  }
  void all_gather(const Call& call, const std::byte* p, std::byte* out) override {
    run(call, [&] {
      if (size() > 1)
        gather(call, p, call.bytes(), out, call.bytes());
      else if (call.bytes() > 0)
        std::memmove(out, p, call.bytes());
    });
  }
  void barrier(const Call& call) override {
    run(call, [&] { round(call, {}); });
  }

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
      detail::count_sent(value.size());
      std::string all = job.gather(name, {{"call", call.description()}}, value, limit, &ended);
      ++done;
      return all;
    } catch (const CollectiveTimeout& e) {
      const std::size_t missing = e.peer().value_or(0);
      detail::throw_late(missing, call.name(), rank(), limit, {&missing, 1}, false);
    } catch (const CollectiveAborted&) {
      throw CollectiveAborted("{}: aborted in this process", call.name());
    }
  }

  /// Collects p[0..bytes) of member r at all[r * stride], in rounds of whole 8-byte words.
  void gather(const Call& call, const std::byte* p, std::size_t bytes, std::byte* all,
              std::size_t stride) {
    const std::size_t members = size(), most = detail::max_value_bytes / members / 8 * 8;
    std::size_t at = 0;
    do {
      const std::size_t count = std::min(most, bytes - at);
      const std::string values = round(call, {reinterpret_cast<const char*>(p) + at, count});
      check(call, values, members * count);
      for (std::size_t r = 0; r < members && count > 0; ++r)
        std::memcpy(all + r * stride + at, values.data() + r * count, count);
      at += count;
    } while (at < bytes);
  }

  static void check(const Call& call, const std::string& values, std::size_t bytes) {
    if (values.size() != bytes)
      throw CollectiveError("{}: the chief returned {} bytes, not {}", call.name(), values.size(),
                            bytes);
  }

  Rendezvous& job;
  const std::string name;
  const Options options;
  std::atomic<bool> ended{false}, waits{false};
  std::atomic<std::uint64_t> done{0};
};

StoreGroup::StoreGroup(Rendezvous& job, std::string name, const Options& options)
    : ProcessGroup(std::make_shared<Member>(job, std::move(name), options)) {}

}  // namespace lockstep
