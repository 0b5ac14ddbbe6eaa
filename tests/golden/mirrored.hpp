/// \file
/// The training runs of Keras on one to eight replicas, compared with Keras and with one device.
#pragma once

#include <cstddef>
#include <string>
#include <type_traits>

#include "golden/training.hpp"

namespace golden {

/// Allowed deviation of N replicas from one.
struct Distance {
  double loss, gradient, final_sgd, final_adam;
};
template <class D>
inline constexpr Distance distance =
    sizeof(typename D::real) == sizeof(double) ? Distance{1e-12, 1e-12, 1e-12, 1e-12}
                                               : Distance{1e-6, 1e-5, 1e-6, 1e-5};

/// `D` with one thread, so that eight replicas do not oversubscribe the machine.
template <class D>
D single() {
  D device{};
  if constexpr (requires { device.threads; }) device.threads = 1;
  return device;
}

template <class D>
struct MirroredCheck {
  template <class Train>
  void operator()(const GoldenFile& file, const std::string& prefix, const Train& train,
                  const Limits& limits, bool is_adam) const {
    const Trained one = train(ls::OneDevice<D>{.on = single<D>()});
    for (std::size_t n = 1; n <= 8; ++n) {
      CAPTURE(prefix, n);
      const Trained many = train(ls::Mirrored<D>{.replicas = n, .on = single<D>()});
      is_as_keras(many, file, prefix, limits);
      is_as_one(many, one, is_adam);
    }
  }

  static void is_as_one(const Trained& many, const Trained& one, bool is_adam) {
    constexpr Distance allowed = distance<D>;
    REQUIRE(many.losses.size() == one.losses.size());
    for (std::size_t i = 0; i < one.losses.size(); ++i) {
      CAPTURE(i, many.losses[i], one.losses[i]);
      CHECK(std::abs(many.losses[i] - one.losses[i]) <= allowed.loss * std::abs(one.losses[i]));
    }
    CHECK(many.accuracies == one.accuracies);
    for (const auto& [name, gradient] : one.gradients) {
      CAPTURE(name);
      CHECK(testing::relative_error(many.gradients.at(name), gradient) <= allowed.gradient);
      CHECK(testing::relative_error(many.final.at(name), one.final.at(name)) <=
            (is_adam ? allowed.final_adam : allowed.final_sgd));
    }
  }
};

}  // namespace golden
