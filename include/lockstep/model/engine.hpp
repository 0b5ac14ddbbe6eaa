/// \file
/// Executes a plan: a loop over a table with one entry per distinct op. Invariants: only this file
/// maps an op's value to its type; nothing is allocated between `prepare` and the next batch of
/// another size; the loop is the same code for all models on a device.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "lockstep/concepts/kernel.hpp"
#include "lockstep/concepts/kernel_calls.hpp"
#include "lockstep/core/config.hpp"
#include "lockstep/core/error.hpp"
#include "lockstep/core/function_ref.hpp"
#include "lockstep/model/buffer.hpp"
#include "lockstep/model/kernel_table.hpp"
#include "lockstep/model/plan.hpp"

namespace lockstep::detail {

/// Reports that the activations of a batch do not fit, with the figures of the plan: bytes per
/// example, and the largest batch that fits.
[[noreturn]] LOCKSTEP_COLD_DECL void throw_batch_too_large(const OutOfMemory& e,
                                                           std::string_view device,
                                                           std::size_t count,
                                                           std::size_t bytes_per_example);

/// The kernel of an op as three plain functions whose first argument is `op`.
template <class D>
struct KernelEntry {
  const void* op;
  void (*forward)(const void* op, const Io<D>&, void* prepared);
  void (*backward)(const void* op, const Io<D>&, void* prepared);
  PreparedOp (*prepare)(const void* op, typename D::Context&, std::size_t count);
  bool updates, skips_dw;

  /// The entry of op I of type TheOp in `plan`.
  template <class TheOp, auto& plan, std::size_t I>
  static constexpr KernelEntry of() {
    const auto entry = [](auto calls) {
      return KernelEntry{&plan.pool.template of<TheOp>().op[I],
                         &calls.forward,
                         &calls.backward,
                         &calls.prepare,
                         Kernel<TheOp, D>::updates,
                         Kernel<TheOp, D>::skips_dw};
    };
    if constexpr (TakesValue<TheOp, D>)
      return entry(KernelCalls<TheOp, D, of_library<TheOp, D>>{});
    else
      return entry(KernelCalls<TheOp, D, false, Constant<plan.pool.template of<TheOp>().op[I]>>{});
  }
};

/// The constants of a model and its plan that an engine needs.
template <class D>
struct EnginePlan {
  std::span<const PlacedStep> step;
  std::span<const PlacedOperand> operand;  ///< of all steps
  const std::size_t* operand_size;         ///< of all of them, elements per example
  std::span<const Bucket> bucket;
  std::span<const KernelEntry<D>> entry;
  const std::size_t* base;  ///< index of the first entry of each op type
  std::size_t weights, state, once, arena;
  std::size_t input, output;  ///< elements per example
  bool output_is_input;
  std::size_t output_place, gradient_place;  ///< bytes per example
  std::size_t input_gradient_place;          ///< the same; see InputPlanOf
  std::size_t shared_gradient;               ///< bytes into the per-step arena; see SharedGradient
  OutputBlocks blocks;                       ///< of a network that ends in InBlocks
  std::string (*name_step)(int);

  std::size_t entry_of(const PlacedStep& s) const {
    return base[static_cast<std::size_t>(s.type)] + static_cast<std::size_t>(s.op);
  }
};

/// The steps and buckets of a plan in which some steps may be held.
struct HeldPlan {
  std::span<const PlacedStep> step{};
  std::span<const PlacedOperand> operand{};
  std::span<const Bucket> bucket{};
  std::unique_ptr<PlacedStep[]> own_steps{};  ///< null: those of the network's plan
  std::unique_ptr<PlacedOperand[]> own_operands{};
  std::unique_ptr<Bucket[]> own_buckets{};
};
/// See PlanEngine::hold.
LOCKSTEP_COLD_DECL HeldPlan held_plan(std::span<const PlacedStep> step,
                                      std::span<const PlacedOperand> operand,
                                      std::span<const Bucket> bucket, std::string_view held);

/// The part of an engine that does not depend on the model, compiled once per device. Owned by one
/// replica and used in its thread only.
/// \code
///   weights_, state_, gradients_    flat, in the order of the plan; live as long as the engine
///   arena_     [value][gradient][saved] ...   bytes per example * count; grows with the batch
///   once_      [saved_once] ... [one dw]      bytes per step
///   scratch_   workspace of one kernel call   maximum over all ops
///   x_, dx_    operands of one kernel call    maximum over all steps
///   prepared_  [count 64][count 16] ...       prepared kernels of the last 8 batch sizes
/// \endcode
template <class D>
class PlanEngine {
 public:
  using T = typename D::real;
  using A = ActivationOf<D>;
  using Context = typename D::Context;

