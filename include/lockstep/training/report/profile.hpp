/// \file
/// `model.profile`: the time of a training step by layer, pass and kernel. Invariants: profiling
/// leaves the model bit-identical; a program that does not include this header compiles none of it.
///
///     snapshot -> warm-up steps -> steps, timed as a whole -> steps, each call timed -> restore
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <ostream>
#include <string>
#include <string_view>
#include <vector>

#include "lockstep/concepts/device.hpp"
#include "lockstep/core/config.hpp"
#include "lockstep/core/error.hpp"
#include "lockstep/core/function_ref.hpp"
#include "lockstep/core/slice.hpp"
#include "lockstep/core/work_times.hpp"
#include "lockstep/devices/host/ranges.hpp"
#include "lockstep/training/fit_options.hpp"
#include "lockstep/training/report/fma_rate.hpp"
#include "lockstep/training/step/replicas.hpp"

namespace lockstep {

/// The calls of one kind that a pass makes on the device.
struct ProfiledCall {
  std::string name;  ///< of the kernel, "cuDNN convolution", "clear"; empty: the whole pass
  double calls = 0;  ///< per step; 0.25: one in every fourth step
  /// Per step: the median over the steps with such calls, times the fraction of such steps.
  double microseconds = 0;
};

/// One row: a pass of a layer, or of another part of a step.
struct ProfileRow {
  std::string layer;  ///< "conv2d"; "conv2d+re_lu" where one kernel does both; "loss", "optimizer"
  std::string pass;   ///< "forward", "backward", "loss", "update", ...
  double microseconds = 0;  ///< per step, the sum over its calls
  /// Memory traffic per step according to the plan: each tensor read or written counts once, plus
  /// the reads and writes of adding a second gradient to a first. 0: not estimated.
  double bytes = 0;
  /// Per step, of the model's matrix products; fewer operations of a fast algorithm (Winograd) do
  /// not lower the number.
  double flops = 0;
  std::vector<ProfiledCall> calls{};
};

/// The profile of a training step of one replica. Prints as a table: `std::cout << profile`.
/// \code
///   const ls::Profile profile = model.profile(x, y);
///   for (const ls::ProfileRow& row : profile.rows) ... row.layer, row.microseconds ...
/// \endcode
struct Profile {
  std::string device, precision;
  std::size_t examples = 0;  ///< of this replica, per step
  std::size_t steps = 0;     ///< measured
  /// Median time of an uninstrumented step by the host's clock, including waits.
  double step_microseconds = 0;
  /// Overhead of timing on a GPU: the time between two consecutive events, included in each call's
  /// time.
  double event_microseconds = 0;
  /// FLOP/s that the replica reaches at most, for the shares of the peak. On the CPU measured by
  /// this profile with the replica's threads, in a loop of multiply-adds on registers, in the
  /// element type and the widest vectors of the processor; on a GPU from its properties. 0:
  /// unknown, as for bfloat16 and for tensor cores.
  double peak_flops = 0;
  std::vector<ProfileRow> rows{};  ///< in the order of the step

  /// Sums over all rows.
  double microseconds() const { return sum(&ProfileRow::microseconds); }
  double bytes() const { return sum(&ProfileRow::bytes); }
  double flops() const { return sum(&ProfileRow::flops); }
  /// FLOP/s of `row` divided by `peak_flops`; 0 if one of them is unknown. Above 1 where an
  /// algorithm needs fewer operations than `flops` counts.
  double share_of_peak(const ProfileRow& row) const {
    return share_of_peak(row.flops, row.microseconds);
  }
  /// The same for all rows together.
  double share_of_peak() const { return share_of_peak(flops(), microseconds()); }

