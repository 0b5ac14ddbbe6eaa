/// \file
/// All replicas of a model, in this process and in others, as one object. Invariants: the replicas
/// hold equal weights whenever no member function is running, except within a round of local steps; a
/// step allocates nothing; all processes of a job call the same functions in the same order.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <memory>
#include <optional>
#include <span>
#include <tuple>
#include <utility>
#include <vector>

#include "lockstep/concepts/strategy.hpp"
#include "lockstep/core/log.hpp"
#include "lockstep/core/logs.hpp"
#include "lockstep/core/numbers/finite.hpp"
#include "lockstep/core/slice.hpp"
#include "lockstep/training/report/running_logs.hpp"
#include "lockstep/training/report/start_line.hpp"
#include "lockstep/training/report/step_trace.hpp"
#include "lockstep/training/step/any_replicas.hpp"
#include "lockstep/training/step/output_masks.hpp"
#include "lockstep/training/step/replica_set.hpp"
#include "lockstep/training/step/update_counts.hpp"

namespace lockstep::detail {

template <class Replicas, class Batches, class Data>
class AsynchronousSteps;  // of strategies with asynchronous steps

template <class Replicas>
class Profiler;  // include <lockstep/training/report/profile.hpp> to call model.profile

/// A step whose sums nobody has read.
struct PendingStep {
  std::size_t examples;  // of the global batch
  double mean_over;
};

/// The replicas of a model and the steps that they make.
template <class Net, class S, class L, class O, class... Ms>
class Replicas final : public ReplicaSet<Net, S, L, O, Ms...> {
  using Base = ReplicaSet<Net, S, L, O, Ms...>;

 public:
  using Base::can_reform;
  using Base::is_alone;
  using Base::makes_rounds;
  using typename Base::device;
  using typename Base::Layout;
  using typename Base::Replica;
  using typename Base::T;

  /// Opens the strategy, allocates all memory except that of activations, and initializes the
  /// weights from the seed. The processes of the job compare their models first.
  [[gnu::cold]] Replicas(const S& strategy, std::uint64_t seed, L loss, O optimizer,
                         std::tuple<Ms...> metrics)
      : Base(strategy, seed, std::move(loss), std::move(optimizer), std::move(metrics)) {
    this->start();
  }

  /// Trains one step on `batch`, this process' share of the global batch. Without `waits` the call
  /// may return while the devices still compute; a later `wait_for_steps` must follow.
  void train(const LoadedBatch& batch, double rate, const RunRequests& requests = {},
             bool waits = true) {
    make_step(batch, rate, requests, waits, true);
  }
  /// The first half of a step: computes the gradients of the global batch, without penalties, and
  /// the layers' state. `apply` makes the second half. \returns the rate on which all processes
  /// agree. With `dy`, the derivatives of the program's own loss by the outputs of this process'
  /// share, (examples, output), the targets are not read.
  double compute_gradients(const LoadedBatch& batch, double rate, const RunRequests& requests = {},
                           const T* dy = nullptr) {
    return make_step(batch, rate, requests, true, false, dy);
  }
  /// Updates the weights with gradients on the host, the same in all processes.
  [[gnu::cold]] void apply(std::span<const T> gradients, double rate) {
    this->check_has_tables();
    const std::uint64_t step = step_;
    const auto wrong = static_cast<double>(std::count_if(
        gradients.begin(), gradients.end(), [](T g) { return !detail::is_finite(g); }));
    are_equal_ = false;
    this->about_to_change();
    session_.each([&](const ReplicaContext<device>& r) {
      Replica& replica = *replicas_[r.local];
      replica.set_gradients(gradients);
      replica.update_with(wrong, r, optimizer_, rate, step + 1);
      replica.wait();
    });
    ++step_;
    throw_device_errors();
  }

