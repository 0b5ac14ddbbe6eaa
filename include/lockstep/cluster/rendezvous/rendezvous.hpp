/// \file
/// Where the processes of a job meet and stay in touch. Invariants: one control thread a process
/// does all that concerns the network; every call that waits has a deadline; when a peer is lost
/// every survivor names the same one; the destructor ends in bounded time.
#pragma once

#include <algorithm>
#include <array>
#include <asio/executor_work_guard.hpp>
#include <asio/io_context.hpp>
#include <asio/post.hpp>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "lockstep/cluster/rendezvous/chief.hpp"
#include "lockstep/cluster/rendezvous/control.hpp"
#include "lockstep/cluster/rendezvous/data_address.hpp"
#include "lockstep/cluster/rendezvous/file_limit.hpp"
#include "lockstep/cluster/rendezvous/log_thread.hpp"
#include "lockstep/cluster/rendezvous/psk.hpp"
#include "lockstep/cluster/rendezvous/rank_progress.hpp"
#include "lockstep/cluster/rendezvous/secret.hpp"
#include "lockstep/cluster/rendezvous/stall.hpp"
#include "lockstep/cluster/rendezvous/worker.hpp"
#include "lockstep/cluster/resolved_cluster.hpp"
#include "lockstep/core/error.hpp"
#include "lockstep/core/log.hpp"
#include "lockstep/core/sha256.hpp"
#include "lockstep/core/threads.hpp"
#include "lockstep/core/version.hpp"

namespace lockstep {

/// What a process brings to the rendezvous.
struct RendezvousOptions {
  ResolvedCluster cluster;  ///< who is in the job; the deadline of the join is in it
  Secret secret{};          ///< empty: plain TCP
  /// What must be equal on all ranks from the beginning, beside version and cluster.
  std::vector<SignatureField> signature{};
  StallLimits stall_limits{};
  /// Called in a thread of its own, one call at a time; empty: nothing is said.
  std::function<void(LogLevel, std::string_view)> log = [](LogLevel level, std::string_view line) {
    lockstep::log(level, line);
  };
};

namespace detail {

inline constexpr std::string_view protocol = "lockstep/1";

inline std::string digest(const std::string& text) {
  return sha256_hex(std::as_bytes(std::span(text)));
}

/// The first frame is short, so what is long travels as its digest.
inline std::string short_value(const std::string& value) {
  if (value.size() <= longest_join_value) return value;
  return text({"sha256 ", digest(value), " of ", value.size(), " bytes"});
}

inline JoinSetup make_setup(RendezvousOptions& options) {
  const ClusterTimeouts timeouts =
      complete_timeouts(options.cluster.timeouts, options.cluster.world_size);
  JoinSetup setup{options.cluster, options.cluster.job_id, {}, options.stall_limits, timeouts, {}};
  const std::string description = options.cluster.description();
  if (setup.job_id.empty()) setup.job_id = digest(description);
  check_fields_of_join(options.signature);
  setup.fields = {{"protocol", std::string(protocol)},
                  {"lockstep's version", LOCKSTEP_VERSION},
                  {"world size", std::to_string(options.cluster.world_size)},
                  {"cluster", short_value(description)}};
  for (const TimeoutRow& row : timeout_rows)
    setup.fields.emplace_back(row.variable, text({(timeouts.*row.member).count(), " ms"}));
  for (auto& [field, value] : options.signature)
    setup.fields.emplace_back(std::move(field), short_value(value));
  return setup;
}

struct RendezvousAccess;

}  // namespace detail

/// A process' membership in its job. Made by joining: the chief listens, the others connect, in any
/// order; each waits until all are there.
/// \code
///   auto cluster = lockstep::resolve_cluster(lockstep::process_environment());
///   auto secret = lockstep::read_secret(lockstep::process_environment(), cluster);
///   lockstep::Rendezvous job({.cluster = cluster, .secret = secret});
///   if (job.rank() == 0) job.set("greeting", "hello");
///   std::string greeting = job.get("greeting", std::chrono::seconds(5));
///   job.barrier("ready", std::chrono::seconds(5));
///   job.leave();
/// \endcode
/// All calls may come from any thread but the control thread, which runs the callbacks.
class Rendezvous {
 public:
  using milliseconds = std::chrono::milliseconds;