  /// `plan` must outlive the engine.
  /// Replicas that gather ranges of the weights from each other exchange them as they do gradients.
  [[gnu::cold]] PlanEngine(Context& context, const EnginePlan<D>& plan,
                           bool exchanges_weights = false);
  [[gnu::cold]] ~PlanEngine();

  /// Prepares kernels and memory for batches of `count` examples. Repeated calls with the same
  /// count return at once.
  void prepare(std::size_t count) {
    if (current_ == nullptr || current_->count != count) find_or_prepare(count);
  }

  /// Runs the forward pass on step.count examples, which must be prepared. \returns the model's
  /// output, valid until the next forward or backward; null if `each_block` computes it.
  const T* forward(const T* x, const StepContext& step);

  /// Where the loss writes its gradient before `backward`; null if the model has no steps.
  T* output_gradient() const;

  /// After `forward` of a network that ends in InBlocks: computes its output in blocks of rows and
  /// calls `score(rows, y, dy)` with each, (rows, width) at y. With `runs_backward` it must write the
  /// gradient to dy; backward of the last layer follows for the same rows. Otherwise dy is null.
  void each_block(const T* x, const StepContext& step, bool runs_backward,
                  FunctionRef<void(const Slice& rows, const T* y, T* dy)> score);

  /// Where `backward` has left the gradient of the batch, (examples, input), under a plan that
  /// computes it; valid until the next forward.
  const A* input_gradient() const {
    return reinterpret_cast<const A*>(at(plan_->input_gradient_place));
  }

  /// Runs the backward pass of the batch of the last forward. Calls `ready(bucket)` as soon as this
  /// range of gradients() is final, and `update`, if set, for all weights, each after its last
  /// read.
  void backward(const T* x, const StepContext& step, FunctionRef<void(const Bucket&)> ready,
                UpdateRef<T> update = {});

  /// Leaves out the gradients of some steps' weights from now on, and all that only these need:
  /// held[i] is '1' for such a step i. They run as frozen ones; their ranges are in no bucket. Empty:
  /// all steps train again.
  [[gnu::cold]] void hold(std::string_view held);
  /// Whether this is the last range of gradients that backward completes.
  bool is_last(const Bucket& bucket) const { return &bucket == &now_.bucket.back(); }

  const Buffer<Context, T>& weights() const { return weights_; }
  const Buffer<Context, T>& state() const { return state_; }
  const Buffer<Context, T>& gradients() const { return gradients_; }
  /// Exchanges the gradients with `other`, a buffer of the same size.
  void swap_gradients(Buffer<Context, T>& other) { std::swap(gradients_, other); }
  /// Exchanges the weights with `other`, an engine of the same network.
  void swap_weights(PlanEngine& other) { std::swap(weights_, other.weights_); }
  /// Bytes allocated for activations and workspace, without weights, gradients and state.
  std::size_t working_bytes() const {
    return arena_.size() + once_.size() + scratch_.size() + batch_.bytes() + output_.bytes() +
           output_gradient_.bytes();
  }

 private:
  static constexpr std::size_t max_prepared = 8;
  static constexpr bool converts = !std::is_same_v<A, T>;

  struct PreparedBatch {
    std::size_t count = 0;
    std::vector<PreparedOp> op;
    PreparedOp last_block{};  // of the network's output, if it has fewer rows than the first one
  };

  [[gnu::cold]] void find_or_prepare(std::size_t count);
  template <class E>
  void grow(Buffer<Context, E>& buffer, std::size_t size) {
    if (size <= buffer.size()) return;
    buffer = {};  // frees the old buffer first: both may not fit
    try {
      buffer = Buffer<Context, E>(*context_, size);
    } catch (...) {
      current_ = nullptr;  // prepared kernels may refer to the old buffer
      for (auto& batch : prepared_) batch.reset();
      throw;
    }
  }
  [[gnu::cold]] void grow_arena(std::size_t count);
  [[gnu::cold]] void allocate_unread();
  /// The last step of a block may be a mask, which has no backward.
  bool any_runs_backward(StepId first, StepId last) const {
    while (first < last && !step_of(first).runs_backward()) ++first;
    return step_of(first).runs_backward();
  }
  void recompute_forward(StepId first, StepId last, const T* x, const StepContext& step);
  void run_backward(StepId i, const T* x, const StepContext& step, UpdateRef<T> update);
  /// Calls the kernel of step i, whose arguments are `io`. `adds_dw`: to gradients that are there.
  void call_backward(StepId i, Io<D>& io, void* prepared, bool adds_dw, UpdateRef<T> update);
  /// The arguments of a kernel call. `place`: of the operands and of the result, in the first run of
  /// forward or in its recomputation and backward.
  Io<D> io_of(const PlacedStep& s, std::size_t PlacedOperand::* place, const Places& places,
              const T* x, const StepContext& step);
  static StepContext inference_of(StepContext step) {
    step.training = false;
    return step;
  }