  /// The same in an elastic job, where a step that was made although another replica failed must
  /// have its sums in the logs.
  void train_elastic(const LoadedBatch& batch, double rate, RunRequests requests) {
    const std::uint64_t before = step_;
    const std::size_t pending = pending_.size();
    try {
      train(batch, rate, requests);
    } catch (...) {
      if (step_ > before && pending_.size() == pending)
        pending_.push_back({batch.slice.global_count, mean_over_});
      throw;
    }
  }
  std::uint64_t steps_of_round() const override {
    if constexpr (makes_rounds)
      return this->first().policy().steps_of_round();
    else
      return 0;
  }
  [[gnu::cold]] void end_round([[maybe_unused]] const RunRequests& requests) override {
    if constexpr (makes_rounds) {
      if (round_.empty()) return;
      const std::vector<std::size_t> ends = std::exchange(round_, {});
      enter(step_, Phase::reduce);
      session_.each([&](const ReplicaContext<device>& r) {
        Replica& replica = *replicas_[r.local];
        const double own = replica.counted_in_round();
        double all = 0;
        for (const std::size_t of_step : ends) all += static_cast<double>(of_step);
        if constexpr (counts_positions) {
          all = own;
          r.host.all_reduce(&all, 1);
        }
        const double share = all > 0 ? own / all : 1 / static_cast<double>(session_.replicas());
        replica.end_round(is_alone() ? RunRequests{} : requests, ends, share, r);
        if (!is_alone()) replica.throw_device_error();
      });
      for (std::size_t i = 0; i < ends.size(); ++i)
        pending_.push_back({ends[i], this->first().counted_in_step(i)});
      round_begin_.reset();
      are_equal_ = false;
      enter(step_, Phase::callback);
      throw_device_errors();
    }
  }
  [[gnu::cold]] void discard_round() override {
    if constexpr (makes_rounds) {
      round_.clear();
      if (!round_begin_) return;
      const std::uint64_t begin = *std::exchange(round_begin_, std::nullopt);
      if (!this->first().policy().keeps_beginning()) return;
      // Not in the replicas' threads: the session may have ended.
      for (std::size_t i = 0; i < replicas_.size(); ++i) replicas_[i]->discard_round(rounds_);
      are_equal_ = false;
      step_ = begin;
    }
  }
  /// Counts an asynchronous step, whose record is {examples, those that the loss is a mean over,
  /// penalties, sums}.
  [[gnu::cold]] void add_step(std::span<const double> record) {
    if (pending_.empty()) this->first().clear_pending_sums();
    this->first().add_sums(record.subspan(3), record[2]);
    pending_.push_back({static_cast<std::size_t>(record[0]), record[1]});
    ++step_;
  }
  /// Waits for all steps that `train` queued without waiting.
  void wait_for_steps() override {
    session_.each([&](const ReplicaContext<device>& r) { replicas_[r.local]->wait(); });
    throw_device_errors();
  }

  /// Computes loss and metrics of `batch`, this process' share; `read_sums` reads them.
  void test(const LoadedBatch& given, RunRequests requests = {}) {
    note_exchange();
    enter(step_, Phase::evaluation);
    const LoadedBatch batch = with_rows(given);
    const auto labels = counted_labels(batch);
    session_.each([&](const ReplicaContext<device>& r) {
      Replica& replica = *replicas_[r.local];
      if (pending_.empty()) replica.clear_pending_sums();
      const auto slice = [&](std::size_t i) { return slice_of_replica(batch, r, i); };
      const double examples = mean_over(batch, labels, r);
      if (r.local == 0) mean_over_ = examples;
      replica.test(
          {.replica = r, .slice = slice, .requests = requests, .seed = seed_, .examples = examples},
          loss_of_step(batch, all_labels(labels, r), false), metrics_);
    });
    pending_.push_back({batch.slice.global_count, mean_over_});
  }

