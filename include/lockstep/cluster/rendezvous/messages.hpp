/// \file
/// The messages of the rendezvous; Hello and Refuse are in hello.hpp. Invariant: `parse` returns a
/// message whose lengths and enumerators have been checked, or nullopt.
///
///     join     worker: Hello            chief: MissingRanks..., Peers..., Start
///                                       chief: Refuse or RetryLater
///     job      both: Heartbeat          worker: Request         chief: Reply
///     failure  worker: Accuse, FailureReport                    chief: LostPeer to all ranks
///     end      both: Leave              chief: AllLeft
#pragma once

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "lockstep/cluster/network/frames.hpp"
#include "lockstep/cluster/network/hello.hpp"
#include "lockstep/cluster/rendezvous/rank_progress.hpp"
#include "lockstep/cluster/rendezvous/round_trip.hpp"
#include "lockstep/core/config.hpp"
#include "lockstep/core/error.hpp"
#include "lockstep/core/exchange_progress.hpp"

namespace lockstep::detail {

/// A value in the store; the rest of the frame holds its name and numbers.
inline constexpr std::size_t max_value_bytes = max_frame_bytes - 1024;

/// Every rank has left; no further message follows.
struct AllLeft {
  static constexpr FrameType type = FrameType::all_left;
  void write(FrameWriter&) const {}
  void read(FrameReader&) {}
};

/// The worker cannot join now. It retries until its deadline.
struct RetryLater {
  static constexpr FrameType type = FrameType::retry_later;
  enum class AddressFamily : std::uint8_t { any, ipv4, ipv6 };
  std::string reason{};                       ///< for messages
  AddressFamily family = AddressFamily::any;  ///< of the job; any: unchanged
  void write(FrameWriter& to) const { to.bytes(reason).number(static_cast<std::uint8_t>(family)); }
  LOCKSTEP_COLD_DECL void read(FrameReader& from);
};

/// The ranks that have not joined; sent with every heartbeat during the join.
struct MissingRanks {
  static constexpr FrameType type = FrameType::missing;
  std::uint32_t count = 0;  ///< the number of missing ranks
  std::uint32_t first = 0;  ///< the first of them
  std::string names{};      ///< of all, for messages
  void write(FrameWriter& to) const { to.number(count).number(first).bytes(names); }
  LOCKSTEP_COLD_DECL void read(FrameReader& from);
};

/// Addresses of ranks `first`, `first` + 1, ...; several frames for a large job.
struct Peers {
  static constexpr FrameType type = FrameType::peers;
  std::uint32_t first = 0;
  std::vector<std::string> addresses{};
  LOCKSTEP_COLD_DECL void write(FrameWriter& to) const;
  LOCKSTEP_COLD_DECL void read(FrameReader& from);
};

/// Random, one per run of a job.
using RunId = std::array<std::uint8_t, 16>;
/// Random, known to the ranks of this run only.
using MeshKey = std::array<std::uint8_t, 32>;

/// All ranks have joined: the receiver's rank and the secrets of this run.
struct Start {
  static constexpr FrameType type = FrameType::start;
  std::uint32_t rank = 0;
  RunId run_id{};
  MeshKey key{};
  std::string data_address{};  ///< the address that this rank publishes for data
  LOCKSTEP_COLD_DECL void write(FrameWriter& to) const;
  LOCKSTEP_COLD_DECL void read(FrameReader& from);
};

/// Sent every 0.25 s in both directions. Proves that the sender is alive and reports its progress.
struct Heartbeat {
  static constexpr FrameType type = FrameType::heartbeat;
  WorkerProgress progress{};
  std::chrono::milliseconds stalled_for{0};  ///< without progress, by the sender's clock
  ExchangeProgress exchange{};
  TimeStamps stamps{};
  LOCKSTEP_COLD_DECL void write(FrameWriter& to) const;
  LOCKSTEP_COLD_DECL void read(FrameReader& from);

 private:
  static constexpr std::uint32_t nobody = 0xFFFF'FFFF;
};

/// The operations of the store.
enum class Operation : std::uint8_t { set, get, add, barrier, agree, gather };

/// A request to the store.
struct Request {
  static constexpr FrameType type = FrameType::request;
  std::uint64_t id = 0;
  Operation operation{};
  std::string name{}, value{};
  std::uint64_t number = 0;               ///< the addend of add
  std::chrono::milliseconds deadline{0};  ///< from now
  std::vector<SignatureField> fields{};   ///< of agree and gather
  LOCKSTEP_COLD_DECL void write(FrameWriter& to) const;
  LOCKSTEP_COLD_DECL void read(FrameReader& from);
};

/// The reply to the request with the same id.
struct Reply {
  static constexpr FrameType type = FrameType::reply;
  enum class Code : std::uint8_t { ok, timeout, error };
  std::uint64_t id = 0;
  Code status{};
  std::string value{};       ///< or a sentence, if the status is not ok
  std::uint64_t number = 0;  ///< the sum of add; after a timeout, 1 + the missing rank, or 0
  LOCKSTEP_COLD_DECL void write(FrameWriter& to) const;
  LOCKSTEP_COLD_DECL void read(FrameReader& from);
};

/// An exchange with `rank` failed, or the connection between `rank` and `other`.
struct Accuse {
  static constexpr FrameType type = FrameType::accuse;
  static constexpr std::uint32_t nobody = 0xFFFF'FFFF;
  std::uint32_t rank = 0;
  std::string how{};
  std::uint32_t other = nobody;  ///< the other end of a failed link
  /// True if a link between two ranks failed, not an exchange with one rank.
  bool names_link() const { return other != nobody; }
  void write(FrameWriter& to) const { to.number(rank).bytes(how).number(other); }
  LOCKSTEP_COLD_DECL void read(FrameReader& from);
};

/// This process has failed and cannot continue.
struct FailureReport {
  static constexpr FrameType type = FrameType::failure;
  std::string what{};
  void write(FrameWriter& to) const { to.bytes(what); }
  void read(FrameReader& from) { what = from.bytes(max_text_bytes); }
};

/// The verdict: the lost rank, the root cause that all survivors report.
struct LostPeer {
  static constexpr FrameType type = FrameType::verdict;
  std::uint32_t rank = 0;
  std::string address{}, how{};
  std::optional<std::uint64_t> last_step{};

  /// The exception that the program sees.
  PeerLost error() const { return PeerLost(rank, address, how, last_step); }
  LOCKSTEP_COLD_DECL void write(FrameWriter& to) const;
  LOCKSTEP_COLD_DECL void read(FrameReader& from);
};

/// The sender leaves the job.
struct Leave {
  static constexpr FrameType type = FrameType::leave;
  std::optional<LostPeer> cause{};  ///< the verdict; nullopt: the work is done
  LOCKSTEP_COLD_DECL void write(FrameWriter& to) const;
  LOCKSTEP_COLD_DECL void read(FrameReader& from);
};

}  // namespace lockstep::detail

#ifdef LOCKSTEP_HEADER_ONLY
#include "lockstep/cluster/rendezvous/messages.ipp"
#endif
