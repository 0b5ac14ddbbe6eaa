/// \file
/// The texts of all processes of a job. Invariant: each process sends as many requests as the
/// longest text needs, however many processes there are.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>
#include <vector>

#include "lockstep/cluster/rendezvous/rendezvous.hpp"
#include "lockstep/core/error.hpp"

namespace lockstep::detail {

/// Before each piece of a text: its bytes, and a bit that is set if more of the text follows.
using PieceHead = std::uint32_t;

inline constexpr PieceHead more_follows = 1U << 31;

/// The texts that all processes pass, by rank. Collective. `name`: see Rendezvous::gather, which does
/// the work: in one round if the texts have 60 KiB together. \throws as Rendezvous::gather;
/// ClusterError if a process of another version takes part.
[[gnu::cold]] inline std::vector<std::string> gather_texts(Rendezvous& job, std::string_view name,
                                                           std::string_view text,
                                                           std::chrono::milliseconds deadline) {
  const std::size_t size = job.size();
  // Rendezvous::gather returns 63 KiB at most.
  const std::size_t share = std::size_t{60} * 1024 / size;
  const std::size_t piece = share > 2 * sizeof(PieceHead) ? share - sizeof(PieceHead) : 1;
  std::vector<std::string> texts(size);
  for (bool has_more = true; has_more;) {
    const std::string_view now = text.substr(0, piece);
    text.remove_prefix(now.size());
    const PieceHead head =
        static_cast<PieceHead>(now.size()) | (text.empty() ? PieceHead{0} : more_follows);
    std::string value(reinterpret_cast<const char*>(&head), sizeof head);
    value += now;
    const std::string all = job.gather(name, {}, value, deadline);
    has_more = false;
    std::string_view rest = all;
    const auto pop = [&](std::size_t bytes) {
      if (rest.size() < bytes)
        throw ClusterError("{}: a process of another version of lockstep is in the job", name);
      const std::string_view popped = rest.substr(0, bytes);
      rest.remove_prefix(bytes);
      return popped;
    };
    for (std::string& of_rank : texts) {
      PieceHead found = 0;
      std::memcpy(&found, pop(sizeof found).data(), sizeof found);
      of_rank += pop(found & ~more_follows);
      has_more = has_more || (found & more_follows) != 0;
    }
  }
  return texts;
}

}  // namespace lockstep::detail
