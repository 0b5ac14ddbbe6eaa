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
#include "lockstep/core/error.hpp"
#include "lockstep/core/exchange_progress.hpp"

namespace lockstep {

/// A name and a value that must be equal on all ranks: {"optimizer", "SGD learning_rate=0.001"}.
using SignatureField = std::pair<std::string, std::string>;

namespace detail {

inline constexpr std::size_t longest_text = 4096, longest_name = 256;
/// IPv6 with a zone.
inline constexpr std::size_t longest_address = 64;
/// A value in the store; the rest of the frame is for its name and numbers.
inline constexpr std::size_t longest_value = longest_frame - 1024;

/// All have left: nothing more is said.
struct Farewell {
  static constexpr FrameType type = FrameType::farewell;
  void write(FrameWriter&) const {}
  void read(FrameReader&) {}
};

inline void write_fields(FrameWriter& to, const std::vector<SignatureField>& fields) {
  to.number(static_cast<std::uint32_t>(fields.size()));
  for (const auto& [name, value] : fields) to.bytes(name).bytes(value);
}
inline std::vector<SignatureField> read_fields(FrameReader& from) {
  std::vector<SignatureField> fields(from.count(8));
  for (auto& [name, value] : fields) {
    name = from.bytes(longest_name);
    value = from.bytes(longest_frame);
  }
  return fields;
}

struct Hello {
  static constexpr FrameType type = FrameType::hello;
  static constexpr std::uint32_t any_rank = 0xFFFF'FFFF;
  std::string job_id{};
  bool job_id_given = false;  ///< false: made from the description of the cluster
  std::uint32_t rank = any_rank;
  std::vector<SignatureField> fields{};
  std::string data_address{};  ///< LOCKSTEP_DATA_ADDRESS; empty: the chief decides