  /// Joins. \throws ClusterError if this process is refused, or the ranks differ; PeerLost, which
  /// names the missing ranks, if not all have come at the deadline.
  explicit Rendezvous(RendezvousOptions options) : setup_(detail::make_setup(options)) {
    detail::check_data_address(setup_.cluster);
    detail::raise_file_limit();
    setup_.log = [this](LogLevel level, std::string_view line) { say(level, line); };
    const bool chief = setup_.cluster.is_chief();
    if (!options.secret.empty())
      psk_ = std::make_unique<detail::PskContext>(
          chief ? detail::PskContext::Side::server : detail::PskContext::Side::client,
          std::move(options.secret), setup_.job_id);
    if (chief)
      side_ = std::make_unique<detail::Chief>(io_, control_, board_, setup_, psk_.get());
    else if (setup_.cluster.chief)
      side_ = std::make_unique<detail::Worker>(io_, control_, board_, setup_, psk_.get());
    else
      throw ClusterError("rendezvous: the description of the cluster has no chief's address");
    start_threads(std::move(options.log));
    asio::post(io_, [this] { side_->begin(); });
    try {
      constexpr milliseconds overdue{3000};
      membership_ = control_.wait_joined(setup_.cluster.rendezvous_timeout + overdue);
    } catch (...) {
      end();
      throw;
    }
  }
  Rendezvous(const Rendezvous&) = delete;
  Rendezvous& operator=(const Rendezvous&) = delete;
  /// Leaves; waits for the others for a second at most.
  ~Rendezvous() {
    leave(milliseconds(1000));
    end();
  }

  std::size_t rank() const { return membership_.rank; }
  std::size_t size() const { return membership_.addresses.size(); }
  /// For messages: as the description of the cluster has it, else as the chief sees it.
  const std::string& address_of(std::size_t rank) const { return membership_.addresses.at(rank); }
  /// An address of this machine that the others reach: data connections bind to it.
  const std::string& local_address() const { return membership_.local_address; }
  /// Different in each run of a job; equal on all ranks.
  const std::array<std::uint8_t, 16>& run_id() const { return membership_.run_id; }
  /// Known to the ranks of this run only (if they have a secret): for proofs between peers.
  const std::array<std::uint8_t, 32>& key() const { return membership_.key; }

  // --- the store: each call throws PeerLost at once when a peer is lost, CollectiveTimeout at its
  // deadline, UsageError for a name or value that is too long ---

