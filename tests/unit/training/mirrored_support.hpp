/// \file
/// Layers and optimizers for the tests of replicas: a layer that sums over the replicas, a layer
/// and an optimizer that fail in one replica, an optimizer that updates one replica differently.
#pragma once

#include <pthread.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <catch2/catch_test_macros.hpp>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <new>
#include <string>
#include <vector>

#include "lockstep/lockstep.hpp"
#include "lockstep/reference.hpp"
#include "unit/training/model_support.hpp"

namespace replicas {

namespace ls = lockstep;

/// Subtracts the mean over the global batch: y = x - mean(x), so each example depends on all.
struct CentreOp {
  ls::Shape in;
  constexpr ls::Shape out() const { return in; }
  constexpr double flops() const { return static_cast<double>(in.size()); }
  bool operator==(const CentreOp&) const = default;
};
struct Centre {
  static constexpr std::string_view name = "centre";
  static constexpr bool accepts(ls::Shape) { return true; }
  static constexpr std::array<ls::Parameter, 0> parameters(ls::Shape) { return {}; }
  static constexpr CentreOp op(ls::Shape in) { return {in}; }
};

/// y = x; throws in replica `guilty` at step `step`, in forward or backward.
struct TrapOp {
  ls::Shape in;
  constexpr ls::Shape out() const { return in; }
  constexpr double flops() const { return 0; }
  bool operator==(const TrapOp&) const = default;
};
struct Trap {
  static constexpr std::string_view name = "trap";
  static constexpr bool accepts(ls::Shape) { return true; }
  static constexpr std::array<ls::Parameter, 0> parameters(ls::Shape) { return {}; }
  static constexpr TrapOp op(ls::Shape in) { return {in}; }

  struct Sprung {};
  enum class When { never, forward, backward };
  static inline std::atomic<When> when = When::never;
  static inline std::atomic<bool> exits = false;  // by pthread_exit instead of an exception
  static inline std::atomic<std::size_t> guilty = 0;
  static inline std::atomic<std::uint64_t> step = 0;
  /// Rank of the calling thread's replica.
  static inline thread_local std::size_t rank = 0;
  static void spring(const ls::StepContext& at, When now) {
    rank = at.group.rank();
    if (when != now || rank != guilty || at.step != step) return;
    if (exits) ::pthread_exit(nullptr);
    throw Sprung();
  }
};

/// w -= g; in replica `liar` changes the last weight a little more after step `lies_at`.
struct Unfair {
  static constexpr std::string_view name = "unfair";
  std::uint64_t lies_at = 0;
  std::size_t liar = 0;
  std::size_t slot_count() const { return 0; }
  std::string_view slot_name(std::size_t) const { return ""; }
  double learning_rate(std::uint64_t) const { return 0.01; }
  struct Op {
    double rate;
    bool lies;
    std::size_t liar;
  };
  Op op(double rate, std::uint64_t step) const { return {rate, step == lies_at, liar}; }
};

/// Momentum whose update throws in replica `guilty` once enabled.
struct Fragile {
  static constexpr std::string_view name = "fragile";
  static inline std::atomic<bool> fails = false;
  std::size_t guilty = 1;
  std::size_t slot_count() const { return 1; }
  std::string_view slot_name(std::size_t) const { return "momentum"; }
  double learning_rate(std::uint64_t) const { return 0.01; }
  struct Op {
    double rate;
    std::size_t guilty;
  };
  Op op(double rate, std::uint64_t) const { return {rate, guilty}; }
};

inline constexpr ls::SparseCategoricalCrossentropy crossentropy{.from_logits = true};

/// With dropout, so that random draws matter.
struct Noisy : ls::Sequential<ls::Input<2>, ls::Dense<8>, ls::ReLU, ls::Dropout<ls::rate(0.4f)>,
                              ls::Dense<3, ls::kernel_regularizer(ls::L2{0.01})>> {};
struct Small : ls::Sequential<ls::Input<2>, Trap, ls::Dense<4>, ls::Dense<3>> {};

/// All results of a training run.
struct Result {
  std::vector<double> step_losses, epoch, tested, predicted, weights;
  std::string digest;
};

template <class Net, class S, class O>
Result run(const S& strategy, std::size_t examples, std::size_t batch, const O& optimizer,
           int epochs = 2) {
  ls::Model m{Net{}, ls::Seed{7}, strategy, crossentropy, optimizer, ls::Accuracy{}};
  const auto data = line::classes(examples);
  auto steps = std::make_shared<line::StepLosses>();
  auto options = line::quiet(epochs);
  options.callbacks = {steps};
  options.verify_every = 1;
  const auto history = m.fit(data | ls::shuffle(16) | ls::batch(batch), options);
  Result result{steps->losses, history["loss"], {}, {}, {}, m.weights_sha256()};
  for (const double a : history["accuracy"]) result.epoch.push_back(a);
  for (const auto& [name, value] : m.evaluate(data | ls::batch(batch)))
    result.tested.push_back(value);
  const auto predicted = m.predict(data | ls::batch(batch));
  for (const auto v : predicted.elements()) result.predicted.push_back(static_cast<double>(v));
  for (const auto& p : m.parameters())
    for (const auto v : m.weights(p.name)) result.weights.push_back(static_cast<double>(v));
  return result;
}

inline double distance(const std::vector<double>& a, const std::vector<double>& b) {
  if (a.size() != b.size()) return 1e300;
  double worst = 0;
  for (std::size_t i = 0; i < a.size(); ++i)
    worst = std::max(worst, std::abs(a[i] - b[i]) / std::max(1.0, std::abs(b[i])));
  return worst;
}

inline void same(const Result& a, const Result& b) {
  CHECK(distance(a.step_losses, b.step_losses) < 1e-12);
  CHECK(distance(a.epoch, b.epoch) < 1e-12);
  CHECK(distance(a.tested, b.tested) < 1e-12);
  CHECK(distance(a.predicted, b.predicted) < 1e-12);
  CHECK(distance(a.weights, b.weights) < 1e-12);
}

}  // namespace replicas

