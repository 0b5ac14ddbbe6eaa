/// \file
/// Replicas in several processes, on one machine or many. Invariants: the rendezvous lasts as long
/// as the sessions that share it; whatever ends an exchange between processes, every survivor
/// throws the same PeerLost; the destructor ends in bounded time.
#pragma once

#include <algorithm>
#include <atomic>
#include <chrono>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <numeric>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "lockstep/cluster/rendezvous/rendezvous.hpp"
#include "lockstep/cluster/resolve.hpp"
#include "lockstep/cluster/shown.hpp"
#include "lockstep/cluster/stragglers.hpp"
#include "lockstep/collectives/gloo_group.hpp"
#include "lockstep/collectives/gloo_mesh.hpp"
#include "lockstep/collectives/hierarchical_group.hpp"
#include "lockstep/concepts/strategy.hpp"
#include "lockstep/core/cores.hpp"
#include "lockstep/core/log.hpp"
#include "lockstep/core/threads.hpp"
#include "lockstep/strategies/job_group.hpp"
#include "lockstep/strategies/local_replicas.hpp"
#include "lockstep/strategies/shared_job.hpp"
#include "lockstep/strategies/virtual_shards.hpp"
#include "lockstep/strategies/worker_place.hpp"

namespace lockstep {

namespace detail {

/// Gloo's addresses travel through the rendezvous.
class RendezvousStore final : public GlooStore {
 public:
  explicit RendezvousStore(JobSession& session) : session_(&session), job_(&session.rendezvous()) {}
  void set(const std::string& key, const std::string& bytes) override { job_->set(key, bytes); }
  std::optional<std::string> get(const std::string& key, Deadline deadline) override {
    const auto left =
        std::chrono::ceil<std::chrono::milliseconds>(deadline - std::chrono::steady_clock::now());
    try {
      return job_->get(key, std::max(left, std::chrono::milliseconds(1)));
    } catch (const CollectiveTimeout&) {
      return std::nullopt;
    }
  }
  void on_loss(std::function<void()> lost) override {
    if (!lost) return session_->on_loss({});
    session_->on_loss([lost = std::move(lost)](const PeerLost&) { lost(); });
  }

 private:
  JobSession* session_;
  Rendezvous* job_;
};

/// A process that is alone has nobody to meet.
class NoStore final : public GlooStore {
 public:
  void set(const std::string&, const std::string&) override {}
  std::optional<std::string> get(const std::string&, Deadline) override { return std::nullopt; }
};

}  // namespace detail

/// tf.distribute.MultiWorkerMirroredStrategy: replicas in all processes of a job, R in each. Who is
/// in the job is told by TF_CONFIG, torchrun, MPI, Slurm, or the program.
///
/// The results are those of one device up to rounding, as with Mirrored; each process must make the
/// same calls of `fit`, `evaluate` and `predict`. Several models may be open at once, in one job,
/// if all processes open, use and close them in the same order. When a worker dies, `fit` throws
/// PeerLost in all others. Errors of `open`: ClusterError if the description is wrong or the
/// processes differ, PeerLost if not all come.
/// \code
///   ls::MultiWorkerMirrored<ls::Cpu>{}                   // as TF_CONFIG says
///   ls::MultiWorkerMirrored<ls::Cpu>{.replicas = 2}      // two replicas in each worker
/// \endcode
template <Device D>
struct MultiWorkerMirrored {
  static constexpr bool can_exchange = GroupsReplicas<D>;
  static_assert(
      can_exchange,
      "lockstep::MultiWorkerMirrored: replicas on this device have no group; give the device a "
      "member 'template <class HostGroup> using group', or use Cpu, Cuda or Reference");
  using device = D;
  static constexpr std::string_view name = "multi_worker_mirrored";

  /// Of this process. 0: one, or one on each of its GPUs; workers that see the same GPUs share
  /// them, if all say how many, or none does.
  std::size_t replicas = 0;
  D on{};                          ///< the options of each replica's device
  std::size_t virtual_shards = 0;  ///< as in Mirrored
  ClusterArguments cluster{};      ///< goes before the environment
  StallLimits stall_limits{};      ///< how long a live worker may make no progress
  /// If the workers on a machine leave none of its cores free, each replica computes on its share
  /// of them, as Cpu{index} does: also the OpenMP threads of the calling thread, which keep it.
  bool bind_cores = true;
  bool stragglers = false;  ///< the chief logs after each epoch how long each rank was in what
  Environment environment = process_environment();

