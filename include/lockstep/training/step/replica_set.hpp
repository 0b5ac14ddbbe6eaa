/// \file
/// The state of a model's replicas, in this process and in others: their weights, the optimizer's
/// buffers, the step count. Invariants: the replicas hold equal weights whenever no member function
/// is running, except within a round of local steps; all processes of a job call the same functions
/// in the same order.
#pragma once

#include <algorithm>
#include <atomic>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <exception>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include "lockstep/concepts/strategy.hpp"
#include "lockstep/core/format_text.hpp"
#include "lockstep/core/log.hpp"
#include "lockstep/core/numbers/digest64.hpp"
#include "lockstep/core/numbers/finite.hpp"
#include "lockstep/core/process/threads.hpp"
#include "lockstep/core/slice.hpp"
#include "lockstep/strategies/virtual_shards.hpp"
#include "lockstep/training/checkpoint/job_state.hpp"
#include "lockstep/training/checks/model_signature.hpp"
#include "lockstep/training/checks/not_finite.hpp"
#include "lockstep/training/checks/run_checks.hpp"
#include "lockstep/training/checks/verify_replicas.hpp"
#include "lockstep/training/elastic/elastic_runs.hpp"
#include "lockstep/training/named_tensors.hpp"
#include "lockstep/training/parameters.hpp"
#include "lockstep/training/report/memory_use.hpp"
#include "lockstep/training/report/step_trace.hpp"
#include "lockstep/training/step/any_replicas.hpp"
#include "lockstep/training/step/owned_list.hpp"
#include "lockstep/training/step/replica.hpp"
#include "lockstep/training/weights_file.hpp"

namespace lockstep::detail {

/// The tables of embeddings that only the servers of a job have; in distant_tables.hpp, which
/// <lockstep/parameter_server.hpp> includes.
template <class Set>
class DistantTables;

/// The examples of a slice of a batch, which `full` slices divide; the slices after these are empty.
inline Slice rows_of_slice(std::size_t batch, std::size_t full, std::size_t slice) {
  return slice < full ? slice_of(batch, full, slice) : Slice{batch, 0};
}

/// The examples of a process, whose slices are `first` to `last`, in a batch of any size.
struct ProcessShare {
  std::size_t slices, first, last;
  Slice operator()(std::size_t batch) const {
    const Slice a = rows_of_slice(batch, slices, first), b = rows_of_slice(batch, slices, last);
    return {a.first, b.first + b.count - a.first};
  }
};

/// Whether all elements of a parameter are finite in `values`, those of all parameters.
template <class T>
bool is_finite_in(const std::vector<T>& values, const NamedParameter& parameter) {
  const T* const first = values.data() + parameter.offset;
  return std::all_of(first, first + parameter.shape.size(), [](T v) { return is_finite(v); });
}

/// The replicas of a model and the session that runs them, without the steps, which Replicas adds.
///
/// How a global batch is divided, here for 2 processes with 2 replicas each and 8 virtual shards;
/// without virtual shards each replica has one slice. A replica that computes nothing has an empty
/// slice after all others, so that it takes part in each exchange:
///
///     global batch   | 0 | 1 | 2 | 3 | 4 | 5 | 6 | 7 |   slices()      8
///     replica        |  rank 0 |  1  |  2  |  rank 3  |   slices_of(r)  2 each
///     process        |     share()   |    share()     |   what a process loads
///
/// Member functions are called by the thread that owns the model; Session::each runs their bodies
/// in the replicas' own threads and returns when all have finished.
template <class Net, class S, class L, class O, class... Ms>
class ReplicaSet : public AnyReplicas {
  using Policy = typename UpdatePolicyOf<S>::type;

 public:
  using Network = Net;
  using Strategy = S;
  using Loss = L;
  using device = typename S::device;
  using T = typename device::real;
  using Replica = detail::Replica<Net, device, UpdateOf<S>, L, O, Ms...>;
  using Target = typename Replica::Target;
  using Layout = BatchLayout<Net, L>;
  using Session = decltype(std::declval<const S&>().open());
  static constexpr bool is_one_process = std::derived_from<Session, SessionOfOneProcess>;
  static constexpr bool is_one_replica = std::derived_from<Session, SessionOfOneReplica>;
  /// Whether the job may go on with other processes after a loss.
  static constexpr bool can_reform = ElasticSession<Session>;
  /// Whether an owner can give its range as before the update that a loss has ended.
  static constexpr bool can_undo = requires(const UpdateOf<S>& u) { u.is_within_update(); };
  /// Whether a job of the strategy may leave tables on its servers.
  static constexpr bool has_distant_tables =
      requires(const S& strategy) { strategy.tables_on_servers; } && !can_reform;
  static_assert(
      !can_reform || !UpdateOf<S>::divides_slots || can_undo,
      "lockstep::Model: under this update policy a process that dies takes its part of the "
      "optimizer's buffers along; leave out ls::Elastic, or use ls::Recoverable of the "
      "policy, or ls::Replicated");
  /// Whether replicas make steps alone, in rounds.
  static constexpr bool makes_rounds = lockstep::makes_rounds<UpdateOf<S>>;
  static_assert(!can_reform || !makes_rounds,
                "lockstep::Model: under ls::LocalSgd and ls::DiLoCo a process that dies takes its "
                "optimizer's buffers and the steps of a round along; leave out ls::Elastic, or the "
                "policy");
  static_assert(!makes_rounds || !exists(PlanOf<Net, device>::plan.exchanges),
                "lockstep::Model: a layer exchanges data with other replicas within each step, but "
                "under ls::LocalSgd and ls::DiLoCo they make steps alone; leave out "
                "ls::synchronized, or the policy");

  static constexpr bool keeps_gradients = KeepsGradients<UpdateOf<S>>;
  static_assert(!can_reform || !keeps_gradients,
                "lockstep::Model: a process that dies takes the gradients along that it has not "
                "sent; leave out ls::Elastic or ls::wire");

  /// Opens the strategy; `start` makes the replicas.
  [[gnu::cold]] ReplicaSet(const S& strategy, std::uint64_t seed, L loss, O optimizer,
                           std::tuple<Ms...> metrics)
      : seed_(seed),
        loss_(std::move(loss)),
        optimizer_(std::move(optimizer)),
        metrics_(std::move(metrics)),
        policy_(policy_of(strategy)),
        session_(strategy.open()) {
    if constexpr (has_distant_tables)
      if (strategy.tables_on_servers) tables_ = std::make_unique<DistantTables<ReplicaSet>>();
  }