  const PlacedStep& step_of(StepId i) const { return now_.step[static_cast<std::size_t>(i)]; }
  std::byte* at(std::size_t bytes_per_example) const {
    return arena_.data() + bytes_per_example * current_->count;
  }
  /// Notifies the context that step i of the plan begins.
  void begin_layers([[maybe_unused]] WorkPass pass, [[maybe_unused]] StepId i,
                    [[maybe_unused]] const StepContext& step) {
    if constexpr (TracksWork<Context>)
      context_->begin_work({.pass = pass,
                            .layers = plan_->name_step,
                            .index = static_cast<int>(i),
                            .step = step.step});
  }

  Context* context_;
  const EnginePlan<D>* plan_;
  HeldPlan now_;  // what runs
  Buffer<Context, T> weights_, state_, gradients_;
  Buffer<Context, std::byte> once_, arena_, scratch_;
  Buffer<Context, A> batch_;  // these three are used only where A is not T
  Buffer<Context, T> output_, output_gradient_;
  Buffer<Context, T> unread_;  // dw of frozen layers whose kernels do not skip it
  std::vector<const A*> x_;
  std::vector<A*> dx_;
  std::array<std::unique_ptr<PreparedBatch>, max_prepared> prepared_;  // replaced in a ring
  std::size_t next_ = 0;
  PreparedBatch* current_ = nullptr;
};

/// The constants of network Net under `Plan`, a PlanOf or InputPlanOf.
template <class Net, class D, class Plan>
constexpr EnginePlan<D> engine_plan_of(std::string (*name_step)(int)) {
  constexpr auto& plan = Plan::plan;
  constexpr auto& table = kernel_table<Plan, KernelEntry<D>>;
  return {.step = {plan.step.begin(), static_cast<std::size_t>(plan.steps)},
          .operand = plan.operand,
          .operand_size = plan.operand_size.data(),
          .bucket = {plan.bucket.data(), plan.buckets},
          .entry = {table.entry.data(), table.entry.size() - 1},
          .base = table.base.data(),
          .weights = Net::graph.weights,
          .state = Net::graph.state,
          .once = plan.once,
          .arena = plan.arena,
          .input = Net::input_shape.size(),
          .output = Net::output_shape.size(),
          .output_is_input = plan.output_is_input,
          .output_place = plan.output,
          .gradient_place = plan.output_gradient,
          .input_gradient_place = plan.input_gradient,
          .shared_gradient = plan.shared.offset,
          .blocks = plan.blocks,
          .name_step = name_step};
}

/// The engine of one replica: weights, gradients, memory and prepared kernels. Batch, output and
/// its gradient are D::real for the caller; where activations have another type, the engine
/// converts them.
/// \code
///   Engine<Net, D> engine(context);
///   engine.prepare(64);
///   const T* y = engine.forward(x, step);          // writes activations
///   ... write engine.output_gradient() ...
///   engine.backward(x, step, [](Bucket) {});       // writes gradients
/// \endcode
template <class Net, class D>
class Engine : public PlanEngine<D> {
 public:
  static constexpr auto& plan = PlanOf<Net, D>::plan;

  explicit Engine(typename D::Context& context) : PlanEngine<D>(context, constants) {}

  static std::string name_step(int i) {
    return layers_of(plan.step[StepId{i}], Net::graph.node.data());
  }

