/// \file
/// The most memory that a piece of code needs.
#pragma once

#include <cstddef>
#include <cstdint>
#include <fstream>
#include <optional>
#include <string>

namespace testing {

/// A field of /proc/self/status that is a size. \return bytes.
inline std::int64_t memory_of_this_process(const std::string& field) {
  std::ifstream in("/proc/self/status");
  for (std::string name; in >> name;) {
    std::int64_t kilobytes = 0;
    if (name == field + ':' && in >> kilobytes) return kilobytes * 1024;
  }
  return 0;
}

/// Starts to measure. \return the resident bytes, or nullopt where the kernel cannot forget the last
/// peak, or a sanitizer keeps freed memory.
inline std::optional<std::int64_t> begin_peak() {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  return std::nullopt;
#else
  const std::int64_t resident = memory_of_this_process("VmRSS");
  std::ofstream("/proc/self/clear_refs") << 5;
  // The peak is then what is resident, apart from a few pages.
  if (memory_of_this_process("VmHWM") > resident + (1 << 20)) return std::nullopt;
  return resident;
#endif
}

}  // namespace testing