  Session& session() { return session_; }
  const Session& session() const { return session_; }
  TrainingPlace place() const override {
    TrainingPlace here{S::name,         roles().computing.count, session_.virtual_shards(),
                       session_.rank(), session_.is_chief(),     is_one_process,
                       is_alone(),      session_.workers(),      session_.first_replica()};
    if constexpr (requires { session_.min_workers(); }) {
      here.min_workers = session_.min_workers();
      here.is_one_machine = session_.is_one_machine();
    }
    if constexpr (can_reform) {
      here.replicas_of_each = session_.local_replicas();
      if constexpr (UpdateOf<S>::divides_slots) {
        const ReplicaRoles its = roles();
        here.owner_copies = its.copies;
        here.owns = its.owners.contains(session_.first_replica());
        here.has_servers = requires { session_.roles(); };
      }
    }
    return here;
  }
  std::uint64_t seed() const override { return seed_; }
  const O& optimizer() const { return optimizer_; }
  /// The value of the update policy, for the replicas' objects.
  const void* policy() const { return &policy_; }
  const std::tuple<Ms...>& metrics() const { return metrics_; }
  /// Steps trained so far.
  std::uint64_t steps() const override { return step_; }
  /// Steps without those that a loss scale skipped because gradients overflowed.
  std::uint64_t updates() const override { return step_ - first().loss_scale().skipped(); }
  /// The optimizer's own rate or schedule for the next step.
  double learning_rate() const override { return optimizer_.learning_rate(updates()); }
  double loss_scale() const { return first().loss_scale().value(); }
  /// Threads of one replica.
  int threads() const { return threads_; }

  /// Whether all replicas of the job are in this process.
  bool is_alone() const {
    return is_one_process || session_.local_replicas() == session_.replicas();
  }

  /// A function from the size of a global batch to the part that this process loads.
  ProcessShare share() const {
    const Slice here = slices_here();
    return {full_slices(), here.first, here.first + here.count - 1};
  }

  /// \throws ReplicasDiverged unless all replicas hold bit-identical weights and optimizer state,
  /// as far as the update policy keeps them equal.
  void verify() override {
    if constexpr (!is_one_replica)
      if (session_.replicas() > 1) compare(true);
  }
  /// The same without the optimizer's state. Within one process, weights that have not changed
  /// since the last comparison are not compared again; other processes' weights may have changed.
  void verify_weights() {
    if constexpr (!is_one_replica)
      if (session_.replicas() > 1 && !(is_alone() && are_equal_)) compare(false);
  }

  /// Calls f; if it throws, notifies the other processes before it rethrows.
  template <class F>
  std::invoke_result_t<F> or_fail(const F& f) {
    if constexpr (is_one_process) {
      return f();
    } else {
      try {
        return f();
      } catch (...) {
        fail(current_error());
        throw;
      }
    }
  }
  [[gnu::cold]] void fail(const std::exception_ptr& error) override {
    try {
      std::rethrow_exception(error);
    } catch (const PeerLost&) {  // the other processes already know
    } catch (const std::exception& e) {
      session_.fail(e.what());
    } catch (...) {
      session_.fail("unknown exception, not derived from std::exception");
    }
  }