  void write(FrameWriter& to) const {
    to.bytes(job_id).flag(job_id_given).number(rank);
    write_fields(to, fields);
    if (!data_address.empty()) to.bytes(data_address);
  }
  void read(FrameReader& from) {
    job_id = from.bytes(longest_name);
    job_id_given = from.flag();
    rank = from.number<std::uint32_t>();
    fields = read_fields(from);
    if (!from.has_more()) return;
    data_address = from.bytes(longest_address);
    from.require(!data_address.empty());
  }
};

struct Refuse {
  static constexpr FrameType type = FrameType::refuse;
  std::string sentence{};
  void write(FrameWriter& to) const { to.bytes(sentence); }
  void read(FrameReader& from) { sentence = from.bytes(longest_text); }
};

/// The newcomer is not let in now. It tries again until its deadline.
struct Later {
  static constexpr FrameType type = FrameType::later;
  enum class Way : std::uint8_t { any, ipv4, ipv6 };
  std::string reason{};   ///< for people
  Way family = Way::any;  ///< by which the job's members reach the chief
  void write(FrameWriter& to) const { to.bytes(reason).number(static_cast<std::uint8_t>(family)); }
  void read(FrameReader& from) {
    reason = from.bytes(longest_text);
    family = from.choice(Way::ipv6);
  }
};

struct Waiting {
  static constexpr FrameType type = FrameType::waiting;
  std::uint32_t count = 0;  ///< how many are missing
  std::uint32_t first = 0;  ///< the first of them
  std::string names{};      ///< of all, for people
  void write(FrameWriter& to) const { to.number(count).number(first).bytes(names); }
  void read(FrameReader& from) {
    count = from.number<std::uint32_t>();
    first = from.number<std::uint32_t>();
    names = from.bytes(longest_text);
  }
};

struct Peers {
  static constexpr FrameType type = FrameType::peers;
  std::uint32_t first = 0;
  std::vector<std::string> addresses{};
  void write(FrameWriter& to) const {
    to.number(first).number(static_cast<std::uint32_t>(addresses.size()));
    for (const std::string& address : addresses) to.bytes(address);
  }
  void read(FrameReader& from) {
    first = from.number<std::uint32_t>();
    addresses.resize(from.count(4));
    for (std::string& address : addresses) address = from.bytes(longest_text);
  }
};

using RunId = std::array<std::uint8_t, 16>;
using MeshKey = std::array<std::uint8_t, 32>;

struct Start {
  static constexpr FrameType type = FrameType::start;
  std::uint32_t rank = 0;
  RunId run_id{};
  MeshKey key{};
  std::string data_address{};  ///< where this member's data connections end
  void write(FrameWriter& to) const {
    to.number(rank);
    for (const auto byte : run_id) to.number(byte);
    for (const auto byte : key) to.number(byte);
    to.bytes(data_address);
  }
  void read(FrameReader& from) {
    rank = from.number<std::uint32_t>();
    for (auto& byte : run_id) byte = from.number<std::uint8_t>();
    for (auto& byte : key) byte = from.number<std::uint8_t>();
    data_address = from.bytes(longest_address);
  }
};

struct Heartbeat {
  static constexpr FrameType type = FrameType::heartbeat;
  WorkerProgress progress{};
  std::chrono::milliseconds still{0};  ///< without progress, by the rank's own clock
  ExchangeProgress exchange{};
  TimeStamps stamps{};
  void write(FrameWriter& to) const {
    to.number(progress.step).number(static_cast<std::uint8_t>(progress.phase));
    to.flag(progress.first_step).number(static_cast<std::uint32_t>(still.count()));
    to.number(exchange.done);
    to.number(exchange.waits_for ? static_cast<std::uint32_t>(*exchange.waits_for) : nobody);
    to.number(stamps.sent).number(stamps.echo).number(stamps.held).number(stamps.longest);
  }
  void read(FrameReader& from) {
    progress.step = from.number<std::uint64_t>();
    progress.phase = from.choice(last_phase);
    progress.first_step = from.flag();
    still = std::chrono::milliseconds(from.number<std::uint32_t>());
    exchange.done = from.number<std::uint64_t>();
    const auto whom = from.number<std::uint32_t>();
    exchange.waits_for = whom == nobody ? std::nullopt : std::optional<std::size_t>(whom);
    for (auto* stamp : {&stamps.sent, &stamps.echo, &stamps.held, &stamps.longest})
      *stamp = from.number<std::uint64_t>();
  }

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
  void write(FrameWriter& to) const {
    to.number(id).number(static_cast<std::uint8_t>(operation)).bytes(name).bytes(value);
    to.number(number).number(static_cast<std::uint32_t>(deadline.count()));
    write_fields(to, fields);
  }
  void read(FrameReader& from) {
    id = from.number<std::uint64_t>();
    operation = from.choice(Operation::agree);
    name = from.bytes(longest_name);
    value = from.bytes(longest_value);
    number = from.number<std::uint64_t>();
    deadline = std::chrono::milliseconds(from.number<std::uint32_t>());
    fields = read_fields(from);
  }
};

struct Reply {
  static constexpr FrameType type = FrameType::reply;
  enum class Status : std::uint8_t { done, late, wrong };
  std::uint64_t id = 0;
  Status status{};
  std::string value{};  ///< or the sentence
  std::uint64_t number = 0;
  void write(FrameWriter& to) const {
    to.number(id).number(static_cast<std::uint8_t>(status)).bytes(value).number(number);
  }
  void read(FrameReader& from) {
    id = from.number<std::uint64_t>();
    status = from.choice(Status::wrong);
    value = from.bytes(longest_value);
    number = from.number<std::uint64_t>();
  }
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
  void read(FrameReader& from) {
    rank = from.number<std::uint32_t>();
    how = from.bytes(longest_text);
    other = from.number<std::uint32_t>();
  }
};

struct LastWords {
  static constexpr FrameType type = FrameType::failure;
  std::string what{};
  void write(FrameWriter& to) const { to.bytes(what); }
  void read(FrameReader& from) { what = from.bytes(longest_text); }
};

/// Who is lost: the root cause that all survivors name.
struct LostPeer {
  static constexpr FrameType type = FrameType::verdict;
  std::uint32_t rank = 0;
  std::string address{}, how{};
  std::optional<std::uint64_t> last_step{};

  PeerLost error() const { return PeerLost(rank, address, how, last_step); }
  void write(FrameWriter& to) const {
    to.number(rank).bytes(address).bytes(how).flag(last_step.has_value());
    if (last_step) to.number(*last_step);
  }
  void read(FrameReader& from) {
    rank = from.number<std::uint32_t>();
    address = from.bytes(longest_text);
    how = from.bytes(longest_text);
    if (from.flag()) last_step = from.number<std::uint64_t>();
  }
};

struct Goodbye {
  static constexpr FrameType type = FrameType::goodbye;
  std::optional<LostPeer> cause{};  ///< nothing: the work is done
  void write(FrameWriter& to) const {
    to.flag(cause.has_value());
    if (cause) cause->write(to);
  }
  void read(FrameReader& from) {
    if (from.flag()) cause.emplace().read(from);
  }
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
