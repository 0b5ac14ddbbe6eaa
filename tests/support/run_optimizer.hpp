/// \file
/// Runs an optimizer's kernel outside a model.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "lockstep/concepts/kernel_calls.hpp"
#include "lockstep/concepts/optimizer.hpp"
#include "support/run_kernel.hpp"

namespace testing {

/// One tensor under an optimizer: weights, slots and step count.
template <class D, lockstep::Optimizer O>
class OptimizerRun {
 public:
  using T = typename D::real;

  OptimizerRun(O optimizer, const std::vector<T>& weights, const D& device = {})
      : optimizer_(std::move(optimizer)),
        context_(device.open(1, 0)),
        scope_(context_.scope()),
        w_(context_, weights),
        g_(context_, weights.size()),
        size_(weights.size()) {
    for (std::size_t i = 0; i < optimizer_.slot_count(); ++i) {
      double start = 0;
      if constexpr (requires { optimizer_.slot_start(i); }) start = optimizer_.slot_start(i);
      slots_.push_back(std::make_unique<DeviceArray<D, T>>(
          context_, std::vector<T>(size_, static_cast<T>(start))));
    }
  }

  /// One update. The learning rate is the schedule's value at the number of previous updates; the
  /// op's step counts from 1.
  void apply(const std::vector<T>& gradient, const lockstep::Penalty& penalty = {}) {
    g_.upload(gradient);
    const auto op = optimizer_.op(optimizer_.learning_rate(steps_), steps_ + 1);
    ++steps_;
    lockstep::UpdateIo<D> io{context_, size_, w_.data(), g_.data(), {}, penalty};
    for (std::size_t i = 0; i < slots_.size(); ++i) io.slot[i] = slots_[i]->data();
    lockstep::detail::run_kernel<D>(op, io);
    context_.synchronize();
  }

  std::vector<T> weights() const { return w_.download(); }
  std::vector<T> gradient() const { return g_.download(); }
  std::vector<T> slot(std::size_t i) const { return slots_[i]->download(); }

 private:
  O optimizer_;
  typename D::Context context_;
  [[maybe_unused]] decltype(std::declval<typename D::Context&>().scope()) scope_;
  DeviceArray<D, T> w_, g_;
  std::vector<std::unique_ptr<DeviceArray<D, T>>> slots_;
  std::size_t size_;
  std::uint64_t steps_ = 0;
};

}  // namespace testing