  /// Flat buffers of replica 0; all replicas hold the same values.
  std::vector<T> weights() const {
    check_whole();
    return weights_of(first());
  }
  std::vector<T> state() const {
    check_whole();
    return state_of(first());
  }
  /// Gradients of the last step, penalties included. \throws UsageError under a policy that leaves
  /// each sum to its owner.
  std::vector<T> gradients() const {
    if constexpr (UpdateOf<S>::divides_slots)
      throw UsageError(
          "gradients: {} leaves the sum of each gradient to the replica that owns the weight, so none "
          "has all of them; call gradients_of(batch) in all processes",
          policy_name());
    else if constexpr (makes_rounds)
      throw UsageError(
          "gradients: under {} each replica has gradients of its own part of a batch; use another "
          "update policy",
          policy_name());
    else
      return first().copy_of(first().engine().gradients());
  }
  /// Sets the parameters of all replicas of this process.
  void set(const std::vector<T>& weights, const std::vector<T>& state) {
    check_whole();
    about_to_change();
    ++sets_;
    are_equal_ = false;
    session_.each([&](const ReplicaContext<device>& r) {
      replicas_[r.local]->engine().weights().upload(weights.data());
      replicas_[r.local]->engine().state().upload(state.data());
      r.device.synchronize();
    });
  }
  /// The parameters as bytes: weights, then state.
  [[gnu::cold]] std::vector<std::byte> copy() const override {
    const std::vector<T> weights = this->weights(), state = this->state();
    const std::size_t first = weights.size() * sizeof(T), second = state.size() * sizeof(T);
    std::vector<std::byte> all(first + second);
    if (first > 0) std::memcpy(all.data(), weights.data(), first);
    if (second > 0) std::memcpy(all.data() + first, state.data(), second);
    return all;
  }
  /// \throws UsageError unless `bytes` has the size of this model's parameters.
  [[gnu::cold]] void restore(std::span<const std::byte> bytes) override {
    std::vector<T> weights(Net::graph.weights), state(Net::graph.state);
    const std::size_t first = weights.size() * sizeof(T), second = state.size() * sizeof(T);
    if (bytes.size() != first + second)
      throw UsageError(
          "set_weights: got {} bytes, but this model's parameters have {}; pass what weights() "
          "returned",
          bytes.size(), first + second);
    if (first > 0) std::memcpy(weights.data(), bytes.data(), first);
    if (second > 0) std::memcpy(state.data(), bytes.data() + first, second);
    set(weights, state);
  }
  [[gnu::cold]] Signature signature() const override {
    Signature fields = signature_of_model();
    // Else the replicas have equal ones, and a checkpoint has one.
    if constexpr (makes_rounds)
      if (job_slots() != slot_count(optimizer_))
        add_field(fields, buffers_field,
                  format_text("{} of {} replicas under {}", job_slots(), session_.replicas(),
                              policy_name()));
    return fields;
  }
  std::vector<ParameterInfo> parameters() const override { return parameters_of<Net>(); }
  bool is_whole() const override {
    if constexpr (keeps_gradients)
      return first().policy().kept().size() == 0;
    else
      return !UpdateOf<S>::divides_slots && !makes_rounds;
  }
  [[gnu::cold]] void save(JobState& to) override {
    if constexpr (has_distant_tables)
      if (tables_ && !is_divided_) return tables_->save(*this, to);
    check_whole();
    Replica& replica = first();
    const auto bytes_in = [&](const auto& buffer) {
      return replica.template copy_of<std::byte>(buffer);
    };
    to.type = dtype_of<T>;
    to.weights = bytes_in(replica.engine().weights());
    to.state = bytes_in(replica.engine().state());
    to.slot_values.clear();
    for (std::size_t i = 0; i < job_slots(); ++i)
      read_slot(i, to.slot_values.emplace_back(job_slot_name(i), std::vector<std::byte>()).second);
    to.owned.reset();
    if constexpr (keeps_gradients) save_kept(to);
    save_facts(to);
  }
  [[gnu::cold]] void save_own(JobState& to) override {
    if constexpr (!UpdateOf<S>::divides_slots) {
      save(to);
    } else {
      Replica& replica = first();
      const auto& policy = replica.policy();
      to.type = dtype_of<T>;
      to.owned.emplace().owned = policy.owned();
      to.weights = replica.template copy_of<std::byte>(replica.engine().weights());
      const std::size_t size = policy.owned().size() > 0 ? to.weights.size() : 0;
      to.slot_values.clear();
      for (std::size_t i = 0; i < policy.slot_buffers().size(); ++i) {
        auto& bytes =
            to.slot_values.emplace_back(slot_name(optimizer_, i), std::vector<std::byte>(size))
                .second;
        if (size > 0) policy.read(i, reinterpret_cast<T*>(bytes.data()));
      }
      if constexpr (can_undo)
        if (policy.is_within_update()) undo_update(to, size);
      if constexpr (requires { policy.is_within_completion(); })
        if (policy.is_within_completion() && size > 0)
          policy.read_updated_weights(reinterpret_cast<T*>(to.weights.data()));
      to.state = replica.template copy_of<std::byte>(replica.engine().state());
      if (is_divided_) {
        to.owned->has_weights = false;
        to.owned->has_state = policy.owned().size() > 0;
      }
      save_facts(to);
    }
  }
  Ranges owned() const override { return first().policy().owned(); }
  /// The model's part of a state without the buffers.
  [[gnu::cold]] void save_facts(JobState& to) const {
    Replica& replica = first();
    to.steps = step_;
    to.has_averages_in_weights = has_averages_in_weights_;
    to.loss_scale = replica.loss_scale().state();
    to.seed = seed_;
    to.replicas = roles().computing.count;
    to.workers = session_.workers();
    to.signature = signature();
    to.settings = settings();
  }
  [[gnu::cold]] StateLayout layout() const override {
    StateLayout its{dtype_of<T>, Net::graph.weights * sizeof(T), Net::graph.state * sizeof(T)};
    its.is_distant = is_distant();
    its.policy = policy_name();
    for (std::size_t i = 0; i < job_slots(); ++i) its.slot_names.emplace_back(job_slot_name(i));
    if constexpr (requires { optimizer_.slot_start(0); })
      for (std::size_t i = 0; i < optimizer_.slot_count(); ++i)
        its.slot_starts.push_back(optimizer_.slot_start(i));
    its.signature = signature();
    if constexpr (keeps_gradients)
      if (!is_whole()) its.factors_layout = first().policy().factors_layout();
    return its;
  }
  [[gnu::cold]] void load(const JobState& from) override {
    if constexpr (has_distant_tables)
      if (tables_) return tables_->load(*this, from);
    const auto copy_of = [](const std::vector<std::byte>& bytes) {
      return [&bytes](std::span<std::byte> to) {
        if (!to.empty()) std::memcpy(to.data(), bytes.data(), to.size());
      };
    };
    set_buffer(0, copy_of(from.weights));
    set_buffer(1, copy_of(from.state));
    for (std::size_t i = 0; i < from.slot_values.size(); ++i)
      if (!from.owned || !from.slot_values[i].second.empty())
        set_buffer(2 + i, copy_of(from.slot_values[i].second));
    if constexpr (keeps_gradients) load_kept(from.kept);
    load_facts(from);
  }
  [[gnu::cold]] void set_buffer(std::size_t buffer,
                                FunctionRef<void(std::span<std::byte>)> fill) override {
    about_to_change();
    ++sets_;
    are_equal_ = false;
    std::vector<T> values(buffer == 1 ? Net::graph.state : Net::graph.weights);
    fill(std::as_writable_bytes(std::span(values)));
    session_.each([&](const ReplicaContext<device>& r) {
      Replica& replica = *replicas_[r.local];
      if (buffer == 0)
        replica.engine().weights().upload(values.data());
      else if (buffer == 1)
        replica.engine().state().upload(values.data());
      else
        load_slot(buffer - 2, r, values.data());
      r.device.synchronize();
    });
  }
  [[gnu::cold]] void load_facts(const JobState& from) override {
    session_.each([&](const ReplicaContext<device>& r) {
      replicas_[r.local]->restore_loss_scale(from.loss_scale);
    });
    step_ = from.steps;
    has_averages_in_weights_ = from.has_averages_in_weights;
    if (settings_->is_default() && from.settings.is_default()) return;
    LayerSettings settings;
    settings.load(from.settings, nodes, named_parameters<Net>());
    if (settings.has_held()) check_holds(settings);
    *settings_ = std::move(settings);
    apply_settings();
  }
  [[gnu::cold]] void broadcast(std::vector<std::byte>& bytes) override { broadcast_from(0, bytes); }
  [[gnu::cold]] void broadcast_from(std::size_t root, std::vector<std::byte>& bytes) override {
    if (is_alone()) return;
    std::uint64_t size = bytes.size();
    auto* const first = reinterpret_cast<std::byte*>(&size);
    broadcast_from(root, sizeof size, first, first);
    const bool is_root = root == session_.first_replica();
    if (!is_root) bytes.resize(static_cast<std::size_t>(size));
    broadcast_from(root, bytes.size(), bytes.data(), bytes.data());
  }
  [[gnu::cold]] void broadcast_from(std::size_t root, std::size_t size, const std::byte* from,
                                    std::byte* to) override {
    if (is_alone()) return;
    constexpr std::size_t most = std::size_t{1} << 20;  // bounds the memory of each replica
    session_.each([&](const ReplicaContext<device>& r) {
      std::vector<std::byte> part(std::min(most, size));
      for (std::size_t at = 0; at < size; at += part.size()) {
        part.resize(std::min(most, size - at));
        if (r.rank == root) std::copy_n(from + at, part.size(), part.data());
        r.host.broadcast(part.data(), part.size(), root);
        const bool keeps = r.local == 0 && r.rank != root && to != nullptr;
        if (keeps) std::copy(part.begin(), part.end(), to + at);
      }
    });
  }
  [[gnu::cold]] std::vector<std::vector<std::byte>> gather(
      std::span<const std::byte> bytes) override {
    if (is_alone()) return {{bytes.begin(), bytes.end()}};
    std::vector<std::vector<std::byte>> result;
    session_.note(step_, Phase::reduce);
    session_.each([&](const ReplicaContext<device>& r) {
      // Only replica 0 of a process has bytes; 0 stands for none, n + 1 for n bytes.
      const std::uint64_t size = r.local == 0 ? bytes.size() + 1 : 0;
      std::vector<std::uint64_t> sizes(session_.replicas());
      r.host.all_gather(reinterpret_cast<const std::byte*>(&size), sizeof size,
                        reinterpret_cast<std::byte*>(sizes.data()));
      const auto largest = static_cast<std::size_t>(*std::max_element(sizes.begin(), sizes.end()));
      std::vector<std::byte> own(largest), all(largest * sizes.size());
      if (r.local == 0) std::copy(bytes.begin(), bytes.end(), own.begin());
      r.host.all_gather(own.data(), largest, all.data());
      if (r.local != 0) return;
      for (std::size_t i = 0; i < sizes.size(); ++i)
        if (const auto* const from = all.data() + i * largest; sizes[i] > 0)
          result.emplace_back(from, from + sizes[i] - 1);
    });
    session_.note(step_, Phase::callback);
    return result;
  }
  [[gnu::cold]] std::vector<TraceRoundTrip> round_trips(std::size_t count) override {
    std::vector<TraceRoundTrip> times(count);
    session_.each([&](const ReplicaContext<device>& r) {
      std::vector<std::byte> all(session_.replicas());
      for (TraceRoundTrip& time : times) {
        const std::byte one{1};
        const std::int64_t begin = trace_time();
        r.host.all_gather(&one, 1, all.data());
        if (r.local == 0) time = {begin, trace_time()};
      }
    });
    return times;
  }
  void agree(std::string_view part, const Signature& fields) override {
    session_.agree(part, fields);
  }
  /// See TrainingControl. All replicas hold the same weights, and the same gradients if these are
  /// checked, so one is enough.
  bool is_finite() const override { return first().is_finite(); }
  /// Names the losses, gradients and weights of the last step that are not finite; empty if all
  /// are. A parameter's weights are named only if its gradients are finite.
  [[gnu::cold]] std::string not_finite() const override {
    std::vector<double> losses(slices());
    for (std::size_t i = 0; i < losses.size(); ++i) losses[i] = first().slice_loss(i);
    const std::vector<T> gradients = known_gradients();
    const std::vector<T> weights = is_distant() ? std::vector<T>() : this->weights();
    return name_not_finite(
        named_parameters<Net>(),
        [&](const NamedParameter& p) { return gradients.empty() || is_finite_in(gradients, p); },
        [&](const NamedParameter& p) { return weights.empty() || is_finite_in(weights, p); },
        losses,
        [&](std::size_t slice) {
          std::size_t rank = 0;
          for (Slice its = slices_of(0); slice < its.first || slice >= its.first + its.count;)
            its = slices_of(++rank);
          return rank;
        },
        penalty_);
  }
  [[gnu::cold]] std::vector<NamedTensor> tensors() const override {
    return named_tensors(named_parameters<Net>(), weights(), state(), known_gradients());
  }
  [[gnu::cold]] Architecture architecture() const override { return lockstep::architecture<Net>(); }
  /// See Model::set_trainable.
  [[gnu::cold]] void set_trainable(const NamePatterns& layers, bool on) override {
    change_settings(settings_->with_trainable(nodes, layers, on));
  }
  [[gnu::cold]] void set_multiplier(const char* call, const NamePatterns& names, Multiplier which,
                                    double value) {
    change_settings(settings_->with_multiplier(call, named_parameters<Net>(), names, which, value));
  }
  std::size_t held_weights() const { return settings_->held_weights(nodes); }
  /// The settings that differ from the defaults, by name.
  [[gnu::cold]] NamedSettings settings() const {
    return settings_->named(nodes, named_parameters<Net>());
  }
  /// Resets the optimizer's slots and the step count to those of a new model.
  [[gnu::cold]] void reset_optimizer() {
    check_whole();
    about_to_change();
    session_.each(
        [&](const ReplicaContext<device>& r) { replicas_[r.local]->reset_optimizer(optimizer_); });
    has_averages_in_weights_ = false;
    step_ = 0;
  }
  /// Copies the moving averages over the weights, if the optimizer keeps averages. Call after an
  /// update: before the first one the averages are undefined.
  [[gnu::cold]] void overwrite_with_averages() override {
    if (!options_of(optimizer_).use_ema) return;
    about_to_change();
    if (std::exchange(has_averages_in_weights_, false)) {
      exchange_averages(weights(), nullptr);
      return;
    }
    are_equal_ = false;
    session_.each([&](const ReplicaContext<device>& r) {
      replicas_[r.local]->policy().overwrite_with_average(r);
    });
  }
  [[gnu::cold]] void swap_averages(bool averages_in_weights) override {
    if (averages_in_weights == has_averages_in_weights_) return;
    if (!options_of(optimizer_).use_ema)
      throw UsageError(
          "swap_averages: the optimizer keeps no averages of the weights; set .with = {{.use_ema = "
          "true}}");
    if (updates() == 0) return;
    check_whole();
    if constexpr (can_reform && UpdateOf<S>::divides_slots)
      if (elastic_ && elastic_->boundary().undoes_hooks()) {
        has_averages_in_weights_ = averages_in_weights;  // and back, without an exchange
        return;
      }
    std::vector<std::byte> averages;
    read_slot(last_slot(), averages);  // a loss may end it
    has_averages_in_weights_ = averages_in_weights;
    are_equal_ = false;
    std::vector<T> own = weights();
    T* const its = reinterpret_cast<T*>(averages.data());
    const std::size_t count = segments_of_updates();
    for (std::size_t i = 0; i < count; ++i)  // those that are held stay where they are
      if (const UpdateSegment& s = segments_[i]; s.is_held)
        std::swap_ranges(its + s.begin, its + s.end, own.data() + s.begin);
    exchange_averages(own, its);
  }
  bool has_averages_in_weights() const override { return has_averages_in_weights_; }
  /// SHA-256 of the parameters of each replica of this process.
  std::vector<std::string> digests() const {
    check_whole();
    const std::vector<ParameterInfo> infos = parameters_of<Net>();
    std::vector<std::string> result;
    for (std::size_t i = 0; i < replicas_.size(); ++i)
      result.push_back(
          hash_weights(infos, bytes_of(weights_of(*replicas_[i]), state_of(*replicas_[i]))));
    return result;
  }
  /// The same of each replica of the job, in rank order. All processes must call it.
  [[gnu::cold]] std::vector<std::string> digests_of_job() {
    const std::vector<std::string> mine = digests();
    if (is_alone()) return mine;
    std::string all(session_.replicas() * mine[0].size(), '\0');
    session_.note(step_, Phase::reduce);
    session_.each([&](const ReplicaContext<device>& r) {
      std::string gathered(all.size(), '\0');
      r.host.all_gather(reinterpret_cast<const std::byte*>(mine[r.local].data()),
                        mine[r.local].size(), reinterpret_cast<std::byte*>(gathered.data()));
      if (r.local == 0) all = std::move(gathered);
    });
    session_.note(step_, Phase::idle);  // called between runs
    std::vector<std::string> result;
    for (std::size_t at = 0; at < all.size(); at += mine[0].size())
      result.push_back(all.substr(at, mine[0].size()));
    return result;
  }
  /// Maximum number of examples of a slice, for batches of `batch` examples.
  std::size_t largest_slice(std::size_t batch) const { return rows_of_slice(batch, 0).count; }

