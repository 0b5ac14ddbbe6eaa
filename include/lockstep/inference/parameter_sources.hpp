/// \file
/// Where the parameters of a network in inference come from: a file, or a model in memory.
#pragma once

#include <algorithm>
#include <cstddef>
#include <string>

#include "lockstep/concepts/device.hpp"
#include "lockstep/training/parameters.hpp"
#include "lockstep/training/weights_file.hpp"

namespace lockstep {

template <class Net, class S, class L, class O, class... Ms>
class Model;

namespace detail {

/// Reads the parameters of a Model, of which it is a friend.
struct ModelParameters {
  template <class M>
  static void copy(const M& model, const ValueBytes<std::byte>& to) {
    const auto weights = model.replicas_.weights(), state = model.replicas_.state();
    const auto from = bytes_of(weights, state);
    std::copy(from.weights.begin(), from.weights.end(), to.weights.begin());
    std::copy(from.state.begin(), from.state.end(), to.state.begin());
  }
};

/// Writes the parameters of a file, or of a model, to the ValueBytes that it is called with. The
/// argument must outlive it.
template <class Net>
auto from_file(const std::string& path) {
  return [&path](const ValueBytes<std::byte>& to) { read_weights(path, parameters_of<Net>(), to); };
}
template <class M>
auto from_model(const M& model) {
  return [&model](const ValueBytes<std::byte>& to) { ModelParameters::copy(model, to); };
}

template <class D>
constexpr D on_one_thread() {
  D device{};
  if constexpr (requires { device.threads = 1; }) device.threads = 1;
  return device;
}

template <class D>
struct RealOfDevice {
  using type = float;
};
template <Device D>
struct RealOfDevice<D> {
  using type = typename D::real;
};

}  // namespace detail
}  // namespace lockstep
