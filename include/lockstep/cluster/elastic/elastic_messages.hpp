/// \file
/// The messages of an elastic job's agreement and their encoding, each in one frame of the type
/// `agreement`. Invariant: a decoded message has checked lengths and enumerators.
///
///     all      Notice: where the sender is; wanted in return if it polls
///     start    index 0: Form, MissingMembers     others: Notice with that run; index 0: Decided
///     decide   proposer: Prepare          machines: Promise
///              proposer: Accept           machines: Accepted       proposer: Decided
///     refuse   a member, or index 0: Refused
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "lockstep/cluster/elastic/ballot.hpp"
#include "lockstep/cluster/elastic/decision.hpp"
#include "lockstep/cluster/elastic/identity.hpp"
#include "lockstep/cluster/network/frames.hpp"
#include "lockstep/core/config.hpp"

namespace lockstep::detail {

/// A generation of a run.
struct GenerationId {
  std::uint64_t run = 0, number = 0;
  auto operator<=>(const GenerationId&) const = default;
};

/// Where a process is.
enum class Standing : std::uint8_t {
  fresh,    ///< not in a generation; asks to be admitted
  running,  ///< in a generation
  ending,   ///< has called `next` and waits for the next generation
  left      ///< has ended its work
};

/// Where the sender is.
struct Notice {
  static constexpr std::size_t max_rejected = 64;
  Standing standing = Standing::fresh;
  bool polls = false;         ///< wants a Notice in return
  GenerationId generation{};  ///< fresh: the run whose votes it holds, and 0
  MachineId machine{};
  std::vector<std::uint64_t> rejected{};  ///< incarnations that the sender does not accept
  bool operator==(const Notice&) const = default;
};

/// Index 0 asks a fresh process to hold the votes of a run.
struct Form {
  std::uint64_t run = 0;
  bool operator==(const Form&) const = default;
};

/// Index 0, to the processes that have come: the described processes that have not.
struct MissingMembers {
  static constexpr std::size_t max_listed = 8;
  std::uint32_t count = 0;
  std::vector<std::uint32_t> listed{};  ///< the lowest indexes
  bool operator==(const MissingMembers&) const = default;
};

/// First phase: asks a machine for its promise.
struct Prepare {
  GenerationId generation{};
  Ballot ballot{};
  bool operator==(const Prepare&) const = default;
};
/// The machine's vote after that.
struct Promise {
  GenerationId generation{};
  Ballot asked{};
  Vote vote{};
  bool operator==(const Promise&) const = default;
};

/// Second phase: asks a machine for its vote.
struct Accept {
  GenerationId generation{};
  Ballot ballot{};
  std::string value{};
  bool operator==(const Accept&) const = default;
};
/// The highest promise of the machine after that: the vote was given if it is the asked ballot.
struct Accepted {
  GenerationId generation{};
  Ballot asked{}, promised{};
  bool operator==(const Accepted&) const = default;
};

/// A generation has been decided.
struct Decided {
  Decision decision{};
  bool operator==(const Decided&) const = default;
};

/// The receiver cannot be a member.
struct Refused {
  std::string sentence{};
  bool is_transient = false;  ///< another process at its address may be admitted later
  bool operator==(const Refused&) const = default;
};

using ElasticMessage = std::variant<Notice, Form, MissingMembers, Prepare, Promise, Accept,
                                    Accepted, Decided, Refused>;

/// A message and who sent it. Serial numbers grow, so that what is overtaken is dropped.
struct Letter {
  Identity from{};
  std::uint64_t serial = 0;
  ElasticMessage message{};
  bool operator==(const Letter&) const = default;
};

/// The letter as a frame.
LOCKSTEP_COLD_DECL std::string frame(const Letter& letter);
/// The letter in a frame's body; nullopt if it is malformed.
LOCKSTEP_COLD_DECL std::optional<Letter> parse_letter(std::string_view body);

}  // namespace lockstep::detail

#ifdef LOCKSTEP_HEADER_ONLY
#include "lockstep/cluster/elastic/elastic_messages.ipp"
#endif