  /// Slices per global batch, including an empty one for each replica that computes nothing.
  std::size_t slices() const {
    return full_slices() + session_.replicas() - roles().computing.count;
  }
  /// Those that the batch is divided into: the number of virtual shards, or one for each replica
  /// that computes.
  std::size_t full_slices() const {
    return session_.virtual_shards() > 0 ? session_.virtual_shards() : roles().computing.count;
  }
  /// The examples of a slice.
  Slice rows_of_slice(std::size_t global, std::size_t slice) const {
    return detail::rows_of_slice(global, full_slices(), slice);
  }
  /// Which replicas compute and which own weights.
  ReplicaRoles roles() const {
    if constexpr (requires { session_.roles(); }) {
      return session_.roles();
    } else {
      ReplicaRoles all{{0, session_.replicas()}, {0, session_.replicas()}};
      if constexpr (can_reform && requires { policy_.copies; })
        if (session_.is_elastic()) {
          all.copies = std::clamp<std::size_t>(policy_.copies, 1, session_.workers());
          all.may_change = true;
        }
      return all;
    }
  }
  /// Those that this process computes.
  Slice slices_here() const {
    const Slice end = mine_.back();
    return {mine_.front().first, end.first + end.count - mine_.front().first};
  }
  /// The slices that the replica of this rank computes.
  Slice slices_of(std::size_t rank) const {
    const Slice computing = roles().computing;
    if (rank < computing.first) return {full_slices() + rank, 1};
    if (rank >= computing.first + computing.count)
      return {full_slices() + rank - computing.count, 1};
    rank -= computing.first;
    if (session_.virtual_shards() == 0) return {rank, 1};
    const std::size_t each = session_.replicas() / session_.workers();
    const Slice worker = subtree_of(full_slices(), computing.count / each, rank / each);
    const std::size_t mine = worker.count / each;
    return {worker.first + rank % each * mine, mine};
  }

