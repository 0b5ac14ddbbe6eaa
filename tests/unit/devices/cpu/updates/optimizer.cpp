/// \file
/// Vectorized and threaded optimizer updates, compared bitwise with the plain loop.
#include <initializer_list>
#include <vector>

#include "unit/devices/cpu/compare.hpp"
#include "lockstep/optimizers/adam.hpp"
#include "lockstep/optimizers/sgd.hpp"
#include "support/run_optimizer.hpp"
#include "support/sign_optimizer.hpp"

using namespace lockstep;
using namespace testing;

namespace {

/// Weights, gradients and slots after three updates.
template <class D, class O>
std::vector<std::vector<typename D::real>> updated(const O& optimizer, std::size_t size,
                                                   const Penalty& penalty, const D& device) {
  using T = typename D::real;
  OptimizerRun<D, O> run(optimizer, as<T>(as<float>(normal_values(size, 1))), device);
  for (std::uint64_t step = 0; step < 3; ++step)
    run.apply(as<T>(as<float>(normal_values(size, 2 + step))), penalty);
  std::vector<std::vector<T>> result{run.weights(), run.gradient()};
  for (std::size_t i = 0; i < optimizer.slot_count(); ++i) result.push_back(run.slot(i));
  return result;
}

template <class O>
void check(const O& optimizer) {
  for (const std::size_t size : std::initializer_list<std::size_t>{1, 7, 8, 9, 1000, 50'003})
    for (const Penalty& penalty : {Penalty{}, Penalty{0.25, 0.125}}) {
      INFO("elements " << size << ", l2 " << penalty.l2);
      const auto expected = updated(optimizer, size, penalty, Reference<double>{});
      const auto plain = updated(optimizer, size, penalty, Reference<float>{});
      for (const int threads : {1, 2, 3}) {
        const auto result = updated(optimizer, size, penalty, Cpu{.threads = threads});
        REQUIRE(result.size() == expected.size());
        for (std::size_t i = 0; i < result.size(); ++i)
          CHECK(relative_error(result[i], expected[i]) < 1e-6);
#ifndef __FMA__
        CHECK(result == plain);
#endif
      }
    }
}

}  // namespace

TEST_CASE("vectorized and threaded updates give the bits of the plain loop") {
  check(SGD{.learning_rate = 0.1});
  check(SGD{.learning_rate = 0.1, .momentum = 0.9});
  check(SGD{.learning_rate = 0.1, .momentum = 0.9, .nesterov = true});
  check(Adam{.learning_rate = 0.01});
  check(Adam{.learning_rate = 0.01, .amsgrad = true});
  check(Sign{});
}
