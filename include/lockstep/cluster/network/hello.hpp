/// \file
/// The first message of a worker, and the refusal that a listener or the chief sends. Invariant:
/// `parse` returns a message whose lengths and enumerators have been checked, or nullopt.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "lockstep/cluster/network/frames.hpp"

namespace lockstep {

/// A name and a value that must be equal on all ranks: {"optimizer", "SGD learning_rate=0.001"}.
using SignatureField = std::pair<std::string, std::string>;

namespace detail {

/// An IPv6 address with a zone fits.
inline constexpr std::size_t max_address_bytes = 64;

/// Fields within a message.
[[gnu::cold]] inline void write_fields(FrameWriter& to, const std::vector<SignatureField>& fields) {
  to.number(static_cast<std::uint32_t>(fields.size()));
  for (const auto& [name, value] : fields) to.bytes(name).bytes(value);
}

[[gnu::cold]] inline std::vector<SignatureField> read_fields(FrameReader& from) {
  std::vector<SignatureField> fields(from.count(8));
  for (auto& [name, value] : fields) {
    name = from.bytes(max_name_bytes);
    value = from.bytes(max_frame_bytes);
  }
  return fields;
}

/// The first message of a worker.
struct Hello {
  static constexpr FrameType type = FrameType::hello;
  static constexpr std::uint32_t any_rank = 0xFFFF'FFFF;
  std::string job_id{};
  bool job_id_given = false;  ///< false: derived from the cluster description
  std::uint32_t rank = any_rank;
  std::vector<SignatureField> fields{};
  /// LOCKSTEP_DATA_ADDRESS, or the sender's end of this connection; empty: a loopback address.
  std::string data_address{};

  [[gnu::cold]] void write(FrameWriter& to) const {
    to.bytes(job_id).flag(job_id_given).number(rank);
    write_fields(to, fields);
    if (!data_address.empty()) to.bytes(data_address);
  }
  [[gnu::cold]] void read(FrameReader& from) {
    job_id = from.bytes(max_name_bytes);
    job_id_given = from.flag();
    rank = from.number<std::uint32_t>();
    fields = read_fields(from);
    if (!from.has_more()) return;
    data_address = from.bytes(max_address_bytes);
    from.require(!data_address.empty());
  }
};

/// The worker cannot join this job; `sentence` is its error.
struct Refuse {
  static constexpr FrameType type = FrameType::refuse;
  /// After the last two, the chief of the worker's own job may have another port.
  enum class Reason : std::uint8_t { definite, other_job, other_secret };
  std::string sentence{};
  Reason reason{};

  [[gnu::cold]] void write(FrameWriter& to) const {
    to.bytes(sentence);
    if (reason != Reason::definite) to.number(static_cast<std::uint8_t>(reason));
  }
  [[gnu::cold]] void read(FrameReader& from) {
    sentence = from.bytes(max_text_bytes);
    if (!from.has_more()) return;
    reason = from.choice(Reason::other_secret);
    from.require(reason != Reason::definite);
  }
};

}  // namespace detail
}  // namespace lockstep