 private:
  double share_of_peak(double flops, double microseconds) const {
    return peak_flops > 0 && microseconds > 0 ? flops / (1e-6 * microseconds * peak_flops) : 0;
  }
  LOCKSTEP_DECL double sum(double ProfileRow::* what) const;
};

/// The table: layer, pass, kernel, calls, time, share of the step, bytes, FLOPs, both per second,
/// and the share of the peak if that is known.
LOCKSTEP_COLD_DECL std::string to_string(const Profile& profile);
LOCKSTEP_DECL std::ostream& operator<<(std::ostream& out, const Profile& profile);

/// The profile as one JSON object.
LOCKSTEP_COLD_DECL std::string to_json(const Profile& profile);

namespace detail {

/// Time of a call per step, from its times in the steps, out of `steps`, in which it occurred.
/// `mixed`: the call does different work in different steps, so use the mean; a median would ignore
/// the rarer kind.
LOCKSTEP_COLD_DECL double time_per_step(std::vector<double> came, std::size_t steps, bool mixed);

/// Accumulates the calls of the measured steps.
class StepTimes {
 public:
  LOCKSTEP_COLD_DECL void add(const WorkTimes& step);
  /// Adds the rows to `profile`, whose number of steps must be set. `accumulates`: gradients are
  /// accumulated, so only some steps update. `add_size` adds bytes and FLOPs to a row.
  LOCKSTEP_COLD_DECL void fill(Profile& profile, bool accumulates,
                               FunctionRef<void(ProfileRow&, const Work&)> add_size) const;

 private:
  struct Measured {
    Work work;
    std::string call;
    std::size_t calls = 0;               // in all measured steps
    std::vector<double> microseconds{};  // one element per step in which the call occurred
  };
  std::vector<Measured> all_;
};

/// Times whole steps, then the calls within steps. `next()` loads a batch, `train()` executes a
/// step, `set_timer(times)` makes the first replica record its calls in `times`, or stop if null.
LOCKSTEP_COLD_DECL Profile measure_steps(StepTimes& times, const ProfileOptions& options,
                                         FunctionRef<void()> next, FunctionRef<void()> train,
                                         FunctionRef<void(WorkTimes*)> set_timer);
/// Starts and stops the timer once, so that a device that cannot time its work throws before the
/// first step.
LOCKSTEP_COLD_DECL void check_timer(FunctionRef<void(WorkTimes*)> set_timer);

/// FLOP/s that a context reaches at most; 0: unknown. Its `peak_flops` if it has this member, else
/// measured on a host device whose kernels compute in D::real; mixed precision has faster
/// instructions.
template <class D>
double peak_flops_of([[maybe_unused]] typename D::Context& context) {
  if constexpr (requires {
                  { context.peak_flops(D::precision) } -> std::same_as<double>;
                }) {
    return context.peak_flops(D::precision);
  } else if constexpr (HostDevice<D> && std::same_as<ActivationOf<D>, typename D::real>) {
    const auto threads = static_cast<std::size_t>(context.threads());
    return fma_rate(
        sizeof(typename D::real) == sizeof(double), threads,
        [&](FunctionRef<void()> body) { for_ranges(context, threads, 1, [&](Slice) { body(); }); });
  } else {
    return 0;
  }
}

/// Estimates bytes and FLOPs of each pass from the plan.
template <class Net, class D, class Target>
struct WorkSize {
  static constexpr auto& plan = PlanOf<Net, D>::plan;
  static constexpr double element = sizeof(typename D::real), activation = sizeof(ActivationOf<D>);
  double examples, slices;  ///< of a replica, per step
  double targets;           ///< elements per example
  double slot_count;        ///< of the optimizer, for a weight
  double updated;           ///< weights that the replica updates
  bool one_update;          ///< the update is a single pass over weights and slots

  void add_to(ProfileRow& row, const Work& work) const {
    if (work.layers != nullptr)
      add_layers(row, work.index, work.pass);
    else
      row.bytes += bytes_of(work.part, work.pass);
  }

