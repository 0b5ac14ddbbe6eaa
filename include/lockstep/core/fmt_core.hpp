/// \file
/// The part of fmt with which format_text is implemented: <fmt/core.h> or, from fmt 11 on, where it
/// lacks fmt::format, <fmt/format.h>. Invariant: no header includes more of fmt, except the opt-in
/// lockstep/fmt.hpp.
#pragma once

// nvcc needs this for fmt 9, which checks format strings at compile time.
#if defined(__NVCC__) && !defined(FMT_USE_CONSTEXPR)
#define FMT_USE_CONSTEXPR 1
#endif
#include <fmt/core.h>
#if FMT_VERSION >= 110000
#include <fmt/format.h>
#endif