  ElasticRuns* elastic() override { return elastic_.get(); }
  bool has_newcomers() const override {
    if constexpr (can_reform)
      return session_.has_newcomers();
    else
      return false;
  }
  bool must_reform() const override {
    if constexpr (can_reform)
      return session_.must_reform();
    else
      return false;
  }
  std::uint64_t generation() const override {
    if constexpr (can_reform)
      return session_.generation();
    else
      return 0;
  }
  [[gnu::cold]] std::string describe_change() const override {
    if constexpr (can_reform)
      return session_.change();
    else
      return {};
  }
  [[noreturn, gnu::cold]] void throw_owners_lost() const override {
    if constexpr (requires { session_.lost_owners(); })
      throw OwnersLost(session_.lost_owners());
    else
      throw Error("elastic: the owner of a part of the weights is lost");
  }
  [[gnu::cold]] void reform([[maybe_unused]] const std::string& why,
                            [[maybe_unused]] const JobState& own,
                            [[maybe_unused]] FunctionRef<void()> exchange) override {
    if constexpr (can_reform) try {
        form(exchange, why);
      } catch (...) {
        // The job has ended for this process, but its program may still read the model.
        const std::exception_ptr error = std::current_exception();
        try {
          replicas_.clear();
          session_.form_alone(error);
          build();
          load(own);
        } catch (...) {  // the first error names the cause
          replicas_.clear();
          gone_ = error;
        }
        session_.end();
        std::rethrow_exception(error);
      }
  }

 protected:
  template <class>
  friend class DistantTables;

  bool is_distant() const {
    if constexpr (has_distant_tables)
      return tables_ != nullptr;
    else
      return false;
  }
  /// \throws UsageError if only servers have the tables of embeddings.
  void check_has_tables() const {
    if (is_distant()) [[unlikely]]
      throw UsageError(
          "model: the call needs all weights in each process, but with .tables_on_servers only the "
          "servers have the tables of embeddings; train with fit, or save a checkpoint and load it in "
          "a program without the option");
  }
  /// The same, and between asynchronous steps.
  void check_whole() const {
    if (is_divided_) [[unlikely]]
      throw UsageError(
          "callback: the model was used between steps that servers make in a phase (.asynchronous or "
          ".backup_workers), while no process has all weights; "
          "set .steps_per_execution = K, after which all have them, or do it in on_epoch_end");
    check_has_tables();
  }
  /// In an elastic job, lets a hook's change of the model be undone.
  void about_to_change() {
    if constexpr (can_reform)
      if (elastic_) elastic_->boundary().before_change(*this);
  }
  /// Makes the replicas. In an elastic job it may call virtual functions of the derived class.
  [[gnu::cold]] void start() {
    if constexpr (can_reform)
      if (session_.is_elastic()) {
        elastic_ = make_elastic_runs();
        form([&] { elastic_->join(*this); }, "");
        return;
      }
    build();
  }
  /// Makes the replicas of the current generation, or of the next one if `why` is not empty, and
  /// calls `exchange`, until no process is lost meanwhile.
  [[gnu::cold]] void form(FunctionRef<void()> exchange, std::string why)
    requires can_reform
  {
    for (bool is_formed = why.empty();;) {
      if (!is_formed) {
        replicas_.clear();  // before the session closes their devices
        session_.reform(why, elastic_->stop());
      }
      try {
        if (!std::exchange(is_formed, false)) session_.form();
        check_has_owners();
        build();
        exchange();
        if constexpr (requires { session_.has_recovered(); }) session_.has_recovered();
        return;
      } catch (const OwnersLost&) {
        throw;
      } catch (const PeerLost& e) {
        why = e.what();
      } catch (const std::exception& e) {
        if (!session_.has_new_members() || session_.is_new_member()) throw;
        why = e.what();
      }
      // A newcomer that cannot take part must not end every generation that admits it.
      if (session_.has_new_members()) session_.reject_newcomers();
    }
  }