  /// The opened strategy: this process' place in the job, threads, devices, groups.
  class Session {
   public:
    explicit Session(const MultiWorkerMirrored& options) : state_(new State(options)) {}

    /// Runs `body` for each replica of this process. \throws PeerLost if another process is lost,
    /// what the first failing replica of this process threw otherwise.
    template <class Body>
    void each(Body&& body) {
      state_.get_deleter().check("multi_worker_mirrored");
      state_->exchange([&] { state_->local->each(std::forward<Body>(body)); });
    }
    std::size_t local_replicas() const { return state_->local->count(); }
    std::size_t replicas() const { return state_->total(); }
    std::size_t first_replica() const { return state_->first(); }
    std::size_t virtual_shards() const { return state_->virtual_shards; }
    std::size_t workers() const { return state_->counts.size(); }
    std::size_t rank() const { return state_->rank(); }
    bool is_chief() const { return rank() == 0; }

    void agree(std::string_view part, const Signature& fields) {
      if (!state_->job) return;
      state_.get_deleter().check("multi_worker_mirrored");
      const Listening listening(*state_);
      try {
        // Others may still read their data, or save.
        state_->job->agree(part, fields, state_->patience);
      } catch (const UsageError&) {
        state_->all_know = true;
        throw;
      }
    }
    void note(std::uint64_t step, Phase phase) {
      if (!state_->job) return;
      state_->clock.enter(phase);
      if (!state_->first_step) state_->first_step = step;
      state_->session->note_progress(step, phase, step == state_->first_step);
    }
    void end_epoch(int epoch) {
      if (!state_->job || !state_->stragglers) return;
      std::vector<PhaseTimes> times(workers());
      const PhaseTimes mine = state_->clock.take();
      state_->exchange([&] { state_->across_layers->all_gather(&mine, 1, times.data()); });
      if (is_chief()) log(LogLevel::info, detail::straggler_table(epoch, times));
      state_->clock.take();  // the wait for the others' times is nobody's work
    }
    void fail(const std::string& what) { state_->fail(what); }

   private:
    using Group = GroupOn<D, HierarchicalGroup<detail::JobGroup>>;
    struct State;

    /// While it lives, a loss ends by itself what the process waits for.
    class Listening {
     public:
      explicit Listening(State& state) : state_(state) { state_.listens = true; }
      Listening(const Listening&) = delete;
      Listening& operator=(const Listening&) = delete;
      ~Listening() { state_.listens = false; }

     private:
      State& state_;
    };

    struct State {
      explicit State(const MultiWorkerMirrored& options)
          : virtual_shards(options.virtual_shards),
            stragglers(options.stragglers),
            patience(options.stall_limits.idle + std::chrono::minutes(1)),
            where(resolve_cluster(options.environment, options.cluster)) {
        const auto log_notes = [&] {
          for (const std::string& note : where.notes) log(LogLevel::info, note);
        };
        if (where.world_size == 1) log_notes();
        if (where.world_size > 1) {
          session.emplace(where, options.stall_limits, [&] {
            log_notes();
            return RendezvousOptions{.cluster = where,
                                     .secret = read_secret(options.environment, where),
                                     .stall_limits = options.stall_limits};
          });
          job = &session->rendezvous();
        }
        const detail::WorkerPlace here = or_fail([&] { return place_here(options); });
        if (job)
          job->agree("strategy",
                     {{"virtual shards", text({virtual_shards})},
                      {"stragglers", stragglers ? "on" : "off"}},
                     start_limit());
        places = job ? places_by_rank(here) : std::vector{here};
        detail::share_devices(places);
        for (const detail::WorkerPlace& place : places) counts.push_back(place.replicas);
        check_virtual_shards();
        introduce();
        or_fail([&] { start(options); });
      }

      template <class F>
      auto or_fail(const F& f) {
        try {
          return f();
        } catch (const std::exception& e) {
          fail(e.what());  // the others wait for this process
          forget_job();
          throw;
        }
      }