  void set(std::string_view name, std::string_view value,
           milliseconds deadline = milliseconds(10'000)) {
    auto request = make(detail::Operation::set, name, deadline);
    request.value = value;
    ask(std::move(request));
  }
  /// The value under `name`, as soon as somebody has set it.
  std::string get(std::string_view name, milliseconds deadline) {
    return ask(make(detail::Operation::get, name, deadline)).value;
  }
  /// Adds to a counter that begins at 0, and returns its new value.
  std::uint64_t add(std::string_view name, std::uint64_t n,
                    milliseconds deadline = milliseconds(10'000)) {
    auto request = make(detail::Operation::add, name, deadline);
    request.number = n;
    return ask(std::move(request)).number;
  }
  /// Returns when all ranks have called it with this name, which may then be used again.
  void barrier(std::string_view name, milliseconds deadline) {
    ask(make(detail::Operation::barrier, name, deadline));
  }
  /// Returns if all ranks call it with the same fields. \throws UsageError on all ranks, with one
  /// sentence that names two ranks, the field and its two values, if they differ. Fields of any
  /// length; each 32 KiB of them have the deadline for themselves.
  void agree(std::string_view part, const std::vector<SignatureField>& fields,
             milliseconds deadline) {
    for (auto& portion : detail::portions(fields)) {
      auto request = make(detail::Operation::agree, part, deadline);
      request.fields = std::move(portion);
      ask(std::move(request));
    }
  }

  // --- failures ---

  /// From the training thread, at each change of phase; costs two stores.
  void note_progress(std::uint64_t step, Phase phase, bool first_step = false) {
    board_.note({step, phase, first_step});
  }
  /// `callback` is called once, in the control thread, when a peer is lost; at once if one is
  /// already. Replaces the one before; when this returns, that one runs no more.
  /// Must not be called by a callback. A callback that has something to say uses `say`.
  void on_loss(std::function<void(const PeerLost&)> callback) {
    control_.on_loss(std::move(callback));
    asio::post(io_, [this] { control_.announce(); });
  }
  /// `progress` tells how far this process is in its exchanges; it is called in the control thread,
  /// some times a second, and must not wait. When this returns, the one before runs no more.
  void on_exchange(std::function<ExchangeProgress()> progress) {
    control_.on_exchange(std::move(progress));
  }
  /// Gives a line to `RendezvousOptions::log`, and does not wait for it.
  void say(LogLevel level, std::string_view line) {
    if (log_) log_->say(level, line);
  }
  /// Who is lost; nothing if nobody is known to be after `wait`.
  std::optional<PeerLost> verdict(milliseconds wait = milliseconds(0)) {
    const auto loss = control_.wait_verdict(wait);
    return loss ? std::optional(loss->error()) : std::nullopt;
  }
  /// All are set.
  const ClusterTimeouts& timeouts() const { return setup_.timeouts; }
  /// How long the chief may take to name the cause of a failure, by the round trips of the last
  /// seconds.
  milliseconds verdict_timeout() const { return setup_.timeouts.verdict + control_.round_trip(); }
  /// After an exchange with `suspect` failed: asks the chief for the root cause, and returns what
  /// this process shall throw. Takes `verdict_timeout` at most; then the suspect is the cause.
  PeerLost blame(std::size_t suspect, const std::string& how) {
    return blame({static_cast<std::uint32_t>(suspect), how}, verdict_timeout(),
                 "does not answer: " + detail::printable(how, 200));
  }
  /// After the connection between two ranks failed. The chief waits until both show that they live,
  /// or one is lost for its silence.
  PeerLost blame(const LinkFailed& failure) {
    const std::size_t peer = failure.peer().value_or(rank()), other = failure.other();
    return blame(
        {static_cast<std::uint32_t>(peer), failure.fact(), static_cast<std::uint32_t>(other)},
        verdict_timeout() + setup_.timeouts.silence + 2 * detail::heartbeat_interval,
        detail::link_failure(text({"rank ", other}), detail::printable(failure.fact())));
  }
  /// The last words of this process: the others throw PeerLost with them.
  void fail(const std::string& what) {
    asio::post(io_, [this, what] { side_->fail(what); });
    control_.wait_verdict(verdict_timeout());
  }

  /// Says that this process has done its work, and waits until all have said so, a peer is lost,
  /// or the deadline has passed. Who needs it later gets PeerLost: "left after step 40".
  void leave() noexcept { leave(setup_.timeouts.leave); }
  void leave(milliseconds deadline) noexcept {
    try {
      asio::post(io_, [this] {
        if (!std::exchange(left_, true)) side_->leave();
      });
      control_.wait_left(deadline);
    } catch (...) {  // no memory: the destructor closes the connections
    }
  }

 private:
  friend struct detail::RendezvousAccess;

  /// `last_resort`: how the accused is lost if the chief names nobody in time.
  PeerLost blame(const detail::Accuse& accusation, milliseconds patience, std::string last_resort) {
    asio::post(io_, [this, accusation] { side_->accuse(accusation); });
    if (const auto loss = control_.wait_verdict(patience)) return loss->error();
    const std::string address = accusation.rank < size() ? address_of(accusation.rank) : "";
    control_.lose({accusation.rank, address, std::move(last_resort), {}});
    asio::post(io_, [this] { control_.announce(); });
    return control_.verdict()->error();
  }

  detail::Request make(detail::Operation operation, std::string_view name, milliseconds deadline) {
    if (name.empty() || name.size() > detail::longest_name)
      throw UsageError({"rendezvous: a name of ", name.size(), " characters; it has 1 to ",
                        detail::longest_name});
    constexpr milliseconds longest = std::chrono::hours(24);
    detail::Request request;
    request.operation = operation;
    request.name = name;
    request.deadline = std::clamp(deadline, milliseconds(0), longest);
    return request;
  }

  detail::Reply ask(detail::Request request) {
    if (request.value.size() > detail::longest_value)
      throw UsageError({"rendezvous: a value of ", request.value.size(), " bytes; the longest is ",
                        detail::longest_value});
    (void)detail::frame(request);  // throws here, not in the control thread
    // The chief answers at the deadline, and says who is missing.
    const milliseconds patience = request.deadline + milliseconds(1000);
    request.id = control_.open_request();
    const std::uint64_t id = request.id;
    asio::post(io_, [this, request = std::move(request)]() mutable {
      if (!control_.ended()) side_->submit(std::move(request));
    });
    return control_.wait_reply(id, patience);
  }

  void start_threads(std::function<void(LogLevel, std::string_view)> sink) {
    const detail::SignalsBlocked blocked;
    if (sink) log_.emplace(std::move(sink));
    thread_ = detail::start_thread("rendezvous", [this] { run(); });
  }

  void run() {
    try {
      io_.run();
    } catch (const std::exception& error) {
      control_.refuse(std::current_exception());
      control_.lose({static_cast<std::uint32_t>(setup_.cluster.rank.value_or(0)),
                     "this process",
                     std::string("failed in its control thread: ") + error.what(),
                     {}});
      side_->sever();
      control_.wound_down();
    }
  }

  void end() {
    constexpr milliseconds limit{1000};
    asio::post(io_, [this] { side_->wind_down(); });
    control_.wait_wound_down(limit);
    asio::post(io_, [this] {
      side_->sever();
      io_.stop();
    });
    thread_.join();
  }

  detail::JoinSetup setup_;
  std::optional<detail::LogThread> log_;
  detail::Control control_;
  detail::ProgressBoard board_;
  std::unique_ptr<detail::PskContext> psk_;
  asio::io_context io_{1};
  asio::executor_work_guard<asio::io_context::executor_type> work_{io_.get_executor()};
  std::unique_ptr<detail::Side> side_;
  std::thread thread_;
  detail::Membership membership_;
  bool left_ = false;  // of the control thread
};

}  // namespace lockstep
