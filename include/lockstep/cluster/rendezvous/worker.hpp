/// \file
/// The side of the rendezvous that connects to the chief. Invariants: until the start it tries
/// again and again, up to the deadline, whatever answers at the chief's address, unless the chief
/// itself refuses it; after the start a broken or silent connection to the chief
/// means that the chief is lost, unless it has said something else before.
#pragma once

#include <asio/io_context.hpp>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "lockstep/cluster/rendezvous/clock.hpp"
#include "lockstep/cluster/rendezvous/connection.hpp"
#include "lockstep/cluster/rendezvous/control.hpp"
#include "lockstep/cluster/rendezvous/lookup.hpp"
#include "lockstep/cluster/rendezvous/messages.hpp"
#include "lockstep/cluster/rendezvous/timer.hpp"
#include "lockstep/core/config.hpp"

namespace lockstep::detail {

class Worker final : public Role {
 public:
  LOCKSTEP_COLD_DECL Worker(asio::io_context& io, Control& control, const ProgressBoard& board,
                            const JoinSetup& setup, PskContext* psk);
  Worker(const Worker&) = delete;  // its link's handlers keep its address
  Worker& operator=(const Worker&) = delete;

  LOCKSTEP_COLD_DECL void begin() override;
  LOCKSTEP_COLD_DECL void submit(Request request) override;
  LOCKSTEP_COLD_DECL void accuse(Accuse accusation) override;
  LOCKSTEP_COLD_DECL void fail(const std::string& what) override;
  LOCKSTEP_COLD_DECL void leave() override;
  LOCKSTEP_COLD_DECL void shut_down() override;
  LOCKSTEP_COLD_DECL void abort() override;

 private:
  static constexpr std::size_t max_reason_bytes = 1024;

  bool connected() const { return started_ && link_ && link_->open(); }

  LOCKSTEP_COLD_DECL void send_leave();

  // --- the join ---

  LOCKSTEP_COLD_DECL void retry_after(milliseconds pause);

  /// One address of the chief after the other, then from the beginning.
  LOCKSTEP_COLD_DECL void attempt();

  /// Those of the job's family; IPv4 first as long as that is not known.
  LOCKSTEP_COLD_DECL std::vector<tcp::endpoint> preferred_endpoints(
      const std::vector<tcp::endpoint>& endpoints) const;
  LOCKSTEP_COLD_DECL void refuse_address_family(const LookupResult& found);
  LOCKSTEP_COLD_DECL void connect(const tcp::endpoint& endpoint);
  LOCKSTEP_COLD_DECL void connected_to_chief();
  LOCKSTEP_COLD_DECL void refuse_handshake(const asio::error_code& error);

  /// A stranger at the chief's address does not end this process: the chief may still come.
  LOCKSTEP_COLD_DECL void retry_untrusted(const std::string& what);
  LOCKSTEP_COLD_DECL void send_hello();

  /// This attempt came to nothing.
  LOCKSTEP_COLD_DECL void attempt_failed(const std::string& why);
  LOCKSTEP_COLD_DECL static std::string connect_error(const asio::error_code& error);
  LOCKSTEP_COLD_DECL void refuse_join(const std::string& sentence);
  LOCKSTEP_COLD_DECL void check_join(Clock::time_point now);

  /// Not the others' fault.
  LOCKSTEP_COLD_DECL void fail_locally(const std::string& sentence);
  LOCKSTEP_COLD_DECL std::string address_of(std::size_t rank) const;

  // --- the chief ---

  LOCKSTEP_COLD_DECL void on_frame(FrameType type, std::string_view body);
  LOCKSTEP_COLD_DECL void on_start(const Start& start);
  LOCKSTEP_COLD_DECL void on_disconnect(const std::string& how);

  void declare_chief_lost(const std::string& how) {
    declare_lost({0, address_of(0), how, last_step()});
  }

  LOCKSTEP_COLD_DECL std::optional<std::uint64_t> last_step() const;
  LOCKSTEP_COLD_DECL void declare_lost(LostPeer loss);

  // --- time ---

  LOCKSTEP_COLD_DECL void send_heartbeat();
  LOCKSTEP_COLD_DECL void tick();

  /// Between two attempts: workers often start a moment before their chief.
  static constexpr milliseconds min_pause{5}, max_pause{200};
  /// After the own deadline, for the chief's verdict.
  static constexpr milliseconds verdict_grace{1000};

  asio::io_context& io_;
  Control& control_;
  const ProgressBoard& board_;
  const JoinSetup& setup_;
  PskContext* psk_;
  HostPort chief_;
  RepeatedLookup lookup_;
  Timer ticker_, retry_;
  std::shared_ptr<Connection> link_;
  RetryLater::AddressFamily address_family_ = RetryLater::AddressFamily::any;  // as the chief said
  std::vector<tcp::endpoint> endpoints_;
  std::size_t next_endpoint_ = 0;
  milliseconds pause_ = min_pause;
  std::string last_failure_ = "no attempt has finished yet";
  std::string last_distrust_;  // why, as it was logged
  MissingRanks missing_;
  Membership membership_;
  WakeupMonitor wakeups_{Clock::now()};
  StallTimer stall_timer_;
  RoundTrip round_trip_;
  Clock::time_point join_started_at_, next_log_, attempt_began_, last_heard_;
  bool admitted_ = false, started_ = false, stopped_ = false, out_of_files_ = false;
  bool chief_left_ = false, leave_sent_ = false, shutting_down_ = false;
};

}  // namespace lockstep::detail

#ifdef LOCKSTEP_HEADER_ONLY
#include "lockstep/cluster/rendezvous/worker.ipp"
#endif
