/// \file
/// Synchronized BatchNormalization on several replicas, compared with one that has the whole batch.
#pragma once

#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <cstddef>
#include <exception>
#include <functional>
#include <memory>
#include <numeric>
#include <thread>
#include <vector>

#include "lockstep/collectives/thread_group.hpp"
#include "lockstep/layers/normalization/batch_normalization.hpp"
#include "support/run_kernel.hpp"

namespace testing {

/// Forward and backward on replicas with the given numbers of examples, as one result: rows
/// concatenated, dw summed. The state is the first replica's; `equal_states` is true if all agree.
template <class D>
struct Shared {
  using T = typename D::real;
  LayerResult<T> result;
  bool equal_states = true;
};
template <class D>
Shared<D> run_shared(const lockstep::BatchNormalizationOp& op,
                     const std::vector<std::size_t>& counts, const std::vector<typename D::real>& x,
                     const std::vector<typename D::real>& w,
                     const std::vector<typename D::real>& dy,
                     const std::vector<typename D::real>& state, const D& device = {}) {
  using T = typename D::real;
  using Group = lockstep::GroupOn<D, lockstep::ThreadGroup>;
  Group group(
      lockstep::ThreadGroup::Options{.size = counts.size(), .timeout = std::chrono::seconds(60)});
  std::vector<LayerResult<T>> part(counts.size());
  std::vector<std::thread> threads;
  std::size_t first = 0;
  for (std::size_t r = 0; r < counts.size(); ++r) {
    const auto cut = [&](const std::vector<T>& all) {
      const auto from = all.begin() + static_cast<std::ptrdiff_t>(first * op.in.size());
      return std::vector<T>(from, from + static_cast<std::ptrdiff_t>(counts[r] * op.in.size()));
    };
    threads.emplace_back([&, r, own_x = cut(x), own_dy = cut(dy)] {
      typename Group::Member member(group, r);
      const lockstep::CollectiveRef reference(member);
      RunOptions<T> options{.state = state, .group = &reference};
      if constexpr (!lockstep::HostDevice<D>)
        options.opened = [&](void* context) {
          member.attach(*static_cast<typename D::Context*>(context));
          return std::shared_ptr<void>(&member, [](auto* m) { m->detach(); });
        };
      part[r] = run_layer<D>(op, counts[r], own_x, w, own_dy, options, device);
    });
    first += counts[r];
  }
  for (std::thread& t : threads) t.join();
  Shared<D> all;
  all.result.dw.resize(w.size());
  all.result.state = part[0].state;
  for (const LayerResult<T>& p : part) {
    const auto append = [](std::vector<T>& to, const std::vector<T>& from) {
      to.insert(to.end(), from.begin(), from.end());
    };
    append(all.result.y, p.y);
    append(all.result.dx, p.dx);
    std::transform(p.dw.begin(), p.dw.end(), all.result.dw.begin(), all.result.dw.begin(),
                   std::plus<>{});
    all.equal_states = all.equal_states && once::same_bits(p.state, all.result.state);
  }
  return all;
}

/// Compares one to eight replicas with even, uneven and empty shares to one device with all
/// examples.
template <class D>
void shares_are_one_batch(double allowed, const D& device = {}) {
  using T = typename D::real;
  constexpr auto op =
      lockstep::BatchNormalization<lockstep::momentum(0.9), lockstep::synchronized>::op(
          lockstep::shape(3, 2, 5));
  const auto w = as<T>(normal_values(10, 2));
  std::vector<T> state = as<T>(normal_values(10, 4));
  for (std::size_t k = 5; k < 10; ++k) state[k] = state[k] * state[k];
  const std::vector<std::vector<std::size_t>> cuts{{7},
                                                   {4, 3},
                                                   {1, 6},
                                                   {0, 7},
                                                   {7, 0},
                                                   {3, 2, 2},
                                                   {0, 7, 0},
                                                   {2, 2, 2, 1},
                                                   {0, 3, 4, 0},
                                                   {2, 2, 1, 1, 1},
                                                   {2, 1, 1, 1, 1, 1},
                                                   {1, 1, 1, 1, 1, 1, 1},
                                                   {1, 1, 1, 1, 1, 1, 1, 0},
                                                   {0, 0, 0, 5, 0, 0, 2, 0},
                                                   {0, 0, 0, 0, 0, 0, 0, 1}};
  for (const auto& counts : cuts) {
    const std::size_t count = std::accumulate(counts.begin(), counts.end(), std::size_t{0});
    CAPTURE(counts);
    const auto x = as<T>(normal_values(count * 30, 1)), dy = as<T>(normal_values(count * 30, 3));
    const auto one = run_layer<D>(op, count, x, w, dy, {.state = state}, device);
    const auto many = run_shared<D>(op, counts, x, w, dy, state, device);
    CHECK(relative_error(many.result.y, one.y) < allowed);
    CHECK(relative_error(many.result.dx, one.dx) < allowed);
    CHECK(relative_error(many.result.dw, one.dw) < allowed);
    CHECK(relative_error(many.result.state, one.state) < allowed);
    CHECK(many.equal_states);
  }
}

}  // namespace testing
