/// \file
/// What must be equal on all ranks. Invariant: a difference is told by its field, both ranks and
/// both values, in printable characters, short enough for a line, and so that the values shown
/// differ; fields of any length can be compared.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "lockstep/cluster/rendezvous/messages.hpp"
#include "lockstep/core/config.hpp"

namespace lockstep::detail {

/// A longer value travels as its digest in the first frame of a connection.
inline constexpr std::size_t max_join_value_bytes = 768;

/// `value` in quotes. A long one, a list "name of an item, ...; name of an item, ...", is cut
/// around `difference`: from the item that differs on, or its name and the part that differs.
LOCKSTEP_COLD_DECL std::string quote_from(std::string_view value, std::size_t difference);

/// The first field in which `a` and `b` differ, as a sentence; nothing if there is none.
/// `name_a` and `name_b` are "rank 0 (10.0.0.1:12345)" and the like.
LOCKSTEP_COLD_DECL std::optional<std::string> difference(std::string_view part,
                                                         const std::string& name_a,
                                                         const std::vector<SignatureField>& a,
                                                         const std::string& name_b,
                                                         const std::vector<SignatureField>& b);

/// `fields` in portions that fit in a frame each. A value that is too long goes on in the next one,
/// under the same name. A portion that is not the last ends with what comes next, so that ranks
/// with different numbers of portions differ in one that both have. \throws UsageError for a name
/// that is too long.
LOCKSTEP_COLD_DECL std::vector<std::vector<SignatureField>> split_fields(
    const std::vector<SignatureField>& fields, std::size_t room = max_frame_bytes / 2);

/// \throws UsageError if `fields`, the long values among them as digests, do not fit in the first
/// frame of a connection.
LOCKSTEP_COLD_DECL void check_join_fields(const std::vector<SignatureField>& fields);

}  // namespace lockstep::detail

#ifdef LOCKSTEP_HEADER_ONLY
#include "lockstep/cluster/rendezvous/signature.ipp"
#endif
