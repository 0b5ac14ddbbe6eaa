#pragma once

#include "lockstep/cluster/rendezvous/member.hpp"

#include <cstddef>
#include <cstdint>
#include <exception>
#include <span>
#include <utility>

#include "lockstep/cluster/network/data_address.hpp"
#include "lockstep/cluster/network/file_limit.hpp"
#include "lockstep/cluster/network/timer.hpp"
#include "lockstep/cluster/rendezvous/chief.hpp"
#include "lockstep/cluster/rendezvous/signature.hpp"
#include "lockstep/cluster/rendezvous/worker.hpp"
#include "lockstep/core/format_text.hpp"
#include "lockstep/core/numbers/sha256.hpp"
#include "lockstep/core/process/threads.hpp"
#include "lockstep/core/version.hpp"

namespace lockstep::detail {

/// SHA-256 in hexadecimal.
inline std::string digest(const std::string& text) {
  return sha256_hex(std::as_bytes(std::span(text)));
}

/// The first frame is short, so long values are compared by digest.
inline std::string short_value(const std::string& value) {
  if (value.size() <= max_join_value_bytes) return value;
  return format_text("sha256 {} of {} bytes", digest(value), value.size());
}

/// Completes the options: timeouts, job id, and the fields to compare at the join.
inline JoinSetup make_setup(RendezvousOptions& options) {
  const ClusterTimeouts timeouts =
      complete_timeouts(options.cluster.timeouts, options.cluster.world_size);
  JoinSetup setup{options.cluster, options.cluster.job_id, {}, options.stall_limits, timeouts, {}};
  const std::string description = options.cluster.description();
  if (setup.job_id.empty()) setup.job_id = digest(description);
  check_join_fields(options.signature);
  setup.fields = {{"protocol", std::string(protocol)},
                  {"lockstep's version", LOCKSTEP_VERSION},
                  {"world size", std::to_string(options.cluster.world_size)},
                  {"cluster", short_value(description)}};
  for (const TimeoutRow& row : timeout_rows)
    setup.fields.emplace_back(row.variable, format_text("{} ms", (timeouts.*row.member).count()));
  for (auto& [field, value] : options.signature)
    setup.fields.emplace_back(std::move(field), short_value(value));
  return setup;
}

RendezvousMember::RendezvousMember(RendezvousOptions options) : setup(make_setup(options)) {
  choose_data_address(setup.cluster);
  raise_file_limit();
  const std::size_t size = setup.cluster.world_size;
  check_file_limit(setup.cluster.is_chief() ? size : 1,
                   format_text("rendezvous: the connections of a job of {} workers", size));
  setup.log = [this](LogLevel level, std::string_view line) { log(level, line); };
  if (!options.secret.empty())
    psk = std::make_unique<PskContext>(
        setup.cluster.is_chief() ? PskContext::Side::server : PskContext::Side::client,
        std::move(options.secret), setup.job_id);
  make_role();
  start_threads(std::move(options.log));
  detail::post(io, [this] { role->begin(); });
  try {
    // The control thread ends the join itself; this is a safety margin.
    constexpr milliseconds overdue{3000};
    membership = control.wait_joined(setup.cluster.rendezvous_timeout + overdue);
  } catch (...) {
    shut_down();
    throw;
  }
}

RendezvousMember::~RendezvousMember() { shut_down(); }

void RendezvousMember::make_role() {
  if (setup.cluster.is_chief())
    role = std::make_unique<Chief>(io, control, board, setup, psk.get());
  else if (setup.cluster.chief)
    role = std::make_unique<Worker>(io, control, board, setup, psk.get());
  else
    throw ClusterError("rendezvous: the cluster description has no address for the chief");
}

void RendezvousMember::start_threads(std::function<void(LogLevel, std::string_view)> sink) {
  if (sink) log_thread.emplace(std::move(sink));
  thread = start_thread("rendezvous", [this] { run(); });
}

void RendezvousMember::run() {
  try {
    io.run();
  } catch (const std::exception& error) {
    // Whatever waits, the join or a later call, must end.
    control.set_join_error(std::current_exception());
    control.declare_lost({static_cast<std::uint32_t>(setup.cluster.rank.value_or(0)),
                          "this process",
                          std::string("failed in its control thread: ") + error.what(),
                          {}});
    role->abort();
    control.mark_shut_down();
  }
}

void RendezvousMember::shut_down() {
  constexpr milliseconds limit{1000};
  detail::post(io, [this] { role->shut_down(); });
  control.wait_shut_down(limit);
  detail::post(io, [this] {
    role->abort();
    io.stop();
  });
  thread.join();
}

void RendezvousMember::log(LogLevel level, std::string_view line) {
  if (log_thread) log_thread->log(level, line);
}

Reply RendezvousMember::call(Request request, const std::atomic<bool>* aborted) {
  if (request.value.size() > max_value_bytes)
    throw UsageError("rendezvous: a value has {} bytes; the maximum is {}", request.value.size(),
                     max_value_bytes);
  (void)frame(request);  // a frame that is too long throws here, not on the control thread
  // The chief replies at the deadline and names the missing ranks, so wait a little longer than
  // that.
  const milliseconds patience = request.deadline + milliseconds(1000);
  request.id = control.open_request();
  const std::uint64_t id = request.id;
  detail::post(io, [this, request = std::move(request)]() mutable {
    if (!control.ended()) role->submit(std::move(request));
  });
  return control.wait_reply(id, patience, aborted);
}

PeerLost RendezvousMember::blame(const Accuse& accusation, milliseconds patience,
                                 std::string last_resort) {
  detail::post(io, [this, accusation] { role->accuse(accusation); });
  // The chief may be gone too: then the accused is the best answer.
  if (const auto loss = control.wait_verdict(patience)) return loss->error();
  const std::string address =
      accusation.rank < membership.addresses.size() ? membership.addresses[accusation.rank] : "";
  control.declare_lost({accusation.rank, address, std::move(last_resort), {}});
  detail::post(io, [this] { control.announce(); });
  return control.verdict()->error();
}

}  // namespace lockstep::detail