      void start(const MultiWorkerMirrored& options) {
        const std::size_t mine = counts[rank()];
        const SumOrder order = virtual_shards > 0 ? SumOrder::tree : SumOrder::ranks;
        const D device = virtual_shards > 0 ? detail::of_one_thread(options.on) : options.on;
        const detail::CoreSharers sharers(places, rank());
        const std::size_t threads_here =
            sharers.replicas * detail::threads_of(device, sharers.replicas);
        const auto mesh = form_mesh(sharers.bind ? sharers.cores(0) : detail::Cores::of_process());
        across_layers.emplace(mesh, GlooGroup::Options{0, patience, order}, job,
                              job ? key("secrets of layers") : "");
        across_gradients.emplace(mesh, GlooGroup::Options{1, patience, order}, job,
                                 job ? key("secrets of gradients") : "");
        detail::Waits waits = detail::Waits::beside(sharers.replicas, threads_here);
        waits.overlap = overlaps(waits.overlap || !sharers.is_one_machine);
        const ThreadGroup::Options threads{
            .size = mine, .timeout = patience, .order = order, .spins = waits.spins};
        layers.emplace(*across_layers, counts, threads);
        gradients.emplace(*across_gradients, counts, threads);
        if (job) {
          session->on_exchange([known = std::weak_ptr(mesh)] {
            const auto its = known.lock();
            return its ? its->progress() : ExchangeProgress{};
          });
          session->on_loss([this](const PeerLost& loss) {
            if (!listens)
              job->say(LogLevel::error, loss.what());  // it is thrown later, by the next step
            layers->abort();
            gradients->abort();
          });
        }
        local.emplace(mine, first(), *layers, *gradients, waits, [&](std::size_t i) {
          D own = device;
          if constexpr (can_be_bound)
            if (sharers.bind) own.index = static_cast<int>(sharers.first + i);
          if constexpr (names_devices)
            if (own.index < 0) own.index = static_cast<int>(places[rank()].device(i));
          return own.open(sharers.replicas, sharers.first + i);
        });
      }
      /// Its control thread calls nothing of this object any more.
      void forget_job() {
        if (session) session->forget();
      }
      void fail(const std::string& what) {
        if (job && !all_know && !job->verdict()) job->fail(what);
      }
      State(const State&) = delete;
      State& operator=(const State&) = delete;
      ~State() {
        if (!job) return;
        if (std::uncaught_exceptions() > exceptions) fail("ended by an exception");
        session->leave();  // before the connections close: others may still read from them
        forget_job();
      }

      std::size_t rank() const { return job ? job->rank() : 0; }
      std::size_t first() const {
        return std::accumulate(counts.begin(), counts.begin() + static_cast<std::ptrdiff_t>(rank()),
                               std::size_t{0});
      }
      std::size_t total() const {
        return std::accumulate(counts.begin(), counts.end(), std::size_t{0});
      }

      /// How long a process that has joined may take to say where it runs.
      std::chrono::milliseconds start_limit() const {
        return std::max<std::chrono::milliseconds>(where.rendezvous_timeout,
                                                   std::chrono::seconds(10));
      }
      std::string key(std::string_view what) const { return session->name(what); }

      static std::string host_of(const std::string& address) {
        return address.substr(0, address.rfind(':'));
      }
      static detail::WorkerPlace place_here(const MultiWorkerMirrored& options) {
        const D& device = options.on;
        const bool may_bind = options.bind_cores && is_unbound(device);
        return detail::WorkerPlace::here(said_replicas(options),
                                         options.virtual_shards > 0 ? 1 : fixed_threads(device),
                                         may_bind, device_names(device));
      }
      std::vector<detail::WorkerPlace> places_by_rank(const detail::WorkerPlace& here) {
        const auto key_of = [this](std::size_t r) { return key(text({"place/", r})); };
        job->set(key_of(job->rank()), here.text());
        std::vector<detail::WorkerPlace> result;
        for (std::size_t r = 0; r < job->size(); ++r) {
          const std::string value = job->get(key_of(r), start_limit());
          const auto place = detail::WorkerPlace::parse(value);
          if (!place) throw ClusterError({"place of rank ", r, ": '", value, "' is none"});
          result.push_back(*place);
          // Clones of one virtual machine have the same boot id, containers of one machine too.
          result.back().machine += "@" + host_of(job->address_of(r));
        }
        return result;
      }
      /// The chief's `mine`, since all must send the same messages. Over a network an exchange
      /// waits more than it works; on one machine it is work of its cores.
      bool overlaps(bool mine) {
        if (!job) return mine;
        const std::string overlap = key("exchange overlaps");
        if (rank() == 0) job->set(overlap, mine ? "yes" : "no");
        return job->get(overlap, start_limit()) == "yes";
      }

      /// \throws UsageError, the same on all ranks.
      void check_virtual_shards() const {
        detail::check_virtual_shards(virtual_shards, total());
        if (virtual_shards == 0) return;
        for (std::size_t r = 1; r < counts.size(); ++r)
          if (counts[r] != counts[0])
            throw UsageError({"virtual_shards: rank 0 has ", counts[0], " replicas, rank ", r, " ",
                              counts[r], "; give all workers the same number"});
      }