 private:
  static constexpr auto all_needs = [] {
    std::array<KernelNeeds, static_cast<std::size_t>(plan.steps) + 1> needs{};
    for (int i = 0; i < plan.steps; ++i)
      needs[static_cast<std::size_t>(i)] =
          needs_of<D>(plan.pool, plan.step[StepId{i}], {}, typename PlanOf<Net, D>::ops{});
    return needs;
  }();

  static double size_of(Shape s) { return static_cast<double>(s.size()); }

  void add_layers(ProfileRow& row, int index, WorkPass pass) const {
    const PlacedStep& s = plan.step[StepId{index}];
    const KernelNeeds& needs = all_needs[static_cast<std::size_t>(index)];
    const bool backward = pass == WorkPass::backward;
    const double y = size_of(Net::graph.value[s.out]), w = static_cast<double>(s.w_count),
                 state = static_cast<double>(s.state_count);
    double values = y, weights = w + 2 * state, flops = flops_of<Net>(s), blocks = 1;
    if (s.in_blocks)
      blocks = std::max(
          1.0, std::ceil(examples / slices * static_cast<double>(plan.blocks.rows_per_example) /
                         static_cast<double>(plan.blocks.rows)));
    for (std::size_t k = s.operands_begin; k < s.operands_end; ++k) {
      const PlacedOperand& o = plan.operand[k];
      // Gradients in and out. A second gradient of a value is added to the first by a separate
      // call, which reads both and writes the sum: 3 transfers in addition to the first write.
      const int times = !backward ? 1 : (o.keeps ? 1 : 0) + (!o.wants_dx ? 0 : o.adds_dx ? 4 : 1);
      values += times * static_cast<double>(plan.operand_size[k]);
    }
    if (backward) {
      values += s.keeps_y ? y : 0;
      weights = ((s.wants_dx ? 1 : 0) + (s.trains() ? 1 : 0)) * w;
      flops *= backward_factor(s);
    }
    row.bytes += examples * (activation * values + static_cast<double>(needs.saved)) +
                 slices * (blocks * element * weights + static_cast<double>(needs.once));
    row.flops += examples * flops;
  }

  double bytes_of(std::string_view part, WorkPass pass) const {
    const double x = size_of(Net::input_shape), y = size_of(Net::output_shape),
                 converted = element + activation;
    if (part == "batch" && pass != WorkPass::data) return examples * converted * x;
    // The upload to the device; a host device reads the batch in place.
    if (part == "batch")
      return HostDevice<D> ? 0 : examples * (element * x + sizeof(Target) * targets);
    if (part == "output") return examples * converted * y;
    if (part == "loss") return examples * (2 * element * y + sizeof(Target) * targets);
    if (part == "optimizer" && one_update) return element * updated * (3 + 2 * slot_count);
    return 0;
  }
};

template <class All>
class Profiler {
 public:
  using Net = typename All::Network;
  using device = typename All::device;
  using T = typename All::T;
  static_assert(TimesWork<typename device::Context>,
                "lockstep::Model: profile needs a device that times its work; give its context "
                "begin_work, work and measure_work, or derive it from ls::HostMemory");

  Profiler(All& replicas, const ProfileOptions& options) : replicas_(replicas), options_(options) {
    if (!replicas_.is_alone())
      throw UsageError(
          "profile: the model trains in several processes, and one cannot step without the others; "
          "profile it with OneDevice or Mirrored");
    if (options_.steps == 0) throw UsageError("profile: .steps is 0; it must be at least 1");
  }

  /// Profiles on full batches of `size` examples, starting over when the data end.
  template <class Batches>
  Profile run_batches(Batches& batches, std::size_t size, std::uint64_t pass, double rate) {
    const lockstep::Pass whole{replicas_.seed(), pass};
    batches.begin(whole);
    bool is_first = true;
    return run(
        [&] {
          LoadedBatch batch;
          while (!batches.next(batch) || (batch.slice.global_count < size && !is_first)) {
            if (is_first)
              throw UsageError("profile: the data are empty; check take, skip and the files");
            batches.begin(whole);
            is_first = true;
          }
          is_first = false;
          replicas_.check_labels(batch);
          return batch;
        },
        rate);
  }

