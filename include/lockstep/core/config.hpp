/// \file
/// The two forms of the library. Header-only, the default: each unit compiles the definitions that
/// it uses. Separately compiled, with LOCKSTEP_SEPARATE_COMPILATION defined in each unit of a
/// program: headers contain only declarations, and the definitions are compiled once, by a source
/// file for each component that includes `lockstep/impl/src.hpp`, `src_cpu.hpp`, `src_cluster.hpp`,
/// `src_tensorboard.hpp` or `src_cuda.hpp`, or by the CMake targets `lockstep::compiled`,
/// `lockstep::compiled_cpu`, ....
/// Invariant: a program that mixes both forms does not link.
///
/// The definitions of x.hpp are in x.ipp, in the same folder, except short ones and those of headers
/// that only .ipp files include: these are in x.hpp. In the header-only form the header includes
/// x.ipp at its end:
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
/// First token in the declaration of a function, or member function, whose definition is in an .ipp
/// file.
/// \def LOCKSTEP_COLD_DECL
/// The same for functions that run a few times at most; compilers optimize them for size and move
/// them out of the way.
#ifdef LOCKSTEP_SEPARATE_COMPILATION
#define LOCKSTEP_DECL
#define LOCKSTEP_COLD_DECL [[gnu::cold]]
#else
#define LOCKSTEP_HEADER_ONLY 1
#define LOCKSTEP_DECL inline
#define LOCKSTEP_COLD_DECL [[gnu::cold]] inline
#endif

// Makes the linker reject a program with both forms; the error shows the name of the variable
// below. GNU ld and gold reject a symbol that is thread-local in only some of the units, lld a
// section. With clang's -flto only lld detects the mix.
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