      /// The chief tells who is who.
      void introduce() const {
        if (!job || job->rank() != 0 || session->number() > 0) return;
        std::string table = text({"job of ", job->size(), " workers, ", total(), " replicas:"});
        for (std::size_t r = 0; r < job->size(); ++r)
          table += text({"\n  ", where.name(r), " at ", job->address_of(r), ": ", counts[r],
                         counts[r] == 1 ? " replica" : " replicas"});
        log(LogLevel::info, table);
      }

      /// 0: that depends on who else sees the devices.
      static std::size_t said_replicas(const MultiWorkerMirrored& options) {
        if (options.replicas > 0) return options.replicas;
        if constexpr (names_devices) return options.on.index < 0 ? 0 : 1;
        return detail::default_replicas<D>();
      }
      static std::string device_names(const D& device) {
        if constexpr (names_devices)
          if (device.index < 0) return D::available_names();
        return "-";
      }

      static constexpr bool names_devices = requires(D d) {
        D::available_names();
        d.index = -1;
      };
      // An index names a share of the cores there, a GPU elsewhere.
      static constexpr bool can_be_bound = HostDevice<D> && requires(D d) { d.index = -1; };
      static bool is_unbound(const D& device) {
        if constexpr (can_be_bound)
          return device.index < 0;
        else
          return false;
      }
      /// Of one replica; 0: as many as its share of the cores.
      static std::size_t fixed_threads(const D& device) {
        if constexpr (requires { device.threads; })
          return static_cast<std::size_t>(std::max(device.threads, 0));
        else
          return 1;
      }

      /// Gloo's threads will run on `cores`.
      std::shared_ptr<GlooMesh> form_mesh(const detail::Cores& cores) {
        GlooMeshOptions options;
        if (!job) {
          detail::NoStore none;
          return std::make_shared<GlooMesh>(options, none);
        }
        options.rank = job->rank();
        options.size = job->size();
        options.address = job->local_address();
        options.run.assign(job->run_id().begin(), job->run_id().end());
        options.key.assign(job->key().begin(), job->key().end());
        options.limit = job->timeouts().mesh;
        options.silence = job->timeouts().silence;
        options.name = key("gloo");
        if (where.data_ports) options.ports = {where.data_ports->first, where.data_ports->last};
        detail::RendezvousStore store(*session);
        const detail::CoreScope scope(cores);
        return form_gloo_mesh(options, store);
      }

      /// f() exchanges with the other processes.
      template <class F>
      void exchange(const F& f) {
        const Listening listening(*this);
        try {
          f();
        } catch (const CollectiveError& e) {
          blame(e);
          throw;
        }
      }
      /// An exchange failed: the cause is whom the chief names. Who was told of an abort may be
      /// told the cause before it needs to ask.
      void blame(const CollectiveError& e) {
        if (!job) return;
        if (const auto* link = dynamic_cast<const LinkFailed*>(&e)) throw job->blame(*link);
        if (dynamic_cast<const CollectiveAborted*>(&e))
          if (const auto loss = job->verdict(job->verdict_timeout())) throw *loss;
        if (e.peer() && *e.peer() != rank()) throw job->blame(*e.peer(), e.what());
      }

      std::size_t virtual_shards;
      bool stragglers;
      /// The rendezvous knows who stalls, and for how long each may; this is for what it misses.
      std::chrono::milliseconds patience;
      int exceptions = std::uncaught_exceptions();
      std::atomic<bool> listens{false};
      PhaseClock clock{};
      ResolvedCluster where;
      std::optional<detail::JobSession> session;  // none: this process is alone
      Rendezvous* job = nullptr;                  // the session's; null: none
      std::vector<detail::WorkerPlace> places;
      std::vector<std::size_t> counts;  // replicas of each
      std::optional<std::uint64_t> first_step;
      bool all_know = false;  // the error that this process ends by is that of all
      std::optional<detail::JobGroup> across_layers, across_gradients;
      std::optional<Group> layers, gradients;
      std::optional<detail::LocalReplicas<D, Group>> local;
    };
    std::unique_ptr<State, detail::OwningProcess> state_;  // addresses stay when the session moves
  };

  /// Joins the job; waits until all are there.
  Session open() const {
    if (replicas > ThreadGroup::max_size)
      throw UsageError({"multi_worker_mirrored: ", replicas,
                        " replicas in a process; there may be ", "1 to ", ThreadGroup::max_size});
    return Session(*this);
  }
};

}  // namespace lockstep