  /// Checks the labels of this process' share of a batch, if it has any; a kernel would use a label
  /// as an index.
  void check_labels(const LoadedBatch& batch) const {
    if constexpr (has_heads) {
      if (const T* const rows = batch.rows<T>(Layout::target))
        loss_.check_labels(rows, batch.slice.count, batch.slice.first);
    } else if constexpr (std::same_as<typename Replica::Target, std::int32_t>)
      if (const auto* const labels = batch.rows<std::int32_t>(Layout::target))
        detail::check_labels(labels, batch.slice.count, batch.slice.first,
                             Net::output_shape.channels(), Layout::target_shape,
                             ignored_class(loss_.op(Net::output_shape)));
  }

  /// Appends the outputs for all examples of the global batch, in order, in every process.
  void predict(const LoadedBatch& given, std::vector<T>& out, const RunRequests& requests = {}) {
    const LoadedBatch batch = with_rows(given);
    collect_rows(batch, Net::output_shape.size(), out,
                 [&](Replica& replica, T* to, const LoadedBatch& part,
                     const ReplicaContext<device>& r) { replica.predict_to(to, part, seed_, r); });
    exchange_requests(requests);
  }
  /// The same of the gradient of the batch's loss with respect to its examples.
  [[gnu::cold]] void input_gradients(const LoadedBatch& batch, std::vector<T>& out) {
    this->check_has_tables();
    const auto labels = counted_labels(batch);
    auto all = labels;
    session_.each([&](const ReplicaContext<device>& r) {
      const double examples = mean_over(batch, labels, r);
      const auto sum = all_labels(labels, r);
      if (r.local == 0) {
        mean_over_ = examples;
        all = sum;
      }
    });
    collect_rows(
        batch, Net::input_shape.size(), out,
        [&](Replica& replica, T* to, const LoadedBatch& part, const ReplicaContext<device>& r) {
          const StepContext step{part.slice, true, seed_, step_, r.group};
          replica.input_gradient_to(to, part, step, mean_over_, r, loss_of_step(batch, all, true),
                                    metrics_);
        });
  }

  /// Empty logs with the names of the loss and the metrics.
  RunningLogs begin_logs() const override {
    return {log_names({"loss", Ms::name...}, {0, weighted_at<Ms>()...}), Replica::sum_count};
  }
  /// Adds the pending steps to `running`: the sums over each step's global batch, its number of
  /// examples, and the penalties of the weights before its update.
  void read_sums(RunningLogs& running) override {
    add_sums(running, read_, pending_.size());
    pending_.clear();
    read_ = 0;
  }
  void read_step(RunningLogs& running) override {
    add_sums(running, read_, read_ + 1);
    ++read_;
  }
  void point_to(std::size_t i) override { this->first().point_to(i); }
  /// The loss and the metrics of the last step that nobody has read. Unless it `counts`, read_sums
  /// does not see it.
  Logs last_logs(bool counts) {
    RunningLogs running = begin_logs();
    add_sums(running, pending_.size() - 1, pending_.size());
    if (!counts) {
      pending_.pop_back();
      for (std::size_t i = 0; i < replicas_.size(); ++i) replicas_[i]->drop_last_sums();
    }
    return running.logs();
  }

  /// The gradients of the last step, complete under every update policy, penalties not included.
  /// Collective if the policy divides them.
  [[gnu::cold]] std::vector<T> complete_gradients() {
    if constexpr (!UpdateOf<S>::divides_slots) {
      return this->gradients();
    } else {
      std::vector<T> result;
      session_.each([&](const ReplicaContext<device>& r) {
        Replica& replica = *replicas_[r.local];
        std::vector<T> own = replica.copy_of(replica.engine().gradients());
        replica.policy().complete(r, own.data());
        if (r.local == 0) result = std::move(own);
      });
      return result;
    }
  }

