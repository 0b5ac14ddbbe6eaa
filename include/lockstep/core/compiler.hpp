/// \file
/// Stops compilers that cannot compile the library. Invariant: every entry header includes this
/// file first, and the file includes nothing else.
///
/// After an #error a compiler goes on, with thousands of errors; a missing file ends it at once.
/// The version comes first: with g++ 10 or older, -std=c++20 does not give 202002L.
#pragma once

#if defined(__clang__)
#if __clang_major__ < 14
#include "lockstep needs clang 14 or newer, or g++ 12 or newer"
#endif
#elif __GNUC__ < 12
#include "lockstep needs g++ 12 or newer, or clang 14 or newer: for example CXX=g++-12"
#endif
#if __cplusplus < 202002L
#include "lockstep needs C++20: add -std=c++20"
#endif
