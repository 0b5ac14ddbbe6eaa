#pragma once

#include "lockstep/cluster/rendezvous/worker.hpp"

#include <algorithm>
#include <iterator>
#include <utility>

#include "lockstep/cluster/rendezvous/file_limit.hpp"
#include "lockstep/core/error.hpp"
#include "lockstep/core/fmt_core.hpp"

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
  began_ = Clock::now();
  next_line_ = began_ + waiting_line_interval;
  tick();
  attempt();
}

void Worker::submit(Request request) {
  if (chief_left_ || !connected()) return lose_chief("left");
  link_->send(frame(request));
}

void Worker::accuse(Accuse accusation) {
  if (chief_left_ || !connected()) return lose_chief("left");
  accusation.how.resize(std::min(accusation.how.size(), longest_how));
  link_->send(frame(accusation));
}

void Worker::fail(const std::string& what) {
  if (connected()) link_->send(frame(LastWords{what.substr(0, longest_how)}));
}

void Worker::leave() {
  if (!connected() || said_goodbye_) return;
  say_goodbye();
}

void Worker::wind_down() {
  over_ = true;
  retry_.cancel();
  winding_down_ = true;
  if (!connected()) return control_.wound_down();
  if (!said_goodbye_) say_goodbye();
  link_->finish();
  const auto verdict = control_.verdict();
  if (verdict && verdict->rank == 0) control_.wound_down();
}

void Worker::sever() {
  over_ = true;
  if (link_) link_->close();
  ticker_.cancel();
  retry_.cancel();
}

void Worker::say_goodbye() {
  said_goodbye_ = true;
  beat();
  link_->send(frame(Goodbye{control_.verdict()}));
}

void Worker::again(milliseconds pause) {
  if (over_ || control_.ended()) return;
  retry_.after(pause, [this] { attempt(); });
}

void Worker::attempt() {
  if (over_ || control_.ended()) return;
  const auto& found = lookup_.poll(Clock::now());
  if (!found) {
    failure_ = "its host has not yet been looked up";
    return again(milliseconds(5));
  }
  if (next_endpoint_ == 0) endpoints_ = in_order(found->endpoints);
  if (endpoints_.empty() && !found->endpoints.empty()) return refuse_family(*found);
  if (next_endpoint_ >= endpoints_.size()) {
    if (!found->error.empty()) failure_ = found->error;
    next_endpoint_ = 0;
    pause_ = std::min(2 * pause_, longest_pause);
    return again(pause_);
  }
  connect(endpoints_[next_endpoint_++]);
}

std::vector<tcp::endpoint> Worker::in_order(const std::vector<tcp::endpoint>& endpoints) const {
  std::vector<tcp::endpoint> result;
  for (const bool ipv4 : {true, false})
    if (family_ == Later::Way::any || ipv4 == (family_ == Later::Way::ipv4))
      std::copy_if(endpoints.begin(), endpoints.end(), std::back_inserter(result),
                   [&](const tcp::endpoint& e) { return e.address().is_v4() == ipv4; });
  return result;
}