  /// The facts that `fit` needs about a step of the program.
  struct ProgramStep {
    RunRequests requests;   ///< for each exchange of the step
    bool has_sent = false;  ///< the last exchange had them
    bool has_logs = false;  ///< one of its losses is in the logs of the epoch
  };
  /// That of the current step; null outside of `fit`, and if `fit` makes the step itself.
  ProgramStep* program_step() const { return program_step_; }
  /// `step` may be null.
  void set_program_step(ProgramStep* step) { program_step_ = step; }
  /// Whether an asynchronous phase runs, in which no exchange is possible.
  bool is_in_phase() const { return is_in_phase_; }
  /// The asynchronous steps of this model so far.
  const UpdateCounts& update_counts() const { return update_counts_; }

  /// Requests of all processes, as of the last exchange; empty if there is only one process.
  RunRequests agreed_requests() const override {
    return is_alone() ? RunRequests{} : this->first().agreed_requests();
  }
  void clear_requests() override { this->first().clear_requests(); }
  /// Drops sums that nobody read because an exception ended their run.
  void discard_pending_steps() override {
    pending_.clear();
    round_.clear();
    round_begin_.reset();
    read_ = 0;
  }
  /// Exchanges requests between steps.
  void exchange_requests(RunRequests requests) override {
    if (is_alone()) return;
    note_exchange();
    enter(step_, Phase::reduce);
    session_.each([&](const ReplicaContext<device>& r) {
      replicas_[r.local]->exchange_requests(requests, r);
    });
    enter(step_, Phase::callback);
  }

  void note(Phase phase) override { enter(step_, phase); }
  void end_epoch(int epoch) override { session_.end_epoch(epoch); }

  [[gnu::cold]] void record(std::shared_ptr<StepTrace> trace, std::uint64_t steps) override {
    if (trace != nullptr)
      trace->open(session_.local_replicas(), session_.first_replica(), HostDevice<device>,
                  static_cast<std::size_t>(steps) * events_per_step());
    else if (trace_ != nullptr)
      trace_->begin(Phase::idle, step_);
    if (trace != nullptr) trace_ = trace;  // kept until no context has a lane of it
    session_.each([&](const ReplicaContext<device>& r) {
      const StepTrace::Lanes lanes = trace ? trace->lanes(r.local) : StepTrace::Lanes();
      if constexpr (TimesWork<typename device::Context>) r.device.measure_work(lanes.work);
      if constexpr (HostDevice<device>) {
        r.exchange.observe(lanes.own, lanes.background);
        auto& policy = replicas_[r.local]->policy();
        if constexpr (requires { policy.observe(lanes.own); }) policy.observe(lanes.own);
      }
    });
    trace_ = std::move(trace);
  }
  /// Elements of all slots, and of those that the first replica of this process holds.
  std::size_t slot_elements() const { return this->first().policy().all_slot_elements(); }
  std::size_t held_slot_elements() const { return this->first().policy().slot_elements(); }
  /// Memory of a replica of this process.
  MemoryUse memory(std::size_t replica) const {
    static_cast<void>(this->first());
    if (replica >= replicas_.size())
      throw UsageError("memory: replica is {}; it must be below the process' replicas, {}", replica,
                       replicas_.size());
    Replica& r = *replicas_[replica];
    MemoryUse use;
    use.weights = Net::graph.weights * sizeof(T);
    if constexpr (Base::has_distant_tables)
      if (this->tables_) use.weights = this->tables_->held(*this) * sizeof(T);
    use.gradients = use.weights * (1 + r.partial_gradients());
    use.optimizer = r.policy().slot_bytes();
    use.state = Net::graph.state * sizeof(T);
    use.working = r.engine().working_bytes() + r.policy().scratch_bytes();
    use.data = most_data_;
    return use;
  }
  /// Allocates the activation memory for batches of `batch` examples. Called before a data set is
  /// moved to the device, so that the data set takes only what is left.
  [[gnu::cold]] void prepare(std::size_t batch) {
    session_.each([&](const ReplicaContext<device>& r) {
      for (std::size_t i = 0; i < mine_[r.local].count; ++i)
        replicas_[r.local]->engine().prepare(
            this->rows_of_slice(batch, mine_[r.local].first + i).count);
    });
  }
  /// Tracks the device memory used by resident data sets, in bytes per device.
  void add_resident_data(std::size_t bytes) { most_data_ = std::max(most_data_, data_ += bytes); }
  void remove_resident_data(std::size_t bytes) { data_ -= bytes; }

