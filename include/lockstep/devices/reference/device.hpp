/// \file
/// The reference device: host memory, one thread, plain loops in T. Invariants: it depends on no
/// library; each result is computed in the order of its formula; every other device is tested
/// against it.
#pragma once

#include <cstddef>
#include <string_view>
#include <type_traits>

#include "lockstep/concepts/device.hpp"
#include "lockstep/devices/host/host_memory.hpp"

namespace lockstep {

/// Context of the reference device: host memory and the calling thread.
template <class T>
class ReferenceContext : public HostMemory {
 public:
  void add(T* y, const T* x, std::size_t n) {
    for (std::size_t i = 0; i < n; ++i) y[i] += x[i];
  }

  int threads() const { return 1; }
  void synchronize() {}
  struct Scope {
    ~Scope() {}  // non-trivial, so that a scope variable that is only held is not reported unused
  };
  Scope scope() { return {}; }
};

/// A device that computes in T (float or double) by loops that follow the formulas. It is slow: it
/// serves as the oracle of the tests and as the model for a port to a new device.
/// \code
///   ls::Model model{Net{}, ls::OneDevice<ls::Reference<double>>{}, loss, optimizer};
/// \endcode
template <class T = double>
struct Reference {
  static_assert(std::is_same_v<T, float> || std::is_same_v<T, double>,
                "lockstep::Reference: computes in float or double; write Reference<double>");
  using real = T;
  using Context = ReferenceContext<T>;
  using fusions = List<>;
  static constexpr std::string_view name = "reference";
  static constexpr std::string_view precision = std::is_same_v<T, double> ? "float64" : "float32";
  static constexpr bool is_host = true;
  bool operator==(const Reference&) const = default;

  /// Opens the context of one of `replicas` local replicas; contexts share nothing.
  Context open([[maybe_unused]] std::size_t replicas, [[maybe_unused]] std::size_t index) const {
    return {};
  }
};

static_assert(Device<Reference<double>> && Device<Reference<float>> &&
              HostDevice<Reference<float>>);

}  // namespace lockstep
