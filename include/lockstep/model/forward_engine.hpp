/// \file
/// Executes a forward plan: the inference half of engine.hpp. Invariants: the weights belong to the
/// caller and may differ from call to call; nothing is allocated for a number of examples that has
/// been prepared; no code of a backward pass is instantiated.
#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <cstddef>
#include <memory>
#include <span>
#include <type_traits>
#include <utility>
#include <vector>

#include "lockstep/concepts/collective.hpp"
#include "lockstep/concepts/kernel.hpp"
#include "lockstep/concepts/kernel_calls.hpp"
#include "lockstep/core/slice.hpp"
#include "lockstep/model/buffer.hpp"
#include "lockstep/model/forward_plan.hpp"
#include "lockstep/model/kernel_table.hpp"

namespace lockstep::detail {

/// A kernel whose forward is a plain function of the op's value.
template <class TheOp, class D>
concept ForwardTakesValue = HasForward<TheOp, D, TheOp> && requires {
  typename std::type_identity<decltype(&Kernel<TheOp, D>::forward)>;
};

/// The forward pass of an op's kernel as two plain functions whose first argument is `op`.
template <class D>
struct ForwardEntry {
  const void* op;
  void (*forward)(const void* op, const Io<D>&, void* prepared);
  PreparedOp (*prepare)(const void* op, typename D::Context&, std::size_t count);

  /// The entry of op I of type TheOp in `plan`.
  template <class TheOp, auto& plan, std::size_t I>
  static constexpr ForwardEntry of() {
    const auto entry = [](auto calls) {
      return ForwardEntry{&plan.pool.template of<TheOp>().op[I], &calls.forward,
                          &calls.prepare_forward};
    };
    if constexpr (ForwardTakesValue<TheOp, D>)
      return entry(KernelCalls<TheOp, D, of_library<TheOp, D>>{});
    else
      return entry(KernelCalls<TheOp, D, false, Constant<plan.pool.template of<TheOp>().op[I]>>{});
  }
};

/// The constants of a model and its forward plan that an engine needs.
template <class D>
struct ForwardPlan {
  std::span<const PlacedStep> step;
  std::span<const PlacedOperand> operand;  ///< of all steps
  const std::size_t* operand_size;         ///< of all of them, elements per example
  std::span<const ForwardEntry<D>> entry;
  const std::size_t* base;  ///< index of the first entry of each op type
  std::size_t weights, state, once, arena;
  std::size_t input, output;  ///< elements per example
  bool output_is_input;
  std::size_t output_place;   ///< bytes per example
  bool once_of_call = false;  ///< the memory `once` comes with each call

  std::size_t entry_of(const PlacedStep& s) const {
    return base[static_cast<std::size_t>(s.type)] + static_cast<std::size_t>(s.op);
  }
};

/// The constants of Net on D, with static storage.
template <class Net, class D>
struct ForwardConstants {
  static constexpr auto& plan = ForwardPlanOf<Net, D>::plan;
  static constexpr auto& table = kernel_table<ForwardPlanOf<Net, D>, ForwardEntry<D>>;
  static constexpr ForwardPlan<D> value = {
      .step = {plan.step.begin(), static_cast<std::size_t>(plan.steps)},
      .operand = plan.operand,
      .operand_size = plan.operand_size.data(),
      .entry = {table.entry.data(), table.entry.size() - 1},
      .base = table.base.data(),
      .weights = Net::graph.weights,
      .state = Net::graph.state,
      .once = plan.once,
      .arena = plan.arena,
      .input = Net::input_shape.size(),
      .output = Net::output_shape.size(),
      .output_is_input = plan.output_is_input,
      .output_place = plan.output};
};

/// The parameters of one call, in the device's memory.
template <class T>
struct ForwardParameters {
  const T* weights;
  T* state;  ///< read only, since no step trains
  /// Values kept from call to call, `ForwardPlan::once` bytes; only if the plan has `once_of_call`.
  std::byte* once = nullptr;
};

/// Memory, threads and prepared kernels of one forward pass at a time.
/// \code
///   ForwardEngine<D> engine(device, ForwardConstants<Net, D>::value, CollectiveRef(alone));
///   engine.run({weights, state}, whole_batch(4), x, y);   // y (4, output) of x (4, input)
/// \endcode
template <class D>
class ForwardEngine {
 public:
  using T = typename D::real;
  using A = ActivationOf<D>;
  using Context = typename D::Context;

  /// `of` and the group, which kernels see and do not call in inference, must outlive the engine.
  /// \throws UsageError, DeviceError.
  [[gnu::cold]] ForwardEngine(const D& device, const ForwardPlan<D>& of, CollectiveRef group)
      : context_(device.open(1, 0)), plan_(&of), group_(group) {
    std::size_t operands = 0;
    for (const PlacedStep& s : of.step) operands = std::max(operands, s.operands());
    x_.resize(operands);
    dx_.resize(operands);
  }
  ForwardEngine(const ForwardEngine&) = delete;
  ForwardEngine& operator=(const ForwardEngine&) = delete;

  Context& context() { return context_; }
  /// Bytes of activations and workspace. Callable from any thread.
  std::size_t working_bytes() const { return working_.load(std::memory_order_relaxed); }

