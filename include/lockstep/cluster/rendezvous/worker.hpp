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

class Worker final : public Side {
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
  LOCKSTEP_COLD_DECL void wind_down() override;
  LOCKSTEP_COLD_DECL void sever() override;

 private:
  static constexpr std::size_t longest_how = 1024;

  bool connected() const { return started_ && link_ && link_->open(); }

  LOCKSTEP_COLD_DECL void say_goodbye();

  // --- the join ---

  LOCKSTEP_COLD_DECL void again(milliseconds pause);

  /// One address of the chief after the other, then from the beginning.
  LOCKSTEP_COLD_DECL void attempt();

  /// Those of the job's family; IPv4 first as long as that is not known.
  LOCKSTEP_COLD_DECL std::vector<tcp::endpoint> in_order(
      const std::vector<tcp::endpoint>& endpoints) const;
  LOCKSTEP_COLD_DECL void refuse_family(const LookupResult& found);
  LOCKSTEP_COLD_DECL void connect(const tcp::endpoint& endpoint);
  LOCKSTEP_COLD_DECL void connected_to_chief();
  LOCKSTEP_COLD_DECL void refuse_handshake(const asio::error_code& error);

  /// A stranger at the chief's address does not end this process: the chief may still come.
  LOCKSTEP_COLD_DECL void distrust(const std::string& what);
  LOCKSTEP_COLD_DECL void introduce();

  /// This attempt came to nothing.
  LOCKSTEP_COLD_DECL void failed(const std::string& why);
  LOCKSTEP_COLD_DECL static std::string reason(const asio::error_code& error);
  LOCKSTEP_COLD_DECL void refuse(const std::string& sentence);
  LOCKSTEP_COLD_DECL void wait_for_start(Clock::time_point now);

  /// Not the others' fault.
  LOCKSTEP_COLD_DECL void fail_here(const std::string& sentence);
  LOCKSTEP_COLD_DECL std::string described(std::size_t rank) const;

  // --- the chief ---

  LOCKSTEP_COLD_DECL void hear(FrameType type, std::string_view body);
  LOCKSTEP_COLD_DECL void begin_work(const Start& start);
  LOCKSTEP_COLD_DECL void gone(const std::string& how);

  void lose_chief(const std::string& how) { lose({0, described(0), how, last_step()}); }

  LOCKSTEP_COLD_DECL std::optional<std::uint64_t> last_step() const;
  LOCKSTEP_COLD_DECL void lose(LostPeer loss);

  // --- time ---

  LOCKSTEP_COLD_DECL void beat();
  LOCKSTEP_COLD_DECL void tick();

  /// Between two attempts: workers often start a moment before their chief.
  static constexpr milliseconds shortest_pause{5}, longest_pause{200};
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
  Later::Way family_ = Later::Way::any;  // as the chief said
  std::vector<tcp::endpoint> endpoints_;
  std::size_t next_endpoint_ = 0;
  milliseconds pause_ = shortest_pause;
  std::string failure_ = "no attempt has ended yet";
  std::string distrusted_;  // why, as it was logged
  Waiting missing_;
  Membership membership_;
  Punctuality punctuality_{Clock::now()};
  StillTimer still_;
  RoundTrip round_trip_;
  Clock::time_point began_, next_line_, attempt_began_, heard_;
  bool admitted_ = false, started_ = false, over_ = false, out_of_files_ = false;
  bool chief_left_ = false, said_goodbye_ = false, winding_down_ = false;
};

}  // namespace lockstep::detail

#ifdef LOCKSTEP_HEADER_ONLY
#include "lockstep/cluster/rendezvous/worker.ipp"
#endif