  /// \throws OwnersLost if the owners of all weights are lost.
  [[gnu::cold]] void check_has_owners() {
    if constexpr (requires { session_.roles(); }) {
      if (session_.roles().owners.count > 0) return;
      try {
        session_.agree("owners", {});  // none leaves before all know
      } catch (const PeerLost&) {
      }
      throw_owners_lost();
    }
  }
  /// Makes `to`, which has the current values of an update that a loss has ended, a state from before
  /// it. `size`: bytes of a slot.
  [[gnu::cold]] void undo_update(JobState& to, std::size_t size)
    requires can_undo
  {
    Replica& replica = first();
    const auto& policy = replica.policy();
    OwnedState& its = *to.owned;
    if (policy.has_updated() && size > 0) {
      its.later.push_back(to.weights);
      policy.read_updated_weights(reinterpret_cast<T*>(its.later[0].data()));
      for (const auto& slot : to.slot_values) its.later.push_back(slot.second);
      its.later_state = replica.template copy_of<std::byte>(replica.engine().state());
    }
    its.later_steps = step_ + 1;
    its.has_weights = false;
    policy.read_before(0, reinterpret_cast<T*>(to.weights.data()));
    if (size > 0)
      for (std::size_t i = 0; i < to.slot_values.size(); ++i)
        policy.read_before(i + 1, reinterpret_cast<T*>(to.slot_values[i].second.data()));
    replica.undo_state();
  }

  /// \throws UsageError if a process of an elastic job has several owners of weights.
  [[gnu::cold]] void check_recoverable() const {
    if constexpr (can_reform && UpdateOf<S>::divides_slots)
      if (session_.is_elastic() && session_.local_replicas() > 1)
        throw UsageError(
            "{}: a worker of an elastic job has {} replicas, but goes back by an update after a loss "
            "with one only; set .replicas = 1, whose threads share the worker's cores",
            policy_name(), session_.local_replicas());
  }
  /// Makes the replicas, with the initial weights; the processes compare their models first.
  [[gnu::cold]] void build() {
    check_slices<Net, device>(session_.virtual_shards());
    check_recoverable();
    if constexpr (makes_rounds)
      if (session_.virtual_shards() > 0)
        throw UsageError(
            "{}: a replica trains with its own part of a batch, so its number changes the weights, "
            "and .virtual_shards cannot hide it; leave it out",
            policy_name());
    if constexpr (requires { Policy::depends_on_replicas; })
      if (session_.virtual_shards() > 0)
        throw UsageError(
            "virtual_shards is {}, but what travels under {} depends on the number of replicas; set it "
            "to 0, or leave out the policy",
            session_.virtual_shards(), policy_name());
    if constexpr (requires { session_.roles(); })
      check_owners(session_.roles().owners.count, named_parameters<Net>());
    replicas_.resize(session_.local_replicas());
    mine_.clear();
    for (std::size_t i = 0; i < replicas_.size(); ++i)
      mine_.push_back(slices_of(session_.first_replica() + i));
    if constexpr (has_distant_tables)
      if (tables_) return tables_->build(*this);
    std::vector<T> weights(Net::graph.weights), state(Net::graph.state);
    make_replicas(named_parameters<Net>(), weights, state, {});
    set(weights, state);
    sets_ = 0;
  }
  /// Makes the replicas, and the initial values of `parameters`. `shared`: see UpdateSite.
  [[gnu::cold]] void make_replicas(std::span<const NamedParameter> parameters,
                                   std::vector<T>& weights, std::vector<T>& state,
                                   std::span<const Slice> shared) {
    initialize_parameters<T>(parameters, seed_, weights, state);
    if constexpr (!is_one_process) {
      Signature fields = signature_of_model();
      add_field(fields, "update policy", policy_text());
      if (is_distant()) add_field(fields, "tables of embeddings", "on the servers");
      // Last, since the values follow from the seed: a different seed is reported as such.
      add_field(fields, "initial values", describe_values(parameters, bytes_of(weights, state)));
      session_.agree("model", fields);
    }
    const std::span<const UpdateSegment> segments(segments_.get(), segments_of_updates());
    session_.each([&](const ReplicaContext<device>& r) {
      const Slice mine = mine_[r.local];
      replicas_.put(r.local,
                    new Replica(r.device, optimizer_, segments, slices(), mine, is_one_replica,
                                r.rank, session_.replicas(), roles(), policy(), shared));
      if (r.local == 0) threads_ = r.device.threads();
    });
    is_divided_ = false;
    if (!settings_->is_default()) apply_settings();
  }

