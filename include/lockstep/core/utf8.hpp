/// \file
/// Text as UTF-8. Invariant: well-formed text is not changed.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include "lockstep/core/config.hpp"

namespace lockstep::detail {

/// Size in bytes of the first code point of `text`, which is not empty. 0 if it is not well-formed:
/// overlong, a surrogate, above U+10FFFF or cut off.
LOCKSTEP_COLD_DECL std::size_t code_point_size(std::string_view text);

/// Whether all code points of `text` are well-formed.
LOCKSTEP_COLD_DECL bool is_utf8(std::string_view text);

/// `text`, with U+FFFD instead of each byte that is not part of a well-formed code point.
/// \code
///   to_utf8("caf\xE9") == "caf\xEF\xBF\xBD"
/// \endcode
LOCKSTEP_COLD_DECL std::string to_utf8(std::string_view text);

}  // namespace lockstep::detail

#ifdef LOCKSTEP_HEADER_ONLY
#include "lockstep/core/utf8.ipp"
#endif