  /// Prepares kernels and memory for `count` examples, and keeps them. Call in the device's scope.
  void prepare(std::size_t count) {
    if (count >= prepared_.size() || !prepared_[count]) [[unlikely]]
      make(count);
  }

  /// Writes the outputs of the examples `slice` to y, on the host. If y is null, computes only what
  /// steps keep. Call in the device's scope.
  void run(const ForwardParameters<T>& parameters, const BatchSlice& slice, const T* x, T* y) {
    prepare(slice.count);
    const StepContext step{slice, false, 0, 0, group_};
    const A* const input = [&] {
      if constexpr (std::is_same_v<A, T>) {
        return x;
      } else {
        context_.convert(batch_.data(), x, slice.count * plan_->input);
        return batch_.data();
      }
    }();
    const std::vector<PreparedOp>& ops = *prepared_[slice.count];
    std::size_t steps = plan_->step.size();
    if (y == nullptr)
      while (steps > 0 && !plan_->step[steps - 1].saves_once) --steps;
    for (const PlacedStep& s : plan_->step.first(steps)) {
      const std::size_t e = plan_->entry_of(s);
      const ForwardEntry<D>& entry = plan_->entry[e];
      entry.forward(entry.op, io_of(s, parameters, step, x, input), ops[e].state.get());
    }
    if (y == nullptr) return;
    const std::size_t size = slice.count * plan_->output;
    const T* out = x;
    if (!plan_->output_is_input) {
      const auto* const last = reinterpret_cast<const A*>(at(plan_->output_place, slice.count));
      if constexpr (std::is_same_v<A, T>) {
        out = last;
      } else {
        context_.convert(output_.data(), last, size);
        out = output_.data();
      }
    }
    context_.download(reinterpret_cast<std::byte*>(y), reinterpret_cast<const std::byte*>(out),
                      size * sizeof(T));
    context_.synchronize();
  }

 private:
  std::byte* at(std::size_t bytes_per_example, std::size_t count) const {
    return arena_.data() + bytes_per_example * count;
  }
  Io<D> io_of(const PlacedStep& s, const ForwardParameters<T>& parameters, const StepContext& step,
              const T* x, const A* input) {
    const auto place = [&](std::size_t offset) {
      return reinterpret_cast<A*>(at(offset, step.count));
    };
    const PlacedOperand* const operand = plan_->operand.data() + s.operands_begin;
    for (std::size_t k = 0; k < s.operands(); ++k)
      x_[k] = operand[k].is_batch ? input : place(operand[k].forward);
    return {
        .step = step,
        .device = context_,
        .key = s.key,
        .x = x_.data(),
        .y = place(s.forward.y),
        .w = s.w_count > 0 ? (s.is_frozen ? parameters.state : parameters.weights) + s.w : nullptr,
        .state = s.state_count > 0 ? parameters.state + s.state : nullptr,
        .saved = s.saves ? at(s.forward.saved, step.count) : nullptr,
        .once = s.saves_once ? (plan_->once_of_call ? parameters.once : once_.data()) + s.once
                             : nullptr,
        .scratch = scratch_.data(),
        .dy = nullptr,
        .dx = dx_.data(),
        .dw = nullptr,
        .batch = !std::is_same_v<A, T> && operand->is_batch ? x : nullptr,
        .x_size = plan_->operand_size + s.operands_begin};
  }

  template <class E>
  void grow(Buffer<Context, E>& buffer, std::size_t size) {
    if (size > buffer.size()) buffer = Buffer<Context, E>(context_, size);
  }
  [[gnu::cold, gnu::noinline]] void make(std::size_t count) {
    auto ops = std::make_unique<std::vector<PreparedOp>>();
    ops->reserve(plan_->entry.size());
    std::size_t scratch = 0;
    for (const ForwardEntry<D>& entry : plan_->entry) {
      ops->push_back(entry.prepare(entry.op, context_, count));
      scratch = std::max(scratch, ops->back().scratch_bytes);
    }
    grow(arena_, std::max(plan_->arena * count, std::size_t{1}));
    if (!plan_->once_of_call) grow(once_, plan_->once);
    grow(scratch_, scratch);
    if constexpr (!std::is_same_v<A, T>) {
      grow(batch_, count * plan_->input);
      grow(output_, count * plan_->output);
    }
    working_.store(
        arena_.bytes() + once_.bytes() + scratch_.bytes() + batch_.bytes() + output_.bytes(),
        std::memory_order_relaxed);
    if (count >= prepared_.size()) prepared_.resize(count + 1);
    prepared_[count] = std::move(ops);
  }

  Context context_;
  const ForwardPlan<D>* plan_;
  CollectiveRef group_;
  Buffer<Context, std::byte> once_, arena_, scratch_;
  Buffer<Context, A> batch_;  // these two are used only where A is not T
  Buffer<Context, T> output_;
  std::vector<std::unique_ptr<std::vector<PreparedOp>>> prepared_;  // by number of examples
  std::vector<const A*> x_;                                         // operands of one kernel call
  std::vector<A*> dx_;                                              // null
  std::atomic<std::size_t> working_{0};
};

}  // namespace lockstep::detail
