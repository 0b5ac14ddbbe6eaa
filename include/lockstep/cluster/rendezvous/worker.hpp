/// \file
/// The side of the rendezvous that connects to the chief. Invariants: until the start it tries
/// again and again, up to the deadline; after the start a broken or silent connection to the chief
/// means that the chief is lost, unless it has said something else before.
#pragma once

#include <algorithm>
#include <asio/io_context.hpp>
#include <asio/steady_timer.hpp>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "lockstep/cluster/rendezvous/clock.hpp"
#include "lockstep/cluster/rendezvous/connection.hpp"
#include "lockstep/cluster/rendezvous/control.hpp"
#include "lockstep/cluster/rendezvous/lookup.hpp"
#include "lockstep/cluster/rendezvous/messages.hpp"

namespace lockstep::detail {

class Worker final : public Side {
 public:
  Worker(asio::io_context& io, Control& control, const ProgressBoard& board, const JoinSetup& setup,
         PskContext* psk)
      : io_(io),
        control_(control),
        board_(board),
        setup_(setup),
        psk_(psk),
        chief_(*setup.cluster.chief),
        ticker_(io),
        retry_(io) {}

  void begin() override {
    began_ = Clock::now();
    next_line_ = began_ + waiting_line_interval;
    tick();
    attempt();
  }

  void submit(Request request) override {
    if (chief_left_ || !connected()) return lose_chief("left");
    link_->send(frame(request));
  }

  void accuse(std::size_t rank, const std::string& how) override {
    if (chief_left_ || !connected()) return lose_chief("left");
    link_->send(frame(Accuse{static_cast<std::uint32_t>(rank), how.substr(0, longest_how)}));
  }

  void fail(const std::string& what) override {
    if (connected()) link_->send(frame(LastWords{what.substr(0, longest_how)}));
  }

  void leave() override {
    if (!connected() || said_goodbye_) return;
    say_goodbye();
  }

  void wind_down() override {
    over_ = true;
    retry_.cancel();
    winding_down_ = true;
    if (!connected()) return control_.wound_down();
    if (!said_goodbye_) say_goodbye();
    link_->finish();
    const auto verdict = control_.verdict();
    if (verdict && verdict->rank == 0) control_.wound_down();
  }

  void sever() override {
    over_ = true;
    if (link_) link_->close();
    ticker_.cancel();
    retry_.cancel();
  }

 private:
  static constexpr std::size_t longest_how = 1024;

  bool connected() const { return started_ && link_ && link_->open(); }

  void say_goodbye() {
    said_goodbye_ = true;
    beat();
    link_->send(frame(Goodbye{control_.verdict()}));
  }

  // --- the join ---

  void again(milliseconds pause) {
    if (over_ || control_.ended()) return;
    retry_.expires_after(pause);
    retry_.async_wait([this](const asio::error_code& error) {
      if (!error) attempt();
    });
  }

  /// One address of the chief after the other, then from the beginning.
  void attempt() {
    if (over_ || control_.ended()) return;
    if (!lookup_) lookup_.emplace(chief_);
    const auto found = lookup_->result();
    if (!found) {
      failure_ = "its host has not yet been looked up";
      return again(milliseconds(5));
    }
    if (next_endpoint_ >= found->endpoints.size()) {
      if (!found->error.empty()) failure_ = found->error;
      lookup_.reset();
      next_endpoint_ = 0;
      pause_ = std::min(2 * pause_, longest_pause);
      return again(pause_);
    }
    connect(found->endpoints[next_endpoint_++]);
  }

