/// \file
/// What is said where a library is missing that lockstep can do without.
#pragma once

#include <atomic>
#include <string_view>

#include "lockstep/core/log.hpp"

namespace lockstep::detail::cuda {

/// Says `text` as a warning the first time that it is called with this flag.
[[gnu::cold]] inline void warn_once(std::atomic<bool>& said, std::string_view text) {
  if (!said.exchange(true)) log(LogLevel::warning, text);
}

}  // namespace lockstep::detail::cuda
