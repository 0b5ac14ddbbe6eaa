/// \file
/// Text as UTF-8. Invariant: well-formed text is not changed.
#pragma once

#include <string>
#include <string_view>

#include "lockstep/core/config.hpp"

namespace lockstep::detail {

/// Whether `text` is valid UTF-8: no overlong encodings, no surrogates, nothing above U+10FFFF.
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
