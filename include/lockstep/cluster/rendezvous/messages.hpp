/// \file
/// What is said in the frames. Invariant: `read` gives a message whose lengths and enumerators have
/// been checked, or nothing.
#pragma once

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "lockstep/cluster/rendezvous/frames.hpp"
#include "lockstep/cluster/rendezvous/rank_progress.hpp"
#include "lockstep/cluster/rendezvous/round_trip.hpp"
#include "lockstep/core/config.hpp"
#include "lockstep/core/error.hpp"
#include "lockstep/core/exchange_progress.hpp"

namespace lockstep {

/// A name and a value that must be equal on all ranks: {"optimizer", "SGD learning_rate=0.001"}.
using SignatureField = std::pair<std::string, std::string>;

namespace detail {

inline constexpr std::size_t max_text_bytes = 4096, max_name_bytes = 256;
/// A value in the store; the rest of the frame is for its name and numbers.
inline constexpr std::size_t max_value_bytes = max_frame_bytes - 1024;

/// All have left: nothing more is said.
struct AllLeft {
  static constexpr FrameType type = FrameType::all_left;
  void write(FrameWriter&) const {}
  void read(FrameReader&) {}
};

struct Hello {
  static constexpr FrameType type = FrameType::hello;
  static constexpr std::uint32_t any_rank = 0xFFFF'FFFF;
  std::string job_id{};
  bool job_id_given = false;  ///< false: made from the description of the cluster
  std::uint32_t rank = any_rank;
  std::vector<SignatureField> fields{};
  std::string data_address{};  ///< LOCKSTEP_DATA_ADDRESS; empty: the chief decides

  LOCKSTEP_COLD_DECL void write(FrameWriter& to) const;
  LOCKSTEP_COLD_DECL void read(FrameReader& from);
};

struct Refuse {
  static constexpr FrameType type = FrameType::refuse;
  std::string sentence{};
  void write(FrameWriter& to) const { to.bytes(sentence); }
  void read(FrameReader& from) { sentence = from.bytes(max_text_bytes); }
};

/// The newcomer is not let in now. It tries again until its deadline.
struct RetryLater {
  static constexpr FrameType type = FrameType::retry_later;
  enum class AddressFamily : std::uint8_t { any, ipv4, ipv6 };
  std::string reason{};                       ///< for people
  AddressFamily family = AddressFamily::any;  ///< by which the job's members reach the chief
  void write(FrameWriter& to) const { to.bytes(reason).number(static_cast<std::uint8_t>(family)); }
  LOCKSTEP_COLD_DECL void read(FrameReader& from);
};

struct MissingRanks {
  static constexpr FrameType type = FrameType::missing;
  std::uint32_t count = 0;  ///< how many are missing
  std::uint32_t first = 0;  ///< the first of them
  std::string names{};      ///< of all, for people
  void write(FrameWriter& to) const { to.number(count).number(first).bytes(names); }
  LOCKSTEP_COLD_DECL void read(FrameReader& from);
};

struct Peers {
  static constexpr FrameType type = FrameType::peers;
  std::uint32_t first = 0;
  std::vector<std::string> addresses{};
  LOCKSTEP_COLD_DECL void write(FrameWriter& to) const;
  LOCKSTEP_COLD_DECL void read(FrameReader& from);
};

using RunId = std::array<std::uint8_t, 16>;
using MeshKey = std::array<std::uint8_t, 32>;

struct Start {
  static constexpr FrameType type = FrameType::start;
  std::uint32_t rank = 0;
  RunId run_id{};
  MeshKey key{};
  std::string data_address{};  ///< where this member's data connections end
  LOCKSTEP_COLD_DECL void write(FrameWriter& to) const;
  LOCKSTEP_COLD_DECL void read(FrameReader& from);
};

struct Heartbeat {
  static constexpr FrameType type = FrameType::heartbeat;
  WorkerProgress progress{};
  std::chrono::milliseconds stalled_for{0};  ///< without progress, by the rank's own clock
  ExchangeProgress exchange{};
  TimeStamps stamps{};
  LOCKSTEP_COLD_DECL void write(FrameWriter& to) const;
  LOCKSTEP_COLD_DECL void read(FrameReader& from);

 private:
  static constexpr std::uint32_t nobody = 0xFFFF'FFFF;
};

enum class Operation : std::uint8_t { set, get, add, barrier, agree };

struct Request {
  static constexpr FrameType type = FrameType::request;
  std::uint64_t id = 0;
  Operation operation{};
  std::string name{}, value{};
  std::uint64_t number = 0;               ///< of add
  std::chrono::milliseconds deadline{0};  ///< from now
  std::vector<SignatureField> fields{};   ///< of agree
  LOCKSTEP_COLD_DECL void write(FrameWriter& to) const;
  LOCKSTEP_COLD_DECL void read(FrameReader& from);
};

struct Reply {
  static constexpr FrameType type = FrameType::reply;
  enum class Status : std::uint8_t { ok, timeout, error };
  std::uint64_t id = 0;
  Status status{};
  std::string value{};  ///< or the sentence
  std::uint64_t number = 0;
  LOCKSTEP_COLD_DECL void write(FrameWriter& to) const;
  LOCKSTEP_COLD_DECL void read(FrameReader& from);
};

/// An exchange with `rank` failed, or its connection to another rank.
struct Accuse {
  static constexpr FrameType type = FrameType::accuse;
  static constexpr std::uint32_t nobody = 0xFFFF'FFFF;
  std::uint32_t rank = 0;
  std::string how{};
  std::uint32_t other = nobody;  ///< the other end of a connection that failed while both live
  bool names_link() const { return other != nobody; }
  void write(FrameWriter& to) const { to.number(rank).bytes(how).number(other); }
  LOCKSTEP_COLD_DECL void read(FrameReader& from);
};

struct FailureReport {
  static constexpr FrameType type = FrameType::failure;
  std::string what{};
  void write(FrameWriter& to) const { to.bytes(what); }
  void read(FrameReader& from) { what = from.bytes(max_text_bytes); }
};

/// Who is lost: the root cause that all survivors name.
struct LostPeer {
  static constexpr FrameType type = FrameType::verdict;
  std::uint32_t rank = 0;
  std::string address{}, how{};
  std::optional<std::uint64_t> last_step{};

  PeerLost error() const { return PeerLost(rank, address, how, last_step); }
  LOCKSTEP_COLD_DECL void write(FrameWriter& to) const;
  LOCKSTEP_COLD_DECL void read(FrameReader& from);
};

struct Leave {
  static constexpr FrameType type = FrameType::leave;
  std::optional<LostPeer> cause{};  ///< nothing: the work is done
  LOCKSTEP_COLD_DECL void write(FrameWriter& to) const;
  LOCKSTEP_COLD_DECL void read(FrameReader& from);
};

/// A message as a frame. \throws UsageError if it is too long.
template <class Message>
std::string frame(const Message& message) {
  FrameWriter writer(Message::type);
  message.write(writer);
  return std::move(writer).finish();
}

/// The message in `body`, or nothing if it is none.
template <class Message>
std::optional<Message> parse(std::string_view body) {
  FrameReader reader(body);
  Message message;
  message.read(reader);
  if (!reader.finished()) return std::nullopt;
  return message;
}

}  // namespace detail
}  // namespace lockstep

#ifdef LOCKSTEP_HEADER_ONLY
#include "lockstep/cluster/rendezvous/messages.ipp"
#endif