  /// The first replica of this process. \throws what ended its elastic job, if its state is lost.
  Replica& first() const {
    if (gone_) [[unlikely]]
      std::rethrow_exception(gone_);
    return *replicas_[0];
  }
  Signature signature_of_model() const {
    return model_signature<Net, device>(seed_, session_.virtual_shards(), loss_, optimizer_,
                                        metrics_);
  }
  /// The optimizer's buffers in a checkpoint; under a policy with rounds also those that replicas
  /// share, and the first set again for each replica after the first.
  std::size_t job_slots() const {
    std::size_t count = slot_count(optimizer_);
    if constexpr (makes_rounds)
      count = count * session_.replicas() + UpdateOf<S>::shared_slots(policy_);
    return count;
  }
  /// A replica's buffer, and the rank of the replica if it is not the same in all.
  struct SlotPlace {
    std::size_t number;
    std::optional<std::size_t> rank{};
  };
  SlotPlace place_of_slot(std::size_t i) const
    requires makes_rounds
  {
    const std::size_t own = slot_count(optimizer_),
                      first_set = own + UpdateOf<S>::shared_slots(policy_);
    if (i < own) return {i, 0};
    if (i < first_set) return {i, std::nullopt};
    return {(i - first_set) % own, 1 + (i - first_set) / own};
  }
  /// Its name: a view, or under a policy with rounds a text.
  auto job_slot_name(std::size_t i) const {
    if constexpr (makes_rounds) {
      const auto [number, rank] = place_of_slot(i);
      if (!rank) return std::string(UpdateOf<S>::shared_slot_name);
      const std::string_view name = slot_name(optimizer_, number);
      return *rank == 0 ? std::string(name) : format_text("{} of replica {}", name, *rank);
    } else {
      return slot_name(optimizer_, i);
    }
  }
  void load_slot(std::size_t i, const ReplicaContext<device>& r, const T* values) {
    const auto& policy = replicas_[r.local]->policy();
    if constexpr (makes_rounds) {
      const auto [number, rank] = place_of_slot(i);
      if (!rank || *rank == r.rank) policy.load(number, values);
    } else {
      policy.load(i, values);
    }
  }
  /// Reads all elements of a buffer; one of a single replica in the chief only, elsewhere it is empty.
  /// Collective unless `is_whole`.
  [[gnu::cold]] void read_slot(std::size_t i, std::vector<std::byte>& bytes) {
    constexpr std::size_t size = Net::graph.weights * sizeof(T);
    if constexpr (makes_rounds) {
      const SlotPlace slot = place_of_slot(i);
      const std::size_t rank = slot.rank.value_or(session_.first_replica()),
                        local = rank - session_.first_replica();
      const bool is_here = rank >= session_.first_replica() && local < replicas_.size();
      const bool keeps = session_.is_chief() || !slot.rank;
      bytes.resize(keeps || is_here ? size : 0);
      if (is_here) replicas_[local]->policy().read(slot.number, reinterpret_cast<T*>(bytes.data()));
      if (slot.rank)
        broadcast_from(rank, size, bytes.data(), keeps && !is_here ? bytes.data() : nullptr);
      if (!keeps) bytes = {};
      return;
    }
    bytes.resize(size);
    T* const all = reinterpret_cast<T*>(bytes.data());
    if constexpr (!UpdateOf<S>::divides_slots) {
      first().policy().read(i, all);
    } else {
      session_.each([&](const ReplicaContext<device>& r) {
        std::vector<T> own(r.local == 0 ? 0 : Net::graph.weights);
        T* const to = r.local == 0 ? all : own.data();
        replicas_[r.local]->policy().read(i, to);
        replicas_[r.local]->policy().complete(r, to);
      });
    }
  }
  /// The buffer of the weights' moving averages.
  std::size_t last_slot() const { return first().policy().slot_buffers().size() - 1; }
  /// Sets the averages of all replicas to `averages`, and the weights unless they are null.
  [[gnu::cold]] void exchange_averages(const std::vector<T>& averages, const T* weights) {
    session_.each([&](const ReplicaContext<device>& r) {
      Replica& replica = *replicas_[r.local];
      if (weights != nullptr) replica.engine().weights().upload(weights);
      replica.policy().load(last_slot(), averages.data());
      r.device.synchronize();
    });
  }

  /// Compares all tensors across replicas: one number for each replica and, only if these differ,
  /// the SHA-256 of each tensor, which finds the first difference. \throws ReplicasDiverged.
  [[gnu::cold]] void compare(bool optimizer_too) {
    const EqualParts must = first().policy().must_be_equal();
    if (!must.weights) return;
    optimizer_too = optimizer_too && must.optimizer;
    std::atomic<bool> are_equal = true;
    const std::string of_settings = to_string(settings());
    session_.each([&](const ReplicaContext<device>& r) {
      Replica& replica = *replicas_[r.local];
      Digest64 digest;
      replica.add_weights_to(digest);
      replica.add_to(digest, replica.engine().state());
      if (optimizer_too)
        for (const auto& slot : replica.policy().slot_buffers()) replica.add_to(digest, slot);
      digest.add(std::as_bytes(std::span(of_settings)));
      if (!have_equal_digests(r.host, digest.value())) are_equal = false;
    });
    if (!are_equal) find_difference(optimizer_too);
    sets_ = 0;
    are_equal_ = true;
  }
  [[gnu::cold]] void find_difference(bool optimizer_too) {
    const std::vector<ParameterInfo> infos = parameters_of<Net>();
    session_.each([&](const ReplicaContext<device>& r) {
      Replica& replica = *replicas_[r.local];
      std::vector<std::vector<T>> values{is_distant() ? std::vector<T>() : weights_of(replica),
                                         state_of(replica)};
      if (optimizer_too)
        for (std::size_t i = 0; i < replica.policy().slot_buffers().size(); ++i)
          replica.policy().read(i, values.emplace_back(Net::graph.weights).data());
      std::vector<NamedBytes> tensors;
      const auto add = [&](std::string name, const ParameterInfo& p, std::span<const T> flat) {
        tensors.push_back({std::move(name), std::as_bytes(flat.subspan(p.offset, p.size()))});
      };
      for (const ParameterInfo& p : infos) {
        std::span<const T> flat = values[p.trainable ? 0 : 1];
        if constexpr (has_distant_tables)
          if (tables_ && p.trainable) {
            if (!tables_->is_shared(p.offset)) continue;
            flat = {replica.engine().weights().data(), Net::graph.weights};
          }
        add(p.name, p, flat);
        tensors.back().is_parameter = true;
      }
      const std::string settings_text = to_string(settings());
      tensors.push_back(
          {"setting of its layers (set_trainable, set_rate_multiplier, set_decay_multiplier)",
           std::as_bytes(std::span(settings_text))});
      tensors.back().is_setting = true;
      for (std::size_t i = 2; i < values.size(); ++i)
        for (const ParameterInfo& p : infos)
          if (p.trainable)
            add(format_text("{} of {}", slot_name(optimizer_, i - 2), p.name), p, values[i]);
      verify_equal(r.host, tensors, {session_.rank(), sets_}, step_);
    });
  }

  /// Fills segments_; \returns their number.
  [[gnu::cold]] std::size_t segments_of_updates() {
    using Op = std::remove_cvref_t<decltype(optimizer_.op(0.0, 1))>;
    const UpdateOptions& with = options_of(optimizer_);
    bool each = with.clips_by_norm();  // norms are sums over parameters
    if constexpr (requires { Op::per_tensor; }) each = each || Op::per_tensor;
    const std::size_t count =
        update_segments(named_parameters<Net>(), each, with.exclude_from_weight_decay, *settings_,
                        nodes, segments_.get());
    if constexpr (HasParameterRules<O>) {
      static_assert(Op::per_tensor, "lockstep::Optimizer: rule_of needs an op with per_tensor");
      if constexpr (requires { optimizer_.exclude_layers; })
        check_names("exclude_layers", optimizer_.exclude_layers, named_parameters<Net>());
      const auto rule_of = [&](std::string_view name, const Shape& shape) {
        return optimizer_.rule_of(name, shape);
      };
      set_rules(named_parameters<Net>(), rule_of, segments_.get());
    }
    return count;
  }

