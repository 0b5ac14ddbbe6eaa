/// \file
/// The base of a Model with invalid arguments. Invariant: it has every member of Model that a
/// program may use, so that the static_assert about the fault is the only error.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "lockstep/concepts/dataset.hpp"
#include "lockstep/core/logs.hpp"
#include "lockstep/training/export/architecture.hpp"
#include "lockstep/training/export/load_options.hpp"
#include "lockstep/training/fit_options.hpp"
#include "lockstep/training/gradients.hpp"
#include "lockstep/training/history.hpp"
#include "lockstep/training/parameters.hpp"
#include "lockstep/training/predictions.hpp"
#include "lockstep/training/report/memory_use.hpp"
#include "lockstep/training/step_batch.hpp"

namespace lockstep::detail {

/// The element type of a strategy's device; float if it is not a strategy.
template <class S>
struct RealOf {
  using type = float;
};
template <class S>
  requires requires { typename S::device::real; }
struct RealOf<S> {
  using type = typename S::device::real;
};

/// Accepts Model's arguments and returns Model's result types; never executed.
template <class Real>
class FaultyModel {
 public:
  using T = Real;
  static constexpr std::size_t parameter_count = 0, trainable_count = 0;

  explicit FaultyModel(const auto&...) {}
  History fit(const auto&, const FitOptions& = {}) { return {}; }
  template <class Validation>
    requires(!std::same_as<Validation, FitOptions>)
  History fit(const auto&, const Validation&, const FitOptions& = {}) {
    return {};
  }
  History fit(const auto&, const FitOptions&, const auto&) { return {}; }
  History fit(const auto&, const auto&, const FitOptions&, const auto&) { return {}; }
  using Batch = lockstep::Batch<T, float>;
  std::span<const Batch> batches(const auto&) { return {}; }
  std::span<const Batch> batches(const auto&, const BatchesOptions&) { return {}; }
  Batch batch(const auto&...) { return {}; }
  Logs train_step(const auto&) { return {}; }
  Logs test_step(const auto&) { return {}; }
  Gradients<T> gradients_of(const auto&...) { return {}; }
  void apply(const auto&) {}
  void finalize_weights() {}
  std::vector<T> input_gradients(const auto&) { return {}; }
  Logs evaluate(const auto&, const EvaluateOptions& = {}) { return {}; }
  Predictions<T> predict(const auto&, const EvaluateOptions& = {}) { return {{}, Shape{}}; }
  Predictions<T> predict(const auto&, std::size_t) { return {{}, Shape{}}; }
  Logs train_on_batch(const auto&, const auto&, const auto&...) { return {}; }
  Logs test_on_batch(const auto&, const auto&, const auto&...) { return {}; }
  static std::vector<ParameterInfo> parameters() { return {}; }
  std::vector<T> weights(std::string_view) const { return {}; }
  void set_weights(std::string_view, const auto&) {}
  std::vector<T> gradients(std::string_view) const { return {}; }
  template <class M, std::size_t = 0>
  std::vector<double> metric_state() const {
    return {};
  }
  void save_weights(const auto&) const {}
  void load_weights(const auto&) {}
  LoadReport load_weights(const auto&, const LoadOptions&) { return {}; }
  static Architecture architecture() { return {}; }
  void save_architecture(const auto&) const {}
  std::string weights_sha256() const { return {}; }
  std::vector<std::string> replica_weights_sha256() const { return {}; }
  std::vector<std::string> job_replica_weights_sha256() { return {}; }
  std::string summary() const { return {}; }
  static std::vector<std::string> fused() { return {}; }
  std::uint64_t seed() const { return 0; }
  std::uint64_t steps() const { return 0; }
  std::uint64_t updates() const { return 0; }
  double loss_scale() const { return 1; }
  double learning_rate() const { return 0; }
  void set_learning_rate(double) {}
  void clear_learning_rate() {}
  void set_trainable(const NamePatterns&, bool) {}
  std::vector<std::string> untrained_layers() const { return {}; }
  void set_rate_multiplier(const NamePatterns&, double) {}
  void set_decay_multiplier(const NamePatterns&, double) {}
  void reset_optimizer() {}
  std::uint64_t passes() const { return 0; }
  std::size_t replicas() const { return 1; }
  std::size_t local_replicas() const { return 1; }
  std::size_t workers() const { return 1; }
  std::size_t rank() const { return 0; }
  bool is_chief() const { return true; }
  int threads() const { return 1; }
  MemoryUse memory(std::size_t = 0) const { return {}; }
};

}  // namespace lockstep::detail