 private:
  friend class Profiler<Replicas>;
  template <class, class, class>
  friend class AsynchronousSteps;

  /// A step, or its first half; \returns the rate on which all processes agree.
  double make_step(const LoadedBatch& batch, double rate, RunRequests requests, bool waits,
                   bool updates, const T* dy = nullptr) {
    this->check_has_tables();
    std::atomic<std::size_t> at_reduce{0};
    const bool alone = is_alone();
    const std::uint64_t step = step_;
    are_equal_ = false;
    if constexpr (makes_rounds)
      if (round_.empty()) {
        ++rounds_;
        round_begin_ = step;
      }
    // A function of the step may differ between processes, or round differently on their machines.
    if (!alone && session_.is_chief() && !has_constant_rate()) requests.chief_rate = rate;
    double agreed = rate;
    const auto labels = dy == nullptr ? counted_labels(batch) : Labels{};
    this->about_to_change();
    if (trace_ != nullptr) trace_->begin(Phase::forward, step);
    // Counts the step even if a replica's kernel then reports an error: the update has been made.
    struct Counted {
      std::uint64_t& steps;
      std::atomic<bool> is_made = false;
      ~Counted() { steps += is_made ? 1U : 0U; }
    } counted{step_};
    session_.each([&](const ReplicaContext<device>& r) {
      Replica& replica = *replicas_[r.local];
      if (pending_.empty()) replica.clear_pending_sums();
      const auto note = [&](Phase phase) {
        // A process is in reduce once the last of its replicas is.
        const bool notes =
            phase == Phase::reduce ? at_reduce.fetch_add(1) + 1 == replicas_.size() : r.local == 0;
        if (notes) session_.note(step, phase);
      };
      const auto slice = [&](std::size_t i) { return slice_of_replica(batch, r, i); };
      double examples = static_cast<double>(batch.slice.global_count);
      if constexpr (makes_rounds)
        examples = own_mean_over(slice(0));
      else if (dy == nullptr)
        examples = mean_over(batch, labels, r);
      if (r.local == 0) mean_over_ = examples;
      const RunRequests none;
      const RunRequests& sent = alone || makes_rounds ? none : requests;
      const ReplicaStep<device> its{.replica = r,
                                    .slice = slice,
                                    .requests = sent,
                                    .seed = seed_,
                                    .step = step,
                                    .rate = rate,
                                    .examples = examples,
                                    .round = rounds_,
                                    .waits = !alone && !makes_rounds,
                                    .note = note};
      if (dy != nullptr)
        replica.gradients_from(its, dy, batch.slice.first);
      else
        replica.gradients_of(its, step_loss(batch, labels, r, slice), metrics_,
                             updates ? &optimizer_ : nullptr);
      const double used = alone || makes_rounds ? rate : replica.agreed_rate(rate);
      if (updates) replica.update(r, optimizer_, used, step + 1);
      if (r.local == 0) {
        counted.is_made = updates;
        agreed = used;
      }
      if (waits) replica.wait();
      if (trace_ != nullptr) begin_work(r.device, {});  // ends the last label without a wait, too
      // In the replica's thread, where an error also ends the other processes.
      if (!alone) replica.throw_device_error();
    });
    enter(step, Phase::callback);
    if (alone && waits) throw_device_errors();
    if constexpr (makes_rounds) {
      round_.push_back(batch.slice.global_count);
      return agreed;
    }
    pending_.push_back({batch.slice.global_count, mean_over_});
    if (agreed != rate && !this->first().agreed_requests().learning_rate &&
        !std::exchange(has_other_rate_, true))
      log(LogLevel::warning, other_rate_line(step, rate, agreed));
    return agreed;
  }

