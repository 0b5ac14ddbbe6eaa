/// \file
/// The contract of exchanges that scatter shares of gradients.
#pragma once

#include <catch2/catch_test_macros.hpp>
#include <cstddef>
#include <thread>
#include <vector>

#include "lockstep/collectives/thread_group.hpp"
#include "lockstep/concepts/collective.hpp"
#include "lockstep/core/slice.hpp"
#include "unit/collectives/members.hpp"

namespace contract {

/// Three members, of which one owns nothing, scatter in two steps, with and without gaps between the
/// ranges. `make(member)` makes the exchange of a member.
template <class Make>
void check_shares(const Make& make) {
  const Deadline deadline("shares");
  constexpr std::size_t members = 3, n = 1001;
  const std::vector<lockstep::Slice> shares{{0, 500}, {500, 0}, {500, n - 500}};
  for (const std::size_t gap : {0, 10}) {
    CAPTURE(gap);
    lockstep::ThreadGroup group({.size = members});
    std::vector<std::vector<float>> x(members, std::vector<float>(n));
    std::vector<std::vector<double>> sums(members, std::vector<double>(2));
    std::vector<std::thread> threads;
    for (std::size_t r = 0; r < members; ++r)
      threads.emplace_back([&, r] {
        const auto own = make(lockstep::ThreadGroup::Member(group, r));
        const lockstep::GradientExchange<float> exchange(*own);
        for (std::size_t step = 0; step < 2; ++step) {
          for (std::size_t i = 0; i < n; ++i) x[r][i] = static_cast<float>(i * (r + 1));
          sums[r][step] = static_cast<double>(r + 1);
          exchange.post(x[r].data(), {800, n - 800}, shares);
          exchange.post(x[r].data(), {400, 400 - gap}, shares);
          exchange.finish(x[r].data(), {0, 400}, shares, &sums[r][step], 1);
        }
        double more = static_cast<double>(r);  // without a range only the sums are exchanged
        exchange.finish(x[r].data(), {}, shares, &more, 1);
        sums[r].push_back(more);
      });
    for (std::thread& t : threads) t.join();
    for (std::size_t r = 0; r < members; ++r) {
      CHECK(sums[r] == std::vector<double>{6, 6, 3});
      std::size_t wrong = 0;
      for (std::size_t i = shares[r].first; i < shares[r].first + shares[r].count; ++i) {
        const bool is_in_gap = i >= 800 - gap && i < 800;
        wrong += x[r][i] != static_cast<float>(is_in_gap ? (r + 1) * i : 6 * i);
      }
      CHECK(wrong == 0);
    }
  }
}

}  // namespace contract
