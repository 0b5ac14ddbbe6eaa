#pragma once

#include "lockstep/cluster/rendezvous/member.hpp"

#include <cstddef>
#include <cstdint>
#include <exception>
#include <span>
#include <utility>

#include "lockstep/cluster/rendezvous/chief.hpp"
#include "lockstep/cluster/rendezvous/data_address.hpp"
#include "lockstep/cluster/rendezvous/file_limit.hpp"
#include "lockstep/cluster/rendezvous/signature.hpp"
#include "lockstep/cluster/rendezvous/timer.hpp"
#include "lockstep/cluster/rendezvous/worker.hpp"
#include "lockstep/core/fmt_core.hpp"
#include "lockstep/core/sha256.hpp"
#include "lockstep/core/threads.hpp"
#include "lockstep/core/version.hpp"

namespace lockstep::detail {

inline std::string digest(const std::string& text) {
  return sha256_hex(std::as_bytes(std::span(text)));
}

/// The first frame is short, so what is long travels as its digest.
inline std::string short_value(const std::string& value) {
  if (value.size() <= longest_join_value) return value;
  return fmt::format("sha256 {} of {} bytes", digest(value), value.size());
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
    setup.fields.emplace_back(row.variable, fmt::format("{} ms", (timeouts.*row.member).count()));
  for (auto& [field, value] : options.signature)
    setup.fields.emplace_back(std::move(field), short_value(value));
  return setup;
}

RendezvousMember::RendezvousMember(RendezvousOptions options) : setup(make_setup(options)) {
  check_data_address(setup.cluster);
  raise_file_limit();
  setup.log = [this](LogLevel level, std::string_view line) { say(level, line); };
  if (!options.secret.empty())
    psk = std::make_unique<PskContext>(
        setup.cluster.is_chief() ? PskContext::Side::server : PskContext::Side::client,
        std::move(options.secret), setup.job_id);
  make_side();
  start_threads(std::move(options.log));
  detail::post(io, [this] { side->begin(); });
  try {
    constexpr milliseconds overdue{3000};
    membership = control.wait_joined(setup.cluster.rendezvous_timeout + overdue);
  } catch (...) {
    end();
    throw;
  }
}

RendezvousMember::~RendezvousMember() { end(); }

void RendezvousMember::make_side() {
  if (setup.cluster.is_chief())
    side = std::make_unique<Chief>(io, control, board, setup, psk.get());
  else if (setup.cluster.chief)
    side = std::make_unique<Worker>(io, control, board, setup, psk.get());
  else
    throw ClusterError("rendezvous: the description of the cluster has no chief's address");
}

void RendezvousMember::start_threads(std::function<void(LogLevel, std::string_view)> sink) {
  if (sink) log.emplace(std::move(sink));
  thread = start_thread("rendezvous", [this] { run(); });
}

void RendezvousMember::run() {
  try {
    io.run();
  } catch (const std::exception& error) {
    control.refuse(std::current_exception());
    control.lose({static_cast<std::uint32_t>(setup.cluster.rank.value_or(0)),
                  "this process",
                  std::string("failed in its control thread: ") + error.what(),
                  {}});
    side->sever();
    control.wound_down();
  }
}

void RendezvousMember::end() {
  constexpr milliseconds limit{1000};
  detail::post(io, [this] { side->wind_down(); });
  control.wait_wound_down(limit);
  detail::post(io, [this] {
    side->sever();
    io.stop();
  });
  thread.join();
}

void RendezvousMember::say(LogLevel level, std::string_view line) {
  if (log) log->say(level, line);
}

Reply RendezvousMember::ask(Request request) {
  if (request.value.size() > longest_value)
    throw UsageError("rendezvous: a value of {} bytes; the longest is {}", request.value.size(),
                     longest_value);
  (void)frame(request);  // throws here, not in the control thread
  // The chief answers at the deadline, and says who is missing.
  const milliseconds patience = request.deadline + milliseconds(1000);
  request.id = control.open_request();
  const std::uint64_t id = request.id;
  detail::post(io, [this, request = std::move(request)]() mutable {
    if (!control.ended()) side->submit(std::move(request));
  });
  return control.wait_reply(id, patience);
}

PeerLost RendezvousMember::blame(const Accuse& accusation, milliseconds patience,
                                 std::string last_resort) {
  detail::post(io, [this, accusation] { side->accuse(accusation); });
  if (const auto loss = control.wait_verdict(patience)) return loss->error();
  const std::string address =
      accusation.rank < membership.addresses.size() ? membership.addresses[accusation.rank] : "";
  control.lose({accusation.rank, address, std::move(last_resort), {}});
  detail::post(io, [this] { control.announce(); });
  return control.verdict()->error();
}

}  // namespace lockstep::detail