  /// The batch after the rows of tables that it reads have come from the servers, if only these have
  /// them.
  LoadedBatch with_rows(const LoadedBatch& batch) {
    if constexpr (Base::has_distant_tables)
      if (this->tables_) return this->tables_->with_rows(*this, batch);
    return batch;
  }
  /// Of other requests than those of the program's step.
  void note_exchange() {
    if (program_step_ != nullptr) program_step_->has_sent = false;
  }

  /// Adds the pending steps from the one numbered `first` on.
  void add_sums(RunningLogs& running, std::size_t first, std::size_t end) {
    const auto results = [&](const double* state, double* result) {
      const auto add = [&](const auto& metric) {
        *result++ = metric.result(state);
        state += metric.state_size;
      };
      std::apply([&](const auto&... metric) { (add(metric), ...); }, metrics_);
    };
    for (std::size_t i = first; i < end; ++i) {
      penalty_ = this->first().penalty(i);
      running.add(this->first().sums(i), pending_[i].examples, pending_[i].mean_over, penalty_,
                  results);
    }
  }

  /// Appends `width` values for each example of the global batch, in order, in every process:
  /// compute(replica, to, slice, context) writes those of a slice. With several processes the
  /// replicas all-gather them, padded to the largest slice.
  template <class Compute>
  void collect_rows(const LoadedBatch& batch, std::size_t width, std::vector<T>& out,
                    const Compute& compute) {
    const std::size_t before = out.size();
    out.resize(before + batch.slice.global_count * width);
    // Slices of all replicas, padded to the same number and size.
    std::size_t most = 0;
    for (std::size_t r = 0; r < session_.replicas(); ++r)
      most = std::max(most, this->slices_of(r).count);
    const std::size_t largest = this->rows_of_slice(batch.slice.global_count, 0).count * width;
    session_.each([&](const ReplicaContext<device>& r) {
      std::vector<T> own(is_alone() ? 0 : most * largest);
      for (std::size_t i = 0; i < mine_[r.local].count; ++i) {
        const LoadedBatch part = slice_of_replica(batch, r, i);
        T* const to =
            is_alone() ? out.data() + before + part.slice.first * width : &own[i * largest];
        compute(*replicas_[r.local], to, part, r);
      }
      if (is_alone()) return;
      std::vector<T> all(session_.replicas() * own.size());
      r.host.all_gather(reinterpret_cast<const std::byte*>(own.data()), own.size() * sizeof(T),
                        reinterpret_cast<std::byte*>(all.data()));
      for (std::size_t of = 0; of < session_.replicas() && r.local == 0; ++of) {
        const Slice its = this->slices_of(of);
        for (std::size_t i = 0; i < its.count; ++i) {
          const Slice rows = this->rows_of_slice(batch.slice.global_count, its.first + i);
          std::copy_n(all.data() + (of * most + i) * largest, rows.count * width,
                      out.data() + before + rows.first * width);
        }
      }
    });
  }

  using LossOp = std::remove_cvref_t<decltype(std::declval<const L&>().op(Net::output_shape))>;

  /// Whether the loss has a mean for each of several outputs.
  static constexpr bool has_heads = !std::same_as<StepLoss<L>, L>;
  using Labels = typename StepLossOf<L>::Counts;

  using Masks = OutputMasks<Net, Layout>;
  /// Whether the loss may leave out positions: those of an ignored class, and padded steps.
  static constexpr bool counts_positions = !has_heads && (IgnoresClass<LossOp> || Masks::exist);