  static constexpr std::span<const Node> nodes{Net::graph.node.data(),
                                               static_cast<std::size_t>(Net::graph.nodes)};
  [[gnu::cold]] std::span<const PenaltySegment> penalties_of_updates() {
    return penalties_of(named_parameters<Net>(), *settings_, nodes, penalties_);
  }
  /// Applies settings_ to all replicas of this process.
  [[gnu::cold]] void apply_settings() {
    const std::span<const UpdateSegment> segments(segments_.get(), segments_of_updates());
    const std::span<const PenaltySegment> penalties = penalties_of_updates();
    session_.each([&](const ReplicaContext<device>& r) {
      replicas_[r.local]->change_layers(*settings_, segments, penalties);
    });
  }
  /// Replaces the settings. \throws UsageError if this model cannot train so; the settings stay as they
  /// were.
  [[gnu::cold]] void change_settings(LayerSettings next) {
    if (next == *settings_) return;
    if (next.has_held()) check_holds(next);
    about_to_change();
    are_equal_ = false;
    *settings_ = std::move(next);
    apply_settings();
  }
  [[gnu::cold]] void check_holds(const LayerSettings& next) const {
    static_cast<void>(next.held_steps(Engine<Net, device>::constants.step, nodes));
    if constexpr (makes_rounds || UpdateOf<S>::divides_slots)
      if (next.held_weights(nodes) == Net::graph.weights)
        throw UsageError("set_trainable: under {} at least one layer must train", policy_name());
  }

  /// The value of the update policy that `strategy | policy` has; others have no options.
  static auto policy_of(const S& strategy) {
    if constexpr (requires { strategy.policy; })
      return strategy.policy;
    else
      return Policy();
  }
  /// The name of the update policy, or of its strategy if it has none.
  static constexpr std::string_view policy_name() {
    if constexpr (requires { Policy::name; })
      return Policy::name;
    else
      return S::name;
  }
  /// The same with its options.
  [[gnu::cold]] std::string policy_text() const {
    if constexpr (requires { policy_.text(); })
      return policy_.text();
    else
      return std::string(policy_name());
  }
  /// Adds the gradients that the replicas of the job have kept. Collective.
  [[gnu::cold]] void save_kept(JobState& to) {
    to.kept.reset();
    if (is_whole()) return;
    KeptGradients& all = *(to.kept = std::make_shared<KeptGradients>());
    all.factors_layout = first().policy().factors_layout();
    all.factors = first().template copy_of<std::byte>(first().policy().factors());
    for (std::size_t rank = 0; rank < session_.replicas(); ++rank) {
      const std::size_t local = rank - session_.first_replica();
      std::vector<std::byte>& its = all.of_replica.emplace_back();
      if (local < replicas_.size())
        its = replicas_[local]->template copy_of<std::byte>(replicas_[local]->policy().kept());
      else if (session_.is_chief())
        its.resize(first().policy().kept().bytes());
      broadcast_from(rank, first().policy().kept().bytes(), its.data(),
                     session_.is_chief() && local >= replicas_.size() ? its.data() : nullptr);
    }
  }
  /// With another number of replicas, each gets an equal part of the sum.
  [[gnu::cold]] void load_kept(const std::shared_ptr<KeptGradients>& from) {
    if (is_whole()) return;
    const std::size_t n = Net::graph.weights, before = from ? from->of_replica.size() : 0;
    if (place().is_chief && before != session_.replicas())
      log(LogLevel::info,
          before == 0
              ? std::string("wire: the checkpoint has no gradients that replicas have kept; "
                            "they begin with none")
              : format_text("wire: {} replicas continue with the gradients that {} have kept: "
                            "each with an equal part of their sum",
                            session_.replicas(), before));
    std::vector<T> sum(n);
    if (before != session_.replicas())
      for (std::size_t r = 0; r < before; ++r) {
        std::vector<T> its(n);
        std::memcpy(its.data(), from->of_replica[r].data(), n * sizeof(T));
        for (std::size_t i = 0; i < n; ++i) sum[i] += its[i] / static_cast<T>(session_.replicas());
      }
    session_.each([&](const ReplicaContext<device>& r) {
      auto& policy = replicas_[r.local]->policy();
      const bool fits = from && from->factors_layout == policy.factors_layout() &&
                        from->factors.size() == policy.factors().bytes();
      const std::vector<T> none(fits ? 0 : policy.factors().size());
      policy.set_kept(before == session_.replicas()
                          ? reinterpret_cast<const T*>(from->of_replica[r.rank].data())
                          : sum.data(),
                      fits ? reinterpret_cast<const T*>(from->factors.data()) : none.data());
      r.device.synchronize();
    });
  }
  /// Empty under a policy that leaves each sum to its owner, or makes none.
  std::vector<T> known_gradients() const {
    if constexpr (UpdateOf<S>::divides_slots || makes_rounds)
      return {};
    else
      return gradients();
  }
  static std::vector<T> weights_of(Replica& r) { return r.copy_of(r.engine().weights()); }
  static std::vector<T> state_of(Replica& r) { return r.copy_of(r.engine().state()); }

  std::uint64_t seed_;
  L loss_;
  O optimizer_;
  std::tuple<Ms...> metrics_;
  [[no_unique_address]] decltype(policy_of(std::declval<const S&>())) policy_;
  struct NoTables {};
  /// Null: all processes have all weights.
  [[no_unique_address]] std::conditional_t<
      has_distant_tables, std::unique_ptr<DistantTables<ReplicaSet>>, NoTables> tables_{};
  /// On the heap: the replicas hold pointers to the segments, which must survive a move of *this.
  std::unique_ptr<UpdateSegment[]> segments_ =
      std::make_unique<UpdateSegment[]>(static_cast<std::size_t>(Net::graph.parameters) + 1);
  /// On the heap, as the segments.
  std::unique_ptr<LayerSettings> settings_ = std::make_unique<LayerSettings>();
  std::unique_ptr<PenaltySegment[]> penalties_;  // under these settings
  std::shared_ptr<StepTrace> trace_;  // while one records; before session_, which has its lanes
  Session session_;
  std::unique_ptr<ElasticRuns> elastic_;  // null unless the job is elastic
  std::vector<Slice> mine_;               // the slices of each local replica
  OwnedList<Replica> replicas_;           // after session_, so destroyed before it
  std::exception_ptr gone_{};             // why there are none
  std::uint64_t step_ = 0;
  std::uint64_t sets_ = 0;  // calls of `set` since the last comparison of the replicas
  bool has_averages_in_weights_ = false;  // see swap_averages
  bool is_divided_ = false;  // only the owner of a weight has its value, in an asynchronous phase
  bool are_equal_ = false;   // compared and equal since the last change of weights
  double penalty_ = 0;       // of the last step read
  int threads_ = 1;
};

}  // namespace lockstep::detail