  void connect(const tcp::endpoint& endpoint) {
    asio::error_code error;
    tcp::socket socket(io_);
    open_socket(socket, endpoint.protocol(), error);
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

  void connected_to_chief() {
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

  void refuse_handshake(const asio::error_code& error) {
    const std::string where = to_string(chief_);
    if (ERR_GET_REASON(static_cast<unsigned long>(error.value())) == SSL_R_WRONG_VERSION_NUMBER)
      return refuse(text({"the chief at ", where,
                          " does not speak TLS: it has no secret, but this "
                          "process has one; set LOCKSTEP_SECRET_FILE to the same secret on all "
                          "ranks, or unset it on all"}));
    refuse(text({"the chief at ", where, " and this process do not have the same secret (",
                 error.message(), "); set LOCKSTEP_SECRET_FILE to the same secret on all ranks"}));
  }

  void introduce() {
    Hello hello{setup_.job_id, !setup_.cluster.job_id.empty(), Hello::any_rank, setup_.fields};
    if (setup_.cluster.rank) hello.rank = static_cast<std::uint32_t>(*setup_.cluster.rank);
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

  /// This attempt came to nothing.
  void failed(const std::string& why) {
    failure_ = why;
    admitted_ = false;
    if (link_) link_->close();
    link_.reset();
    again(shortest_pause);
  }

  static std::string reason(const asio::error_code& error) {
    if (error == asio::error::connection_refused) return "connection refused";
    if (error == asio::error::timed_out) return "no answer";
    return error.message();
  }

  void refuse(const std::string& sentence) {
    over_ = true;
    if (link_) link_->close();
    control_.refuse(std::make_exception_ptr(ClusterError(sentence)));
  }

  void wait_for_start(Clock::time_point now) {
    const milliseconds waited = whole_milliseconds(now - began_);
    const milliseconds deadline = setup_.cluster.rendezvous_timeout;
    if (!admitted_ && link_ && now - attempt_began_ >= handshake_limit) failed("no answer");
    if (waited >= deadline) {
      if (!admitted_)
        return lose_chief(
            text({"could not be joined within ", seconds(deadline), ": ", failure_, late_remedy}));
      std::string how = "never came within " + seconds(deadline);
      if (missing_.count > 1) how += "; missing: " + missing_.names;
      return lose({missing_.first, described(missing_.first), how + late_remedy, {}});
    }
    if (now < next_line_) return;
    next_line_ += waiting_line_interval;
    setup_.log(LogLevel::info,
               admitted_ ? text({"waiting for ", missing_.names, ": ", seconds(waited), " of ",
                                 seconds(deadline)})
                         : text({"waiting for the chief at ", to_string(chief_), ": ",
                                 seconds(waited), " of ", seconds(deadline), "; ", failure_}));
  }

  std::string described(std::size_t rank) const {
    return rank < setup_.cluster.world_size ? setup_.described_address(rank) : std::string();
  }

  // --- the chief ---

  void hear(FrameType type, std::string_view body) {
    heard_ = Clock::now();
    const auto act = [&](auto message, auto action) {
      if (message)
        action(std::move(*message));
      else
        gone("sent a message that is damaged");
    };
    switch (type) {
      case FrameType::heartbeat:
        return;
      case FrameType::refuse:
        return act(parse<Refuse>(body),
                   [&](const Refuse& r) { refuse(printable(r.sentence, longest_text)); });
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
          if (reply.status != Reply::Status::done)
            reply.value = printable(reply.value, longest_text);
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

  void begin_work(const Start& start) {
    if (started_ || membership_.addresses.size() != setup_.cluster.world_size ||
        start.rank >= setup_.cluster.world_size)
      return gone("sent a start that does not fit the job");
    started_ = admitted_ = true;
    membership_.rank = start.rank;
    membership_.run_id = start.run_id;
    membership_.key = start.key;
    membership_.local_address = link_->local().address().to_string();
    control_.joined(membership_);
  }

  void gone(const std::string& how) {
    if (!started_ && !control_.ended()) return failed("it " + how);
    if (link_) link_->close();
    if (winding_down_) control_.wound_down();
    if (started_ && !chief_left_ && !winding_down_) lose_chief(how);
  }

  void lose_chief(const std::string& how) { lose({0, described(0), how, last_step()}); }

  std::optional<std::uint64_t> last_step() const {
    const WorkerProgress own = board_.read();
    return own.step > 0 ? std::optional(own.step - 1) : std::nullopt;
  }

  void lose(LostPeer loss) {
    if (control_.lose(std::move(loss))) control_.announce();
  }

  // --- time ---

  void beat() { link_->send(frame(Heartbeat{board_.read(), still_.still(), control_.exchange()})); }

  void tick() {
    const auto now = Clock::now();
    const bool on_time = punctuality_.on_time(now);
    still_.look(board_, now, on_time);
    if (!on_time) heard_ = now;
    if (admitted_ && link_ && link_->open()) {
      if (!chief_left_ && !control_.ended() && now - heard_ >= silence_limit) {
        const std::string how = text({"was silent for ", seconds(silence_limit)});
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
    ticker_.expires_after(heartbeat_interval);
    ticker_.async_wait([this](const asio::error_code& error) {
      if (!error) tick();
    });
  }

  /// Between two attempts: workers often start a moment before their chief.
  static constexpr milliseconds shortest_pause{5}, longest_pause{200};

  asio::io_context& io_;
  Control& control_;
  const ProgressBoard& board_;
  const JoinSetup& setup_;
  PskContext* psk_;
  HostPort chief_;
  asio::steady_timer ticker_, retry_;
  std::shared_ptr<Connection> link_;
  std::optional<Lookup> lookup_;
  std::size_t next_endpoint_ = 0;
  milliseconds pause_ = shortest_pause;
  std::string failure_ = "no attempt has ended yet";
  Waiting missing_;
  Membership membership_;
  Punctuality punctuality_{Clock::now()};
  StillTimer still_;
  Clock::time_point began_, next_line_, attempt_began_, heard_;
  bool admitted_ = false, started_ = false, over_ = false;
  bool chief_left_ = false, said_goodbye_ = false, winding_down_ = false;
};

}  // namespace lockstep::detail