  static constexpr EnginePlan<D> constants = engine_plan_of<Net, D, PlanOf<Net, D>>(&name_step);
};

template <class D>
PlanEngine<D>::PlanEngine(Context& context, const EnginePlan<D>& plan, bool exchanges_weights)
    : context_(&context),
      plan_(&plan),
      now_{plan.step, plan.operand, plan.bucket, {}, {}, {}},
      weights_(exchanges_weights ? Buffer<Context, T>(context, plan.weights, Exchanged{})
                                 : Buffer<Context, T>(context, plan.weights)),
      state_(context, plan.state),
      gradients_(context, plan.weights, Exchanged{}),
      once_(context, plan.once) {
  std::size_t operands = 0;
  for (const PlacedStep& s : plan.step) operands = std::max(operands, s.operands());
  x_.resize(operands);
  dx_.resize(operands);
  allocate_unread();
}

template <class D>
PlanEngine<D>::~PlanEngine() = default;

template <class D>
void PlanEngine<D>::allocate_unread() {
  std::size_t size = 0;
  for (const PlacedStep& s : now_.step)
    if (s.runs_backward() && !s.wants_dw() && !plan_->entry[plan_->entry_of(s)].skips_dw)
      size = std::max(size, s.w_count);
  if (size > unread_.size()) unread_ = Buffer<Context, T>(*context_, size);
}

template <class D>
void PlanEngine<D>::hold(std::string_view held) {
  now_ = held_plan(plan_->step, plan_->operand, plan_->bucket, held);
  allocate_unread();
}

template <class D>
void PlanEngine<D>::find_or_prepare(std::size_t count) {
  for (const auto& known : prepared_) {
    if (!known || known->count != count) continue;
    current_ = known.get();
    return;
  }
  auto batch = std::make_unique<PreparedBatch>();
  batch->count = count;
  std::size_t scratch = 0;
  batch->op.reserve(plan_->entry.size());
  const OutputBlocks& blocks = plan_->blocks;
  const KernelEntry<D>* const last =
      blocks.any() ? &plan_->entry[plan_->entry_of(plan_->step.back())] : nullptr;
  for (const KernelEntry<D>& entry : plan_->entry) {
    batch->op.push_back(
        entry.prepare(entry.op, *context_, &entry == last ? blocks.first(count) : count));
    scratch = std::max(scratch, batch->op.back().scratch_bytes);
  }
  if (blocks.any() && blocks.rest(count) > 0) {
    batch->last_block = last->prepare(last->op, *context_, blocks.rest(count));
    scratch = std::max(scratch, batch->last_block.scratch_bytes);
  }
  grow_arena(count);
  grow(scratch_, scratch);
  if constexpr (converts) {
    grow(batch_, count * plan_->input);
    grow(output_, blocks.any() ? 0 : count * plan_->output);
    grow(output_gradient_, blocks.any() ? 0 : count * plan_->output);
  }
  current_ = batch.get();
  prepared_[next_++ % max_prepared] = std::move(batch);
}

template <class D>
auto PlanEngine<D>::forward(const T* x, const StepContext& step) -> const T* {
  const WorkPass pass = step.training ? WorkPass::forward : WorkPass::evaluation;
  if constexpr (converts) {
    begin_work(*context_, {.pass = pass, .part = "batch", .step = step.step});
    context_->convert(batch_.data(), x, step.count * plan_->input);
  }
  const StepContext inference = inference_of(step);
  for (StepId i{}; static_cast<std::size_t>(i) < now_.step.size(); ++i) {
    const PlacedStep& s = step_of(i);
    if (s.in_blocks) return nullptr;
    const std::size_t e = plan_->entry_of(s);
    const KernelEntry<D>& entry = plan_->entry[e];
    begin_layers(pass, i, step);
    entry.forward(entry.op,
                  io_of(s, &PlacedOperand::forward, s.forward, x, s.infers() ? inference : step),
                  current_->op[e].state.get());
  }
  if (plan_->output_is_input) return x;
  const A* const y = reinterpret_cast<const A*>(at(plan_->output_place));
  if constexpr (converts) {
    begin_work(*context_, {.pass = pass, .part = "output", .step = step.step});
    context_->convert(output_.data(), y, step.count * plan_->output);
    return output_.data();
  } else {
    return y;
  }
}

template <class D>
auto PlanEngine<D>::output_gradient() const -> T* {
  if (plan_->output_is_input) return nullptr;
  if (plan_->blocks.any()) return reinterpret_cast<T*>(once_.data() + plan_->blocks.gradient);
  if constexpr (converts)
    return output_gradient_.data();
  else
    return reinterpret_cast<T*>(at(plan_->gradient_place));
}

template <class D>
void PlanEngine<D>::backward(const T* x, const StepContext& step,
                             FunctionRef<void(const Bucket&)> ready, UpdateRef<T> update) {
  begin_work(*context_, {.pass = WorkPass::backward, .part = "gradients", .step = step.step});
  if constexpr (converts)
    if (!plan_->output_is_input && !plan_->blocks.any())
      context_->convert(reinterpret_cast<A*>(at(plan_->gradient_place)), output_gradient_.data(),
                        step.count * plan_->output);
  const StepContext inference = inference_of(step);
  std::size_t next = 0;
  for (StepId i = before(StepId{static_cast<int>(now_.step.size())}); exists(i); --i) {
    const PlacedStep& s = step_of(i);
    if (exists(s.segment_begin) && any_runs_backward(s.segment_begin, i))
      recompute_forward(s.segment_begin, i, x, step);
    if (s.in_blocks) {  // each_block has run it
      if (update && s.wants_dw() && s.completes_dw) update(gradients_.data() + s.w, s.w_count);
    } else if (s.runs_backward()) {
      run_backward(i, x, s.infers() ? inference : step, update);
    }
    while (next < now_.bucket.size() && now_.bucket[next].after == i) ready(now_.bucket[next++]);
  }
}

template <class D>
void PlanEngine<D>::run_backward(StepId i, const T* x, const StepContext& step,
                                 UpdateRef<T> update) {
  const PlacedStep& s = step_of(i);
  Io<D> io = io_of(s, &PlacedOperand::backward, s.backward, x, step);
  begin_layers(WorkPass::backward, i, step);
  call_backward(i, io, current_->op[plan_->entry_of(s)].state.get(), s.adds_dw && s.wants_dw(),
                update);
}

template <class D>
void PlanEngine<D>::call_backward(StepId i, Io<D>& io, void* prepared, bool adds_dw,
                                  UpdateRef<T> update) {
  const PlacedStep& s = step_of(i);
  const KernelEntry<D>& entry = plan_->entry[plan_->entry_of(s)];
  const PlacedOperand* const operand = now_.operand.data() + s.operands_begin;
  // Values that the kernel did not request may have been overwritten by now.
  for (std::size_t k = 0; k < s.operands(); ++k)
    if (!operand[k].keeps) x_[k] = nullptr;
  if (!operand->keeps) io.batch = nullptr;
  if (!s.keeps_y) io.y = nullptr;
  T* const dw = io.dw;
  if (adds_dw)
    io.dw = reinterpret_cast<T*>(once_.data() + plan_->shared_gradient);
  else if (s.wants_dw() && s.completes_dw)
    io.update = update;
  else if (!s.wants_dw() && s.w_count > 0 && !entry.skips_dw)
    io.dw = unread_.data();
  entry.backward(entry.op, io, prepared);
  if (adds_dw) context_->add(dw, io.dw, s.w_count);
  if (update && s.wants_dw() && s.completes_dw && (adds_dw || !entry.updates))
    update(dw, s.w_count);
  for (std::size_t k = 0; k < s.operands(); ++k)
    if (operand[k].adds_dx)
      context_->add(reinterpret_cast<A*>(at(operand[k].dx_sum)), dx_[k],
                    plan_->operand_size[s.operands_begin + k] * io.step.count);
}

template <class D>
void PlanEngine<D>::each_block(const T* x, const StepContext& step, bool runs_backward,
                               FunctionRef<void(const Slice& rows, const T* y, T* dy)> score) {
  const OutputBlocks& blocks = plan_->blocks;
  const StepId i{static_cast<int>(now_.step.size()) - 1};
  const PlacedStep& s = step_of(i);
  const KernelEntry<D>& entry = plan_->entry[plan_->entry_of(s)];
  const WorkPass pass = step.training ? WorkPass::forward : WorkPass::evaluation;
  const std::size_t all = blocks.all(step.count),
                    of_row = plan_->operand_size[s.operands_begin] / blocks.rows_per_example;
  const auto at_block = [&]<class E>(std::size_t offset, std::type_identity<E>) {
    return reinterpret_cast<E*>(once_.data() + offset);
  };
  A* const logits = at_block(blocks.logits, std::type_identity<A>());
  A* const slopes = at_block(blocks.slopes, std::type_identity<A>());
  T* const y = at_block(blocks.output, std::type_identity<T>());
  T* const dy = at_block(blocks.gradient, std::type_identity<T>());
  Slice rows{};
  do {  // once even without examples, since gradients are 0 then
    rows.count = std::min(blocks.rows, all - rows.first);
    StepContext part = step;
    part.count = rows.count;
    PreparedOp& prepared = rows.count == blocks.first(step.count) ? current_->op[plan_->entry_of(s)]
                                                                  : current_->last_block;
    const auto io_of_rows = [&](std::size_t PlacedOperand::* at_x) {
      Io<D> io = io_of(s, at_x, s.forward, x, part);
      x_[0] += rows.first * of_row;
      if (dx_[0] != nullptr) dx_[0] += rows.first * of_row;
      if (io.batch != nullptr) io.batch += rows.first * of_row;
      io.y = logits;
      io.dy = slopes;
      return io;
    };
    begin_layers(pass, i, step);
    entry.forward(entry.op, io_of_rows(&PlacedOperand::forward), prepared.state.get());
    if constexpr (converts) context_->convert(y, logits, rows.count * blocks.width);
    score(rows, y, runs_backward ? dy : nullptr);
    if (runs_backward && s.runs_backward()) {
      begin_layers(WorkPass::backward, i, step);
      if constexpr (converts) context_->convert(slopes, dy, rows.count * blocks.width);
      Io<D> io = io_of_rows(&PlacedOperand::backward);
      call_backward(i, io, prepared.state.get(), rows.first > 0 && s.wants_dw(), {});
    }
    rows.first += rows.count;
  } while (rows.first < all);
}

template <class D>
void PlanEngine<D>::grow_arena(std::size_t count) {
  // Not empty even without examples: a kernel recognizes an unneeded gradient by a null dx, and all
  // replicas must agree on this.
  const std::size_t bytes = std::max(plan_->arena * count, std::size_t{1});
  try {
    grow(arena_, bytes);
  } catch (const OutOfMemory& e) {
    if (e.free() == 0) throw;  // the device did not report free memory
    throw_batch_too_large(e, D::name, count, plan_->arena);
  }
}

/// Recomputes the values of a Recompute block that its backward reads and that were not kept.
template <class D>
void PlanEngine<D>::recompute_forward(StepId first, StepId last, const T* x,
                                      const StepContext& step) {
  StepContext recompute = step;
  recompute.is_recompute = true;
  const StepContext inference = inference_of(recompute);
  for (StepId i = first; i <= last; ++i) {
    const PlacedStep& s = step_of(i);
    if (!s.is_recomputed) continue;
    const std::size_t e = plan_->entry_of(s);
    const KernelEntry<D>& entry = plan_->entry[e];
    begin_layers(WorkPass::recompute, i, step);
    entry.forward(
        entry.op,
        io_of(s, &PlacedOperand::backward, s.backward, x, s.infers() ? inference : recompute),
        current_->op[e].state.get());
  }
}

template <class D>
Io<D> PlanEngine<D>::io_of(const PlacedStep& s, std::size_t PlacedOperand::* at_x,
                           const Places& places, const T* x, const StepContext& step) {
  const auto place = [&](std::size_t offset) { return reinterpret_cast<A*>(at(offset)); };
  const A* input;
  if constexpr (converts)
    input = batch_.data();
  else
    input = x;
  const PlacedOperand* const operand = now_.operand.data() + s.operands_begin;
  for (std::size_t k = 0; k < s.operands(); ++k) {
    x_[k] = operand[k].is_batch ? input : place(operand[k].*at_x);
    dx_[k] = operand[k].wants_dx ? place(operand[k].dx) : nullptr;
  }
  return {.step = step,
          .device = *context_,
          .key = s.key,
          .x = x_.data(),
          .y = place(places.y),
          .w = s.w_count > 0 ? (s.is_frozen ? state_ : weights_).data() + s.w : nullptr,
          .state = s.state_count > 0 ? state_.data() + s.state : nullptr,
          .saved = s.saves ? at(places.saved) : nullptr,
          .once = s.saves_once ? once_.data() + s.once : nullptr,
          .scratch = scratch_.data(),
          .dy = place(s.dy),
          .dx = dx_.data(),
          .dw = s.wants_dw() ? gradients_.data() + s.w : nullptr,
          .batch = converts && operand->is_batch ? x : nullptr,
          .x_size = plan_->operand_size + s.operands_begin};
}

}  // namespace lockstep::detail

#ifdef LOCKSTEP_HEADER_ONLY
#include "lockstep/model/engine.ipp"
#endif