  /// The positions of this process' share of a batch that the loss counts; 0 if it counts all. One
  /// number for each output that has a loss.
  Labels counted_labels(const LoadedBatch& batch) const {
    if constexpr (has_heads || counts_positions) {
      // A batch in memory may be the whole one.
      const Slice mine = this->share()(batch.slice.global_count);
      const LoadedBatch part = rows_of<T>(batch, Layout::fields, batch.slice.with(mine));
      if constexpr (has_heads)
        return counted_by_head(part);
      else
        return counted_positions(part);
    } else {
      return {};
    }
  }
  /// Whether the mean of the loss is over the positions that `counted_positions` counts.
  bool leaves_out_positions() const
    requires counts_positions
  {
    return Masks::exist || ignored_class(loss_.op(Net::output_shape));
  }
  std::size_t counted_positions(const LoadedBatch& part) const
    requires counts_positions
  {
    constexpr std::size_t width = Layout::weight_shape.size();
    const std::size_t all = part.slice.count * width;
    if constexpr (std::same_as<typename Replica::Target, std::int32_t>) {
      const auto* const labels = part.rows<std::int32_t>(Layout::target);
      const auto ignored = ignored_class(loss_.op(Net::output_shape));
      if (labels == nullptr) return 0;
      if constexpr (!Masks::exist) {
        return ignored ? count_labels(labels, all, ignored) : 0;
      } else if (ignored) {
        std::size_t counted = 0;
        for (std::size_t i = 0; i < all; ++i)
          counted += labels[i] != *ignored && is_step(part, i / width, i % width) ? 1u : 0u;
        return counted;
      }
    }
    std::size_t counted = 0;
    for (std::size_t i = 0; i < all; ++i) counted += is_step(part, i / width, i % width) ? 1u : 0u;
    return counted;
  }
  /// Whether weight w of example n is not that of a padded step.
  static bool is_step([[maybe_unused]] const LoadedBatch& part, [[maybe_unused]] std::size_t n,
                      [[maybe_unused]] std::size_t w) {
    if constexpr (Masks::exist)
      return Masks::counts(part.rows<T>(0) + n * Net::input_shape.size(), w);
    else
      return true;
  }
  /// Whether a head has a mean over some of the examples or positions.
  bool counts_by_head() const
    requires has_heads
  {
    return Masks::exist || loss_.counts();
  }
  Labels counted_by_head(const LoadedBatch& part) const
    requires has_heads
  {
    const T* const targets = part.template rows<T>(Layout::target);
    if (targets == nullptr || !counts_by_head()) return {};
    return loss_.counted(targets, part.template rows<T>(Layout::weight), part.slice.count,
                         [&](std::size_t n, std::size_t w) { return is_step(part, n, w); });
  }
  /// The labels of all processes, for a loss of several outputs.
  Labels all_labels(const Labels& labels, [[maybe_unused]] const ReplicaContext<device>& r) const {
    if constexpr (has_heads)
      if (!is_alone() && counts_by_head()) {
        Labels all = r.local == 0 ? labels : Labels{};
        r.host.all_reduce(all.data(), all.size());
        return all;
      }
    return labels;
  }
  /// The loss as the kernels of a batch get it. `labels`: of all processes.
  decltype(auto) loss_of_step(const LoadedBatch& batch, [[maybe_unused]] const Labels& labels,
                              [[maybe_unused]] bool trains) const {
    if constexpr (has_heads)
      return loss_.step(counts_by_head() ? &labels : nullptr, batch.slice.global_count, trains);
    else
      return static_cast<const L&>(loss_);
  }
  /// The same of a training step; under local steps, of this replica's part.
  template <class SliceOf>
  decltype(auto) step_loss(const LoadedBatch& batch, const Labels& labels,
                           const ReplicaContext<device>& r, const SliceOf& slice) const {
    if constexpr (has_heads && makes_rounds)
      return own_step_loss(slice(0));
    else
      return loss_of_step(batch, all_labels(labels, r), true);
  }
  /// The same of a replica that makes a step alone.
  decltype(auto) own_step_loss(const LoadedBatch& part) const {
    if constexpr (has_heads) {
      const Labels counted = counted_by_head(part);
      return loss_.step(counts_by_head() ? &counted : nullptr, part.slice.count, true);
    } else {
      return static_cast<const L&>(loss_);
    }
  }
  /// The number of examples that the loss of a batch is a mean over: those of the global batch, of
  /// an example with ignored labels or padded steps the share of the other ones. The processes of the
  /// job add their `labels`; these are whole numbers, so the sum does not depend on how the batch is divided.
  double mean_over(const LoadedBatch& batch, [[maybe_unused]] const Labels& labels,
                   [[maybe_unused]] const ReplicaContext<device>& r) const {
    if constexpr (counts_positions)
      if (leaves_out_positions()) {
        double counted = is_alone() || r.local == 0 ? static_cast<double>(labels) : 0;
        if (!is_alone()) r.host.all_reduce(&counted, 1);
        return counted / static_cast<double>(Layout::weight_shape.size());
      }
    return static_cast<double>(batch.slice.global_count);
  }

