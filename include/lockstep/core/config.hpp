/// \file
/// The two forms of the library. Header-only, the default: each unit compiles the definitions that
/// it uses. Separately compiled, with LOCKSTEP_SEPARATE_COMPILATION defined in each unit of a
/// program: headers only declare, and the definitions are compiled once, by a source file for each
/// component that includes `lockstep/impl/src.hpp`, `src_cpu.hpp`, `src_cluster.hpp` or
/// `src_cuda.hpp`, or by the CMake targets `lockstep::compiled`, `lockstep::compiled_cpu`, ....
/// Invariant: a program with both forms does not link.
///
/// A header's definitions stand beside it in an .ipp file, which the header includes at its end in
/// the header-only form:
/// \code
///   LOCKSTEP_DECL int f();        // in x.hpp
///
///   #ifdef LOCKSTEP_HEADER_ONLY
///   #include "lockstep/core/x.ipp"
///   #endif
///
///   int f() { return 1; }         // in x.ipp
/// \endcode
#pragma once

/// \def LOCKSTEP_DECL
/// Stands first in the declaration of a function, or member function, whose definition is in an
/// .ipp file.
/// \def LOCKSTEP_COLD_DECL
/// The same for what runs a few times at most: compilers spend little time and space on it.
#ifdef LOCKSTEP_SEPARATE_COMPILATION
#define LOCKSTEP_DECL
#define LOCKSTEP_COLD_DECL [[gnu::cold]]
#else
#define LOCKSTEP_HEADER_ONLY 1
#define LOCKSTEP_DECL inline
#define LOCKSTEP_COLD_DECL [[gnu::cold]] inline
#endif

// A program with both forms does not link, and the error has the name below. GNU ld and gold refuse
// a symbol that is thread-local in one unit and not so in another, lld a section. With clang's -flto
// only lld does.
#ifdef LOCKSTEP_SEPARATE_COMPILATION
#define LOCKSTEP_FORM thread_local
#else
#define LOCKSTEP_FORM
#endif
namespace lockstep::detail {
[[gnu::used]] inline LOCKSTEP_FORM char
    define_LOCKSTEP_SEPARATE_COMPILATION_in_all_units_of_a_program_or_in_none = 0;
[[gnu::used,
  gnu::section("define_LOCKSTEP_SEPARATE_COMPILATION_in_all_units_of_a_program_or_in_none")]]
static LOCKSTEP_FORM char form = 0;
}  // namespace lockstep::detail
#undef LOCKSTEP_FORM