namespace lockstep {

template <class T>
struct Kernel<replicas::CentreOp, Reference<T>> : KernelTraits {
  static constexpr bool exchanges(const replicas::CentreOp&) { return true; }
  static void forward(const replicas::CentreOp& op, const Io<Reference<T>>& io) {
    centre(op, io, io.x[0], io.y);
  }
  static void backward(const replicas::CentreOp& op, const Io<Reference<T>>& io) {
    if (io.dx[0] != nullptr) centre(op, io, io.dy, io.dx[0]);
  }

 private:
  static void centre(const replicas::CentreOp& op, const Io<Reference<T>>& io, const T* from,
                     T* to) {
    const std::size_t width = op.in.size();
    std::vector<double> sum(width);
    for (std::size_t i = 0; i < io.step.count * width; ++i) sum[i % width] += double(from[i]);
    io.step.group.all_reduce(sum.data(), width);
    for (std::size_t i = 0; i < io.step.count * width; ++i)
      to[i] = T(double(from[i]) - sum[i % width] / double(io.step.global_count));
  }
};

template <class T>
struct Kernel<replicas::TrapOp, Reference<T>> : KernelTraits {
  static void forward(const replicas::TrapOp& op, const Io<Reference<T>>& io) {
    replicas::Trap::spring(io.step, replicas::Trap::When::forward);
    std::copy_n(io.x[0], io.step.count * op.in.size(), io.y);
  }
  static void backward(const replicas::TrapOp& op, const Io<Reference<T>>& io) {
    replicas::Trap::spring(io.step, replicas::Trap::When::backward);
    if (io.dx[0] != nullptr) std::copy_n(io.dy, io.step.count * op.in.size(), io.dx[0]);
  }
};

template <class T>
struct Kernel<replicas::Unfair::Op, Reference<T>> {
  static void update(const replicas::Unfair::Op& op, const UpdateIo<Reference<T>>& io) {
    for (std::size_t i = 0; i < io.size; ++i) io.w[i] -= T(op.rate) * io.g[i];
    if (op.lies && replicas::Trap::rank == op.liar) io.w[io.size - 1] += T(1e-6);
  }
};

template <class T>
struct Kernel<replicas::Fragile::Op, Reference<T>> {
  static void update(const replicas::Fragile::Op& op, const UpdateIo<Reference<T>>& io) {
    if (replicas::Fragile::fails && replicas::Trap::rank == op.guilty) throw std::bad_alloc();
    for (std::size_t i = 0; i < io.size; ++i) {
      io.slot[0][i] = T(0.9) * io.slot[0][i] + io.g[i];
      io.w[i] -= T(op.rate) * io.slot[0][i];
    }
  }
};

}  // namespace lockstep