  /// The same for the part of a replica that makes a step alone.
  double own_mean_over(const LoadedBatch& part) const {
    if constexpr (counts_positions)
      if (leaves_out_positions() && part.field[Layout::target] != nullptr)
        return static_cast<double>(counted_positions(part)) /
               static_cast<double>(Layout::weight_shape.size());
    return static_cast<double>(part.slice.count);
  }

  bool has_constant_rate() const {
    if constexpr (requires { this->optimizer_.learning_rate.is_constant(); })
      return optimizer_.learning_rate.is_constant();
    else
      return false;
  }

  /// Reports the phase to the strategy, and to the trace if there is one.
  void enter(std::uint64_t step, Phase phase) {
    session_.note(step, phase);
    if (trace_ != nullptr) trace_->begin(phase, step);
  }
  /// An upper bound for the labels of a step, with an update within backward and recomputation.
  std::size_t events_per_step() const {
    return mine_.front().count *
           (6 * static_cast<std::size_t>(PlanOf<Net, device>::plan.steps) + 32);
  }

  /// \throws the first error that a replica's kernels reported. Called after all replicas have
  /// waited: an exception in one replica's thread would abort an exchange that others are still in,
  /// before their update.
  void throw_device_errors() {
    if constexpr (DefersErrors<typename device::Context>) {
      std::exception_ptr first;
      for (std::size_t i = 0; i < replicas_.size(); ++i) try {
          replicas_[i]->throw_device_error();
        } catch (...) {
          if (!first) first = std::current_exception();
        }
      if (first) std::rethrow_exception(first);
    }
  }

  /// A replica's i-th slice of this process' share of the batch.
  LoadedBatch slice_of_replica(const LoadedBatch& batch, const ReplicaContext<device>& r,
                               std::size_t i) const {
    const std::size_t slice = mine_[r.local].first + i;
    const Slice mine = slice < this->full_slices()
                           ? this->rows_of_slice(batch.slice.global_count, slice)
                           : Slice{batch.slice.first, 0};
    return rows_of<T>(batch, Layout::fields, batch.slice.with(mine));
  }

  using Base::are_equal_;
  using Base::is_divided_;
  using Base::loss_;
  using Base::metrics_;
  using Base::mine_;
  using Base::optimizer_;
  using Base::penalty_;
  using Base::replicas_;
  using Base::seed_;
  using Base::session_;
  using Base::sets_;
  using Base::step_;
  using Base::trace_;
  std::vector<PendingStep> pending_;
  std::size_t read_ = 0;                        // of them, by read_step
  double mean_over_ = 0;                        // of the last step
  std::vector<std::size_t> round_;              // the examples of its steps so far, of all replicas
  std::uint64_t rounds_ = 0;                    // begun so far
  std::optional<std::uint64_t> round_begin_{};  // step_ then, unless it has ended
  bool has_other_rate_ = false;                 // the warning has been logged
  ProgramStep* program_step_ = nullptr;
  bool is_in_phase_ = false;
  UpdateCounts update_counts_{};
  std::size_t data_ = 0, most_data_ = 0;  // bytes of resident data: now, and the maximum
};

}  // namespace lockstep::detail