void Worker::refuse_family(const LookupResult& found) {
  const bool ipv4 = family_ == Later::Way::ipv4;
  const char *theirs = ipv4 ? "IPv4" : "IPv6", *mine = ipv4 ? "IPv6" : "IPv4";
  refuse(fmt::format(
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
  if (error) return failed(error.message());
  link_ = std::make_shared<Connection>(std::move(socket));
  attempt_began_ = Clock::now();
  link_->socket().async_connect(endpoint, [this, link = link_](const asio::error_code& result) {
    if (link != link_ || !link->open()) return;
    if (result) return failed(reason(result));
    // Without a listener a system may connect a socket to itself.
    if (link->local() == link->remote()) return failed("connection refused");
    connected_to_chief();
  });
}

void Worker::connected_to_chief() {
  if (!psk_) {
    link_->send(std::string(greeting));
    return introduce();
  }
  link_->handshake(*psk_, asio::ssl::stream_base::client,
                   [this, link = link_](const asio::error_code& error) {
                     if (link != link_) return;
                     if (!error) return introduce();
                     if (error.category() == asio::error::get_ssl_category() ||
                         error == asio::error::access_denied)
                       return refuse_handshake(error);
                     failed("it closed the connection during the handshake");
                   });
}

void Worker::refuse_handshake(const asio::error_code& error) {
  const int fault = ERR_GET_REASON(static_cast<unsigned long>(error.value()));
  if (fault == SSL_R_WRONG_VERSION_NUMBER)
    return distrust(
        "what answers there does not speak TLS: another program has the port, or the "
        "chief has no secret and this process has one (set LOCKSTEP_SECRET_FILE to "
        "the same secret on all ranks, or unset it on all)");
  if (fault == SSL_R_CERTIFICATE_VERIFY_FAILED)
    return distrust(
        "what answers there shows a certificate instead of the job's secret: another "
        "program has the port");
  if (fault == SSL_R_TLSV1_ALERT_PROTOCOL_VERSION || fault == SSL_R_UNSUPPORTED_PROTOCOL)
    return distrust(
        "what answers there does not speak TLS 1.3, as every chief does: another program has the "
        "port");
  refuse(fmt::format(
      "the chief at {} and this process do not have the same secret ({}); set LOCKSTEP_SECRET_FILE "
      "to the same secret on all ranks",
      to_string(chief_), error.message()));
}

void Worker::distrust(const std::string& what) {
  if (std::exchange(distrusted_, what) != what)
    setup_.log(LogLevel::warning,
               fmt::format("the chief at {}: {}; trying again until the deadline of the join",
                           to_string(chief_), what));
  failed(what);
}

void Worker::introduce() {
  Hello hello{setup_.job_id, !setup_.cluster.job_id.empty(), Hello::any_rank, setup_.fields};
  if (setup_.cluster.rank) hello.rank = static_cast<std::uint32_t>(*setup_.cluster.rank);
  hello.data_address = setup_.cluster.data_address.value_or("");
  link_->send(frame(hello));
  const auto link = std::weak_ptr(link_);
  link_->start(
      [this, link](FrameType type, std::string_view body) {
        if (link.lock() == link_) hear(type, body);
      },
      [this, link](const std::string& how) {
        if (link.lock() == link_) gone(how);
      },
      longest_frame);
}

void Worker::failed(const std::string& why) {
  failure_ = why;
  admitted_ = false;
  if (link_) link_->close();
  link_.reset();
  again(shortest_pause);
}

std::string Worker::reason(const asio::error_code& error) {
  if (error == asio::error::connection_refused) return "connection refused";
  if (error == asio::error::timed_out) return "no answer";
  return error.message();
}

void Worker::refuse(const std::string& sentence) {
  over_ = true;
  if (link_) link_->close();
  control_.refuse(std::make_exception_ptr(ClusterError(sentence)));
}

void Worker::wait_for_start(Clock::time_point now) {
  const milliseconds waited = whole_milliseconds(now - began_);
  const milliseconds deadline = setup_.cluster.rendezvous_timeout;
  if (!admitted_ && link_ && now - attempt_began_ >= setup_.timeouts.silence) failed("no answer");
  if (waited >= deadline && !admitted_ && out_of_files_)
    return fail_here(fmt::format("rendezvous: no connection to the chief at {}: {}",
                                 to_string(chief_), files_sentence()));
  if (waited >= deadline && !admitted_)
    return lose_chief(fmt::format("could not be joined within {}: {}{}", seconds(deadline),
                                  failure_, late_remedy));
  // The chief's deadline may be a moment later: a worker that left before it would be named.
  if (waited >= deadline + verdict_grace) {
    std::string how = "never came within " + seconds(deadline);
    if (missing_.count > 1) how += "; missing: " + missing_.names;
    return lose({missing_.first, described(missing_.first), how + late_remedy, {}});
  }
  if (now < next_line_) return;
  next_line_ += waiting_line_interval;
  setup_.log(LogLevel::info,
             admitted_ ? fmt::format("waiting for {}: {} of {}", missing_.names, seconds(waited),
                                     seconds(deadline))
                       : fmt::format("waiting for the chief at {}: {} of {}; {}", to_string(chief_),
                                     seconds(waited), seconds(deadline), failure_));
}

void Worker::fail_here(const std::string& sentence) {
  over_ = true;
  control_.refuse(std::make_exception_ptr(Error(sentence)));
}

std::string Worker::described(std::size_t rank) const {
  return rank < setup_.cluster.world_size ? setup_.described_address(rank) : std::string();
}

void Worker::hear(FrameType type, std::string_view body) {
  heard_ = Clock::now();
  const auto act = [&](auto message, auto action) {
    if (message)
      action(std::move(*message));
    else
      gone("sent a message that is damaged");
  };
  switch (type) {
    case FrameType::heartbeat:
      return act(parse<Heartbeat>(body), [&](const Heartbeat& beat) {
        round_trip_.hear(beat.stamps, heard_, setup_.timeouts.silence);
        control_.note_round_trip(round_trip_.longest() + round_trip_.longest_of_peer());
      });
    case FrameType::refuse:
      return act(parse<Refuse>(body),
                 [&](const Refuse& r) { refuse(printable(r.sentence, longest_text)); });
    case FrameType::later:
      return act(parse<Later>(body), [&](const Later& later) {
        if (started_) return gone("sent a message that does not fit the job");
        if (later.family != Later::Way::any) family_ = later.family;
        failed(fmt::format("not let in: {}", printable(later.reason)));
      });
    case FrameType::waiting:
      return act(parse<Waiting>(body), [&](Waiting waiting) {
        admitted_ = true;
        missing_ = std::move(waiting);
        missing_.names = printable(missing_.names, longest_text);
      });
    case FrameType::peers:
      return act(parse<Peers>(body), [&](const Peers& peers) {
        if (peers.first != membership_.addresses.size()) return;
        for (const std::string& address : peers.addresses)
          membership_.addresses.push_back(printable(address));
      });
    case FrameType::start:
      return act(parse<Start>(body), [&](const Start& start) { begin_work(start); });
    case FrameType::reply:
      return act(parse<Reply>(body), [&](Reply reply) {
        if (reply.status != Reply::Status::done) reply.value = printable(reply.value, longest_text);
        control_.answer(std::move(reply));
      });
    case FrameType::verdict:
      return act(parse<LostPeer>(body), [&](LostPeer loss) {
        loss.how = printable(loss.how);
        loss.address = printable(loss.address);
        lose(std::move(loss));
      });
    case FrameType::farewell:
      chief_left_ = true;
      return control_.all_left();
    case FrameType::goodbye:
      return act(parse<Goodbye>(body), [&](Goodbye goodbye) {
        if (goodbye.cause) lose(std::move(*goodbye.cause));
        chief_left_ = true;
        control_.all_left();
        if (!said_goodbye_) say_goodbye();
        link_->finish();
      });
    default:
      gone("sent a message that is not for a worker");
  }
}

void Worker::begin_work(const Start& start) {
  if (started_ || membership_.addresses.size() != setup_.cluster.world_size ||
      start.rank >= setup_.cluster.world_size)
    return gone("sent a start that does not fit the job");
  started_ = admitted_ = true;
  membership_.rank = start.rank;
  membership_.run_id = start.run_id;
  membership_.key = start.key;
  membership_.local_address = start.data_address.empty() ? link_->local().address().to_string()
                                                         : printable(start.data_address);
  control_.joined(membership_);
}

void Worker::gone(const std::string& how) {
  if (!started_ && !control_.ended()) return failed("it " + how);
  if (link_) link_->close();
  if (winding_down_) control_.wound_down();
  if (started_ && !chief_left_ && !winding_down_) lose_chief(how);
}

std::optional<std::uint64_t> Worker::last_step() const {
  const WorkerProgress own = board_.read();
  return own.step > 0 ? std::optional(own.step - 1) : std::nullopt;
}

void Worker::lose(LostPeer loss) {
  if (control_.lose(std::move(loss))) control_.announce();
}

void Worker::beat() {
  const auto stamps = round_trip_.stamps(Clock::now(), round_trip_.longest());
  link_->send(frame(Heartbeat{board_.read(), still_.still(), control_.exchange(), stamps}));
}

void Worker::tick() {
  const auto now = Clock::now();
  const bool on_time = punctuality_.on_time(now);
  still_.look(board_, now, on_time);
  if (!on_time) heard_ = now;
  if (admitted_ && link_ && link_->open()) {
    if (!chief_left_ && !control_.ended() && now - heard_ >= setup_.timeouts.silence) {
      const std::string how = fmt::format("was silent for {}", seconds(setup_.timeouts.silence));
      if (started_) {
        lose_chief(how);
        // For a chief that wakes up later.
        leave();
      } else {
        failed("it " + how);
      }
    }
    if (link_ && !said_goodbye_) beat();
  }
  if (!started_ && !control_.ended()) wait_for_start(now);
  ticker_.after(heartbeat_interval, [this] { tick(); });
}

}  // namespace lockstep::detail
