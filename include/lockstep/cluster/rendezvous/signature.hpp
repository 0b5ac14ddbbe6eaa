/// \file
/// Comparison of what must be equal on all ranks. Invariant: a difference is reported by field,
/// both ranks and both values, as printable characters on one short line in which the shown values
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

/// A longer value is replaced by its digest in the first frame of a connection.
inline constexpr std::size_t max_join_value_bytes = 768;

/// `value` in quotes, shortened around `difference`. A long value is a list "name of an item, ...;
/// name of an item, ...": it is cut to the item that differs, or to that item's name and the part
/// that differs.
LOCKSTEP_COLD_DECL std::string quote_from(std::string_view value, std::size_t difference);

/// The first field in which `a` and `b` differ, as a sentence; nullopt if they are equal. `name_a`
/// and `name_b` are such as "rank 0 (10.0.0.1:12345)".
LOCKSTEP_COLD_DECL std::optional<std::string> difference(std::string_view part,
                                                         const std::string& name_a,
                                                         const std::vector<SignatureField>& a,
                                                         const std::string& name_b,
                                                         const std::vector<SignatureField>& b);

/// Splits `fields` into chunks of at most `room` bytes, one per frame. A value that does not fit
/// continues in the next chunk under the same name. Every chunk but the last ends with the name of
/// the next field, so that ranks with different numbers of chunks differ in a chunk that both have.
/// \throws UsageError for a name that is too long.
LOCKSTEP_COLD_DECL std::vector<std::vector<SignatureField>> split_fields(
    const std::vector<SignatureField>& fields, std::size_t room = max_frame_bytes / 2);

/// \throws UsageError if `fields`, with long values as digests, do not fit into the first frame of
/// a connection.
LOCKSTEP_COLD_DECL void check_join_fields(const std::vector<SignatureField>& fields);

}  // namespace lockstep::detail

#ifdef LOCKSTEP_HEADER_ONLY
#include "lockstep/cluster/rendezvous/signature.ipp"
#endif
