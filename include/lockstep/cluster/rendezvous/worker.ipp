#pragma once

#include "lockstep/cluster/rendezvous/worker.hpp"

#include <algorithm>
#include <iterator>
#include <utility>

#include "lockstep/cluster/network/file_limit.hpp"
#include "lockstep/core/error.hpp"
#include "lockstep/core/format_text.hpp"
#include "lockstep/core/quote.hpp"

namespace lockstep::detail {

Worker::Worker(asio::io_context& io, Control& control, const ProgressBoard& board,
               const JoinSetup& setup, PskContext* psk)
    : io_(io),
      control_(control),
      board_(board),
      setup_(setup),
      psk_(psk),
      chief_(*setup.cluster.chief),
      lookup_(chief_),
      ticker_(io),
      retry_(io) {}

void Worker::begin() {
  join_started_at_ = Clock::now();
  next_log_ = join_started_at_ + join_log_interval;
  tick();
  attempt();
}

void Worker::submit(Request request) {
  if (chief_left_ || !connected()) return declare_chief_lost("left");
  link_->send(frame(request));
}

void Worker::accuse(Accuse accusation) {
  if (chief_left_ || !connected()) return declare_chief_lost("left");
  accusation.how.resize(std::min(accusation.how.size(), max_reason_bytes));
  link_->send(frame(accusation));
}

void Worker::fail(const std::string& what) {
  if (connected()) link_->send(frame(FailureReport{what.substr(0, max_reason_bytes)}));
}

void Worker::leave() {
  if (!connected() || leave_sent_) return;
  send_leave();
}

void Worker::shut_down() {
  stopped_ = true;
  retry_.cancel();
  shutting_down_ = true;
  if (!connected()) return control_.mark_shut_down();
  if (!leave_sent_) send_leave();
  link_->finish_sending();
  const auto verdict = control_.verdict();
  if (verdict && verdict->rank == 0) control_.mark_shut_down();
}

void Worker::abort() {
  stopped_ = true;
  if (link_) link_->close();
  ticker_.cancel();
  retry_.cancel();
}

void Worker::send_leave() {
  leave_sent_ = true;
  send_heartbeat();
  link_->send(frame(Leave{control_.verdict()}));
}

void Worker::retry_after(milliseconds pause) {
  if (stopped_ || control_.ended()) return;
  retry_.after(pause, [this] { attempt(); });
}

void Worker::attempt() {
  if (stopped_ || control_.ended()) return;
  const auto& found = lookup_.poll(Clock::now());
  if (!found) {
    last_failure_ = "its host name has not been resolved yet";
    return retry_after(milliseconds(5));
  }
  // A new round uses the newest DNS answer.
  if (next_endpoint_ == 0) endpoints_ = preferred_endpoints(found->endpoints);
  if (endpoints_.empty() && !found->endpoints.empty()) return refuse_address_family(*found);
  if (next_endpoint_ >= endpoints_.size()) {
    if (!found->error.empty()) last_failure_ = found->error;
    next_endpoint_ = 0;
    pause_ = std::min(2 * pause_, chief_end_.empty() ? max_pause : restart_pause);
    return retry_after(pause_);
  }
  connect(endpoints_[next_endpoint_++]);
}

std::vector<tcp::endpoint> Worker::preferred_endpoints(
    const std::vector<tcp::endpoint>& endpoints) const {
  std::vector<tcp::endpoint> result;
  for (const bool ipv4 : {true, false})
    if (address_family_ == RetryLater::AddressFamily::any ||
        ipv4 == (address_family_ == RetryLater::AddressFamily::ipv4))
      std::copy_if(endpoints.begin(), endpoints.end(), std::back_inserter(result),
                   [&](const tcp::endpoint& e) { return e.address().is_v4() == ipv4; });
  const std::size_t addresses = result.size();
  for (const std::uint16_t port : setup_.cluster.more_ports)
    for (std::size_t i = 0; i < addresses; ++i) result.emplace_back(result[i].address(), port);
  return result;
}

void Worker::refuse_address_family(const LookupResult& found) {
  const bool ipv4 = address_family_ == RetryLater::AddressFamily::ipv4;
  const char *theirs = ipv4 ? "IPv4" : "IPv6", *mine = ipv4 ? "IPv6" : "IPv4";
  refuse_join(format_text(
      "the chief's host {} has only the {} address {} here, but the job uses {}; give it an {} "
      "address on this machine too, or all ranks one family: set LOCKSTEP_BIND on the chief to its "
      "{} address",
      chief_.host, mine, found.endpoints.front().address().to_string(), theirs, theirs, mine));
}

void Worker::connect(const tcp::endpoint& endpoint) {
  asio::error_code error;
  tcp::socket socket(io_);
  open_socket(socket, endpoint.protocol(), setup_.timeouts.silence, error);
  out_of_files_ = error == asio::error::no_descriptors;
  if (error) return attempt_failed(error.message());
  link_ = std::make_shared<Connection>(std::move(socket));
  attempt_moved_at_ = Clock::now();
  link_->socket().async_connect(endpoint, [this, link = link_](const asio::error_code& result) {
    if (link != link_ || !link->open()) return;
    // Without a listener the kernel may connect a loopback socket to itself (simultaneous open).
    const bool to_itself = !result && link->local() == link->remote();
    if (to_itself || result == asio::error::connection_refused) return connection_refused();
    refused_since_.reset();
    if (result) return attempt_failed(connect_error(result));
    attempt_moved_at_ = Clock::now();
    connected_to_chief();
  });
}

void Worker::connected_to_chief() {
  if (!psk_) {
    link_->send(std::string(greeting));
    return send_hello();
  }
  link_->handshake(*psk_, asio::ssl::stream_base::client,
                   [this, link = link_](const asio::error_code& error) {
                     if (link != link_) return;
                     attempt_moved_at_ = Clock::now();
                     if (!error) {
                       other_secret_.clear();
                       return send_hello();
                     }
                     if (error.category() == asio::error::get_ssl_category() ||
                         error == asio::error::access_denied)
                       return handshake_failed(error);
                     attempt_failed("it closed the connection during the handshake");
                   });
}

void Worker::handshake_failed(const asio::error_code& error) {
  const bool is_tls = error.category() == asio::error::get_ssl_category();
  const int fault = is_tls ? ERR_GET_REASON(static_cast<unsigned long>(error.value())) : 0;
  if (is_alert_of_other_secret(error)) {
    other_secret_.note(
        Clock::now(),
        format_text("the chief at {} and this process do not have the same secret ({}); set "
                    "LOCKSTEP_SECRET_FILE to the same secret on all ranks",
                    to_string(chief_), error.message()));
    return retry_untrusted(
        format_text("it does not have the same secret as this process ({}), or another program has "
                    "the port; set LOCKSTEP_SECRET_FILE to the same secret on all ranks",
                    error.message()));
  }
  other_secret_.clear();
  if (fault == SSL_R_WRONG_VERSION_NUMBER)
    return retry_untrusted(
        "the peer there does not speak TLS: another program has the port, or the "
        "chief has no secret and this process has one (set LOCKSTEP_SECRET_FILE to "
        "the same secret on all ranks, or unset it on all)");
  if (fault == SSL_R_TLSV1_ALERT_PROTOCOL_VERSION || fault == SSL_R_UNSUPPORTED_PROTOCOL)
    return retry_untrusted(
        "the peer there does not speak TLS 1.3, as every chief does: another program has the "
        "port");
  if (!is_tls || fault == SSL_R_CERTIFICATE_VERIFY_FAILED)
    return retry_untrusted(
        "the peer there did not prove that it has the job's secret: another program has the port");
  retry_untrusted(
      format_text("the peer there speaks TLS but is not a chief ({}): another program has the port",
                  error.message()));
}

void Worker::retry_untrusted(const std::string& what) {
  // With other ports to ask, another job's chief at one of them is nothing unusual.
  if (setup_.cluster.more_ports.empty() && std::exchange(last_distrust_, what) != what)
    setup_.log(LogLevel::warning,
               format_text("the chief at {}: {}; retrying until the join deadline",
                           to_string(chief_), what));
  attempt_failed(what);
}

void Worker::send_hello() {
  Hello hello{setup_.job_id, !setup_.cluster.job_id.empty(), Hello::any_rank, setup_.fields};
  if (setup_.cluster.rank) hello.rank = static_cast<std::uint32_t>(*setup_.cluster.rank);
  const auto own_end = link_->local().address();
  hello.data_address =
      setup_.cluster.data_address.value_or(own_end.is_loopback() ? "" : own_end.to_string());
  link_->send(frame(hello));
  // Frames of an earlier attempt must not act on the current one.
  const auto link = std::weak_ptr(link_);
  link_->start(
      [this, link](FrameType type, std::string_view body) {
        if (link.lock() == link_) on_frame(type, body);
      },
      [this, link](const std::string& how) {
        if (link.lock() == link_) on_disconnect(how);
      },
      max_frame_bytes);
}

void Worker::connection_refused() {
  const auto now = Clock::now();
  if (!chief_end_.empty() && !refused_since_) refused_since_ = now;
  attempt_failed("connection refused");
  if (refused_since_ && now - *refused_since_ >= restart_grace)
    declare_chief_lost(format_text(
        "{} before the job started, and nothing listens at its address any more", chief_end_));
}

void Worker::admission_ended(const std::string& how) {
  if (admitted_) {
    chief_end_ = how;
    pause_ = min_pause;
  }
  attempt_failed("it " + how);
}

void Worker::attempt_failed(const std::string& why) {
  last_failure_ = why;
  admitted_ = false;
  if (link_) link_->close();
  link_.reset();
  retry_after(min_pause);
}

std::string Worker::connect_error(const asio::error_code& error) {
  if (error == asio::error::timed_out) return "no answer";
  return error.message();
}

void Worker::refuse_join(const std::string& sentence) {
  stopped_ = true;
  if (link_) link_->close();
  control_.set_join_error(std::make_exception_ptr(ClusterError(sentence)));
}

void Worker::check_join(Clock::time_point now) {
  const milliseconds waited = whole_milliseconds(now - join_started_at_);
  const milliseconds deadline = setup_.cluster.rendezvous_timeout;
  if (!admitted_ && link_ && now - attempt_moved_at_ >= setup_.timeouts.silence) {
    refused_since_.reset();
    attempt_failed("no answer");
  }
  if (other_secret_.lasts() || (waited >= deadline && !other_secret_.sentence().empty()))
    return refuse_join(other_secret_.sentence());
  if (waited >= deadline && !admitted_ && out_of_files_)
    return fail_locally(format_text("rendezvous: no connection to the chief at {}: {}",
                                    to_string(chief_), files_sentence()));
  if (waited >= deadline && !admitted_)
    return declare_chief_lost(
        format_text("could not be joined within {}: {}{}{}", seconds(deadline), last_failure_,
                    other_job_.empty() ? "" : "; " + other_job_, late_remedy));
  // The chief's deadline may be slightly later. A worker that gave up first would be named as
  // missing, so wait for the chief's verdict.
  if (waited >= deadline + verdict_grace) {
    std::string how = "did not join within " + seconds(deadline);
    if (missing_.count > 1) how += "; missing: " + missing_.names;
    return declare_lost({missing_.first, address_of(missing_.first), how + late_remedy, {}});
  }
  if (now < next_log_) return;
  next_log_ += join_log_interval;
  setup_.log(LogLevel::info,
             admitted_ ? format_text("waiting for {}: {} of {}", missing_.names, seconds(waited),
                                     seconds(deadline))
                       : format_text("waiting for the chief at {}: {} of {}; {}", to_string(chief_),
                                     seconds(waited), seconds(deadline), last_failure_));
}

void Worker::fail_locally(const std::string& sentence) {
  stopped_ = true;
  control_.set_join_error(std::make_exception_ptr(Error(sentence)));
}

std::string Worker::address_of(std::size_t rank) const {
  return rank < setup_.cluster.world_size ? setup_.described_address(rank) : std::string();
}

void Worker::on_frame(FrameType type, std::string_view body) {
  last_heard_ = Clock::now();
  const auto act = [&](auto message, auto action) {
    if (message)
      action(std::move(*message));
    else
      on_disconnect("sent a corrupt message");
  };
  switch (type) {
    case FrameType::heartbeat:
      return act(parse<Heartbeat>(body), [&](const Heartbeat& heartbeat) {
        round_trip_.update(heartbeat.stamps, last_heard_, setup_.timeouts.silence);
        control_.note_round_trip(round_trip_.longest() + round_trip_.longest_of_peer());
      });
    case FrameType::refuse:
      return act(parse<Refuse>(body), [&](const Refuse& r) {
        std::string sentence = printable(r.sentence, max_text_bytes);
        if (r.reason == Refuse::Reason::definite || setup_.cluster.more_ports.empty())
          return refuse_join(sentence);
        if (r.reason == Refuse::Reason::other_secret) {
          other_secret_.note(Clock::now(), sentence);
          return attempt_failed("turned away: " + sentence);
        }
        other_job_ = std::move(sentence);
        attempt_failed("turned away: another job has the port");
      });
    case FrameType::retry_later:
      return act(parse<RetryLater>(body), [&](const RetryLater& later) {
        if (started_) return on_disconnect("sent a message that does not match the job's state");
        if (later.family != RetryLater::AddressFamily::any) address_family_ = later.family;
        attempt_failed(format_text("turned away: {}", printable(later.reason)));
      });
    case FrameType::missing:
      return act(parse<MissingRanks>(body), [&](MissingRanks waiting) {
        admitted_ = true;
        chief_end_.clear();
        other_secret_.clear();
        missing_ = std::move(waiting);
        missing_.names = printable(missing_.names, max_text_bytes);
      });
    case FrameType::peers:
      return act(parse<Peers>(body), [&](const Peers& peers) {
        if (peers.first != membership_.addresses.size()) return;
        for (const std::string& address : peers.addresses)
          membership_.addresses.push_back(printable(address));
      });
    case FrameType::start:
      return act(parse<Start>(body), [&](const Start& start) { on_start(start); });
    case FrameType::reply:
      return act(parse<Reply>(body), [&](Reply reply) {
        if (reply.status != Reply::Code::ok) reply.value = printable(reply.value, max_text_bytes);
        control_.set_reply(std::move(reply));
      });
    case FrameType::verdict:
      return act(parse<LostPeer>(body), [&](LostPeer loss) {
        loss.how = printable(loss.how);
        loss.address = printable(loss.address);
        declare_lost(std::move(loss));
      });
    case FrameType::all_left:
      chief_left_ = true;
      return control_.set_all_left();
    case FrameType::leave:
      return act(parse<Leave>(body), [&](Leave leave) {
        if (leave.cause) declare_lost(std::move(*leave.cause));
        chief_left_ = true;
        control_.set_all_left();
        if (!leave_sent_) send_leave();
        link_->finish_sending();
      });
    default:
      on_disconnect("sent a message that a worker does not accept");
  }
}

void Worker::on_start(const Start& start) {
  if (started_ || membership_.addresses.size() != setup_.cluster.world_size ||
      start.rank >= setup_.cluster.world_size)
    return on_disconnect("sent a start message that does not match the job");
  started_ = admitted_ = true;
  membership_.rank = start.rank;
  membership_.run_id = start.run_id;
  membership_.key = start.key;
  membership_.local_address = start.data_address.empty() ? link_->local().address().to_string()
                                                         : printable(start.data_address);
  control_.set_joined(membership_);
}

void Worker::on_disconnect(const std::string& how) {
  // Before the start the chief may still come back.
  if (!started_ && !control_.ended()) return admission_ended(how);
  if (link_) link_->close();
  if (shutting_down_) control_.mark_shut_down();
  if (started_ && !chief_left_ && !shutting_down_) declare_chief_lost(how);
}

std::optional<std::uint64_t> Worker::last_step() const {
  const WorkerProgress own = board_.read();
  // `step` is in progress, so the last finished step is the one before.
  return own.step > 0 ? std::optional(own.step - 1) : std::nullopt;
}

void Worker::declare_lost(LostPeer loss) {
  if (control_.declare_lost(std::move(loss))) control_.announce();
}

void Worker::send_heartbeat() {
  const auto stamps = round_trip_.stamps(Clock::now(), round_trip_.longest());
  link_->send(
      frame(Heartbeat{board_.read(), stall_timer_.stalled_for(), control_.exchange(), stamps}));
}

void Worker::tick() {
  const auto now = Clock::now();
  const bool on_time = wakeups_.on_time(now);
  stall_timer_.poll(board_, control_.exchange(), now, on_time);
  // This thread was late, so a heartbeat may wait unread: grant the chief a new period.
  if (!on_time) last_heard_ = now;
  if (admitted_ && link_ && link_->open()) {
    if (!chief_left_ && !control_.ended() && now - last_heard_ >= setup_.timeouts.silence) {
      const std::string how = format_text("was silent for {}", seconds(setup_.timeouts.silence));
      if (started_) {
        declare_chief_lost(how);
        // A chief that was only stopped learns it when it wakes up.
        leave();
      } else {
        admission_ended(how);
      }
    }
    if (link_ && !leave_sent_) send_heartbeat();
  }
  if (!started_ && !control_.ended()) check_join(now);
  ticker_.after(heartbeat_interval, [this] { tick(); });
}

}  // namespace lockstep::detail