  /// Profiles steps at learning rate `rate`. `next()` returns the batch of the next step.
  Profile run(FunctionRef<LoadedBatch()> next, double rate) {
    replicas_.check_has_tables();
    const auto set_timer = [this](WorkTimes* times) {
      replicas_.session().each([&](const ReplicaContext<device>& r) {
        if (r.local == 0) r.device.measure_work(times);
      });
    };
    check_timer(set_timer);
    const Snapshot kept = snapshot();
    try {
      LoadedBatch batch;
      StepTimes times;
      Profile result = measure_steps(
          times, options_, [&] { batch = next(); },
          [&] {
            replicas_.train(batch, rate);
            replicas_.discard_pending_steps();
          },
          set_timer);
      result.device = device::name;
      result.precision = device::precision;
      fill(times, batch.slice.global_count, result);
      replicas_.session().each([&](const ReplicaContext<device>& r) {
        if (r.local == 0) result.peak_flops = peak_flops_of<device>(r.device);
      });
      restore_snapshot(kept);
      return result;
    } catch (...) {
      try {
        restore_snapshot(kept);
      } catch (...) {  // the device is lost; the exception in flight names the cause
      }
      throw;
    }
  }

 private:
  using Replica = typename All::Replica;

  void fill(const StepTimes& times, std::size_t batch, Profile& result) const {
    for (std::size_t i = 0; i < replicas_.mine_[0].count; ++i)  // slices of replica 0
      result.examples += replicas_.rows_of_slice(batch, replicas_.mine_[0].first + i).count;
    const UpdateOptions& with = options_of(replicas_.optimizer());
    const bool accumulates = with.gradient_accumulation_steps > 1;
    const auto& policy = replicas_.replicas_[0]->policy();
    const auto owned = static_cast<double>(policy.owned().size());
    const auto elements = static_cast<double>(policy.slot_elements());
    const WorkSize<Net, device, typename Replica::Target> size{
        static_cast<double>(result.examples),
        static_cast<double>(replicas_.mine_[0].count),
        static_cast<double>(All::Loss::target_shape(Net::output_shape).size()),
        elements / std::max(1.0, owned),
        owned,
        !accumulates && !with.use_ema && !with.clips_by_norm()};
    times.fill(result, accumulates,
               [&](ProfileRow& row, const Work& work) { size.add_to(row, work); });
  }

  /// Everything that training changes.
  struct Snapshot {
    std::unique_ptr<typename Replica::Snapshot[]> replicas;
    std::uint64_t step, sets;
    bool are_equal;
  };
  Snapshot snapshot() const {
    const auto& all = replicas_.replicas_;
    Snapshot kept{std::make_unique<typename Replica::Snapshot[]>(all.size()), replicas_.step_,
                  replicas_.sets_, replicas_.are_equal_};
    for (std::size_t i = 0; i < all.size(); ++i) kept.replicas[i] = all[i]->snapshot();
    return kept;
  }
  void restore_snapshot(const Snapshot& kept) {
    replicas_.session().each([&](const ReplicaContext<device>& r) {
      replicas_.replicas_[r.local]->restore_snapshot(kept.replicas[r.local]);
      r.device.synchronize();
    });
    replicas_.step_ = kept.step;
    replicas_.sets_ = kept.sets;
    replicas_.are_equal_ = kept.are_equal;
    replicas_.discard_pending_steps();
  }

  All& replicas_;
  ProfileOptions options_;
};

}  // namespace detail
}  // namespace lockstep

#ifdef LOCKSTEP_HEADER_ONLY
#include "lockstep/training/report/profile.ipp"
#endif
