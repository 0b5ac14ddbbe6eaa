/// \file
/// What all headers see of fmt: its forward part or, from fmt 11 on, where that has no
/// fmt::format, <fmt/format.h>. Invariant: no header includes more of fmt, except lockstep/fmt.hpp,
/// which is opt-in.
#pragma once

// fmt 9 checks format strings at compile time, for which nvcc needs this.
#if defined(__NVCC__) && !defined(FMT_USE_CONSTEXPR)
#define FMT_USE_CONSTEXPR 1
#endif
#include <fmt/core.h>
#if FMT_VERSION >= 110000
#include <fmt/format.h>
#endif
